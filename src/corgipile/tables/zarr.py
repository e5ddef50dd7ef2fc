"""Zarr groups, of version 2 and 3, as tables: arrays with as many rows are columns."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, CorruptFile, MissingExtra, MissingFile, ReadFailed, TableError, UnknownFormat
from corgipile.extras import extra
from corgipile.tables import anndata
from corgipile.tables.arrays.columns import Column, column_of, field_columns
from corgipile.tables.arrays.stored import Chunked, check_item
from corgipile.tables.arrays.table import ArraysTable, Origin
from corgipile.tables.arrays.tree import ColumnChoice, choose_arrays, group_at, is_group
from corgipile.tables.io.files import PathLike, digest
from corgipile.tables.io.spill import Spill
from corgipile.tables.table import IntArray
from corgipile.tables.zarr_chunks import chunk_check

__all__ = ["is_zarr", "zarr_table"]

METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")


def is_zarr(folder: Path) -> bool:
    """Say whether a folder is a group or an array of Zarr."""
    return any((folder / name).is_file() for name in METADATA[:3])


def zarr_table(
    path: PathLike, group: str | None = None, columns: ColumnChoice = None, spill: Spill = None, *, paths: bool = False
) -> ArraysTable:
    """Open a Zarr group: a column for each array, whose first axes are of one length; an array; or AnnData.

    Args:
        path: The folder.
        group: The group, or the array, that is the table; by default all there is.
        columns: The arrays that are columns, by their paths in the group, or a dictionary from names to paths;
            by default all.
        spill: Folder for spill files, or ``"off"``.
        paths: Of AnnData, add the column ``obs_names``.

    Raises:
        MissingExtra: zarr is not installed.
        MissingColumn: There is no such group or array.
        BadSchema: Arrays are of different lengths, or of a type that is no column.
        CorruptFile: It is damaged.
    """
    folder = Path(path).expanduser().absolute()
    if not is_zarr(folder):
        raise MissingFile(f"{folder} is no group of Zarr: it has none of {', '.join(METADATA[:3])}")
    identity = _identity(folder)
    origin = Origin(
        "Zarr", str(folder), identity, lambda: f"{folder} {_identity(folder)}", _again,
        (str(folder), group, columns, spill, paths),
    )  # fmt: skip
    with reading(str(folder)):
        root = _opened(folder)
        if group is None and is_group(root) and anndata.is_anndata(root):
            return anndata.anndata_table(
                root,
                lambda array: _Read(array, str(folder)),
                origin._replace(kind="AnnData"),
                columns,
                spill,
                paths=paths,
            )
        if paths:
            raise BadArgument(f"paths does not apply to {folder}, which is no AnnData")
        node = group_at(root, group, str(folder)) if is_group(root) else root
        found = choose_arrays(node, columns, str(folder)) if is_group(node) else {_name(node, folder): node}
        made: dict[str, Column] = {}
        for name, array in found.items():
            made |= _columns(name, array, folder, alone=len(found) == 1)
        return ArraysTable(origin, made, int(next(iter(found.values())).shape[0]), spill=spill)


def _again(path: str, group: str | None, columns: ColumnChoice, spill: Spill, paths: bool) -> ArraysTable:
    return zarr_table(path, group, columns, spill, paths=paths)


def _opened(folder: Path) -> Any:
    return extra("zarr", "reading Zarr", "zarr").open(str(folder), mode="r")


def _name(array: Any, folder: Path) -> str:
    return str(array.name).rpartition("/")[2] or folder.name.removesuffix(".zarr")


def _columns(name: str, array: Any, folder: Path, *, alone: bool) -> dict[str, Column]:
    where, stored = f"{folder}, array {name!r}", _Read(array, str(folder))
    if stored.dtype.names is not None:
        found = field_columns(stored, where)
        return found if alone else {f"{name}.{field}": column for field, column in found.items()}
    return {name: column_of(stored, where, str if stored.dtype.kind == "O" else None)}


def _identity(folder: Path) -> str:
    """Return what tells the stored arrays from others: what their metadata say, and when chunks came or went."""
    told = [folder.name]
    for file in sorted(path for name in METADATA for path in folder.rglob(name)):
        told += [str(file.relative_to(folder)), file.read_text(errors="replace"), str(file.parent.stat().st_mtime_ns)]
    return digest(*told)


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what the library says of bad bytes into ours: its codecs raise errors of any kind."""
    try:
        yield
    except (TableError, BadArgument, MissingExtra):
        raise
    except OSError as error:
        raise ReadFailed(error.errno or 0, f"{path}: {error}") from error
    except Exception as error:  # noqa: BLE001 - as said above
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptFile(f"{path}: zarr cannot read it: {reason[:300]}") from None


class _Read(Chunked):
    """An array that the library decodes: what is asked for of whole chunks at once."""

    copies = 3  # the library copies what it has decoded

    def __init__(self, array: Any, path: str) -> None:
        check_item(array.dtype, f"{path}, array {array.name!r}")
        shape = tuple(map(int, array.shape))
        chunk = max(1, int(array.chunks[0]))
        super().__init__(np.dtype(array.dtype), shape, chunk, lambda i: self._run(i * chunk, (i + 1) * chunk))
        self._array, self._path, self._check = array, path, chunk_check(array, Path(path))
        codecs = [*(getattr(array.metadata, "filters", None) or ()), getattr(array.metadata, "compressor", None)]
        if any(getattr(codec, "codec_id", None) == "pickle" for codec in codecs):
            raise UnknownFormat(f"{path}: array {array.name!r} is stored as pickles, which run code; store it as text")

    def _run(self, start: int, stop: int) -> npt.NDArray[Any]:
        with reading(self._path):
            self._check(start, min(stop, self.shape[0]))
            return np.asarray(self._array[start:stop])

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows; long ones by one call, since each takes the library a millisecond."""
        if len(starts) == 1 and stops[0] - starts[0] > self.chunk:
            return self._run(int(starts[0]), int(stops[0]))
        return super().get(starts, stops)
