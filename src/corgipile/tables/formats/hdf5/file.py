"""HDF5 files: h5py reads the metadata; numbers are read in place without it."""

import contextlib
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorgiPileError, CorruptFile, MissingFile, ReadFailed, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.arrays.stored import Chunked, InPlace, MemoryArray, Stored, check_item
from corgipile.tables.arrays.tree import is_group, lookup
from corgipile.tables.formats.hdf5.texts import REFERENCE, Texts
from corgipile.tables.io.files import File, PathLike, Region
from corgipile.tables.io.pieces import Recent
from corgipile.tables.reach import trusts_paths, within
from corgipile.tables.table import IntArray

__all__ = ["H5", "MAGIC", "library"]

MAGIC = b"\x89HDF\r\n\x1a\n"
BUFFER_BYTES = 1 << 16  # bytes that h5py reads at a time
MAX_OPEN = 16  # files that h5py keeps open
DEFLATE, SHUFFLE = 1, 2  # filters decoded without h5py
MAX_CHUNKS = 1 << 22  # chunks whose positions are kept in memory
LIBRARY_BYTES = 1 << 16  # bytes that h5py reads at a time of a dataset without chunks


def library() -> Any:
    """Import h5py."""
    return extra("h5py", "reading HDF5 files", "hdf5")


class H5:
    """An HDF5 file. No descriptor stays open between reads, and h5py gets none.

    Args:
        path: The file.

    Raises:
        MissingExtra: h5py is not installed.
        UnknownFormat: It is not an HDF5 file.
        CorruptFile: It is damaged.
    """

    def __init__(self, path: PathLike) -> None:
        self.file = File(path)
        if MAGIC not in (self.file.read(at, 8) for at in (0, 512, 1024, 2048) if at + 8 <= self.file.size):
            raise UnknownFormat(f"{self.file.path} is not an HDF5 file: it does not begin with {MAGIC!r}")

    @contextlib.contextmanager
    def open_root(self) -> Iterator[Any]:
        """Yield the file opened by h5py."""
        with self._errors(), self._open() as root:
            yield root

    def _open(self) -> Any:
        h5py = library()
        source = io.BufferedReader(Region(self.file, 0, self.file.size), BUFFER_BYTES)
        return h5py.File(source, "r", rdcc_nbytes=0)  # by path h5py would lock it against writers

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn h5py's errors about bad bytes into CorruptFile."""
        try:
            yield
        except CorgiPileError:
            raise
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise ReadFailed(error.errno, f"{self.file.path}: {error}") from error
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorruptFile(f"{self.file.path}: h5py cannot read it: {reason[:300]}") from None

    def stored(self, data: Any) -> Stored:
        """Return a reader of a dataset, which must have an axis."""
        h5py = library()
        check_item(data.dtype, f"{self.file.path}: dataset {data.name!r}")
        plist, shape = data.id.get_create_plist(), tuple(map(int, data.shape))
        layout, kind = plist.get_layout(), data.id.get_type()
        if not shape or data.file.userblock_size or plist.get_external_count():
            return self._with_library(data)
        item = h5py.check_vlen_dtype(data.dtype)
        numbers = isinstance(item, np.dtype) and kind.get_super().equal(h5py.h5t.py_create(item, logical=True))
        if numbers or (isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()):
            plain = data.file.id.get_create_plist().get_sizes() == (8, 8) and (numbers or not data.fillvalue)
            references = self._without_library(data, plist, REFERENCE, np.zeros((), REFERENCE)) if plain else None
            if references is None:
                return self._with_library(data)
            return Texts(self.file, references, item.itemsize if numbers else 1)
        if data.dtype.hasobject or not kind.equal(h5py.h5t.py_create(data.dtype, logical=True)):
            return self._with_library(data)
        if layout == h5py.h5d.COMPACT:
            return MemoryArray(data[()])
        return self._without_library(data, plist, data.dtype, data.fillvalue) or self._with_library(data)

    def _without_library(self, data: Any, plist: Any, dtype: np.dtype[Any], fill: Any) -> Stored | None:
        """Return a reader that does not need h5py; None if only h5py can read the dataset."""
        h5py = library()
        shape, layout = tuple(map(int, data.shape)), plist.get_layout()
        if layout == h5py.h5d.CONTIGUOUS and (offset := data.id.get_offset()) is not None:
            starts = np.array([0, shape[0]] if shape[0] else [0], np.int64)
            return InPlace(self.file, dtype, shape, starts, np.full(len(starts) - 1, offset, np.int64))
        if layout != h5py.h5d.CHUNKED:
            return None
        size = tuple(map(int, data.chunks))
        codes = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
        grid = np.prod([-(-rows // step) for rows, step in zip(shape, size, strict=True)], dtype=object)
        if not set(codes) <= {DEFLATE, SHUFFLE} or fill is None or grid > MAX_CHUNKS:
            return None
        chunks = _Chunks(self.file, data, dtype, fill, codes)
        if not codes and size[1:] == shape[1:] and (chunks.sizes >= 0).all():
            starts = np.append(np.arange(0, shape[0], size[0], dtype=np.int64), np.int64(shape[0]))
            return InPlace(self.file, dtype, shape, starts, chunks.offsets.reshape(-1))
        return Chunked(dtype, shape, size[0], chunks.rows, size[1:])

    def _with_library(self, data: Any) -> Stored:
        """Return a reader that uses h5py, for example for its other filters."""
        self._check_reach(data, set())
        shape, dtype, name = tuple(map(int, data.shape)), data.dtype, data.name
        width = max(1, int(dtype.itemsize) * int(np.prod(shape[1:], dtype=object)))
        chunk = int(data.chunks[0]) if data.chunks and not dtype.hasobject else max(1, LIBRARY_BYTES // width)
        read = self.read_external if data.is_virtual or data.external else self.read
        inner = data.chunks[1:] if data.chunks else ()
        return _ByLibrary(read, name, dtype, shape, 0 if dtype.hasobject else chunk, inner)

    def _check_reach(self, data: Any, seen: set[tuple[str, str]]) -> None:
        """Check that a dataset's rows are in permitted files, including those of virtual datasets.

        Raises:
            UntrustedPath: They are in another file.
            MissingFile: Their file is missing, for which h5py would return fill values.
        """
        where, folder = f"{self.file.path}, dataset {data.name!r}", Path(self.file.path).parent
        for name, *_ in data.external or ():
            within(folder, str(Path(name).absolute()), where)  # as h5py resolves it
        for source_map in data.virtual_sources() if data.is_virtual else ():
            file, array = _unescape(source_map.file_name, where), _unescape(source_map.dset_name, where)
            target = Path(self.file.path) if file == "." else within(folder, file, where)
            if not target.exists():
                raise MissingFile(f"{self.file.path}: dataset {data.name!r} has rows in {target}, which does not exist")
            if trusts_paths() or (str(target), array) in seen:
                continue
            seen.add((str(target), array))
            other = H5(target)
            with other.open_root() as root:
                source = lookup(root, array)
                if source is None or is_group(source):
                    raise MissingFile(f"{where}: its rows are in {array!r}, which {target} does not have")
                other._check_reach(source, seen)

    def read(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows of a dataset by h5py."""
        with self._errors():
            rows: npt.NDArray[Any] = _open_files().get(self.file.which, self._open)[name][start:stop]
            return rows

    def read_external(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows in other files, which h5py resolves only if it opens this file by path."""
        h5py = library()
        with self._errors(), h5py.File(self.file.path, "r") as file:
            rows: npt.NDArray[Any] = file[name][start:stop]
            return rows


def _unescape(name: str, where: str) -> str:
    """Return the name of a file or dataset with %% unescaped to a percent sign.

    Raises:
        UnknownFormat: The name is a pattern of many names.
    """
    if "%" in name.replace("%%", ""):
        raise UnknownFormat(f"{where}: its rows are in {name!r}, a pattern of many names; open those separately")
    return name.replace("%%", "%")


Read = Callable[[str, int, int], npt.NDArray[Any]]
_files: dict[int, Recent[Any]] = {}  # open files by process id


def _open_files() -> Recent[Any]:
    """Return the files that this process has open; a forked child opens its own."""
    return _files.setdefault(os.getpid(), Recent(MAX_OPEN))


class _ByLibrary(Chunked):
    """A dataset read by h5py; text is read without chunks."""

    def __init__(
        self,
        read: Read,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        chunk: int,
        inner: Sequence[int],
    ) -> None:
        super().__init__(dtype, shape, chunk, lambda i: read(name, i * chunk, (i + 1) * chunk), inner)
        self._read, self._name = read, name

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows."""
        if self.chunk:
            return super().get(starts, stops)
        runs = zip(starts.tolist(), stops.tolist(), strict=True)
        return np.concatenate([self._read(self._name, *run) for run in runs])


class _Chunks:
    """Positions and decoding of the chunks of a dataset.

    Args:
        file: The file.
        data: The dataset.
        dtype: Type of its values.
        fill: Value of chunks that were never written.
        codes: The filters, in the order they were applied.
    """

    def __init__(self, file: File, data: Any, dtype: np.dtype[Any], fill: Any, codes: list[int]) -> None:
        self._file, self._dtype, self._shape = file, dtype, tuple(map(int, data.shape))
        self._size = size = tuple(map(int, data.chunks))
        self._codes, self._fill, self._name = codes, fill, data.name
        grid = tuple(-(-rows // step) for rows, step in zip(self._shape, size, strict=True))
        self.offsets, self.sizes = np.zeros(grid, np.int64), np.full(grid, -1, np.int64)
        self._skipped = np.zeros(grid, np.uint32)  # filters of each chunk, as bits
        data.id.chunk_iter(self._add_chunk)
        self._nbytes = int(np.prod(size, dtype=object)) * int(self._dtype.itemsize)
        if not codes and not np.isin(self.sizes, (-1, self._nbytes)).all():
            raise CorruptFile(
                f"{file.path}: each chunk of {self._name} must have {self._nbytes} bytes, got another size"
            )

    def _add_chunk(self, chunk: Any) -> None:
        at = tuple(place // step for place, step in zip(chunk.chunk_offset, self._size, strict=True))
        if all(index < size for index, size in zip(at, self.sizes.shape, strict=True)):  # a shrunk dataset has more
            self.offsets[at], self.sizes[at], self._skipped[at] = chunk.byte_offset, chunk.size, chunk.filter_mask

    def rows(self, i: int) -> npt.NDArray[Any]:
        """Decode all chunks of a range of rows."""
        if self._size[1:] == self._shape[1:]:
            return self._chunk((i, *(0 for _ in self._shape[1:])))[: self._shape[0] - i * self._size[0]]
        rows = min(self._size[0], self._shape[0] - i * self._size[0])
        out = np.empty((rows, *self._shape[1:]), self._dtype)
        for rest in product(*map(range, self.sizes.shape[1:])):
            begins = [at * step for at, step in zip(rest, self._size[1:], strict=True)]
            part = out[(slice(None), *(slice(at, at + step) for at, step in zip(begins, self._size[1:], strict=True)))]
            part[...] = self._chunk((i, *rest))[tuple(slice(length) for length in part.shape)]
        return out

    def _chunk(self, at: tuple[int, ...]) -> npt.NDArray[Any]:
        """Decode a chunk; an unwritten one holds the fill value."""
        if self.sizes[at] < 0:
            return np.broadcast_to(np.asarray(self._fill, self._dtype), self._size)
        data = self._file.read(int(self.offsets[at]), int(self.sizes[at]))
        for place, code in reversed(list(enumerate(self._codes))):
            if not self._skipped[at] >> place & 1:
                data = self._decompress(data, at) if code == DEFLATE else _unshuffle(data, int(self._dtype.itemsize))
        if len(data) != self._nbytes:
            raise CorruptFile(
                f"{self._file.path}: chunk {at} of {self._name} must decode to {self._nbytes} bytes, got {len(data)}"
            )
        return np.frombuffer(data, self._dtype).reshape(self._size)

    def _decompress(self, data: bytes, at: tuple[int, ...]) -> bytes:
        try:
            return zlib.decompressobj().decompress(data, self._nbytes + 1)
        except zlib.error as error:
            raise CorruptFile(f"{self._file.path}: chunk {at} of {self._name} does not decode: {error}") from None


def _unshuffle(data: bytes, itemsize: int) -> bytes:
    """Undo the shuffle filter, which stores the first bytes of all numbers first."""
    items = len(data) // itemsize
    planes = np.frombuffer(data, np.uint8, items * itemsize).reshape(itemsize, items)
    return planes.T.tobytes() + data[items * itemsize :]
