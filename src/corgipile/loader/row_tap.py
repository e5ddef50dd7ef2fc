"""Captures sampled rows while they are read, so that encoded tables are not scanned twice."""

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.tables.io.pieces import join, pick_rows
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import IntArray, Table
from corgipile.tables.values import values

__all__ = ["RowTap"]

JOINED_BATCHES = 64  # captured batches that are joined


class RowTap:
    """Copies some rows of a table while they are read for another purpose.

    Args:
        names: Columns that are captured.
        rows: Row numbers, ascending.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": [5, 6, 7, 8]})
        >>> tap = RowTap(["x"], np.array([1, 3]))
        >>> tap.note(table.read(2, 4), range(2, 4))
        >>> tap.missing.tolist(), tap.picked(table).read(0, 2).column("x").to_pylist()
        ([1], [6, 8])
    """

    def __init__(self, names: list[str], rows: IntArray) -> None:
        self.names, self._rows = names, rows
        self._wanted = np.ones(len(rows), np.bool_)
        self._batches: list[tuple[IntArray, pa.RecordBatch]] = []  # indices into the rows, captured rows
        self._ended = False
        self._unjoined = 0  # batches since the last join
        self._lock = threading.Lock()  # readers and consumers are different threads

    @property
    def missing(self) -> IntArray:
        """Return the rows that are not captured yet."""
        return self._rows[self._wanted]

    def note(self, batch: pa.RecordBatch, numbered: range | npt.NDArray[np.int64]) -> None:
        """Capture the wanted rows of a batch, whose rows have these numbers in the table."""
        with self._lock:
            if self._ended or not self._wanted.any():
                return
            if isinstance(numbered, range):
                at = np.arange(*np.searchsorted(self._rows, [numbered.start, numbered.stop]))
                inside = self._rows[at] - numbered.start
            else:
                near = np.minimum(np.searchsorted(self._rows, numbered), len(self._rows) - 1)
                inside = np.flatnonzero(self._rows[near] == numbered)
                at = near[inside]
            new = self._wanted[at]
            if new.any():
                self._keep(at[new], pick_rows(batch.select(self.names), inside[new]))  # a copy: the batch is released

    def _keep(self, at: IntArray, batch: pa.RecordBatch) -> None:
        self._wanted[at] = False
        self._batches.append((at, batch))
        self._unjoined += 1
        if self._unjoined == JOINED_BATCHES:  # a batch of few rows takes more memory than its rows
            self._join(JOINED_BATCHES)

    def _join(self, count: int) -> None:
        some, self._unjoined = self._batches[-count:], 0
        self._batches[-count:] = [(np.concatenate([at for at, _ in some]), join([batch for _, batch in some]))]

    def picked(self, table: Table) -> Table:
        """Return all rows in order; missing ones are read. The tap releases them."""
        with self._lock:
            left = np.flatnonzero(self._wanted)
            if len(left):
                self._keep(left, values(table.take(self._rows[left], self.names)))
            self._join(len(self._batches))
            at, batch = self._batches.pop()
            self._end()
        give_back()  # a budget has room for two copies
        if (np.diff(at) < 0).any():
            batch = pick_rows(batch, np.argsort(at))
            give_back()
        return MemoryTable(pa.Table.from_batches([batch]))

    def end(self) -> None:
        """Release all rows and stop capturing."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._batches.clear()
        self._wanted[:], self._ended = True, True
