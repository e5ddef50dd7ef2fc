"""Orders more rows than memory holds: deals them to piles on disk until each pile fits."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from corgipile.relayout.piles import Piles
from corgipile.relayout.plans import Plan
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.io.pieces import join
from corgipile.tables.table import IntArray

_INDEX = 32  # bytes a row for its pile, its place, and the sorting of both
_SLICE = 1 << 12  # bytes dealt to one pile at a time, below which the overhead of files wins


@dataclass
class External:
    """Write rows by a plan, within a memory budget.

    Attributes:
        folder: Where temporary files go.
        memory: Bytes to stay below.
        width: Bytes of a row in memory.
        write: Takes ordered rows.
        dealt: Told the rows dealt in the first round.
    """

    folder: Path
    memory: int
    width: int
    write: Callable[[pa.RecordBatch], None]
    dealt: Callable[[int], None]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def chunk(self) -> int:
        """Return the rows dealt at once: as read, joined and in order of piles they take half the budget."""
        return max(1, self.memory // (6 * (self.width + _INDEX)))

    def fits(self, rows: int) -> bool:
        """Say whether rows can be ordered in memory, where they lie twice while they are joined."""
        return rows * (self.width + _INDEX) <= self.memory // 3

    def run(self, batches: Iterator[pa.RecordBatch], rows: int, plan: Plan, first: bool = True) -> None:
        """Order rows: in memory if they fit, else pile by pile."""
        if not rows:
            return
        if self.fits(rows):
            self._settle(batches, plan)
        elif plan.most == 1:
            for batch in batches:
                self.write(batch)
        else:
            self._spill(batches, rows, plan, first)

    def _settle(self, batches: Iterator[pa.RecordBatch], plan: Plan) -> None:
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
                self.run(piles.take_up(pile), piles.rows[pile], plan.within(pile, count), first=False)

    def count(self, rows: int, plan: Plan) -> int:
        """Choose the number of piles: enough that each fits, few enough that slices aren't crumbs."""
        needed = 4 * rows * (self.width + _INDEX) // self.memory + 1
        sensible = max(4, self.memory // (6 * _SLICE))
        return max(2, min(needed, sensible, plan.most))


def chunks(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut large batches and join small ones to about ``rows`` rows each."""
    waiting: list[pa.RecordBatch] = []
    many = 0
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            waiting.append(batch.slice(start, rows))
            many += waiting[-1].num_rows
            if many >= rows:
                yield join(waiting)
                waiting, many = [], 0
    if waiting:
        yield join(waiting)


def write_in_order(whole: pa.RecordBatch, order: IntArray, step: int, write: Callable[[pa.RecordBatch], None]) -> None:
    """Write rows in an order, ``step`` rows at a time, so that no second copy of all of them is made."""
    places = array_of(order)
    for start in range(0, whole.num_rows, step):
        write(whole.take(places.slice(start, step)))
