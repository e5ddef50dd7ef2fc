"""Reads of remote tables: the requests of the coming steps are in flight together."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import frugal, give_back
from corgipile.loader.buffer import Buffer, Field, SlotArray
from corgipile.loader.parts import Part, divide
from corgipile.orders.order import Step, rows_of
from corgipile.stores.plan import LEAST_GAP
from corgipile.tables.io.arriving import limit_requests
from corgipile.tables.io.pieces import places_of
from corgipile.tables.io.remote import files_of_layout
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, type_code
from corgipile.tables.values import values

__all__ = ["RemoteLayoutReader", "RemoteTableReader"]

FETCHES = 16  # files read at once
READS = 32  # reads of a table at once; they mostly wait
SHORT_RUNS = 256  # mean rows of a run below which runs are requested together
TIDY_BYTES = 4 << 20  # bytes read before freed memory is returned to the system
PART_BYTES, PARTS = 1 << 20, 12  # bytes of a part of a step; parts in flight
COLUMN_BYTES, FEW_PARTS = 128 << 10, 3  # the same for tables of many columns, each a request of its own
Result = TypeVar("Result")
Finish = Callable[[], None]


class _Announced:
    """An announced step and its parts."""

    def __init__(self, step: Step, parts: Sequence[Part]) -> None:
        self.step, self.left = step, deque(parts)
        self.pending: deque[tuple[int, Finish]] = deque()  # parts in flight: bytes, function that puts them into slots


class _Reader:
    """Keeps a bounded number of bytes in flight, those of earlier steps first."""

    def __init__(self, ahead: int, threads: int) -> None:
        self.ahead, self._threads = ahead, threads
        self.bytes_read = self._tidied = self._in_flight = 0
        self._pool: ThreadPoolExecutor | None = None
        self._announced: deque[_Announced] = deque()
        self._contexts = ExitStack()

    def hint(self, step: Step) -> None:
        """Begin to read a step as far as the bytes in flight allow."""
        self._announced.append(_Announced(step, self._divide(step)))
        self._begin_more()

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        while self._announced and self._announced[0].step is not step:  # announced steps that the consumer skipped
            self._in_flight -= sum(nbytes for nbytes, _ in self._announced.popleft().pending)
        if not self._announced:
            self.hint(step)
        announced = self._announced[0]
        while announced.pending:
            nbytes, finish = announced.pending.popleft()
            finish()
            del finish  # frees the part's memory before more is requested
            self._in_flight -= nbytes
            self._tidy()
            self._begin_more()
        self._announced.popleft()

    def _begin_more(self) -> None:
        """Send the requests of as many parts as the bytes in flight allow, at least one, in the order of need."""
        for announced in self._announced:
            while announced.left:
                if self._in_flight and self._in_flight + announced.left[0].nbytes > self.ahead:
                    return
                part = announced.left.popleft()
                self._in_flight += part.nbytes
                announced.pending.append((part.nbytes, self._begin(part)))

    def _tidy(self) -> None:
        if self.bytes_read - self._tidied > TIDY_BYTES:
            give_back()
            self._tidied = self.bytes_read

    def _divide(self, step: Step) -> list[Part]:
        raise NotImplementedError

    def _begin(self, part: Part) -> Finish:
        """Send a part's requests; return a function that puts its rows into slots."""
        raise NotImplementedError

    @property
    def part_bytes(self) -> int:
        """Return the bytes of a part: one request if the memory holds enough of them."""
        return max(1, min(PART_BYTES, self.ahead // PARTS))

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        if self._pool is None:
            self._contexts.enter_context(limit_requests(self.ahead))
            self._contexts.enter_context(frugal())  # each thread would hold on to Arrow's memory
            self._pool = ThreadPoolExecutor(self._threads, "corgipile-reader")
        return self._pool.submit(work)

    def idle(self) -> None:
        """Cancel what is in flight."""
        self._announced.clear()
        self._in_flight = 0
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._contexts.close()

    def close(self) -> None:
        """Cancel what is in flight."""
        self.idle()


class RemoteLayoutReader(_Reader):
    """Reads fixed-width rows: a step's bytes go into memory besides the buffer, then into slots."""

    def __init__(self, layout: Layout, buffer: Buffer, ahead: int) -> None:
        super().__init__(ahead, FETCHES)
        self._layout, self._buffer = layout, buffer
        self._files = files_of_layout(layout)
        self._row_bytes = sum(column.width for column in layout.columns.values())

    def size(self, step: Step) -> int:
        """Return 0: rows have a fixed size."""
        return 0

    def _divide(self, step: Step) -> list[Part]:
        columns = len(self._layout.columns)
        column_bytes = min(self.ahead // FEW_PARTS, COLUMN_BYTES * columns)  # each column is a request of its own
        return divide(step, self._row_bytes, max(1, self.part_bytes, column_bytes), LEAST_GAP * columns)

    def _begin(self, part: Part) -> Finish:
        rows, places, at = len(part.into), [], 0
        bases: dict[str, int] = {}
        for name, column in self._layout.columns.items():
            bases[name] = at
            places.append(_ranges(column, part.extents, at))
            at += -(-rows * column.width // 8) * 8  # keeps numbers aligned
        files, offsets, lengths, to = (np.concatenate(parts) for parts in zip(*places, strict=True))
        data = np.empty(at, np.uint8)
        self.bytes_read += int(lengths.sum())
        fetches = [self._fetch(file, indices, offsets, lengths, data, to) for file, indices in places_of(files)]

        def finish() -> None:
            for fetch in fetches:
                fetch.result()
            for field in self._buffer.fields.values():
                self._scatter(field, data, bases, part.into)

        return finish

    def _fetch(
        self, file: int, indices: IntArray, offsets: IntArray, lengths: IntArray,
        data: npt.NDArray[np.uint8], to: IntArray,
    ) -> Future[npt.NDArray[np.uint8]]:  # fmt: skip
        wanted = offsets[indices], lengths[indices], data, to[indices]
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
    """Return file, offset and length of each range that holds rows of a column, and its target from ``base`` on."""
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
    """Reads rows that a table must decode or locate, with several reads at once since they mostly wait."""

    def __init__(self, table: Table, buffer: Buffer, sources: Sequence[str], ahead: int, row_bytes: float) -> None:
        super().__init__(ahead, READS)
        self._table, self._buffer, self._sources = table, buffer, list(sources)
        self._encoded, self._row_bytes = table.units(sources) is not None, row_bytes

    def size(self, step: Step) -> int:
        """Return 0: measuring a step takes as long as reading it."""
        return 0

    def _divide(self, step: Step) -> list[Part]:
        most = self.part_bytes
        if self._is_short(step):  # the table may read row by row
            most = max(1, min(most, int(len(step.into) * self._row_bytes) // READS))
        return divide(step, self._row_bytes, most, LEAST_GAP, whole=self._encoded)

    def _is_short(self, rows: Step | Part) -> bool:
        """Return whether to read the runs together; encoded units are decoded separately."""
        return not self._encoded and len(rows.extents) > 1 and len(rows.into) < SHORT_RUNS * len(rows.extents)

    def _begin(self, part: Part) -> Finish:
        reads = [(into, rows, self._submit(partial(self._read, rows))) for into, rows in self._runs(part)]

        def finish() -> None:
            for into, rows, read in reads:
                batch = read.result()
                self.bytes_read += batch.nbytes
                self._buffer.put(batch, into, rows)

        return finish

    def _runs(self, part: Part) -> Iterator[tuple[SlotArray, range | IntArray]]:
        """Yield slots and row numbers of the rows that are read together."""
        if self._is_short(part):
            yield part.into, rows_of(part.extents)
            return
        at = 0
        for start, stop in part.extents.tolist():
            yield part.into[at : at + stop - start], range(start, stop)
            at += stop - start

    def _read(self, rows: range | IntArray) -> pa.RecordBatch:
        if isinstance(rows, range):
            return values(self._table.read(rows.start, rows.stop, self._sources))
        return values(self._table.take(rows, self._sources))
