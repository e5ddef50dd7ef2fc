"""Sparse rows as dense batches: made of their indices and values when a batch is cut."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadSparseRow
from corgipile.tables.arrow.spans import Rows

__all__ = ["SparseRows"]


class SparseRows:
    """Rows of which only some numbers are not 0.

    Args:
        indices: The places of these numbers, of each row.
        values: The numbers.
        width: The length of a row.
        dtype: The type of the dense numbers.
        called: What errors call the columns.

    Example:
        >>> rows = SparseRows(Rows(np.array([2, 0]), np.array([0, 1, 2])), Rows(np.array([5, 7]), np.array([0, 1, 2])),
        ...                   3, np.dtype("f4"), "x")
        >>> rows.dense().tolist()
        [[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]]
    """

    def __init__(self, indices: Rows, values: Rows, width: int, dtype: np.dtype[Any], called: str) -> None:
        self.values, self.dtype = values.values, dtype
        self._indices, self._rows, self._width, self._called = indices, values, width, called

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: slice) -> Self:
        return type(self)(self._indices[place], self._rows[place], self._width, self.dtype, self._called)

    def dense(self) -> npt.NDArray[Any]:
        """Return an array of (rows, width).

        Raises:
            BadSparseRow: An index is none of a row, or a row has not as many indices as values.
        """
        lengths, indices = self._rows.lengths, self._indices.values
        if not np.array_equal(lengths, self._indices.lengths):
            raise BadSparseRow(f"{self._called}: a row has not as many indices as values")
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self._width):
            raise BadSparseRow(
                f"{self._called} has indices from {indices.min()} to {indices.max()}; rows have {self._width} places"
            )
        made = np.zeros((len(lengths), self._width), self.dtype)
        made.reshape(-1)[np.repeat(np.arange(len(lengths)) * self._width, lengths) + indices] = self.values
        return made
