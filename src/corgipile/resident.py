"""Resident memory of this process at most, over a while; where the system tells it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Peak", "peaking"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """What was found.

    Attributes:
        nbytes: The most bytes that were resident, libraries and all; 0 while that is not known.
    """

    nbytes = 0


@contextlib.contextmanager
def peaking() -> Iterator[Peak]:
    """Tell the most memory that was resident in the block, once it has ended.

    Example:
        >>> with peaking() as peak:
        ...     filled = bytes(1 << 20)
        >>> peak.nbytes == 0 or peak.nbytes > 1 << 20
        True
    """
    found = Peak()
    try:
        _RESET.write_text("5", encoding="ascii")  # the peak begins anew
    except OSError:
        yield found
        return
    yield found
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = _STATUS.read_text(encoding="ascii", errors="replace").partition("VmHWM:")[2]
        found.nbytes = int(line.split()[0]) << 10
