"""Full shuffle: rows, page runs or blocks in an order drawn from all permutations (LIRS)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from corgipile import kernel
from corgipile.errors import BadArgument
from corgipile.orders.base import Blocks, Key, Sized, Step, rows_of, too_small, with_sizes
from corgipile.sizes import to_rows

FULL = 6
PAGES = 16
PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class FullShuffle(Sized):
    """Visit units (rows, runs of pages, or blocks) in the order of a keyed bijection: no table of positions is kept.

    LIRS shuffles an index and reads rows at random, whole pages where rows are small. Rows of ``buffer`` visits are
    read at a time, sorted by place, so that neighbours are read together. With ``unit="page"`` the rows of 16 pages
    (those whose first byte lies there) are visited together.

    Attributes:
        unit: ``"row"``, ``"page"`` or ``"block"``.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = FullShuffle(buffer=4).fit(10, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(10, even=1), Key(seed=0))))
        >>> sorted(visits.tolist()) == list(range(10))
        True
    """

    name: ClassVar[str] = "full"
    unit: Literal["row", "page", "block"] = "row"
    row_bytes: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in ("row", "page", "block"):
            raise BadArgument(f'unit must be "row", "page" or "block", got {self.unit!r}')

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows: as many visits a step as the budget holds.

        Raises:
            BudgetTooSmall: The budget does not hold one unit and those read ahead.
        """
        block = self.fit_block(rows, row_bytes, budget)
        unit = {"row": 1, "page": max(1, int(PAGES * PAGE_BYTES / row_bytes)), "block": block}[self.unit]
        room = rows if budget is None else budget // (1 + self.ahead)
        wanted = room if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        if budget is not None and (wanted > room or room < unit):
            raise too_small(self.name, max(wanted, unit) * (1 + self.ahead), budget, row_bytes)
        units = max(1, min(wanted, rows) // unit)
        return with_sizes(self, block=unit, buffer=units * unit, row_bytes=row_bytes)

    @property
    def visits_per_step(self) -> int:
        """Return the rows visited by one step."""
        return to_rows(self.buffer or 1, 1, 1.0, "buffer")

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows."""
        return self.visits_per_step * (1 + self.ahead)

    def units(self, blocks: Blocks) -> int:
        """Return the number of units of the table."""
        return -(-blocks.rows // self.block_rows)

    def _share(self, blocks: Blocks, key: Key) -> tuple[int, int]:
        if key.world > 1 and self.unit != "row":
            raise BadArgument(f'ranks cannot share {self.unit}s evenly; use unit="row" or another order')
        return key.share(self.units(blocks))

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in one pass of this rank: whole units."""
        first, stop = self._share(blocks, key)
        if self.block_rows == 1:
            return stop - first
        last = self.units(blocks) - 1
        position = int(kernel.unpermute(last + 1, key.hash(FULL), np.array([last]))[0]) if last >= 0 else -1
        short = (last + 1) * self.block_rows - blocks.rows
        return (stop - first) * self.block_rows - (short if first <= position < stop else 0)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on."""
        first, stop = self._share(blocks, key)
        size, each = self.block_rows, self.visits_per_step // self.block_rows
        for index, at in enumerate(range(first + start * each, stop, each), start):
            units = kernel.permute(self.units(blocks), key.hash(FULL), at, min(stop, at + each))
            runs = np.stack([units * size, np.minimum((units + 1) * size, blocks.rows)], axis=1)
            ascending = np.argsort(units)
            lengths = runs[:, 1] - runs[:, 0]
            base = (index % (1 + self.ahead)) * self.visits_per_step + np.cumsum(lengths) - lengths
            slots = np.stack([base, base + lengths], axis=1)[ascending]
            visit = np.arange(base[0], base[0] + lengths.sum(), dtype=np.int32)
            yield Step(runs[ascending], rows_of(slots).astype(np.int32), visit)
