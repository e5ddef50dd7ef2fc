"""The two streaming baselines: TensorFlow's sliding window and Bismarck's reservoir (MRS)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from corgipile import _kernel
from corgipile.orders.order import Blocks, IntArray, Key, Sized, Step, step_rows, too_small, with_sizes
from corgipile.sizes import to_rows

SPREAD = 4  # rows of varying length stay in their batches, of which a window keeps more than its rows


@dataclass(frozen=True, kw_only=True)
class Streaming(Sized):
    """Reads rows in storage order through a window of ``buffer`` rows, ``block`` rows a step."""

    name: ClassVar[str]
    reservoir: ClassVar[bool]
    sequential: ClassVar[bool] = True

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows: the window gets what the budget leaves beside the rows read ahead.

        Raises:
            BudgetTooSmall: The budget does not hold a window of one row and the rows read ahead.
        """
        spread = SPREAD if whole else 1
        if budget is not None:
            budget //= spread
        chunk = self.fit_block(rows, row_bytes, budget)
        if self.block is None:
            room = chunk if budget is None else max(1, budget // (8 * (1 + self.ahead)))
            chunk = min(max(chunk, min(step_rows(row_bytes), room)), max(rows, 1))
        room = rows if budget is None else budget - (1 + self.ahead) * chunk
        wanted = room if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        if budget is not None and (wanted > room or room < 1):
            needed = max(wanted, 1) + (1 + self.ahead) * chunk
            raise too_small(self.name, needed * spread, budget * spread, row_bytes)
        return with_sizes(self, block=chunk, buffer=max(1, min(wanted, rows)))

    @property
    def window(self) -> int:
        """Return the rows that wait."""
        return to_rows(self.buffer or 1, 1, 1.0, "buffer")

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows: the window and the rows read ahead."""
        return self.window + (1 + self.ahead) * self.block_rows

    def loops(self, blocks: Blocks, key: Key) -> int:
        """Return the visits of kept rows in one pass."""
        return 0

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on; earlier ones are followed without any reading."""
        first, stop = key.share(blocks.rows)
        chunk, window = self.block_rows, self.window
        loops = self.loops(blocks, key)
        stream = _kernel.stream_new(
            self.reservoir, first, stop, window, chunk, self.ahead, key.hash(_kernel.KEY_STREAM), loops
        )
        into, visit = np.empty(chunk, np.int32), np.empty(max(2 * chunk, window), np.int32)
        for _ in range(start):
            _kernel.stream_next(stream, into, visit)
        waiting = _waiting(stream, window) if start else (np.empty((0, 2), np.int64), np.empty(0, np.int32))
        row = first + start * chunk
        while (done := _kernel.stream_next(stream, into, visit)) is not None:
            fresh = np.array([[row, row + done[0]]] if done[0] else np.empty((0, 2)), np.int64)
            yield Step(
                np.concatenate([waiting[0], fresh]),
                np.concatenate([waiting[1], into[: done[0]]]),
                visit[: done[1]].copy(),
            )
            waiting = (waiting[0][:0], waiting[1][:0])
            row += done[0]


def _waiting(stream: object, window: int) -> tuple[IntArray, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Return runs and slots of the rows in the window, ascending by row."""
    rows, slots = np.empty(window, np.int64), np.empty(window, np.int32)
    count = _kernel.stream_waiting(stream, rows, slots)
    ascending = np.argsort(rows[:count])
    rows, slots = rows[:count][ascending], slots[:count][ascending]
    breaks = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
    ends = np.append(breaks[1:], count) - 1 if count else breaks
    return np.stack([rows[breaks], rows[ends] + 1], axis=1), slots


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(Streaming):
    """Visit a random row of a window over the stored order and replace it by the next (``tf.data`` shuffle).

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = SlidingWindow(block=4, buffer=3).fit(12, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(12, even=4), Key(seed=0))))
        >>> sorted(visits.tolist()) == list(range(12))
        True
    """

    name: ClassVar[str] = "sliding_window"
    reservoir: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Reservoir(Streaming):
    """Visit the rows that leave a reservoir sample, each followed by one of the kept rows (MRS, Bismarck).

    A pass over m rows with a window of w visits each row once as it leaves the reservoir, or at the end if it stayed,
    and m - w times a kept row from the loop: 2m - w visits where m > w, else m. Of workers that share a pass each makes
    fewer from the loop, so that all make whole batches; or none, where the smallest share leaves too few.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = Reservoir(block=4, buffer=3).fit(12, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(12, even=4), Key(seed=0))))
        >>> len(visits), len(set(visits.tolist()))
        (21, 12)
    """

    name: ClassVar[str] = "reservoir"
    once: ClassVar[bool] = False
    reservoir: ClassVar[bool] = True

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass of this rank, the loop's included."""
        return super().visits(blocks, key) + self.loops(blocks, key)

    def loops(self, blocks: Blocks, key: Key) -> int:
        """Return the visits of kept rows in one pass."""
        rows = super().visits(blocks, key)
        if key.workers == 1:
            return max(0, rows - self.window)
        shares = (key._replace(worker=worker).share(blocks.rows) for worker in range(key.workers))
        least = min(stop - first for first, stop in shares) - self.window
        return rows - self.window - (2 * rows - self.window) % key.batch if least >= key.batch - 1 else 0
