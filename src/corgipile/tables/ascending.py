"""Detection of sorted columns from the minima and maxima in file footers; no row is read."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from corgipile.tables.concat import ConcatTable
from corgipile.tables.table import IntArray, Table

__all__ = ["Ranged", "Span", "sorted_columns"]

FIRST_PARTS, MIN_PART_ROWS = 64, 32  # parts checked first; rows that the first and last part must have


class Span(NamedTuple):
    """Minimum and maximum of some rows."""

    low: Any
    high: Any


@runtime_checkable
class Ranged(Protocol):
    """A table that knows the value ranges of its parts."""

    def part_rows(self) -> IntArray:
        """Return the rows of each part."""

    def spans(self, columns: Sequence[str], parts: Sequence[int]) -> dict[str, list[Span]]:
        """Return the value ranges of columns in non-empty parts, without columns whose ranges are unknown."""


def sorted_columns(table: Table) -> dict[str, str]:
    """Return the columns that a table is sorted by, each with ``"ascending"`` or ``"descending"``.

    A column ascends if each part's minimum is at least the maximum of the part before; descending is the reverse. The
    first and the last part must differ. Within a part, rows may have any order.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> from corgipile.tables import open
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"day": np.arange(200) // 3, "x": np.arange(200) % 7})
        ...     pq.write_table(rows, f"{folder}/a.parquet", row_group_size=50)
        ...     sorted_columns(open(f"{folder}/a.parquet"))
        {'day': 'ascending'}
    """
    files = _files(table)
    places = [(file, part) for file, one in enumerate(files) for part in np.flatnonzero(one.part_rows()).tolist()]
    if len(places) < 2 or any(_rows(files, place) < MIN_PART_ROWS for place in (places[0], places[-1])):
        return {}
    some = [places[at] for at in np.unique(np.linspace(0, len(places) - 1, FIRST_PARTS).astype(np.int64)).tolist()]
    sampled = _directions(files, table.schema.names, some)
    return sampled if len(some) == len(places) else _directions(files, list(sampled), places)


def _files(table: Table) -> list[Ranged]:
    """Return the files of a table, in order; none if one file has no value ranges."""
    if not isinstance(table, ConcatTable):
        return [table] if isinstance(table, Ranged) else []
    parts = [_files(part) for part in table.tables]
    return [one for files in parts for one in files] if all(parts) else []


def _rows(files: list[Ranged], place: tuple[int, int]) -> int:
    return int(files[place[0]].part_rows()[place[1]])


def _directions(files: list[Ranged], names: list[str], places: list[tuple[int, int]]) -> dict[str, str]:
    """Return the columns whose spans ascend or descend from part to part; each file is read once."""
    known: dict[str, list[Span]] = {name: [] for name in names}
    for number in dict.fromkeys(file for file, _ in places):
        spans_of = files[number].spans(list(known), [part for file, part in places if file == number])
        known = {name: known[name] for name in spans_of}
        for name, spans in spans_of.items():
            known[name] += spans
    directions = {name: _direction(spans) for name, spans in known.items()}
    return {name: direction for name, direction in directions.items() if direction is not None}


def _direction(spans: list[Span]) -> str | None:
    """Return the direction of spans, None if they have none."""
    if spans[-1].low > spans[0].high and all(after.low >= before.high for before, after in pairwise(spans)):
        return "ascending"
    if spans[-1].high < spans[0].low and all(after.high <= before.low for before, after in pairwise(spans)):
        return "descending"
    return None
