"""Spill files: decoded rows of encoded tables in unnamed files on disk, outside the memory budget."""

import contextlib
import errno
import functools
import io
import os
import struct
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import scratch
from corgipile.errors import BadArgument, WriteFailed
from corgipile.sizes import format_bytes
from corgipile.tables.io.arriving import DEFAULT_IN_FLIGHT
from corgipile.tables.io.descriptors import BorrowedDescriptor, identity_of
from corgipile.tables.io.files import File, IntArray

__all__ = [
    "IN_MEMORY",
    "OFF",
    "Section",
    "Spill",
    "SpillFile",
    "SpillWriter",
    "check_room",
    "nameless",
    "spill_folder",
    "writing",
]

Spill = str | os.PathLike[str] | bool | None
SPILL_VARIABLE, OFF = "CORGIPILE_SPILL", "off"
ALIGN = 64  # bytes between possible starts of a section
TAIL = struct.Struct("<Q")
IN_MEMORY = 64 << 20  # bytes of a stream beyond which its rows are spilled
MIN_FREE = 16 << 20  # bytes left free on the disk
CHECK_EVERY = MIN_FREE >> 1  # bytes written between two checks of the free space


def spill_folder(spill: Spill) -> Path | None:
    """Return the folder for spill files, None if they are disabled.

    Args:
        spill: A folder; ``"off"`` or False; None or True: variable ``CORGIPILE_SPILL``, else TMPDIR, else ``/var/tmp``,
            which unlike ``/tmp`` is seldom in memory, else the system's folder for temporary files.

    Raises:
        BadArgument: The folder does not exist.

    Example:
        >>> spill_folder("off") is None, spill_folder("/tmp")
        (True, PosixPath('/tmp'))
    """
    if spill is None or spill is True:
        spill = os.environ.get(SPILL_VARIABLE) or None
    if spill is False or (isinstance(spill, str) and spill.lower() == OFF):
        return None
    if spill is None:
        usual = "TMPDIR" in os.environ or not os.access("/var/tmp", os.W_OK)  # noqa: S108 - nothing there is named
        return _path(tempfile.gettempdir() if usual else "/var/tmp")  # noqa: S108 - as above
    folder = _path(str(Path(spill).expanduser().absolute()))
    if not folder.is_dir():
        raise BadArgument(f"spill must be an existing folder or 'off', got {os.fspath(spill)!r}")
    return folder


@functools.lru_cache(maxsize=16)
def _path(name: str) -> Path:
    """Return a path object that all files of a folder share."""
    return Path(name)


def check_room(folder: Path, needed: int) -> None:
    """Check, before rows are read, that a spill file of this many bytes can be written.

    Raises:
        WriteFailed: The disk is too full, or the folder is not writable.
    """
    with writing(folder):
        os.close(nameless(folder))
    _check_free(folder, needed)


def _check_free(folder: Path, needed: int) -> None:
    with writing(folder):
        status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if free < needed + MIN_FREE:
        raise WriteFailed(
            errno.ENOSPC,
            f"{folder} must have {format_bytes(needed)} free plus a reserve of {format_bytes(MIN_FREE)}, got "
            f"{format_bytes(free)}; {_ADVICE}",
        )


_ADVICE = (
    f"choose another folder with open(..., spill=FOLDER) or the variable {SPILL_VARIABLE}, or avoid spill files with "
    "`corgipile convert`"
)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn operating-system errors into WriteFailed."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WriteFailed(error.errno, f"cannot write a spill file in {folder}: {reason}; {_ADVICE}") from error


def nameless(folder: Path) -> int:
    """Open a new unnamed file, which is deleted when it is closed, however the process ends."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is not None:
        try:
            return os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
    with scratch.folder(folder, "spill") as room:  # a private folder
        return os.open(room / "rows", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class SpillFile:
    """An unnamed file of sections."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @property
    def path(self) -> str:
        """Return a path at which this process and its forked children can open the file."""
        links = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
        return f"{links}/{self.descriptor}"

    @property
    def size(self) -> int:
        """Return the bytes of the file."""
        return os.fstat(self.descriptor).st_size

    def sections(self) -> "Iterator[Section]":
        """Yield the sections in the order written."""
        end = self.size - TAIL.size
        (count,) = TAIL.unpack(os.pread(self.descriptor, TAIL.size, end))
        places = np.frombuffer(os.pread(self.descriptor, 16 * count, end - 16 * count), "<i8").reshape(-1, 2)
        for base, size in places.tolist():
            yield Section(self, base, size)


class SpillWriter(io.RawIOBase):
    """Writes sections one after another; positions count from the start of the section.

    Args:
        folder: Folder of the file.
        file: The file if it exists already.
        in_flight: Bytes of remote sources that may be in flight or unread meanwhile.

    Example:
        >>> writer = SpillWriter(Path("/tmp"))
        >>> with writer.section():
        ...     _ = writer.write(b"rows")
        >>> [section.read(0, 4) for section in writer.finish().sections()]
        [b'rows']
    """

    def __init__(self, folder: Path, file: SpillFile | None = None, in_flight: int = DEFAULT_IN_FLIGHT) -> None:
        super().__init__()
        self._folder, self.in_flight = folder, in_flight
        with writing(folder):
            self._file = file or SpillFile(nameless(folder))
        self._places: list[tuple[int, int]] = []
        self._base = self._at = 0
        self._unchecked = 0

    @contextlib.contextmanager
    def section(self) -> Iterator[None]:
        """Start a section, which ends with the ``with`` block."""
        self._base = self._at = -(-self._at // ALIGN) * ALIGN
        yield
        self._places.append((self._base, self._at - self._base))

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the bytes written to this section."""
        return self._at - self._base

    def write(self, data: Any) -> int:
        """Append bytes; raise WriteFailed if the disk is almost full or broken."""
        done = self.put(self.tell(), data)
        self._at += done
        return done

    def put(self, at: int, data: Any) -> int:
        """Write bytes at a position of this section, thread-safe, as `write` but without moving; return how many."""
        view = memoryview(data).cast("B")
        self._unchecked += len(view)
        if self._unchecked >= CHECK_EVERY:
            _check_free(self._folder, self._unchecked)
            self._unchecked = 0
        with writing(self._folder):
            done = 0
            while done < len(view):
                done += os.pwrite(self._file.descriptor, view[done:], self._base + at + done)
        return len(view)

    def skip(self, nbytes: int) -> None:
        """Skip bytes: they read as zeros and take no disk space."""
        self._at += nbytes

    def align(self) -> int:
        """Move to the next aligned position and return it."""
        self._at += -self._at % ALIGN
        return self.tell()

    def finish(self) -> SpillFile:
        """Write the positions of the sections; return the file."""
        self.write(np.array(self._places, "<i8").tobytes() + TAIL.pack(len(self._places)))
        return self._file


class Section(File):
    """Reads a section of a spill file as a file."""

    def __init__(self, spill: SpillFile, base: int, size: int) -> None:
        self.spill, self.base, self.size = spill, base, size
        self.path, self._descriptor, self.mtime_ns = spill.path, BorrowedDescriptor(spill.descriptor), 0
        self._content = None
        self.which = identity_of(os.fstat(spill.descriptor))

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        self._check(offset, length)
        return b"".join(self._parts(offset, length))

    def _parts(self, offset: int, length: int) -> Iterator[bytes]:
        while length > 0:
            data = os.pread(self.spill.descriptor, length, self.base + offset)
            if not data:
                raise self._short(offset, offset + length)
            yield data
            offset, length = offset + len(data), length - len(data)

    def gather(
        self,
        offsets: IntArray,
        lengths: IntArray,
        out: npt.NDArray[np.uint8] | None = None,
        to: IntArray | None = None,
    ) -> npt.NDArray[np.uint8]:
        """Read many byte ranges back to back, or to the requested positions."""
        return super().gather(np.asarray(offsets) + self.base, lengths, out, to)

    def gather_bytes(self, offsets: IntArray, lengths: IntArray) -> list[bytes]:
        """Read many byte ranges, each into a bytes object."""
        return super().gather_bytes(np.asarray(offsets) + self.base, lengths)
