"""Orders whose steps come from ``kernel/plan/plan.h``, shared with PostgreSQL."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from corgipile import _kernel
from corgipile.orders.order import Blocks, IntArray, Key, Sized, SlotArray, Step, too_small, with_sizes
from corgipile.sizes import to_rows


def _slots(count: int) -> SlotArray:
    return np.empty(count, np.int32)


@dataclass(frozen=True, kw_only=True)
class Planned(Sized):
    """Runs one kind of kernel plan; subclasses set the kind and the buffer's division into blocks."""

    name: ClassVar[str]
    kind: ClassVar[str]  # the plan's name in the kernel

    def shape(self) -> tuple[int, int, bool]:
        """Return the plan's buffer blocks, blocks per step, and whether blocks stay whole."""
        return self.buffer_blocks(), 1, False

    def buffer_blocks(self) -> int:
        """Return the number of blocks mixed at a time."""
        return max(1, to_rows(self.buffer or 1, 1, 1.0, "buffer") // self.block_rows)

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows: (ahead + 1) times the blocks of a step."""
        return _kernel.plan_slots(self.kind, blocks.count, max(1, blocks.widest), *self.shape(), self.ahead)

    def memory_rows(self, blocks: Blocks, row_bytes: float) -> int:
        """Return the rows in memory, plus the rows' equivalent of the plan's bytes above 4 MB."""
        sizes = self.kind, blocks.count, max(1, blocks.widest), *self.shape(), self.ahead
        over = _kernel.plan_bytes(*sizes) - _kernel.PLAN_BYTES
        return self.resident(blocks) + max(0, math.ceil(over / row_bytes))

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Convert all sizes to rows, at most ``budget`` rows in memory.

        Raises:
            BudgetTooSmall: The budget does not hold the smallest buffer.
        """
        block = self.fit_block(rows, row_bytes, budget)
        wanted = 0 if self.buffer is None else max(block, to_rows(self.buffer, rows, row_bytes, "buffer"))
        room = -1 if budget is None else budget
        group, kept, balanced, spare = self.fit_request(whole)
        sizes = _kernel.plan_fit(
            self.kind, rows, row_bytes,
            even=block, wanted=wanted, budget=room, group=group, whole=kept, balanced=balanced, spare=spare,
            ahead=self.ahead,
        )  # fmt: skip
        fitted = self.sized(block, wanted or sizes[0] * block, *sizes[1:])
        needed = fitted.memory_rows(Blocks(rows, even=block), row_bytes)
        if budget is not None and needed > budget:
            raise too_small(self.name, needed, budget, row_bytes)
        return fitted

    def fit_request(self, whole: bool) -> tuple[int, int, int, bool]:  # passed to the kernel by position
        """Return blocks per step (0: any), whether blocks stay whole (-1: either), balanced blocks, and ``spare``.

        The third is the number of balanced blocks that suffices; 0 for blocks in random order.
        """
        return 1, int(whole), 0, False

    def sized(self, block: int, buffer: int, group: int, whole: bool) -> Self:
        """Return this order with sizes in rows."""
        return with_sizes(self, block=block, buffer=buffer)

    def block_order(self, blocks: Blocks, key: Key) -> IntArray | None:
        """Return the block at each position, or None for the kernel's own order."""
        return None

    def plan(self, blocks: Blocks, key: Key, start: int = 0) -> object:
        """Return the kernel's plan of one pass from step ``start`` on."""
        first, stop = key.share(blocks.rows)
        order = self.block_order(blocks, key)
        buffer, group, whole = self.shape()
        return _kernel.plan_new(
            self.kind, blocks.rows, key.hash(),
            blocks=blocks.count, even=blocks.even, cuts=blocks.cuts, order=order, first=first, stop=stop,
            buffer=buffer, group=group, whole=whole, ahead=self.ahead, start=start,
        )  # fmt: skip

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on."""
        plan = self.plan(blocks, key, start)
        while (sizes := _kernel.plan_begin(plan)) is not None:
            extents, into, visit = np.empty((sizes[0], 2), np.int64), _slots(sizes[1]), _slots(sizes[2])
            sweep = _slots(sizes[3])
            _kernel.plan_next(plan, extents, into, visit, sweep)
            yield Step(extents, into, visit, sweep if len(sweep) else None)
