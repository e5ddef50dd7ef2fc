"""Pages of one object in a cache's folder, each with its CRC-32C.

Each file has the pages of a segment of the object, with holes for missing ones, after a table of eight bytes per
page: its CRC-32C and a mark of object and page. A page is valid once its entry is written, after its bytes. A page
that does not match its entry (an interrupted write, a flipped bit, a truncated file) counts as missing. So a crash
needs no repair, and two processes may write the same page at once: they write the same bytes.
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
from corgipile.stores.cache_folder import TOUCH_SECONDS
from corgipile.stores.ranges import IntArray

__all__ = ["PAGE", "Pages", "runs"]

PAGE = 1 << 14  # bytes; small compared with what blocks of 64 KB and more read beyond their ends
SEGMENT = 1 << 10  # pages per file, which are deleted together
TABLE = SEGMENT * 8
BLOCK_BYTES = 1 << 12  # allocation unit of file systems, in bytes
AT_ONCE = 64  # pages read at a time, as many as a CPU cache holds
THREADS = 32
LOW_32_BITS = (1 << 32) - 1

Bytes = npt.NDArray[np.uint8]


class Pages:
    """Reads and writes pages of one object.

    Args:
        folder: Folder of the files.
        key: Identifies the object: at least 8 hexadecimal digits.
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
        """Return the most disk space that pages need, including tables."""
        return int((-(-self.lengths(pages) // BLOCK_BYTES) * BLOCK_BYTES).sum()) + TABLE * len([*_stretches(pages)])

    def read(self, pages: IntArray, take: Callable[[IntArray, Bytes], None]) -> IntArray:
        """Pass on the pages that are present and valid, some at a time.

        Args:
            pages: Their numbers, ascending.
            take: Called with indices into ``pages`` and the bytes of these pages, contiguous and valid until it
                returns.

        Returns:
            The indices into ``pages`` of missing ones.
        """
        missing = [np.arange(0)]
        scratch = np.empty(min(len(pages), AT_ONCE) * PAGE, np.uint8)
        for first, last in _stretches(pages):
            sound = np.zeros(last - first, np.bool_)
            with contextlib.suppress(OSError), self._opened(int(pages[first]), os.O_RDONLY) as file:
                _touch(file)
                entries = _entries(file, pages[first:last])
                present = ((entries & np.uint64(LOW_32_BITS)) == self._marks(pages[first:last])).nonzero()[0]
                for at in range(0, len(present), AT_ONCE):
                    some = present[at : at + AT_ONCE]
                    valid = some[self._sound(file, pages[first + some], entries[some] >> np.uint64(32), scratch)]
                    sound[valid] = True
                    if len(valid) < len(some):  # move valid pages together
                        _squeeze(scratch, np.isin(some, valid))
                    take(first + valid, scratch)
            missing.append(first + (~sound).nonzero()[0])
        return np.concatenate(missing)

    def write(self, pages: IntArray, data: Bytes) -> None:
        """Write pages whose bytes are contiguous.

        Raises:
            OSError: The write failed; written pages stay.
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
        """Open the file of a page."""
        file = os.open(f"{self._prefix}{page // SEGMENT:x}", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _marks(self, pages: IntArray) -> npt.NDArray[np.uint64]:
        marks = pages * 0x9E3779B1 + self._mark | 1  # fewer than 2^31 pages: no overflow
        return (marks & LOW_32_BITS).astype(np.uint64)

    def _sound(self, file: int, pages: IntArray, sums: npt.NDArray[np.uint64], out: Bytes) -> npt.NDArray[np.bool_]:
        """Read pages, and return which of them match their checksums."""
        ends = [*runs(pages)]
        firsts = np.array([first for first, _ in ends], np.int64)
        lengths = self.lengths(pages)
        bytes_each = np.add.reduceat(lengths, firsts)
        offsets = TABLE + pages[firsts] % SEGMENT * PAGE
        if _kernel.read_ranges(file, offsets, bytes_each, firsts * PAGE, out, THREADS) is not None:
            return np.zeros(len(pages), np.bool_)
        checksums = np.empty(len(pages), np.uint32)
        _kernel.crc32c_ranges(out, np.arange(len(pages)) * PAGE, lengths, checksums)
        return np.equal(checksums, sums)


def runs(pages: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) index of adjacent page numbers.

    Example:
        >>> list(runs(np.array([3, 4, 7])))
        [(0, 2), (2, 3)]
    """
    return _between(pages[1:] - pages[:-1] != 1, len(pages))


def _stretches(pages: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) index of the pages in one file."""
    files = pages // SEGMENT
    return _between(files[1:] != files[:-1], len(pages))


def _between(ends: npt.NDArray[np.bool_], count: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``count`` numbers that end at the given positions and at the end."""
    marks = [0, *(ends.nonzero()[0] + 1).tolist(), count]
    return ((first, last) for first, last in itertools.pairwise(marks) if first < last)


def _entries(file: int, pages: IntArray) -> npt.NDArray[np.uint64]:
    """Read the entries of pages of one file, 0 beyond its end."""
    first, last = int(pages[0]) % SEGMENT, int(pages[-1]) % SEGMENT + 1
    data = os.pread(file, (last - first) * 8, first * 8)
    return np.frombuffer(data.ljust((last - first) * 8, b"\0"), np.uint64)[pages % SEGMENT - first]


def _squeeze(scratch: Bytes, valid: npt.NDArray[np.bool_]) -> None:
    """Move the valid pages in memory to the front."""
    pages = scratch[: len(valid) * PAGE].reshape(-1, PAGE)
    pages[: int(valid.sum())] = pages[: len(valid)][valid]


def _touch(file: int) -> None:
    """Update a file's access mark, from time to time."""
    if time.time() - os.fstat(file).st_mtime > TOUCH_SECONDS:
        os.utime(file)


def _write(file: int, data: Bytes, at: int) -> None:
    view = memoryview(data.data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
