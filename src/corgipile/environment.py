"""Versions and hardware, to be stored and shown with results."""

import contextlib
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile import __version__
from corgipile.sizes import format_bytes

__all__ = ["machine", "versions"]


def machine() -> dict[str, Any]:
    """Return versions and hardware, to be stored with results.

    Example:
        >>> sorted(machine())
        ['corgipile', 'machine']
    """
    cpus = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    facts = {
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {"corgipile": __version__, "machine": facts}


def versions() -> dict[str, Any]:
    """Return versions and hardware in one dictionary for display, without host or user names.

    Example:
        >>> "python" in versions()
        True
    """
    facts_of = machine()
    facts = facts_of.pop("machine")
    return {**facts_of, **facts, "memory": format_bytes(facts["memory"])}


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
