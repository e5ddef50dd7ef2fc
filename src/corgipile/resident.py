"""Memory and processors of this process and its machine, on systems that report them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Peak", "available_memory", "cores", "peaking"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Return the bytes of memory that this process may still take, by the system's and its control group's limit."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    with contextlib.suppress(OSError, ValueError):  # "max" without a limit
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return free


class Peak:
    """The measured peak.

    Attributes:
        nbytes: Peak resident bytes, libraries included; 0 while unknown.
    """

    nbytes = 0


@contextlib.contextmanager
def peaking() -> Iterator[Peak]:
    """Measure the peak resident memory of a block; the result is set when it ends.

    Example:
        >>> with peaking() as peak:
        ...     filled = bytes(1 << 20)
        >>> peak.nbytes == 0 or peak.nbytes > 1 << 20
        True
    """
    peak = Peak()
    try:
        _RESET.write_text("5", encoding="ascii")  # resets the system's peak counter
    except OSError:
        yield peak
        return
    yield peak
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = _STATUS.read_text(encoding="ascii", errors="replace").partition("VmHWM:")[2]
        peak.nbytes = int(line.split()[0]) << 10
