"""Files and folders that live as long as a run; those of runs that were killed are removed by the next one.

Each is locked (``flock``) by the process that made it. The system lets go of the lock when the process ends, however
it ends, so whatever bears one of our names and is not locked is a leftover. Where the file system has no locks nothing
is ever taken for one.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folder", "name_for", "sweep", "temporary"]

_OURS = re.compile(r"\..*\.corgipile-[0-9a-f]{12}\.(part|room)")
_LONGEST = 200  # bytes of a name; 255 are allowed


def name_for(name: str, ending: str) -> str:
    """Return a new name for what becomes ``name``, or serves it.

    Example:
        >>> len(name_for("a.arrow", "part")) == len(".a.arrow.corgipile-0123456789ab.part")
        True
    """
    mark = f".corgipile-{secrets.token_hex(6)}.{ending}"
    short = os.fsencode(name)[: _LONGEST - len(mark)].decode(errors="ignore")
    return f".{short}{mark}"


@contextlib.contextmanager
def temporary(goal: Path) -> Iterator[Path]:
    """Give an empty, locked file beside ``goal``; what is left of it goes when the block ends.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> with temporary(place / "a.arrow") as path:
        ...     len(list(place.iterdir())), path.parent == place
        (1, True)
        >>> list(place.iterdir())
        []
    """
    sweep(goal.parent)
    path, lock = _locked_file(goal)
    try:
        yield path
    finally:
        # First the name, then the lock: else another run could take it for a leftover.
        path.unlink(missing_ok=True)
        os.close(lock)


@contextlib.contextmanager
def folder(parent: Path, name: str) -> Iterator[Path]:
    """Give a new, locked folder in ``parent``; it goes with all that is in it when the block ends.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> with folder(place, "piles") as room:
        ...     _ = (room / "pile-0").write_text("rows")
        >>> list(place.iterdir())
        []
    """
    sweep(parent)
    path = parent / name_for(name, "room")
    path.mkdir(mode=0o700)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _lock(lock)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep(place: Path) -> list[str]:
    """Remove what runs of ours, killed before they could, left in a folder; return the names.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> (place / name_for("a.arrow", "part")).touch(), (place / "a.part").touch()
        (None, None)
        >>> len(sweep(place)), [path.name for path in place.iterdir()]
        (1, ['a.part'])
    """
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        found = [entry.name for entry in entries if _OURS.fullmatch(entry.name)]
        return [name for name in found if _swept(place / name)]
    return []


def _locked_file(goal: Path) -> tuple[Path, int]:
    while True:
        path = goal.parent / name_for(goal.name, "part")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        # A sweep may come between making and locking it: then it is gone, or about to be.
        if _lock(lock) and os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)


def _lock(descriptor: int) -> bool:
    """Lock a file; say whether nobody else has. True too where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _swept(path: Path) -> bool:
    """Remove a leftover; say whether it was one: of this user, and locked by nobody."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(handle).st_uid != os.geteuid():
                return False
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            return True
        finally:
            os.close(handle)
    return False
