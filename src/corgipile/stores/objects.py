"""Objects in stores, opened: their size and what tells their state, and reads of their ranges."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.stores.buckets import Stated, bucket_of
from corgipile.stores.line import line
from corgipile.stores.plan import plan
from corgipile.stores.ranges import IntArray, Ranges
from corgipile.stores.requests import Ask, Renew, answered, fetch
from corgipile.stores.urls import RemotePath

__all__ = ["TAIL", "ObjectRanges", "check_inside", "open_object"]

TAIL = 64 << 10  # bytes at the end that come with the opening: most formats say there where things lie
OPENING = 8.0  # seconds for which an opening is tried: an address may be wrong


def open_object(path: RemotePath) -> tuple["ObjectRanges", bytes]:
    """Open an object by one request; return it, and its last bytes.

    Raises:
        MissingFile: There is none.
        ReadFailed: The store refuses, or does not answer.
    """
    found: list[tuple[memoryview, Stated]] = []

    mine, (bucket, key) = line(), bucket_of(path)

    async def ask(_start: int, _stop: int) -> memoryview:
        found.append(await bucket.tail(key, path, TAIL))
        return memoryview(b"")

    mine.run(answered(mine, path, ask, 0, 0, bucket.renew, OPENING))
    tail, stated = found[0]
    if len(tail) != min(TAIL, stated.size):
        raise CorruptFile(f"{path}: its last {min(TAIL, stated.size)} bytes were asked for, {len(tail)} came")
    return ObjectRanges(path, stated), bytes(tail)


class ObjectRanges:
    """Reads ranges of an object through obstore; see `corgipile.stores.ranges.Ranges`.

    Args:
        path: Where it lies.
        stated: What the store said of it when it was opened.
    """

    def __init__(self, path: RemotePath, stated: Stated) -> None:
        self.path, self._stated = path, stated

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectRanges, (self.path, self._stated)

    def __repr__(self) -> str:
        return f"ObjectRanges({str(self.path)!r})"

    @property
    def url(self) -> str:
        """Return where it lies, without credentials."""
        return self.path

    @property
    def size(self) -> int:
        """Return its bytes."""
        return self._stated.size

    @property
    def etag(self) -> str:
        """Return its ETag, empty where the store gives none."""
        return self._stated.strong

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``."""
        check_inside(self, offsets, lengths)
        mine, (ask, renew) = line(), self._asking()
        mine.run(fetch(mine, self.path, ask, plan(offsets, lengths, to, mine.times.latency), out, renew))

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request."""
        check_inside(self, np.array([start]), np.array([stop - start]))
        mine, (ask, renew) = line(), self._asking()
        return np.frombuffer(mine.run(answered(mine, self.path, ask, start, stop, renew)), np.uint8)

    def _asking(self) -> tuple[Ask, Renew]:
        """Return what asks for bytes, and what looks for credentials anew."""
        bucket, key = bucket_of(self.path)

        async def ask(start: int, stop: int) -> memoryview:
            return await bucket.ask(key, self.path, start, stop, self._stated)

        return ask, bucket.renew


def check_inside(ranges: Ranges, offsets: IntArray, lengths: IntArray) -> None:
    """Raise CorruptFile unless an object has all bytes that are asked for."""
    if not len(offsets):
        return
    wrong = (offsets < 0) | (lengths < 0) | (offsets > ranges.size - lengths)
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise CorruptFile(
            f"{ranges.url}: bytes {offsets[bad]} to {offsets[bad] + lengths[bad]} are needed; it has {ranges.size}"
        )
