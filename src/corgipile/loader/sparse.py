"""Sparse rows as dense batches: made of their indices and values when a batch is cut."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadSparseRow
from corgipile.loader.array_pool import ArrayPool
from corgipile.tables.arrow.spans import Rows
from corgipile.tables.table import type_code

__all__ = ["SparseRows"]


class SparseRows:
    """Rows of which only some numbers are not 0.

    Args:
        indices: The places of these numbers, of each row.
        values: The numbers.
        width: The length of a row.
        dtype: The type of the dense numbers, float32 or float64.
        called: What errors call the columns.
        spare: Where dense rows are put that nobody holds any more.

    Example:
        >>> rows = SparseRows(Rows(np.array([2, 0]), np.array([0, 1, 2])), Rows(np.array([5, 7]), np.array([0, 1, 2])),
        ...                   3, np.dtype("f4"), "x")
        >>> rows.dense().tolist()
        [[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]]
    """

    def __init__(
        self, indices: Rows, values: Rows, width: int, dtype: np.dtype[Any], called: str, spare: ArrayPool | None = None
    ) -> None:
        half = values.values.dtype == np.float16  # of which the kernel knows the bits only
        self.values, self.dtype = values.values.astype(np.float32) if half else values.values, dtype
        self._indices, self._ends, self._width, self._called = indices, values.ends, width, called
        self._spare, self._first, self._count = spare or ArrayPool(0), 0, len(values)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: slice) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        start, stop, _ = place.indices(len(self))
        made._first, made._count = self._first + start, max(0, stop - start)
        return made

    def take(self, places: npt.NDArray[np.int64]) -> Self:
        """Return some of the rows."""
        places = places + self._first
        indices, values = self._indices.taken(places), Rows(self.values, self._ends).taken(places)
        return type(self)(indices, values, self._width, self.dtype, self._called, self._spare)

    def dense(self) -> npt.NDArray[Any]:
        """Return an array of (rows, width).

        Raises:
            BadSparseRow: An index is none of a row, or a row has not as many indices as values.
        """
        made = self._spare.array(len(self), (self._width,), self.dtype)
        bad = _kernel.expand(
            made, self._indices.values, self._indices.ends, self.values, self._ends, self._first, len(self),
            width=self._width, index_type=type_code(self._indices.values.dtype),
            value_type=type_code(self.values.dtype), wide=self.dtype == np.float64,
        )  # fmt: skip
        if bad >= 0:
            raise self._wrong(bad)
        return made

    def _wrong(self, row: int) -> BadSparseRow:
        places = self._indices[row : row + 1].values
        if len(places) != self._ends[row + 1] - self._ends[row]:
            return BadSparseRow(f"{self._called}: a row has not as many indices as values")
        return BadSparseRow(
            f"{self._called} has indices from {places.min()} to {places.max()}; rows have {self._width} places"
        )
