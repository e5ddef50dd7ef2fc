"""Reads of fixed-width rows by the kernel, from files or memory straight into slots."""

import errno
import os
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import CorruptFile, ReadFailed
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.orders.order import Step
from corgipile.tables.io.descriptors import POOL, Descriptor
from corgipile.tables.io.files import readable
from corgipile.tables.location import Location
from corgipile.tables.table import ColumnLayout, IntArray, Layout, VarlenLayout, type_code

__all__ = ["BLOCK_THREADS", "SHORT_RUNS", "THREAD_BYTES", "LayoutReader", "few_files", "movable"]

MEMORY = -2  # the kernel's CP_MEMORY, in place of a descriptor
BLOCK_THREADS = max(4, min(8, (os.cpu_count() or 1) // 2))
ROW_THREADS = 32
MOST_REQUESTS = 1 << 15  # largest number of short runs per kernel call
SHORT_RUNS = 8  # mean rows of a run below which runs are read together
THREAD_BYTES = 4 << 20  # buffer bytes per thread, which needs memory of its own
Failure = tuple[int, int, int]
Call = Callable[[object, IntArray, SlotArray, SlotArray | None, bool], Failure | None]


def movable(layout: Layout, buffer: Buffer) -> list[bool]:
    """Return for each column whether the kernel can copy its numbers and cast them to the buffer's dtype."""
    return [
        not isinstance(layout.columns[source], VarlenLayout)
        and type_code(layout.columns[source].dtype) >= 0
        and (layout.columns[source].dtype == field.dtype or field.dtype in (np.float32, np.float64))
        and not (layout.columns[source].dtype == np.float16 != field.dtype)
        for field in buffer.fields.values()
        for source in field.sources
    ]


class LayoutReader:
    """Reads bytes of files or memory straight into slots, with several requests in flight.

    Tables of more files than a process may open have a step's files opened for the step, a few at a time.
    """

    def __init__(self, location: Location, buffer: Buffer, rows: int, *, sequential: bool) -> None:
        layout = location.layout
        self._buffer, self._rows, self._location = buffer, rows, location
        self._layout, self._bytes = layout, 0
        which = layout.identities or (None,) * len(layout.paths)
        self._files = [
            Descriptor(path, expected, random=not sequential)
            for path, expected in zip(layout.paths, which, strict=True)
        ]
        self._fds = np.full(len(self._files) + 1, -1, np.int32)  # of pinned files; the last is that of IN_MEMORY, -1
        self._fds[-1] = MEMORY
        self._pinned: bool | None = None
        # Files and descriptors of pieces, which most columns share, by the id of the former.
        self._places: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]] = {}
        self._readers: dict[int, object] = {}

    def hold(self) -> bool:
        """Keep all files open until `idle`; False if they are too many, so that `fill` opens those of a step."""
        if self._pinned is None:
            self._pinned = POOL.spare(len(self._files)) and self._pin(np.arange(len(self._files)))
        return self._pinned

    def _pin(self, files: IntArray) -> bool:
        """Open files; return False if the process has too many open."""
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
        for pieces, fds in self._places.values():
            fds[:] = self._fds[pieces]
        return True

    def _unpin(self) -> None:
        for file in np.flatnonzero(self._fds >= 0).tolist():
            self._fds[file] = -1
            self._files[file].unpin()

    def reader(self, *, short: bool) -> object:
        """Return the kernel's reader for short or long runs, made on first use."""
        threads = ROW_THREADS if short else BLOCK_THREADS
        if not self._layout.paths:  # memory has no latency that many threads would hide
            size = self._rows * sum(field.row_bytes for field in self._buffer.fields.values())
            threads = min(threads, os.cpu_count() or 1, size // THREAD_BYTES + 1)
        if threads in self._readers:
            return self._readers[threads]
        reader = _kernel.reader_new(threads, self._buffer.slots, self._rows, self._location.kept)
        self._add_columns(reader)
        if self._location.bits is not None:
            _kernel.reader_pick(reader, self._location.bits.words, self._location.bits.ranks)
        self._readers[threads] = reader
        return reader

    def _add_columns(self, reader: object) -> None:
        """Add the columns' places and targets to a kernel reader."""
        for field in self._buffer.fields.values():
            to = type_code(field.dtype)
            for source, begin, items in zip(field.sources, field.begins, field.widths, strict=True):
                column = self._layout.columns[source]
                _kernel.reader_column(
                    reader, column.starts, column.offsets, self._fds_of(column), self._buffer.dense(field.name),
                    at=begin * field.dtype.itemsize, stride=field.row_bytes, items=items,
                    from_type=type_code(column.dtype), to_type=to,
                )  # fmt: skip

    def _fds_of(self, column: ColumnLayout) -> npt.NDArray[np.int32]:
        """Return the descriptors of a column's files; `_pin` updates them."""
        return self._places.setdefault(id(column.files), (column.files, self._fds[column.files]))[1]

    @property
    def bytes_read(self) -> int:
        """Return the bytes requested so far."""
        return self._bytes + sum(_kernel.reader_bytes(reader) for reader in list(self._readers.values()))

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        self.run_parts(step, _kernel.reader_read, urgent=urgent)

    def run_parts(self, step: Step, call: Call, *, urgent: bool) -> None:
        """Call the kernel on a step's runs of rows; steps of many short runs or many files are divided."""
        if not len(step.extents):
            return
        extents, into = step.extents, step.into
        most = max(1, MOST_REQUESTS // len(self._layout.columns))
        short = len(into) < SHORT_RUNS * len(extents)
        if short and step.sweep is None and len(extents) > most:
            for part in _parts_of(step, most):
                self.run_parts(part, call, urgent=urgent)
            return
        reader = self.reader(short=short)
        if self.hold():
            self._checked(call(reader, extents, into, step.sweep, urgent))
            return
        if self._location.bits is not None:  # the row mask needs all files, which could be opened when it was made
            raise ReadFailed(errno.EMFILE, f"{len(self._files)} files cannot be open at once: too many others are")
        for files, runs, slots in few_files(self._layout, extents, into, max(1, POOL.room // 4)):
            if not self._pin(files[files >= 0]):
                raise ReadFailed(errno.EMFILE, f"{len(files)} files cannot be open at once: the process has too many")
            try:
                self._checked(call(reader, runs, slots, None, urgent))
            finally:
                self._unpin()

    def _checked(self, failure: Failure | None) -> None:
        if failure is not None:
            raise self.failure(*failure)

    def failure(self, code: int, fd: int, row: int) -> ReadFailed | CorruptFile:
        """Return the error for a failed read; code 0: the file ended."""
        path = self._layout.paths[self._fds.tolist().index(fd)]
        if code:
            name = f"{os.strerror(code)} ({errno.errorcode.get(code)})"
            return ReadFailed(code, f"reading {path} failed at row {row}: {name}")
        return CorruptFile(f"{path} ended while row {row} was read; the file was cut short since it was opened")

    def size(self, step: Step) -> int:
        """Return 0: rows have a fixed size."""
        return 0

    def hint(self, step: Step) -> None:
        """Announce a step to the device if the device was the bottleneck."""
        if len(step.into) >= SHORT_RUNS * len(step.extents) and self.hold():
            _kernel.reader_soon(self.reader(short=False), step.extents)

    def idle(self) -> None:
        """Stop threads and allow files to be closed, until the next read."""
        self._bytes = self.bytes_read
        self._readers.clear()
        self._places.clear()
        self._unpin()
        self._pinned = None

    def close(self) -> None:
        """Stop threads and close files."""
        self.idle()
        for file in self._files:
            file.close()


def _parts_of(step: Step, most: int) -> Iterator[Step]:
    """Divide many short runs: the kernel's record of a run takes more memory than a narrow row."""
    at = 0
    for first in range(0, len(step.extents), most):
        part = step.extents[first : first + most]
        rows = int((part[:, 1] - part[:, 0]).sum())
        yield Step(part, step.into[at : at + rows], step.into[:0])
        at += rows


def few_files(
    layout: Layout, extents: IntArray, into: SlotArray, most: int
) -> Iterator[tuple[IntArray, IntArray, SlotArray]]:
    """Divide runs of rows so that each part needs at most ``most`` files, or those of one row if it has more.

    Returns:
        For each part: its files, int64; its runs as extents; the slots of their rows.
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
    location, begins = np.unique(stretch[order], return_index=True)
    begins = np.append(begins, len(order))
    step = max(1, most // len(files))
    for at in range(0, len(location), step):
        chosen = order[begins[at] : begins[min(at + step, len(location))]]
        rows = [np.arange(ends[i] - (stops[i] - starts[i]), ends[i]) for i in chosen.tolist()]
        runs = np.stack([starts[chosen], stops[chosen]], axis=1)
        yield np.unique(files[:, location[at : at + step]]).astype(np.int64), runs, into[np.concatenate(rows)]
