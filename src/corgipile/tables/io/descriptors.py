"""A pool of file descriptors: the least recently used files are closed and reopened on demand."""

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple

from corgipile.errors import CorruptFile

try:
    import resource
except ImportError:  # this platform has no such limit
    resource = None  # type: ignore[assignment]

__all__ = ["POOL", "Descriptor", "Identity", "identity_of"]

MAX_OPEN, MIN_OPEN = 4096, 8  # files open at a time


class Identity(NamedTuple):
    """Identifies a file, so that a replacement at the same path is noticed."""

    device: int
    inode: int
    size: int
    mtime_ns: int


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity in a stat result."""
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class _Slot:
    """An open file, or -1 while closed; pins keep it open."""

    def __init__(self) -> None:
        self.fd, self.pins = -1, 0


class Pool:
    """Keeps files open, at most half of the process limit; thread-safe."""

    def __init__(self) -> None:
        self._idle: dict[int, _Slot] = {}  # open and unpinned; most recently used last
        self._pinned = 0  # open files with pins
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # reentrant: a finalizer may run while the lock is held

    @property
    def room(self) -> int:
        """Return how many files may be open."""
        limit = MAX_OPEN * 2 if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(MIN_OPEN, min(MAX_OPEN, limit // 2 if limit >= 0 else MAX_OPEN))

    @property
    def opened(self) -> int:
        """Return how many files are open."""
        return len(self._idle) + self._pinned

    def spare(self, files: int) -> bool:
        """Return whether this many more files may be pinned for long; half of the room stays for others."""
        with self._lock:
            return self._pinned + files <= self.room // 2

    def pin(self, slot: _Slot, path: str, fresh: Callable[[int], None]) -> int:
        """Pin a file open and return its descriptor; ``fresh`` checks a newly opened one."""
        with self._lock:
            if slot.fd < 0:
                fd = self._open(path)
                try:
                    fresh(fd)
                except BaseException:
                    os.close(fd)
                    raise
                slot.fd = fd
                self._pinned += slot.pins > 0  # it was closed while it was pinned
            self._idle.pop(id(slot), None)
            self._pinned += not slot.pins
            slot.pins += 1
            return slot.fd

    def _open(self, path: str) -> int:
        self._close_some(self.room - 1)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not block
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_some(0):
                raise
        return os.open(path, flags)

    def unpin(self, slot: _Slot) -> None:
        """Allow a file to be closed when others are needed."""
        with self._lock:
            slot.pins -= 1
            if not slot.pins and slot.fd >= 0:
                self._pinned -= 1
                self._idle[id(slot)] = slot

    def close(self, slot: _Slot) -> None:
        """Close a file now."""
        with self._lock:
            self._idle.pop(id(slot), None)
            fd, slot.fd = slot.fd, -1
            self._pinned -= fd >= 0 and slot.pins > 0
        if fd >= 0:
            os.close(fd)

    def _close_some(self, keep: int) -> int:
        """Close unpinned files until ``keep`` are open; return how many were closed."""
        closed = 0
        while self.opened > keep and (slot := next(iter(self._idle.values()), None)) is not None:
            self.close(slot)
            closed += 1
        return closed


POOL = Pool()


class Descriptor:
    """A file that is open while it is read and usually stays open in the pool.

    It must have the ``expected`` identity; ``random`` disables read-ahead. ``identity`` is None until it is opened.

    Example:
        >>> descriptor = Descriptor(__file__)
        >>> with descriptor.open() as fd:
        ...     os.pread(fd, 13, 0)
        b'\"\"\"A pool of '
    """

    def __init__(self, path: str, expected: Identity | None = None, *, random: bool = False) -> None:
        self.path, self._random = path, random
        self._slot = _Slot()
        weakref.finalize(self, POOL.close, self._slot)
        self.identity = expected
        if expected is None:
            self.pin()
            self.unpin()

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """Yield the descriptor, which stays open meanwhile."""
        fd = self.pin()
        try:
            yield fd
        finally:
            self.unpin()

    def pin(self) -> int:
        """Return the descriptor, which stays open until `unpin`.

        Raises:
            CorruptFile: The file at the path was changed or replaced.
            OSError: The file cannot be opened.
        """
        return POOL.pin(self._slot, self.path, self._fresh)

    def _fresh(self, fd: int) -> None:
        found = identity_of(os.fstat(fd))
        self.identity = expected = self.identity or found
        if found != expected:
            raise CorruptFile(
                f"{self.path} was changed or replaced since it was opened: it had {expected.size} bytes, now it has "
                f"{found.size}; open the table again"
            )
        if self._random and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def unpin(self) -> None:
        """Allow the file to be closed when others are needed."""
        POOL.unpin(self._slot)

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        POOL.close(self._slot)


class BorrowedDescriptor:
    """A descriptor owned by other code."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """Yield the descriptor."""
        yield self._fd
