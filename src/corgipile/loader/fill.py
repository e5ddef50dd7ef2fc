"""Two ways to get rows into slots: by the kernel from where they lie in files, or through the table's own reads."""

import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import CorruptFile, ReadFailed
from corgipile.loader.store import SlotArray, Store
from corgipile.orders.base import Step, rows_of
from corgipile.tables.base import IntArray, Layout, Table, row_sizes, type_code

__all__ = ["Filler", "filler"]

BLOCK_THREADS = 4
ROW_THREADS = 32
MOST_REQUESTS = 1 << 15  # short runs that are asked for at a time
SHORT_RUNS = 8  # rows; runs this short are asked for together


class Filler(Protocol):
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


def filler(table: Table, store: Store, sources: Sequence[str], *, sequential: bool) -> Filler:
    """Choose the fast way where every column lies at a fixed place in files, the general one elsewhere."""
    layout = None if store.held or not sources else table.layout(sources)
    if layout is not None and len(table) and all(_movable(layout, store)):
        return PlacedFiller(layout, store, len(table), sequential=sequential)
    return TableFiller(table, store, sources)


def _movable(layout: Layout, store: Store) -> list[bool]:
    """Say for each column whether the kernel can move its numbers and cast them as asked."""
    return [
        type_code(layout.columns[source].dtype) >= 0
        and (layout.columns[source].dtype == field.dtype or field.dtype in (np.float32, np.float64))
        and not (layout.columns[source].dtype == np.float16 != field.dtype)
        for field in store.fields.values()
        for source in field.sources
    ]


class PlacedFiller:
    """Reads bytes from their place in files straight into slots, several requests at a time."""

    def __init__(self, layout: Layout, store: Store, rows: int, *, sequential: bool) -> None:
        self._paths = layout.paths
        self._threads, self._store, self._rows = 0, store, rows
        self._layout, self._bytes = layout, 0
        self._fds: list[int] = []
        self._readers: dict[int, object] = {}
        try:
            for path in layout.paths:
                self._fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                if not sequential and hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(self._fds[-1], 0, 0, os.POSIX_FADV_RANDOM)
        except OSError as error:
            self.close()
            raise ReadFailed(error.errno, f"cannot open {path}: {error.strerror}") from None

    def reader(self, *, short: bool) -> object:
        """Return the kernel's reader for short or long runs, started when first needed."""
        threads = ROW_THREADS if short else BLOCK_THREADS
        if threads in self._readers:
            return self._readers[threads]
        reader = _kernel.reader_new(threads, self._store.slots, self._rows)
        fds = np.array(self._fds, np.int32)
        for field in self._store.fields.values():
            to = type_code(field.dtype)
            items = field.items // len(field.sources)
            for index, source in enumerate(field.sources):
                column = self._layout.columns[source]
                _kernel.reader_column(
                    reader, column.starts, column.offsets, fds[column.files], self._store.dense(field.name),
                    index * items * field.dtype.itemsize, field.row_bytes, items, type_code(column.dtype), to,
                )  # fmt: skip
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
        failure = _kernel.reader_read(self.reader(short=short), extents, into, step.sweep, hurry)
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
        path = self._paths[self._fds.index(fd)]
        if code:
            name = f"{os.strerror(code)} ({errno.errorcode.get(code)})"
            return ReadFailed(code, f"reading {path} failed at row {row}: {name}")
        return CorruptFile(f"{path} ended while row {row} was read; the file was cut short since it was opened")

    def size(self, step: Step) -> int:
        """Return 0: all rows are of one size."""
        return 0

    def soon(self, step: Step) -> None:
        """Let the device begin with a step ahead of time, where it was the device that was waited for."""
        if len(step.into) >= SHORT_RUNS * len(step.extents):
            _kernel.reader_soon(self.reader(short=False), step.extents)

    def rest(self) -> None:
        """End threads until the next reading."""
        self._bytes = self.bytes_read
        self._readers.clear()

    def close(self) -> None:
        """End threads and close files."""
        self.rest()
        while self._fds:
            os.close(self._fds.pop())


class TableFiller:
    """Reads record batches from the table and puts their rows into slots."""

    def __init__(self, table: Table, store: Store, sources: Sequence[str]) -> None:
        self._table, self._store, self._sources = table, store, list(sources)
        self._pool: ThreadPoolExecutor | None = None
        self.bytes_read = 0

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots, a few at a time."""
        extents, into = step.extents, step.into
        if not len(extents):
            return
        if len(extents) > 1 and len(into) < SHORT_RUNS * len(extents):
            rows = rows_of(extents)
            batch = self._table.take(rows, self._sources)
            self.bytes_read += batch.nbytes
            self._store.put(batch, into, rows)
            return
        runs = [(int(start), int(stop)) for start, stop in extents]
        at = 0
        for (start, stop), batch in zip(runs, self._read(runs), strict=True):
            self.bytes_read += batch.nbytes
            self._store.put(batch, into[at : at + stop - start], range(start, stop))
            at += stop - start

    def size(self, step: Step) -> int:
        """Return the bytes of varying length that a step will bring, or 0 where the table does not tell."""
        extents, columns = step.extents, list(self._store.held.names)
        short = len(step.into) < SHORT_RUNS * len(extents)
        runs = [rows_of(extents)] if short else [np.arange(start, stop) for start, stop in extents.tolist()]
        sizes = [row_sizes(self._table, rows, columns) for rows in runs if len(rows)]
        return sum(int(found.sum()) for found in sizes if found is not None)

    def soon(self, step: Step) -> None:
        """Do nothing: tables read when asked."""

    def _read(self, runs: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Read runs a few at a time: no more are in memory beside the buffer."""
        if len(runs) == 1:
            yield self._table.read(runs[0][0], runs[0][1], self._sources)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(BLOCK_THREADS, "corgipile-reader")
        for at in range(0, len(runs), BLOCK_THREADS):
            part = runs[at : at + BLOCK_THREADS]
            yield from self._pool.map(lambda run: self._table.read(run[0], run[1], self._sources), part)

    def close(self) -> None:
        """End threads."""
        self.rest()

    def rest(self) -> None:
        """End threads until the next reading."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
