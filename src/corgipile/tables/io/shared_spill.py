"""Spill files shared by the processes of a machine: written once, deleted with their last user."""

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

User = tuple[int, int, int, int]  # process id, its descriptor, device, inode


def shared(folder: Path, key: str, make: Callable[[], SpillFile]) -> SpillFile:
    """Return the spill file of a key: an existing one of any process, or a new one that others wait for.

    The file has no name. A small register lists the processes and descriptors through which it can be opened, so a
    killed process leaves no rows behind. Where other processes' descriptors cannot be opened (no ``/proc``), each
    process writes its own file.

    Example:
        >>> import tempfile
        >>> from corgipile.tables.io.spill import SpillWriter
        >>> folder, calls = Path(tempfile.mkdtemp()), []
        >>> make = lambda: calls.append(1) or SpillWriter(folder).finish()
        >>> files = [shared(folder, "key", make), shared(folder, "key", make)]
        >>> len(calls), len(list(folder.iterdir()))
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
        _write_users(handle, [*users, user])
    weakref.finalize(spill, _leave, register, user)
    return spill


def expect_room(folder: Path, key: str, needed: int) -> None:
    """Check that a spill file can be written, unless it exists or another process is writing it.

    Raises:
        WriteFailed: The disk is too full, or the folder is not writable.
    """
    if not _register(folder, key).exists():
        check_room(folder, needed)


def _register(folder: Path, key: str) -> Path:
    return folder / f"{_prefix()}{digest(key)}.lock"


def _prefix() -> str:
    return f"corgipile-{os.geteuid()}-"


@contextlib.contextmanager
def _locked(register: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Open and lock a register; yield None if another user owns it, or it is locked and ``wait`` is False."""
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
        if os.fstat(handle).st_uid != os.geteuid():  # before it is locked, since its owner may never unlock it
            os.close(handle)
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
        if mine.st_ino == there.st_ino:
            return handle
        os.close(handle)


def _users(handle: int) -> list[User]:
    try:
        found = parse_json(os.pread(handle, 1 << 20, 0) or b"[]", "the list of users")
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in found]
    except (ValueError, TypeError):  # CorruptFile is a ValueError
        return []


def _write_users(handle: int, users: list[User]) -> None:
    text = json.dumps(users).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, text, 0)


def _link(user: User) -> str:
    return f"/proc/{user[0]}/fd/{user[1]}"


def _alive(users: list[User]) -> list[User]:
    """Return the users that still have the file open."""
    return [user for user in users if _same_file(user, _status(_link(user)))]


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - of a link that leads to no name
    except OSError:
        return None


def _same_file(user: User, status: os.stat_result | None) -> bool:
    return status is not None and (status.st_dev, status.st_ino) == user[2:]


def _adopt(user: User) -> SpillFile | None:
    """Open the file through the descriptor of another process or object."""
    try:
        descriptor = os.open(_link(user), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if _same_file(user, os.fstat(descriptor)):
        return SpillFile(descriptor)
    os.close(descriptor)
    return None


def _leave(register: Path, user: User) -> None:
    """Remove a user from the register; delete the register with its last user."""
    if user[0] != os.getpid():
        return  # a forked child shares its parent's descriptor, which the parent registered
    with _locked(register) as handle:
        _filter_users(register, handle, lambda other: other != user)


def _leave_at_once(register: Path) -> None:
    """Remove an exiting process from a register, whatever interrupted it."""
    if register.exists():
        with _locked(register, wait=False) as handle:
            _filter_users(register, handle, lambda other: other[0] != os.getpid())


def _filter_users(register: Path, handle: int | None, keep: Callable[[User], bool]) -> None:
    if handle is not None:
        left = [*filter(keep, _alive(_users(handle)))]
        if left:
            _write_users(handle, left)
        else:
            register.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove the registers of killed processes from the folder."""
    for register in folder.glob(f"{_prefix()}*.lock"):
        with _locked(register, wait=False) as handle:
            if handle is not None and not _alive(_users(handle)):
                register.unlink(missing_ok=True)
