"""By which columns the parts of files ascend or descend, as their footers say; no row is read."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from corgipile.tables.concat import ConcatTable
from corgipile.tables.table import IntArray, Table

__all__ = ["Ranged", "Span", "ascending"]

FEW, LEAST = 64, 32  # parts that are looked at first; rows of one that tell anything


class Span(NamedTuple):
    """Least and greatest value of some rows."""

    low: Any
    high: Any


@runtime_checkable
class Ranged(Protocol):
    """A table that knows what is in its parts."""

    def part_rows(self) -> IntArray:
        """Return the rows of each part."""

    def spans(self, columns: Sequence[str], parts: Sequence[int]) -> dict[str, list[Span]]:
        """Return what values of columns lie between in parts that have rows; without those of which it is not known."""


def ascending(table: Table) -> dict[str, str]:
    """Return the columns by which a table is stored, each with ``"ascending"`` or ``"descending"``.

    A column counts whose least value in each part is no less than the greatest of the part before, or no greater than
    its least; the first and the last part must differ. Within a part rows may lie in any order.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> from corgipile.tables import open
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"day": np.arange(200) // 3, "x": np.arange(200) % 7})
        ...     pq.write_table(rows, f"{folder}/a.parquet", row_group_size=50)
        ...     ascending(open(f"{folder}/a.parquet"))
        {'day': 'ascending'}
    """
    files = _files(table)
    places = [(file, part) for file, one in enumerate(files) for part in np.flatnonzero(one.part_rows()).tolist()]
    if len(places) < 2 or any(_rows(files, place) < LEAST for place in (places[0], places[-1])):
        return {}
    some = [places[at] for at in np.unique(np.linspace(0, len(places) - 1, FEW).astype(np.int64)).tolist()]
    found = _ways(files, table.schema.names, some)
    return found if len(some) == len(places) else _ways(files, list(found), places)


def _files(table: Table) -> list[Ranged]:
    """Return what a table is made of, in order; nothing where some of it does not know."""
    if not isinstance(table, ConcatTable):
        return [table] if isinstance(table, Ranged) else []
    found = [_files(part) for part in table.tables]
    return [one for files in found for one in files] if all(found) else []


def _rows(files: list[Ranged], place: tuple[int, int]) -> int:
    return int(files[place[0]].part_rows()[place[1]])


def _ways(files: list[Ranged], names: list[str], places: list[tuple[int, int]]) -> dict[str, str]:
    """Return the columns whose spans ascend or descend from place to place; each file is asked once."""
    known: dict[str, list[Span]] = {name: [] for name in names}
    for number in dict.fromkeys(file for file, _ in places):
        some = files[number].spans(list(known), [part for file, part in places if file == number])
        known = {name: known[name] for name in some}
        for name, spans in some.items():
            known[name] += spans
    ways = {name: _way(spans) for name, spans in known.items()}
    return {name: way for name, way in ways.items() if way is not None}


def _way(spans: list[Span]) -> str | None:
    """Say whether spans ascend or descend, if they do."""
    if spans[-1].low > spans[0].high and all(after.low >= before.high for before, after in pairwise(spans)):
        return "ascending"
    if spans[-1].high < spans[0].low and all(after.high <= before.low for before, after in pairwise(spans)):
        return "descending"
    return None
