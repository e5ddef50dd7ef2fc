"""Pipelined reads of remote ranges: each is read once, and the next ones download while others are decoded."""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from corgipile.lazy import lazy
from corgipile.tables.io.files import File, IntArray

if TYPE_CHECKING:
    from corgipile.stores import line as lines
    from corgipile.tables.io.remote import RemoteFile
else:  # with asyncio, which local tables do not need
    lines = lazy("corgipile.stores.line")

__all__ = [
    "DEFAULT_IN_FLIGHT",
    "WINDOW",
    "Arriving",
    "Ranges",
    "in_flight_of",
    "joined",
    "limit_requests",
    "windows_of",
]

WINDOW, LEAST_WINDOW = 1 << 20, 64 << 10  # bytes of a request
DEFAULT_IN_FLIGHT, MIN_IN_FLIGHT, MAX_IN_FLIGHT = 16 << 20, 6 << 20, 32 << 20  # bytes in flight or unread
IN_FLIGHT_SHARE = 1 / 4  # of the memory budget
MIN_REQUESTS, REQUEST = 8, 512 << 10  # requests in flight; bytes that one is assumed to take
Ranges = tuple[IntArray, IntArray]  # offsets and lengths


def in_flight_of(budget: int | None) -> int:
    """Return how many bytes may be in flight or unread within a budget.

    Example:
        >>> in_flight_of(64 << 20) >> 20, in_flight_of(None) == DEFAULT_IN_FLIGHT
        (16, True)
    """
    if budget is None:
        return DEFAULT_IN_FLIGHT
    return int(min(max(budget * IN_FLIGHT_SHARE, MIN_IN_FLIGHT), MAX_IN_FLIGHT))


@contextlib.contextmanager
def limit_requests(nbytes: int) -> Iterator[None]:
    """Limit the requests in flight to what ``nbytes`` of memory allow; each request takes memory itself."""
    with lines.line().turns.few(max(MIN_REQUESTS, nbytes // REQUEST)):
        yield


class Arriving(File):
    """A remote object whose listed ranges are read once, by several threads, in about the given order.

    Other ranges are requested when they are read.

    Args:
        file: The object.
        groups: The ranges; those of a group are read concurrently, each from start to end.
        limit: Bytes in flight or unread.
        over: Largest gap in bytes between two ranges that one request covers.
    """

    def __init__(self, file: "RemoteFile", groups: Sequence[Ranges], limit: int, over: int = 0) -> None:
        self.__dict__.update(file.__dict__)
        self._file, self._limit = file, limit
        self._windows = windows_of(groups, self._limit, over)
        self._needed = _needed(self._windows, groups)
        self._order = np.argsort(self._windows[:, 0], kind="stable")
        self._in_flight: dict[int, Future[npt.NDArray[np.uint8]]] = {}
        self._unread: dict[int, int] = {}  # bytes of windows in flight or fetched
        self._requested = np.zeros(len(self._windows), np.bool_)  # some before their turn
        self._next = 0  # first window that may not be requested yet
        self._guard = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        self._check(offset, length)
        parts: list[bytes] = []
        while length:
            window = self._find_window(offset)
            if window is None:
                return b"".join([*parts, self._file.read(offset, length)])
            data = self._future(window).result()
            begin = offset - int(self._windows[window, 0])
            parts.append(data[begin : begin + length].tobytes())
            self._taken(window, len(parts[-1]))
            offset, length = offset + len(parts[-1]), length - len(parts[-1])
        return b"".join(parts)

    def _find_window(self, offset: int) -> int | None:
        at = int(np.searchsorted(self._windows[self._order, 0], offset, side="right")) - 1
        window = int(self._order[at]) if at >= 0 else -1
        return window if window >= 0 and offset < self._windows[window, 1] else None

    def _future(self, window: int) -> Future[npt.NDArray[np.uint8]]:
        with self._guard:
            if window not in self._in_flight:
                self._submit(window)
            self._fill_pipeline()
            return self._in_flight[window]

    def _taken(self, window: int, nbytes: int) -> None:
        """Count bytes of a window as read; a window read in full is released."""
        with self._guard:
            if window in self._unread:
                self._unread[window] -= nbytes
                if self._unread[window] <= 0:
                    del self._unread[window], self._in_flight[window]
                    self._fill_pipeline()

    def _fill_pipeline(self) -> None:
        while self._next < len(self._windows) and sum(self._unread.values()) < self._limit:
            if not self._requested[self._next]:
                self._submit(self._next)
            self._next += 1

    def _submit(self, window: int) -> None:
        start, stop = self._windows[window].tolist()
        self._unread[window], self._requested[window] = int(self._needed[window]), True
        self._in_flight[window] = lines.line().waiters.submit(self._file.whole, start, stop)


def windows_of(groups: Iterable[Ranges], most: int, over: int = 0) -> IntArray:
    """Cut groups of ranges into requests, in reading order; see `Arriving`.

    Returns:
        int64[n, 2]: first byte, and the byte after the last.

    Example:
        >>> first, second = (np.array([0]), np.array([3 << 19])), (np.array([8 << 20, 3 << 19]), np.array([100, 9]))
        >>> (windows_of([first, second], 64 << 20) / (1 << 19)).round(2).tolist()
        [[0.0, 1.5], [1.5, 3.0], [3.0, 3.0], [16.0, 16.0]]
    """
    windows: list[IntArray] = [np.zeros((0, 2), np.int64)]
    for ranges in groups:
        offsets, lengths = joined(ranges, over)
        interleaved = len(offsets) > 1 and int(lengths.sum()) > most // 2
        size = max(LEAST_WINDOW, min(WINDOW, most // (2 * len(offsets)))) if interleaved else WINDOW
        windows.append(_cut(offsets, lengths, size, in_turn=interleaved))
    return np.concatenate(windows)


def _cut(offsets: IntArray, lengths: IntArray, size: int, *, in_turn: bool) -> IntArray:
    """Cut ranges into even parts of about ``size`` bytes: range by range, or ``in_turn`` one part of each."""
    counts = np.where(lengths > 0, np.maximum(1, np.rint(lengths / size)), 0).astype(np.int64)
    which = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = offsets[which] + nth * lengths[which] // counts[which]
    stops = offsets[which] + (nth + 1) * lengths[which] // counts[which]
    return np.stack([starts, stops], axis=1)[np.lexsort((which, nth)) if in_turn else slice(None)]


def _needed(windows: IntArray, groups: Sequence[Ranges]) -> IntArray:
    """Return how many bytes of each window are read."""
    none = np.zeros(0, np.int64)
    offsets = np.concatenate([none, *(offsets for offsets, _ in groups)])
    offsets, lengths = joined((offsets, np.concatenate([none, *(lengths for _, lengths in groups)])))
    if not len(offsets):
        return np.zeros(len(windows), np.int64)
    last = np.maximum(np.searchsorted(offsets, windows, side="right") - 1, 0)
    before = (np.cumsum(lengths) - lengths)[last] + np.clip(windows - offsets[last], 0, lengths[last])
    return np.asarray(before[:, 1] - before[:, 0])


def joined(ranges: Ranges, over: int = 0) -> Ranges:
    """Join ranges that overlap, touch or have a gap of at most ``over`` bytes.

    Example:
        >>> [part.tolist() for part in joined((np.array([5, 0, 9]), np.array([4, 5, 0])))]
        [[0], [9]]
    """
    order = np.argsort(ranges[0], kind="stable")
    offsets, ends = ranges[0][order], (ranges[0] + ranges[1])[order]
    reach = np.maximum.accumulate(ends)
    fresh = np.append(True, offsets[1:] > reach[:-1] + over)[: len(offsets)]
    firsts = np.flatnonzero(fresh)
    lasts = np.append(firsts[1:] - 1, len(offsets) - 1)[: len(firsts)]
    return offsets[firsts], reach[lasts] - offsets[firsts]
