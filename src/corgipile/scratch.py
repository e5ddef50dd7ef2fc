"""Temporary files and folders of a run; the next run removes those of killed runs.

Each is locked (``flock``) by its process. The system releases the lock when the process ends in any way, so an unlocked
file with one of our names is a leftover. Without locks in the file system, nothing counts as a leftover.

A signal may come between any two steps, even during the clean-up. So a name is registered before the file exists, and
`clean` removes what is left of the registered names: at interpreter exit, or before the process is ended otherwise.
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
TRIES = 100  # names to try; a sweep may remove a file before it is locked
_MAX_NAME = 200  # bytes of a name; file systems allow 255
SWEEP_SHARE = 64  # a folder of n names is swept once every n / 64 new files, so that many files take linear time
_until_sweep: dict[Path, int] = {}  # new files in a folder before it is swept again
_noted: dict[Path, tuple[int, Callable[[Path], object]]] = {}  # process (forks inherit entries), and remove function


def name_for(name: str, ending: str) -> str:
    """Return a new temporary name for ``name``.

    Example:
        >>> len(name_for("a.arrow", "part")) == len(".a.arrow.corgipile-0123456789ab.part")
        True
    """
    mark = f".corgipile-{os.urandom(6).hex()}.{ending}"
    short = os.fsencode(name)[: _MAX_NAME - len(mark)].decode(errors="ignore")
    return f".{short}{mark}"


@contextlib.contextmanager
def temporary(goal: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty, locked file in the folder of ``goal``, which is removed at the end of the block.

    Args:
        goal: The final file, or the file that it helps to write.
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
    with _locked_path(goal.parent, goal.name, "part", partial(_new_file, mode=mode)) as path:
        yield path


@contextlib.contextmanager
def folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new, locked folder in ``parent``, which is removed with its contents at the end of the block.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> with folder(place, "piles") as room:
        ...     _ = (room / "pile-0").write_text("rows")
        >>> list(place.iterdir())
        []
    """
    with _locked_path(parent, name, "room", _new_folder) as path:
        yield path


def note(path: Path, remove: Callable[[Path], object]) -> None:
    """Register a name that ``remove`` removes if the process ends first.

    Example:
        >>> note(Path("/tmp/a"), lambda path: path.unlink(missing_ok=True))
    """
    _noted[path] = os.getpid(), remove


def clean() -> None:
    """Remove everything that this process has registered and not removed.

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
    """Remove leftovers of killed runs in a folder; return their names.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> (place / name_for("a.arrow", "part")).touch(), (place / "a.part").touch()
        (None, None)
        >>> len(sweep(place)), [path.name for path in place.iterdir()]
        (1, ['a.part'])
    """
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        names = [entry.name for entry in entries]
        _until_sweep[place] = len(names) // SWEEP_SHARE
        ours = [name for name in names if name[0] == "." and _OURS.fullmatch(name)]
        return [name for name in ours if _remove_leftover(place / name)]
    return []


@contextlib.contextmanager
def _locked_path(parent: Path, name: str, ending: str, make: Callable[[Path], int]) -> Iterator[Path]:
    """Yield what ``make`` creates and opens under a new name, locked until the end of the block."""
    _until_sweep[parent] = _until_sweep.get(parent, 0) - 1
    if _until_sweep[parent] < 0:
        sweep(parent)
    path, lock, left = parent, -1, TRIES
    try:
        while lock < 0:
            path, left = parent.absolute() / name_for(name, ending), left - 1
            note(path, _delete)
            lock = _make_locked(path, make, last=left <= 0)
        yield path
    finally:
        # The name goes before the lock: else another run could take the file for a leftover.
        _remove(path)
        if lock >= 0:
            os.close(lock)


def _make_locked(path: Path, make: Callable[[Path], int], *, last: bool) -> int:
    """Create and lock a file or folder; return -1 if a sweep has removed it, or is about to.

    Some file systems, such as /proc, report any new file as missing: the ``last`` try raises their error.
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
    """Remove a name that this process registered, and unregister it."""
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
    """Lock a file; return whether no other process has it. True too without locks in the file system."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_leftover(path: Path) -> bool:
    """Remove a leftover of this user, which no process has locked; return whether it was one."""
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
