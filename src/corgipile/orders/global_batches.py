"""Global batches that do not depend on the world: a pass in lanes that each give equally many rows to a batch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, ClassVar, Literal, Self

import numpy as np

from corgipile.errors import BadArgument
from corgipile.orders.lanes import Group, Stretch, Take, follow
from corgipile.orders.order import Blocks, Key, Order, Sized, Step, step_rows, too_small, with_sizes
from corgipile.orders.planned import Planned
from corgipile.orders.riffle import Riffle
from corgipile.sizes import to_rows, whole

WITHIN = Riffle()
GROUPS = (12, 6, 4, 3, 2, 1)  # numbers of lane groups: workers that divide the first share a rank without rereads
ENOUGH_WAYS = 24  # lanes of a batch that suffice for many worlds
MAX_WAYS = 128  # lanes of a batch
MAX_LANES = 300
LANE_BLOCKS = 3  # blocks of memory per lane
STEP_SHARE = 4  # of the memory, the part for rows of announced steps
GROUP_SHARE = 4  # of a lane, the part of one step
LANE_ROWS = 64  # smallest number of rows of a lane per step, for low overhead
PLANNED, FOLLOWED = 24, 64  # bytes of a row in lane plans: for kernel orders; for others
PLAN_BYTES = 12 << 20  # bytes of lane plans that may exceed the budget


@dataclass(frozen=True, kw_only=True)
class GlobalBatches(Sized):
    """Global batch i has the same rows for any number of ranks and workers.

    The pass of `within` over all blocks, random or balanced, is divided into lanes: stretches that run side by side,
    each through its own buffer. Batch i takes ``rows / ways`` rows from each of the ``ways`` lanes of group
    ``i % groups``. Ranks divide these lane by lane: rank r of W has the places from ``r rows / W`` on. So a rank reads
    the lanes of its places only, ``1 / W`` of the table if W divides ``ways``, else up to two more lanes per group. A
    worker reads the groups of its batches. The rows left after the last whole batch are another lane, shared equally
    by all ranks: fewer than ``world`` of them are visited twice, or none at all with ``drop_last``.

    All sizes and the memory are totals of all ranks, so they do not depend on their number. A rank has slots for its
    own lanes only, and lanes use all of the memory.

    Attributes:
        within: Order of a lane's rows; it gets this order's sizes.
        rows: Rows of a global batch.
        ways: Lanes that give rows to one batch; chosen by `fit`, divides ``rows``.
        groups: Groups of lanes, used by batches in turn; chosen by `fit`.
        waiting: Largest number of rows of a step, of all ranks; chosen by `fit`.
        parts: World and workers, which determine the slots.

    Raises:
        BadArgument: The order within visits rows twice or runs of pages, or the world does not divide the batch.

    Example:
        >>> from corgipile.orders import visited_rows
        >>> order = GlobalBatches(rows=12, block=2, buffer=40).fit(120, 8, None)
        >>> def batch(i, world):  # all ranks' rows of it
        ...     keys = [Key(0, 0, rank, world, batch=12 // world) for rank in range(world)]
        ...     passes = [np.concatenate(list(visited_rows(order, Blocks(120, even=2), key))) for key in keys]
        ...     return sorted(row for one in passes for row in one.reshape(10, -1)[i].tolist())
        >>> batch(7, 1) == batch(7, 2) == batch(7, 6)
        True
    """

    name: ClassVar[str] = "global_batches"
    within: Any = WITHIN
    rows: int = 1
    ways: int = 0
    groups: int = 0
    waiting: int = 0
    row_bytes: float = 0.0
    parts: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.rows, "rows", 1)
        if not isinstance(self.within, Sized) or not self.within.once or self.within.cuts_into == "page":
            raise BadArgument(
                f'global_batches="fixed" needs an order that visits single rows or blocks once, got {self.within!r}'
            )

    @classmethod
    def of(cls, order: Order, rows: int) -> Self:
        """Make global batches of ``rows`` rows with the sizes of another order.

        Example:
            >>> GlobalBatches.of(Riffle(block=4, buffer=96), 12).buffer
            96
        """
        block, buffer = getattr(order, "block", None), getattr(order, "buffer", None)
        return cls(within=order, rows=rows, ahead=order.ahead, block=block, buffer=buffer)

    @property
    def title(self) -> str:
        """Return the inner order's title and the rows of a batch."""
        return f"{getattr(self.within, 'title', self.within.name)} in global batches of {self.rows} rows"

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the inner order's unit."""
        order: Order = self.within
        return order.cuts_into

    @property
    def sketch_column(self) -> str | None:
        """Return the inner order's balance column."""
        order: Order = self.within
        return order.sketch_column

    def batch_rows(self, world: int) -> int:
        """Return the rows of a batch for each rank.

        Raises:
            BadArgument: The world does not divide the batch.

        Example:
            >>> GlobalBatches(rows=24).batch_rows(6)
            4
        """
        if self.rows % world:
            near = [size for size in (self.rows // world * world, -(-self.rows // world) * world) if size]
            raise BadArgument(
                f'global_batches="fixed" needs equal shares: {self.rows} rows do not divide among {world} ranks; '
                f"give batch_size={' or '.join(map(str, near))}, or a number of ranks that divides {self.rows}"
            )
        return self.rows // world

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Convert all sizes to rows, for all ranks together, and choose the lanes.

        Raises:
            BudgetTooSmall: The budget does not hold a lane and the batches read ahead.
        """
        if budget is not None:
            row_memory = row_bytes + (PLANNED if isinstance(self.within, Planned) else FOLLOWED)
            budget = min(budget, int((budget * row_bytes + PLAN_BYTES) / row_memory))
        inner: Any = replace(self.within, block=self.block, buffer=self.buffer, ahead=0)
        block = inner.fit(rows, row_bytes, budget, whole=whole).block_rows
        buffer = rows if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        room = min(rows, buffer) if budget is None else budget
        depth = (1 + self.ahead) * self.rows
        batches = max(1, min(room // STEP_SHARE, rows) // depth)
        left = None if budget is None else budget - batches * depth
        if left is not None and left < LANE_BLOCKS * block:
            raise too_small(self.name, batches * depth + LANE_BLOCKS * block, budget or 0, row_bytes)
        mixed = min(rows, buffer) if left is None else min(left, buffer)
        ways, groups = self._lanes(min(mixed // (LANE_BLOCKS * block), rows // max(block, self.rows), MAX_LANES))
        lanes = ways * groups + 1
        lane = replace(inner, block=block, buffer=max(block, min(mixed, rows) // lanes))
        if isinstance(lane, Riffle) and not lane.group:
            lane = replace(lane, group=max(1, lane.buffer_blocks() // GROUP_SHARE))
        if left is not None and self.buffer is None:
            lane = replace(lane, buffer=None)
        return with_sizes(
            self, within=lane.fit(rows, row_bytes, None if left is None else left // lanes, whole=whole),
            block=block, ways=ways, groups=groups, waiting=batches * self.rows, row_bytes=row_bytes,
        )  # fmt: skip

    def _lanes(self, most: int) -> tuple[int, int]:
        """Return the lanes that give rows to one batch, and the number of lane groups.

        Example:
            >>> [GlobalBatches(rows=rows)._lanes(340) for rows in (192, 256, 7, 1009)]
            [(24, 12), (16, 12), (7, 12), (1, 12)]
        """
        divisors = [ways for ways in range(1, min(self.rows, MAX_WAYS) + 1) if self.rows % ways == 0]
        for groups in GROUPS:
            fits = [ways for ways in divisors if ways * groups <= most] or [1]
            best = max((ways for ways in fits if 2 * ways > fits[-1]), key=_worlds)
            if groups == 1 or 2 * best > min(ENOUGH_WAYS, divisors[-1]):
                return best, groups
        raise AssertionError

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots of one worker of one rank."""
        return self._slots(blocks, *self.parts)

    def _slots(self, blocks: Blocks, world: int, workers: int) -> int:
        lanes = self._own_lanes(world, workers)
        depth = (1 + self.ahead) * self.batch_rows(world)
        return (lanes + 1) * self._order.slots(blocks) + depth * self._batches(world, workers)

    def _own_lanes(self, world: int, workers: int) -> int:
        """Return the largest number of lanes that a worker reads, without the last lane."""
        each, more = divmod(self.ways, world)
        ways = min(self.ways, each + 2) if more else each
        return ways * self.groups // gcd(self.groups, workers)

    def _batches(self, world: int, workers: int) -> int:
        wanted = max(LANE_ROWS * self._own_lanes(world, workers), step_rows(self.row_bytes) if self.row_bytes else 0)
        return max(1, min(self.waiting // self.rows, wanted // self.batch_rows(world)))

    @property
    def _order(self) -> Order:
        if not self.ways:
            raise BadArgument(f"the lanes of {self!r} are unknown; call fit() first")
        order: Order = self.within
        return order

    def _turns(self, rows: int, key: Key) -> tuple[int, int, int]:
        """Return the whole batches of a pass, those of a worker, and its rows of the last, short batch."""
        if key.batch * key.world != self.rows:
            raise BadArgument(
                f"{key.world} ranks with batches of {key.batch} rows must make global batches of {self.rows} rows: "
                'use global_batches="fixed", with any order'
            )
        batches, remaining = divmod(rows, self.rows)
        short = -(-remaining // key.world) if batches % key.workers == key.worker and not key.disjoint else 0
        return batches, max(0, -(-(batches - key.worker) // key.workers)), short

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in a pass by this worker of this rank."""
        _, turns, short = self._turns(blocks.rows, key)
        return turns * key.batch + short

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
        """Return a pass's step and offset after some visits."""
        return divmod(visits, self._batches(key.world, key.workers) * key.batch)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on."""
        batches, turns, short = self._turns(blocks.rows, key)
        each = self._batches(key.world, key.workers)
        lanes = follow(self._order, blocks, key, self._slots(blocks, key.world, key.workers), self.ahead)
        stride = self.groups // gcd(self.groups, key.workers) * key.batch
        lanes_of = [Group(self._stretches(batches, key, group)) for group in range(self.groups)]
        last = Group([_short(blocks.rows, batches * self.rows, key)])
        for first in range(start * each, turns + (short > 0), each):
            numbers = key.worker + key.workers * np.arange(first, min(first + each, turns))
            takes = list[Take]()
            for group in np.unique(numbers % self.groups).tolist():
                indices = np.flatnonzero(numbers % self.groups == group)
                done, at = int(numbers[indices[0]]) // self.groups, int(indices[0]) * key.batch
                takes.append(Take(lanes_of[group], done, at, stride, len(indices)))
            visits = len(numbers) * key.batch
            if first + each > turns and short:
                takes.append(Take(last, 0, visits, 0, 1))
                visits += short
            yield lanes.step(takes, visits)

    def _stretches(self, batches: int, key: Key, group: int) -> Iterator[Stretch]:
        each, (count, more) = self.rows // self.ways, divmod(batches, self.groups)
        begin = (group * count + min(group, more)) * self.rows
        long = (count + (group < more)) * each
        first, stop = key.rank * key.batch, (key.rank + 1) * key.batch
        for way in range(first // each, -(-stop // each)):
            columns = max(0, first - way * each), min(each, stop - way * each)
            span = begin + way * long, begin + (way + 1) * long
            yield Stretch(span, each, columns, group, self.groups, key.worker, key.workers)


def _short(rows: int, begin: int, key: Key) -> Stretch:
    columns = key._replace(worker=0, workers=1).share(rows - begin)
    return Stretch((begin, rows), rows - begin, columns, 0, 1, 0, 1)


def _worlds(ways: int) -> tuple[int, int]:
    """Return the number of worlds that read no lane twice, and the number of lanes, as a sort key."""
    return sum(ways % world == 0 for world in range(1, ways + 1)), ways
