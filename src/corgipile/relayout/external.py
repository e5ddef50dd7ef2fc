"""External ordering: rows are dealt to piles on disk until each pile fits in memory."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from corgipile.relayout.piles import Piles
from corgipile.relayout.plans import Plan
from corgipile.tables.io.pieces import join
from corgipile.tables.spans import array_of
from corgipile.tables.table import IntArray

_INDEX_BYTES = 32  # bytes per row for its pile, its place, and sorting both
_MIN_SLICE_BYTES = 1 << 12  # bytes dealt to a pile at a time, below which file overhead dominates


@dataclass
class External:
    """Writes rows by a plan, within a memory budget, through temporary files in a folder.

    ``width`` is the bytes per row in memory; ``dealt`` receives the number of rows dealt in the first round.
    """

    folder: Path
    memory: int
    width: int
    write: Callable[[pa.RecordBatch], None]
    dealt: Callable[[int], None]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def chunk(self) -> int:
        """Return the rows dealt at once; read, joined and ordered by pile they take half the budget."""
        return max(1, self.memory // (6 * (self.width + _INDEX_BYTES)))

    def fits(self, rows: int) -> bool:
        """Return whether rows can be ordered in memory, where joining needs them twice."""
        return rows * (self.width + _INDEX_BYTES) <= self.memory // 3

    def run(self, batches: Iterator[pa.RecordBatch], rows: int, plan: Plan, first: bool = True) -> None:
        """Order rows: in memory if they fit, else pile by pile."""
        if not rows:
            return
        if self.fits(rows):
            self._order_in_memory(batches, plan)
        elif plan.most == 1:
            for batch in batches:
                self.write(batch)
        else:
            self._spill(batches, rows, plan, first)

    def _order_in_memory(self, batches: Iterator[pa.RecordBatch], plan: Plan) -> None:
        whole = join(list(batches))
        write_in_order(whole, plan.order(whole), max(1, self.memory // (16 * self.width)), self.write)

    def _spill(self, batches: Iterator[pa.RecordBatch], rows: int, plan: Plan, first: bool) -> None:
        count = self.count(rows, plan)
        done = 0
        with Piles(self.folder / str(next(self._numbers)), count) as piles:
            for batch in chunks(batches, self.chunk):
                piles.deal(batch, plan.piles(batch, done, count))
                done += batch.num_rows
                if first:
                    self.dealt(batch.num_rows)
            piles.finish()
            for pile in range(count):
                self.run(piles.drain(pile), piles.rows[pile], plan.within(pile, count), first=False)

    def count(self, rows: int, plan: Plan) -> int:
        """Return the number of piles: each should fit, and slices should not be tiny."""
        needed = 4 * rows * (self.width + _INDEX_BYTES) // self.memory + 1
        limit = max(4, self.memory // (6 * _MIN_SLICE_BYTES))
        return max(2, min(needed, limit, plan.most))


def chunks(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut large batches and join small ones to about ``rows`` rows each."""
    pending: list[pa.RecordBatch] = []
    rows_pending = 0
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            pending.append(batch.slice(start, rows))
            rows_pending += pending[-1].num_rows
            if rows_pending >= rows:
                yield join(pending)
                pending, rows_pending = [], 0
    if pending:
        yield join(pending)


def write_in_order(whole: pa.RecordBatch, order: IntArray, step: int, write: Callable[[pa.RecordBatch], None]) -> None:
    """Write rows in an order, ``step`` rows at a time, to avoid a second copy of all rows."""
    places = array_of(order)
    for start in range(0, whole.num_rows, step):
        write(whole.take(places.slice(start, step)))
