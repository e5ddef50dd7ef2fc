"""Pages of one object in a cache's folder, each with its CRC-32C.

Each file has the pages of a stretch of the object, with holes for those that are not there, behind a table of eight
bytes a page: its CRC-32C and a mark that tells object and page. A page counts once its entry is written, after its
bytes; what does not match its entry (a write that was cut short, a bit that flipped, a file cut off) is not there.
So there is nothing to repair after a crash, and two processes may write the same page at once: they write the same.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.stores.cache_folder import TOUCH
from corgipile.stores.ranges import IntArray

__all__ = ["PAGE", "Pages", "runs"]

PAGE = 1 << 14  # bytes: what blocks of 64 KB and more overlap at their ends is little
SEGMENT = 1 << 10  # pages of a file: what is deleted at a time
TABLE = SEGMENT * 8
BLOCK = 1 << 12  # bytes that file systems give at a time
AT_ONCE = 64  # pages read at a time, as many as a CPU's cache holds
THREADS = 32
LOW = (1 << 32) - 1

Bytes = npt.NDArray[np.uint8]


class Pages:
    """Reads and writes pages of one object.

    Args:
        folder: Where the files lie.
        key: What tells objects apart: hexadecimal digits, 8 at least.
        size: Bytes of the object.

    Example:
        >>> import tempfile
        >>> pages = Pages(Path(tempfile.mkdtemp()), "0123456789abcdef", 20_000)
        >>> data = np.arange(20_000).astype(np.uint8)
        >>> pages.write(np.array([0, 1]), data)
        >>> take = lambda which, found: print(which, (found[:20_000] == data).all())
        >>> pages.read(np.array([0, 1]), take)
        [0 1] True
        array([], dtype=int64)
    """

    def __init__(self, folder: Path, key: str, size: int) -> None:
        self._prefix, self._size = f"{folder}/{key}-", size
        self._mark = int(key[:8], 16)

    def lengths(self, pages: IntArray) -> IntArray:
        """Return the bytes of each page; the last one of an object may be short."""
        return np.minimum(self._size - pages * PAGE, PAGE)

    def room_for(self, pages: IntArray) -> int:
        """Return the bytes that pages need at most on the disk, with what is beside them."""
        return int((-(-self.lengths(pages) // BLOCK) * BLOCK).sum()) + TABLE * len([*_stretches(pages)])

    def read(self, pages: IntArray, take: Callable[[IntArray, Bytes], None]) -> IntArray:
        """Hand over pages that are there and sound, some at a time.

        Args:
            pages: Their numbers, ascending.
            take: Called with numbers in ``pages`` and the bytes of these pages, back to back, valid until it returns.

        Returns:
            The numbers in ``pages`` of those that are missing.
        """
        missing = [np.arange(0)]
        scratch = np.empty(min(len(pages), AT_ONCE) * PAGE, np.uint8)
        for first, last in _stretches(pages):
            sound = np.zeros(last - first, np.bool_)
            with contextlib.suppress(OSError), self._opened(int(pages[first]), os.O_RDONLY) as file:
                _touch(file)
                entries = _entries(file, pages[first:last])
                there = ((entries & np.uint64(LOW)) == self._marks(pages[first:last])).nonzero()[0]
                for at in range(0, len(there), AT_ONCE):
                    some = there[at : at + AT_ONCE]
                    good = some[self._sound(file, pages[first + some], entries[some] >> np.uint64(32), scratch)]
                    sound[good] = True
                    if len(good) < len(some):  # bring those that are sound together
                        _squeeze(scratch, np.isin(some, good))
                    take(first + good, scratch)
            missing.append(first + (~sound).nonzero()[0])
        return np.concatenate(missing)

    def write(self, pages: IntArray, data: Bytes) -> None:
        """Write pages whose bytes lie back to back.

        Raises:
            OSError: The system cannot; what was written stays.
        """
        lengths = self.lengths(pages)
        starts = np.cumsum(lengths) - lengths
        sums = np.empty(len(pages), np.uint32)
        _kernel.crc32c_ranges(data, starts, lengths, sums)
        entries = sums.astype(np.uint64) << np.uint64(32) | self._marks(pages)
        for first, last in _stretches(pages):
            with self._opened(int(pages[first]), os.O_RDWR | os.O_CREAT) as file:
                for begin, end in runs(pages[first:last]):
                    i, j = first + begin, first + end
                    inside = int(pages[i]) % SEGMENT
                    _write(file, data[starts[i] : starts[j - 1] + lengths[j - 1]], TABLE + inside * PAGE)
                    _write(file, entries[i:j].view(np.uint8), inside * 8)

    @contextlib.contextmanager
    def _opened(self, page: int, flags: int) -> Iterator[int]:
        """Open the file that a page is in."""
        file = os.open(f"{self._prefix}{page // SEGMENT:x}", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _marks(self, pages: IntArray) -> npt.NDArray[np.uint64]:
        marks = pages * 0x9E3779B1 + self._mark | 1  # pages are fewer than 2^31: no overflow
        return (marks & LOW).astype(np.uint64)

    def _sound(self, file: int, pages: IntArray, sums: npt.NDArray[np.uint64], out: Bytes) -> npt.NDArray[np.bool_]:
        """Read pages, and say which of them have the sum that they should."""
        ends = [*runs(pages)]
        firsts = np.array([first for first, _ in ends], np.int64)
        lengths = self.lengths(pages)
        bytes_each = np.add.reduceat(lengths, firsts)
        offsets = TABLE + pages[firsts] % SEGMENT * PAGE
        if _kernel.read_ranges(file, offsets, bytes_each, firsts * PAGE, out, THREADS) is not None:
            return np.zeros(len(pages), np.bool_)
        found = np.empty(len(pages), np.uint32)
        _kernel.crc32c_ranges(out, np.arange(len(pages)) * PAGE, lengths, found)
        return np.equal(found, sums)


def runs(pages: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first and last (not included) of the numbers of pages that follow each other.

    Example:
        >>> list(runs(np.array([3, 4, 7])))
        [(0, 2), (2, 3)]
    """
    return _between(pages[1:] - pages[:-1] != 1, len(pages))


def _stretches(pages: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first and last (not included) of the numbers of pages in one file."""
    files = pages // SEGMENT
    return _between(files[1:] != files[:-1], len(pages))


def _between(ends: npt.NDArray[np.bool_], count: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``count`` numbers that end where it is said, and at the last one."""
    marks = [0, *(ends.nonzero()[0] + 1).tolist(), count]
    return ((first, last) for first, last in itertools.pairwise(marks) if first < last)


def _entries(file: int, pages: IntArray) -> npt.NDArray[np.uint64]:
    """Read the entries of pages of one file, 0 where the file is short."""
    first, last = int(pages[0]) % SEGMENT, int(pages[-1]) % SEGMENT + 1
    data = os.pread(file, (last - first) * 8, first * 8)
    return np.frombuffer(data.ljust((last - first) * 8, b"\0"), np.uint64)[pages % SEGMENT - first]


def _squeeze(scratch: Bytes, good: npt.NDArray[np.bool_]) -> None:
    """Move the good ones of pages in memory to the front."""
    pages = scratch[: len(good) * PAGE].reshape(-1, PAGE)
    pages[: int(good.sum())] = pages[: len(good)][good]


def _touch(file: int) -> None:
    """Note, from time to time, that a file is used."""
    if time.time() - os.fstat(file).st_mtime > TOUCH:
        os.utime(file)


def _write(file: int, data: Bytes, at: int) -> None:
    view = memoryview(data.data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
