"""Files read by pread from any thread, and the translation of operating-system errors."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import CorgiPileError, CorruptFile, MissingFile, ReadFailed, TableError, UnknownFormat
from corgipile.tables.io.descriptors import BorrowedDescriptor, Descriptor, identity_of

PathLike = str | os.PathLike[str]
IntArray = npt.NDArray[np.int64]
MAX_READERS = 32
ALIGNMENT = 8  # bytes; arrays of numbers begin at multiples
# What a content digest reads: files of at most MAX_WHOLE bytes whole, else N_PIECES pieces (per table) and both ENDS.
MAX_WHOLE, N_PIECES, PIECE, ENDS = 1 << 20, 256, 4 << 10, 16 << 10
_n_files: ContextVar[int] = ContextVar("_among", default=1)
_legacy: ContextVar[bool] = ContextVar("_old", default=False)


@contextlib.contextmanager
def sampled_among(files: int) -> Iterator[None]:
    """Divide the bytes that content digests sample among the ``files`` of a table."""
    token = _n_files.set(_n_files.get() * max(1, files))
    try:
        yield
    finally:
        _n_files.reset(token)


def sample_size(most: int) -> int:
    """Return a file's part of an amount sampled per table."""
    return 0 if _legacy.get() else max(2, most // _n_files.get())


@contextlib.contextmanager
def legacy_fingerprints() -> Iterator[None]:
    """Compute fingerprints as earlier releases did: from a file's name, size and modification time."""
    token = _legacy.set(True)
    try:
        yield
    finally:
        _legacy.reset(token)


class File:
    """Reads byte ranges of a file; thread-safe, and reopened when unpickled.

    Example:
        >>> file = File(__file__)
        >>> file.read(0, 8)
        b'\"\"\"Files'
    """

    is_source = True
    is_remote = False

    def __init__(self, path: PathLike) -> None:
        self.path = absolute(path)
        with readable(self.path):
            self._descriptor: Descriptor | BorrowedDescriptor = Descriptor(self.path)
            with self._descriptor.open() as descriptor:
                status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnknownFormat(f"{self.path} must be a file, got a directory")
        check_regular(status, self.path)
        self.which = identity_of(status)
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self.base = 0
        self._content: tuple[int, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return File, (self.path,)

    def source(self) -> Any:
        """Return a pyarrow source that shares this file's descriptor."""
        return pa.PythonFile(Region(self, 0, self.size), mode="r")

    @property
    def identity(self) -> str:
        """Return the content digest for a fingerprint; inside `legacy_fingerprints` name, size and mtime."""
        if _legacy.get():
            return f"{Path(self.path).resolve().name} {self.size} {self.mtime_ns}"
        return self.content

    @property
    def content(self) -> str:
        """Return the size and a digest of the bytes: of all, or of sampled pieces of a large file."""
        pieces = sample_size(N_PIECES)
        if self._content is None or self._content[0] != pieces:
            self._content = pieces, f"{self.size} {self._digest(pieces)}"
        return self._content[1]

    @property
    def is_sampled(self) -> bool:
        """Return whether the content digest samples the bytes."""
        return not _legacy.get() and self.size > max(2 * ENDS, sample_size(MAX_WHOLE))

    def _digest(self, pieces: int) -> str:
        if not self.is_sampled:
            return hashlib.blake2b(self.gather(np.array([0]), np.array([self.size])).data, digest_size=16).hexdigest()
        starts = np.append(np.linspace(0, self.size - ENDS, pieces, dtype=np.int64), [0, self.size - ENDS])
        lengths = np.append(np.full(pieces, PIECE), [ENDS, ENDS])
        return hashlib.blake2b(self.gather(starts, lengths).data, digest_size=16).hexdigest()

    def scanned(self) -> "File":
        """Return a file that is optimised for one sequential read."""
        return self

    @property
    def place(self) -> str:
        """Return an id of the file's current state that is unique on this machine."""
        with readable(self.path), self._descriptor.open() as descriptor:
            status = os.fstat(descriptor)
        return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes.

        Raises:
            CorruptFile: The file is too short.
        """
        self._check(offset, length)
        with readable(self.path), self._descriptor.open() as descriptor:
            data = os.pread(descriptor, length, offset)
            if len(data) == length:
                return data
            parts = [data]
            while data and (done := sum(map(len, parts))) < length:
                # A call returns at most 2 GiB.
                data = os.pread(descriptor, length - done, offset + done)
                parts.append(data)
        whole = b"".join(parts)
        if len(whole) < length:
            raise self._short(offset, offset + length)
        return whole

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptFile(f"{self.path}: bytes {offset} to {offset + length} are needed; the file has {self.size}")

    def check_ranges(self, offsets: IntArray, lengths: IntArray) -> None:
        """Raise CorruptFile, before memory is allocated, unless the ranges lie within the file."""
        outside = (lengths < 0) | (offsets < 0) | (offsets > self.base + self.size - lengths)
        if outside.any():
            at = int(outside.argmax())
            raise self._short(int(offsets[at]), int(offsets[at]) + int(lengths[at]))

    def gather(
        self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8] | None = None, to: IntArray | None = None
    ) -> npt.NDArray[np.uint8]:
        """Read many byte ranges, concurrently where the device is slow.

        Args:
            offsets: Where the ranges begin.
            lengths: Their bytes.
            out: Destination; None for a new array.
            to: Position of each range in it; None to pack them back to back.

        Raises:
            CorruptFile: The file is too short.
        """
        offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
        self.check_ranges(offsets, lengths)
        ends = np.cumsum(lengths)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8) if out is None else out
        to = ends - lengths if to is None else to
        if (offsets[1:] < offsets[:-1]).any():  # sorted, so that neighbours are read together
            order = np.argsort(offsets, kind="stable")
            offsets, lengths, to = offsets[order], lengths[order], to[order]
        with readable(self.path), self._descriptor.open() as descriptor:
            failure = _kernel.read_ranges(descriptor, offsets, lengths, to, data, MAX_READERS)
        if failure is not None:
            raise self._failure(failure, offsets, lengths)
        return data

    def hint(self, offsets: IntArray, lengths: IntArray) -> None:
        """Ask the operating system, where it can, to read ahead byte ranges."""
        if not hasattr(os, "posix_fadvise"):
            return
        with readable(self.path), self._descriptor.open() as descriptor:
            for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def gather_bytes(self, offsets: IntArray, lengths: IntArray) -> list[bytes]:
        """Read many byte ranges, each into a bytes object, concurrently where the device is slow.

        Raises:
            CorruptFile: The file is too short.

        Example:
            >>> File(__file__).gather_bytes(np.array([3, 0]), np.array([5, 3]))
            [b'Files', b'\"\"\"']
        """
        offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
        self.check_ranges(offsets, lengths)
        order = np.argsort(offsets, kind="stable")
        with readable(self.path), self._descriptor.open() as descriptor:
            buffers = _kernel.read_bytes(descriptor, offsets[order], lengths[order], MAX_READERS)
        if isinstance(buffers, tuple):
            raise self._failure(buffers, offsets[order], lengths[order])
        objects: list[bytes] = [b""] * len(buffers)
        for place, data in zip(order.tolist(), buffers, strict=True):
            objects[place] = data
        return objects

    def _failure(self, failure: tuple[int, int], offsets: IntArray, lengths: IntArray) -> CorgiPileError:
        code, at = failure
        if code:
            return ReadFailed(code, f"{self.path}: {os.strerror(code)}")
        return self._short(int(offsets[at]), int(offsets[at] + lengths[at]))

    def _short(self, start: int, stop: int) -> CorruptFile:
        with readable(self.path), self._descriptor.open() as descriptor:
            size = os.fstat(descriptor).st_size
        if size != self.size:
            return CorruptFile(f"{self.path} has {size} bytes now; it had {self.size} when opened")
        return CorruptFile(f"{self.path}: bytes {start} to {stop} are needed; the file has {size}")


class InMemory(File):
    """A file read into memory at once; aligned parts are returned without a copy."""

    def __init__(self, file: File) -> None:
        self.__dict__.update(file.__dict__)
        # An array, not a bytes object: NumPy requests huge pages for large arrays.
        self._data = file.gather(np.array([0]), np.array([file.size])).data

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes, as a view where they are aligned."""
        self._check(offset, length)
        part = self._data[offset : offset + length]
        return part.tobytes() if offset % ALIGNMENT else cast("bytes", part)


class CachedTail(File):
    """A file whose last bytes are cached in memory.

    Example:
        >>> CachedTail(File(__file__), 100).read(3, 5)
        b'Files'
    """

    def __init__(self, file: File, last: int = ENDS) -> None:
        self.__dict__.update(file.__dict__)
        self._file, self._tail_start = file, max(0, file.size - last)
        self._data = file.read(self._tail_start, file.size - self._tail_start)

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        if offset < self._tail_start:
            return self._file.read(offset, length)
        self._check(offset, length)
        return self._data[offset - self._tail_start : offset - self._tail_start + length]


class Region(io.RawIOBase):
    """A part of a file as a Python file."""

    def __init__(self, file: File, base: int, size: int) -> None:
        super().__init__()
        self._file, self._base, self._size, self._at = file, base, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position and return it."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes, to the end if no size is given."""
        left = max(0, self._size - self._at)
        data = self._file.read(self._base + self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def readinto(self, into: Any) -> int:
        """Read into memory; return the bytes read."""
        view = memoryview(into).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def absolute(path: PathLike) -> str:
    """Return the absolute path of a file; a plain absolute path is returned unchanged."""
    text = os.fspath(path)
    plain = text.startswith("/") and not text.endswith("/") and "//" not in text and "/." not in text
    return text if plain else str(Path(text).expanduser().absolute())


def check_regular(status: os.stat_result, path: str) -> None:
    """Raise UnknownFormat for a pipe, a socket or a device, whose bytes have no positions."""
    if not stat.S_ISREG(status.st_mode):
        raise UnknownFormat(f"{path} must be a regular file, got a pipe, a socket or a device; copy it into a file")


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn operating-system errors into MissingFile and ReadFailed."""
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
    """Turn a decoder's errors into CorruptFile, and failed reads into ReadFailed."""
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


def digest(*parts: str) -> str:
    """Return a short hash of several strings.

    Example:
        >>> digest("a", "b") == digest("ab")
        False
    """
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def describe(schema: pa.Schema) -> str:
    """Return a schema as text for a fingerprint: names and types, no metadata."""
    return ";".join(f"{field.name!r}:{field.type}" for field in schema)
