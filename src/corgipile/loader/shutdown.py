"""Orderly end of readers at interpreter exit: a library has no other way to stop its threads.

Running iterations are closed before the threads that they use.
"""

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["closed_at_exit", "stop_at_exit"]

Params = ParamSpec("Params")
Result = TypeVar("Result")


class Stoppable(Protocol):
    """A reader with its own thread."""

    def stop(self) -> None:
        """Stop the thread."""


_readers: "weakref.WeakKeyDictionary[Stoppable, int]" = weakref.WeakKeyDictionary()


_generators: "weakref.WeakKeyDictionary[Generator[Any, Any, Any], int]" = weakref.WeakKeyDictionary()


def closed_at_exit(make: Callable[Params, Iterator[Result]]) -> Callable[Params, Iterator[Result]]:
    """Close the generators that a function returns at interpreter exit, if they are still referenced."""

    @wraps(make)
    def wrapper(*args: Params.args, **named: Params.kwargs) -> Iterator[Result]:
        iterator = make(*args, **named)
        if isinstance(iterator, Generator):
            _generators[iterator] = os.getpid()
        return iterator

    return wrapper


def stop_at_exit(reader: Stoppable) -> None:
    """Stop a reader at interpreter exit, if it is still referenced; forked processes ignore it."""
    _readers[reader] = os.getpid()


@atexit.register
def _stop_all() -> None:
    for generator, process in list(_generators.items()):
        if process == os.getpid():
            with contextlib.suppress(ValueError):  # another thread is executing it
                generator.close()
    for reader, process in list(_readers.items()):
        if process == os.getpid():
            reader.stop()
