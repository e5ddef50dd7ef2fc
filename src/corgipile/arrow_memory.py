"""Arrow's memory, given back to the system as soon as it is free."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

__all__ = ["Tidy", "frugal", "give_back"]

EVERY = 4 << 20  # bytes that came and went until what they took meanwhile, and is free, is given back, at most
SHARE = 8  # parts of a budget, of which one may be free and not given back
LEAST = 1 << 20
_lock = threading.Lock()
_inside = 0
_usual: Any = None


@contextmanager
def frugal() -> Iterator[None]:
    """Let Arrow take memory from the system's allocator meanwhile.

    Arrow's own keeps what is freed, for the next to come, up to three times as much as is in use: too much for work
    that promises to stay within a budget. The pool is one for all threads, so the last to leave restores it.

    Example:
        >>> with frugal():
        ...     pa.default_memory_pool().backend_name
        'system'
    """
    global _inside, _usual  # noqa: PLW0603 - so is the pool
    with _lock:
        if not _inside:
            _usual = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _give_back()
                pa.set_memory_pool(_usual)


def give_back() -> None:
    """Give back what is free: of the C library's heap, and of Arrow's own, where decoders take their pages anyhow."""
    with _lock:
        _give_back()


def _give_back() -> None:
    now = pa.default_memory_pool()
    for pool in (_usual or now, pa.system_memory_pool()):
        pa.set_memory_pool(pool)
        pool.release_unused()  # of whichever is the default, whatever the pool it is asked of
    pa.set_memory_pool(now)


class Tidy:
    """Gives back what is free after every so many bytes that came and went.

    The C library keeps what is freed for what comes next, and of rows that differ in length much lies between others.

    Args:
        budget: Bytes that may be in memory; of a small one, such as of one of several workers, little lies free.
        every: Bytes after which what is free is given back; None: as few as the budget asks for.

    Example:
        >>> tidy = Tidy()
        >>> tidy.passed(1 << 20), tidy.waiting
        (None, 1048576)
    """

    def __init__(self, budget: int | None = None, every: int | None = None) -> None:
        self.waiting = 0
        self._every = every or (EVERY if budget is None else min(EVERY, max(LEAST, budget // SHARE)))

    def passed(self, nbytes: int) -> None:
        """Hear of bytes that are no longer needed."""
        self.waiting += nbytes
        if self.waiting > self._every:
            self.waiting = 0
            give_back()
