"""AnnData as HDF5 or Zarr store it: the matrix of cells by genes, dense or sparse, and what is known of cells."""

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
NAMES = "obs_names"  # the column of what cells are called
MATRIX, CELLS, KIND = "X", "obs", "encoding-type"
_SPARSE = {"csr_matrix": True, "csr": True, "csc_matrix": False, "csc": False}  # whether rows lie together

MakeStored = Callable[[Any], Stored]


def is_anndata(root: Any) -> bool:
    """Say whether a file is AnnData: by its encoding, of old ones by what is in them."""
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
    """Return the cells as rows: the matrix ``X`` and the columns of ``obs``, or what ``columns`` names.

    A dense matrix is a column of lists, a sparse one a pair: ``X_k`` (genes from 0) and ``X_v``. Categories are
    dictionaries of Arrow.

    Args:
        root: The group, of h5py or Zarr.
        stored: Makes what reads an array.
        origin: Where it comes from.
        columns: Such as ``["X", "cell_type", "layers/counts", "obsm/X_pca", "raw/X"]``: names of ``obs`` are columns.
        spill: Folder for spill files, or ``"off"``.
        paths: Add the column ``obs_names``.

    Raises:
        MissingColumn: There is no such column.
        BadSchema: The matrix is stored by genes, or something is in a form that is no column.
        CorruptFile: Its parts contradict each other.
    """
    reader = _Reader(root, stored, origin.path)
    wanted = by_name(columns) or reader.every()
    made: dict[str, Column] = {}
    matrices: dict[str, int | None] = {}
    for name, place in wanted.items():
        if reader.is_of_cells(place):
            made[name] = reader.of_cells(place)
        else:
            found, matrices[name] = reader.matrix(name, place)
            made |= found
    if paths:
        made[NAMES] = reader.names()
    features = next(iter(matrices), None)
    dims, places = matrices.get(features or ""), reader.genes() if features else None
    return ArraysTable(origin, made, reader.rows(made), features=features, dims=dims, places=places, spill=spill)


def same_genes(tables: Sequence[Table]) -> list[Table]:
    """Return tables that are one, after a look at their genes.

    Raises:
        BadSchema: Some have other genes, or the same in another order.
    """
    found = [table for table in tables if isinstance(table, ArraysTable) and table.places is not None]
    for table in found[1:]:
        if table.places != found[0].places:
            raise BadSchema(
                f"{table!r} has other genes than {found[0]!r}, or in another order, so that their rows are no columns "
                "of one matrix: select the same var_names in each file, in one order"
            )
    return list(tables)


class _Reader:
    """Finds columns in a file.

    Args:
        root: Its root.
        stored: Makes what reads an array.
        path: The file, for errors.
    """

    def __init__(self, root: Any, stored: MakeStored, path: str) -> None:
        self._root, self._stored, self._path = root, stored, path
        self._cells = lookup(root, CELLS)
        if self._cells is None:
            raise CorruptFile(f"{path} has no {CELLS!r}, which AnnData has")
        self._fields = {} if is_group(self._cells) else field_columns(stored(self._cells), self._where(CELLS))

    def every(self) -> dict[str, str]:
        """Return the columns there are by default: the matrix if there is one, and what is known of cells."""
        found = {MATRIX: MATRIX} if lookup(self._root, MATRIX) is not None else {}
        index = self._index()
        names = [name for name in self._fields or self._order() if name != index]
        return found | {(f"{CELLS}/{name}" if name in found else name): f"{CELLS}/{name}" for name in names}

    def is_of_cells(self, place: str) -> bool:
        """Say whether a column is one of ``obs``."""
        folder, slash, _ = place.partition("/")
        return folder == CELLS if slash else lookup(self._root, place) is None or place == CELLS

    def of_cells(self, place: str) -> Column:
        """Return a column of ``obs``."""
        name = place.removeprefix(f"{CELLS}/")
        if name in self._fields:
            return self._old_categories(name)
        node = None if self._fields else lookup(self._cells, name)
        if node is None:
            there = list(self._fields) or self._order()
            raise MissingColumn(
                f"{self._path} has no column {name!r} of cells; {CELLS} has {listed(there)}{did_you_mean(name, there)}"
            )
        return self._element(node, f"{CELLS}/{name}")

    def names(self) -> Column:
        """Return what the cells are called."""
        index = self._index()
        return self.of_cells(f"{CELLS}/{index}")

    def genes(self) -> str | None:
        """Return a digest of the names of the genes, None where there are none."""
        genes = lookup(self._root, "var")
        if genes is None:
            return None
        if not is_group(genes):
            return digest(*(_text(row[0]) for row in self._values(genes).tolist()))
        names = lookup(genes, _text(genes.attrs.get("_index", "_index")))
        return None if names is None or is_group(names) else digest(*map(_text, self._values(names).tolist()))

    def rows(self, made: Mapping[str, Column]) -> int:
        """Return the number of cells, in which all columns agree."""
        lengths = {name: getattr(column, "sparse", column.stored[0]) for name, column in made.items()}
        counts = {name: one.rows if hasattr(one, "rows") else int(one.shape[0]) for name, one in lengths.items()}
        if len(set(counts.values())) > 1:
            raise CorruptFile(f"{self._path}: its parts are of different lengths: {counts}")
        return next(iter(counts.values()), 0)

    def matrix(self, name: str, place: str) -> tuple[dict[str, Column], int | None]:
        """Return the columns of a matrix, and its width where it is sparse."""
        node, where = lookup(self._root, place), self._where(place)
        if node is None:
            raise MissingColumn(f"{self._path} has no {place!r}; it has {listed(list(self._root.keys()))}")
        if not is_group(node):
            return {name: column_of(self._stored(node), where)}, None
        kind = node.attrs.get(KIND) or node.attrs.get("h5sparse_format")
        if kind not in _SPARSE:
            raise BadSchema(f"{where} is {kind or 'a group'!r}; a dense array or csr_matrix is a column")
        if not _SPARSE[kind]:
            raise BadSchema(
                f"{where} is stored by genes (CSC), so a cell lies all over it; store it by cells once: "
                f"adata.{place.replace('/', '.')} = adata.{place.replace('/', '.')}.tocsr(), then adata.write_h5ad(...)"
            )
        shape = node.attrs.get("shape", node.attrs.get("h5sparse_shape"))
        parts = [lookup(node, part) for part in ("indptr", "indices", "data")]
        if shape is None or len(shape) != 2 or any(part is None or is_group(part) for part in parts):
            raise CorruptFile(f"{where} lacks one of shape, indptr, indices and data, which a sparse matrix has")
        rows, width = map(int, shape)
        return sparse_columns(name, where, [self._stored(part) for part in parts], (rows, width)), width

    def _values(self, node: Any) -> Any:
        """Return all values of an array, after the checks of its reader."""
        self._stored(node)
        return node[()]

    def _where(self, place: str) -> str:
        return f"{self._path}, {place}"

    def _order(self) -> list[str]:
        said = self._cells.attrs.get("column-order")
        there = [name for name in self._cells.keys() if name != "__categories"]  # noqa: SIM118 - of Zarr
        return there if said is None else [name for name in map(_text, said) if name in there]

    def _index(self) -> str:
        return "index" if self._fields else _text(self._cells.attrs.get("_index", "_index"))

    def _element(self, node: Any, place: str) -> Column:
        """Return a column as AnnData encodes it: an array, categories, or values with a mask."""
        where = self._where(place)
        if not is_group(node):
            categories = node.attrs.get("categories")
            return self._array(node, where) if categories is None else self._referred(node, categories, where)
        parts = {part: lookup(node, part) for part in ("codes", "categories", "values", "mask")}
        if parts["codes"] is not None and parts["categories"] is not None:
            ordered = bool(node.attrs.get("ordered", False))
            return self._categories(parts["codes"], parts["categories"], where, ordered=ordered)
        if parts["values"] is not None and parts["mask"] is not None:
            return Nullable(self._array(parts["values"], where), self._stored(parts["mask"]))
        kind = node.attrs.get(KIND)
        raise BadSchema(f"{where} is encoded as {kind!r}, which is no column; leave it out: columns=[...]")

    def _array(self, node: Any, where: str) -> Column:
        stored = self._stored(node)
        return column_of(stored, where, str if stored.dtype.kind == "O" else None)

    def _categories(self, codes: Any, categories: Any, where: str, *, ordered: bool) -> Column:
        column = self._array(categories, where)
        found = categories[:]
        made = text_array(found, pa.string(), where) if column.kind == pa.string() else pa.array(np.asarray(found))
        return Categorical(self._stored(codes), made, where, ordered=ordered)

    def _referred(self, node: Any, categories: Any, where: str) -> Column:
        """Return categories as version 0.1.0 has them: beside the columns, and referred to."""
        known = lookup(self._cells, "__categories/" + node.name.rpartition("/")[2])
        named = isinstance(categories, str | bytes)  # not a reference; it may pass through a link
        found = known if known is not None else None if named else self._root[categories]
        if found is None or is_group(found):
            raise CorruptFile(f"{where} refers to categories that are not there")
        return self._categories(node, found, where, ordered=bool(found.attrs.get("ordered", False)))

    def _old_categories(self, name: str) -> Column:
        """Return a field of ``obs`` as it was a compound dataset, whose categories are in ``uns``."""
        column = self._fields[name]
        found = lookup(self._root, f"uns/{name}_categories")
        if found is None or is_group(found):
            return column
        values = np.atleast_1d(self._values(found))
        made = text_array(values, pa.string(), self._where(name)) if values.dtype.kind in "OSU" else pa.array(values)
        return Categorical(column.stored[0], made, self._where(name))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
