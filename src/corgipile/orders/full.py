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
STEP_ROWS = 1 << 14  # of a step that is worth its overhead, however narrow its rows are
ROW_STEP, ROW_MADE = 24, 128  # bytes of a row in a step that waits: its extent, two slots; while it is made and read
WHOLE = 1  # step more that rows of varying length take, while others come
SOUGHT = 1 << 16  # units whose lengths are summed at a time


@dataclass(frozen=True, kw_only=True)
class FullShuffle(Sized):
    """Visit units (rows, runs of pages, or blocks) in the order of a keyed bijection: no table of positions is kept.

    LIRS shuffles an index and reads rows at random, whole pages where rows are small. Rows of ``buffer`` visits are
    read at a time, sorted by place, so that neighbours are read together. With ``unit="page"`` the rows whose first
    byte lies in one run of pages are visited together, as they lie: each page is read once, but for the one into which
    the last row of a run reaches. The loader finds out which rows these are. Batches then mix fewer places than those
    of other orders; where neighbouring rows are alike, an order with a buffer is better.

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
    version: ClassVar[int] = 2  # of the permutations: the first were even ones only
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
        """Return the unit that is visited as it lies."""
        return self.unit

    @property
    def run_bytes(self) -> int:
        """Return the bytes of a run of pages."""
        return self.pages * PAGE_BYTES

    def fit(self, rows: int, row_bytes: float, budget: int | None, *, whole: bool = False) -> Self:
        """Turn all sizes into rows: as many visits a step as the budget holds.

        Raises:
            BudgetTooSmall: The budget does not hold one unit and those read ahead.
        """
        unit = 1 if self.unit == "row" else self._fit_unit(rows, row_bytes, budget)
        # Rows of varying length stay in the batches they came in until the last row of each is visited.
        room = rows if budget is None else int(budget / (1 + self.ahead + (WHOLE if whole else 0)))
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
        """Return the rows visited by one step: those of the buffer, or fewer where rows are narrower than their places.

        Which row is visited when does not depend on it.
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
        """Say where a pass stands after some visits: step, and visits of it done; None where lengths must be summed."""
        return None if self.unit != "row" else divmod(visits, self.visits_per_step)

    def steps(self, blocks: Blocks, key: Key, start: int = 0) -> Iterator[Step]:
        """Make the steps of one pass from step ``start`` on; a rank's first and last unit may be parts of units."""
        first, stop = key.share(blocks.rows)
        if first == stop:
            return
        units, each = self._units(blocks), max(1, self.visits_per_step // self.block_rows)
        at, skip = _unit_at(units, key, first)
        to, rest = _unit_at(units, key, stop)
        end = to + (rest > 0)
        for index, place in enumerate(range(at + start * each, end, each), start):
            found = random.permute(units.count, key.hash(_kernel.KEY_FULL), place, min(end, place + each))
            if self.unit == "row":
                yield _step_of_rows(found, (index % (1 + self.ahead)) * self.visits_per_step)
                continue
            runs = _rows_of_units(units, found)
            if place + each >= end and rest:
                runs[-1, 1] = runs[-1, 0] + rest
            if place == at:
                runs[0, 0] += skip
            ascending = np.argsort(found)
            lengths = runs[:, 1] - runs[:, 0]
            base = (index % (1 + self.ahead)) * self.visits_per_step + np.cumsum(lengths) - lengths
            slots = np.stack([base, base + lengths], axis=1)[ascending]
            visit = np.arange(base[0], base[0] + lengths.sum(), dtype=np.int32)
            yield Step(runs[ascending], rows_of(slots).astype(np.int32), visit)


def _step_of_rows(rows: IntArray, base: int) -> Step:
    """Read rows sorted by place into slots that follow each other in the order of visits."""
    ascending = np.argsort(rows)
    extents = np.empty((len(rows), 2), np.int64)
    np.take(rows, ascending, out=extents[:, 0])
    np.add(extents[:, 0], 1, out=extents[:, 1])
    into = ascending.astype(np.int32)
    into += np.int32(base)
    return Step(extents, into, np.arange(base, base + len(rows), dtype=np.int32))


def _rows_of_units(units: Blocks, numbers: IntArray) -> IntArray:
    """Return first row, and row after the last, of each unit: int64[k, 2]."""
    if units.cuts is None:
        return np.stack([numbers * units.even, np.minimum((numbers + 1) * units.even, units.rows)], axis=1)
    return np.stack([units.cuts[numbers], units.cuts[numbers + 1]], axis=1)


def _unit_at(units: Blocks, key: Key, position: int) -> tuple[int, int]:
    """Return which unit in order of visits holds a row's position, and how many rows of it come before.

    Units of one row are found at once; of others the lengths are summed up, unless it is one of the ends.
    """
    if position == units.rows:
        return units.count, 0
    if position == 0 or (units.cuts is None and units.even == 1):
        return position, 0
    for at in range(0, units.count, SOUGHT):
        found = random.permute(units.count, key.hash(_kernel.KEY_FULL), at, min(units.count, at + SOUGHT))
        runs = _rows_of_units(units, found)
        ends = np.cumsum(runs[:, 1] - runs[:, 0])
        if position < ends[-1]:
            index = int(np.searchsorted(ends, position, side="right"))
            return at + index, position - int(ends[index - 1] if index else 0)
        position -= int(ends[-1])
    return units.count, 0
