"""Weighted sources as one table: exact counts, evenly interleaved."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.sizes import real, whole
from corgipile.tables.concat import ConcatTable, recast
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import join, pick_rows
from corgipile.tables.opening import open as open_table
from corgipile.tables.table import IntArray, Table
from corgipile.tables.unify_schemas import unify_schemas
from corgipile.tables.wrapper import Combined

__all__ = ["Mix", "mix"]

STEP_ROWS = 1 << 17  # rows assigned to sources at a time

_mixes: dict[str, set[tuple[int, tuple[int, ...]]]] = {}  # part and counts of each mix, by its sources


class Mix(Combined):
    """Interleaves rows of several tables of equal columns; see `mix`.

    Args:
        tables: The sources.
        counts: Rows of each source; smaller sources repeat rows, larger ones give a part of them.
        part: The part: each is shifted by one row, or continues where the previous part ended.
    """

    def __init__(self, tables: Sequence[Table], counts: Sequence[int], part: int = 0) -> None:
        super().__init__(tables)
        self.counts, self.part = [int(count) for count in counts], part
        self.schema: pa.Schema = ConcatTable(self.tables).schema
        self._rows = sum(self.counts)

    def __reduce__(self) -> tuple[type["Mix"], tuple[Sequence[Table], list[int], int]]:
        return Mix, (self.tables, self.counts, self.part)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        sources = ", ".join(f"{count} of {table!r}" for table, count in zip(self.tables, self.counts, strict=True))
        return f"Mix({sources})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows, in proportion to those of the sources."""
        pairs = zip(self.tables, self.counts, strict=True)
        return sum(int(table.nbytes * count / len(table)) for table, count in pairs if count)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the sources, their counts and the part."""
        return digest("mix", *(table.fingerprint for table in self.tables), repr(self.counts), str(self.part))

    def shares(self, extents: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield the source rows of runs of mixed rows.

        Row j of the c rows of a source has the relative position (j + 1/2) / c, which spreads each source evenly.

        Args:
            extents: int64[k, 2], first row of each run and the row after its last.

        Yields:
            The number of a source, positions among all rows of the runs, and the source rows at these positions.
        """
        source, turn = self._origin(extents)
        for number in range(len(self.tables)):
            places = np.flatnonzero(source == number)
            if len(places):
                yield number, places, self._row_numbers(number, turn[places])

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield each source of some rows, their positions among the rows, and their numbers in it."""
        for number, places, numbers in self.shares(np.stack([rows, rows + 1], axis=1)):
            yield self.tables[number], places, numbers

    def _origin(self, extents: IntArray) -> tuple[IntArray, IntArray]:
        """Return the source of each row of runs, and the row's turn in it."""
        lengths = extents[:, 1] - extents[:, 0]
        ends = np.cumsum(lengths)
        source, turn = np.empty((2, int(ends[-1]) if len(ends) else 0), np.int64)
        widths = np.frexp(lengths.astype(np.float64))[1]
        for width in np.unique(widths[lengths > 0]).tolist():  # runs of similar length together
            similar = np.flatnonzero(widths == width)
            most = int(lengths[similar].max())
            step = max(1, STEP_ROWS // (most + len(self.tables) * (len(self.tables) + 4)))
            for at in range(0, len(similar), step):
                chunk = similar[at : at + step]
                owners, turns = self._turns(extents[chunk, 0], most)
                if len(similar) == len(lengths) and bool((lengths[chunk] == most).all()):
                    span = slice(int(ends[chunk[0]]) - most, int(ends[chunk[-1]]))
                    source[span], turn[span] = owners.ravel(), turns.ravel()
                    continue
                inside = np.arange(most) < lengths[chunk, None]
                places = ((ends - lengths)[chunk, None] + np.arange(most))[inside]
                source[places], turn[places] = owners[inside], turns[inside]
        return source, turn

    def _turns(self, starts: IntArray, length: int) -> tuple[IntArray, IntArray]:
        """Return the sources and turns of ``length`` rows from each start; rows past the end are arbitrary."""
        counts, slack = np.array(self.counts, np.int64), len(self.counts) / 2 + 1  # rows ahead or behind at most
        first = np.clip(np.floor(starts[:, None] / self._rows * counts - slack), 0, counts).astype(np.int64)
        widths = np.ceil(length / self._rows * counts + 2 * slack).astype(np.int64) + 2
        owners = np.repeat(np.arange(len(counts)), widths)
        turns = first[:, owners] + np.concatenate([np.arange(width) for width in widths.tolist()])
        stands = (2 * turns + 1) / (2 * np.maximum(counts, 1))[owners]
        stands[turns >= counts[owners]] = np.inf
        order = np.argsort(stands, axis=1, kind="stable")
        at = (starts - first.sum(axis=1))[:, None] + np.arange(length)
        picks = np.take_along_axis(order, np.minimum(at, len(owners) - 1), axis=1)
        return owners[picks], np.take_along_axis(turns, picks, axis=1)

    def _row_numbers(self, source: int, turns: IntArray) -> IntArray:
        """Return the row number of each turn of a source."""
        rows, count = len(self.tables[source]), self.counts[source]
        if count >= rows:  # all rows in order, repeated
            return (turns + self.part % rows * count) % rows
        whole, rest = divmod(rows, count)  # turn * rows / count without overflow
        return (turns * whole + turns * rest // count + self.part) % rows

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a run of rows from a contiguous run of each source."""
        return self._gather(np.array([[start, stop]]), names)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._gather(np.stack([rows, rows + 1], axis=1), names)

    def _gather(self, extents: IntArray, names: list[str]) -> pa.RecordBatch:
        parts, at = [], []
        for number, places, rows in self.shares(extents):
            at.append(places)
            parts.append(recast(_rows_of(self.tables[number], rows, names), self.schema))
        placed = np.concatenate(at)
        back = np.empty(len(placed), np.int64)
        back[placed] = np.arange(len(placed))
        return pick_rows(join(parts), back)

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> "Mix":
        """Return the same mix of the unpacked sources."""
        same = copy(self)
        same.tables = [unpack(table, columns) for table in self.tables]
        return same


def _rows_of(table: Table, rows: IntArray, names: list[str]) -> pa.RecordBatch:
    first, last = int(rows[0]), int(rows[-1])
    together = last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return table.read(first, last + 1, names) if together else table.take(rows, names)


def mix(sources: Sequence[tuple[Any, float]], rows: int | None = None, *, part: int = 0) -> Table:
    """Mix weighted sources into one table, evenly interleaved, with an exact number of rows of each.

    The counts divide ``rows`` by weight, rounded by largest remainders. A source with fewer rows repeats all of them,
    each equally often or once more. A source with more rows gives evenly spaced rows.

    A mix has the same rows in every epoch. For other rows in each epoch, make a mix for each with ``part=epoch``. If a
    source has k times the rows it gives, k parts (rounded up) cover it; parts of repeated sources continue where the
    previous part ended.

    This requires constant weights and ``rows``; the rows of earlier parts are not recorded. A part raises an error if
    this process made the previous part with other values. Another process cannot check this.

    Args:
        sources: Tables, or sources for `corgipile.open`, each with a weight; only ratios of weights count. Columns
            match by name, in the order of the first source.
        rows: Total rows; None for as many as the sources have.
        part: Selects the rows of sources that do not give all rows.

    Raises:
        BadArgument: A weight is not finite or not above 0, a source has no rows, or the previous part had other
            weights.
        BadSchema: Sources differ in columns or types.

    Example:
        >>> mixed = mix([(pa.table({"x": [1, 2, 3]}), 3), (pa.table({"x": [10]}), 1)], rows=8)
        >>> mixed.read(0, 8)["x"].to_pylist()
        [1, 2, 10, 3, 1, 2, 10, 3]
    """
    pairs = list(_pairs(sources))
    tables = unify_schemas([open_table(source) for source, _ in pairs])
    total = sum(map(len, tables)) if rows is None else whole(rows, "rows", 1)
    counts = divide_by_weight(total, [weight for _, weight in pairs])
    for table, count in zip(tables, counts, strict=True):
        if count and not len(table):
            raise BadArgument(f"{table!r} must have rows, as {count} are to be taken from it; leave it out")
    mixed = Mix(tables, counts, whole(part, "part", 0))
    _check_part(mixed)
    return mixed


def _check_part(mixed: Mix) -> None:
    """Raise BadArgument if the previous part was made with other counts and left rows unseen."""
    known = _mixes.setdefault(digest(*(table.fingerprint for table in mixed.tables)), set())
    before, counts = {counts for part, counts in known if part == mixed.part - 1}, tuple(mixed.counts)
    pairs = [pair for earlier in before for pair in zip(earlier, mixed.tables, strict=True)]
    if counts not in before and any(count * mixed.part < len(table) for count, table in pairs):
        raise BadArgument(
            f"part={mixed.part} must have the weights and rows of the previous part, which took {min(before)} rows, "
            f"got {counts}: rows would repeat before others are read; start a new training with part=0"
        )
    known.add((mixed.part, counts))


def _pairs(sources: Any) -> Iterator[tuple[Any, float]]:
    if not isinstance(sources, list | tuple) or not sources:
        raise BadArgument(f"sources must be a list of at least one (table, weight), got {sources!r}")
    for pair in sources:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadArgument(f"each source must be a pair (table, weight), got {pair!r}")
        weight = real(pair[1], "a weight")
        if weight <= 0:
            raise BadArgument(f"a weight must be above 0, got {pair[1]!r}; leave the source out")
        yield pair[0], weight


def divide_by_weight(total: int, weights: Sequence[float]) -> list[int]:
    """Divide a number by weights, rounding by the largest remainders.

    Example:
        >>> divide_by_weight(10, [1, 1, 1]), divide_by_weight(7, [0.5, 0.25, 0.25])
        ([4, 3, 3], [3, 2, 2])
    """
    largest = max(weights)
    scaled = [weight / largest for weight in weights]
    exact = [total * weight / math.fsum(scaled) for weight in scaled]
    counts = [int(one) for one in exact]
    order = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in range(total - sum(counts)):
        counts[order[i % len(order)]] += 1
    return counts
