"""Opened objects in stores: their size, ETag, and reads of ranges."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.stores.buckets import Stated, bucket_of
from corgipile.stores.line import line
from corgipile.stores.plan import plan
from corgipile.stores.ranges import IntArray, Ranges
from corgipile.stores.requests import Ask, Renew, answered, fetch
from corgipile.urls import RemotePath

__all__ = ["TAIL", "ObjectRanges", "check_inside", "open_object"]

TAIL = 64 << 10  # bytes at the end that come with the opening: most formats store their layout there
OPENING = 8.0  # seconds for which opening is retried: the address may be wrong


def open_object(path: RemotePath) -> tuple["ObjectRanges", bytes]:
    """Open an object by one request; return it and its last bytes.

    Raises:
        MissingFile: The object does not exist.
        ReadFailed: The store refuses, or does not answer.
    """
    found: list[tuple[memoryview, Stated]] = []

    requester, (bucket, key) = line(), bucket_of(path)

    async def ask(_start: int, _stop: int) -> memoryview:
        found.append(await bucket.tail(key, path, TAIL))
        return memoryview(b"")

    requester.run(answered(requester, path, ask, 0, 0, bucket.renew, OPENING))
    tail, stated = found[0]
    if len(tail) != min(TAIL, stated.size):
        raise CorruptFile(f"{path}: its last {min(TAIL, stated.size)} bytes were requested, {len(tail)} came")
    return ObjectRanges(path, stated), bytes(tail)


class ObjectRanges:
    """Reads ranges of an object through obstore; see `corgipile.stores.ranges.Ranges`.

    Args:
        path: Its location.
        stated: Its metadata when it was opened.
    """

    def __init__(self, path: RemotePath, stated: Stated) -> None:
        self.path, self._stated = path, stated

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectRanges, (self.path, self._stated)

    def __repr__(self) -> str:
        return f"ObjectRanges({str(self.path)!r})"

    @property
    def url(self) -> str:
        """Return its URL, without credentials."""
        return self.path

    @property
    def size(self) -> int:
        """Return its bytes."""
        return self._stated.size

    @property
    def etag(self) -> str:
        """Return its ETag, empty if the store sends none."""
        return self._stated.strong

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``."""
        check_inside(self, offsets, lengths)
        requester, (ask, renew) = line(), self._asking()
        requester.run(fetch(requester, self.path, ask, plan(offsets, lengths, to, requester.times.latency), out, renew))

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request."""
        check_inside(self, np.array([start]), np.array([stop - start]))
        requester, (ask, renew) = line(), self._asking()
        return np.frombuffer(requester.run(answered(requester, self.path, ask, start, stop, renew)), np.uint8)

    def _asking(self) -> tuple[Ask, Renew]:
        """Return the functions that request bytes and reload credentials."""
        bucket, key = bucket_of(self.path)

        async def ask(start: int, stop: int) -> memoryview:
            return await bucket.ask(key, self.path, start, stop, self._stated)

        return ask, bucket.renew


def check_inside(ranges: Ranges, offsets: IntArray, lengths: IntArray) -> None:
    """Raise CorruptFile unless an object contains all requested bytes."""
    if not len(offsets):
        return
    wrong = (offsets < 0) | (lengths < 0) | (offsets > ranges.size - lengths)
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise CorruptFile(
            f"{ranges.url}: bytes {offsets[bad]} to {offsets[bad] + lengths[bad]} are needed, but it has {ranges.size}"
        )
