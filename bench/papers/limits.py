"""A limit of memory for one process, its page cache included: a cgroup, where one may be made."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def _groups(pid: int) -> Iterator[tuple[Path, str]]:
    """Yield what may be the group of a process, and the file that limits it: by either version of cgroups."""
    if (GROUPS / "cgroup.controllers").exists():
        yield GROUPS / f"corgipile-{pid}", "memory.max"
    yield GROUPS / "memory" / f"corgipile-{pid}", "memory.limit_in_bytes"


def limit(nbytes: int) -> bool:
    """Move this process to a group of its own; what it takes from now on, cached pages and all, is so much at most.

    Returns whether a group may be made here; `remove` it when the process is over.
    """
    for group, name in _groups(os.getpid()):
        try:
            group.mkdir()
            (group / name).write_text(str(nbytes))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            remove(os.getpid())
            continue
        return True
    return False


def remove(pid: int) -> None:
    """Remove the group of a process that is over, if it had one."""
    for group, _ in _groups(pid):
        with contextlib.suppress(OSError):
            group.rmdir()
