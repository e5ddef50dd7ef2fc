"""What the libraries of science have open: AnnData, datasets of h5py, arrays of Zarr."""

from operator import attrgetter
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.anndata import MATRIX
from corgipile.tables.arrays.sparse import as_values
from corgipile.tables.concat import DIMS_KEY, FEATURES_KEY
from corgipile.tables.hdf5.table import hdf5_table
from corgipile.tables.in_memory import arrays, frames, sparse
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import Table
from corgipile.tables.zarr import zarr_table

__all__ = ["of_science"]


def of_science(source: Any, library: str, spill: Spill = None) -> Table | None:
    """Make a table of what these libraries have open: of files as they lie on disk. None of what is not known.

    Raises:
        BadArgument: Its rows lie in no file that can be opened.

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
        return hdf5_table(source.file.filename, group, spill=spill)
    if library == "zarr" and hasattr(source, "path"):
        root = getattr(attrgetter("store")(source), "root", None)
        if root is None:
            raise BadArgument(f"the {type(source).__name__} of zarr lies in no local folder; array[:] is one of NumPy")
        return zarr_table(root, source.path or None, spill=spill)
    return None


def _of_anndata(cells: Any, spill: Spill) -> Table:
    """Return cells as rows: of a file if they are backed by one, else from memory."""
    if cells.isbacked:
        if cells.is_view:
            raise BadArgument("a view of a backed AnnData has no file of its own; open the file, and select its rows")
        return hdf5_table(cells.filename, spill=spill)
    matrix, said = cells.X, {FEATURES_KEY: MATRIX}
    if matrix is None:
        made, said = {}, {}
    elif sparse.is_sparse(matrix):
        found = sparse.of_sparse(matrix.astype(as_values(matrix.dtype), copy=False))
        said[DIMS_KEY] = str(matrix.shape[1])
        made = {f"{MATRIX}{name.removeprefix('features')}": found[name] for name in found.schema.names}
    else:
        made = {MATRIX: arrays.column_of(MATRIX, matrix)}
    if len(cells.obs.columns):
        known = frames.of_pandas(cells.obs.rename_axis(index=None))
        made |= {f"obs/{name}" if name in made else name: known[name] for name in known.schema.names}
    if not made:
        raise BadArgument("the AnnData has neither X nor columns of obs, so its rows hold nothing")
    return MemoryTable(pa.table(made).replace_schema_metadata(said or None))
