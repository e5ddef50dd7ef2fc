"""NumPy archives, ``.npz``: arrays read from their place in the archive, or unpacked once where it is compressed."""

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
from corgipile.tables.encoded import TOLD
from corgipile.tables.io.files import File, PathLike, Region
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, Spill, SpillFile, SpillWriter, check_room, spill_folder
from corgipile.tables.numpy import read_header
from corgipile.tables.table import IntArray

__all__ = ["MAGIC", "SUFFIXES", "npz_table"]

MAGIC, SUFFIXES = b"PK\x03\x04", (".npz",)
LOCAL = struct.Struct("<4s22xHH")  # of a member's header: magic, and the lengths of name and extra fields
SPARSE = {"format", "shape", "data"}  # what every archive of scipy.sparse.save_npz has
FEATURES = ("features", "X", "x")
READ = 1 << 18
SMALL = 1 << 8  # bytes of a value that describes the archive
log = logging.getLogger("corgipile")


def npz_table(path: PathLike, columns: ColumnChoice = None, spill: Spill = None) -> ArraysTable:
    """Open a NumPy archive: a column for each array, all of one length; or a sparse matrix as SciPy saves it.

    Arrays of ``np.savez`` are read in place. Those of ``np.savez_compressed`` are one stream each, so that no row has a
    place: they are unpacked to a spill file when they are first read.

    Args:
        path: The archive.
        columns: The arrays that are columns, or a dictionary from names to arrays; by default all.
        spill: Folder for spill files, or ``"off"``.

    Raises:
        UnknownFormat: It is an archive of something else.
        BadSchema: The arrays are of different lengths, or of a type that is no column.
        BadArgument: It is compressed, and spill files are off.
        CorruptFile: It is damaged.

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
    found = choose_arrays(members, columns, file.path)
    archive.choose(list(found.values()))
    made: dict[str, Column] = {}
    for name, member in found.items():
        where, stored = f"{file.path}, array {member.name!r}", archive.stored(member)
        made |= field_columns(stored, where) if member.dtype.names else {name: column_of(stored, where)}
    features = next((name for name in FEATURES if name in made and len(found[name].shape) > 1), None)
    return ArraysTable(origin, made, next(iter(found.values())).shape[0], features=features, spill=spill)


def _sparse(archive: "_Archive", members: "Mapping[str, _Member]", origin: Origin, spill: Spill) -> ArraysTable:
    """Open a sparse matrix, as ``scipy.sparse.save_npz`` writes it."""
    kind = archive.value(members["format"], 1).item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind != "csr" or not {"indptr", "indices"} <= members.keys():
        raise BadSchema(
            f"{origin.path} is a sparse matrix stored as {kind!r}; rows lie together in 'csr': "
            "scipy.sparse.save_npz(path, scipy.sparse.load_npz(path).tocsr())"
        )
    rows, width = map(int, archive.value(members["shape"], 2).ravel())
    parts = [members[name] for name in ("indptr", "indices", "data")]
    archive.choose(parts)
    made = sparse_columns("features", origin.path, [archive.stored(part) for part in parts], (rows, width))
    return ArraysTable(origin, made, rows, features="features", dims=width, spill=spill)


class _Member:
    """An array of an archive."""

    def __init__(self, info: zipfile.ZipInfo, stream: Any) -> None:
        self.info, self.name = info, info.filename.removesuffix(".npy")
        self.shape, fortran, self.dtype, self.at = read_header(stream)
        if fortran and len(self.shape) > 1:
            raise BadSchema(f"array {self.name!r} is in Fortran order; save it with np.ascontiguousarray(array)")
        needed = self.at + int(self.dtype.itemsize) * int(np.prod(self.shape, dtype=object))
        if needed != info.file_size and not self.dtype.hasobject:
            raise ValueError(f"array {self.name!r} of shape {self.shape} needs {needed} bytes; it has {info.file_size}")

    @property
    def packed(self) -> bool:
        """Say whether it is compressed."""
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
        """Open the archive; whatever is said of bad bytes is CorruptFile."""
        try:
            with zipfile.ZipFile(io.BufferedReader(Region(self.file, 0, self.file.size), READ)) as archive:
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
            raise CorruptFile(f"{self.file.path}: no whole archive of arrays: {reason[:300]}") from None

    def members(self) -> dict[str, _Member]:
        """Return the arrays by name."""
        found: dict[str, _Member] = {}
        with self._opened() as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    with archive.open(info) as stream:
                        member = _Member(info, stream)
                    found[member.name] = member
            others = [name for name in archive.namelist() if not name.endswith((".npy", "/"))]
        if not found or others:
            raise UnknownFormat(
                f"{self.file.path} is a zip archive "
                + (f"with {others[0]!r} in it, which is no array" if others else "without arrays (.npy)")
                + "; archives of np.savez are tables: unpack others first"
            )
        return found

    def value(self, member: _Member, size: int) -> npt.NDArray[Any]:
        """Return an array, after a check that it has so many values.

        Raises:
            CorruptFile: It has another number of values, or they are too large.
        """
        if int(np.prod(member.shape, dtype=object)) != size or int(member.dtype.itemsize) > SMALL:
            raise CorruptFile(
                f"{self.file.path}: array {member.name!r} must have {size} values of a sparse matrix, "
                f"got shape {member.shape} of {member.dtype}"
            )
        with self._opened() as archive, archive.open(member.info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def choose(self, members: Sequence[_Member]) -> None:
        """Say which arrays will be read.

        Raises:
            BadArgument: One is compressed, and spill files are off.
        """
        self._chosen = [member for member in members if member.packed]
        if self._chosen and self._folder is None:
            raise BadArgument(
                f"{self.file.path} is compressed as a whole, so its rows have no place, and spill files are off: "
                "open(..., spill=FOLDER) unpacks it once, np.savez writes one that is read in place"
            )

    def stored(self, member: _Member) -> Stored:
        """Return what reads an array that was chosen."""
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
        """Return where a compressed array lies plain; all that were chosen are unpacked together."""
        assert self._folder is not None  # noqa: S101 - `choose` asked
        folder, names = self._folder, [one.name for one in self._chosen]
        key = f"{self.file.place} {names!r}"
        found = self._spilled.get(0, lambda: list(shared(folder, key, lambda: self._written(folder)).sections()))
        return found[names.index(member.name)]

    def _written(self, folder: Path) -> SpillFile:
        total = sum(member.info.file_size for member in self._chosen)
        check_room(folder, total)
        log.log(
            logging.WARNING if total >= TOLD else logging.INFO,
            "unpacking %s to %s, once (%s); np.savez writes an archive that is read in place",
            self.file.path, folder, format_bytes(total),
        )  # fmt: skip
        with SpillWriter(folder) as out:
            for member in self._chosen:
                with out.section(), self._opened() as archive, archive.open(member.info) as stream:
                    while data := stream.read(READ):
                        out.write(data)
            return out.finish()


def in_place(file: File, member: _Member, base: int) -> InPlace:
    """Return what reads an array that lies plain in a file from a byte on."""
    starts = np.array([0, member.shape[0]], np.int64)
    return InPlace(file, member.dtype, member.shape, starts, np.array([base + member.at], np.int64))


class _Unpacked:
    """A compressed array, unpacked when it is first read."""

    chunk = 0

    def __init__(self, archive: _Archive, member: _Member) -> None:
        self._archive, self._member = archive, member
        self.dtype, self.shape = member.dtype, member.shape

    def unpacked(self) -> InPlace:
        """Return it as it lies in the spill file."""
        return in_place(self._archive.section(self._member), self._member, 0)

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows."""
        return self.unpacked().get(starts, stops)
