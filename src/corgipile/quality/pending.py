"""Rows of batches that wait to be added up together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument

Column = npt.NDArray[Any]


class Pending:
    """Hold fields of some batches one after the other; copies, for loaders use their arrays again.

    Args:
        room: Rows that there is room for at first.

    Example:
        >>> pending = Pending(8)
        >>> pending.add([np.array([1, 2])], 2)
        >>> pending.add([np.array([0.5])], 1)
        >>> pending.rows, pending.sizes, pending.taken(2), pending.rows
        (3, [2, 1], [array([1., 2.])], 1)
    """

    def __init__(self, room: int) -> None:
        self.rows, self.sizes = 0, list[int]()
        self._room = room
        self._columns: list[Column] = []

    def add(self, found: Sequence[Column], rows: int) -> None:
        """Add the fields of one batch."""
        start, stop = self.rows, self.rows + rows
        if stop > self._room or not self._columns:
            self._grow(found, stop)
        for at, values in enumerate(found):
            if values.dtype != self._columns[at].dtype:
                self._convert(at, values.dtype)
            self._columns[at][start:stop] = values
        self.rows = stop
        self.sizes.append(rows)

    def taken(self, rows: int) -> list[Column]:
        """Return the fields of the first rows, for use until the next `add`; those behind wait on."""
        found, rest = [column[:rows] for column in self._columns], self.rows - rows
        self.rows, self.sizes = rest, [rest] * (rest > 0)
        if rest:
            found = [column.copy() for column in found]
            for column in self._columns:
                column[:rest] = column[rows : rows + rest].copy()
        return found

    def _grow(self, found: Sequence[Column], rows: int) -> None:
        self._room = max(self._room, 2 * rows if self._columns else rows)
        before = self._columns or found
        columns = [np.empty((self._room, *values.shape[1:]), values.dtype) for values in before]
        for column, values in zip(columns, self._columns, strict=False):
            column[: self.rows] = values[: self.rows]
        self._columns = columns

    def _convert(self, at: int, dtype: np.dtype[Any]) -> None:
        """Make a column of a type that holds what is there and what comes."""
        mine = self._columns[at].dtype
        if (mine.kind in "biuf") != (dtype.kind in "biuf"):
            raise BadArgument("a field of the batches is numbers at first and text later; one of them is right")
        self._columns[at] = self._columns[at].astype(np.result_type(mine, dtype))
