"""Epochs in parts: which rows several ranks and workers have visited in step, and the table of those they have not."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadSchema, MissingColumn, StateMismatch
from corgipile.loader.budget import Fitted, Sketch, by_pages, cut, sketched
from corgipile.orders import Blocks, GlobalBatches, Key, Order, described, instead, restored, visited_rows
from corgipile.sizes import whole
from corgipile.tables.sketch import sketch as by_column
from corgipile.tables.subset import Subset
from corgipile.tables.table import Table, check_columns

__all__ = ["EpochSegment", "alike", "dealt", "next_worker", "remainder", "stands"]

Rows = npt.NDArray[np.int64]
MOST_ROWS, MOST_WORLD, MOST_SLOTS = 1 << 62, 1 << 16, 1 << 24
FOLLOWED = 1 << 24  # visits: they are followed in a tenth of a second


class EpochSegment(NamedTuple):
    """A part of an epoch that ranks and workers run in step, so that one state serves all of them.

    Attributes:
        order: The order with sizes in rows, as `described`.
        cut: Rows of a block asked for.
        columns: The stored columns that are read, where blocks depend on them: else a state is small for any table.
        batch_size: Rows of a batch.
        drop_last: Whether rows that make no whole batch are left out.
        world: Number of ranks.
        batches: Batches done by each worker, the same on all ranks.
        even: Whether blocks were cut evenly, though the table is encoded in units.
        sketch: Checksum of the vectors that blocks are balanced by, 0 where they are balanced otherwise.
        ranks: Batches done by each rank, where ranks were not in step when it ended; else none.
    """

    order: dict[str, Any]
    cut: int
    columns: list[str]
    batch_size: int
    drop_last: bool
    world: int
    batches: list[int]
    even: bool = False
    sketch: int = 0
    ranks: list[int] = []  # noqa: RUF012  # never changed

    @classmethod
    def begin(
        cls, fitted: Fitted, batch_size: int, world: int, workers: int, *, drop_last: bool, epoch: int = 0
    ) -> "EpochSegment":
        """Make a segment of which nothing is done yet."""
        columns = fitted.sources if by_pages(fitted.order) else []
        done = [0] * workers
        order, sketch = described(fitted.order), _checksum(fitted.blocks, epoch)
        return cls(order, fitted.cut, columns, batch_size, drop_last, world, done, fitted.way.even, sketch)

    @classmethod
    def read(cls, said: Any, order: dict[str, Any] | None = None) -> "EpochSegment":
        """Read a segment of a state, whatever it may be; ``order`` is one at hand, which may have no name of ours.

        Raises:
            StateMismatch: It is none.

        Example:
            >>> done = EpochSegment({"name": "no_shuffle", "block": 1, "buffer": 1}, 1, [], 2, False, 1, [1, 1])
            >>> EpochSegment.read(done._asdict()) == done
            True
        """
        if not isinstance(said, Mapping) or set(said) | cls._field_defaults.keys() != set(cls._fields):
            raise StateMismatch(f"a segment must have {', '.join(cls._fields)}, got {said!r}")
        try:
            segment = cls(**{**said, "columns": list(said["columns"]), "batches": list(said["batches"])})
            segment = segment._replace(ranks=list(segment.ranks))
            _check_fields(segment, order)
        except (BadArgument, TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
            raise StateMismatch(f"state has a segment that cannot be: {error}") from None
        return segment

    def check(self, fitted: Fitted, seed: int, epoch: int) -> None:
        """Raise StateMismatch if more is said to be done than there is."""
        totals = self.totals(fitted, seed, epoch)
        if any(done > totals[0] for done in self.ranks):
            raise StateMismatch(f"state has {self.ranks} batches of ranks; there are {totals[0]}")
        for worker, (done, most) in enumerate(zip(self.batches, totals, strict=True)):
            if done > most:
                raise StateMismatch(f"state has {done} batches of worker {worker}; there are {most}")

    def like(self, other: "EpochSegment") -> bool:
        """Say whether two segments differ in what is done only."""
        return self._replace(batches=[]) == other._replace(batches=[]) and len(self.batches) == len(other.batches)

    def moved(self, other: "EpochSegment", fitted: Fitted, seed: int, epoch: int) -> "EpochSegment | None":
        """Return this segment, of which nothing is done, where another one stands: that of the same global batches.

        None where batches of the other, whatever its world, are no global batches of this, or are not done in turn.
        """
        if not isinstance(fitted.order, GlobalBatches) or other.batch_size * other.world != fitted.order.rows:
            return None
        if not self.like(other._replace(world=self.world, batch_size=self.batch_size, batches=self.batches)):
            return None
        done = sum(other.batches)
        if dealt(other.totals(fitted, seed, epoch), done) != other.batches:
            return None
        return self._replace(batches=dealt(self.totals(fitted, seed, epoch), done))

    def check_like(self, other: "EpochSegment") -> None:
        """Raise StateMismatch, which says why, unless the other, of a state, differs in what is done only."""
        if not alike(other.order, self.order):
            raise instead(other.order, self.order)
        found, mine = ({**one._asdict(), "batches": len(one.batches)} for one in (other, self))
        for name in mine:
            if not alike(found[name], mine[name]):
                what = "number of workers" if name == "batches" else name
                raise StateMismatch(f"state is of another {what}: it has {found[name]!r}, here it is {mine[name]!r}")

    def of_epoch(self, fitted: Fitted, epoch: int) -> "EpochSegment":
        """Return the same of another epoch, whose blocks may be balanced by something else."""
        return self._replace(sketch=_checksum(fitted.blocks, epoch))

    def key(self, seed: int, epoch: int, rank: int, worker: int) -> Key:
        """Return the key of a worker."""
        return Key(seed, epoch, rank, self.world, self.drop_last, worker, len(self.batches), self.batch_size)

    def totals(self, fitted: Fitted, seed: int, epoch: int) -> list[int]:
        """Return the batches of each worker, the same on all ranks."""
        keys = [self.key(seed, epoch, 0, worker) for worker in range(len(self.batches))]
        visits = [fitted.order.visits(fitted.blocks, key) for key in keys]
        return [rows // self.batch_size if self.drop_last else -(-rows // self.batch_size) for rows in visits]

    def fitted(self, table: Table, look: Sketch = by_column, epoch: int = 0) -> Fitted:
        """Return its order over a table, and the blocks that it runs over in an epoch, of which it is.

        Raises:
            StateMismatch: The segment cannot be one of this table.
        """
        try:
            order = restored(self.order)
            check_columns(table.schema, self.columns)
            blocks = sketched(table, order, cut(table, order, self.cut, self.columns, even=self.even), look)
            whole(order.slots(blocks), "buffer", 0, max(MOST_SLOTS, 16 * len(table)))
            whole(order.block_rows, "block", 1)
        except (BadArgument, BadSchema, MissingColumn, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StateMismatch(f"state has a segment of another table: {error}") from None
        if _checksum(blocks, epoch) != self.sketch:
            raise StateMismatch("state is of blocks that held other rows, or of another sketch= of them")
        return Fitted(order, blocks, self.cut, self.columns)

    def visited(self, table: Table, seed: int, epoch: int, look: Sketch = by_column) -> Iterator[Rows]:
        """Yield the numbers of the rows that all ranks visited; no row is read but for a balanced order's sketch.

        Raises:
            StateMismatch: The segment cannot be one of this table.
        """
        fitted = self.fitted(table, look, epoch)
        self.check(fitted, seed, epoch)
        for rank in range(self.world):
            for worker, batches in enumerate(self.batches):
                left = (self.ranks[rank] if self.ranks else batches) * self.batch_size
                key = self.key(seed, epoch, rank, worker)
                steps = visited_rows(fitted.order, fitted.blocks, key) if left else iter(())
                for rows in steps:
                    yield rows[:left]
                    left -= len(rows)
                    if left <= 0:
                        break


def _checksum(blocks: Blocks, epoch: int) -> int:
    """Return what tells vectors of blocks apart, which come from a sample and may be what a function returned."""
    sketch = blocks.sketch_of(epoch)
    return 0 if sketch is None or sketch.ndim == 1 else zlib.crc32(sketch.tobytes())


def _check_fields(segment: EpochSegment, known: dict[str, Any] | None) -> None:
    whole(segment.cut, "cut", 1, MOST_ROWS)
    whole(segment.sketch, "sketch", 0, (1 << 32) - 1)
    whole(segment.batch_size, "batch_size", 1, MOST_ROWS)
    whole(segment.world, "world", 1, MOST_WORLD)
    whole(len(segment.batches), "workers", 1, MOST_WORLD)
    for batches in (*segment.batches, *segment.ranks):
        whole(batches, "batches", 0, MOST_ROWS)
    if segment.ranks and (len(segment.ranks) != segment.world or len(segment.batches) > 1):
        raise BadArgument(f"batches of {len(segment.ranks)} ranks without workers, of {segment.world}, are said apart")
    if not all(isinstance(name, str) for name in segment.columns) or not isinstance(segment.drop_last, bool):
        raise BadArgument(f"columns are names and drop_last is a bool, got {segment.columns!r}, {segment.drop_last!r}")
    if not isinstance(segment.even, bool):
        raise BadArgument(f"even is a bool, got {segment.even!r}")
    if not alike(segment.order, known) and not alike(segment.order, described(restored(segment.order))):
        raise BadArgument(f"no order is {segment.order!r}")


def alike(said: Any, mine: Any) -> bool:
    """Say whether a value of a state is ours, of the same type too: to Python True is 1 and 1.0.

    Example:
        >>> alike({"a": 1}, {"a": 1}), alike(True, 1), alike({"a": 1.0}, {"a": 1})
        (True, False, False)
    """
    if isinstance(mine, dict):
        return (
            isinstance(said, dict) and said.keys() == mine.keys() and all(alike(said[key], mine[key]) for key in mine)
        )
    return type(said) is type(mine) and bool(said == mine)


def stands(order: Order, blocks: Blocks, key: Key, visits: int, place: tuple[int, int]) -> bool:
    """Say whether a pass stands at this step and offset after some visits; follows it so far, without data.

    Beyond `FOLLOWED` visits it is believed, so that to go on at row 10^12 takes no longer than at row 10: an epoch that
    then ends too early is an error.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=3).fit(7, 8e5, None)
        >>> [stands(order, Blocks(7, even=3), Key(0), 4, place) for place in ((1, 1), (1, 2), (2, 0))]
        [True, False, False]
    """
    step, offset = place
    if visits > FOLLOWED:
        return True
    at = -1
    for at, made in enumerate(order.steps(blocks, key)) if visits or step else ():
        if at == step:
            return visits == offset <= len(made.visit)
        visits -= len(made.visit)
        if visits < 0:
            return False
    return visits == offset == 0 and step == at + 1


def remainder(table: Table, seed: int, epoch: int, segments: Sequence[EpochSegment], look: Sketch = by_column) -> Table:
    """Return the table of the rows that none of the segments visited, each of which ran over what was left before it.

    It takes a byte a row of memory for the moment, and reads a balanced order's column but nothing else.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": [0, 1, 2, 3, 4]}))
        >>> done = EpochSegment({"name": "no_shuffle", "block": 1, "buffer": 1}, 1, [], 2, False, 1, [1, 1])
        >>> remainder(table, 0, 0, [done]).read(0, 1).to_pydict()
        {'x': [2]}
    """
    for segment in segments:
        left = np.ones(len(table) + 2, np.bool_)
        left[0] = left[-1] = False
        for rows in segment.visited(table, seed, epoch, look):
            left[rows + 1] = False
        table = Subset.of(table, np.flatnonzero(left[1:] != left[:-1]).reshape(-1, 2))
    return table


def next_worker(done: Sequence[int], totals: Sequence[int]) -> int:
    """Return the worker whose turn it is when all take turns, those that are through left out.

    Example:
        >>> next_worker([2, 1, 1], [5, 4, 4]), next_worker([3, 3], [3, 3])
        (1, 0)
    """
    return min(range(len(done)), key=lambda worker: (done[worker] == totals[worker], done[worker], worker))


def dealt(left: Sequence[int], turns: int) -> list[int]:
    """Return how many turns each worker gets of some when all take turns from the first on, while they have any left.

    Example:
        >>> dealt([5, 1, 4], 7), dealt([2, 2], 9)
        ([3, 1, 3], [2, 2])
    """
    got = [0] * len(left)
    while turns and (live := [worker for worker, most in enumerate(left) if got[worker] < most]):
        rounds = min(turns // len(live), *(left[worker] - got[worker] for worker in live))
        for worker in live if rounds else live[:turns]:
            got[worker] += max(1, rounds)
        turns -= rounds * len(live) if rounds else min(turns, len(live))
    return got
