"""One spill file for all processes of a machine that read the same table: made once, gone with the last of them."""

import contextlib
import fcntl
import json
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from corgipile import scratch
from corgipile.nesting import parse_json
from corgipile.tables.io.files import digest
from corgipile.tables.io.spill import SpillFile, check_room

__all__ = ["expect_room", "shared"]

User = tuple[int, int, int, int]  # process, its descriptor, device and inode


def shared(folder: Path, key: str, make: Callable[[], SpillFile]) -> SpillFile:
    """Return the spill file of a key: that of another process or object, or one made now while others wait.

    The file has no name; a small register beside it says which descriptors of which processes lead to it, so that a
    process that is killed leaves no rows behind. Where descriptors of other processes cannot be opened (no ``/proc``)
    each process makes a file of its own.

    Args:
        folder: Where spill files lie.
        key: What tells tables, and their columns, apart.
        make: Makes the file.

    Example:
        >>> import tempfile
        >>> from corgipile.tables.io.spill import SpillWriter
        >>> folder, made = Path(tempfile.mkdtemp()), []
        >>> make = lambda: made.append(1) or SpillWriter(folder).finish()
        >>> files = [shared(folder, "key", make), shared(folder, "key", make)]
        >>> len(made), len(list(folder.iterdir()))
        (1, 1)
        >>> del files
        >>> list(folder.iterdir())
        []
    """
    _sweep(folder)
    register = _register(folder, key)
    scratch.note(register, _leave_at_once)
    with _locked(register) as handle:
        if handle is None:
            return make()
        users = _alive(_users(handle))
        spill = next(filter(None, map(_adopt, users)), None)
        if spill is None:
            try:
                spill = make()
            except BaseException:
                register.unlink(missing_ok=True)
                raise
        status = os.fstat(spill.descriptor)
        user = (os.getpid(), spill.descriptor, status.st_dev, status.st_ino)
        _note(handle, [*users, user])
    weakref.finalize(spill, _leave, register, user)
    return spill


def expect_room(folder: Path, key: str, needed: int) -> None:
    """Find out whether a spill file can be written, unless it is there already or another process makes it.

    Raises:
        WriteFailed: The disk has not enough room, or nothing can be written there.
    """
    if not _register(folder, key).exists():
        check_room(folder, needed)


def _register(folder: Path, key: str) -> Path:
    return folder / f"{_prefix()}{digest(key)}.lock"


def _prefix() -> str:
    return f"corgipile-{os.geteuid()}-"


@contextlib.contextmanager
def _locked(register: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Open and lock a register; None where it cannot be ours, or is locked and we do not wait."""
    handle = _lock(register, wait=wait)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _lock(register: Path, *, wait: bool) -> int | None:
    while True:
        try:
            handle = os.open(register, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine, there = os.fstat(handle), os.stat(register, follow_symlinks=False)  # noqa: PTH116 - as below
        except FileNotFoundError:  # its last user removed it meanwhile
            os.close(handle)
            continue
        except OSError:
            os.close(handle)
            return None
        if mine.st_uid != os.geteuid():
            os.close(handle)
            return None
        if mine.st_ino == there.st_ino:
            return handle
        os.close(handle)


def _users(handle: int) -> list[User]:
    try:
        found = parse_json(os.pread(handle, 1 << 20, 0) or b"[]", "the list of users")
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in found]
    except (ValueError, TypeError):  # CorruptFile is a ValueError
        return []


def _note(handle: int, users: list[User]) -> None:
    text = json.dumps(users).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, text, 0)


def _link(user: User) -> str:
    return f"/proc/{user[0]}/fd/{user[1]}"


def _alive(users: list[User]) -> list[User]:
    """Return the users that still have the file open."""
    return [user for user in users if _is(user, _status(_link(user)))]


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - of a link that leads to no name
    except OSError:
        return None


def _is(user: User, status: os.stat_result | None) -> bool:
    return status is not None and (status.st_dev, status.st_ino) == user[2:]


def _adopt(user: User) -> SpillFile | None:
    """Open the file that another process, or another object of this one, has open."""
    try:
        descriptor = os.open(_link(user), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if _is(user, os.fstat(descriptor)):
        return SpillFile(descriptor)
    os.close(descriptor)
    return None


def _leave(register: Path, user: User) -> None:
    """Take a user out of the register; without users it goes."""
    if user[0] != os.getpid():
        return  # a fork shares its parent's descriptor, which the parent noted
    with _locked(register) as handle:
        _keep(register, handle, lambda other: other != user)


def _leave_at_once(register: Path) -> None:
    """Take a process that ends out of a register, whatever it was stopped in."""
    if register.exists():
        with _locked(register, wait=False) as handle:
            _keep(register, handle, lambda other: other[0] != os.getpid())


def _keep(register: Path, handle: int | None, wanted: Callable[[User], bool]) -> None:
    if handle is not None:
        left = [*filter(wanted, _alive(_users(handle)))]
        if left:
            _note(handle, left)
        else:
            register.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left in the folder."""
    for register in folder.glob(f"{_prefix()}*.lock"):
        with _locked(register, wait=False) as handle:
            if handle is not None and not _alive(_users(handle)):
                register.unlink(missing_ok=True)
