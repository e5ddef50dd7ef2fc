"""Partial local shuffling without moving rows: ranks on shared storage exchange the numbers of blocks."""

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
PURPOSE = 0x6F776E  # of the seeds of ranks
SPLIT, REST = range(2)
FEWEST = 4  # units of a rank, at least, where it has so many rows


class Part(NamedTuple):
    """The rows of a rank in an epoch.

    Attributes:
        starts: int64[runs], where each run begins among the rank's own rows.
        firsts: int64[runs], and in the table.
        rows: How many there are.
    """

    starts: IntArray
    firsts: IntArray
    rows: int

    def located(self, extents: IntArray) -> IntArray:
        """Turn runs of the rank's rows into runs of the table's.

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
    """Each rank visits rows of its own by any order; before each epoch it exchanges a fraction of them with the others.

    It is partial local shuffling where ranks reach the same storage: what moves is which rank reads a block, so nothing
    is sent, and nothing is lost with a rank. A rank begins with a part of the table as it lies; `Exchange` says which
    blocks it has in an epoch. All ranks together visit each row once, each as many; where rows do not divide, fewer
    than ``world`` twice, or with ``drop_last`` not at all. A rank that keeps what it has read, as the cache of a store
    does, reads that fraction anew. To learn what is its own it traces its blocks back: 0.2 µs a block and epoch.

    Attributes:
        within: The order of a rank's rows; its sizes are those of this order.
        fraction: Of a rank's rows that it exchanges, 0 to 1; above 1 - 1/world mixes less again, see `Exchange`.
        unit: Rows (int), bytes or share that change ranks together; None: a block of the order, 64 KB of single rows.
            They are fewer where a rank would have less than four units.

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
    within: Any = WITHIN
    fraction: float = 0.1
    unit: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        real(self.fraction, "fraction", 0, 1)
        if not isinstance(self.within, Sized) or not self.within.once or self.within.cuts_into == "page":
            raise BadArgument(f"within must be an order of blocks or rows that visits each once, got {self.within!r}")
        if getattr(self.within, "first_epoch", None) is not None:
            raise BadArgument(f"within is balanced alike in all epochs, leave out first_epoch: got {self.within!r}")
        if self.unit is not None:
            to_rows(self.unit, 1, 1.0, "unit")

    @property
    def title(self) -> str:
        """Return the order's name, with the one within."""
        return f"{getattr(self.within, 'title', self.within.name)}, {100 * self.fraction:g} % exchanged"

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that the order within cuts into."""
        return self.order.cuts_into

    @property
    def sketch_column(self) -> str | None:
        """Return the column by which the order within balances blocks."""
        return self.order.sketch_column

    @property
    def order(self) -> Order:
        """Return the order within, of these sizes."""
        sizes = {"block": self.block, "buffer": self.buffer, "ahead": self.ahead}
        given = {name: size for name, size in sizes.items() if size is not None}
        found: Order = replace(self.within, **given)
        return found

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows.

        Raises:
            BudgetTooSmall: The budget does not hold the smallest buffer of the order within.
        """
        order: Any = self.order.fit(rows, row_bytes, budget, whole=whole)
        unit = int(BLOCK_BYTES / row_bytes) if order.cuts_into == "row" else order.block_rows
        unit = max(1, unit) if self.unit is None else to_rows(self.unit, rows, row_bytes, "unit")
        return with_sizes(self, within=order, block=order.block, buffer=order.buffer, unit=unit)

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots that steps name."""
        return self.order.slots(Blocks(blocks.rows, even=self.block_rows))

    def resident(self, blocks: Blocks) -> int:
        """Return the rows in memory at most."""
        return self.order.resident(Blocks(blocks.rows, even=self.block_rows))

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass of this rank."""
        rows = blocks.rows // key.world if key.disjoint else -(-blocks.rows // key.world)
        return self.order.visits(Blocks(rows, even=self.block_rows), _alone(key))

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
        """Say where a pass stands after some visits."""
        return seek(self.order, self._cut(self.part(blocks.rows, key), blocks), _alone(key), visits)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on."""
        part = self.part(blocks.rows, key)
        for step in self.order.steps(self._cut(part, blocks), _alone(key), start):
            extents = part.located(step.extents)
            yield step._replace(extents=extents, sweep=step.sweep if len(extents) == len(step.extents) else None)

    def part(self, rows: int, key: Key) -> Part:
        """Return the rows of a rank in an epoch, of so many of the table."""
        if not isinstance(self.unit, int):
            raise BadArgument(f"unit {self.unit!r} is not in rows yet; call fit() first")
        return _part(rows, self.unit, self.fraction, key.disjoint, key.seed, key.epoch, key.rank, key.world)

    def _cut(self, part: Part, blocks: Blocks) -> Blocks:
        """Cut a rank's rows into blocks; each is described as that of the table in which it begins."""
        cut = Blocks(part.rows, even=self.block_rows)
        if blocks.sketch is None:
            return cut
        at = np.arange(cut.count) * cut.even
        rows = part.located(np.stack([at, at + 1], axis=1))[:, 0]
        inside = rows // blocks.even if blocks.cuts is None else np.searchsorted(blocks.cuts, rows, side="right") - 1
        return replace(cut, sketch=blocks.sketch[inside])


def _alone(key: Key) -> Key:
    """Return the key of a rank's pass over its own rows."""
    return key._replace(seed=random.derive(key.seed, key.rank, PURPOSE), rank=0, world=1)


@lru_cache(maxsize=2)  # of this epoch, and the next
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
    """Return whole units of a rank, as many for each, and its piece of the rest, which changes ranks too."""
    unit = max(1, min(unit, rows // (world * FEWEST)))
    each = rows // (world * unit)
    firsts = np.empty(0, np.int64)
    if each:
        plan = Exchange(each * world, world, fraction, random.derive(seed, PURPOSE, SPLIT))
        firsts = np.sort(plan.owned(rank, epoch)) * unit
    done = each * world * unit
    rest = rows - done
    piece = int(Exchange(world, world, fraction, random.derive(seed, PURPOSE, REST)).owned(rank, epoch)[0])
    first, stop = (done + at * rest // world for at in (piece, piece + 1))
    wanted = rest // world if disjoint else -(-rest // world)
    ends = [[first, min(stop, first + wanted)]]
    if stop - first < wanted:
        twice = int(firsts[random.derive(seed, epoch, rank, PURPOSE) % each]) if each else first
        ends.append([twice, twice + 1])  # to have as many rows as others
    joined = np.concatenate([np.stack([firsts, firsts + unit], axis=1), np.array(ends, np.int64)])
    joined = joined[joined[:, 1] > joined[:, 0]]
    new = np.append(True, joined[1:, 0] != joined[:-1, 1])[: len(joined)]
    lengths = joined[:, 1] - joined[:, 0]
    starts = np.cumsum(lengths) - lengths
    return Part(starts[new], joined[new, 0], int(lengths.sum()))
