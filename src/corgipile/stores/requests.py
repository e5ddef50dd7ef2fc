"""Sends requests: many at a time, each again where it failed, and a second one where the answer is late."""

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

PATIENCE = 60.0  # seconds for which a request is tried again
FIRST_WAIT, MOST_WAIT = 0.1, 5.0
SLOWEST = 1e5  # bytes a second below which an answer is given up
LONGEST = 20.0  # seconds until its first byte
MOST_SENT = 3  # times that a request is on its way at once
Ask = Callable[[int, int], Awaitable[memoryview]]  # the bytes from a first one up to a last
Renew = Callable[[], None]


async def fetch(
    line: Line, url: str, ask: Ask, found: Requests, out: npt.NDArray[np.uint8], renew: Renew | None = None
) -> None:
    """Send planned requests and put what they bring into its place.

    Args:
        line: The line of this process.
        url: What is read, for messages.
        ask: Asks for bytes.
        found: The requests.
        out: Where they go.
        renew: Looks for credentials anew.
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
    """Ask for bytes until they come.

    Raises:
        ReadFailed: They do not, for long, or the store refuses.
        CorruptFile: The answer has never as many bytes as were asked for, or the object has changed.
    """
    began, wait, denied = time.monotonic(), FIRST_WAIT, False
    patience = PATIENCE if patience is None else patience
    while True:
        try:
            async with line.turns:
                data = await _hedged(line, ask, start, stop)
            if len(data) == stop - start:
                return data
            reason = f"{stop - start} bytes were asked for, {len(data)} came"
        except Transient as error:
            reason = str(error)
        except Denied as error:
            if denied:  # with new credentials, too
                raise refused(url, str(error)) from None
            denied, reason = True, str(error)
            if renew is not None:
                renew()
        spent = time.monotonic() - began
        if spent > patience:
            if "came" in reason:
                raise CorruptFile(f"{url}: {reason}, again and again: the server, or a proxy, spoils its answers")
            raise unanswered(url, reason, spent)
        await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads those who failed together
        wait = min(2 * wait, MOST_WAIT)


async def _hedged(line: Line, ask: Ask, start: int, stop: int) -> memoryview:
    """Send a request, and another one if the answer is later than nearly all; the first answer counts."""
    sent: set[asyncio.Task[memoryview]] = set()
    began, nbytes, failed = time.monotonic(), stop - start, None
    ends = began + LONGEST + nbytes / SLOWEST
    try:
        while True:
            more = len(sent) < MOST_SENT and (not sent or line.times.may_hedge())
            if more:
                line.times.asked()
                sent.add(asyncio.ensure_future(_timed(line, ask, start, stop)))
            until = line.times.late(nbytes) * 2 ** (len(sent) - 1) if len(sent) < MOST_SENT and more else LONGEST
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
