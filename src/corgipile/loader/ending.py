"""Threads that read when Python ends: they are stopped first, for within a library they cannot be ended otherwise."""

import atexit
import os
import weakref
from typing import Protocol

__all__ = ["stop_at_exit"]


class Stoppable(Protocol):
    """What reads by a thread of its own."""

    def stop(self) -> None:
        """End the thread."""


_running: "weakref.WeakKeyDictionary[Stoppable, int]" = weakref.WeakKeyDictionary()


def stop_at_exit(reading: Stoppable) -> None:
    """Stop it when Python ends, if nobody has let go of it before; a forked process leaves it alone."""
    _running[reading] = os.getpid()


@atexit.register
def _stop_all() -> None:
    for reading, process in list(_running.items()):
        if process == os.getpid():
            reading.stop()
