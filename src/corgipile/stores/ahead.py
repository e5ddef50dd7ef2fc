"""Sequential reads of an object with prefetching."""

from concurrent.futures import Future  # noqa: TC003 - as elsewhere

import numpy as np
import numpy.typing as npt

from corgipile.stores.line import line
from corgipile.stores.ranges import Ranges

__all__ = ["Ahead"]

WINDOW_BYTES = 1 << 20  # size of one request
MAX_WINDOWS = 16  # requests in flight
Bytes = npt.NDArray[np.uint8]


class Ahead:
    """Reads an object, or ascending parts of it, sequentially; used by one thread.

    Args:
        ranges: The object.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._windows: dict[int, Future[Bytes]] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes within the object."""
        if not length:
            return b""
        first, last = offset // WINDOW_BYTES, (offset + length - 1) // WINDOW_BYTES
        for window in [window for window in self._windows if window < first]:
            del self._windows[window]
        end = -(-self._ranges.size // WINDOW_BYTES)
        for window in range(first, min(max(last + 1, first + MAX_WINDOWS), end)):
            if window not in self._windows:
                self._windows[window] = line().waiters.submit(self._fetch, window)
        data = b"".join(self._windows[window].result().data for window in range(first, last + 1))
        return data[offset - first * WINDOW_BYTES : offset - first * WINDOW_BYTES + length]

    def _fetch(self, window: int) -> Bytes:
        return self._ranges.whole(window * WINDOW_BYTES, min(window * WINDOW_BYTES + WINDOW_BYTES, self._ranges.size))
