"""What this process has under way: a loop in one thread, how many requests at a time, and how long answers take."""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

__all__ = ["AT_A_TIME", "Line", "Times", "Turns", "line"]

AT_A_TIME = 48  # requests on their way, of this process
UNIT = 1 << 20  # bytes that take about as long as it takes until an answer begins
KNOWN, KEPT = 16, 256  # answers after which it is known how long they take, and of how many that is remembered
UNKNOWN = 2.0  # seconds until then
LATE = 2.0  # times what nearly all answers take
QUANTILE = 0.95
HEDGED = 0.1  # of all requests, that may be sent a second time
T = TypeVar("T")


class Times:
    """How long answers took lately; used by one thread.

    Example:
        >>> times = Times()
        >>> for _ in range(100):
        ...     times.note(0.05, 0)
        >>> round(times.late(0), 2), round(times.latency, 2)
        (0.1, 0.05)
    """

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=KEPT)  # seconds for each UNIT, latency counted as one
        self._starts: deque[float] = deque(maxlen=KEPT)
        self._asked = self._hedged = self._fresh = 0
        self._late = UNKNOWN
        self.latency: float | None = None

    def note(self, seconds: float, nbytes: int) -> None:
        """Hear how long an answer took."""
        self._rates.append(seconds / (1 + nbytes / UNIT))
        self._starts.append(seconds - nbytes / 100e6)
        self._fresh += 1
        if len(self._rates) >= KNOWN and self._fresh >= KNOWN:
            self._fresh = 0
            self._late = LATE * float(np.quantile(self._rates, QUANTILE))
            self.latency = max(5e-4, float(np.median(self._starts)))

    def late(self, nbytes: int) -> float:
        """Return the seconds after which an answer of so many bytes is later than nearly all."""
        return max(0.01, self._late * (1 + nbytes / UNIT))

    def asked(self) -> None:
        """Hear that a request was sent."""
        self._asked += 1

    def may_hedge(self) -> bool:
        """Say whether one may be sent a second time, and count it."""
        if self._hedged >= KNOWN + HEDGED * self._asked:
            return False
        self._hedged += 1
        return True


class Turns:
    """Lets so many requests be on their way; entered in the loop.

    Args:
        most: How many.

    Attributes:
        under_way: How many there are.
    """

    def __init__(self, most: int) -> None:
        self._most, self._fewer = most, list[int]()
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.contextmanager
    def few(self, most: int) -> Iterator[None]:
        """Let there be fewer meanwhile: each connection takes memory, of which somebody has little."""
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
                self._next()  # it may have been this one's turn
                raise
        self.under_way += 1

    async def __aexit__(self, *_: object) -> None:
        self.under_way -= 1
        self._next()
        self._next()  # there may be more turns than there were

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Line:
    """The thread that sends requests and takes answers.

    Attributes:
        turns: Lets so many requests be on their way.
        times: How long they took.
        workers: Threads for libraries that cannot wait in the loop.
        waiters: Threads for those who wait for whole fetches.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.turns = Turns(AT_A_TIME)
        self.times = Times()
        self.workers = ThreadPoolExecutor(AT_A_TIME, "corgipile-request")
        self.waiters = ThreadPoolExecutor(AT_A_TIME, "corgipile-fetch")
        self.kept: dict[Any, Any] = {}  # connections, by what they lead to
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="corgipile-requests", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop; who waits may be interrupted, and it is cancelled then."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_guard = threading.Lock()
_line: Line | None = None
_left: list[Any] = []  # of the process that was forked: its threads are not here, so nothing of it may be freed


def line() -> Line:
    """Return the line of this process."""
    global _line  # noqa: PLW0603 - one a process
    with _guard:
        if _line is None:
            _line = Line()
        return _line


def _forked() -> None:
    global _line, _guard
    _left.append(_line)
    _line, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
