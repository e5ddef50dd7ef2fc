"""The contract of an order, and what all orders share: keys, blocks, steps, sizes."""

from collections.abc import Callable, Iterator
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

RUN_BYTES = 256 << 10  # of blocks that are read one after the other, as they lie
BLOCK_BYTES = 64 << 10  # read at random at nine tenths of the rate of any larger run, several at a time
MOST_BLOCKS = 12_800  # of a smaller table, so that 0.5 % of it holds...
LEAST_ROWS = 8  # of such a block, where 16 fit: fewer are read row by row
FEWEST_BLOCKS = 64  # ...that many, enough to mix


class Shard(NamedTuple):
    """Says whose part of each pass it is; the fields are those of a `Key`."""

    rank: int = 0
    world: int = 1
    disjoint: bool = False
    worker: int = 0
    workers: int = 1
    batch: int = 1

    @classmethod
    def checked(cls, rank: Any, world: Any, **more: Any) -> Self:
        """Make one whose rank and world are whole numbers, one inside the other.

        Raises:
            BadArgument: They are not.

        Example:
            >>> Shard.checked(1, 2, workers=4)
            Shard(rank=1, world=2, disjoint=False, worker=0, workers=4, batch=1)
        """
        rank, world = whole(rank, "rank"), whole(world, "world", 1)
        if not 0 <= rank < world:
            raise BadArgument(f"rank must be 0 to world - 1, got rank {rank} of world {world}")
        return cls(rank, world, **more)


class Key(NamedTuple):
    """Names one pass over a table: whose it is and which.

    Attributes:
        seed: Seed of all epochs.
        epoch: Which pass.
        rank: The process of ``world``.
        world: Processes that share the pass.
        disjoint: Leave fewer than ``world`` rows out where they do not divide, rather than visit some twice.
        worker: The worker of this rank.
        workers: Workers that share what falls to the rank.
        batch: Rows that workers are dealt at a time, so that only one batch of a rank can be short.
        span: First position of the pass and the one after the last, where they are no rank's share.
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
        """Return the 64-bit key of this pass; all ranks share it."""
        return random.derive(self.seed, self.epoch, purpose)

    def share(self, rows: int) -> tuple[int, int]:
        """Return the positions of this rank, or of its worker: first and after the last.

        Every rank gets ``ceil(rows / world)`` positions; where that does not divide, neighbours overlap by one, so
        fewer than ``world`` rows are repeated, each once (of fewer rows than ranks, each goes to ``world / rows``
        ranks, rounded down or up); or, if ``disjoint``, ``floor(rows / world)``, and as few are left out.
        Workers taking turns batch by batch give whole batches up to the rank's last.

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
        missing = batches * self.batch - (stop - first)  # of the rank's last batch, which worker `more - 1` gives
        edges = [
            (k * each + min(k, more)) * self.batch - (missing if k >= (more or self.workers) else 0)
            for k in (self.worker, self.worker + 1)
        ]
        return first + edges[0], first + edges[1]


class Step(NamedTuple):
    """One instruction: load these rows into these slots, then visit these slots.

    Attributes:
        extents: int64[k, 2], runs of rows to read.
        into: int32[rows], buffer slot of each row read; -1 where the row is not wanted.
        visit: int32[m], buffer slots in the order in which they are visited.
        sweep: int32[rows] or None: the rows of each extent, counted from its start, in the order in which their slots
            ascend: the order in which they are written fastest.
    """

    extents: IntArray
    into: SlotArray
    visit: SlotArray
    sweep: SlotArray | None = None


@dataclass(frozen=True)
class Blocks:
    """How a table is cut into blocks.

    Attributes:
        rows: Rows of the table.
        cuts: int64[blocks + 1], or None where every block but the last has ``even`` rows.
        even: Rows of a block where ``cuts`` is None.
        sketch: One number a block, or a vector of int16, alike for blocks that hold alike rows; or None.
        later: Makes that of all epochs but the first, if it is another; what was made is kept.

    Example:
        >>> Blocks(10, even=4).count, Blocks.of([0, 4, 10]).widest
        (3, 6)
    """

    rows: int
    cuts: IntArray | None = None
    even: int = 0
    sketch: Sketched | None = field(default=None, repr=False)
    later: Callable[[], Sketched] | None = field(default=None, repr=False, compare=False)

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

    def sketch_of(self, epoch: int) -> Sketched | None:
        """Return the sketch of an epoch, which may be made for it now."""
        return self.later() if epoch and self.later is not None else self.sketch

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
    """A strategy that decides what is read when and visited when; it knows row numbers only."""

    name: ClassVar[str]
    once: ClassVar[bool]  # a row loaded is visited once
    sequential: ClassVar[bool]  # rows are read as they lie

    @property
    def ahead(self) -> int:
        """Return the steps loaded while an earlier one is visited."""

    @property
    def block_rows(self) -> int:
        """Return the rows of a block once sizes are known."""

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that blocks are cut into: ``"page"``: runs of ``run_bytes`` of the file's pages."""

    @property
    def run_bytes(self) -> int:
        """Return the bytes of a run of pages, where blocks are these."""

    @property
    def sketch_column(self) -> str | None:
        """Return the column of which it needs a number a block in ``Blocks.sketch``; None: of none.

        ``"content"`` is no column: it needs vectors of what is in each block.
        """

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Return this order with all sizes in rows, within a budget of rows in memory (None: as its sizes say)."""

    def slots(self, blocks: Blocks) -> int:
        """Return the number of buffer slots that steps name."""

    def resident(self, blocks: Blocks) -> int:
        """Return the rows in memory at most, read-ahead included: memory is explicit."""

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass of this rank."""

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on; the first then loads the rows that wait at that point."""


@runtime_checkable
class Seekable(Protocol):
    """What an order has besides where it knows its place without making steps."""

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int] | None:
        """Say where a pass stands after some visits, see `seek`; None where steps must be made."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes that block orders share.

    Attributes:
        block: Rows (int), bytes (``"64KB"``) or share (``"1%"``) of a block; None: 64 KB, less of a table below 800 MB,
            so that 64 blocks are 0.5 % of it, and less where the memory does not hold 64: memory buys more blocks,
            never larger ones. Orders that read rows as they lie take 256 KB.
        buffer: Rows that wait to be visited, in the same units; None: as the memory budget allows.
        ahead: Steps loaded while an earlier one is visited; 1 is double buffering.
    """

    once: ClassVar[bool] = True
    sequential: ClassVar[bool] = False
    block: Size | None = None
    buffer: Size | None = None
    ahead: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.ahead <= 64:
            raise BadArgument(f"ahead must be 0 to 64 steps, got {self.ahead}")
        for what in ("block", "buffer"):
            size = getattr(self, what)
            if size is not None:
                to_rows(size, 1, 1.0, what)

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that blocks are cut into."""
        return "block"

    @property
    def run_bytes(self) -> int:
        """Return the bytes of a run of pages; blocks are none."""
        return 0

    @property
    def sketch_column(self) -> str | None:
        """Return the column of which it needs a number a block: none."""
        return None

    @property
    def block_rows(self) -> int:
        """Return the rows of a block once `fit` was called."""
        if not isinstance(self.block, int):
            raise BadArgument(f"block {self.block!r} is not in rows yet; call fit() first")
        return self.block

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass of this rank: each of its rows once."""
        first, stop = key.share(blocks.rows)
        return stop - first

    def resident(self, blocks: Blocks) -> int:
        """Return the rows in memory at most, read-ahead included: one a slot."""
        return int(self.slots(blocks))  # type: ignore[attr-defined]

    def fit_block(self, rows: int, row_bytes: float, budget: int | None) -> int:
        """Choose the rows of a block."""
        if self.block is not None:
            return min(to_rows(self.block, rows, row_bytes, "block"), max(rows, 1))
        room = to_rows(self.buffer, rows, row_bytes, "buffer") if self.buffer is not None else budget
        room = rows if room is None else room
        if self.sequential:
            return max(1, min(int(RUN_BYTES / row_bytes), rows, room // FEWEST_BLOCKS))
        least = min(LEAST_ROWS, room // 16)
        block = min(max(least, rows // MOST_BLOCKS), max(least, room // FEWEST_BLOCKS))
        return max(1, min(int(BLOCK_BYTES / row_bytes), block, rows))


def step_rows(row_bytes: float) -> int:
    """Return the rows to load per step.

    Example:
        >>> step_rows(4), step_rows(4096)
        (8192, 512)
    """
    return _kernel.step_rows(row_bytes)


def too_small(name: str, needed: int, budget: int, row_bytes: float) -> BudgetTooSmall:
    """Make the error that says which memory would do."""
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
    """Return the row numbers that a step visits, int64[m]; which row is in each slot is kept in ``row_of``."""
    into, visit = np.ascontiguousarray(step.into, np.int32), np.ascontiguousarray(step.visit, np.int32)
    rows = np.empty(len(visit), np.int64)
    _kernel.follow(np.ascontiguousarray(step.extents, np.int64), into, visit, row_of, rows)
    return rows


def seek(order: Order, blocks: Blocks, key: Key, visits: int) -> tuple[int, int]:
    """Find where a pass stands after some visits, without data.

    Returns:
        The step to begin with, and how many of its visits are done.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> seek(NoShuffle(block=3).fit(7, 8e5, None), Blocks(7, even=3), Key(0), 4)
        (1, 1)
    """
    step = 0
    known = order.seek(blocks, key, visits) if isinstance(order, Seekable) else None
    if known is not None:
        return known
    if visits:
        for step, made in enumerate(order.steps(blocks, key)):
            if visits < len(made.visit):
                return step, visits
            visits -= len(made.visit)
        step += 1
    return step, visits


def rows_of(extents: IntArray) -> IntArray:
    """Return the row numbers of runs, one after the other.

    Example:
        >>> rows_of(np.array([[4, 7], [1, 3]])).tolist()
        [4, 5, 6, 1, 2]
    """
    if len(extents) == 1:  # as steps of few rows have them: half of what it takes to follow an order
        return np.arange(*extents[0].tolist(), dtype=np.int64)
    lengths = extents[:, 1] - extents[:, 0]
    starts = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum(), dtype=np.int64) + np.repeat(extents[:, 0] - starts, lengths))
