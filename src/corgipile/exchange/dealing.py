"""Which rows of a table each rank begins with: runs, every so many, blocks at random, as many of each label."""

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

__all__ = ["By", "Share", "dealt"]

By = Literal["contiguous", "strided", "block", "balanced"]
Rows = Callable[[int, int], IntArray]  # the rows of the table that are a rank's, from one of its own to another
PURPOSE = 0x7374616765  # of keys
MOST_LABELS = 1 << 16
SPREAD = 64  # stretches of a table, in each of which ranks are dealt as many rows, or one more


class Share(NamedTuple):
    """How many rows each rank has: whole units, then its piece of those that make none.

    Attributes:
        rows: Of the table.
        unit: Rows that stay together.
        rank: Whose share it is.
        world: Ranks.

    Example:
        >>> share = Share(rows=23, unit=2, rank=1, world=3)
        >>> share.units, share.rest, [one.size for one in share.all()]
        (4, 0, [6, 8, 9])
    """

    rows: int
    unit: int
    rank: int
    world: int

    @property
    def first(self) -> int:
        """Return the first unit of the table, were they dealt as they lie."""
        return self.rank * (self.rows // self.unit) // self.world

    @property
    def units(self) -> int:
        """Return how many units it has."""
        return (self.rank + 1) * (self.rows // self.unit) // self.world - self.first

    @property
    def rest_first(self) -> int:
        """Return the first row of its piece of those that make no unit."""
        whole = self.rows // self.unit * self.unit
        return whole + self.rank * (self.rows - whole) // self.world

    @property
    def rest(self) -> int:
        """Return the rows of that piece."""
        return self._replace(rank=self.rank + 1).rest_first - self.rest_first

    @property
    def size(self) -> int:
        """Return how many rows it has."""
        return self.units * self.unit + self.rest

    def all(self) -> Iterator["Share"]:
        """Yield the shares of all ranks."""
        return (self._replace(rank=rank) for rank in range(self.world))


def dealt(by: By, share: Share, table: Table, seed: int, label: str | None) -> Rows:
    """Return what says which rows are a rank's, in ascending order but for those that make no unit, which are last.

    Args:
        by: "contiguous": a run; "strided": every world-th; "block": units at random; "balanced": as many of each label.
        share: How many.
        table: The table.
        seed: Of "block".
        label: Column of "balanced", which is read twice.

    Raises:
        BadArgument: The label has too many values.
        BadSchema: It is a list, or another type without values that are the same or not.
    """
    return DEALT[by](share, table, seed, label)


def _contiguous(share: Share, *_: Any) -> Rows:
    return _units(share, lambda first, stop: np.arange(share.first + first, share.first + stop))


def _block(share: Share, table: Table, seed: int, label: str | None) -> Rows:
    del table, label
    count, key = share.rows // share.unit, random.derive(seed, PURPOSE)
    mine = np.sort(random.permute(count, key, share.first, share.first + share.units))
    return _units(share, lambda first, stop: mine[first:stop])


def _units(share: Share, units: Callable[[int, int], IntArray]) -> Rows:
    """Return rows of units, then the rank's piece of the rest."""
    whole, unit = share.units * share.unit, share.unit

    def rows(start: int, stop: int) -> IntArray:
        inside = np.arange(start, min(stop, whole))
        numbers = units(start // unit, -(-min(stop, whole) // unit)) if len(inside) else inside
        beyond = np.arange(max(start, whole), stop) - whole + share.rest_first
        return np.append(numbers[inside // unit - start // unit] * unit + inside % unit, beyond)

    return rows


class _Turns(NamedTuple):
    """Turns in which the same ranks are dealt a row each.

    Attributes:
        row: The first row that is dealt.
        turns: How many.
        ranks: Those who get one.
        own: Which of its rows a rank gets first.
    """

    row: int
    turns: int
    ranks: IntArray
    own: int


def _turns(share: Share) -> list[_Turns]:
    """Return all turns; the more rows that some ranks have are dealt here and there, not all at the end."""
    sizes = np.array([one.size for one in share.all()], np.int64)
    found: list[_Turns] = []
    row = 0
    for step in range(SPREAD):
        begun = sizes * step // SPREAD
        given = sizes * (step + 1) // SPREAD - begun
        turn = 0
        for stop in np.unique(given).tolist():
            if stop > turn:
                ranks = np.flatnonzero(given > turn)
                found.append(_Turns(row, stop - turn, ranks, int(begun[share.rank]) + turn))
                row, turn = row + (stop - turn) * len(ranks), stop
    return found


def _strided(share: Share, *_: Any) -> Rows:
    turns = [one for one in _turns(share) if share.rank in one.ranks]

    def rows(start: int, stop: int) -> IntArray:
        parts = [np.empty(0, np.int64)]
        for one in turns:
            mine = np.arange(max(start, one.own), min(stop, one.own + one.turns))
            parts.append(one.row + (mine - one.own) * len(one.ranks) + np.searchsorted(one.ranks, share.rank))
        return np.concatenate(parts)

    return rows


def _balanced(share: Share, table: Table, seed: int, label: str | None) -> Rows:
    """Deal rows strided, as they would lie if they were sorted by their label: so each rank has as many of each."""
    del seed
    if label is None:
        raise BadArgument("balanced needs a column of labels: name it by label")
    labels: dict[Any, int] = {}
    counts = np.zeros(0, np.int64)
    for codes in _codes(table, label, labels):
        counts = _grown(counts, len(labels)) + np.bincount(codes, minlength=len(labels))
    next_of = np.cumsum(counts) - counts
    turns = _turns(share)

    def masks() -> Iterator[npt.NDArray[np.bool_]]:
        for codes in _codes(table, label, labels):
            yield _ranks_at(turns, _places(codes, next_of)) == share.rank

    bits = RowMask.joined(masks())
    return bits.within


def _codes(table: Table, label: str, labels: dict[Any, int]) -> Iterator[IntArray]:
    """Yield the numbers of labels, some rows at a time; those that are new get the next number."""
    check_columns(table.schema, [label])
    for _, batch in scan(table, [label]):
        column = batch.column(0)
        try:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        except pa.ArrowException:
            raise BadSchema(f"label {label!r} has type {column.type}, whose rows cannot be told apart") from None
        values = [None if value != value else value for value in encoded.dictionary.to_pylist()]  # noqa: PLR0124 - NaN
        numbers = np.array([labels.setdefault(value, len(labels)) for value in [*values, None]], np.int64)
        if len(labels) > MOST_LABELS:
            raise BadArgument(f"label {label!r} has more than {MOST_LABELS:,} values; balanced is for fewer")
        yield numbers[np.asarray(encoded.indices.fill_null(len(values)))]


def _grown(counts: IntArray, size: int) -> IntArray:
    return np.append(counts, np.zeros(size - len(counts), np.int64))


def _places(codes: IntArray, next_of: IntArray) -> IntArray:
    """Return where rows would lie if all were sorted by label, and move on what is next of each label."""
    order, counts = np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(next_of))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts - next_of, counts)
    next_of += counts
    return found


def _ranks_at(turns: list[_Turns], rows: IntArray) -> IntArray:
    """Return which ranks are dealt these rows."""
    which = np.searchsorted([one.row for one in turns], rows, side="right") - 1
    found = np.empty(len(rows), np.int64)
    for at in np.unique(which).tolist():
        mine, one = which == at, turns[at]
        found[mine] = one.ranks[(rows[mine] - one.row) % len(one.ranks)]
    return found


DEALT: dict[str, Callable[[Share, Table, int, str | None], Rows]] = {
    "contiguous": _contiguous, "strided": _strided, "block": _block, "balanced": _balanced,
}  # fmt: skip
