"""Initial division of a table among ranks: by runs, strides, random blocks, or balanced by label."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import random
from corgipile.errors import BadArgument, BadSchema
from corgipile.tables import Table
from corgipile.tables.row_mask import RowMask
from corgipile.tables.scan import scan
from corgipile.tables.table import IntArray, check_columns

__all__ = ["By", "Share", "deal"]

By = Literal["contiguous", "strided", "block", "balanced"]
Rows = Callable[[int, int], IntArray]  # maps a range of a rank's rows to row numbers of the table
PURPOSE = 0x7374616765  # distinguishes random keys
MAX_LABELS = 1 << 16
STRETCHES = 64  # stretches of a table, in each of which ranks get equally many rows, or one more


class Share(NamedTuple):
    """The size of a rank's share: whole units of so many rows, then its piece of the remaining rows.

    Example:
        >>> share = Share(rows=23, unit=2, rank=1, world=3)
        >>> share.units, share.rest, [each.size for each in share.all()]
        (4, 0, [6, 8, 9])
    """

    rows: int
    unit: int
    rank: int
    world: int

    @property
    def first(self) -> int:
        """Return the rank's first unit in a contiguous division."""
        return self.rank * (self.rows // self.unit) // self.world

    @property
    def units(self) -> int:
        """Return the number of units."""
        return (self.rank + 1) * (self.rows // self.unit) // self.world - self.first

    @property
    def rest_first(self) -> int:
        """Return the first of the rows beyond whole units that this rank gets."""
        whole = self.rows // self.unit * self.unit
        return whole + self.rank * (self.rows - whole) // self.world

    @property
    def rest(self) -> int:
        """Return the number of remaining rows of this rank."""
        return self._replace(rank=self.rank + 1).rest_first - self.rest_first

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self.units * self.unit + self.rest

    def all(self) -> Iterator["Share"]:
        """Yield the shares of all ranks."""
        return (self._replace(rank=rank) for rank in range(self.world))


def deal(by: By, share: Share, table: Table, seed: int, label: str | None) -> Rows:
    """Return the mapping from a rank's rows to the table's, ascending except for the remaining rows, which are last.

    A rank gets a "contiguous" run, every world-th row ("strided"), random units ("block"), or equally many rows of each
    label ("balanced", which reads it twice).
    """
    return DIVISIONS[by](share, table, seed, label)


def _contiguous(share: Share, *_: Any) -> Rows:
    return _units(share, lambda first, stop: np.arange(share.first + first, share.first + stop))


def _block(share: Share, table: Table, seed: int, label: str | None) -> Rows:
    del table, label
    count, key = share.rows // share.unit, random.derive(seed, PURPOSE)
    mine = np.sort(random.permute(count, key, share.first, share.first + share.units))
    return _units(share, lambda first, stop: mine[first:stop])


def _units(share: Share, units: Callable[[int, int], IntArray]) -> Rows:
    """Return the rows of units, then the rank's piece of the remaining rows."""
    whole, unit = share.units * share.unit, share.unit

    def rows(start: int, stop: int) -> IntArray:
        inside = np.arange(start, min(stop, whole))
        numbers = units(start // unit, -(-min(stop, whole) // unit)) if len(inside) else inside
        beyond = np.arange(max(start, whole), stop) - whole + share.rest_first
        return np.append(numbers[inside // unit - start // unit] * unit + inside % unit, beyond)

    return rows


class _Turns(NamedTuple):
    """A run of turns, from a row on, that deal one row to each of the same ranks.

    ``own`` is the index among the rank's own.
    """

    row: int
    turns: int
    ranks: IntArray
    own: int


def _turns(share: Share) -> list[_Turns]:
    """Return all turns; ranks with more rows get the extra ones spread out, not all at the end."""
    sizes = np.array([each.size for each in share.all()], np.int64)
    result: list[_Turns] = []
    row = 0
    for step in range(STRETCHES):
        begun = sizes * step // STRETCHES
        deal = sizes * (step + 1) // STRETCHES - begun
        turn = 0
        for stop in np.unique(deal).tolist():
            if stop > turn:
                ranks = np.flatnonzero(deal > turn)
                result.append(_Turns(row, stop - turn, ranks, int(begun[share.rank]) + turn))
                row, turn = row + (stop - turn) * len(ranks), stop
    return result


def _strided(share: Share, *_: Any) -> Rows:
    turns = [run for run in _turns(share) if share.rank in run.ranks]

    def rows(start: int, stop: int) -> IntArray:
        parts = [np.empty(0, np.int64)]
        for run in turns:
            mine = np.arange(max(start, run.own), min(stop, run.own + run.turns))
            parts.append(run.row + (mine - run.own) * len(run.ranks) + np.searchsorted(run.ranks, share.rank))
        return np.concatenate(parts)

    return rows


def _balanced(share: Share, table: Table, seed: int, label: str | None) -> Rows:
    """Deal rows in strides of the order by label, so that each rank has equally many of each label."""
    del seed
    if label is None:
        raise BadArgument("by='balanced' needs a label column: give label=")
    labels: dict[Any, int] = {}
    counts = np.zeros(0, np.int64)
    for codes in _codes(table, label, labels):
        counts = np.pad(counts, (0, len(labels) - len(counts))) + np.bincount(codes, minlength=len(labels))
    next_of = np.cumsum(counts) - counts
    turns = _turns(share)

    def masks() -> Iterator[npt.NDArray[np.bool_]]:
        for codes in _codes(table, label, labels):
            yield _ranks_at(turns, _places(codes, next_of)) == share.rank

    bits = RowMask.joined(masks())
    return bits.within


def _codes(table: Table, label: str, labels: dict[Any, int]) -> Iterator[IntArray]:
    """Yield label codes, some rows at a time; each new label gets the next code."""
    check_columns(table.schema, [label])
    for _, batch in scan(table, [label]):
        column = batch.column(0)
        try:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        except pa.ArrowException:
            raise BadSchema(f"label {label!r} has type {column.type}, whose values cannot be compared") from None
        values = [None if value != value else value for value in encoded.dictionary.to_pylist()]  # noqa: PLR0124 - NaN
        numbers = np.array([labels.setdefault(value, len(labels)) for value in [*values, None]], np.int64)
        if len(labels) > MAX_LABELS:
            raise BadArgument(f"label {label!r} must have at most {MAX_LABELS:,} values for by='balanced', got more")
        yield numbers[np.asarray(encoded.indices.fill_null(len(values)))]


def _places(codes: IntArray, next_of: IntArray) -> IntArray:
    """Return the rows' places in the order by label, and advance each label's next place."""
    order, counts = np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(next_of))
    places = np.empty(len(codes), np.int64)
    places[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts - next_of, counts)
    next_of += counts
    return places


def _ranks_at(turns: list[_Turns], rows: IntArray) -> IntArray:
    """Return the ranks that the rows are dealt to."""
    which = np.searchsorted([run.row for run in turns], rows, side="right") - 1
    ranks = np.empty(len(rows), np.int64)
    for at in np.unique(which).tolist():
        mine, run = which == at, turns[at]
        ranks[mine] = run.ranks[(rows[mine] - run.row) % len(run.ranks)]
    return ranks


DIVISIONS: dict[str, Callable[[Share, Table, int, str | None], Rows]] = {
    "contiguous": _contiguous, "strided": _strided, "block": _block, "balanced": _balanced,
}  # fmt: skip
