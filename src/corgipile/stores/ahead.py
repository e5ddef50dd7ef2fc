"""Bytes that are read as they lie: those to come are on their way while others are looked at."""

from concurrent.futures import Future  # noqa: TC003 - as elsewhere

import numpy as np
import numpy.typing as npt

from corgipile.stores.line import line
from corgipile.stores.ranges import Ranges

__all__ = ["Ahead"]

WINDOW = 1 << 20  # bytes of a request
DEPTH = 16  # requests that are on their way
Bytes = npt.NDArray[np.uint8]


class Ahead:
    """Reads an object from its beginning to its end, or parts of it that ascend; used by one thread.

    Args:
        ranges: The object.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._windows: dict[int, Future[Bytes]] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes of the object, which has them."""
        if not length:
            return b""
        first, last = offset // WINDOW, (offset + length - 1) // WINDOW
        for window in [window for window in self._windows if window < first]:
            del self._windows[window]
        end = -(-self._ranges.size // WINDOW)
        for window in range(first, min(max(last + 1, first + DEPTH), end)):
            if window not in self._windows:
                self._windows[window] = line().waiters.submit(self._fetch, window)
        data = b"".join(self._windows[window].result().data for window in range(first, last + 1))
        return data[offset - first * WINDOW : offset - first * WINDOW + length]

    def _fetch(self, window: int) -> Bytes:
        return self._ranges.whole(window * WINDOW, min(window * WINDOW + WINDOW, self._ranges.size))
