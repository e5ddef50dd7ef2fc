"""Iterators that run in threads, some at the same time, and are taken one after the other."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["side_by_side"]

Item = TypeVar("Item")


class _Ended(Exception):  # not an error: nobody takes the items
    """The iterator is given up."""


class _Run(Generic[Item]):
    """An iterator that runs in another thread, some items ahead of who takes them.

    Args:
        make: Makes it, in that thread.
        size: Returns the bytes of an item.
        most: Bytes of items that may wait to be taken.
    """

    def __init__(self, make: Callable[[], Iterable[Item]], size: Callable[[Item], int], most: int) -> None:
        self._make, self._size, self._most = make, size, most
        self._ready: deque[Item] = deque()
        self._bytes, self._over, self._given_up = 0, False, False
        self._errors: list[BaseException] = []
        self._changed = threading.Condition()

    def work(self) -> None:
        """Run it to its end."""
        try:
            for item in self._make():
                self._put(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who takes the items
            self._errors.append(error)
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _put(self, item: Item) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < self._most or self._given_up)
            if self._given_up:
                raise _Ended
            self._ready.append(item)
            self._bytes += self._size(item)
            self._changed.notify_all()

    def give_up(self) -> None:
        """Let it end."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Item]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._over)
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
    """Run iterators in threads; yield each, to be taken whole before the next is asked for.

    Args:
        makes: Make them, each in its thread.
        threads: How many run at the same time.
        size: Returns the bytes of an item.
        most: Bytes of items of each that may wait to be taken.

    Example:
        >>> runs = side_by_side([lambda: "ab", lambda: "cd"], 2, len, 1)
        >>> ["".join(run) for run in runs]
        ['ab', 'cd']
    """
    left, running = iter(makes), deque[_Run[Item]]()
    pool = ThreadPoolExecutor(threads, "corgipile-decoder")
    try:
        while True:
            for make in itertools.islice(left, threads - len(running)):
                running.append(_Run(make, size, most))
                pool.submit(running[-1].work)
            if not running:
                return
            yield running[0]
            running.popleft()
    finally:
        for run in running:
            run.give_up()
        pool.shutdown(wait=False, cancel_futures=True)
