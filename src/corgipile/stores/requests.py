"""Sending of requests: many at a time, with retries of failed ones and second attempts for late ones."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.stores.failures import Denied, Transient, refused, unanswered
from corgipile.stores.line import Line
from corgipile.stores.plan import Requests
from corgipile.stores.ranges import IntArray

__all__ = ["PATIENCE", "Ask", "answered", "fetch"]

PATIENCE = 60.0  # seconds for which a request is retried
FIRST_WAIT, MAX_WAIT = 0.1, 5.0
MIN_BYTES_PER_SECOND = 1e5  # bytes per second below which an answer is abandoned
FIRST_BYTE_SECONDS = 20.0  # seconds until its first byte
MAX_ATTEMPTS = 3  # most attempts of a request in flight at once
Ask = Callable[[int, int], Awaitable[memoryview]]  # requests the bytes of a range
Renew = Callable[[], None]


async def fetch(
    line: Line, url: str, ask: Ask, found: Requests, out: npt.NDArray[np.uint8], renew: Renew | None = None
) -> None:
    """Send planned requests and store their answers.

    Args:
        line: The line of this process.
        url: The object's URL, for messages.
        ask: Requests bytes.
        found: The planned requests.
        out: The output.
        renew: Reloads credentials.
    """

    async def one(request: int) -> None:
        start, stop = int(found.starts[request]), int(found.stops[request])
        data = np.frombuffer(await answered(line, url, ask, start, stop, renew), np.uint8)
        _put(data, start, found.pieces[found.firsts[request] : found.firsts[request + 1]], out)

    tasks = [asyncio.ensure_future(one(request)) for request in range(len(found.starts))]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _put(data: npt.NDArray[np.uint8], start: int, pieces: IntArray, out: npt.NDArray[np.uint8]) -> None:
    for _, at, length, to in pieces.tolist():
        out[to : to + length] = data[at - start : at - start + length]


async def answered(
    line: Line, url: str, ask: Ask, start: int, stop: int, renew: Renew | None = None, patience: float | None = None
) -> memoryview:
    """Request bytes, with retries, and return them.

    Raises:
        ReadFailed: They did not come for long, or the store refuses.
        CorruptFile: Answers always have the wrong length, or the object has changed.
    """
    began, wait, denied = time.monotonic(), FIRST_WAIT, False
    patience = PATIENCE if patience is None else patience
    while True:
        try:
            async with line.turns:
                data = await _hedged(line, ask, start, stop)
            if len(data) == stop - start:
                return data
            reason = f"{stop - start} bytes were requested, {len(data)} came"
        except Transient as error:
            reason = str(error)
        except Denied as error:
            if denied:  # with renewed credentials, too
                raise refused(url, str(error)) from None
            denied, reason = True, str(error)
            if renew is not None:
                renew()
        spent = time.monotonic() - began
        if spent > patience:
            if "came" in reason:
                raise CorruptFile(f"{url}: {reason}in every attempt: the server or a proxy corrupts its answers")
            raise unanswered(url, reason, spent)
        await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads simultaneous retries
        wait = min(2 * wait, MAX_WAIT)


async def _hedged(line: Line, ask: Ask, start: int, stop: int) -> memoryview:
    """Send a request, and another one if the answer is late; the first answer counts."""
    sent: set[asyncio.Task[memoryview]] = set()
    began, nbytes, failed = time.monotonic(), stop - start, None
    ends = began + FIRST_BYTE_SECONDS + nbytes / MIN_BYTES_PER_SECOND
    try:
        while True:
            more = len(sent) < MAX_ATTEMPTS and (not sent or line.times.may_hedge())
            if more:
                line.times.count_request()
                sent.add(asyncio.ensure_future(_timed(line, ask, start, stop)))
            until = (
                line.times.late(nbytes) * 2 ** (len(sent) - 1)
                if len(sent) < MAX_ATTEMPTS and more
                else FIRST_BYTE_SECONDS
            )
            done, pending = await asyncio.wait(
                sent, timeout=max(0.0, min(until, ends - time.monotonic())), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failed = task.exception()
                if failed is None or not isinstance(failed, Transient):
                    return task.result()
            sent = pending
            if failed is not None and not sent:
                raise failed
            if time.monotonic() > ends:
                raise Transient("no answer in time")
    finally:
        for task in sent:
            task.cancel()


async def _timed(line: Line, ask: Ask, start: int, stop: int) -> memoryview:
    began = time.monotonic()
    data = await ask(start, stop)
    line.times.note(time.monotonic() - began, stop - start)
    return data
