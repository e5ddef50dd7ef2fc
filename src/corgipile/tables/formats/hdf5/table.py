"""HDF5 files as tables: datasets of equal length are columns."""

from typing import Any

from corgipile.errors import BadArgument
from corgipile.tables.arrays.columns import Column, column_of, field_columns
from corgipile.tables.arrays.table import ArraysTable, Origin
from corgipile.tables.arrays.tree import ColumnChoice, choose_arrays, group_at, is_group
from corgipile.tables.format import Format
from corgipile.tables.formats import anndata
from corgipile.tables.formats.hdf5.file import H5, MAGIC, library
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.spill import Spill
from corgipile.tables.reach import Trust, trusting, trusts_paths

__all__ = ["ANNDATA", "FORMAT", "SUFFIXES", "hdf5_table"]

SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5")


def hdf5_table(
    path: PathLike, group: str | None = None, columns: ColumnChoice = None, spill: Spill = None, *, paths: bool = False
) -> ArraysTable:
    """Open an HDF5 file, a column per dataset of equal length, or an AnnData file.

    Fields of compound datasets are columns. Uncompressed numbers are read in place, gzip chunks by several threads;
    h5py reads other filters and virtual datasets, one request at a time.

    Args:
        path: The file.
        group: The group or dataset to open as a table; by default the whole file.
        columns: The datasets to read, by their paths in the group, or a dictionary from names to paths; by default
            all.
        spill: Folder for spill files, or ``"off"``.
        paths: Add the column ``obs_names`` (AnnData only).

    Raises:
        MissingExtra: h5py is not installed.
        MissingColumn: The group or a dataset is missing.
        BadSchema: Datasets differ in length, or have an unsupported type.

    Example:
        >>> import h5py, tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with h5py.File(f"{folder}/a.h5", "w") as file:
        ...         file["x"], file["label"] = np.eye(3), [0, 1, 1]
        ...     hdf5_table(f"{folder}/a.h5").read(1, 2).to_pydict()
        {'label': [1], 'x': [[0.0, 1.0, 0.0]]}
    """
    source = H5(path)
    file = source.file
    origin = Origin(
        "HDF5", file.path, file.identity, lambda: file.place, _reopen,
        (file.path, group, columns, spill, paths, "paths" if trusts_paths() else None),
    )  # fmt: skip
    with source.open_root() as root:
        if group is None and anndata.is_anndata(root):
            return anndata.anndata_table(
                root, source.stored, origin._replace(kind="AnnData"), columns, spill, paths=paths
            )
        if paths:
            raise BadArgument(f"paths applies only to AnnData files, got {file.path}")
        node = group_at(root, group, file.path)
        datasets = choose_arrays(node, columns, file.path) if is_group(node) else {node.name.rpartition("/")[2]: node}
        table_columns: dict[str, Column] = {}
        for name, data in datasets.items():
            table_columns |= _columns(source, name, data, alone=len(datasets) == 1)
        return ArraysTable(origin, table_columns, int(next(iter(datasets.values())).shape[0]), spill=spill)


def _reopen(
    path: str, group: str | None, columns: ColumnChoice, spill: Spill, paths: bool, trust: Trust = None
) -> ArraysTable:
    with trusting(trust):
        return hdf5_table(path, group, columns, spill, paths=paths)


def _columns(source: H5, name: str, data: Any, *, alone: bool) -> dict[str, Column]:
    """Return the columns of a dataset; the fields of a single dataset have no prefix."""
    h5py = library()
    where, stored = f"{source.file.path}, dataset {data.name!r}", source.stored(data)
    if data.dtype.names is not None:
        fields = field_columns(stored, where)
        return fields if alone else {f"{name}.{field}": column for field, column in fields.items()}
    text, item = h5py.check_string_dtype(data.dtype), h5py.check_vlen_dtype(data.dtype)
    return {name: column_of(stored, where, str if text else item)}


FORMAT = Format(MAGIC, SUFFIXES, hdf5_table, frozenset({"columns", "group", "paths", "spill"}), local=True)
ANNDATA = FORMAT._replace(
    magic=b"", suffixes=anndata.SUFFIXES, options=FORMAT.options - {"group"}, agree=anndata.same_genes
)
