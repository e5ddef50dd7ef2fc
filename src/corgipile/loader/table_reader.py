"""Reader that puts rows into slots through the table's own reads."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import Tidy, frugal
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.in_place import BLOCK_THREADS, SHORT_RUNS, THREAD_BYTES
from corgipile.orders.order import Step, rows_of
from corgipile.tables.table import TAKEN_RUNS, IntArray, Table
from corgipile.tables.values import values

__all__ = ["TableReader"]

CALL_BYTES = 64 << 10  # bytes of a run of wide rows worth a call; its rows then leave memory together
MIN_TAKEN, TAKEN_BYTES = 4 << 10, 2 << 20  # smallest and largest number of bytes of scattered rows per call
PART = 1 << 16  # rows numbered at once: the record of a row takes more memory than a narrow row


def _parts(extents: IntArray, *, ascending: bool = False) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows of short runs and their places among all rows of the runs, about `PART` at a time.

    ``ascending`` brings neighbours together. Rows that fill a buffer first keep the order's sequence instead: they
    leave over many steps, rows loaded together leave together, and a batch stays in memory until its last row leaves.
    """
    lengths = extents[:, 1] - extents[:, 0]
    ends = np.cumsum(lengths)
    order = np.argsort(extents[:, 0]) if ascending else np.arange(len(extents))
    done, at = np.cumsum(lengths[order]), 0
    while at < len(order):
        stop = int(np.searchsorted(done, (done[at - 1] if at else 0) + PART, side="right"))
        some = order[at : max(stop, at + 1)]
        yield rows_of(extents[some]), rows_of(np.stack([ends[some] - lengths[some], ends[some]], axis=1))
        at += len(some)


class TableReader:
    """Reads record batches from a table and puts their rows into slots."""

    def __init__(self, table: Table, buffer: Buffer, sources: Sequence[str], size: int) -> None:
        self._table, self._buffer, self._sources = table, buffer, list(sources)
        self._pool: ThreadPoolExecutor | None = None
        self._threads = min(BLOCK_THREADS, max(1, size // THREAD_BYTES))
        self._taken = SHORT_RUNS  # rows per call, until the row size is known
        width, most = max(1, size // max(1, buffer.slots)), max(size, buffer.limit or 0)
        # An order may need less than its budget: its rows may then stay in memory longer.
        worth, runs = CALL_BYTES if most < 2 * size else 4 * CALL_BYTES, table.taken_runs
        worth *= runs // TAKEN_RUNS
        self._short = max(SHORT_RUNS, min(runs, worth // width))  # mean rows of a run below which runs are taken
        self._room = min(TAKEN_BYTES, max(MIN_TAKEN, most // 64))  # a call's rows stay until the last one leaves
        self._frugal: ExitStack | None = None  # open from a pass's first read to its end
        self._tidy, self.bytes_read = Tidy(most), 0

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        extents, into = step.extents, step.into
        if not len(extents):
            return
        if self._frugal is None:
            self._frugal = ExitStack()
            self._frugal.enter_context(frugal())
        if len(extents) > 1 and len(into) < self._short * len(extents):
            many = len(into) > 2 * len(step.visit) and len(into) >= SHORT_RUNS * len(extents)
            for rows, places in _parts(extents, ascending=not many):
                self._take(rows, into[places])
            return
        runs = [(int(start), int(stop)) for start, stop in extents]
        at = 0
        for (start, stop), batch in zip(runs, self._read(runs), strict=True):
            self._count(batch.nbytes)
            self._buffer.put(batch, into[at : at + stop - start], range(start, stop))
            at += stop - start

    def _count(self, nbytes: int) -> None:
        self.bytes_read += nbytes
        self._tidy.passed(nbytes)

    def _take(self, rows: IntArray, into: SlotArray) -> None:
        """Read scattered rows in parts: during a call a table needs a multiple of its rows' bytes."""
        at = 0
        while at < len(rows):
            some = slice(at, at + self._taken)
            batch = values(self._table.take(rows[some], self._sources))
            self._count(batch.nbytes)
            self._buffer.put(batch, into[some], rows[some])
            at += batch.num_rows
            self._taken = max(1, self._room * batch.num_rows // max(1, batch.nbytes))

    def size(self, step: Step) -> int:
        """Return the variable-length bytes of a step, or 0 if the table does not know them."""
        extents, columns = step.extents, list(self._buffer.varlen.names)
        if len(step.into) < self._short * len(extents):
            runs = (rows for rows, _ in _parts(extents))
        else:
            runs = (np.arange(start, stop) for start, stop in extents.tolist())
        sizes = (self._table.row_sizes(rows, columns) for rows in runs if len(rows))
        return sum(int(place.sum()) for place in sizes if place is not None)

    def hint(self, step: Step) -> None:
        """Do nothing: tables read on request."""

    def _read(self, runs: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Read runs a few at a time, to bound the memory besides the buffer."""
        if len(runs) == 1:
            yield self._read_one(runs[0])
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "corgipile-reader")
        for at in range(0, len(runs), self._threads):
            part = runs[at : at + self._threads]
            yield from self._pool.map(self._read_one, part)

    def _read_one(self, run: tuple[int, int]) -> pa.RecordBatch:
        return values(self._table.read(*run, self._sources))

    def close(self) -> None:
        """Stop threads."""
        self.idle()

    def idle(self) -> None:
        """Stop threads until the next read."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._frugal is not None:
            self._frugal.close()
            self._frugal = None
