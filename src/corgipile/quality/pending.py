"""Buffer of rows of batches that are summed together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument

Column = npt.NDArray[Any]


class Pending:
    """Stores the fields of consecutive batches as copies, since loaders reuse their arrays.

    Example:
        >>> pending = Pending(8)
        >>> pending.add([np.array([1, 2])], 2)
        >>> pending.add([np.array([0.5])], 1)
        >>> pending.rows, pending.sizes, pending.take(2), pending.rows
        (3, [2, 1], [array([1., 2.])], 1)
    """

    def __init__(self, capacity: int) -> None:
        self.rows, self.sizes = 0, list[int]()
        self._capacity = capacity
        self._columns: list[Column] = []

    def add(self, columns: Sequence[Column], rows: int) -> None:
        """Add the fields of one batch."""
        start, stop = self.rows, self.rows + rows
        if stop > self._capacity or not self._columns:
            self._grow(columns, stop)
        for at, values in enumerate(columns):
            if values.dtype != self._columns[at].dtype:
                self._convert(at, values.dtype)
            self._columns[at][start:stop] = values
        self.rows = stop
        self.sizes.append(rows)

    def take(self, rows: int) -> list[Column]:
        """Remove the first rows and return their fields, valid until the next `add`."""
        columns, remainder = [column[:rows] for column in self._columns], self.rows - rows
        self.rows, self.sizes = remainder, [remainder] * (remainder > 0)
        if remainder:
            columns = [column.copy() for column in columns]
            for column in self._columns:
                column[:remainder] = column[rows : rows + remainder].copy()
        return columns

    def _grow(self, columns: Sequence[Column], rows: int) -> None:
        self._capacity = max(self._capacity, 2 * rows if self._columns else rows)
        before = self._columns or columns
        columns = [np.empty((self._capacity, *values.shape[1:]), values.dtype) for values in before]
        for column, values in zip(columns, self._columns, strict=False):
            column[: self.rows] = values[: self.rows]
        self._columns = columns

    def _convert(self, at: int, dtype: np.dtype[Any]) -> None:
        """Convert a column to a type that holds its old and new values."""
        old_type = self._columns[at].dtype
        if (old_type.kind in "biuf") != (dtype.kind in "biuf"):
            raise BadArgument("a field must be numbers or text in all batches, got both")
        self._columns[at] = self._columns[at].astype(np.result_type(old_type, dtype))
