"""Global batches that are the same whatever the world: a pass in lanes, of which each batch takes as many rows."""

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
GROUPS = (12, 6, 4, 3, 2, 1)  # as many workers as divide the first share a rank without reading a row twice
WAYS = 24  # lanes of a batch that are enough for many worlds
MOST_WAYS = 128
MOST_LANES = 300
LANE_BLOCKS = 3  # of memory, for each lane
STEP_SHARE = 4  # of the memory, for rows that wait in steps
GROUP_SHARE = 4  # of a lane in a step of it
LANE_ROWS = 64  # of a lane in a step that is worth its overhead
PLANNED, FOLLOWED = 24, 64  # bytes that a row takes in the plans of lanes: of the kernel's orders; of others
BESIDE = 12 << 20  # of these, that come beside the budget


@dataclass(frozen=True, kw_only=True)
class GlobalBatches(Sized):
    """Global batch i holds the same rows, whatever the number of ranks and of workers.

    The rows of a pass, in the random or balanced order of blocks in which `within` would visit them, are divided into
    lanes: stretches that run side by side, each through a buffer of its own. Batch i takes ``rows / ways`` rows from
    each of the ``ways`` lanes of group ``i % groups``, and ranks divide them lane by lane: rank r of W has the places
    from ``r rows / W`` on. So a rank reads the lanes that its places are in, ``1 / W`` of the table where W divides
    ``ways`` and less than two lanes of each group more elsewhere; a worker reads those of the groups that its batches
    are of. The rows that make no whole batch are one more lane, of which all ranks take as many: fewer than ``world``
    of them are visited twice, or with ``drop_last`` none of them at all.

    All sizes, and the memory, are those of all ranks together, so that they do not depend on how many there are. A rank
    has slots for its own lanes only.

    Attributes:
        within: The order of a lane's rows; its sizes are those of this order.
        rows: Rows of a global batch.
        ways: Lanes that give rows to one batch; chosen by `fit`, divides ``rows``.
        groups: Batches that have lanes of their own, chosen by `fit`.
        waiting: Rows of a step at most, of all ranks; chosen by `fit`.
        parts: World and workers; what a rank's worker does not read needs no slots.

    Raises:
        BadArgument: The order within visits rows twice, or runs of pages; or the world does not divide the batch.

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
                f'global_batches="fixed" needs an order of blocks or rows that visits each once, got {self.within!r}'
            )

    @classmethod
    def of(cls, order: Order, rows: int) -> Self:
        """Make batches of so many rows that another order mixes.

        Example:
            >>> GlobalBatches.of(Riffle(block=4, buffer=96), 12).buffer
            96
        """
        block, buffer = getattr(order, "block", None), getattr(order, "buffer", None)
        return cls(within=order, rows=rows, ahead=order.ahead, block=block, buffer=buffer)

    @property
    def title(self) -> str:
        """Return the name of the order within, with the rows of a batch."""
        return f"{getattr(self.within, 'title', self.within.name)} in global batches of {self.rows} rows"

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that the order within cuts into."""
        order: Order = self.within
        return order.cuts_into

    @property
    def sketch_column(self) -> str | None:
        """Return the column by which the order within balances blocks."""
        order: Order = self.within
        return order.sketch_column

    @property
    def first_epoch(self) -> str | None:
        """Return what it balances the first epoch by, if that is another column."""
        return getattr(self.within, "first_epoch", None)

    def batch_rows(self, world: int) -> int:
        """Return the rows that each of so many ranks has of a batch.

        Raises:
            BadArgument: They cannot have as many each.

        Example:
            >>> GlobalBatches(rows=24).batch_rows(6)
            4
        """
        if self.rows % world:
            near = [size for size in (self.rows // world * world, -(-self.rows // world) * world) if size]
            raise BadArgument(
                f'global_batches="fixed" shares each batch evenly: {self.rows} rows do not divide among {world} ranks; '
                f"give batch_size={' or '.join(map(str, near))}, or as many ranks as divide {self.rows}"
            )
        return self.rows // world

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows, for all ranks together, and choose the lanes.

        Raises:
            BudgetTooSmall: The budget does not hold a lane and the batches read ahead.
        """
        if budget is not None:
            taken = row_bytes + (PLANNED if isinstance(self.within, Planned) else FOLLOWED)
            budget = min(budget, int((budget * row_bytes + BESIDE) / taken))
        asked: Any = replace(self.within, block=self.block, buffer=self.buffer, ahead=0)
        block = asked.fit(rows, row_bytes, budget, whole=whole).block_rows
        buffer = rows if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        room = min(rows, buffer) if budget is None else budget
        depth = (1 + self.ahead) * self.rows
        batches = max(1, min(room // STEP_SHARE, rows) // depth)
        left = None if budget is None else budget - batches * depth
        if left is not None and left < LANE_BLOCKS * block:
            raise too_small(self.name, batches * depth + LANE_BLOCKS * block, budget or 0, row_bytes)
        mixed = min(rows, buffer) if left is None else min(left, buffer)
        ways, groups = self._lanes(min(mixed // (LANE_BLOCKS * block), rows // max(block, self.rows), MOST_LANES))
        lanes = ways * groups + 1
        lane = replace(asked, block=block, buffer=max(block, min(mixed, rows) // lanes))
        if isinstance(lane, Riffle) and not lane.group:
            lane = replace(lane, group=max(1, lane.buffer_blocks() // GROUP_SHARE))
        if left is not None and self.buffer is None:
            lane = replace(lane, buffer=None)
        return with_sizes(
            self, within=lane.fit(rows, row_bytes, None if left is None else left // lanes, whole=whole),
            block=block, ways=ways, groups=groups, waiting=batches * self.rows, row_bytes=row_bytes,
        )  # fmt: skip

    def _lanes(self, most: int) -> tuple[int, int]:
        """Choose how many lanes a batch takes rows from, and how many batches have lanes of their own.

        Example:
            >>> [GlobalBatches(rows=rows)._lanes(340) for rows in (192, 256, 7, 1009)]
            [(24, 12), (16, 12), (7, 12), (1, 12)]
        """
        divisors = [ways for ways in range(1, min(self.rows, MOST_WAYS) + 1) if self.rows % ways == 0]
        for groups in GROUPS:
            fits = [ways for ways in divisors if ways * groups <= most] or [1]
            best = max((ways for ways in fits if 2 * ways > fits[-1]), key=_worlds)
            if groups == 1 or 2 * best > min(WAYS, divisors[-1]):
                return best, groups
        raise AssertionError

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots of one worker of one rank."""
        return self._slots(blocks, *self.parts)

    def _slots(self, blocks: Blocks, world: int, workers: int) -> int:
        lanes = self._own(world, workers)
        depth = (1 + self.ahead) * self.batch_rows(world)
        return (lanes + 1) * self._order.slots(blocks) + depth * self._batches(world, workers)

    def _own(self, world: int, workers: int) -> int:
        """Return how many lanes a worker reads at most, but for the last."""
        each, more = divmod(self.ways, world)
        ways = min(self.ways, each + 2) if more else each
        return ways * self.groups // gcd(self.groups, workers)

    def _batches(self, world: int, workers: int) -> int:
        """Return the batches of a step."""
        wanted = max(LANE_ROWS * self._own(world, workers), step_rows(self.row_bytes) if self.row_bytes else 0)
        return max(1, min(self.waiting // self.rows, wanted // self.batch_rows(world)))

    @property
    def _order(self) -> Order:
        if not self.ways:
            raise BadArgument(f"the lanes of {self!r} are not known yet; call fit() first")
        order: Order = self.within
        return order

    def _turns(self, rows: int, key: Key) -> tuple[int, int, int]:
        """Return the whole batches of a pass, and of a worker; and the rows that it has of the last, short one."""
        if key.batch * key.world != self.rows:
            raise BadArgument(
                f"{key.world} ranks with batches of {key.batch} rows make no global batch of {self.rows} rows: "
                'global_batches="fixed" sees to it, with any order'
            )
        batches, rest = divmod(rows, self.rows)
        short = -(-rest // key.world) if batches % key.workers == key.worker and not key.disjoint else 0
        return batches, max(0, -(-(batches - key.worker) // key.workers)), short

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass by this worker of this rank."""
        _, turns, short = self._turns(blocks.rows, key)
        return turns * key.batch + short

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
        """Say where a pass stands after some visits."""
        return divmod(visits, self._batches(key.world, key.workers) * key.batch)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on."""
        batches, turns, short = self._turns(blocks.rows, key)
        each = self._batches(key.world, key.workers)
        lanes = follow(self._order, blocks, key, self._slots(blocks, key.world, key.workers), self.ahead)
        apart = self.groups // gcd(self.groups, key.workers) * key.batch
        lanes_of = [Group(self._stretches(batches, key, group)) for group in range(self.groups)]
        last = Group([_short(blocks.rows, batches * self.rows, key)])
        for first in range(start * each, turns + (short > 0), each):
            numbers = key.worker + key.workers * np.arange(first, min(first + each, turns))
            takes = list[Take]()
            for group in np.unique(numbers % self.groups).tolist():
                mine = np.flatnonzero(numbers % self.groups == group)
                done, at = int(numbers[mine[0]]) // self.groups, int(mine[0]) * key.batch
                takes.append(Take(lanes_of[group], done, at, apart, len(mine)))
            visits = len(numbers) * key.batch
            if first + each > turns and short:
                takes.append(Take(last, 0, visits, 0, 1))
                visits += short
            yield lanes.step(takes, visits)

    def _stretches(self, batches: int, key: Key, group: int) -> Iterator[Stretch]:
        """Return what a rank takes of the lanes of a group, one lane after the other."""
        each, (count, more) = self.rows // self.ways, divmod(batches, self.groups)
        begin = (group * count + min(group, more)) * self.rows
        long = (count + (group < more)) * each
        first, stop = key.rank * key.batch, (key.rank + 1) * key.batch
        for way in range(first // each, -(-stop // each)):
            columns = max(0, first - way * each), min(each, stop - way * each)
            span = begin + way * long, begin + (way + 1) * long
            yield Stretch(span, each, columns, group, self.groups, key.worker, key.workers)


def _short(rows: int, begin: int, key: Key) -> Stretch:
    """Return what a rank takes of the last batch."""
    columns = key._replace(worker=0, workers=1).share(rows - begin)
    return Stretch((begin, rows), rows - begin, columns, 0, 1, 0, 1)


def _worlds(ways: int) -> tuple[int, int]:
    """Say how many worlds read no lane twice, and how many lanes there are."""
    return sum(ways % world == 0 for world in range(1, ways + 1)), ways
