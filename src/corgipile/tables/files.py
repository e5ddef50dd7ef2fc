"""Files read by pread from any thread, and the translation of low-level errors."""

import contextlib
import errno
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import (
    BadArgument,
    CorgiPileError,
    CorruptFile,
    MissingFile,
    ReadFailed,
    TableError,
    UnknownFormat,
    WriteFailed,
)
from corgipile.tables.descriptors import Descriptor, identity_of

PathLike = str | os.PathLike[str]
IntArray = npt.NDArray[np.int64]
THREADS = 32


class File:
    """Reads byte ranges of one file; thread-safe, and opened again when unpickled.

    Example:
        >>> file = File(__file__)
        >>> file.read(0, 8)
        b'\"\"\"Files'
    """

    def __init__(self, path: PathLike) -> None:
        self.path = str(Path(path).expanduser().absolute())
        with readable(self.path):
            self._descriptor = Descriptor(self.path)
            with self._descriptor.open() as descriptor:
                status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnknownFormat(f"{self.path} is a directory; a file is needed here")
        self.which = identity_of(status)
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns

    def __reduce__(self) -> tuple[type["File"], tuple[str]]:
        return File, (self.path,)

    def source(self) -> Any:
        """Return the file as pyarrow reads it; it takes no descriptor of its own."""
        return pa.PythonFile(_Source(self), mode="r")

    @property
    def identity(self) -> str:
        """Return name, size and time of change, for a fingerprint."""
        return f"{Path(self.path).resolve().name} {self.size} {self.mtime_ns}"

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes.

        Raises:
            CorruptFile: The file ends before.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptFile(f"{self.path}: bytes {offset} to {offset + length} are needed; the file has {self.size}")
        with readable(self.path), self._descriptor.open() as descriptor:
            data = os.pread(descriptor, length, offset)
            if len(data) == length:
                return data
            parts = [data]
            while data and (done := sum(map(len, parts))) < length:
                # One call returns at most 2 GiB.
                data = os.pread(descriptor, length - done, offset + done)
                parts.append(data)
        whole = b"".join(parts)
        if len(whole) < length:
            raise self._short(offset, offset + length)
        return whole

    def gather(self, offsets: IntArray, lengths: IntArray) -> npt.NDArray[np.uint8]:
        """Read many byte ranges, ascending, and lay them back to back; several at a time where the device is slow.

        Raises:
            CorruptFile: The file ends before.
        """
        offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
        ends = np.cumsum(lengths)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        with readable(self.path), self._descriptor.open() as descriptor:
            failure = _kernel.read_ranges(descriptor, offsets, lengths, ends - lengths, data, THREADS)
        if failure is not None:
            code, at = failure
            if code:
                raise ReadFailed(code, f"{self.path}: {os.strerror(code)}")
            raise self._short(int(offsets[at]), int(offsets[at] + lengths[at]))
        return data

    def _short(self, start: int, stop: int) -> CorruptFile:
        with readable(self.path), self._descriptor.open() as descriptor:
            size = os.fstat(descriptor).st_size
        if size != self.size:
            return CorruptFile(f"{self.path} has {size} bytes now; it had {self.size} when opened")
        return CorruptFile(f"{self.path}: bytes {start} to {stop} are needed; the file has {size}")


class _Source(io.RawIOBase):
    """A file with a place at which the next reading begins."""

    def __init__(self, file: File) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        data = self._file.read(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn errors of the operating system into ours."""
    try:
        yield
    except TableError:
        raise
    except FileNotFoundError:
        raise MissingFile(f"no file at {path}") from None
    except OSError as error:
        raise ReadFailed(error.errno or errno.EIO, f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def decoding(path: str) -> Iterator[None]:
    """Turn whatever a decoder says of bad bytes into CorruptFile, and failed reads into ReadFailed."""
    try:
        yield
    except TableError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        MemoryError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise ReadFailed(error.errno, f"{path}: {error.strerror or error}") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptFile(f"{path}: does not decode: {reason[:300]}") from None


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
    """Give a temporary name beside ``path``; on success flush the file and rename it, on failure remove it.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder / "a.txt") as temporary:
        ...     _ = temporary.write_text("whole")
        >>> [entry.name for entry in folder.iterdir()]
        ['a.txt']

    Raises:
        BadArgument: There is no such folder, or a folder has that name.
        WriteFailed: The disk is full, or the file system refuses.
    """
    goal = Path(path).expanduser().absolute()
    if goal.is_dir() or not goal.parent.is_dir():
        raise BadArgument(f"cannot write {goal}: a file name in an existing folder is wanted")
    temporary = goal.parent / f".{goal.name}.{secrets.token_hex(6)}.part"
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(goal)
        _flush(goal.parent)
    except CorgiPileError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WriteFailed(error.errno, f"cannot write {goal}: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(*parts: str) -> str:
    """Return a short hash of several strings.

    Example:
        >>> digest("a", "b") == digest("ab")
        False
    """
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def describe(schema: pa.Schema) -> str:
    """Write a schema as text for a fingerprint: names and types, no metadata."""
    return ";".join(f"{field.name!r}:{field.type}" for field in schema)
