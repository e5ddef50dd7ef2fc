"""Iterators that run concurrently in threads and are consumed one after the other."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

__all__ = ["in_step", "side_by_side"]

Item = TypeVar("Item")


class _Cancelled(Exception):  # not an error: its consumer has stopped
    """The iterator was cancelled."""


class _Run(Generic[Item]):
    """An iterator that runs in another thread, some items ahead of its consumer."""

    def __init__(self, make: Callable[[], Iterable[Item]], size: Callable[[Item], int], most: int) -> None:
        self._make, self._size, self._limit = make, size, most
        self._ready: deque[Item] = deque()
        self._bytes, self._finished, self._cancelled = 0, False, False
        self._errors: list[BaseException] = []
        self._changed = threading.Condition()

    def run(self) -> None:
        """Run the iterator to its end."""
        try:
            for item in self._make():
                self._put(item)
        except BaseException as error:  # noqa: BLE001 - the consumer raises it
            self._errors.append(error)
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def _put(self, item: Item) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < self._limit or self._cancelled)
            if self._cancelled:
                raise _Cancelled
            self._ready.append(item)
            self._bytes += self._size(item)
            self._changed.notify_all()

    def cancel(self) -> None:
        """Stop the iterator at its next item."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Item]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._finished)
                if not self._ready:
                    if self._errors:
                        raise self._errors.pop()  # keeping it would create a cycle through its traceback
                    return
                item = self._ready.popleft()
                self._bytes -= self._size(item)
                self._changed.notify_all()
            yield item
            del item


def side_by_side(
    makes: Iterable[Callable[[], Iterable[Item]]], threads: int, size: Callable[[Item], int], most: int
) -> Generator[Iterable[Item]]:
    """Run iterators in threads and yield each; consume it before requesting the next.

    Each is made in its thread and may buffer ``most`` bytes of items.

    Example:
        >>> runs = side_by_side([lambda: "ab", lambda: "cd"], 2, len, 1)
        >>> ["".join(run) for run in runs]
        ['ab', 'cd']
    """
    pending, running = iter(makes), deque[_Run[Item]]()
    pool = ThreadPoolExecutor(threads, "corgipile-decoder")
    try:
        while True:
            for make in itertools.islice(pending, threads - len(running)):
                running.append(_Run(make, size, most))
                pool.submit(running[-1].run)
            if not running:
                return
            yield running[0]
            running.popleft()
    finally:
        for run in running:
            run.cancel()
        pool.shutdown(wait=False, cancel_futures=True)


def in_step(
    pool: ThreadPoolExecutor, makes: Sequence[Callable[[], Iterable[Item]]], size: Callable[[Item], int], most: int
) -> Generator[tuple[Item, ...]]:
    """Run iterators in a thread each and yield an item of each, then the next ones; all must have as many items.

    The pool must have a free thread for each. Each iterator may buffer ``most`` bytes of items.

    Raises:
        ValueError: An iterator ended before another.

    Example:
        >>> with ThreadPoolExecutor(2) as pool:
        ...     list(in_step(pool, [lambda: "ab", lambda: "cd"], len, 1))
        [('a', 'c'), ('b', 'd')]
    """
    runs = [_Run(make, size, most) for make in makes]
    done = [pool.submit(run.run) for run in runs]
    try:
        yield from zip(*runs, strict=True)
    finally:
        for run in runs:
            run.cancel()
        wait(done)
