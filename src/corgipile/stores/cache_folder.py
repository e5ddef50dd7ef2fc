"""The folder of a cache: write quotas of its processes, and eviction.

It contains the files of `cache_pages`, a count of the granted bytes (``used``), and one file per process with the
objects that it has open (`cache_users`). Processes coordinate under a lock on ``used``:

- Before it writes, a process requests a grant of bytes. Below the limit that is one addition. Otherwise the files
are measured again, and the least recently used ones are deleted until there is space.
- Objects that a running process has open and reads are not evicted for others. Otherwise every epoch over a table
larger than the cache would miss exactly the pages that it needs next. Pages beyond the limit are not cached.
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

__all__ = ["MIN_CACHE_BYTES", "CacheFolder", "folder_for"]

MIN_CACHE_BYTES = 1 << 20  # bytes of the smallest cache
MAX_GRANT_BYTES = 64 << 20  # most bytes granted at a time
MIN_GRANTS = 64  # fewest grants per cache
SPARE_PART = 20  # fraction of a full cache that is freed
TOUCH_SECONDS = 60.0  # seconds between marks that something is in use
REFUSED_SECONDS = 30.0  # seconds before a refused grant is requested again
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
TRANSIENT_ERRORS = {errno.EMFILE, errno.ENFILE, errno.EINTR}


class _PageFile(NamedTuple):
    """A file of pages."""

    path: Path
    key: str
    nbytes: int
    used: float


class CacheFolder:
    """The folder of a cache, as used by one process; thread-safe.

    Args:
        folder: The parent folder; each user of the system has a folder in it.
        size: Most bytes of all its files, or a share of the disk; None: half of the free space.

    Raises:
        BadArgument: The folder belongs to another user, or the size is too small.
        BadSize: The size is invalid.
        WriteFailed: The folder cannot be written, or the file system has no locks.

    Example:
        >>> import tempfile
        >>> folder = CacheFolder(tempfile.mkdtemp(), "4MB")
        >>> with folder.room(1 << 20) as granted, folder.room(8 << 20) as too_much:
        ...     granted, too_much
        (True, False)
    """

    def __init__(self, folder: str | os.PathLike[str], size: Size | None) -> None:
        self.path = _create(Path(folder).expanduser().absolute())
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
            if error.errno not in NO_SPACE:
                raise _unwritable(self.path, error) from None
            self.size = MIN_CACHE_BYTES
            self.give_up(error)
        self.grant = min(MAX_GRANT_BYTES, self.size // MIN_GRANTS)

    def _forget(self) -> None:
        """Reset the state, also after a fork: the parent's grants and note are not the child's."""
        self._lock = threading.Lock()
        self._granted = self._writing = 0  # bytes granted, and bytes being written
        self._refused, self._noted, self._stale = -REFUSED_SECONDS, -TOUCH_SECONDS, True
        self._note: Note | None = None

    def use(self, key: str) -> None:
        """Protect the pages of an object while it is open."""
        self._keys[key] += 1
        self._stale = True

    def leave(self, key: str) -> None:
        """Stop protecting the pages of an object."""
        self._keys[key] -= 1
        self._stale = True

    def touch(self) -> None:
        """Record, from time to time, that this process reads its open objects."""
        if self.writes and (self._stale or time.monotonic() - self._noted > TOUCH_SECONDS):
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
        """Return whether this many bytes may be written now; a failed write makes this process stop writing."""
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
        """Request a grant; evicts unused files if needed."""
        if time.monotonic() - self._refused < REFUSED_SECONDS:
            return False
        with self._ledger() as ledger:
            used, wanted = _count(ledger), max(needed, self.grant)
            if used + wanted > self.size:
                used = self._evict(wanted)
                wanted = wanted if used + wanted <= self.size else needed
            granted = used + wanted <= self.size
            self._granted += wanted * granted
            (self._note or self._note_keys()).owe(self._granted + self._writing)
            os.pwrite(ledger, (used + wanted * granted).to_bytes(8, "little"), 0)
        self._refused = -REFUSED_SECONDS if granted else time.monotonic()
        return granted

    def _evict(self, wanted: int) -> int:
        """Delete files until there is space; return the bytes then used, including bytes yet to be written."""
        owed, in_use = (self._note or self._note_keys()).others()  # before measuring, so that no file is missed by both
        in_use |= self._in_use()
        files = sorted(self._files(), key=lambda file: file.used)
        used = sum(file.nbytes for file in files) + owed + self._granted + self._writing
        if used + wanted > self.size:
            goal = self.size - self.size // SPARE_PART - wanted
            for file in files:
                if used > goal and file.key not in in_use:
                    file.path.unlink(missing_ok=True)
                    used -= file.nbytes
        return used

    def _files(self) -> Iterator[_PageFile]:
        with os.scandir(self.path) as entries:
            for entry in entries:
                key, dash, _ = entry.name.partition("-")
                if dash and not key.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        yield _PageFile(Path(entry.path), key, status.st_blocks * 512, status.st_mtime)

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[int]:
        """Open the file of the count, locked."""
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
        """Stop writing after a failure and warn once; transient failures are ignored."""
        if error.errno in TRANSIENT_ERRORS:
            return
        self.writes = False
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the cache in {self.path} cannot be written ({os.strerror(error.errno or errno.EIO)}); continuing "
                "without caching more",
                RuntimeWarning,
                stacklevel=2,
            )


_folders: dict[tuple[Path, Size | None], CacheFolder] = {}
_folders_lock = threading.Lock()


def folder_for(folder: str | os.PathLike[str], size: Size | None) -> CacheFolder:
    """Return the folder of a cache, one object per process for equal arguments.

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


def _create(folder: Path) -> Path:
    """Create the user's folder unless it exists."""
    ours = folder / f"corgipile-{os.geteuid()}"
    try:
        folder.mkdir(exist_ok=True)
        ours.mkdir(mode=0o700, exist_ok=True)
        status = ours.lstat()
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise BadArgument(f"{ours} must be a folder of user {os.geteuid()}; pass another folder as cache")
    return ours


def _unwritable(folder: Path, error: OSError) -> WriteFailed:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
        reason = "its file system has no locks"
    return WriteFailed(
        error.errno or errno.EIO,
        f"{folder} cannot be written as a cache: {reason}; pass a writable folder on a local disk",
    )


def _limit(size: Size | None, folder: Path, used: int) -> int:
    disk = os.statvfs(folder)
    if size is None:
        return max(MIN_CACHE_BYTES, (disk.f_bavail * disk.f_frsize + used) // 2)
    limit = parse_bytes(size, "cache_size", disk.f_blocks * disk.f_frsize)
    if limit < MIN_CACHE_BYTES:
        raise BadArgument(f"cache_size must be at least {format_bytes(MIN_CACHE_BYTES)}, got {size!r}")
    return limit


def _count(ledger: int) -> int:
    """Return the count; a damaged one exceeds any limit, so that files are measured again."""
    data = os.pread(ledger, 9, 0)
    return int.from_bytes(data, "little") & ((1 << 62) - 1) if len(data) in (0, 8) else 1 << 62
