"""Files and folders that live as long as a run; those of runs that were killed are removed by the next one.

Each is locked (``flock``) by the process that made it. The system lets go of the lock when the process ends, however
it ends, so whatever bears one of our names and is not locked is a leftover. Where the file system has no locks nothing
is ever taken for one.

A signal may come between any two steps, also within what cleans up. So a name is noted before anything bears it, and
`clean` removes what is left of those noted: when Python ends, or before it is ended without its own farewell.
"""

import atexit
import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

__all__ = ["clean", "folder", "name_for", "note", "sweep", "temporary"]

_OURS = re.compile(r"\..*\.corgipile-[0-9a-f]{12}\.(part|room)")
TRIES = 100  # names; of each a sweep may take away the file before it is locked
_LONGEST = 200  # bytes of a name; 255 are allowed
_noted: dict[Path, tuple[int, Callable[[Path], object]]] = {}  # who noted a name (a fork has them too), and how it goes


def name_for(name: str, ending: str) -> str:
    """Return a new name for what becomes ``name``, or serves it.

    Example:
        >>> len(name_for("a.arrow", "part")) == len(".a.arrow.corgipile-0123456789ab.part")
        True
    """
    mark = f".corgipile-{os.urandom(6).hex()}.{ending}"
    short = os.fsencode(name)[: _LONGEST - len(mark)].decode(errors="ignore")
    return f".{short}{mark}"


@contextlib.contextmanager
def temporary(goal: Path, mode: int = 0o666) -> Iterator[Path]:
    """Give an empty, locked file beside ``goal``; what is left of it goes when the block ends.

    Args:
        goal: The final file, or the one that it helps to write.
        mode: Its permissions before the umask.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> with temporary(place / "a.arrow") as path:
        ...     len(list(place.iterdir())), path.parent == place
        (1, True)
        >>> list(place.iterdir())
        []
    """
    with _kept(goal.parent, goal.name, "part", partial(_new_file, mode=mode)) as path:
        yield path


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
    with _kept(parent, name, "room", _new_folder) as path:
        yield path


def note(path: Path, remove: Callable[[Path], object]) -> None:
    """Have a name that something will bear removed by ``remove``, should the process end first.

    Example:
        >>> note(Path("/tmp/a"), lambda path: path.unlink(missing_ok=True))
    """
    _noted[path] = os.getpid(), remove


def clean() -> None:
    """Remove at once what this process has made and not yet removed.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> with temporary(place / "a.arrow"):
        ...     clean()
        ...     list(place.iterdir())
        []
    """
    for path in [*_noted]:
        with contextlib.suppress(OSError):
            _remove(path)


atexit.register(clean)


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


@contextlib.contextmanager
def _kept(parent: Path, name: str, ending: str, make: Callable[[Path], int]) -> Iterator[Path]:
    """Give what ``make`` makes and opens under a new name, locked, until the block ends."""
    sweep(parent)
    path, lock, left = parent, -1, TRIES
    try:
        while lock < 0:
            path, left = parent.absolute() / name_for(name, ending), left - 1
            note(path, _delete)
            lock = _locked(path, make, last=left <= 0)
        yield path
    finally:
        # First the name, then the lock: else another run could take it for a leftover.
        _remove(path)
        if lock >= 0:
            os.close(lock)


def _locked(path: Path, make: Callable[[Path], int], *, last: bool) -> int:
    """Make and lock a file or folder; -1 if a sweep came between: then it is gone, or about to be.

    Some file systems, such as /proc, say of any new file that it is not there: that is so at the ``last`` try, too.
    """
    try:
        lock = make(path)
    except FileNotFoundError:
        if path.parent.is_dir() and not last:
            return -1
        raise
    if _lock(lock) and os.fstat(lock).st_nlink:
        return lock
    os.close(lock)
    return -1


def _new_file(path: Path, mode: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def _new_folder(path: Path) -> int:
    path.mkdir(mode=0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _remove(path: Path) -> None:
    """Remove what bears a name that this process noted, and forget it."""
    process, remove = _noted.get(path, (None, _delete))
    if process == os.getpid():
        remove(path)
        _noted.pop(path, None)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
