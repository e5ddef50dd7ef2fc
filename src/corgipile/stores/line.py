"""The requests of this process: an event loop in a thread, a limit of requests in flight, and response times."""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

__all__ = ["MAX_REQUESTS", "Line", "Times", "Turns", "line"]

MAX_REQUESTS = 48  # most requests in flight per process
UNIT_BYTES = 1 << 20  # bytes that take about as long as the latency
MIN_SAMPLES, MAX_SAMPLES = 16, 256  # answers before times are known; answers remembered
DEFAULT_LATE = 2.0  # seconds assumed until then
LATE_FACTOR = 2.0  # factor over the time of nearly all answers
QUANTILE = 0.95
MAX_HEDGED_SHARE = 0.1  # largest share of requests sent a second time
T = TypeVar("T")


class Times:
    """Recent response times; used by one thread.

    Example:
        >>> times = Times()
        >>> for _ in range(100):
        ...     times.note(0.05, 0)
        >>> round(times.late(0), 2), round(times.latency, 2)
        (0.1, 0.05)
    """

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=MAX_SAMPLES)  # seconds per UNIT_BYTES, latency counted as one
        self._starts: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._asked = self._hedged = self._fresh = 0
        self._late = DEFAULT_LATE
        self.latency: float | None = None

    def note(self, seconds: float, nbytes: int) -> None:
        """Record the time of an answer."""
        self._rates.append(seconds / (1 + nbytes / UNIT_BYTES))
        self._starts.append(seconds - nbytes / 100e6)
        self._fresh += 1
        if len(self._rates) >= MIN_SAMPLES and self._fresh >= MIN_SAMPLES:
            self._fresh = 0
            self._late = LATE_FACTOR * float(np.quantile(self._rates, QUANTILE))
            self.latency = max(5e-4, float(np.median(self._starts)))

    def late(self, nbytes: int) -> float:
        """Return the seconds after which an answer of this many bytes is later than nearly all."""
        return max(0.01, self._late * (1 + nbytes / UNIT_BYTES))

    def count_request(self) -> None:
        """Count a request."""
        self._asked += 1

    def may_hedge(self) -> bool:
        """Return whether a request may be sent a second time, and count it."""
        if self._hedged >= MIN_SAMPLES + MAX_HEDGED_SHARE * self._asked:
            return False
        self._hedged += 1
        return True


class Turns:
    """A limit of requests in flight; entered in the loop.

    Args:
        most: The limit.

    Attributes:
        under_way: Requests in flight.
    """

    def __init__(self, most: int) -> None:
        self._most, self._fewer = most, list[int]()
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.contextmanager
    def few(self, most: int) -> Iterator[None]:
        """Lower the limit meanwhile, since each connection takes memory."""
        self._fewer.append(most)
        try:
            yield
        finally:
            self._fewer.remove(most)

    async def __aenter__(self) -> None:
        while self.under_way >= min([self._most, *self._fewer]):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._next()  # it may have been this request's turn
                raise
        self.under_way += 1

    async def __aexit__(self, *_: object) -> None:
        self.under_way -= 1
        self._next()
        self._next()  # the limit may have been raised

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Line:
    """The thread that sends requests and receives answers.

    Attributes:
        turns: The limit of requests in flight.
        times: Recent response times.
        workers: Threads for blocking libraries.
        waiters: Threads that wait for whole fetches.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.turns = Turns(MAX_REQUESTS)
        self.times = Times()
        self.workers = ThreadPoolExecutor(MAX_REQUESTS, "corgipile-request")
        self.waiters = ThreadPoolExecutor(MAX_REQUESTS, "corgipile-fetch")
        self.kept: dict[Any, Any] = {}  # connections, by destination
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="corgipile-requests", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_guard = threading.Lock()
_line: Line | None = None
_left: list[Any] = []  # lines of the parent process: its threads do not exist here, so nothing may be freed


def line() -> Line:
    """Return the line of this process."""
    global _line  # noqa: PLW0603 - one per process
    with _guard:
        if _line is None:
            _line = Line()
        return _line


def _forked() -> None:
    global _line, _guard
    _left.append(_line)
    _line, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
