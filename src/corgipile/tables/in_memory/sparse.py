"""SciPy sparse matrices as lists of indices and values."""

from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.tables.concat import DIMS_KEY

__all__ = ["is_sparse", "of_sparse"]


def is_sparse(rows: Any) -> bool:
    """Return whether an object is a SciPy sparse matrix or array."""
    return hasattr(rows, "tocsr")


def of_sparse(matrix: Any) -> pa.Table:
    """Return the table of a sparse matrix: ``features_k`` and ``features_v``, and the width in the schema.

    The matrix is not changed. Values of canonical CSR are not copied; indices are 32-bit.

    Raises:
        BadSchema: The matrix has too many columns, not two axes, or is not numeric.

    Example:
        >>> from scipy.sparse import csr_array
        >>> of_sparse(csr_array([[0, 2.5], [0, 0]])).to_pydict()
        {'features_k': [[1], []], 'features_v': [[2.5], []]}
    """
    if len(matrix.shape) != 2 or matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        raise BadSchema(f"a sparse matrix must be numeric with two axes, got {matrix.dtype} of {matrix.shape}")
    if matrix.shape[1] > 1 << 31:
        raise BadSchema(f"a sparse matrix must have at most 2^31 columns, got {matrix.shape[1]}")
    csr = matrix.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is matrix else csr
        csr.sum_duplicates()
    values = csr.data.view(np.uint8) if csr.data.dtype == np.bool_ else csr.data
    starts = pa.array(csr.indptr.astype(np.int64, copy=False))
    parts = (csr.indices.astype(np.int32, copy=False), values.astype(values.dtype.newbyteorder("="), copy=False))
    lists = [pa.LargeListArray.from_arrays(starts, pa.array(part)) for part in parts]
    rows = pa.table({"features_k": lists[0], "features_v": lists[1]})
    return rows.replace_schema_metadata({DIMS_KEY: str(csr.shape[1])})
