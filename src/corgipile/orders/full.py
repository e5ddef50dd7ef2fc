"""Full shuffle: rows, page runs or blocks in an order drawn from all permutations (LIRS)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from corgipile import _kernel, random
from corgipile.errors import BadArgument
from corgipile.orders.order import Blocks, IntArray, Key, Sized, Step, rows_of, too_small, with_sizes
from corgipile.sizes import to_rows

PAGES = 16
PAGE_BYTES = 4096
STEP_ROWS = 1 << 14  # smallest number of rows of a step, however narrow they are
ROW_STEP, ROW_MADE = 24, 128  # bytes of a row in an announced step: extent and two slots; while it is planned and read
VARLEN_STEPS = 1  # additional steps of variable-length rows in memory
SUMMED_UNITS = 1 << 16  # units whose lengths are summed at a time


@dataclass(frozen=True, kw_only=True)
class FullShuffle(Sized):
    """Visit units (rows, runs of pages, or blocks) in the order of a keyed bijection, without a table of positions.

    LIRS shuffles an index and reads rows at random, or whole pages of small rows. The rows of ``buffer`` visits are
    read together, sorted by place, which merges neighbours. With ``unit="page"`` the rows whose first byte is in a run
    of pages are visited together in storage order: each page is read once, except one into which a run's last row
    reaches. The loader computes these rows. Batches then mix fewer places than with other orders: if neighbouring rows
    are similar, use an order with a buffer.

    Attributes:
        unit: ``"row"``, ``"page"`` or ``"block"``.
        pages: Pages of 4 KB in a run, for ``unit="page"``.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = FullShuffle(buffer=4).fit(10, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(10, even=1), Key(seed=0))))
        >>> sorted(visits.tolist()) == list(range(10))
        True
    """

    name: ClassVar[str] = "full"
    version: ClassVar[int] = 3  # versions 1 and 2 did not draw few units uniformly
    unit: Literal["row", "page", "block"] = "row"
    pages: int = PAGES
    row_bytes: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in ("row", "page", "block"):
            raise BadArgument(f'unit must be "row", "page" or "block", got {self.unit!r}')
        if self.pages < 1:
            raise BadArgument(f"pages must be at least 1, got {self.pages}")

    @property
    def cuts_into(self) -> Literal["row", "page", "block"]:
        """Return the unit that is visited in storage order."""
        return self.unit

    @property
    def shuffles_rows(self) -> bool:
        """Return whether units are single rows; the rows of others are visited in storage order."""
        return self.unit == "row"

    @property
    def run_bytes(self) -> int:
        """Return the bytes of a run of pages."""
        return self.pages * PAGE_BYTES

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Convert all sizes to rows, with as many visits per step as the budget holds.

        Raises:
            BudgetTooSmall: The budget does not hold one unit and those read ahead.
        """
        unit = 1 if self.unit == "row" else self._fit_unit(rows, row_bytes, budget)
        # Variable-length rows stay in their batches until a batch's last row is visited.
        room = rows if budget is None else int(budget / (1 + self.ahead + (VARLEN_STEPS if whole else 0)))
        wanted = room if self.buffer is None else to_rows(self.buffer, rows, row_bytes, "buffer")
        if budget is not None and (wanted > room or room < unit):
            raise too_small(self.name, max(wanted, unit) * (1 + self.ahead), budget, row_bytes)
        units = max(1, min(wanted, rows) // unit)
        return with_sizes(self, block=unit, buffer=units * unit, row_bytes=row_bytes)

    def _fit_unit(self, rows: int, row_bytes: float, budget: int | None) -> int:
        if self.unit == "page" and self.block is None:
            return max(1, int(self.run_bytes / row_bytes))
        return self.fit_block(rows, row_bytes, budget)

    @property
    def visits_per_step(self) -> int:
        """Return the rows visited by one step: the buffer, or fewer if rows are narrower than their places.

        It does not change the order of visits.
        """
        rows, waits = to_rows(self.buffer or 1, 1, 1.0, "buffer"), 1 + self.ahead
        shared = rows * waits * self.row_bytes / (waits * (self.row_bytes + ROW_STEP) + ROW_MADE)
        unit = self.block if isinstance(self.block, int) else 1
        return min(rows, max(int(shared), STEP_ROWS, unit))

    def slots(self, blocks: Blocks) -> int:
        """Return the buffer size in rows."""
        return self.visits_per_step * (1 + self.ahead)

    def _units(self, blocks: Blocks) -> Blocks:
        return Blocks(blocks.rows, even=1) if self.unit == "row" else blocks

    def seek(self, blocks: Blocks, key: Key, visits: int) -> tuple[int, int] | None:
        """Return a pass's step and offset after some visits; None if unit lengths must be summed."""
        return None if self.unit != "row" else divmod(visits, self.visits_per_step)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Yield the steps of a pass from step ``start`` on; a rank's first and last unit may be partial."""
        first, stop = key.share(blocks.rows)
        if first == stop:
            return
        units, units_per_step = self._units(blocks), max(1, self.visits_per_step // self.block_rows)
        at, skip = _unit_at(units, key, first)
        to, partial = _unit_at(units, key, stop)
        end = to + (partial > 0)
        for index, place in enumerate(range(at + start * units_per_step, end, units_per_step), start):
            numbers = random.permute(units.count, key.hash(_kernel.KEY_FULL), place, min(end, place + units_per_step))
            if self.unit == "row":
                yield _step_of_rows(numbers, (index % (1 + self.ahead)) * self.visits_per_step)
                continue
            runs = _rows_of_units(units, numbers)
            if place + units_per_step >= end and partial:
                runs[-1, 1] = runs[-1, 0] + partial
            if place == at:
                runs[0, 0] += skip
            ascending = np.argsort(numbers)
            lengths = runs[:, 1] - runs[:, 0]
            base = (index % (1 + self.ahead)) * self.visits_per_step + np.cumsum(lengths) - lengths
            slots = np.stack([base, base + lengths], axis=1)[ascending]
            visit = np.arange(base[0], base[0] + lengths.sum(), dtype=np.int32)
            yield Step(runs[ascending], rows_of(slots).astype(np.int32), visit)


def _step_of_rows(rows: IntArray, base: int) -> Step:
    """Make a step that reads rows sorted by place into consecutive slots in visiting order."""
    ascending = np.argsort(rows)
    extents = np.empty((len(rows), 2), np.int64)
    np.take(rows, ascending, out=extents[:, 0])
    np.add(extents[:, 0], 1, out=extents[:, 1])
    into = ascending.astype(np.int32)
    into += np.int32(base)
    return Step(extents, into, np.arange(base, base + len(rows), dtype=np.int32))


def _rows_of_units(units: Blocks, numbers: IntArray) -> IntArray:
    """Return the first row and the end of each unit: int64[k, 2]."""
    if units.cuts is None:
        return np.stack([numbers * units.even, np.minimum((numbers + 1) * units.even, units.rows)], axis=1)
    return np.stack([units.cuts[numbers], units.cuts[numbers + 1]], axis=1)


def _unit_at(units: Blocks, key: Key, position: int) -> tuple[int, int]:
    """Return the unit, in visiting order, that holds a position, and the position's offset in it.

    Single-row units are found directly; for others unit lengths are summed.
    """
    if position == units.rows:
        return units.count, 0
    if position == 0 or (units.cuts is None and units.even == 1):
        return position, 0
    for at in range(0, units.count, SUMMED_UNITS):
        numbers = random.permute(units.count, key.hash(_kernel.KEY_FULL), at, min(units.count, at + SUMMED_UNITS))
        runs = _rows_of_units(units, numbers)
        ends = np.cumsum(runs[:, 1] - runs[:, 0])
        if position < ends[-1]:
            index = int(np.searchsorted(ends, position, side="right"))
            return at + index, position - int(ends[index - 1] if index else 0)
        position -= int(ends[-1])
    return units.count, 0
