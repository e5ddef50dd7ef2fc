"""The folder of a cache: who may write how much into it, and what goes when it is full.

Files in it are those of `cache_pages`, a count of the bytes that were granted (``used``), and one file a process that
says which objects it has open (`cache_users`). Processes decide everything among themselves, under a lock on ``used``:

- Before it writes, a process asks for a grant of bytes. While the count is below the limit that is one addition. Once
  it would pass it, the files are measured anew, and those used longest ago are deleted until there is room.
- What a running process has open, and reads, is not deleted for others: were it, every epoch over a table larger than
  the cache would find just the pages gone that it needs next. What does not fit then is not kept.
- The lock, and the locks on the files of processes, end with the process, however it ends.
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corgipile.errors import BadArgument, WriteFailed
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.stores.cache_users import Note

__all__ = ["LEAST", "CacheFolder", "folder_for"]

LEAST = 1 << 20  # bytes of the smallest cache
GRANT = 64 << 20  # bytes granted at a time, at most
GRANTS = 64  # of which a cache holds at least so many
SPARE = 20  # a full cache is emptied by one part in so many
TOUCH = 60.0  # seconds between notes that something is in use
REFUSED = 30.0  # seconds before room is asked for again
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
PASSING = {errno.EMFILE, errno.ENFILE, errno.EINTR}


class _Kept(NamedTuple):
    """A file of pages."""

    path: Path
    key: str
    nbytes: int
    used: float


class CacheFolder:
    """The folder of a cache, as one process uses it; thread-safe.

    Args:
        folder: Where the folder lies; ours is in it, one for each user of the system.
        size: Bytes that all its files may have together, or a share of the disk; None: half of what is free.

    Raises:
        BadArgument: The folder is another user's, or the size is too small.
        BadSize: The size is no size.
        WriteFailed: Nothing can be written there, or the file system has no locks.

    Example:
        >>> import tempfile
        >>> folder = CacheFolder(tempfile.mkdtemp(), "4MB")
        >>> with folder.room(1 << 20) as granted, folder.room(8 << 20) as too_much:
        ...     granted, too_much
        (True, False)
    """

    def __init__(self, folder: str | os.PathLike[str], size: Size | None) -> None:
        self.path = _made(Path(folder).expanduser().absolute())
        self.writes, self._warned = True, False
        self._keys: Counter[str] = Counter()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        try:
            with self._ledger() as ledger:
                self.size = _limit(size, self.path, _count(ledger))
            self._note_keys()
        except BadArgument:
            raise
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise _unwritable(self.path, error) from None
            self.size = LEAST
            self.give_up(error)
        self.grant = min(GRANT, self.size // GRANTS)

    def _forget(self) -> None:
        """Begin anew, as a fork does: its parent's grants and note are not its own."""
        self._lock = threading.Lock()
        self._granted = self._writing = 0  # bytes that may be written, and that are being written
        self._refused, self._noted, self._stale = -REFUSED, -TOUCH, True
        self._note: Note | None = None

    def use(self, key: str) -> None:
        """Have the pages of an object kept while it is open."""
        self._keys[key] += 1
        self._stale = True

    def leave(self, key: str) -> None:
        """Let the pages of an object go when there is need."""
        self._keys[key] -= 1
        self._stale = True

    def touch(self) -> None:
        """Note, from time to time, that this process reads what it has open."""
        if self.writes and (self._stale or time.monotonic() - self._noted > TOUCH):
            with self._lock, self._giving_up():
                self._note_keys()

    def _note_keys(self) -> Note:
        self._note = self._note or Note(self.path)
        self._stale, self._noted = False, time.monotonic()
        self._note.write(self._granted + self._writing, self._in_use())
        return self._note

    def _in_use(self) -> set[str]:
        return {key for key, count in [*self._keys.items()] if count > 0}

    @contextlib.contextmanager
    def room(self, nbytes: int) -> Iterator[bool]:
        """Say whether so many bytes may be written now; failures to write them make this process stop writing."""
        allowed = False
        if self.writes and nbytes <= self.size:
            with self._lock, self._giving_up():
                allowed = self._granted >= nbytes or self._ask(nbytes - self._granted)
                self._granted -= nbytes * allowed
                self._writing += nbytes * allowed
        try:
            with self._giving_up():
                yield allowed
        finally:
            if allowed:
                with self._lock, self._giving_up():
                    self._writing -= nbytes
                    (self._note or self._note_keys()).owe(self._granted + self._writing)

    def _ask(self, needed: int) -> bool:
        """Ask for a grant; delete what is used no more if there is need."""
        if time.monotonic() - self._refused < REFUSED:
            return False
        with self._ledger() as ledger:
            used, wanted = _count(ledger), max(needed, self.grant)
            if used + wanted > self.size:
                used = self._emptied(wanted)
                wanted = wanted if used + wanted <= self.size else needed
            granted = used + wanted <= self.size
            self._granted += wanted * granted
            (self._note or self._note_keys()).owe(self._granted + self._writing)
            os.pwrite(ledger, (used + wanted * granted).to_bytes(8, "little"), 0)
        self._refused = -REFUSED if granted else time.monotonic()
        return granted

    def _emptied(self, wanted: int) -> int:
        """Delete files until there is room; return the bytes used then, those among them that may yet be written."""
        owed, in_use = (self._note or self._note_keys()).others()  # before files are measured: none counts as neither
        in_use |= self._in_use()
        kept = sorted(self._files(), key=lambda file: file.used)
        used = sum(file.nbytes for file in kept) + owed + self._granted + self._writing
        if used + wanted > self.size:
            goal = self.size - self.size // SPARE - wanted
            for file in kept:
                if used > goal and file.key not in in_use:
                    file.path.unlink(missing_ok=True)
                    used -= file.nbytes
        return used

    def _files(self) -> Iterator[_Kept]:
        with os.scandir(self.path) as entries:
            for entry in entries:
                key, dash, _ = entry.name.partition("-")
                if dash and not key.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        yield _Kept(Path(entry.path), key, status.st_blocks * 512, status.st_mtime)

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[int]:
        """Give the file of the count, locked."""
        ledger = os.open(self.path / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield ledger
        finally:
            os.close(ledger)

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.give_up(error)

    def give_up(self, error: OSError) -> None:
        """Go on without writing after a failure, and say so once; some failures pass."""
        if error.errno in PASSING:
            return
        self.writes = False
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the cache in {self.path} cannot be written ({os.strerror(error.errno or errno.EIO)}); going on "
                "without keeping more in it",
                RuntimeWarning,
                stacklevel=2,
            )


_folders: dict[tuple[Path, Size | None], CacheFolder] = {}
_folders_lock = threading.Lock()


def folder_for(folder: str | os.PathLike[str], size: Size | None) -> CacheFolder:
    """Return the folder of a cache, one object for all of a process that give the same.

    Example:
        >>> import tempfile
        >>> place = tempfile.mkdtemp()
        >>> folder_for(place, "4MB") is folder_for(place, "4MB")
        True
    """
    key = Path(folder).expanduser().absolute(), size
    with _folders_lock:
        if key not in _folders or not _folders[key].path.is_dir():
            _folders[key] = CacheFolder(folder, size)
        return _folders[key]


def _made(folder: Path) -> Path:
    """Make the folder that is ours, if it is not there."""
    ours = folder / f"corgipile-{os.geteuid()}"
    try:
        folder.mkdir(exist_ok=True)
        ours.mkdir(mode=0o700, exist_ok=True)
        status = ours.lstat()
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise BadArgument(f"{ours} is no folder of user {os.geteuid()}; name another folder as cache")
    return ours


def _unwritable(folder: Path, error: OSError) -> WriteFailed:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
        reason = "its file system has no locks"
    return WriteFailed(
        error.errno or errno.EIO,
        f"{folder} cannot be written as a cache: {reason}; name a folder on a local disk that you may write to",
    )


def _limit(size: Size | None, folder: Path, used: int) -> int:
    disk = os.statvfs(folder)
    if size is None:
        return max(LEAST, (disk.f_bavail * disk.f_frsize + used) // 2)
    limit = parse_bytes(size, "cache_size", disk.f_blocks * disk.f_frsize)
    if limit < LEAST:
        raise BadArgument(f"cache_size must be at least {format_bytes(LEAST)}, got {size!r}")
    return limit


def _count(ledger: int) -> int:
    """Return the count; one that is damaged is more than any limit, so that files are measured anew."""
    data = os.pread(ledger, 9, 0)
    return int.from_bytes(data, "little") & ((1 << 62) - 1) if len(data) in (0, 8) else 1 << 62
