"""Partial local shuffling without moving rows: ranks on shared storage exchange block numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from corgipile import random
from corgipile.errors import BadArgument
from corgipile.orders.exchange import Exchange
from corgipile.orders.order import BLOCK_BYTES, Blocks, IntArray, Key, Order, Sized, Step, seek, with_sizes
from corgipile.orders.riffle import Riffle
from corgipile.sizes import Size, real, to_rows

WITHIN = Riffle()
PURPOSE = 0x6F776E  # makes keys of this module unique
SPLIT, REST = range(2)
MIN_UNITS = 4  # units of a rank that has as many rows


class Part(NamedTuple):
    """The rows of a rank in an epoch.

    Attributes:
        starts: int64[runs], first row of each run among the rank's rows.
        firsts: int64[runs], first row of each run in the table.
        rows: Number of rows.
    """

    starts: IntArray
    firsts: IntArray
    rows: int

    def located(self, extents: IntArray) -> IntArray:
        """Convert runs of the rank's rows to runs of the table's rows.

        Example:
            >>> Part(np.array([0, 4]), np.array([10, 30]), 6).located(np.array([[2, 6]])).tolist()
            [[12, 14], [30, 32]]
        """
        extents = extents[extents[:, 1] > extents[:, 0]]
        first = np.searchsorted(self.starts, extents[:, 0], side="right") - 1
        last = np.searchsorted(self.starts, extents[:, 1] - 1, side="right") - 1
        parts = last - first + 1
        which = np.repeat(np.arange(len(extents)), parts)
        run = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts) + first[which]
        ends = np.append(self.starts[1:], self.rows)[run]
        begin = np.maximum(extents[which, 0], self.starts[run])
        offset = self.firsts[run] - self.starts[run]
        return np.stack([begin + offset, np.minimum(extents[which, 1], ends) + offset], axis=1)


@dataclass(frozen=True, kw_only=True)
class Partial(Sized):
    """Each rank visits its own rows by any order; before each epoch ranks exchange a fraction of them.

    This is partial local shuffling for ranks with shared storage: a block changes its reader, so nothing is sent, and
    losing a rank loses no rows. A rank begins with a contiguous part of the table; `Exchange` determines its blocks in
    an epoch. All ranks together visit each row once, equally many each. If the world does not divide the rows, fewer
    than ``world`` are visited twice, or left out with ``drop_last``. A rank with a read cache reads only that fraction
    again. Tracing its blocks takes 0.2 µs per block and epoch.

    Attributes:
        within: Order of a rank's rows; it gets this order's sizes.
        fraction: Share of its rows that a rank exchanges, 0 to 1; mixing decreases above 1 - 1/world, see `Exchange`.
        unit: Rows (int), bytes or share of a unit of exchange; None: a block of the order, or 64 KB of single rows.
            Units are smaller if a rank would have less than four.

    Raises:
        BadArgument: The order within visits rows twice, or runs of pages.

    Example:
        >>> from corgipile.orders import visited_rows
        >>> order = Partial(fraction=0.5, block=2, buffer=4).fit(24, 8, None)
        >>> ranks = [visited_rows(order, Blocks(24, even=2), Key(0, 3, rank, 3)) for rank in range(3)]
        >>> sorted(row for steps in ranks for rows in steps for row in rows.tolist()) == list(range(24))
        True
    """

    name: ClassVar[str] = "partial"
    version: ClassVar[int] = 3  # versions 1 and 2 left out the same rows in every epoch, or exchanged other units
    within: Any = WITHIN
    fraction: float = 0.1
    unit: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        real(self.fraction, "fraction", 0, 1)
        if not isinstance(self.within, Sized) or not self.within.once or self.within.cuts_into == "page":
            raise BadArgument(f"within must be an order that visits single rows or blocks once, got {self.within!r}")
        if self.unit is not None:
            to_rows(self.unit, 1, 1.0, "unit")

    @property
    def title(self) -> str:
        """Return the inner order's title and the fraction."""
        return f"{getattr(self.within, 'title', self.within.name)}, {100 * self.fraction:g} % exchanged"

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the inner order's unit."""
        return self.order.cuts_into

    @property
    def shuffles_rows(self) -> bool:
        """Return whether the inner order shuffles the rows of a block."""
        return bool(self.within.shuffles_rows)

    @property
    def sketch_column(self) -> str | None:
        """Return the inner order's balance column."""
        return self.order.sketch_column

    @property
    def order(self) -> Order:
        """Return the inner order with this order's sizes."""
        sizes = {"block": self.block, "buffer": self.buffer, "ahead": self.ahead}
        sizes_given = {name: size for name, size in sizes.items() if size is not None}
        order: Order = replace(self.within, **sizes_given)
        return order

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Convert all sizes to rows.

        Raises:
            BudgetTooSmall: The budget does not hold the smallest buffer of the order within.
        """
        order: Any = self.order.fit(rows, row_bytes, budget, whole=whole)
        unit = int(BLOCK_BYTES / row_bytes) if order.cuts_into == "row" else order.block_rows
        unit = max(1, unit) if self.unit is None else to_rows(self.unit, rows, row_bytes, "unit")
        return with_sizes(self, within=order, block=order.block, buffer=order.buffer, unit=unit)

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots that steps use."""
        return self.order.slots(Blocks(blocks.rows, even=self.block_rows))

    def resident(self, blocks: Blocks) -> int:
        """Return the largest number of rows in memory."""
        return self.order.resident(Blocks(blocks.rows, even=self.block_rows))

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in a pass of this rank."""
        rows = blocks.rows // key.world if key.disjoint else -(-blocks.rows // key.world)
        return self.order.visits(Blocks(rows, even=self.block_rows), _own_key(key))

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
        """Return a pass's step and offset after some visits."""
        return seek(self.order, self._cut(self.part(blocks.rows, key), blocks), _own_key(key), visits)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on."""
        part = self.part(blocks.rows, key)
        for step in self.order.steps(self._cut(part, blocks), _own_key(key), start):
            extents = part.located(step.extents)
            yield step._replace(extents=extents, sweep=step.sweep if len(extents) == len(step.extents) else None)

    def part(self, rows: int, key: Key) -> Part:
        """Return a rank's rows in an epoch, given the rows of the table."""
        if not isinstance(self.unit, int):
            raise BadArgument(f"unit must be in rows, got {self.unit!r}; call fit() first")
        return _part(rows, self.unit, self.fraction, key.disjoint, key.seed, key.epoch, key.rank, key.world)

    def _cut(self, part: Part, blocks: Blocks) -> Blocks:
        """Cut a rank's rows into blocks; each has the sketch of the table's block at its beginning."""
        cut = Blocks(part.rows, even=self.block_rows)
        if blocks.sketch is None:
            return cut
        at = np.arange(cut.count) * cut.even
        rows = part.located(np.stack([at, at + 1], axis=1))[:, 0]
        inside = rows // blocks.even if blocks.cuts is None else np.searchsorted(blocks.cuts, rows, side="right") - 1
        return replace(cut, sketch=blocks.sketch[inside])


def _own_key(key: Key) -> Key:
    """Return the key of a rank's pass over its own rows."""
    return key._replace(seed=random.derive(key.seed, key.rank, PURPOSE), rank=0, world=1)


@lru_cache(maxsize=2)  # this epoch and the next
def _part(
    rows: int,
    unit: int,
    fraction: float,
    disjoint: bool,
    seed: int,
    epoch: int,
    rank: int,
    world: int,
) -> Part:
    """Return a rank's whole units, equally many for each, and its piece of the remaining rows, which moves too."""
    unit = max(1, min(unit, rows // (world * MIN_UNITS)))
    each = rows // (world * unit)
    firsts = np.empty(0, np.int64)
    if each:
        plan = Exchange(each * world, world, fraction, random.derive(seed, PURPOSE, SPLIT))
        firsts = np.sort(plan.owned(rank, epoch)) * unit
    done = each * world * unit
    remaining = rows - done
    piece = int(Exchange(world, world, fraction, random.derive(seed, PURPOSE, REST)).owned(rank, epoch)[0])
    first, stop = (done + at * remaining // world for at in (piece, piece + 1))
    wanted = remaining // world if disjoint else -(-remaining // world)
    joined = np.concatenate([np.stack([firsts, firsts + unit], axis=1), [[first, stop]]])
    if stop - first != wanted:  # every rank has equally many rows
        odd = random.derive(seed, epoch, rank, PURPOSE) % max(1, each * unit + stop - first)
        run = min(odd // unit, each)
        row = joined[run, 0] + odd - run * unit
        if stop - first > wanted:
            joined = np.insert(joined, [2 * run + 1], [row, row + 1]).reshape(-1, 2)  # without this row
        else:
            joined = np.append(joined, [[row, row + 1]], axis=0)
    joined = joined[joined[:, 1] > joined[:, 0]]
    new = np.append(True, joined[1:, 0] != joined[:-1, 1])[: len(joined)]
    lengths = joined[:, 1] - joined[:, 0]
    starts = np.cumsum(lengths) - lengths
    return Part(starts[new], joined[new, 0], int(lengths.sum()))
