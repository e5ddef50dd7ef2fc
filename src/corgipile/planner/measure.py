"""Measures how fast what holds a table is read, past all caches."""

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

__all__ = ["measured"]

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 4 * KIB, 256 * KIB, MIB, 16 * KIB, 4 * MIB, 16 * MIB)  # those that matter most come first:
AT_ONCE = (4, 32, 1, 16, 64)  # a slow device has no time for all
RUNS, RUNS_AT_ONCE = (256 * KIB, MIB, 4 * MIB), (4, 1)  # of what is read as it lies
IN_FLIGHT = 64 * MIB  # bytes at most, which are memory
LEAST = 32 * MIB  # bytes of files below which a device is not told from the caches inside it
SECONDS = 3.0
ROUND, MOST_ROUND = 0.02, 4096  # seconds of reads that are asked for together, and how many
PAGE = 4 * KIB  # what O_DIRECT aligns to
APART = 16  # pages between reads
FILES = 16  # of a table, that are read
REMOTE_SIZES, REMOTE_AT_ONCE = (MIB, 16 * KIB, 256 * KIB, 4 * MIB), (48, 8, 1)
HURRY = True  # who reads waits for it
REQUESTS, REQUEST_BYTES = 300, 96 * MIB  # that a probe of a bucket costs at most

Plan = tuple[int, int, bool]  # bytes of a read, reads at a time, whether they follow each other


class Asked(Protocol):
    """What is read from.

    Attributes:
        plans: What is to be measured, what matters most first.
    """

    plans: list[Plan]

    def read(self, plan: Plan, count: int) -> int:
        """Read so many times, return the bytes; 0: enough was read."""


def measured(table: Table, seconds: float = SECONDS) -> Probe | None:
    """Read here and there in the files of a table for a few seconds; nothing is written, no cache is warmed.

    Files are read past the page cache (``O_DIRECT``); where that cannot be, their pages are dropped before each read.
    Of a bucket 300 requests of 96 MB in all are sent at most.

    Returns:
        The rates; None for tables in memory, small ones, and those of which nothing can be read so.

    Example:
        >>> from corgipile.tables import open
        >>> measured(open({"x": [1.0]})) is None
        True
    """
    files = [file for file in files_read(table) if isinstance(file, File)]
    remote = [file for file in files if isinstance(file, RemoteFile)]
    chosen = sorted(remote or files, key=lambda file: -file.size)[:FILES]
    place = place_of(table)
    if place is None or sum(file.size for file in chosen) < LEAST:
        return None
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, CorgiPileError):
        asked: Asked = _Bucket(remote[:FILES]) if remote else _Device(chosen, stack)
        cells = tuple(_cells(asked, seconds))
        return Probe(place, time.time(), _steady(cells)) if cells else None
    return None


def _cells(asked: Asked, seconds: float) -> Iterator[Cell]:
    """Yield what can be measured in the time."""
    stop = time.perf_counter() + seconds
    for at, plan in enumerate(asked.plans):
        left = stop - time.perf_counter()
        rate = _rate(asked, plan, left / (len(asked.plans) - at)) if left > 0 else 0.0
        if not rate:
            return
        yield Cell(plan[0], plan[1], rate, plan[2])


def _steady(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return rates that do not fall where reads are larger, or more at a time: another program read meanwhile.

    Example:
        >>> [cell.rate for cell in _steady((Cell(4096, 1, 2.0), Cell(8192, 1, 1.0)))]
        [2.0, 2.0]
    """
    return tuple(
        one._replace(
            rate=max(
                other.rate
                for other in cells
                if other.nbytes <= one.nbytes and other.at_once <= one.at_once and other.sequential == one.sequential
            )
        )
        for one in cells
    )


def _rate(asked: Asked, plan: Plan, seconds: float) -> float:
    """Read for about so long, once at least; return bytes a second, 0.0 where it was enough before."""
    start, done, count = time.perf_counter(), 0, 2 * plan[1]
    while True:
        got = asked.read(plan, count)
        done, spent = done + got, time.perf_counter() - start
        if spent >= seconds or not got:
            return done / spent
        each = plan[0] * spent / done
        count = max(plan[1], min(int(min(seconds - spent, max(ROUND, 4 * plan[1] * each)) / each), MOST_ROUND))


class _Device:
    """Files of this machine, read by the threads that loaders read with, past the page cache.

    Args:
        files: Some, of one device.
        stack: Closes them.
    """

    def __init__(self, files: list[File], stack: contextlib.ExitStack) -> None:
        self.plans: list[Plan] = [
            *((size, depth, False) for depth in AT_ONCE for size in SIZES if size * depth <= IN_FLIGHT),
            *((size, depth, True) for depth in RUNS_AT_ONCE for size in RUNS),
        ]
        self._direct, self._random, self._next = True, np.random.default_rng(), 0
        opened = [self._open(file.path, stack) for file in files]
        self._fds = np.array(opened, np.int32)
        self._pages = [file.size // PAGE for file in files]
        self._starts = np.concatenate([[0], np.cumsum(self._pages)]).astype(np.int64)
        room = np.frombuffer(mmap.mmap(-1, 2 * IN_FLIGHT), np.uint8)  # aligned, and returned when it is let go
        self._rows = room.reshape(-1, PAGE)
        self._readers: dict[int, object] = {}

    def _open(self, path: str | os.PathLike[str], stack: contextlib.ExitStack) -> int:
        """Open a file past the page cache, if its file system can."""
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
        """Read so many times, as far as there is memory for it."""
        nbytes, at_once, sequential = plan
        pages = nbytes // PAGE
        begins = self._places(pages, min(count, len(self._rows) // pages), sequential)
        count = len(begins)
        extents = np.stack([begins, begins + pages], axis=1)
        into = np.arange(count * pages, dtype=np.int32)
        if not self._direct:
            self._drop(extents)
        failure = _kernel.reader_read(self._reader(at_once), extents, into, None, HURRY)
        if failure is not None:
            raise OSError(failure[0], os.strerror(failure[0]))
        return count * nbytes

    def _places(self, pages: int, count: int, sequential: bool) -> npt.NDArray[np.int64]:
        """Return the first pages of reads, each within one file; random ones lie so far apart that none are joined."""
        wide = np.array([max(0, have - pages + 1) for have in self._pages])
        if not wide.any():
            raise OSError(errno.EINVAL, "files are too small")
        if sequential:
            self._next += count * pages
            file = int(np.argmax(wide))
            at = (self._next + pages * np.arange(count)) % wide[file]
            return np.asarray(self._starts[file] + at)
        ends = np.cumsum(wide)
        count = max(1, min(count, int(ends[-1] // (2 * (pages + APART)))))
        at = ((self._random.permutation(count) + self._random.random(count) / 2) * (ends[-1] / count)).astype(np.int64)
        file = np.searchsorted(ends, at, side="right")
        return np.asarray(self._starts[file] + at - (ends - wide)[file])

    def _drop(self, extents: npt.NDArray[np.int64]) -> None:
        """Let go of pages in the page cache, where reading cannot pass it."""
        for first, last in extents.tolist():
            file = int(np.searchsorted(self._starts, first, side="right")) - 1
            os.posix_fadvise(
                int(self._fds[file]), (first - int(self._starts[file])) * PAGE, (last - first) * PAGE,
                os.POSIX_FADV_DONTNEED,
            )  # fmt: skip


class _Bucket:
    """Objects of a store.

    Args:
        files: Some, open.
    """

    def __init__(self, files: list[RemoteFile]) -> None:
        self.plans: list[Plan] = [(size, depth, False) for depth in REMOTE_AT_ONCE for size in REMOTE_SIZES]
        self._files, self._random = files, np.random.default_rng()
        self._requests, self._bytes = REQUESTS, REQUEST_BYTES

    def read(self, plan: Plan, count: int) -> int:
        """Send so many requests, as far as they are allowed."""
        nbytes, at_once, _ = plan
        count = min(count, self._requests, self._bytes // nbytes)
        if count < 1:
            return 0
        self._requests, self._bytes = self._requests - count, self._bytes - count * nbytes
        asked = [self._place(nbytes) for _ in range(count)]
        with ThreadPoolExecutor(at_once, "corgipile-probe") as pool:
            return sum(pool.map(lambda one: len(one[0].whole(*one[1:])), asked))

    def _place(self, nbytes: int) -> tuple[RemoteFile, int, int]:
        file = self._files[int(self._random.integers(len(self._files)))]
        length = min(nbytes, file.size)
        at = int(self._random.integers(file.size - length + 1))
        return file, at, at + length
