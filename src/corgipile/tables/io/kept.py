"""What was read of single rows, kept where that of all rows is little."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.tables.table import IntArray

__all__ = ["Kept"]

MOST = 1 << 20  # bytes kept


class Kept:
    """Keeps what is read of rows, where that of all of them is no more than a mebibyte.

    Rows of many pages are read one by one: each costs a call for its bytes, and without this one for its place and one
    for its label.

    Args:
        rows: Rows of the table.
        shape: Of what is read of a row.
        dtype: Its type.

    Example:
        >>> kept = Kept(3, ())
        >>> kept.take(np.array([2, 0]), lambda rows, at: rows * 10).tolist()
        [20, 0]
        >>> kept.take(np.array([0, 2]), lambda rows, at: 1 / 0).tolist()
        [0, 20]
    """

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: npt.DTypeLike = np.int64) -> None:
        kind = np.dtype(dtype)
        few = rows * kind.itemsize * int(np.prod(shape, dtype=np.int64)) <= MOST
        self._values: npt.NDArray[Any] | None = np.empty((rows, *shape), kind) if few else None
        self._known = np.zeros(rows if few else 0, np.bool_)

    def take(self, rows: IntArray, read: Callable[[IntArray, Any], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return what there is of rows; ``read`` is called with those not known, and where they are in ``rows``."""
        if self._values is None:
            return read(rows, slice(None))
        at = np.flatnonzero(~self._known[rows])
        if len(at):
            self._values[rows[at]] = read(rows[at], at)
            self._known[rows[at]] = True
        return self._values[rows]
