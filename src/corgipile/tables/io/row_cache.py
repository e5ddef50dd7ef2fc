"""A cache of values that are read row by row, for small columns."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.tables.layout import IntArray

__all__ = ["RowCache"]

MAX_CACHED_BYTES = 1 << 20  # bytes of all rows' values


class RowCache:
    """Caches values read row by row if those of all rows take at most 1 MiB.

    Rows that span many pages are read one by one. Without the cache each takes three reads: offsets, label and bytes.

    Example:
        >>> cache = RowCache(3, ())
        >>> cache.take(np.array([2, 0]), lambda rows, at: rows * 10).tolist()
        [20, 0]
        >>> cache.take(np.array([0, 2]), lambda rows, at: 1 / 0).tolist()
        [0, 20]
    """

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: npt.DTypeLike = np.int64) -> None:
        kind = np.dtype(dtype)
        fits = rows * kind.itemsize * int(np.prod(shape, dtype=np.int64)) <= MAX_CACHED_BYTES
        self._rows: npt.NDArray[Any] | None = np.empty((rows, *shape), kind) if fits else None
        self._known = np.zeros(rows if fits else 0, np.bool_)

    def take(self, rows: IntArray, read: Callable[[IntArray, Any], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the values of rows; ``read`` gets the missing rows and their positions in ``rows``."""
        if self._rows is None:
            return read(rows, slice(None))
        at = np.flatnonzero(~self._known[rows])
        if len(at):
            self._rows[rows[at]] = read(rows[at], at)
            self._known[rows[at]] = True
        return self._rows[rows]
