"""A lock for iterations in several threads: one advances at a time, and a new one ends the previous one."""

import os
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

from corgipile.errors import BadArgument
from corgipile.loader.prefetch import ENDED

__all__ = ["OneThread"]

Item = TypeVar("Item")
EXHAUSTED = object()


class OneThread:
    """A lock that iterations hold while they advance."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()
        self._latest: Generator[Any, None, None] | None = None

    def __enter__(self) -> None:
        if self._process != os.getpid():  # the lock may be held by a thread that the forked child lacks
            self._lock, self._process = threading.RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def take(self, steps: Generator[Item, None, None]) -> Iterator[Item]:
        """Yield a generator's items; raise BadArgument once another generator has started."""
        try:
            with self:
                self.end()
                self._latest = steps
            while True:
                with self:
                    if self._latest is not steps:
                        raise BadArgument(ENDED)
                    item = next(steps, EXHAUSTED)
                if item is EXHAUSTED:
                    return
                yield item  # type: ignore[misc]
        finally:
            self._leave(steps)

    def end(self) -> None:
        """End the running iteration, if any."""
        with self:
            previous, self._latest = self._latest, None
            if previous is not None:
                previous.close()

    def _leave(self, steps: Generator[Any, None, None]) -> None:
        """Close a generator unless the lock's holder is about to close it.

        It never waits: the garbage collector may call it in a thread that the lock's holder waits for.
        """
        if self._latest is steps and self._lock.acquire(blocking=False):
            try:
                if self._latest is steps:
                    self._latest = None
                    steps.close()
            finally:
                self._lock.release()
