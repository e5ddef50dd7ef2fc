"""Two ways to get rows into slots: by the kernel from where they lie in files, or through the table's own reads."""

import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import Tidy, frugal
from corgipile.errors import CorruptFile, ReadFailed
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.mixed import MixReader
from corgipile.loader.remote import RemoteLayoutReader, RemoteTableReader
from corgipile.orders.order import Step, rows_of
from corgipile.tables.io.descriptors import POOL, Descriptor
from corgipile.tables.io.files import readable
from corgipile.tables.io.remote import is_remote
from corgipile.tables.mixing import Mix
from corgipile.tables.placed import Placed, placed
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import IntArray, Layout, Table, row_sizes, type_code
from corgipile.tables.values import values

__all__ = ["RowReader", "row_reader"]

MEMORY = -2  # the kernel's CP_MEMORY, in place of a descriptor
BLOCK_THREADS = 4
ROW_THREADS = 32
MOST_REQUESTS = 1 << 15  # short runs that are asked for at a time
SHORT_RUNS = 8  # rows; runs this short are asked for together
TAKEN_RUNS = 256  # rows; the same of tables that are asked in Python: a call costs as much as hundreds of rows
CALL_BYTES = 64 << 10  # of a run of wide rows that is worth a call; its rows then leave memory together
LEAST_TAKEN, TAKEN_BYTES = 4 << 10, 2 << 20  # of scattered rows that a table is asked for at a time
THREAD_BYTES = 4 << 20  # of the buffer for each thread, which takes memory of its own
PART = 1 << 16  # rows that are numbered one by one at a time: what is noted of each takes more than a narrow row


class RowReader(Protocol):
    """Reads runs of rows into slots."""

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots; returns when they are there; ``hurry``: the consumer waits for them."""

    def size(self, step: Step) -> int:
        """Return the bytes of varying length that a step will bring, or 0 where that is not known before."""

    def soon(self, step: Step) -> None:
        """Hear which step is read after the one `fill` is called with next."""

    def rest(self) -> None:
        """End threads until the next reading."""

    def close(self) -> None:
        """Close files and threads."""


def row_reader(
    table: Table, buffer: Buffer, sources: Sequence[str], size: int, *, sequential: bool, ahead: int = 0
) -> RowReader:
    """Choose what fills a buffer of a size in bytes: the fast way where every column lies at a fixed place.

    Of a table in a store some bytes are on their way ``ahead``.
    """
    if isinstance(table, Mix):
        make = [
            row_reader(source, buffer, sources, size, sequential=sequential, ahead=ahead // len(table.tables))
            for source in table.tables
        ]
        return MixReader(table, make, ahead)
    found = None if buffer.varlen else placed(table, sources)
    if ahead and is_remote(table):
        plain = found is not None and found.bits is None and not found.kept
        if found is not None and plain and all(_movable(found.layout, buffer)):
            return RemoteLayoutReader(found.layout, buffer, ahead)
        return RemoteTableReader(table, buffer, sources, ahead, max(1.0, row_bytes(table, sources)))
    openable = found is not None and (found.bits is None or POOL.spare(len(found.layout.paths)))
    if found is not None and openable and all(_movable(found.layout, buffer)):
        return LayoutReader(found, buffer, len(table), sequential=sequential)
    from corgipile.loader.text import TextReader  # noqa: PLC0415 - it derives from what is here

    return TextReader.of(table, buffer, sources, size) or TableReader(table, buffer, sources, size)


def _movable(layout: Layout, buffer: Buffer) -> list[bool]:
    """Say for each column whether the kernel can move its numbers and cast them as asked."""
    return [
        type_code(layout.columns[source].dtype) >= 0
        and (layout.columns[source].dtype == field.dtype or field.dtype in (np.float32, np.float64))
        and not (layout.columns[source].dtype == np.float16 != field.dtype)
        for field in buffer.fields.values()
        for source in field.sources
    ]


class LayoutReader:
    """Reads bytes from their place in files or in memory straight into slots, several requests at a time.

    Where there are more files than may be open for a whole pass, those of a step are opened for it, a few at a time.
    """

    def __init__(self, found: Placed, buffer: Buffer, rows: int, *, sequential: bool) -> None:
        layout = found.layout
        self._buffer, self._rows, self._found = buffer, rows, found
        self._layout, self._bytes = layout, 0
        which = layout.identities or (None,) * len(layout.paths)
        self._files = [
            Descriptor(path, expected, random=not sequential)
            for path, expected in zip(layout.paths, which, strict=True)
        ]
        self._fds = np.full(len(self._files) + 1, -1, np.int32)  # of the files that are pinned, and of IN_MEMORY, -1
        self._fds[-1] = MEMORY
        self._pinned: bool | None = None
        self._places: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]] = []  # files of pieces, descriptors
        self._readers: dict[int, object] = {}

    def hold(self) -> bool:
        """Keep all files open until `rest`; False where they are too many, so that `fill` opens those it needs."""
        if self._pinned is None:
            self._pinned = POOL.spare(len(self._files)) and self._pin(np.arange(len(self._files)))
        return self._pinned

    def _pin(self, files: IntArray) -> bool:
        """Open files; False where the process has too many open."""
        try:
            for file in files.tolist():
                with readable(self._files[file].path):
                    self._fds[file] = self._files[file].pin()
        except ReadFailed as error:
            self._unpin()
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return False
        except BaseException:
            self._unpin()
            raise
        for pieces, fds in self._places:
            fds[:] = self._fds[pieces]
        return True

    def _unpin(self) -> None:
        for file in np.flatnonzero(self._fds >= 0).tolist():
            self._fds[file] = -1
            self._files[file].unpin()

    def reader(self, *, short: bool) -> object:
        """Return the kernel's reader for short or long runs, started when first needed."""
        threads = ROW_THREADS if short else BLOCK_THREADS
        if not self._layout.paths:  # no device that several would wait for
            size = self._rows * sum(field.row_bytes for field in self._buffer.fields.values())
            threads = min(threads, os.cpu_count() or 1, size // THREAD_BYTES + 1)
        if threads in self._readers:
            return self._readers[threads]
        reader = _kernel.reader_new(threads, self._buffer.slots, self._rows, self._found.kept)
        for field in self._buffer.fields.values():
            to = type_code(field.dtype)
            for source, begin, items in zip(field.sources, field.begins, field.widths, strict=True):
                column = self._layout.columns[source]
                fds = self._fds[column.files]
                self._places.append((column.files, fds))
                _kernel.reader_column(
                    reader, column.starts, column.offsets, fds, self._buffer.dense(field.name),
                    at=begin * field.dtype.itemsize, stride=field.row_bytes, items=items,
                    from_type=type_code(column.dtype), to_type=to,
                )  # fmt: skip
        if self._found.bits is not None:
            _kernel.reader_pick(reader, self._found.bits.words, self._found.bits.ranks)
        self._readers[threads] = reader
        return reader

    @property
    def bytes_read(self) -> int:
        """Return the bytes requested so far."""
        return self._bytes + sum(_kernel.reader_bytes(reader) for reader in list(self._readers.values()))

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots."""
        if not len(step.extents):
            return
        extents, into = step.extents, step.into
        most = max(1, MOST_REQUESTS // len(self._layout.columns))
        short = len(into) < SHORT_RUNS * len(extents)
        if short and step.sweep is None and len(extents) > most:
            self._fill_in_parts(extents, into, most, hurry=hurry)
            return
        reader = self.reader(short=short)
        if self.hold():
            self._read(reader, extents, into, step.sweep, hurry)
            return
        if self._found.bits is not None:  # numbers its rows otherwise; there was room for its files before
            raise ReadFailed(errno.EMFILE, f"{len(self._files)} files cannot be open at once: too many others are")
        for files, runs, slots in few_files(self._layout, extents, into, max(1, POOL.room // 4)):
            if not self._pin(files[files >= 0]):
                raise ReadFailed(errno.EMFILE, f"{len(files)} files cannot be open at once: the process has too many")
            try:
                self._read(reader, runs, slots, None, hurry)
            finally:
                self._unpin()

    def _read(self, reader: object, extents: IntArray, into: SlotArray, sweep: SlotArray | None, hurry: bool) -> None:
        failure = _kernel.reader_read(reader, extents, into, sweep, hurry)
        if failure is not None:
            raise self.failure(*failure)

    def _fill_in_parts(self, extents: IntArray, into: SlotArray, most: int, *, hurry: bool) -> None:
        """Read many short runs some at a time: what the kernel notes of each takes more than a narrow row."""
        at = 0
        for first in range(0, len(extents), most):
            some = extents[first : first + most]
            rows = int((some[:, 1] - some[:, 0]).sum())
            self.fill(Step(some, into[at : at + rows], into[:0]), hurry=hurry)
            at += rows

    def failure(self, code: int, fd: int, row: int) -> ReadFailed | CorruptFile:
        """Return the error of a reading that the kernel could not do; code 0: the file ended."""
        path = self._layout.paths[self._fds.tolist().index(fd)]
        if code:
            name = f"{os.strerror(code)} ({errno.errorcode.get(code)})"
            return ReadFailed(code, f"reading {path} failed at row {row}: {name}")
        return CorruptFile(f"{path} ended while row {row} was read; the file was cut short since it was opened")

    def size(self, step: Step) -> int:
        """Return 0: all rows are of one size."""
        return 0

    def soon(self, step: Step) -> None:
        """Let the device begin with a step ahead of time, where it was the device that was waited for."""
        if len(step.into) >= SHORT_RUNS * len(step.extents) and self.hold():
            _kernel.reader_soon(self.reader(short=False), step.extents)

    def rest(self) -> None:
        """End threads, and let files be closed, until the next reading."""
        self._bytes = self.bytes_read
        self._readers.clear()
        self._places.clear()
        self._unpin()
        self._pinned = None

    def close(self) -> None:
        """End threads and close files."""
        self.rest()
        for file in self._files:
            file.close()


def few_files(
    layout: Layout, extents: IntArray, into: SlotArray, most: int
) -> Iterator[tuple[IntArray, IntArray, SlotArray]]:
    """Divide runs of rows so that each part is of few files, ``most`` where a row is of no more.

    Returns:
        Of each part the files, int64, its runs as extents, and the slots of their rows.
    """
    columns = layout.columns.values()
    changes = [column.starts[1:-1][np.diff(column.files) != 0] for column in columns]
    edges = np.unique(np.concatenate([*changes, [0]]))
    files = np.stack([column.files[np.searchsorted(column.starts, edges, side="right") - 1] for column in columns])
    first = np.searchsorted(edges, extents[:, 0], side="right") - 1
    counts = np.searchsorted(edges, extents[:, 1], side="left") - first
    counts = np.maximum(counts, 1)
    run = np.repeat(np.arange(len(extents)), counts)
    stretch = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.maximum(edges[stretch], extents[run, 0])
    stops = np.minimum(np.append(edges[1:], np.iinfo(np.int64).max)[stretch], extents[run, 1])
    ends = np.cumsum(stops - starts)
    order = np.argsort(stretch, kind="stable")
    found, begins = np.unique(stretch[order], return_index=True)
    begins = np.append(begins, len(order))
    step = max(1, most // len(files))
    for at in range(0, len(found), step):
        chosen = order[begins[at] : begins[min(at + step, len(found))]]
        rows = [np.arange(ends[i] - (stops[i] - starts[i]), ends[i]) for i in chosen.tolist()]
        runs = np.stack([starts[chosen], stops[chosen]], axis=1)
        yield np.unique(files[:, found[at : at + step]]).astype(np.int64), runs, into[np.concatenate(rows)]


def taken_runs(table: Table) -> int:
    """Return the rows of runs that a table would rather be asked for together; it may say so by ``taken_runs``."""
    inside = getattr(table, "table", None) or next(iter(getattr(table, "tables", ())), None)
    return taken_runs(inside) if inside is not None else getattr(table, "taken_runs", TAKEN_RUNS)


def _parts(extents: IntArray, *, ascending: bool = False) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows of short runs, and where they are among all rows of the runs, about `PART` at a time.

    Neighbours come together if they shall ascend. But what an order begins with leaves in many steps, together what was
    loaded together, and a batch is in memory until its last row leaves: then they come as the order names them.
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
    """Reads record batches from the table and puts their rows into slots."""

    def __init__(self, table: Table, buffer: Buffer, sources: Sequence[str], size: int) -> None:
        self._table, self._buffer, self._sources = table, buffer, list(sources)
        self._pool: ThreadPoolExecutor | None = None
        self._threads = min(BLOCK_THREADS, max(1, size // THREAD_BYTES))
        self._taken = SHORT_RUNS  # rows, until their size is known
        width, most = max(1, size // max(1, buffer.slots)), max(size, buffer.limit or 0)
        # An order may need less than it was given: there rows may leave memory later.
        worth, runs = CALL_BYTES if most < 2 * size else 4 * CALL_BYTES, taken_runs(table)
        worth *= runs // TAKEN_RUNS
        self._short = max(SHORT_RUNS, min(runs, worth // width))  # rows; runs this short are taken together
        self._room = min(TAKEN_BYTES, max(LEAST_TAKEN, most // 64))  # all are kept while one of them is waited for
        self._frugal: ExitStack | None = None  # from the first reading of a pass to its end
        self._tidy, self.bytes_read = Tidy(most), 0

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots, a few at a time."""
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
        """Read scattered rows, some at a time: tables need a multiple of what they are asked for meanwhile."""
        at = 0
        while at < len(rows):
            some = slice(at, at + self._taken)
            batch = values(self._table.take(rows[some], self._sources))
            self._count(batch.nbytes)
            self._buffer.put(batch, into[some], rows[some])
            at += batch.num_rows
            self._taken = max(1, self._room * batch.num_rows // max(1, batch.nbytes))

    def size(self, step: Step) -> int:
        """Return the bytes of varying length that a step will bring, or 0 where the table does not tell."""
        extents, columns = step.extents, list(self._buffer.varlen.names)
        if len(step.into) < self._short * len(extents):
            runs = (rows for rows, _ in _parts(extents))
        else:
            runs = (np.arange(start, stop) for start, stop in extents.tolist())
        sizes = (row_sizes(self._table, rows, columns) for rows in runs if len(rows))
        return sum(int(found.sum()) for found in sizes if found is not None)

    def soon(self, step: Step) -> None:
        """Do nothing: tables read when asked."""

    def _read(self, runs: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Read runs a few at a time: no more are in memory beside the buffer."""
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
        """End threads."""
        self.rest()

    def rest(self) -> None:
        """End threads until the next reading."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._frugal is not None:
            self._frugal.close()
            self._frugal = None
