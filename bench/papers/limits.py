"""Memory limit of one process including its page cache, by a cgroup where one may be created."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def _groups(pid: int) -> Iterator[tuple[Path, str]]:
    """Yield candidate groups of a process and their limit files, for both versions of cgroups."""
    if (GROUPS / "cgroup.controllers").exists():
        yield GROUPS / f"corgipile-{pid}", "memory.max"
    yield GROUPS / "memory" / f"corgipile-{pid}", "memory.limit_in_bytes"


def limit(nbytes: int) -> bool:
    """Move this process to a group with a memory limit for new allocations and cached pages.

    Returns whether a group may be created here; `remove` it after the process has ended.
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
    """Remove the group of an ended process, if it had one."""
    for group, _ in _groups(pid):
        with contextlib.suppress(OSError):
            group.rmdir()
