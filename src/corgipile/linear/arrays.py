"""Wraps arrays and sparse matrices in memory so that the kernel visits them in place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadSchema
from corgipile.linear.features import Features
from corgipile.linear.sparse import Sparse

__all__ = ["ArrayRows", "rows_of_array"]

VISITED_ROWS = 1 << 14  # row numbers per visit
MAX_ROWS = 1 << 31  # int32 row numbers


@dataclass(frozen=True)
class ArrayRows:
    """Rows in memory."""

    inputs: Features
    rows: npt.NDArray[Any] | Sparse
    count: int

    def filled(self, fill: Sequence[float | None]) -> "ArrayRows":
        """Return the rows with missing values replaced, by one number per feature; None leaves NaN."""
        if not isinstance(self.rows, np.ndarray) or self.rows.shape[1] != len(fill):
            return self
        values = np.array([np.nan if number is None else number for number in fill], self.rows.dtype)
        return replace(self, rows=np.where(np.isnan(self.rows), values, self.rows))

    def visits(self) -> Iterator[npt.NDArray[np.int32]]:
        """Yield all row numbers, in runs."""
        for start in range(0, self.count, VISITED_ROWS):
            yield np.arange(start, min(start + VISITED_ROWS, self.count), dtype=np.int32)


def rows_of_array(rows: Any, dtype: npt.DTypeLike) -> ArrayRows | None:
    """Wrap an array or a sparse matrix; return None for anything else.

    Example:
        >>> rows_of_array(np.eye(3), np.float32).inputs.width
        3
    """
    real = np.dtype(dtype)
    if hasattr(rows, "tocsr"):
        return _sparse(rows, real)
    if not isinstance(rows, np.ndarray):
        return None
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise BadSchema(f"rows must be an array of numbers [rows, features], got shape {rows.shape} of {rows.dtype}")
    if len(rows) >= MAX_ROWS:
        raise BadArgument(f"an array must have at most 2^31 - 1 rows, got {len(rows)}; predict it in parts")
    inputs = Features(("features",), sparse=False, width=rows.shape[1], dtype=real, lists=True)
    return ArrayRows(inputs, np.ascontiguousarray(rows, real), len(rows))


def _sparse(matrix: Any, real: np.dtype[Any]) -> ArrayRows:
    csr = matrix.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    indices, values = csr.indices.astype(np.int32, copy=False), csr.data.astype(real, copy=False)
    starts = csr.indptr.astype(np.int64)
    sparse = Sparse(
        (indices.ctypes.data + starts[:-1] * 4).astype(np.uint64),
        (values.ctypes.data + starts[:-1] * real.itemsize).astype(np.uint64),
        np.diff(starts),
        owners=(indices, values),
    )
    inputs = Features(("features_k", "features_v"), sparse=True, width=csr.shape[1], dtype=real, lists=True)
    return ArrayRows(inputs, sparse, csr.shape[0])
