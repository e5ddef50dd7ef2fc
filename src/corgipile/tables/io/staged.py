"""Parts of an object that lies elsewhere, fetched before they are decoded: into memory, or to the local disk."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.tables.io.files import File, IntArray
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.spill import SpillFile, SpillWriter, nameless, writing

__all__ = ["Fetched", "fetched", "one_ahead", "staged"]

SLICE, SLICES = 1 << 20, 12  # bytes of a request, and how many of them are on their way
LEAST_GAP = 1 << 20  # bytes that are not worth a request more
Key = TypeVar("Key")
Value = TypeVar("Value")
Ranges = tuple[IntArray, IntArray]  # offsets and lengths


class Fetched(File):
    """An object of which some ranges are in memory; the others are read where it lies.

    Args:
        file: The object.
        offsets: Where the ranges begin, ascending.
        data: Their bytes.
    """

    def __init__(self, file: RemoteFile, offsets: IntArray, data: Sequence[npt.NDArray[np.uint8]]) -> None:
        self.__dict__.update(file.__dict__)
        self._file, self._offsets, self._data = file, offsets, data

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        at = int(np.searchsorted(self._offsets, offset, side="right")) - 1
        begin = offset - int(self._offsets[at]) if at >= 0 else -1
        if begin < 0 or begin + length > len(self._data[at]):
            return self._file.read(offset, length)
        return self._data[at][begin : begin + length].tobytes()


def fetched(file: RemoteFile, ranges: Ranges) -> Fetched:
    """Fetch ranges into memory, all at once."""
    offsets, lengths = _joined(ranges)
    data = file.gather(offsets, lengths)
    return Fetched(file, offsets, np.split(data, np.cumsum(lengths)[:-1]))


def staged(file: RemoteFile, ranges: Ranges, folder: Path) -> SpillFile:
    """Fetch ranges to a file without a name, where they lie as they do in the object, with holes between.

    Raises:
        WriteFailed: The disk is full.
    """
    offsets, lengths = _joined(ranges)
    with writing(folder):
        local = SpillFile(nameless(folder))
        os.truncate(local.descriptor, file.size)
    for at, data in _slices(file, offsets, lengths):
        with writing(folder):
            done = 0
            while done < len(data):
                done += os.pwrite(local.descriptor, data[done:], at + done)
    return local


def copied(file: RemoteFile, gaps: IntArray, out: SpillWriter) -> None:
    """Copy an object to a spill file, each byte to the place that it has there; what is left out is zeros.

    Args:
        file: The object.
        gaps: Where bytes are that nobody reads, int64[n, 2]: first, and after the last; ascending.
        out: The spill file.
    """
    gaps = gaps[gaps[:, 1] - gaps[:, 0] >= LEAST_GAP]
    starts, stops = np.append(0, gaps[:, 1]), np.append(gaps[:, 0], file.size)
    for at, data in _slices(file, starts, stops - starts):
        out.skip(at - out.tell())
        out.write(data)
    out.skip(file.size - out.tell())


def _slices(file: RemoteFile, offsets: IntArray, lengths: IntArray) -> Iterator[tuple[int, memoryview]]:
    """Fetch ranges that ascend; yield them in parts, some of which are on their way meanwhile."""
    parts = [
        (at, min(SLICE, offset + length - at))
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
        for at in range(offset, offset + length, SLICE)
    ]
    coming: deque[tuple[int, Future[npt.NDArray[np.uint8]]]] = deque()
    with ThreadPoolExecutor(SLICES, "corgipile-fetch") as pool:
        for at, size in parts:
            coming.append((at, pool.submit(file.gather, np.array([at]), np.array([size]))))
            if len(coming) == SLICES:
                first, found = coming.popleft()
                yield first, found.result().data
        for first, found in coming:
            yield first, found.result().data


def _joined(ranges: Ranges) -> Ranges:
    """Join ranges that touch."""
    order = np.argsort(ranges[0], kind="stable")
    offsets, ends = ranges[0][order], (ranges[0] + ranges[1])[order]
    reach = np.maximum.accumulate(ends)
    fresh = np.append(True, offsets[1:] > reach[:-1])[: len(offsets)]
    firsts = np.flatnonzero(fresh)
    lasts = np.append(firsts[1:] - 1, len(offsets) - 1)[: len(firsts)]
    return offsets[firsts], reach[lasts] - offsets[firsts]


def one_ahead(keys: Sequence[Key], make: Callable[[Key], Value]) -> Iterator[tuple[Key, Value]]:
    """Make a value for each key, one while the one before is in use.

    Example:
        >>> list(one_ahead([1, 2], lambda key: 10 * key))
        [(1, 10), (2, 20)]
    """
    with ThreadPoolExecutor(1, "corgipile-fetch") as pool:
        coming: Future[Value] | None = pool.submit(make, keys[0]) if keys else None
        for at, key in enumerate(keys):
            assert coming is not None  # noqa: S101 - there is a key
            value = coming.result()
            coming = pool.submit(make, keys[at + 1]) if at + 1 < len(keys) else None
            yield key, value
            del value
