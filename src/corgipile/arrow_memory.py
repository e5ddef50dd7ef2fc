"""Return of Arrow's free memory to the system."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

__all__ = ["Tidy", "frugal", "give_back", "interval_of"]

MAX_INTERVAL = 4 << 20  # largest number of released bytes after which free memory is returned
BUDGET_PARTS = 8  # a budget's divisor for the free memory that may stay unreturned
MIN_INTERVAL = 1 << 20  # smallest number of released bytes after which free memory is returned
_lock = threading.Lock()
_depth = 0
_default_pool: Any = None


@contextmanager
def frugal() -> Iterator[None]:
    """Use the system's allocator for Arrow within a block.

    Arrow's own allocator keeps freed memory for reuse, up to three times the memory in use: too much for work within a
    budget. The pool is global to the process, so the last block restores it.

    Example:
        >>> with frugal():
        ...     pa.default_memory_pool().backend_name
        'system'
    """
    global _depth, _default_pool  # noqa: PLW0603 - Arrow's pool is global too
    with _lock:
        if not _depth:
            _default_pool = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                _give_back()
                pa.set_memory_pool(_default_pool)


def give_back() -> None:
    """Return free memory to the system: the C library's heap, and Arrow's pool, which decoders use in any case."""
    with _lock:
        _give_back()


def _give_back() -> None:
    now = pa.default_memory_pool()
    for pool in (_default_pool or now, pa.system_memory_pool()):
        pa.set_memory_pool(pool)
        pool.release_unused()  # acts on the default pool, whatever the pool
    pa.set_memory_pool(now)


def interval_of(budget: int | None) -> int:
    """Return the bytes of freed memory that may stay unreturned within a budget.

    Example:
        >>> interval_of(None), interval_of(16 << 20), interval_of(0)
        (4194304, 2097152, 1048576)
    """
    return MAX_INTERVAL if budget is None else min(MAX_INTERVAL, max(MIN_INTERVAL, budget // BUDGET_PARTS))


class Tidy:
    """Returns free memory to the system after each interval of released bytes.

    The C library keeps freed memory for reuse, and rows of varying length leave much of it between other rows.

    Args:
        budget: Bytes that may be in memory; a small budget shortens the interval.
        every: Interval in bytes; None: the budget decides.

    Example:
        >>> tidy = Tidy()
        >>> tidy.passed(1 << 20), tidy.waiting
        (None, 1048576)
    """

    def __init__(self, budget: int | None = None, every: int | None = None) -> None:
        self.waiting = 0
        self._every = every or interval_of(budget)

    def passed(self, nbytes: int) -> None:
        """Count released bytes."""
        self.waiting += nbytes
        if self.waiting > self._every:
            self.waiting = 0
            give_back()
