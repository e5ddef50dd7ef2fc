"""Rows of spots, kept as they pass on their way to slots: a look at an encoded table would read all of it for them."""

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

TOGETHER = 64  # batches that are joined


class RowTap:
    """Keeps copies of some rows of a table as they are read for something else.

    Args:
        names: The columns that are kept.
        rows: The numbers of the rows, ascending.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": [5, 6, 7, 8]})
        >>> passing = RowTap(["x"], np.array([1, 3]))
        >>> passing.note(table.read(2, 4), range(2, 4))
        >>> passing.missing.tolist(), passing.picked(table).read(0, 2).column("x").to_pylist()
        ([1], [6, 8])
    """

    def __init__(self, names: list[str], rows: IntArray) -> None:
        self.names, self._rows = names, rows
        self._wanted = np.ones(len(rows), np.bool_)
        self._found: list[tuple[IntArray, pa.RecordBatch]] = []  # places among the rows, and what they are
        self._ended = False
        self._few = 0  # of them, that came since some were joined
        self._lock = threading.Lock()  # one thread reads, another may ask

    @property
    def missing(self) -> IntArray:
        """Return the rows that did not pass yet."""
        return self._rows[self._wanted]

    def note(self, batch: pa.RecordBatch, numbered: range | npt.NDArray[np.int64]) -> None:
        """Keep what is wanted of a batch, whose rows have these numbers in the table."""
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
                self._keep(at[new], pick_rows(batch.select(self.names), inside[new]))  # a copy: the batch goes

    def _keep(self, at: IntArray, batch: pa.RecordBatch) -> None:
        self._wanted[at] = False
        self._found.append((at, batch))
        self._few += 1
        if self._few == TOGETHER:  # a column of few rows takes more than these
            self._join(TOGETHER)

    def _join(self, few: int) -> None:
        """Join those that came last."""
        some, self._few = self._found[-few:], 0
        self._found[-few:] = [(np.concatenate([at for at, _ in some]), join([batch for _, batch in some]))]

    def picked(self, table: Table) -> Table:
        """Return all of the rows, in order; those that did not pass are read. They are not kept any more."""
        with self._lock:
            left = np.flatnonzero(self._wanted)
            if len(left):
                self._keep(left, values(table.take(self._rows[left], self.names)))
            self._join(len(self._found))
            at, batch = self._found.pop()
            self._end()
        give_back()  # a budget has room for them twice
        if (np.diff(at) < 0).any():
            batch = pick_rows(batch, np.argsort(at))
            give_back()
        return MemoryTable(pa.Table.from_batches([batch]))

    def end(self) -> None:
        """Let go of all rows, and keep no more."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._found.clear()
        self._wanted[:], self._ended = True, True
