"""The orders whose steps come from ``kernel/plan.h``, which PostgreSQL shares."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from corgipile import _kernel
from corgipile.orders.base import Blocks, IntArray, Key, Sized, SlotArray, Step, step_rows, too_small, with_sizes
from corgipile.sizes import to_rows

NO_SHUFFLE, BLOCK_ONLY, CORGIPILE, RIFFLE = range(4)


def _slots(count: int) -> SlotArray:
    return np.empty(count, np.int32)


@dataclass(frozen=True, kw_only=True)
class Planned(Sized):
    """Runs one kind of kernel plan; subclasses say which and how the buffer is cut into blocks."""

    name: ClassVar[str]
    kind: ClassVar[int]

    def shape(self, blocks: Blocks) -> tuple[int, int, int, bool]:
        """Return the plan's buffer blocks, blocks per step, log2 of rows per chunk, and whether blocks stay whole."""
        return self.buffer_blocks(), 1, 0, False

    def buffer_blocks(self) -> int:
        """Return the blocks mixed at a time."""
        return max(1, to_rows(self.buffer or 1, 1, 1.0, "buffer") // self.block_rows)

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows: (ahead + 1) times the blocks of one step."""
        return _kernel.plan_slots(self.kind, blocks.count, max(1, blocks.widest), *self.shape(blocks), self.ahead)

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows, at most ``budget`` rows in memory.

        Raises:
            BudgetTooSmall: The budget does not hold the smallest buffer that works.
        """
        block = self.fit_block(rows, row_bytes, budget)
        blocks = Blocks(rows, even=block)
        if self.buffer is not None:
            fitted = with_sizes(self, block=block, buffer=self.wanted_buffer(rows, row_bytes, block))
        else:
            fitted = with_sizes(self, block=block, buffer=self.largest(blocks, budget) * block)
        if budget is not None and fitted.resident(blocks) > budget:
            raise too_small(self.name, fitted.resident(blocks), budget, row_bytes)
        return fitted

    def wanted_buffer(self, rows: int, row_bytes: float, block: int) -> int:
        """Return the rows of the buffer asked for, at least one block."""
        return max(block, to_rows(self.buffer or 1, rows, row_bytes, "buffer"))

    def most_blocks(self, blocks: Blocks) -> int:
        """Return how many blocks it is worth to mix."""
        return blocks.count

    def largest(self, blocks: Blocks, budget: int | None) -> int:
        """Find the largest number of buffered blocks that fits the budget."""
        low, high = 1, max(1, self.most_blocks(blocks))
        while low < high:
            middle = (low + high + 1) // 2
            rows = with_sizes(self, block=blocks.even, buffer=middle * blocks.even).resident(blocks)
            low, high = (middle, high) if budget is None or rows <= budget else (low, middle - 1)
        return low

    def block_order(self, blocks: Blocks, key: Key) -> IntArray | None:
        """Return the block at each position, or None for the kernel's own order."""
        return None

    def plan(self, blocks: Blocks, key: Key, start: int = 0) -> object:
        """Return the kernel's plan of one pass from step ``start`` on."""
        first, stop = key.share(blocks.rows)
        order = self.block_order(blocks, key)
        return _kernel.plan_new(
            self.kind, blocks.rows, blocks.count, blocks.even, blocks.cuts, order, key.hash(), first, stop,
            *self.shape(blocks), self.ahead, start,
        )  # fmt: skip

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on."""
        plan = self.plan(blocks, key, start)
        swept = self.kind == RIFFLE and not self.shape(blocks)[3]
        while (sizes := _kernel.plan_begin(plan)) is not None:
            extents, into, visit = np.empty((sizes[0], 2), np.int64), _slots(sizes[1]), _slots(sizes[2])
            sweep = _slots(sizes[1] if swept else 0)
            _kernel.plan_next(plan, extents, into, visit, sweep)
            yield Step(extents, into, visit, sweep if swept else None)


@dataclass(frozen=True, kw_only=True)
class Sequential(Planned):
    """Loads a few blocks a step and visits their rows as they lie: nothing is mixed, so the buffer is small."""

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows: as many blocks a step as make it worth while, within the budget."""
        block = self.fit_block(rows, row_bytes, budget)
        wanted = -(-step_rows(row_bytes) // block) * block if self.buffer is None else None
        room = block if budget is None else max(block, budget // (1 + self.ahead))
        buffer = min(wanted, room) if wanted else self.wanted_buffer(rows, row_bytes, block)
        fitted = with_sizes(self, block=block, buffer=buffer)
        needed = fitted.slots(Blocks(rows, even=block))
        if budget is not None and needed > budget:
            raise too_small(self.name, needed, budget, row_bytes)
        return fitted
