"""Measurement of a device's or bucket's read rates, past all caches."""

import contextlib
import errno
import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import CorgiPileError
from corgipile.planner.places import place_of
from corgipile.planner.probe import Cell, Probe
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.sources import files_read
from corgipile.tables.table import Table, type_code

__all__ = ["measure_rates"]

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 4 * KIB, 256 * KIB, MIB, 16 * KIB, 4 * MIB, 16 * MIB)  # bytes per read, the most important first:
DEPTHS = (4, 32, 1, 16, 64)  # a slow device has no time for all
RUN_SIZES, RUN_DEPTHS = (256 * KIB, MIB, 4 * MIB), (4, 1)  # bytes and depths of sequential reads
MAX_ROUND_BYTES = 64 * MIB  # bytes of a round of reads at most
MIN_FILE_BYTES = 32 * MIB  # bytes of files at least, to exceed the device's own caches
SECONDS = 3.0
MIN_ROUND_SECONDS, MAX_ROUND_READS = 0.02, 4096  # seconds of a round of reads at least; reads per round at most
PAGE = 4 * KIB  # alignment of O_DIRECT
MIN_GAP_PAGES = 16  # pages between random reads at least
MAX_FILES = 16  # files of a table that are read at most
REMOTE_SIZES, REMOTE_DEPTHS = (MIB, 16 * KIB, 256 * KIB, 4 * MIB), (48, 8, 1)
URGENT = True  # the caller waits for the reads
MAX_REQUESTS, MAX_REQUEST_BYTES = 300, 96 * MIB  # requests and bytes of a bucket's probe at most

Plan = tuple[int, int, bool]  # bytes per read, reads in flight, whether sequential


class Source(Protocol):
    """Source of reads; ``plans`` are measurements, the most important first."""

    plans: list[Plan]

    def read(self, plan: Plan, count: int) -> int:
        """Read ``count`` times and return the bytes; 0 once the limit is reached."""


def measure_rates(table: Table, seconds: float = SECONDS) -> Probe | None:
    """Read a table's files at random for a few seconds, without writing or warming a cache.

    Files are read past the page cache (``O_DIRECT``); if that is unsupported their pages are dropped before each read.
    A bucket gets at most 300 requests, of 96 MB in all. Return None for tables in memory, small ones, and unreadable
    ones.

    Example:
        >>> from corgipile.tables import open
        >>> measure_rates(open({"x": [1.0]})) is None
        True
    """
    files = [file for file in files_read(table) if isinstance(file, File)]
    remote = [file for file in files if isinstance(file, RemoteFile)]
    chosen = sorted(remote or files, key=lambda file: -file.size)[:MAX_FILES]
    place = place_of(table)
    if place is None or sum(file.size for file in chosen) < MIN_FILE_BYTES:
        return None
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, CorgiPileError):
        source: Source = _Bucket(remote[:MAX_FILES]) if remote else _Device(chosen, stack)
        cells = tuple(_cells(source, seconds))
        return Probe(place, time.time(), _make_monotonic(cells)) if cells else None
    return None


def _cells(source: Source, seconds: float) -> Iterator[Cell]:
    """Yield the rates that can be measured in the time."""
    stop = time.perf_counter() + seconds
    for at, plan in enumerate(source.plans):
        left = stop - time.perf_counter()
        rate = _rate(source, plan, left / (len(source.plans) - at)) if left > 0 else 0.0
        if not rate:
            return
        yield Cell(plan[0], plan[1], rate, plan[2])


def _make_monotonic(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return rates made monotonic in size and depth: a lower rate means that another program read meanwhile.

    Example:
        >>> [cell.rate for cell in _make_monotonic((Cell(4096, 1, 2.0), Cell(8192, 1, 1.0)))]
        [2.0, 2.0]
    """

    def covers(cell: Cell, other: Cell) -> bool:
        smaller = other.nbytes <= cell.nbytes and other.at_once <= cell.at_once
        return smaller and other.sequential == cell.sequential

    return tuple(cell._replace(rate=max(other.rate for other in cells if covers(cell, other))) for cell in cells)


def _rate(source: Source, plan: Plan, seconds: float) -> float:
    """Read for about ``seconds``, at least once; return bytes per second, 0.0 once the limit is reached."""
    start, done, count = time.perf_counter(), 0, 2 * plan[1]
    while True:
        got = source.read(plan, count)
        done, spent = done + got, time.perf_counter() - start
        if spent >= seconds or not got:
            return done / spent
        cost = plan[0] * spent / done
        left = min(seconds - spent, max(MIN_ROUND_SECONDS, 4 * plan[1] * cost))
        count = max(plan[1], min(int(left / cost), MAX_ROUND_READS))


class _Device:
    """Local files, read past the page cache by the kernel's reader threads."""

    def __init__(self, files: list[File], stack: contextlib.ExitStack) -> None:
        self.plans: list[Plan] = [
            *((size, depth, False) for depth in DEPTHS for size in SIZES if size * depth <= MAX_ROUND_BYTES),
            *((size, depth, True) for depth in RUN_DEPTHS for size in RUN_SIZES),
        ]
        self._direct, self._random, self._next = True, np.random.default_rng(), 0
        opened = [self._open(file.path, stack) for file in files]
        self._fds = np.array(opened, np.int32)
        self._pages = [file.size // PAGE for file in files]
        self._starts = np.concatenate([[0], np.cumsum(self._pages)]).astype(np.int64)
        room = np.frombuffer(mmap.mmap(-1, 2 * MAX_ROUND_BYTES), np.uint8)  # aligned, and unmapped when released
        self._rows = room.reshape(-1, PAGE)
        self._readers: dict[int, object] = {}

    def _open(self, path: str | os.PathLike[str], stack: contextlib.ExitStack) -> int:
        """Open a file past the page cache, if its file system supports that."""
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags | os.O_DIRECT)
        except (OSError, AttributeError):
            self._direct, descriptor = False, os.open(path, flags)
        stack.callback(os.close, descriptor)
        return descriptor

    def _reader(self, threads: int) -> object:
        if threads not in self._readers:
            reader = _kernel.reader_new(threads, len(self._rows), int(self._starts[-1]), ())
            kind = type_code(np.dtype(np.uint8))
            offsets = np.zeros(len(self._fds), np.int64)
            _kernel.reader_column(
                reader, self._starts, offsets, self._fds, self._rows,
                at=0, stride=PAGE, items=PAGE, from_type=kind, to_type=kind,
            )  # fmt: skip
            self._readers[threads] = reader
        return self._readers[threads]

    def read(self, plan: Plan, count: int) -> int:
        """Read ``count`` times, or as often as memory allows."""
        nbytes, at_once, sequential = plan
        pages = nbytes // PAGE
        begins = self._places(pages, min(count, len(self._rows) // pages), sequential)
        count = len(begins)
        extents = np.stack([begins, begins + pages], axis=1)
        into = np.arange(count * pages, dtype=np.int32)
        if not self._direct:
            self._drop(extents)
        failure = _kernel.reader_read(self._reader(at_once), extents, into, None, URGENT)
        if failure is not None:
            raise OSError(failure[0], os.strerror(failure[0]))
        return count * nbytes

    def _places(self, pages: int, count: int, sequential: bool) -> npt.NDArray[np.int64]:
        """Return the first pages of reads, each within one file; random reads are too distant to be merged."""
        wide = np.array([max(0, have - pages + 1) for have in self._pages])
        if not wide.any():
            raise OSError(errno.EINVAL, "files are too small to read")
        if sequential:
            self._next += count * pages
            file = int(np.argmax(wide))
            at = (self._next + pages * np.arange(count)) % wide[file]
            return np.asarray(self._starts[file] + at)
        ends = np.cumsum(wide)
        count = max(1, min(count, int(ends[-1] // (2 * (pages + MIN_GAP_PAGES)))))
        at = ((self._random.permutation(count) + self._random.random(count) / 2) * (ends[-1] / count)).astype(np.int64)
        file = np.searchsorted(ends, at, side="right")
        return np.asarray(self._starts[file] + at - (ends - wide)[file])

    def _drop(self, extents: npt.NDArray[np.int64]) -> None:
        """Drop pages from the page cache, if reads cannot bypass it."""
        for first, last in extents.tolist():
            file = int(np.searchsorted(self._starts, first, side="right")) - 1
            os.posix_fadvise(
                int(self._fds[file]), (first - int(self._starts[file])) * PAGE, (last - first) * PAGE,
                os.POSIX_FADV_DONTNEED,
            )  # fmt: skip


class _Bucket:
    """Open objects of a store."""

    def __init__(self, files: list[RemoteFile]) -> None:
        self.plans: list[Plan] = [(size, depth, False) for depth in REMOTE_DEPTHS for size in REMOTE_SIZES]
        self._files, self._random = files, np.random.default_rng()
        self._requests, self._bytes = MAX_REQUESTS, MAX_REQUEST_BYTES

    def read(self, plan: Plan, count: int) -> int:
        """Send ``count`` requests, or as many as the limits allow."""
        nbytes, at_once, _ = plan
        count = min(count, self._requests, self._bytes // nbytes)
        if count < 1:
            return 0
        self._requests, self._bytes = self._requests - count, self._bytes - count * nbytes
        requests = [self._place(nbytes) for _ in range(count)]
        with ThreadPoolExecutor(at_once, "corgipile-probe") as pool:
            return sum(pool.map(lambda request: len(request[0].whole(*request[1:])), requests))

    def _place(self, nbytes: int) -> tuple[RemoteFile, int, int]:
        file = self._files[int(self._random.integers(len(self._files)))]
        length = min(nbytes, file.size)
        at = int(self._random.integers(file.size - length + 1))
        return file, at, at + length
