"""Files that lie elsewhere, read as those of this machine are; and where it is decided which of both a path is."""

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.arrow_memory import frugal
from corgipile.errors import MissingFile
from corgipile.stores.opening import open_ranges
from corgipile.stores.urls import RemotePath, is_url, local_path
from corgipile.tables.io.arriving import at_once
from corgipile.tables.io.descriptors import Identity
from corgipile.tables.io.files import File, IntArray, PathLike
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.sources import files_read
from corgipile.tables.table import Layout

__all__ = ["RemoteFile", "file_of", "files_of_layout", "in_turn", "is_remote", "open_together", "read_in_turn"]

SMALL, NEAR = 64 << 10, 16 << 10  # bytes below which neighbours are read along, and how many
WINDOWS = 16
READS = 8  # runs of rows, of about a megabyte, that are read at the same time
OPENED = 32  # files that are opened at the same time
ELSEWHERE = -1  # in place of the device of a file
Result = TypeVar("Result")
_kept: "ContextVar[Recent[File] | None]" = ContextVar("_kept", default=None)
_opened: "weakref.WeakValueDictionary[int, RemoteFile]" = weakref.WeakValueDictionary()


def file_of(path: "PathLike | File") -> File:
    """Open the file at a path, or at a URL.

    Example:
        >>> type(file_of(__file__)).__name__
        'File'
    """
    if isinstance(path, File):
        return path
    if not is_url(path):
        return File(path)
    local = local_path(str(path))
    return (
        File(local)
        if local is not None
        else RemoteFile(path if isinstance(path, RemotePath) else RemotePath(str(path)))
    )


def files_of_layout(layout: Layout) -> list[File]:
    """Return the files of a layout: those of stores as they are open already, if they are."""
    which: Sequence[Identity | None] = layout.identities or [None] * len(layout.paths)
    return [_known(path, one) or file_of(path) for path, one in zip(layout.paths, which, strict=True)]


def _known(path: str, which: Identity | None) -> File | None:
    if which is None or which.device != ELSEWHERE:
        return None
    found = _opened.get(which.inode)
    return found if found is not None and (found.path, found.size) == (path, which.size) else None


def open_together(paths: Sequence[PathLike | File], *, missing: bool = False) -> list[File | MissingFile]:
    """Open many files, some at the same time: each takes as long as a store needs to answer.

    Args:
        paths: Where they lie.
        missing: Return the error of a file that is not there, rather than raise it.
    """

    def one(path: PathLike | File) -> File | MissingFile:
        try:
            return file_of(path)
        except MissingFile as error:
            if not missing:
                raise
            return error

    if len(paths) < 2:
        return [*map(one, paths)]
    with ThreadPoolExecutor(min(OPENED, len(paths)), "corgipile-opening") as pool:
        return [*pool.map(one, paths)]


class RemoteFile(File):
    """Reads byte ranges of an object in a store, or on the web; thread-safe, and opened again when unpickled.

    Args:
        path: Where it lies.

    Attributes:
        ranges: What reads it.
        near: Whether that keeps it on this machine.
    """

    def __init__(self, path: RemotePath) -> None:
        self.path: RemotePath = path
        self.near = path.cache is not None
        self.ranges, tail = open_ranges(path)
        self.size, self.base, self.mtime_ns = self.ranges.size, 0, 0
        self.which = Identity(ELSEWHERE, id(self), self.size, 0)
        _opened[id(self)] = self
        self._windows: OrderedDict[int, bytes] = OrderedDict()  # by their first byte
        self._lock = threading.Lock()
        self._tail, self._content = tail, None

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFile, (self.path,)

    @property
    def etag(self) -> str:
        """Return what changes when the object does, empty where the store does not say."""
        return self.ranges.etag

    @property
    def content(self) -> str:
        """Return what tells the content from another: what the store says, else some of its bytes."""
        return f"{self.size} {self.etag}" if self.etag else super().content

    @property
    def in_part(self) -> bool:
        """Say whether its content is told by a part of its bytes."""
        return not self.etag and super().in_part

    @property
    def place(self) -> str:
        """Return what tells this object, as it is now, from all others."""
        return f"{self.path.identity} {self.content}"

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes; near ones come along with a few."""
        self._check(offset, length)
        at = offset - (self.size - len(self._tail))
        if at >= 0:
            return self._tail[at : at + length]
        if length >= SMALL:
            return self.gather(np.array([offset]), np.array([length])).tobytes()
        found = self._near(offset, length)
        if found is None:
            size = min(max(length, NEAR), self.size - offset)
            found = self.gather(np.array([offset]), np.array([size])).tobytes()
            with self._lock:
                self._windows[offset] = found
                while len(self._windows) > WINDOWS:
                    self._windows.popitem(last=False)
            return found[:length]
        return found

    def _near(self, offset: int, length: int) -> bytes | None:
        with self._lock:
            for start, data in self._windows.items():
                if start <= offset and offset + length <= start + len(data):
                    return data[offset - start : offset - start + length]
        return None

    def gather(
        self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8] | None = None, to: IntArray | None = None
    ) -> npt.NDArray[np.uint8]:
        """Read many byte ranges, see `File.gather`."""
        offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
        ends = np.cumsum(lengths)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8) if out is None else out
        to = ends - lengths if to is None else np.ascontiguousarray(to, np.int64)
        self.ranges.fetch(offsets, lengths, data, to)
        return data

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request."""
        return self.ranges.whole(start, stop)

    def gather_bytes(self, offsets: IntArray, lengths: IntArray) -> list[bytes]:
        """Read many byte ranges, each into a bytes object."""
        data = self.gather(offsets, lengths).tobytes()
        ends = np.cumsum(lengths)
        return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]

    def scanned(self) -> File:
        """Return the file for one who reads it as it lies: what is to come is asked for meanwhile."""
        return _Scanned(self)


def is_remote(table: Any) -> bool:
    """Say whether rows of a table are read from a store, or from the web."""
    inner = table
    while not (at_hand := getattr(inner, "at_hand", False)) and hasattr(inner, "table"):
        inner = inner.table
    if at_hand:  # wherever they are from
        return False
    return any(isinstance(file, RemoteFile) or hasattr(file, "elsewhere") for file in files_read(table))


def in_turn(
    table: Any, read: Callable[[int, int], Result], runs: Iterable[tuple[int, int]], most: int | None = None
) -> Iterator[Result]:
    """Read runs of rows one after the other; of a table in a store some are on their way meanwhile.

    Args:
        table: The table.
        read: Reads a run.
        runs: First row, and the one after the last.
        most: How many are on their way; None: as many runs of a megabyte, which takes two, as there may be.

    Example:
        >>> list(in_turn(None, lambda start, stop: stop - start, [(0, 2), (2, 5)]))
        [2, 3]
    """
    if not is_remote(table):
        yield from itertools.starmap(read, runs)
        return
    coming: deque[Future[Result]] = deque()
    kept: Recent[File] = Recent(2)
    most = max(2, min(READS, at_once() >> 21)) if most is None else most
    pool = ThreadPoolExecutor(most, "corgipile-reader")
    try:
        with frugal():  # each thread would keep what Arrow took in it
            for run in runs:
                inside = copy_context()  # which says what may be on its way
                inside.run(_kept.set, kept)
                coming.append(pool.submit(partial(inside.run, read, *run)))
                if len(coming) == most:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_in_turn() -> "Recent[File] | None":
    """Return what keeps bytes for the runs that follow, where `in_turn` reads; None elsewhere."""
    return _kept.get()


class _Scanned(RemoteFile):
    """The same object, read as it lies by one thread.

    Args:
        file: The object.
    """

    def __init__(self, file: RemoteFile) -> None:
        self.__dict__.update(file.__dict__)
        from corgipile.stores.ahead import Ahead  # noqa: PLC0415 - with asyncio, which local tables do not need

        self._ahead = Ahead(file.ranges)

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        self._check(offset, length)
        return self._ahead.read(offset, length)

    def gather(
        self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8] | None = None, to: IntArray | None = None
    ) -> npt.NDArray[np.uint8]:
        """Read byte ranges, one of them ahead."""
        if len(offsets) != 1 or to is not None:
            return super().gather(offsets, lengths, out, to)
        data = np.frombuffer(self.read(int(offsets[0]), int(lengths[0])), np.uint8)
        if out is None:
            return data
        out[: len(data)] = data
        return out
