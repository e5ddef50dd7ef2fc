"""Peak resident memory of this process during a block, on systems that report it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Peak", "peaking"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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
