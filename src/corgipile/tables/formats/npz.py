"""NumPy archives, ``.npz``: arrays read in place, or unpacked once if they are compressed."""

import contextlib
import io
import logging
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadSchema, CorruptFile, ReadFailed, TableError, UnknownFormat
from corgipile.sizes import format_bytes
from corgipile.tables.arrays.columns import Column, column_of, field_columns
from corgipile.tables.arrays.sparse import sparse_columns
from corgipile.tables.arrays.stored import InPlace, MemoryArray, Stored
from corgipile.tables.arrays.table import ArraysTable, Origin
from corgipile.tables.arrays.tree import ColumnChoice, choose_arrays
from corgipile.tables.encoded import WARN_BYTES
from corgipile.tables.format import Format
from corgipile.tables.formats.numpy import read_header
from corgipile.tables.io.files import File, PathLike, Region
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, Spill, SpillFile, SpillWriter, check_room, spill_folder
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "MAGIC", "SUFFIXES", "npz_table"]

MAGIC, SUFFIXES = b"PK\x03\x04", (".npz",)
LOCAL = struct.Struct("<4s22xHH")  # a member header: magic, and the lengths of name and extra fields
SPARSE = {"format", "shape", "data"}  # members of every archive by scipy.sparse.save_npz
FEATURES = ("features", "X", "x")
CHUNK_BYTES = 1 << 18
MAX_VALUE_BYTES = 1 << 8  # bytes of a value that describes a sparse matrix
log = logging.getLogger("corgipile")


def npz_table(path: PathLike, columns: ColumnChoice = None, spill: Spill = None) -> ArraysTable:
    """Open a NumPy archive with a column for each array, or a sparse matrix saved by SciPy.

    Arrays of ``np.savez`` are read in place. Arrays of ``np.savez_compressed`` are unpacked to a spill file on the
    first read, since each is one compressed stream.

    Args:
        path: The archive.
        columns: The arrays to use as columns, or a dictionary from names to arrays; all by default.
        spill: Folder for spill files, or ``"off"``.

    Raises:
        UnknownFormat: The archive holds other files.
        BadSchema: Arrays differ in length, or have a type that cannot be a column.
        BadArgument: The archive is compressed, and spill files are off.
        CorruptFile: The archive is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", X=np.eye(3), y=[0, 1, 1])
        ...     npz_table(f"{folder}/a.npz").read(1, 2).to_pydict()
        {'X': [[0.0, 1.0, 0.0]], 'y': [1]}
    """
    archive = _Archive(File(path), spill)
    file = archive.file
    origin = Origin("Npz", file.path, file.identity, lambda: file.place, npz_table, (file.path, columns, spill))
    members = archive.members()
    if members.keys() >= SPARSE and columns is None:
        return _sparse(archive, members, origin, spill)
    selected = choose_arrays(members, columns, file.path)
    archive.choose(list(selected.values()))
    columns_of: dict[str, Column] = {}
    for name, member in selected.items():
        where, stored = f"{file.path}, array {member.name!r}", archive.stored(member)
        columns_of |= field_columns(stored, where) if member.dtype.names else {name: column_of(stored, where)}
    features = next((name for name in FEATURES if name in columns_of and len(selected[name].shape) > 1), None)
    return ArraysTable(origin, columns_of, next(iter(selected.values())).shape[0], features=features, spill=spill)


def _sparse(archive: "_Archive", members: "Mapping[str, _Member]", origin: Origin, spill: Spill) -> ArraysTable:
    """Open a sparse matrix written by ``scipy.sparse.save_npz``."""
    kind = archive.value(members["format"], 1).item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind != "csr" or not {"indptr", "indices"} <= members.keys():
        raise BadSchema(
            f"{origin.path}: a sparse matrix must be stored as 'csr', got {kind!r}; convert it: "
            "scipy.sparse.save_npz(path, scipy.sparse.load_npz(path).tocsr())"
        )
    rows, width = map(int, archive.value(members["shape"], 2).ravel())
    parts = [members[name] for name in ("indptr", "indices", "data")]
    archive.choose(parts)
    pair = sparse_columns("features", origin.path, [archive.stored(part) for part in parts], (rows, width))
    return ArraysTable(origin, pair, rows, features="features", dims=width, spill=spill)


class _Member:
    """An array of an archive."""

    def __init__(self, info: zipfile.ZipInfo, stream: Any) -> None:
        self.info, self.name = info, info.filename.removesuffix(".npy")
        self.shape, fortran, self.dtype, self.at = read_header(stream)
        if fortran and len(self.shape) > 1:
            raise BadSchema(f"array {self.name!r} must be in C order; save np.ascontiguousarray(array)")
        needed = self.at + int(self.dtype.itemsize) * int(np.prod(self.shape, dtype=object))
        if needed != info.file_size and not self.dtype.hasobject:
            raise ValueError(f"array {self.name!r} of {self.shape} must have {needed} bytes, got {info.file_size}")

    @property
    def packed(self) -> bool:
        """Return whether the array is compressed."""
        return self.info.compress_type != zipfile.ZIP_STORED


class _Archive:
    """A zip file of arrays.

    Args:
        file: The file.
        spill: Folder for spill files, or ``"off"``.
    """

    def __init__(self, file: File, spill: Spill) -> None:
        self.file, self._folder = file, spill_folder(spill)
        self._chosen: list[_Member] = []
        self._spilled: Recent[list[Section]] = Recent(1)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """Open the archive; errors for bad bytes become CorruptFile."""
        try:
            with zipfile.ZipFile(io.BufferedReader(Region(self.file, 0, self.file.size), CHUNK_BYTES)) as archive:
                yield archive
        except TableError as error:
            if isinstance(error, BadSchema):
                raise BadSchema(f"{self.file.path}: {error}") from None
            raise
        except (
            zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, struct.error,
            ValueError, KeyError, IndexError, OverflowError, MemoryError, OSError,
        ) as error:  # fmt: skip
            if isinstance(error, OSError) and error.errno is not None:
                raise ReadFailed(error.errno, f"{self.file.path}: {error.strerror}") from error
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorruptFile(f"{self.file.path} is not a complete archive of arrays: {reason[:300]}") from None

    def members(self) -> dict[str, _Member]:
        """Return the arrays by name."""
        arrays: dict[str, _Member] = {}
        with self._opened() as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    with archive.open(info) as stream:
                        member = _Member(info, stream)
                    arrays[member.name] = member
            others = [name for name in archive.namelist() if not name.endswith((".npy", "/"))]
        if not arrays or others:
            raise UnknownFormat(
                f"{self.file.path} is a zip archive "
                + (f"with {others[0]!r} in it, which is not an array" if others else "without arrays (.npy)")
                + "; unpack it first, unless np.savez wrote it"
            )
        return arrays

    def value(self, member: _Member, size: int) -> npt.NDArray[Any]:
        """Return an array that must have ``size`` values.

        Raises:
            CorruptFile: The array has another number of values, or they are too large.
        """
        if int(np.prod(member.shape, dtype=object)) != size or int(member.dtype.itemsize) > MAX_VALUE_BYTES:
            raise CorruptFile(
                f"{self.file.path}: array {member.name!r} must have {size} values of a sparse matrix, "
                f"got shape {member.shape} of {member.dtype}"
            )
        with self._opened() as archive, archive.open(member.info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def choose(self, members: Sequence[_Member]) -> None:
        """Set the arrays to read.

        Raises:
            BadArgument: An array is compressed, and spill files are off.
        """
        self._chosen = [member for member in members if member.packed]
        if self._chosen and self._folder is None:
            raise BadArgument(
                f"{self.file.path} is compressed, so it must be unpacked, but spill files are off: open it by "
                "open(..., spill=FOLDER), or write it by np.savez, which needs no unpacking"
            )

    def stored(self, member: _Member) -> Stored:
        """Return the reader of a chosen array."""
        if not member.shape[0]:
            return MemoryArray(np.empty(member.shape, member.dtype))
        if member.packed:
            return _Unpacked(self, member)
        head = self.file.read(member.info.header_offset, LOCAL.size)
        magic, name, extra = LOCAL.unpack(head)
        if magic != MAGIC:
            raise CorruptFile(f"{self.file.path}: no member begins at byte {member.info.header_offset}")
        return in_place(self.file, member, member.info.header_offset + LOCAL.size + name + extra)

    def section(self, member: _Member) -> Section:
        """Return the section of an unpacked array; all chosen arrays are unpacked together."""
        assert self._folder is not None  # noqa: S101 - `choose` has checked it
        folder, names = self._folder, [one.name for one in self._chosen]
        key = f"{self.file.place} {names!r}"
        sections = self._spilled.get(0, lambda: list(shared(folder, key, lambda: self._write_spill(folder)).sections()))
        return sections[names.index(member.name)]

    def _write_spill(self, folder: Path) -> SpillFile:
        total = sum(member.info.file_size for member in self._chosen)
        check_room(folder, total)
        log.log(
            logging.WARNING if total >= WARN_BYTES else logging.INFO,
            "unpacking %s to %s, once (%s); np.savez writes archives that are read in place",
            self.file.path, folder, format_bytes(total),
        )  # fmt: skip
        with SpillWriter(folder) as out:
            for member in self._chosen:
                with out.section(), self._opened() as archive, archive.open(member.info) as stream:
                    while data := stream.read(CHUNK_BYTES):
                        out.write(data)
            return out.finish()


def in_place(file: File, member: _Member, base: int) -> InPlace:
    """Return the reader of an uncompressed array that begins at a byte of a file."""
    starts = np.array([0, member.shape[0]], np.int64)
    return InPlace(file, member.dtype, member.shape, starts, np.array([base + member.at], np.int64))


class _Unpacked:
    """A compressed array, unpacked on the first read."""

    chunk = 0

    def __init__(self, archive: _Archive, member: _Member) -> None:
        self._archive, self._member = archive, member
        self.dtype, self.shape = member.dtype, member.shape

    def inflated(self) -> InPlace:
        """Return the reader of the unpacked array."""
        return in_place(self._archive.section(self._member), self._member, 0)

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows."""
        return self.inflated().get(starts, stops)


FORMAT = Format(MAGIC, SUFFIXES, npz_table, frozenset({"columns", "spill"}), local=True)
