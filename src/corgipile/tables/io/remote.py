"""Files in stores and on the web, with the interface of local files; opens a path or URL as either."""

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.arrow_memory import frugal
from corgipile.errors import MissingFile
from corgipile.lazy import lazy
from corgipile.stores.opening import open_ranges
from corgipile.tables.io.arriving import DEFAULT_IN_FLIGHT
from corgipile.tables.io.descriptors import Identity
from corgipile.tables.io.files import File, IntArray, PathLike
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.sources import files_read
from corgipile.tables.layout import Layout
from corgipile.tables.table import Table
from corgipile.urls import RemotePath, is_url, local_path

if TYPE_CHECKING:
    from corgipile.stores import ahead as read_ahead
else:  # with asyncio, which local tables do not need
    read_ahead = lazy("corgipile.stores.ahead")

__all__ = ["RemoteFile", "Scan", "file_of", "files_of_layout", "in_turn", "is_remote", "open_together", "this_scan"]

MIN_DIRECT_READ, WINDOW_BYTES = 64 << 10, 16 << 10  # bytes: shorter reads fetch, and cache, a window
MAX_WINDOWS = 16  # windows cached per file
MAX_CONCURRENT_RUNS = 8  # runs of rows, of about 1 MB each
MAX_CONCURRENT_OPENS = 32  # files
REMOTE_DEVICE = -1  # stands for a file's device number
Result = TypeVar("Result")
_remote: "weakref.WeakKeyDictionary[Table, bool]" = weakref.WeakKeyDictionary()
_opened: "weakref.WeakValueDictionary[int, RemoteFile]" = weakref.WeakValueDictionary()


class Scan(NamedTuple):
    """A read of many runs of rows.

    Attributes:
        in_flight: Bytes that may be in flight or unread.
        cache: Files that the runs share; None outside of `in_turn`.
    """

    in_flight: int = DEFAULT_IN_FLIGHT
    cache: Recent[File] | None = None


_scan: ContextVar[Scan] = ContextVar("_scan", default=Scan())  # noqa: B039 - nothing changes it


def file_of(path: "PathLike | File") -> File:
    """Open the file at a path or URL.

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
    """Return the files of a layout, reusing remote files that are already open."""
    which: Sequence[Identity | None] = layout.identities or [None] * len(layout.paths)
    return [_find_open(path, identity) or file_of(path) for path, identity in zip(layout.paths, which, strict=True)]


def _find_open(path: str, which: Identity | None) -> File | None:
    if which is None or which.device != REMOTE_DEVICE:
        return None
    file = _opened.get(which.inode)
    return file if file is not None and (file.path, file.size) == (path, which.size) else None


def open_together(paths: Sequence[PathLike | File], *, missing: bool = False) -> list[File | MissingFile]:
    """Open many files concurrently: each waits for its store. ``missing``: return errors of missing files."""

    def open_one(path: PathLike | File) -> File | MissingFile:
        try:
            return file_of(path)
        except MissingFile as error:
            if not missing:
                raise
            return error

    if len(paths) < 2:
        return [*map(open_one, paths)]
    with ThreadPoolExecutor(min(MAX_CONCURRENT_OPENS, len(paths)), "corgipile-opening") as pool:
        return [*pool.map(open_one, paths)]


class RemoteFile(File):
    """Reads byte ranges of an object in a store or on the web; thread-safe, and reopened when unpickled.

    Attributes:
        ranges: Reads the object's ranges.
        near: Whether a local copy or cache of it is used.
    """

    is_remote = True

    def __init__(self, path: RemotePath) -> None:
        self.path: RemotePath = path
        self.near = path.cache is not None
        self.ranges, tail = open_ranges(path)
        self.size, self.base, self.mtime_ns = self.ranges.size, 0, 0
        self.which = Identity(REMOTE_DEVICE, id(self), self.size, 0)
        _opened[id(self)] = self
        self._windows: OrderedDict[int, bytes] = OrderedDict()  # by their first byte
        self._lock = threading.Lock()
        self._tail, self._content = tail, None

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFile, (self.path,)

    @property
    def etag(self) -> str:
        """Return the object's entity tag, empty if the store has none."""
        return self.ranges.etag

    @property
    def content(self) -> str:
        """Return size and entity tag, else a digest of the bytes."""
        return f"{self.size} {self.etag}" if self.etag else super().content

    @property
    def is_sampled(self) -> bool:
        """Return whether the content digest samples the bytes."""
        return not self.etag and super().is_sampled

    @property
    def place(self) -> str:
        """Return a unique id of the object's current state."""
        return f"{self.path.identity} {self.content}"

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes; short reads fetch a window around them."""
        self._check(offset, length)
        at = offset - (self.size - len(self._tail))
        if at >= 0:
            return self._tail[at : at + length]
        if length >= MIN_DIRECT_READ:
            return self.gather(np.array([offset]), np.array([length])).tobytes()
        data = self._cached_window(offset, length)
        if data is None:
            size = min(max(length, WINDOW_BYTES), self.size - offset)
            data = self.gather(np.array([offset]), np.array([size])).tobytes()
            with self._lock:
                self._windows[offset] = data
                while len(self._windows) > MAX_WINDOWS:
                    self._windows.popitem(last=False)
            return data[:length]
        return data

    def _cached_window(self, offset: int, length: int) -> bytes | None:
        with self._lock:
            for start, data in self._windows.items():
                if start <= offset and offset + length <= start + len(data):
                    return data[offset - start : offset - start + length]
        return None

    def gather(
        self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8] | None = None, to: IntArray | None = None
    ) -> npt.NDArray[np.uint8]:
        """Read many byte ranges; see `File.gather`."""
        offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
        ends = np.cumsum(lengths)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8) if out is None else out
        to = ends - lengths if to is None else np.ascontiguousarray(to, np.int64)
        self.ranges.fetch(offsets, lengths, data, to)
        return data

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range in one request."""
        return self.ranges.whole(start, stop)

    def gather_bytes(self, offsets: IntArray, lengths: IntArray) -> list[bytes]:
        """Read many byte ranges, each into a bytes object."""
        data = self.gather(offsets, lengths).tobytes()
        ends = np.cumsum(lengths)
        return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]

    def scanned(self) -> File:
        """Return a file that reads ahead for one sequential read."""
        return _SequentialFile(self)


def is_remote(table: Table) -> bool:
    """Return whether a table reads rows from a store or the web."""
    if table not in _remote:  # a table of many files has many parts to look through
        _remote[table] = not table.at_hand and any(file.is_remote for file in files_read(table))
    return _remote[table]


def in_turn(
    table: Table,
    read: Callable[[int, int], Result],
    runs: Iterable[tuple[int, int]],
    most: int | None = None,
    in_flight: int = DEFAULT_IN_FLIGHT,
) -> Iterator[Result]:
    """Read runs of rows one after the other; prefetch some if the table is remote.

    Args:
        table: The table.
        read: Reads a run.
        runs: First row, and the row after the last.
        most: Runs in flight; None: half of ``in_flight`` in runs of 1 MB.
        in_flight: Bytes that may be in flight or unread.

    Example:
        >>> from corgipile.tables import open
        >>> list(in_turn(open({"x": [0, 1, 2, 3, 4]}), lambda start, stop: stop - start, [(0, 2), (2, 5)]))
        [2, 3]
    """
    if not is_remote(table):
        yield from itertools.starmap(read, runs)
        return
    futures: deque[Future[Result]] = deque()
    scan = Scan(in_flight, Recent(2))
    most = max(2, min(MAX_CONCURRENT_RUNS, in_flight >> 21)) if most is None else most
    pool = ThreadPoolExecutor(most, "corgipile-reader")
    try:
        with frugal():  # without it each thread would keep Arrow's freed memory
            for run in runs:
                context = copy_context()
                context.run(_scan.set, scan)
                futures.append(pool.submit(partial(context.run, read, *run)))
                if len(futures) == most:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def this_scan() -> Scan:
    """Return the scan of `in_turn` that this read belongs to, else one with defaults."""
    return _scan.get()


class _SequentialFile(RemoteFile):
    """A remote object read sequentially by one thread."""

    def __init__(self, file: RemoteFile) -> None:
        self.__dict__.update(file.__dict__)
        self._read_ahead = read_ahead.Ahead(file.ranges)

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        self._check(offset, length)
        return self._read_ahead.read(offset, length)

    def gather(
        self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8] | None = None, to: IntArray | None = None
    ) -> npt.NDArray[np.uint8]:
        """Read byte ranges; a single one is read ahead."""
        if len(offsets) != 1 or to is not None:
            return super().gather(offsets, lengths, out, to)
        data = np.frombuffer(self.read(int(offsets[0]), int(lengths[0])), np.uint8)
        if out is None:
            return data
        out[: len(data)] = data
        return out
