"""Rows of tables in stores into slots: those of the steps to come are on their way, all their requests at once."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import give_back
from corgipile.loader.buffer import Buffer, Field, SlotArray
from corgipile.orders.order import Step, rows_of
from corgipile.tables.encoded import is_encoded
from corgipile.tables.io.remote import files_of_layout
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, type_code
from corgipile.tables.values import values

__all__ = ["RemoteLayoutReader", "RemoteTableReader"]

FETCHES = 16  # files that are read at the same time
READS = 32  # reads of a table, which mostly wait
SHORT_RUNS = 256  # rows; runs this short are asked for together
TIDY_BYTES = 4 << 20  # read until what answers took, and is free, is given back
PART_BYTES = 1 << 20  # of scattered rows that a table is asked for at a time
Result = TypeVar("Result")
Finish = Callable[[], None]


class _Reader:
    """Keeps what is on its way by the step that it is for; steps are read in the order in which they are announced.

    Args:
        ahead: Bytes of rows that may be on their way.
        threads: Threads, that wait for them.
    """

    def __init__(self, ahead: int, threads: int) -> None:
        self.ahead, self._threads = ahead, threads
        self.bytes_read = self._tidied = 0
        self._pool: ThreadPoolExecutor | None = None
        self._coming: deque[tuple[Step, Finish]] = deque()

    def soon(self, step: Step) -> None:
        """Begin to read a step."""
        self._coming.append((step, self._begin(step)))

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots, once they are there."""
        known = any(one is step for one, _ in self._coming)
        finish = None if known else self._begin(step)
        while finish is None:
            one, found = self._coming.popleft()
            finish = found if one is step else None
        finish()
        if self.bytes_read - self._tidied > TIDY_BYTES:
            give_back()
            self._tidied = self.bytes_read

    def _begin(self, step: Step) -> Finish:
        """Send the requests of a step; return what puts its rows into slots."""
        raise NotImplementedError

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "corgipile-reader")
        return self._pool.submit(work)

    def rest(self) -> None:
        """Give up what is on its way."""
        self._coming.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def close(self) -> None:
        """Do the same."""
        self.rest()


class RemoteLayoutReader(_Reader):
    """Reads rows of columns of fixed width: the bytes of a step come into memory beside the buffer, then into slots.

    Args:
        layout: Where the columns lie.
        buffer: Where rows go.
        ahead: Bytes of rows that may be on their way.
    """

    def __init__(self, layout: Layout, buffer: Buffer, ahead: int) -> None:
        super().__init__(ahead, FETCHES)
        self._layout, self._buffer = layout, buffer
        self._files = files_of_layout(layout)

    def size(self, step: Step) -> int:
        """Return 0: all rows are of one size."""
        return 0

    def _begin(self, step: Step) -> Finish:
        rows = int((step.extents[:, 1] - step.extents[:, 0]).sum())
        places, at = [], 0
        bases: dict[str, int] = {}
        for name, column in self._layout.columns.items():
            bases[name] = at
            places.append(_ranges(column, step.extents, at))
            at += -(-rows * column.width // 8) * 8  # so that numbers lie as processors like them
        files, offsets, lengths, to = (np.concatenate(parts) for parts in zip(*places, strict=True))
        data = np.empty(at, np.uint8)
        self.bytes_read += int(lengths.sum())
        fetches = [self._fetch(file, files == file, offsets, lengths, data, to) for file in np.unique(files).tolist()]

        def finish() -> None:
            for fetch in fetches:
                fetch.result()
            for field in self._buffer.fields.values():
                self._scatter(field, data, bases, step.into)

        return finish

    def _fetch(
        self, file: int, mine: npt.NDArray[np.bool_], offsets: IntArray, lengths: IntArray,
        data: npt.NDArray[np.uint8], to: IntArray,
    ) -> Future[npt.NDArray[np.uint8]]:  # fmt: skip
        wanted = offsets[mine], lengths[mine], data, to[mine]
        return self._submit(lambda: self._files[file].gather(*wanted))

    def _scatter(self, field: Field, data: npt.NDArray[np.uint8], bases: dict[str, int], into: SlotArray) -> None:
        for source, begin, items in zip(field.sources, field.begins, field.widths, strict=True):
            column = self._layout.columns[source]
            rows = data[bases[source] : bases[source] + len(into) * column.width]
            _kernel.scatter(
                self._buffer.dense(field.name), rows, into,
                at=begin * field.dtype.itemsize, stride=field.row_bytes, items=items,
                from_type=type_code(column.dtype), to_type=type_code(field.dtype),
            )  # fmt: skip


def _ranges(column: ColumnLayout, extents: IntArray, base: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return file, offset and length of each range that holds rows of a column, and where it goes from a base on."""
    starts, stops = extents[:, 0], extents[:, 1]
    first = np.searchsorted(column.starts, starts, side="right") - 1
    counts = np.maximum(np.searchsorted(column.starts, stops, side="left") - first, 0)
    run = np.repeat(np.arange(len(extents)), counts)
    piece = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = np.maximum(column.starts[piece], starts[run]), np.minimum(column.starts[piece + 1], stops[run])
    lengths = (high - low) * column.width
    offsets = column.offsets[piece] + (low - column.starts[piece]) * column.width
    return column.files[piece].astype(np.int64), offsets, lengths, base + np.cumsum(lengths) - lengths


class RemoteTableReader(_Reader):
    """Reads rows that a table must decode, or find: several reads at a time, as most of it is waiting.

    Args:
        table: The table.
        buffer: Where rows go.
        sources: The columns.
        ahead: Bytes of rows that may be on their way.
        row_bytes: Bytes of a row.
    """

    def __init__(self, table: Table, buffer: Buffer, sources: Sequence[str], ahead: int, row_bytes: float) -> None:
        super().__init__(ahead, READS)
        self._table, self._buffer, self._sources = table, buffer, list(sources)
        self._encoded = is_encoded(table, sources)
        self._part = max(1, int(min(PART_BYTES, max(ahead // 8, 1)) / row_bytes))

    def size(self, step: Step) -> int:
        """Return 0: to know it takes as long as to read the step."""
        return 0

    def _begin(self, step: Step) -> Finish:
        parts = [(at, rows, self._submit(partial(self._read, rows))) for at, rows in self._parts(step)]

        def finish() -> None:
            for at, rows, read in parts:
                batch = read.result()
                self.bytes_read += batch.nbytes
                self._buffer.put(batch, step.into[at], rows)

        return finish

    def _parts(self, step: Step) -> Iterator[tuple[IntArray | slice, range | IntArray]]:
        """Divide a step: the places in it of some rows, and their numbers."""
        extents = step.extents
        if len(extents) > 1 and len(step.into) < SHORT_RUNS * len(extents):
            rows = rows_of(extents)
            order = np.argsort(rows)
            for some in np.split(order, self._edges(extents, len(rows))):
                yield some, rows[some]
            return
        at = 0
        for start, stop in extents.tolist():
            for first in range(start, stop, max(self._part, SHORT_RUNS)):
                last = min(stop, first + max(self._part, SHORT_RUNS))
                yield slice(at, at + last - first), range(first, last)
                at += last - first

    def _edges(self, extents: IntArray, rows: int) -> IntArray:
        """Divide the rows of short runs, in ascending order: where units are decoded each run by itself."""
        if self._encoded:
            ascending = extents[np.argsort(extents[:, 0])]
            return np.asarray(np.cumsum(ascending[:, 1] - ascending[:, 0])[:-1])
        return np.arange(0, rows, max(1, min(self._part, -(-rows // READS))))[1:]

    def _read(self, rows: range | IntArray) -> pa.RecordBatch:
        if isinstance(rows, range):
            return values(self._table.read(rows.start, rows.stop, self._sources))
        return values(self._table.take(rows, self._sources))
