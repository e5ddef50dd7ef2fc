"""Common part of the streaming baselines: sequential reads through a window (``kernel/plan/stream.h``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from corgipile import _kernel
from corgipile.orders.order import Blocks, IntArray, Key, Sized, Step, step_rows, too_small, with_sizes
from corgipile.sizes import to_rows

SPREAD = 4  # memory of variable-length rows per row of the window: they stay in their batches
PLANNED = 12  # bytes of a row in the plan: its place in the window, its slot, its visit


@dataclass(frozen=True, kw_only=True)
class Streaming(Sized):
    """Reads rows in storage order through a window of ``buffer`` rows, ``block`` rows a step."""

    name: ClassVar[str]
    reservoir: ClassVar[bool]
    sequential: ClassVar[bool] = True

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Convert all sizes to rows: the window gets the budget without the rows read ahead.

        Raises:
            BudgetTooSmall: The budget does not hold a window of one row and the rows read ahead.
        """
        spread, row_memory = SPREAD if whole else 1, row_bytes + PLANNED
        if budget is not None:
            budget = int(budget * row_bytes / row_memory) // spread
        chunk = self.fit_block(rows, row_bytes, budget)
        if self.block is None:
            room = chunk if budget is None else max(1, budget // (8 * (1 + self.ahead)))
            chunk = min(max(chunk, min(step_rows(row_bytes), room)), max(rows, 1))
        room = rows if budget is None else budget - (1 + self.ahead) * chunk
        wanted = room if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        if budget is not None and (wanted > room or room < 1):
            needed = max(wanted, 1) + (1 + self.ahead) * chunk
            raise too_small(self.name, needed * spread, budget * spread, row_memory)
        return with_sizes(self, block=chunk, buffer=max(1, min(wanted, rows)))

    @property
    def window(self) -> int:
        """Return the rows of the window."""
        return to_rows(self.buffer or 1, 1, 1.0, "buffer")

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows: the window and the rows read ahead."""
        return self.window + (1 + self.ahead) * self.block_rows

    def loops(self, blocks: Blocks, key: Key) -> int:
        """Return the loop visits of kept rows in a pass."""
        return 0

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on; earlier steps are followed without reads."""
        first, stop = key.share(blocks.rows)
        chunk, window = self.block_rows, self.window
        loops = self.loops(blocks, key)
        stream = _kernel.stream_new(
            first, stop, key.hash(_kernel.KEY_STREAM),
            reservoir=self.reservoir, window=window, chunk=chunk, ahead=self.ahead, loops=loops, asked=start > 0,
        )  # fmt: skip
        into, visit = np.empty(chunk, np.int32), np.empty(max(2 * chunk, window), np.int32)
        for _ in range(start):
            _kernel.stream_next(stream, into, visit)
        waiting = _window_rows(stream, window) if start else (np.empty((0, 2), np.int64), np.empty(0, np.int32))
        row = first + start * chunk
        while (done := _kernel.stream_next(stream, into, visit)) is not None:
            fresh = np.array([[row, row + done[0]]] if done[0] else np.empty((0, 2)), np.int64)
            yield Step(
                np.concatenate([waiting[0], fresh]),
                np.concatenate([waiting[1], into[: done[0]]]),
                visit[: done[1]].copy() if done[0] else visit[: done[1]],
            )
            waiting = (waiting[0][:0], waiting[1][:0])
            row += done[0]


def _window_rows(stream: object, window: int) -> tuple[IntArray, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Return runs and slots of the window's rows, ascending by row."""
    rows, slots = np.empty(window, np.int64), np.empty(window, np.int32)
    count = _kernel.stream_waiting(stream, rows, slots)
    ascending = np.argsort(rows[:count])
    rows, slots = rows[:count][ascending], slots[:count][ascending]
    breaks = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
    ends = np.append(breaks[1:], count) - 1 if count else breaks
    return np.stack([rows[breaks], rows[ends] + 1], axis=1), slots
