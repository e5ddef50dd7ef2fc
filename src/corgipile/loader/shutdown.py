"""What reads when Python ends: it is stopped first, for nothing within a library can end it otherwise.

Iterations under way are closed before the threads below them, while all that they use is still there.
"""

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["closed_at_exit", "stop_at_exit"]

Asked = ParamSpec("Asked")
Given = TypeVar("Given")


class Stoppable(Protocol):
    """What reads by a thread of its own."""

    def stop(self) -> None:
        """End the thread."""


_running: "weakref.WeakKeyDictionary[Stoppable, int]" = weakref.WeakKeyDictionary()


_begun: "weakref.WeakKeyDictionary[Generator[Any, Any, Any], int]" = weakref.WeakKeyDictionary()


def closed_at_exit(make: Callable[Asked, Iterator[Given]]) -> Callable[Asked, Iterator[Given]]:
    """Close the generators that a function makes when Python ends, if nobody has let go of them before."""

    @wraps(make)
    def made(*args: Asked.args, **named: Asked.kwargs) -> Iterator[Given]:
        found = make(*args, **named)
        if isinstance(found, Generator):
            _begun[found] = os.getpid()
        return found

    return made


def stop_at_exit(reading: Stoppable) -> None:
    """Stop it when Python ends, if nobody has let go of it before; a forked process leaves it alone."""
    _running[reading] = os.getpid()


@atexit.register
def _stop_all() -> None:
    for begun, process in list(_begun.items()):
        if process == os.getpid():
            with contextlib.suppress(ValueError):  # a thread is within it
                begun.close()
    for reading, process in list(_running.items()):
        if process == os.getpid():
            reading.stop()
