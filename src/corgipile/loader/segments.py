"""Segments of epochs: the rows that ranks and workers have visited in step, and the table of the remaining rows."""

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

__all__ = ["EpochSegment", "dealt", "is_at", "next_worker", "remainder", "same_value"]

Rows = npt.NDArray[np.int64]
MAX_ROWS, MAX_WORLD, MAX_SLOTS = 1 << 62, 1 << 16, 1 << 24  # largest values that a state may have
MAX_FOLLOWED = 1 << 24  # visits that are checked by following the order, which takes a tenth of a second


class EpochSegment(NamedTuple):
    """A part of an epoch that ranks and workers run in step: one state restores all of them.

    Attributes:
        order: The order with sizes in rows, as `described`.
        cut: Requested rows of a block.
        columns: Stored columns that are read if blocks depend on them; else none, to keep states small.
        batch_size: Rows of a batch.
        drop_last: Whether a short last batch is dropped.
        world: Number of ranks.
        batches: Batches done by each worker, the same on all ranks.
        even: Whether blocks ignore the encoded units of the table.
        sketch: Checksum of the vectors that blocks are balanced by; 0 without vectors.
        ranks: Batches done by each rank if ranks were not in step at the end; else none.
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
    def begin(cls, fitted: Fitted, batch_size: int, world: int, workers: int, *, drop_last: bool) -> "EpochSegment":
        """Make a segment without finished batches."""
        columns = fitted.sources if by_pages(fitted.order) else []
        done = [0] * workers
        order, sketch = described(fitted.order), _checksum(fitted.blocks)
        return cls(order, fitted.cut, columns, batch_size, drop_last, world, done, fitted.way.even, sketch)

    @classmethod
    def read(cls, value: Any, order: dict[str, Any] | None = None) -> "EpochSegment":
        """Parse a segment of an untrusted state; ``order`` is a known order, which may not be a registered one.

        Raises:
            StateMismatch: It is not a segment.

        Example:
            >>> done = EpochSegment({"name": "no_shuffle", "block": 1, "buffer": 1}, 1, [], 2, False, 1, [1, 1])
            >>> EpochSegment.read(done._asdict()) == done
            True
        """
        if not isinstance(value, Mapping) or set(value) | cls._field_defaults.keys() != set(cls._fields):
            raise StateMismatch(f"a segment must have {', '.join(cls._fields)}, got {value!r}")
        try:
            segment = cls(**{**value, "columns": list(value["columns"]), "batches": list(value["batches"])})
            segment = segment._replace(ranks=list(segment.ranks))
            _check_fields(segment, order)
        except (BadArgument, TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
            raise StateMismatch(f"state has an invalid segment: {error}") from None
        return segment

    def check(self, fitted: Fitted, seed: int, epoch: int) -> None:
        """Raise StateMismatch if the segment has more batches than the epoch."""
        totals = self.totals(fitted, seed, epoch)
        if any(done > totals[0] for done in self.ranks):
            raise StateMismatch(f"state has {self.ranks} batches of ranks, but the epoch has {totals[0]}")
        for worker, (done, most) in enumerate(zip(self.batches, totals, strict=True)):
            if done > most:
                raise StateMismatch(f"state has {done} batches of worker {worker}, but the epoch has {most}")

    def like(self, other: "EpochSegment") -> bool:
        """Return whether two segments differ only in the batches done."""
        return self._replace(batches=[]) == other._replace(batches=[]) and len(self.batches) == len(other.batches)

    def moved(self, other: "EpochSegment", fitted: Fitted, seed: int, epoch: int) -> "EpochSegment | None":
        """Return this segment with the progress of another one of the same global batches.

        None if the other's batches are not these global batches, or were not done in turn. Worlds may differ.
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
        """Raise StateMismatch, with the reason, unless a state's segment differs only in the batches done."""
        if not same_value(other.order, self.order):
            raise instead(other.order, self.order)
        got, own = ({**segment._asdict(), "batches": len(segment.batches)} for segment in (other, self))
        for name in own:
            if not same_value(got[name], own[name]):
                what = "number of workers" if name == "batches" else name
                raise StateMismatch(f"state belongs to another {what}: it has {got[name]!r}, here it is {own[name]!r}")

    def key(self, seed: int, epoch: int, rank: int, worker: int) -> Key:
        """Return a worker's key."""
        return Key(seed, epoch, rank, self.world, self.drop_last, worker, len(self.batches), self.batch_size)

    def totals(self, fitted: Fitted, seed: int, epoch: int) -> list[int]:
        """Return the number of batches of each worker, the same on all ranks."""
        keys = [self.key(seed, epoch, 0, worker) for worker in range(len(self.batches))]
        visits = [fitted.order.visits(fitted.blocks, key) for key in keys]
        return [rows // self.batch_size if self.drop_last else -(-rows // self.batch_size) for rows in visits]

    def fitted(self, table: Table, look: Sketch = by_column, epoch: int = 0) -> Fitted:
        """Return the segment's order over a table, and its blocks in an epoch.

        Raises:
            StateMismatch: The segment does not belong to this table.
        """
        try:
            order = restored(self.order)
            check_columns(table.schema, self.columns)
            blocks = sketched(table, order, cut(table, order, self.cut, self.columns, even=self.even), look)
            whole(order.slots(blocks), "buffer", 0, max(MAX_SLOTS, 16 * len(table)))
            whole(order.block_rows, "block", 1)
        except (BadArgument, BadSchema, MissingColumn, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StateMismatch(f"state has a segment that does not fit the table: {error}") from None
        if _checksum(blocks) != self.sketch:
            raise StateMismatch("state belongs to blocks of other rows, or to another sketch= of them")
        return Fitted(order, blocks, self.cut, self.columns)

    def visited(self, table: Table, seed: int, epoch: int, look: Sketch = by_column) -> Iterator[Rows]:
        """Yield the numbers of the rows that all ranks visited; only a balanced order's sketch reads data.

        Raises:
            StateMismatch: The segment does not belong to this table.
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


def _checksum(blocks: Blocks) -> int:
    """Return a checksum of blocks' vectors, which depend on a sample and may depend on a user's function."""
    sketch = blocks.sketch
    return 0 if sketch is None or sketch.ndim == 1 else zlib.crc32(sketch.tobytes())


def _check_fields(segment: EpochSegment, known: dict[str, Any] | None) -> None:
    whole(segment.cut, "cut", 1, MAX_ROWS)
    whole(segment.sketch, "sketch", 0, (1 << 32) - 1)
    whole(segment.batch_size, "batch_size", 1, MAX_ROWS)
    whole(segment.world, "world", 1, MAX_WORLD)
    whole(len(segment.batches), "workers", 1, MAX_WORLD)
    for batches in (*segment.batches, *segment.ranks):
        whole(batches, "batches", 0, MAX_ROWS)
    if segment.ranks and (len(segment.ranks) != segment.world or len(segment.batches) > 1):
        raise BadArgument(f"ranks needs {segment.world} numbers and a single worker, got {len(segment.ranks)} numbers")
    if not all(isinstance(name, str) for name in segment.columns) or not isinstance(segment.drop_last, bool):
        raise BadArgument(f"columns must be names and drop_last a bool, got {segment.columns!r}, {segment.drop_last!r}")
    if not isinstance(segment.even, bool):
        raise BadArgument(f"even must be a bool, got {segment.even!r}")
    if not same_value(segment.order, known) and not same_value(segment.order, described(restored(segment.order))):
        raise BadArgument(f"order must be a known order, got {segment.order!r}")


def same_value(value: Any, own: Any) -> bool:
    """Return whether a state's value equals ours in value and type: in Python True equals 1 and 1.0.

    Example:
        >>> same_value({"a": 1}, {"a": 1}), same_value(True, 1), same_value({"a": 1.0}, {"a": 1})
        (True, False, False)
    """
    if isinstance(own, dict):
        return (
            isinstance(value, dict)
            and value.keys() == own.keys()
            and all(same_value(value[key], own[key]) for key in own)
        )
    return type(value) is type(own) and bool(value == own)


def is_at(order: Order, blocks: Blocks, key: Key, visits: int, place: tuple[int, int]) -> bool:
    """Return whether a pass is at this step and offset after some visits, by following the order without data.

    Beyond `MAX_FOLLOWED` visits the position is trusted: resuming at row 10^12 takes no longer than at row 10. If it
    is wrong, the epoch ends early with an error.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=3).fit(7, 8e5, None)
        >>> [is_at(order, Blocks(7, even=3), Key(0), 4, place) for place in ((1, 1), (1, 2), (2, 0))]
        [True, False, False]
    """
    step, offset = place
    if visits > MAX_FOLLOWED:
        return True
    at = -1
    for at, planned in enumerate(order.steps(blocks, key)) if visits or step else ():
        if at == step:
            return visits == offset <= len(planned.visit)
        visits -= len(planned.visit)
        if visits < 0:
            return False
    return visits == offset == 0 and step == at + 1


def remainder(table: Table, seed: int, epoch: int, segments: Sequence[EpochSegment], look: Sketch = by_column) -> Table:
    """Return the table of the rows that no segment visited; each segment ran over the rows that the previous one left.

    It needs one byte per row temporarily, and reads only a balanced order's column.

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
    """Return the worker whose turn is next; workers that are done are skipped.

    Example:
        >>> next_worker([2, 1, 1], [5, 4, 4]), next_worker([3, 3], [3, 3])
        (1, 0)
    """
    return min(range(len(done)), key=lambda worker: (done[worker] == totals[worker], done[worker], worker))


def dealt(left: Sequence[int], turns: int) -> list[int]:
    """Return the turns of each worker if ``turns`` are dealt in order, from the first worker on, to unfinished workers.

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
