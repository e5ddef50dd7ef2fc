"""Iterations from several threads: one advances at a time, and a new one ends the one before it."""

import os
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

from corgipile.errors import BadArgument
from corgipile.loader.prefetch import ENDED

__all__ = ["Turns"]

Item = TypeVar("Item")
OVER = object()


class Turns:
    """A lock that iterations hold while they advance."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()
        self._latest: Generator[Any, None, None] | None = None

    def __enter__(self) -> None:
        if self._process != os.getpid():  # a thread that the fork does not have may hold the lock
            self._lock, self._process = threading.RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def take(self, steps: Generator[Item, None, None]) -> Iterator[Item]:
        """Yield what a generator yields, until another one is taken.

        Raises:
            BadArgument: Another one was taken.
        """
        try:
            with self:
                self.end()
                self._latest = steps
            while True:
                with self:
                    if self._latest is not steps:
                        raise BadArgument(ENDED)
                    item = next(steps, OVER)
                if item is OVER:
                    return
                yield item  # type: ignore[misc]
        finally:
            self._leave(steps)

    def end(self) -> None:
        """End the iteration under way, if there is one."""
        with self:
            previous, self._latest = self._latest, None
            if previous is not None:
                previous.close()

    def _leave(self, steps: Generator[Any, None, None]) -> None:
        """Close a generator, unless whoever holds the lock is about to do so.

        It never waits: the garbage collector may call it in a thread that the holder of the lock waits for.
        """
        if self._latest is steps and self._lock.acquire(blocking=False):
            try:
                if self._latest is steps:
                    self._latest = None
                    steps.close()
            finally:
                self._lock.release()
