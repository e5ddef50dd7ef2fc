"""The protocol of orders, and their common parts: keys, blocks, steps, sizes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from corgipile import _kernel, random
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.sizes import Size, format_bytes, to_rows, whole

IntArray = npt.NDArray[np.int64]
Sketched = npt.NDArray[np.float64] | npt.NDArray[np.int16]
SlotArray = npt.NDArray[np.int32]

RUN_BYTES = 256 << 10  # block bytes of orders that read in storage order
BLOCK_BYTES = 64 << 10  # block bytes of random reads: several in flight reach nine tenths of the sequential rate
MAX_PLANNED = 1 << 29  # blocks of a huge table: plans hold twice as many, for cuts at stored units
MAX_BLOCKS = 12_800  # blocks of a small table: 0.5 % of it then holds MIN_BLOCKS
MIN_ROWS = 8  # rows of a block where 16 fit the memory: fewer would be read row by row
MIN_BLOCKS = 64  # blocks in memory, enough to mix


class Shard(NamedTuple):
    """The part of each pass that a worker of a rank visits; the fields are those of a `Key`."""

    rank: int = 0
    world: int = 1
    disjoint: bool = False
    worker: int = 0
    workers: int = 1
    batch: int = 1

    @classmethod
    def checked(cls, rank: Any, world: Any, **more: Any) -> Self:
        """Make a shard after checking that rank and world are whole numbers and ``0 <= rank < world``.

        Raises:
            BadArgument: They are not.

        Example:
            >>> Shard.checked(1, 2, workers=4)
            Shard(rank=1, world=2, disjoint=False, worker=0, workers=4, batch=1)
        """
        rank, world = whole(rank, "rank"), whole(world, "world", 1)
        if not 0 <= rank < world:
            raise BadArgument(f"rank must be from 0 to world - 1, got rank {rank} of world {world}")
        return cls(rank, world, **more)


class Key(NamedTuple):
    """Identifies one pass over a table, and a worker's part of it.

    Attributes:
        seed: Seed of all epochs.
        epoch: Number of the pass.
        rank: Rank of this process.
        world: Processes that share the pass.
        disjoint: If the world does not divide the rows, leave out fewer than ``world`` of them instead of repeating.
        worker: Worker of this rank.
        workers: Workers that share the rank's part.
        batch: Rows dealt to a worker at a time; only one batch of a rank may be short.
        span: First position of the pass and its end, instead of a rank's share.
    """

    seed: int
    epoch: int = 0
    rank: int = 0
    world: int = 1
    disjoint: bool = False
    worker: int = 0
    workers: int = 1
    batch: int = 1
    span: tuple[int, int] | None = None

    def hash(self, purpose: int = 0) -> int:
        """Return the 64-bit key of this pass, the same on all ranks."""
        return random.derive(self.seed, self.epoch, purpose)

    def share(self, rows: int) -> tuple[int, int]:
        """Return the first position and the end of this rank's, or its worker's, part.

        Every rank gets ``ceil(rows / world)`` positions. If the world does not divide the rows, neighbours overlap by
        one: fewer than ``world`` rows are repeated once. With fewer rows than ranks, each row goes to
        ``world / rows`` ranks, rounded down or up. If ``disjoint``, every rank gets ``floor(rows / world)`` positions
        and the others are left out. Workers take turns batch by batch; only the rank's last batch may be short.

        Example:
            >>> [Key(0, 0, rank, 3).share(10) for rank in range(3)]
            [(0, 4), (3, 7), (6, 10)]
            >>> [Key(0, worker=worker, workers=2, batch=2).share(9) for worker in range(2)]
            [(0, 5), (5, 9)]
        """
        if self.span is not None:
            return self.span
        each = rows // self.world if self.disjoint else -(-rows // self.world)
        stop = (self.rank + 1) * each if self.disjoint else min(rows, self.rank * rows // self.world + each)
        first = max(0, stop - each)
        if self.workers == 1:
            return first, stop
        batches = -(-(stop - first) // self.batch)
        each, more = divmod(batches, self.workers)
        missing = batches * self.batch - (stop - first)  # rows that the rank's last batch lacks, of worker `more - 1`
        edges = [
            (k * each + min(k, more)) * self.batch - (missing if k >= (more or self.workers) else 0)
            for k in (self.worker, self.worker + 1)
        ]
        return first + edges[0], first + edges[1]


class Step(NamedTuple):
    """One instruction: load these rows into these slots, then visit these slots.

    Attributes:
        extents: int64[k, 2], runs of rows to read.
        into: int32[rows], buffer slot of each row read; -1 for unwanted rows.
        visit: int32[m], buffer slots in visiting order.
        sweep: int32[rows] or None: the rows of each extent, counted from its start, in ascending order of their slots,
            which is the fastest order of writing.
    """

    extents: IntArray
    into: SlotArray
    visit: SlotArray
    sweep: SlotArray | None = None


@dataclass(frozen=True)
class Blocks:
    """A table's division into blocks.

    Attributes:
        rows: Rows of the table.
        cuts: int64[blocks + 1], or None if every block but the last has ``even`` rows.
        even: Rows of a block if ``cuts`` is None.
        sketch: One number, or int16 vector, per block: similar for blocks of similar rows; or None.

    Example:
        >>> Blocks(10, even=4).count, Blocks.of([0, 4, 10]).widest
        (3, 6)
    """

    rows: int
    cuts: IntArray | None = None
    even: int = 0
    sketch: Sketched | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.cuts is None and self.even < 1:
            raise BadArgument(f"blocks need cuts or an even size of at least 1 row, got {self.even}")
        if self.rows >= 1 << 62:
            raise BadArgument(f"a table has at most 2^62 rows, got {self.rows}")

    @classmethod
    def of(cls, cuts: Any) -> "Blocks":
        """Make blocks from boundaries."""
        array = np.ascontiguousarray(cuts, np.int64)
        if array.ndim != 1 or array.size < 1 or array[0] != 0 or (np.diff(array) < 0).any():
            raise BadArgument(f"cuts must ascend from 0, got {array[:8].tolist()}...")
        return cls(int(array[-1]), array)

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return len(self.cuts) - 1 if self.cuts is not None else -(-self.rows // self.even)

    @cached_property
    def widest(self) -> int:
        """Return the rows of the largest block."""
        if self.cuts is None:
            return min(self.even, self.rows)
        return int(np.diff(self.cuts).max(initial=0))


class Order(Protocol):
    """A strategy that decides the order of reads and visits; it uses row numbers only."""

    name: ClassVar[str]
    once: ClassVar[bool]  # a loaded row is visited once
    sequential: ClassVar[bool]  # rows are read in storage order

    @property
    def ahead(self) -> int:
        """Return the steps loaded while an earlier one is visited."""

    @property
    def block_rows(self) -> int:
        """Return the rows of a block after `fit`."""

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that blocks are made of; ``"page"``: runs of ``run_bytes`` of a file's pages."""

    @property
    def run_bytes(self) -> int:
        """Return the bytes of a run of pages, if blocks are runs."""

    @property
    def sketch_column(self) -> str | None:
        """Return the column whose sketch the order needs in ``Blocks.sketch``, or None.

        ``"content"`` needs vectors of the blocks' rows instead of a column.
        """

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Return this order with all sizes in rows, within a budget of rows in memory (None: the order's own sizes)."""

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots that steps use."""

    def resident(self, blocks: Blocks) -> int:
        """Return the largest number of rows in memory, read-ahead included."""

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in a pass of this rank."""

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on; the first one loads the rows buffered at that point."""


@runtime_checkable
class Seekable(Protocol):
    """Method of orders that compute a position without making steps."""

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int] | None:
        """Return a pass's position after some visits, see `seek`; None if steps must be made."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes that block orders share.

    Attributes:
        block: Rows (int), bytes (``"64KB"``) or share (``"1%"``) of a block. None: 64 KB, or 256 KB for orders that
            read in storage order; less for tables below 800 MB, so that 64 blocks are 0.5 % of the table, and less if
            the memory does not hold 64 blocks. More memory buys more blocks, never larger ones.
        buffer: Buffered rows, in the same units; None: as the memory budget allows.
        ahead: Steps loaded while an earlier one is visited; 1 is double buffering.
    """

    once: ClassVar[bool] = True
    sequential: ClassVar[bool] = False
    block: Size | None = None
    buffer: Size | None = None
    ahead: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.ahead <= 64:
            raise BadArgument(f"ahead must be from 0 to 64 steps, got {self.ahead}")
        for name in ("block", "buffer"):
            size = getattr(self, name)
            if size is not None:
                to_rows(size, 1, 1.0, name)

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that blocks are made of."""
        return "block"

    @property
    def run_bytes(self) -> int:
        """Return 0: blocks are not runs of pages."""
        return 0

    @property
    def sketch_column(self) -> str | None:
        """Return None: no sketch is needed."""
        return None

    @property
    def shuffles_rows(self) -> bool:
        """Return whether the rows of a block are visited in random order, else in storage order."""
        return True

    @property
    def block_rows(self) -> int:
        """Return the rows of a block after `fit`."""
        if not isinstance(self.block, int):
            raise BadArgument(f"block must be in rows, got {self.block!r}; call fit() first")
        return self.block

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in a pass of this rank: each of its rows once."""
        first, stop = key.share(blocks.rows)
        return stop - first

    def resident(self, blocks: Blocks) -> int:
        """Return the largest number of rows in memory, read-ahead included: the slots."""
        return int(self.slots(blocks))  # type: ignore[attr-defined]

    def fit_block(self, rows: int, row_bytes: float, budget: int | None) -> int:
        """Choose the rows of a block.

        Raises:
            BadArgument: A given block is so small that the table has more blocks than a plan holds.
        """
        smallest = -(-rows // MAX_PLANNED)
        if self.block is not None:
            block = min(to_rows(self.block, rows, row_bytes, "block"), max(rows, 1))
            if block < smallest:
                raise BadArgument(f"block must have at least {smallest} rows in a table of {rows}, got {self.block!r}")
            return block
        room = to_rows(self.buffer, rows, row_bytes, "buffer") if self.buffer is not None else budget
        room = rows if room is None else room
        if self.sequential:
            return max(1, smallest, min(int(RUN_BYTES / row_bytes), rows, room // MIN_BLOCKS))
        least = min(MIN_ROWS, room // 16)
        block = min(max(least, rows // MAX_BLOCKS), max(least, room // MIN_BLOCKS))
        return max(1, smallest, min(int(BLOCK_BYTES / row_bytes), block, rows))


def step_rows(row_bytes: float) -> int:
    """Return the rows to load per step.

    Example:
        >>> step_rows(4), step_rows(4096)
        (8192, 512)
    """
    return _kernel.step_rows(row_bytes)


def too_small(name: str, needed: int, budget: int, row_bytes: float) -> BudgetTooSmall:
    """Make the error that names the smallest memory that works."""
    return BudgetTooSmall(
        f"memory holds {budget} rows ({format_bytes(budget * row_bytes)}), but {name} needs at least {needed}: "
        f"give memory={format_bytes(np.ceil(needed * row_bytes * 1.01)).replace(' ', '')!r} or a smaller block"
    )


T = TypeVar("T", bound="Sized")


def with_sizes(order: T, **sizes: Any) -> T:
    """Return a copy of an order with other sizes."""
    return replace(order, **sizes)


def visited_rows(order: Order, blocks: Blocks, key: Key, start: int = 0) -> Iterator[IntArray]:
    """Follow an order without data: yield the row numbers each step visits, int64[m].

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=3).fit(7, 8, None)
        >>> np.concatenate(list(visited_rows(order, Blocks(7, even=3), Key(0)))).tolist()
        [0, 1, 2, 3, 4, 5, 6]
    """
    row_of = np.full(order.slots(blocks), -1, np.int64)
    for step in order.steps(blocks, key, start):
        yield follow(step, row_of)


def follow(step: Step, row_of: IntArray) -> IntArray:
    """Return the row numbers that a step visits, int64[m]; ``row_of`` keeps the row of each slot."""
    into, visit = np.ascontiguousarray(step.into, np.int32), np.ascontiguousarray(step.visit, np.int32)
    rows = np.empty(len(visit), np.int64)
    _kernel.follow(np.ascontiguousarray(step.extents, np.int64), into, visit, row_of, rows)
    return rows


def seek(order: Order, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
    """Return a pass's position after some visits, without data.

    Returns:
        The step to begin with, and the number of its visits that are done.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> seek(NoShuffle(block=3).fit(7, 8e5, None), Blocks(7, even=3), Key(0), 4)
        (1, 1)
    """
    step = 0
    position = order.seek(blocks, key, visits) if isinstance(order, Seekable) else None
    if position is not None:
        return position
    if visits:
        for step, planned in enumerate(order.steps(blocks, key)):
            if visits < len(planned.visit):
                return step, visits
            visits -= len(planned.visit)
        step += 1
    return step, visits


def rows_of(extents: IntArray) -> IntArray:
    """Return the row numbers of runs, one after the other.

    Example:
        >>> rows_of(np.array([[4, 7], [1, 3]])).tolist()
        [4, 5, 6, 1, 2]
    """
    if len(extents) == 1:  # steps of few rows have one run; this halves the time of following an order
        return np.arange(*extents[0].tolist(), dtype=np.int64)
    lengths = extents[:, 1] - extents[:, 0]
    starts = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum(), dtype=np.int64) + np.repeat(extents[:, 0] - starts, lengths))
