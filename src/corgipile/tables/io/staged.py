"""Fetches ranges of remote objects before they are decoded: into memory, or to the local disk."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corgipile.stores.ranges import Ranges as Remote
from corgipile.tables.io.arriving import WINDOW, Ranges, in_flight_of, joined, windows_of
from corgipile.tables.io.files import File, IntArray
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.shared_spill import expect_room, shared
from corgipile.tables.io.spill import Section, SpillFile, SpillWriter

__all__ = ["Fetched", "copy_object", "copy_to_spill", "fetch"]

MIN_SKIPPED_GAP = 1 << 20  # bytes; a shorter gap costs less than another request


class Fetched(File):
    """A remote object with some ranges in memory; the others are requested when read."""

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


def fetch(file: RemoteFile, ranges: Ranges, over: int = 0) -> Fetched:
    """Fetch ranges into memory at once, including gaps of at most ``over`` bytes between them."""
    offsets, lengths = joined(ranges, over)
    data = file.gather(offsets, lengths)
    return Fetched(file, offsets, np.split(data, np.cumsum(lengths)[:-1]))


def copy_object(file: RemoteFile, gaps: IntArray, out: SpillWriter) -> None:
    """Copy an object to a spill file at the same positions; skipped bytes read as zeros.

    ``gaps``: ascending ranges to skip, int64[n, 2].
    """
    gaps = gaps[gaps[:, 1] - gaps[:, 0] >= MIN_SKIPPED_GAP]
    starts, stops = np.append(0, gaps[:, 1]), np.append(gaps[:, 0], file.size)
    windows = iter(windows_of([(starts, stops - starts)], 2 * file.size).tolist())

    def copy(_: int) -> None:
        for start, stop in windows:
            out.put(start, file.whole(start, stop))

    threads = out.in_flight // WINDOW
    pool = ThreadPoolExecutor(threads, "corgipile-fetch")
    try:
        for future in [pool.submit(copy, number) for number in range(threads)]:
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    out.skip(file.size - out.tell())


def copy_to_spill(files: Sequence[RemoteFile], folder: Path, memory: int | None = None) -> None:
    """Copy objects to a spill file that the processes of this machine share; later reads use the copy.

    ``memory`` limits the bytes in flight.

    Raises:
        WriteFailed: The disk is too full, or the folder is not writable.
    """
    key = "\0".join(["copied", *(file.place for file in files)])
    expect_room(folder, key, sum(file.size for file in files))
    sections = shared(folder, key, lambda: _copy(files, folder, memory)).sections()
    for file, section in zip(files, sections, strict=True):
        file.ranges, file.near = _Near(file.ranges, section), True


def _copy(files: Sequence[RemoteFile], folder: Path, memory: int | None) -> SpillFile:
    with SpillWriter(folder, in_flight=in_flight_of(memory)) as out:
        for file in files:
            with out.section():
                copy_object(file, np.zeros((0, 2), np.int64), out)
        return out.finish()


class _Near:
    """The ranges of an object that has a local copy; see `corgipile.stores.ranges.Ranges`."""

    def __init__(self, ranges: Remote, local: Section) -> None:
        self.url, self.size, self.etag, self._local = ranges.url, ranges.size, ranges.etag, local

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges to their positions in ``out``."""
        self._local.gather(offsets, lengths, out, to)

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range."""
        return self._local.gather(np.array([start]), np.array([stop - start]))
