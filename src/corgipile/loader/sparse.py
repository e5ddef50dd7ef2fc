"""Sparse rows that become dense batches when a batch is cut."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadSparseRow
from corgipile.loader.array_pool import ArrayPool
from corgipile.tables.spans import Rows
from corgipile.tables.table import type_code

__all__ = ["SparseRows"]


class SparseRows:
    """Sparse rows as indices and values.

    ``called`` names the columns in errors; ``spare`` lends dense arrays.

    Example:
        >>> rows = SparseRows(Rows(np.array([2, 0]), np.array([0, 1, 2])), Rows(np.array([5, 7]), np.array([0, 1, 2])),
        ...                   3, np.dtype("f4"), "x")
        >>> rows.dense().tolist()
        [[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]]
    """

    def __init__(
        self, indices: Rows, values: Rows, width: int, dtype: np.dtype[Any], title: str, pool: ArrayPool | None = None
    ) -> None:
        half = values.values.dtype == np.float16  # the kernel cannot convert float16
        self.values, self.dtype = values.values.astype(np.float32) if half else values.values, dtype
        self._indices, self._ends, self._width, self._title = indices, values.ends, width, title
        self._pool, self._first, self._count = pool or ArrayPool(0), 0, len(values)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: slice) -> Self:
        rows = object.__new__(type(self))
        rows.__dict__.update(self.__dict__)
        start, stop, _ = place.indices(len(self))
        rows._first, rows._count = self._first + start, max(0, stop - start)
        return rows

    def take(self, places: npt.NDArray[np.int64]) -> Self:
        """Return some of the rows."""
        places = places + self._first
        indices, values = self._indices.taken(places), Rows(self.values, self._ends).taken(places)
        return type(self)(indices, values, self._width, self.dtype, self._title, self._pool)

    def dense(self) -> npt.NDArray[Any]:
        """Return an array of (rows, width).

        Raises:
            BadSparseRow: An index is out of range, or a row's indices and values differ in number.
        """
        rows = self._pool.array(len(self), (self._width,), self.dtype)
        bad = _kernel.expand(
            rows, self._indices.values, self._indices.ends, self.values, self._ends, self._first, len(self),
            width=self._width, index_type=type_code(self._indices.values.dtype),
            value_type=type_code(self.values.dtype), wide=self.dtype == np.float64,
        )  # fmt: skip
        if bad >= 0:
            raise self._error(bad)
        return rows

    def _error(self, row: int) -> BadSparseRow:
        places = self._indices[row : row + 1].values
        if len(places) != self._ends[row + 1] - self._ends[row]:
            return BadSparseRow(f"{self._title}: a row must have as many indices as values")
        return BadSparseRow(
            f"{self._title} must have indices below {self._width}, got {places.min()} to {places.max()}"
        )
