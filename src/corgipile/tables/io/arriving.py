"""Ranges of an object that lies elsewhere, each read once: what comes next is on its way while others are decoded."""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from corgipile.tables.io.files import File, IntArray

if TYPE_CHECKING:
    from corgipile.tables.io.remote import RemoteFile

__all__ = ["WINDOW", "Arriving", "Ranges", "at_once", "few_requests", "joined", "windows_of", "within"]

WINDOW, LEAST_WINDOW = 1 << 20, 64 << 10  # bytes of a request
AT_ONCE, LEAST_AT_ONCE, MOST_AT_ONCE = 16 << 20, 6 << 20, 32 << 20  # bytes on their way, or that wait to be read
SHARE = 1 / 4  # of a budget
FEWEST_REQUESTS, REQUEST = 8, 512 << 10
Ranges = tuple[IntArray, IntArray]  # offsets and lengths
_at_once: ContextVar[int] = ContextVar("_at_once", default=AT_ONCE)


@contextlib.contextmanager
def within(budget: int | None) -> Iterator[None]:
    """Let what is on its way be a part of a budget.

    Example:
        >>> with within(64 << 20):
        ...     at_once() >> 20
        16
    """
    some = AT_ONCE if budget is None else int(min(max(budget * SHARE, LEAST_AT_ONCE), MOST_AT_ONCE))
    token = _at_once.set(some)
    try:
        yield
    finally:
        _at_once.reset(token)


def at_once() -> int:
    """Return the bytes that may be on their way, or wait to be read."""
    return _at_once.get()


@contextlib.contextmanager
def few_requests(nbytes: int) -> Iterator[None]:
    """Let no more requests of this process be on their way than so many bytes are worth: each takes memory itself."""
    from corgipile.stores.line import line  # noqa: PLC0415 - with asyncio, which local tables do not need

    with line().turns.few(max(FEWEST_REQUESTS, nbytes // REQUEST)):
        yield


class Arriving(File):
    """An object of which some ranges are read once, by several threads, in about the order in which they are given.

    Whatever else is read of it is asked for when it is.

    Args:
        file: The object.
        groups: The ranges; those of a group are read side by side, each from its beginning to its end.
        over: Bytes between two ranges that are fetched along, and that nobody reads.
    """

    def __init__(self, file: "RemoteFile", groups: Sequence[Ranges], over: int = 0) -> None:
        self.__dict__.update(file.__dict__)
        self._file, self._most = file, at_once()
        self._windows = windows_of(groups, self._most, over)
        self._wanted = _wanted(self._windows, groups)
        self._order = np.argsort(self._windows[:, 0], kind="stable")
        self._coming: dict[int, Future[npt.NDArray[np.uint8]]] = {}
        self._unread: dict[int, int] = {}  # bytes of windows that are here, or on their way
        self._begun = np.zeros(len(self._windows), np.bool_)  # which were asked for: some before their turn
        self._next = 0  # the first of the others
        self._guard = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        self._check(offset, length)
        parts: list[bytes] = []
        while length:
            window = self._window(offset)
            if window is None:
                return b"".join([*parts, self._file.read(offset, length)])
            data = self._asked(window).result()
            begin = offset - int(self._windows[window, 0])
            parts.append(data[begin : begin + length].tobytes())
            self._taken(window, len(parts[-1]))
            offset, length = offset + len(parts[-1]), length - len(parts[-1])
        return b"".join(parts)

    def _window(self, offset: int) -> int | None:
        at = int(np.searchsorted(self._windows[self._order, 0], offset, side="right")) - 1
        found = int(self._order[at]) if at >= 0 else -1
        return found if found >= 0 and offset < self._windows[found, 1] else None

    def _asked(self, window: int) -> Future[npt.NDArray[np.uint8]]:
        with self._guard:
            if window not in self._coming:
                self._ask(window)
            self._ask_more()
            return self._coming[window]

    def _taken(self, window: int, nbytes: int) -> None:
        """Note that bytes of a window were read, each of which nobody reads again."""
        with self._guard:
            if window in self._unread:
                self._unread[window] -= nbytes
                if self._unread[window] <= 0:
                    del self._unread[window], self._coming[window]
                    self._ask_more()

    def _ask_more(self) -> None:
        while self._next < len(self._windows) and sum(self._unread.values()) < self._most:
            if not self._begun[self._next]:
                self._ask(self._next)
            self._next += 1

    def _ask(self, window: int) -> None:
        from corgipile.stores.line import line  # noqa: PLC0415 - with asyncio, which local tables do not need

        start, stop = self._windows[window].tolist()
        self._unread[window], self._begun[window] = int(self._wanted[window]), True
        self._coming[window] = line().waiters.submit(self._file.whole, start, stop)


def windows_of(groups: Iterable[Ranges], most: int, over: int = 0) -> IntArray:
    """Cut groups of ranges into requests, in the order in which they are needed; see `Arriving`.

    Returns:
        int64[n, 2]: first byte, and the one after the last.

    Example:
        >>> one, two = (np.array([0]), np.array([3 << 19])), (np.array([8 << 20, 3 << 19]), np.array([100, 9]))
        >>> (windows_of([one, two], 64 << 20) / (1 << 19)).round(2).tolist()
        [[0.0, 1.5], [1.5, 3.0], [3.0, 3.0], [16.0, 16.0]]
    """
    found: list[IntArray] = [np.zeros((0, 2), np.int64)]
    for ranges in groups:
        offsets, lengths = joined(ranges, over)
        apart = len(offsets) > 1 and int(lengths.sum()) > most // 2
        size = max(LEAST_WINDOW, min(WINDOW, most // (2 * len(offsets)))) if apart else WINDOW
        found.append(_cut(offsets, lengths, size, in_turn=apart))
    return np.concatenate(found)


def _cut(offsets: IntArray, lengths: IntArray, size: int, *, in_turn: bool) -> IntArray:
    """Cut ranges into even parts of about a size: one range after the other, or a part of each in turn."""
    counts = np.where(lengths > 0, np.maximum(1, np.rint(lengths / size)), 0).astype(np.int64)
    which = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = offsets[which] + nth * lengths[which] // counts[which]
    stops = offsets[which] + (nth + 1) * lengths[which] // counts[which]
    return np.stack([starts, stops], axis=1)[np.lexsort((which, nth)) if in_turn else slice(None)]


def _wanted(windows: IntArray, groups: Sequence[Ranges]) -> IntArray:
    """Return how many bytes of each window somebody reads."""
    none = np.zeros(0, np.int64)
    offsets, lengths = joined(
        tuple(np.concatenate([none, *parts]) for parts in zip(*groups, strict=True)) or (none, none)
    )
    if not len(offsets):
        return np.zeros(len(windows), np.int64)
    last = np.maximum(np.searchsorted(offsets, windows, side="right") - 1, 0)
    before = (np.cumsum(lengths) - lengths)[last] + np.clip(windows - offsets[last], 0, lengths[last])
    return np.asarray(before[:, 1] - before[:, 0])


def joined(ranges: Ranges, over: int = 0) -> Ranges:
    """Join ranges that touch or overlap, or are no more than some bytes apart.

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
