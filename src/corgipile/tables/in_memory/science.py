"""Tables of open AnnData, h5py and Zarr objects."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.tables.arrays.sparse import as_values
from corgipile.tables.concat import DIMS_KEY, FEATURES_KEY
from corgipile.tables.in_memory import arrays, frames, sparse
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.tables.formats import anndata
    from corgipile.tables.formats.hdf5 import table as hdf5
    from corgipile.tables.formats.zarr import table as zarr
else:
    anndata = lazy("corgipile.tables.formats.anndata")
    hdf5, zarr = lazy("corgipile.tables.formats.hdf5.table"), lazy("corgipile.tables.formats.zarr.table")

__all__ = ["of_science"]


def of_science(source: Any, library: str, spill: Spill = None) -> Table | None:
    """Return the table of an open object, read from its file where it has one; None for unknown types.

    Raises:
        BadArgument: The object's rows are in no file that can be opened.

    Example:
        >>> import anndata, numpy as np, pandas as pd
        >>> cells = anndata.AnnData(np.eye(2), obs=pd.DataFrame({"kind": ["a", "b"]}, index=["0", "1"]))
        >>> of_science(cells, "anndata").read(0, 1).to_pydict()
        {'X': [[1.0, 0.0]], 'kind': ['a']}
    """
    if library == "anndata" and hasattr(source, "obs"):
        return _of_anndata(source, spill)
    if library == "h5py" and hasattr(source, "file"):
        if source.file.mode != "r":
            source.file.flush()
        group = None if source.name == "/" else source.name
        return hdf5.hdf5_table(source.file.filename, group, spill=spill)
    if library == "zarr" and hasattr(source, "path"):
        root = getattr(attrgetter("store")(source), "root", None)
        if root is None:
            raise BadArgument(f"the {type(source).__name__} of zarr must be in a local folder; read it with array[:]")
        return zarr.zarr_table(root, source.path or None, spill=spill)
    return None


def _of_anndata(cells: Any, spill: Spill) -> Table:
    """Return the table of cells, from their file if they are backed by one, else from memory."""
    if cells.isbacked:
        if cells.is_view:
            raise BadArgument("a view of a backed AnnData cannot be opened; open its file, and select rows")
        return hdf5.hdf5_table(cells.filename, spill=spill)
    matrix, metadata = cells.X, {FEATURES_KEY: anndata.MATRIX}
    if matrix is None:
        cells_columns, metadata = {}, {}
    elif sparse.is_sparse(matrix):
        columns = sparse.of_sparse(matrix.astype(as_values(matrix.dtype), copy=False))
        metadata[DIMS_KEY] = str(matrix.shape[1])
        names = columns.schema.names
        cells_columns = {f"{anndata.MATRIX}{name.removeprefix('features')}": columns[name] for name in names}
    else:
        cells_columns = {anndata.MATRIX: arrays.column_of(anndata.MATRIX, matrix)}
    if len(cells.obs.columns):
        obs = frames.of_pandas(cells.obs.rename_axis(index=None))
        cells_columns |= {f"obs/{name}" if name in cells_columns else name: obs[name] for name in obs.schema.names}
    if not cells_columns:
        raise BadArgument("the AnnData must have X or columns of obs, got neither")
    return MemoryTable(pa.table(cells_columns).replace_schema_metadata(metadata or None))
