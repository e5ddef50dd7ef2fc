"""Zarr groups, version 2 and 3: arrays of equal length are columns."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, CorruptFile, MissingExtra, MissingFile, ReadFailed, TableError
from corgipile.extras import extra
from corgipile.tables.arrays.columns import Column, column_of, field_columns
from corgipile.tables.arrays.stored import Chunked, check_item
from corgipile.tables.arrays.table import ArraysTable, Origin
from corgipile.tables.arrays.tree import ColumnChoice, choose_arrays, group_at, is_group
from corgipile.tables.format import folder_format
from corgipile.tables.formats import anndata
from corgipile.tables.formats.zarr.chunks import chunk_check
from corgipile.tables.io.files import PathLike, digest
from corgipile.tables.io.spill import Spill
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "is_zarr", "zarr_table"]

METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")


def is_zarr(folder: Path) -> bool:
    """Return whether a folder is a Zarr group or array."""
    return any((folder / name).is_file() for name in METADATA[:3])


def zarr_table(
    path: PathLike, group: str | None = None, columns: ColumnChoice = None, spill: Spill = None, *, paths: bool = False
) -> ArraysTable:
    """Open a Zarr group with a column for each array, a single array, or AnnData.

    Args:
        path: The folder.
        group: The group or array to open; the root by default.
        columns: Paths of the arrays to use as columns, or a dictionary from names to paths; all by default.
        spill: Folder for spill files, or ``"off"``.
        paths: For AnnData, add the column ``obs_names``.

    Raises:
        MissingExtra: zarr is not installed.
        MissingColumn: The group or array does not exist.
        BadSchema: Arrays differ in length, or have a type that cannot be a column.
        CorruptFile: The data are damaged.
    """
    folder = Path(path).expanduser().absolute()
    if not is_zarr(folder):
        raise MissingFile(f"{folder} is not a Zarr group: it has none of {', '.join(METADATA[:3])}")
    identity = _identity(folder)
    origin = Origin(
        "Zarr", str(folder), identity, lambda: f"{folder} {_identity(folder)}", _reopen,
        (str(folder), group, columns, spill, paths),
    )  # fmt: skip
    with reading(str(folder)):
        root = _open(folder)
        if group is None and is_group(root) and anndata.is_anndata(root):
            return anndata.anndata_table(
                root,
                lambda array: _ZarrArray(array, str(folder)),
                origin._replace(kind="AnnData"),
                columns,
                spill,
                paths=paths,
            )
        if paths:
            raise BadArgument(f"paths does not apply to {folder}, which is not AnnData")
        node = group_at(root, group, str(folder)) if is_group(root) else root
        arrays = choose_arrays(node, columns, str(folder)) if is_group(node) else {_name(node, folder): node}
        columns_of: dict[str, Column] = {}
        for name, array in arrays.items():
            columns_of |= _columns(name, array, folder, alone=len(arrays) == 1)
        return ArraysTable(origin, columns_of, int(next(iter(arrays.values())).shape[0]), spill=spill)


def _reopen(path: str, group: str | None, columns: ColumnChoice, spill: Spill, paths: bool) -> ArraysTable:
    return zarr_table(path, group, columns, spill, paths=paths)


def _open(folder: Path) -> Any:
    return extra("zarr", "reading Zarr", "zarr").open(str(folder), mode="r")


def _name(array: Any, folder: Path) -> str:
    return str(array.name).rpartition("/")[2] or folder.name.removesuffix(".zarr")


def _columns(name: str, array: Any, folder: Path, *, alone: bool) -> dict[str, Column]:
    where, stored = f"{folder}, array {name!r}", _ZarrArray(array, str(folder))
    if stored.dtype.names is not None:
        fields = field_columns(stored, where)
        return fields if alone else {f"{name}.{field}": column for field, column in fields.items()}
    return {name: column_of(stored, where, str if stored.dtype.kind == "O" else None)}


def _identity(folder: Path) -> str:
    """Return the identity of the arrays from their metadata and the modification times of their folders."""
    parts = [folder.name]
    for file in sorted(path for name in METADATA for path in folder.rglob(name)):
        parts += [str(file.relative_to(folder)), file.read_text(errors="replace"), str(file.parent.stat().st_mtime_ns)]
    return digest(*parts)


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert errors for bad data to errors of this package, since codecs raise errors of any kind."""
    try:
        yield
    except (TableError, BadArgument, MissingExtra):
        raise
    except OSError as error:
        raise ReadFailed(error.errno or 0, f"{path}: {error}") from error
    except Exception as error:  # noqa: BLE001 - codecs raise errors of any kind
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptFile(f"{path}: zarr cannot read it: {reason[:300]}") from None


class _ZarrArray(Chunked):
    """An array that the library decodes in whole chunks."""

    copies = 3  # the library copies decoded chunks

    def __init__(self, array: Any, path: str) -> None:
        check_item(array.dtype, f"{path}, array {array.name!r}")
        shape = tuple(map(int, array.shape))
        chunk = max(1, int(array.chunks[0]))
        decode = lambda i: self._run(i * chunk, (i + 1) * chunk)  # noqa: E731
        super().__init__(np.dtype(array.dtype), shape, chunk, decode, array.chunks[1:])
        self._array, self._path, self._check = array, path, chunk_check(array, Path(path))

    def _run(self, start: int, stop: int) -> npt.NDArray[Any]:
        with reading(self._path):
            self._check(start, min(stop, self.shape[0]))
            return np.asarray(self._array[start:stop])

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows; long ones by one call, since each takes the library a millisecond."""
        if len(starts) == 1 and stops[0] - starts[0] > self.chunk:
            return self._run(int(starts[0]), int(stops[0]))
        return super().get(starts, stops)


FORMAT = folder_format(zarr_table, is_zarr, "columns", "group", "paths", "spill")
