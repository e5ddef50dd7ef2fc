"""HDF5 files opened by h5py for what they say of themselves; numbers are read from their place without it."""

import contextlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorgiPileError, CorruptFile, MissingFile, ReadFailed, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.arrays.stored import Chunked, InPlace, Kept, Stored, check_item
from corgipile.tables.arrays.tree import is_group, lookup
from corgipile.tables.hdf5.texts import REFERENCE, Texts
from corgipile.tables.io.files import File, PathLike, Region
from corgipile.tables.io.pieces import Recent
from corgipile.tables.reach import trusts_paths, within
from corgipile.tables.table import IntArray

__all__ = ["H5", "MAGIC", "library"]

MAGIC = b"\x89HDF\r\n\x1a\n"
READ = 1 << 16  # bytes that h5py is given at a time
OPEN = 16  # files that the library has open for what only it reads
DEFLATE, SHUFFLE = 1, 2  # the filters that are undone here
MOST_CHUNKS = 1 << 22  # whose places are kept in memory
LIBRARY_BYTES = 1 << 16  # bytes that the library is asked for at a time where it has no chunks, such as texts


def library() -> Any:
    """Import h5py."""
    return extra("h5py", "reading HDF5 files", "hdf5")


class H5:
    """An HDF5 file. No descriptor stays open between reads, and none is the library's.

    Args:
        path: The file.

    Raises:
        MissingExtra: h5py is not installed.
        UnknownFormat: It is no HDF5 file.
        CorruptFile: It is damaged.
    """

    def __init__(self, path: PathLike) -> None:
        self.file = File(path)
        if MAGIC not in (self.file.read(at, 8) for at in (0, 512, 1024, 2048) if at + 8 <= self.file.size):
            raise UnknownFormat(f"{self.file.path} is no HDF5 file: it does not begin with {MAGIC!r}")

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Give the file as h5py has it, for the time being."""
        with self._errors(), self._open() as found:
            yield found

    def _open(self) -> Any:
        h5py = library()
        source = io.BufferedReader(Region(self.file, 0, self.file.size), READ)
        return h5py.File(source, "r", rdcc_nbytes=0)  # by its path it would be locked, and could not be written again

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn whatever the library says of bad bytes into CorruptFile."""
        try:
            yield
        except CorgiPileError:
            raise
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise ReadFailed(error.errno, f"{self.file.path}: {error}") from error
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorruptFile(f"{self.file.path}: HDF5 cannot read it: {reason[:300]}") from None

    def stored(self, data: Any) -> Stored:
        """Return what reads a dataset, which must have an axis."""
        h5py = library()
        check_item(data.dtype, f"{self.file.path}: dataset {data.name!r}")
        plist, shape = data.id.get_create_plist(), tuple(map(int, data.shape))
        layout, kind = plist.get_layout(), data.id.get_type()
        if not shape or data.file.userblock_size or plist.get_external_count():
            return self._by_library(data)
        if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
            plain = data.file.id.get_create_plist().get_sizes() == (8, 8) and not data.fillvalue
            found = self._placed(data, plist, REFERENCE, np.zeros((), REFERENCE)) if plain else None
            return self._by_library(data) if found is None else Texts(self.file, found)
        if data.dtype.hasobject or not kind.equal(h5py.h5t.py_create(data.dtype, logical=True)):
            return self._by_library(data)
        if layout == h5py.h5d.COMPACT:
            return Kept(data[()])
        return self._placed(data, plist, data.dtype, data.fillvalue) or self._by_library(data)

    def _placed(self, data: Any, plist: Any, dtype: np.dtype[Any], fill: Any) -> Stored | None:
        """Return what reads a dataset without the library; None where only that can."""
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
        if not set(codes) <= {DEFLATE, SHUFFLE} or fill is None or grid > MOST_CHUNKS:
            return None
        chunks = _Chunks(self.file, data, dtype, fill, codes)
        if not codes and size[1:] == shape[1:] and (chunks.sizes >= 0).all():
            starts = np.append(np.arange(0, shape[0], size[0], dtype=np.int64), np.int64(shape[0]))
            return InPlace(self.file, dtype, shape, starts, chunks.offsets.reshape(-1))
        return Chunked(dtype, shape, size[0], chunks.rows)

    def _by_library(self, data: Any) -> Stored:
        """Return what asks h5py for rows: of text of any length, of filters that only the library knows."""
        self._check_reach(data, set())
        shape, dtype, name = tuple(map(int, data.shape)), data.dtype, data.name
        width = max(1, int(dtype.itemsize) * int(np.prod(shape[1:], dtype=object)))
        chunk = int(data.chunks[0]) if data.chunks and not dtype.hasobject else max(1, LIBRARY_BYTES // width)
        read = self.read_others if data.is_virtual or data.external else self.read
        return _ByLibrary(read, name, dtype, shape, 0 if dtype.hasobject else chunk)

    def _check_reach(self, data: Any, seen: set[tuple[str, str]]) -> None:
        """Check that a dataset's rows lie in permitted files, also those of virtual datasets.

        Raises:
            UntrustedPath: They lie elsewhere.
            MissingFile: Their file is missing; the library would return fill values.
        """
        where, folder = f"{self.file.path}, dataset {data.name!r}", Path(self.file.path).parent
        for name, *_ in data.external or ():
            within(folder, str(Path(name).absolute()), where)  # as the library resolves it
        for one in data.virtual_sources() if data.is_virtual else ():
            file, array = _written_out(one.file_name, where), _written_out(one.dset_name, where)
            there = Path(self.file.path) if file == "." else within(folder, file, where)
            if not there.exists():
                raise MissingFile(f"{self.file.path}: dataset {data.name!r} has rows in {there}, which does not exist")
            if trusts_paths() or (str(there), array) in seen:
                continue
            seen.add((str(there), array))
            other = H5(there)
            with other.opened() as root:
                source = lookup(root, array)
                if source is None or is_group(source):
                    raise MissingFile(f"{where}: its rows are in {array!r} of {there}, which does not have it")
                other._check_reach(source, seen)

    def read(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows of a dataset by h5py, which reads one at a time."""
        with self._errors():
            found: npt.NDArray[Any] = _open_files().get(self.file.which, self._open)[name][start:stop]
            return found

    def read_others(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows of a dataset that lie in other files: the library finds these from the path of this one only."""
        h5py = library()
        with self._errors(), h5py.File(self.file.path, "r") as file:
            found: npt.NDArray[Any] = file[name][start:stop]
            return found


def _written_out(name: str, where: str) -> str:
    """Return the name of a file or dataset as the library reads it: a pattern, in which %% is a percent sign.

    Raises:
        UnknownFormat: The pattern stands for many names.
    """
    if "%" in name.replace("%%", ""):
        raise UnknownFormat(f"{where}: its rows are in {name!r}, a pattern of many names; open those one by one")
    return name.replace("%%", "%")


Read = Callable[[str, int, int], npt.NDArray[Any]]
_files: dict[int, Recent[Any]] = {}  # the files that a process has open, by its number


def _open_files() -> Recent[Any]:
    """Return the files that this process has open: a fork opens its own."""
    return _files.setdefault(os.getpid(), Recent(OPEN))


class _ByLibrary(Chunked):
    """A dataset of which h5py reads the rows; of text it reads any."""

    def __init__(self, read: Read, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], chunk: int) -> None:
        super().__init__(dtype, shape, chunk, lambda i: read(name, i * chunk, (i + 1) * chunk))
        self._read, self._name = read, name

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows."""
        if self.chunk:
            return super().get(starts, stops)
        runs = zip(starts.tolist(), stops.tolist(), strict=True)
        return np.concatenate([self._read(self._name, *run) for run in runs])


class _Chunks:
    """Where the chunks of a dataset lie, and how they are decoded.

    Args:
        file: The file.
        data: The dataset.
        dtype: What its bytes are.
        fill: What chunks hold that were never written.
        codes: The filters, in the order in which they were applied.
    """

    def __init__(self, file: File, data: Any, dtype: np.dtype[Any], fill: Any, codes: list[int]) -> None:
        self._file, self._dtype, self._shape = file, dtype, tuple(map(int, data.shape))
        self._size = size = tuple(map(int, data.chunks))
        self._codes, self._fill, self._name = codes, fill, data.name
        grid = tuple(-(-rows // step) for rows, step in zip(self._shape, size, strict=True))
        self.offsets, self.sizes = np.zeros(grid, np.int64), np.full(grid, -1, np.int64)
        self._skipped = np.zeros(grid, np.uint32)  # filters of each chunk, as bits
        data.id.chunk_iter(self._note)
        self._nbytes = int(np.prod(size, dtype=object)) * int(self._dtype.itemsize)
        if not codes and not np.isin(self.sizes, (-1, self._nbytes)).all():
            raise CorruptFile(f"{file.path}: {self._name} has a chunk that is not of {self._nbytes} bytes")

    def _note(self, chunk: Any) -> None:
        at = tuple(place // step for place, step in zip(chunk.chunk_offset, self._size, strict=True))
        if all(one < most for one, most in zip(at, self.sizes.shape, strict=True)):  # else left from a larger shape
            self.offsets[at], self.sizes[at], self._skipped[at] = chunk.byte_offset, chunk.size, chunk.filter_mask

    def rows(self, i: int) -> npt.NDArray[Any]:
        """Decode the chunks of some rows, side by side."""
        if self._size[1:] == self._shape[1:]:
            return self._one((i, *(0 for _ in self._shape[1:])))[: self._shape[0] - i * self._size[0]]
        rows = min(self._size[0], self._shape[0] - i * self._size[0])
        out = np.empty((rows, *self._shape[1:]), self._dtype)
        for rest in product(*map(range, self.sizes.shape[1:])):
            begins = [at * step for at, step in zip(rest, self._size[1:], strict=True)]
            part = out[(slice(None), *(slice(at, at + step) for at, step in zip(begins, self._size[1:], strict=True)))]
            part[...] = self._one((i, *rest))[tuple(slice(length) for length in part.shape)]
        return out

    def _one(self, at: tuple[int, ...]) -> npt.NDArray[Any]:
        """Decode one chunk; one that was never written holds the fill value."""
        if self.sizes[at] < 0:
            return np.broadcast_to(np.asarray(self._fill, self._dtype), self._size)
        data = self._file.read(int(self.offsets[at]), int(self.sizes[at]))
        for place, code in reversed(list(enumerate(self._codes))):
            if not self._skipped[at] >> place & 1:
                data = self._inflated(data, at) if code == DEFLATE else _unshuffled(data, int(self._dtype.itemsize))
        if len(data) != self._nbytes:
            raise CorruptFile(
                f"{self._file.path}: chunk {at} of {self._name} decodes to {len(data)} bytes, not {self._nbytes}"
            )
        return np.frombuffer(data, self._dtype).reshape(self._size)

    def _inflated(self, data: bytes, at: tuple[int, ...]) -> bytes:
        try:
            return zlib.decompressobj().decompress(data, self._nbytes + 1)
        except zlib.error as error:
            raise CorruptFile(f"{self._file.path}: chunk {at} of {self._name} does not decode: {error}") from None


def _unshuffled(data: bytes, itemsize: int) -> bytes:
    """Put the bytes of each number together again, of which the filter put the first of all first."""
    items = len(data) // itemsize
    planes = np.frombuffer(data, np.uint8, items * itemsize).reshape(itemsize, items)
    return planes.T.tobytes() + data[items * itemsize :]
