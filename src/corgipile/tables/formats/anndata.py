"""AnnData files in HDF5 or Zarr: the dense or sparse matrix of cells by genes, and the annotations of cells."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, CorruptFile, MissingColumn
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.arrays.columns import Categorical, Column, Nullable, column_of, field_columns, text_array
from corgipile.tables.arrays.sparse import sparse_columns
from corgipile.tables.arrays.stored import Stored
from corgipile.tables.arrays.table import ArraysTable, Origin
from corgipile.tables.arrays.tree import ColumnChoice, by_name, is_group, lookup
from corgipile.tables.io.files import digest
from corgipile.tables.io.spill import Spill
from corgipile.tables.table import Table

__all__ = ["NAMES", "SUFFIXES", "anndata_table", "is_anndata", "same_genes"]

SUFFIXES = (".h5ad",)
NAMES = "obs_names"  # the column of cell names
MATRIX, CELLS, KIND = "X", "obs", "encoding-type"
_SPARSE = {"csr_matrix": True, "csr": True, "csc_matrix": False, "csc": False}  # whether rows are contiguous

MakeStored = Callable[[Any], Stored]


def is_anndata(root: Any) -> bool:
    """Return whether a file is AnnData, by its encoding or, in old files, by its groups."""
    if root.attrs.get(KIND) == "anndata":
        return True
    return {MATRIX, CELLS, "var"} <= set(root.keys())


def anndata_table(
    root: Any,
    stored: MakeStored,
    origin: Origin,
    columns: ColumnChoice = None,
    spill: Spill = None,
    *,
    paths: bool = False,
) -> ArraysTable:
    """Return the cells as rows: the matrix ``X`` and the columns of ``obs``, or those in ``columns``.

    A dense matrix becomes a column of lists, a sparse matrix a pair: ``X_k`` (genes from 0) and ``X_v``
    (floats). Categories become Arrow dictionaries.

    Args:
        root: The h5py or Zarr group.
        stored: Creates the reader of an array.
        origin: The source of the table.
        columns: Such as ``["X", "cell_type", "layers/counts", "obsm/X_pca", "raw/X"]``: bare names are ``obs`` columns.
        spill: Folder for spill files, or ``"off"``.
        paths: Add the column ``obs_names``.

    Raises:
        MissingColumn: A column does not exist.
        BadSchema: The matrix is stored by genes, or an element cannot become a column.
        CorruptFile: Parts of the file contradict each other.
    """
    reader = _Reader(root, stored, origin.path)
    wanted = by_name(columns) or reader.every()
    result: dict[str, Column] = {}
    matrices: dict[str, int | None] = {}
    for name, place in wanted.items():
        if reader.is_of_cells(place):
            result[name] = reader.of_cells(place)
        else:
            arrays, matrices[name] = reader.matrix(name, place)
            result |= arrays
    if paths:
        result[NAMES] = reader.names()
    features = next(iter(matrices), None)
    dims, places = matrices.get(features or ""), reader.genes() if features else None
    return ArraysTable(origin, result, reader.rows(result), features=features, dims=dims, places=places, spill=spill)


def same_genes(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of one source after checking that their genes match.

    Raises:
        BadSchema: Tables differ in genes or in the order of genes.
    """
    matrices = [table for table in tables if isinstance(table, ArraysTable) and table.places is not None]
    for table in matrices[1:]:
        if table.places != matrices[0].places:
            raise BadSchema(
                f"genes of {table!r} must match those of {matrices[0]!r} in the same order; select the same "
                "var_names in each file, in one order"
            )
    return list(tables)


class _Reader:
    """Reader of the columns of a file.

    Args:
        root: Its root.
        stored: Creates the reader of an array.
        path: The file, for errors.
    """

    def __init__(self, root: Any, stored: MakeStored, path: str) -> None:
        self._root, self._stored, self._path = root, stored, path
        self._cells = lookup(root, CELLS)
        if self._cells is None:
            raise CorruptFile(f"{path} must have the group {CELLS!r} of AnnData; the file is damaged")
        self._fields = {} if is_group(self._cells) else field_columns(stored(self._cells), self._where(CELLS))

    def every(self) -> dict[str, str]:
        """Return the default columns: the matrix, if any, and the annotations of cells."""
        matrix = {MATRIX: MATRIX} if lookup(self._root, MATRIX) is not None else {}
        index = self._index()
        names = [name for name in self._fields or self._order() if name != index]
        return matrix | {(f"{CELLS}/{name}" if name in matrix else name): f"{CELLS}/{name}" for name in names}

    def is_of_cells(self, place: str) -> bool:
        """Return whether a column belongs to ``obs``."""
        folder, slash, _ = place.partition("/")
        return folder == CELLS if slash else lookup(self._root, place) is None or place == CELLS

    def of_cells(self, place: str) -> Column:
        """Return a column of ``obs``."""
        name = place.removeprefix(f"{CELLS}/")
        if name in self._fields:
            return self._legacy_categories(name)
        node = None if self._fields else lookup(self._cells, name)
        if node is None:
            names = list(self._fields) or self._order()
            raise MissingColumn(
                f"{self._path} has no column {name!r} of cells; {CELLS} has {listed(names)}{did_you_mean(name, names)}"
            )
        return self._element(node, f"{CELLS}/{name}")

    def names(self) -> Column:
        """Return the names of the cells."""
        index = self._index()
        return self.of_cells(f"{CELLS}/{index}")

    def genes(self) -> str | None:
        """Return a digest of the gene names, None if the file has none."""
        genes = lookup(self._root, "var")
        if genes is None:
            return None
        if not is_group(genes):
            return digest(*(_text(row[0]) for row in self._values(genes).tolist()))
        names = lookup(genes, _text(genes.attrs.get("_index", "_index")))
        return None if names is None or is_group(names) else digest(*map(_text, self._values(names).tolist()))

    def rows(self, columns: Mapping[str, Column]) -> int:
        """Return the number of cells, which must be the same for all columns."""
        lengths = {name: getattr(column, "sparse", column.stored[0]) for name, column in columns.items()}
        counts = {name: part.rows if hasattr(part, "rows") else int(part.shape[0]) for name, part in lengths.items()}
        if len(set(counts.values())) > 1:
            raise CorruptFile(f"{self._path}: its columns must have equal lengths, got {counts}")
        return next(iter(counts.values()), 0)

    def matrix(self, name: str, place: str) -> tuple[dict[str, Column], int | None]:
        """Return the columns of a matrix, and its width if it is sparse."""
        node, where = lookup(self._root, place), self._where(place)
        if node is None:
            raise MissingColumn(f"{self._path} has no {place!r}; it has {listed(list(self._root.keys()))}")
        if not is_group(node):
            return {name: column_of(self._stored(node), where)}, None
        kind = node.attrs.get(KIND) or node.attrs.get("h5sparse_format")
        if kind not in _SPARSE:
            raise BadSchema(f"{where} must be a dense array or a csr_matrix, got {kind or 'a group'!r}")
        if not _SPARSE[kind]:
            raise BadSchema(
                f"{where} must be stored by cells (CSR), but is stored by genes (CSC); convert it: "
                f"adata.{place.replace('/', '.')} = adata.{place.replace('/', '.')}.tocsr(), then adata.write_h5ad(...)"
            )
        shape = node.attrs.get("shape", node.attrs.get("h5sparse_shape"))
        parts = [lookup(node, part) for part in ("indptr", "indices", "data")]
        if shape is None or len(shape) != 2 or any(part is None or is_group(part) for part in parts):
            raise CorruptFile(f"{where}: a sparse matrix must have shape, indptr, indices and data; one is missing")
        rows, width = map(int, shape)
        return sparse_columns(name, where, [self._stored(part) for part in parts], (rows, width)), width

    def _values(self, node: Any) -> Any:
        """Return all values of an array after the reader has checked it."""
        self._stored(node)
        return node[()]

    def _where(self, place: str) -> str:
        return f"{self._path}, {place}"

    def _order(self) -> list[str]:
        order = self._cells.attrs.get("column-order")
        names = [name for name in self._cells.keys() if name != "__categories"]  # noqa: SIM118 - a Zarr group
        return names if order is None else [name for name in map(_text, order) if name in names]

    def _index(self) -> str:
        return "index" if self._fields else _text(self._cells.attrs.get("_index", "_index"))

    def _element(self, node: Any, place: str) -> Column:
        """Return the column of an element: an array, categories, or values with a mask."""
        where = self._where(place)
        if not is_group(node):
            categories = node.attrs.get("categories")
            return self._array(node, where) if categories is None else self._reference(node, categories, where)
        parts = {part: lookup(node, part) for part in ("codes", "categories", "values", "mask")}
        if parts["codes"] is not None and parts["categories"] is not None:
            ordered = bool(node.attrs.get("ordered", False))
            return self._categories(parts["codes"], parts["categories"], where, ordered=ordered)
        if parts["values"] is not None and parts["mask"] is not None:
            return Nullable(self._array(parts["values"], where), self._stored(parts["mask"]))
        kind = node.attrs.get(KIND)
        raise BadSchema(f"{where} is encoded as {kind!r}, which cannot be a column; leave it out by columns=[...]")

    def _array(self, node: Any, where: str) -> Column:
        stored = self._stored(node)
        return column_of(stored, where, str if stored.dtype.kind == "O" else None)

    def _categories(self, codes: Any, categories: Any, where: str, *, ordered: bool) -> Column:
        column = self._array(categories, where)
        stored = categories[:]
        values = text_array(stored, pa.string(), where) if column.kind == pa.string() else pa.array(np.asarray(stored))
        return Categorical(self._stored(codes), values, where, ordered=ordered)

    def _reference(self, node: Any, categories: Any, where: str) -> Column:
        """Return categories as version 0.1.0 stores them: in a separate group that columns reference."""
        known = lookup(self._cells, "__categories/" + node.name.rpartition("/")[2])
        named = isinstance(categories, str | bytes)  # not a reference; it may pass through a link
        group = known if known is not None else None if named else self._root[categories]
        if group is None or is_group(group):
            raise CorruptFile(f"{where} refers to categories that the file does not have")
        return self._categories(node, group, where, ordered=bool(group.attrs.get("ordered", False)))

    def _legacy_categories(self, name: str) -> Column:
        """Return a field of a compound ``obs`` dataset; its categories are in ``uns``."""
        column = self._fields[name]
        node = lookup(self._root, f"uns/{name}_categories")
        if node is None or is_group(node):
            return column
        values = np.atleast_1d(self._values(node))
        names = text_array(values, pa.string(), self._where(name)) if values.dtype.kind in "OSU" else pa.array(values)
        return Categorical(column.stored[0], names, self._where(name))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
