"""A pool of reusable arrays: allocating fresh memory costs more than filling it."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayPool", "Make"]

Make = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]  # allocates an uninitialised array


def _references(arrays: list[npt.NDArray[Any]]) -> int:
    """Count the references to a list's last array as `ArrayPool.array` does; the number depends on the interpreter."""
    count = 0
    for array in arrays:
        count = sys.getrefcount(array)
    return count


FREE_REFERENCES = _references([np.empty(0)])  # references to an array that only its list holds


class ArrayPool:
    """Lends arrays with a fixed row shape and reuses them once no caller refers to them.

    Example:
        >>> pool = ArrayPool(2)
        >>> lent = pool.array(3, (2,), np.dtype("f4"))
        >>> lent.shape, pool.array(3, (2,), np.dtype("f4")) is lent
        ((3, 2), False)
    """

    __slots__ = ("_arrays", "_limit", "_make")

    def __init__(self, limit: int, make: Make = np.empty) -> None:
        self._limit, self._make = limit, make
        self._arrays: list[npt.NDArray[Any]] = []

    def array(self, rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array of this many rows that no other caller holds; its values are undefined."""
        for array in self._arrays:
            if sys.getrefcount(array) <= FREE_REFERENCES and len(array) >= rows:
                return array if len(array) == rows else array[:rows]
        array = self._make((rows, *shape), dtype)
        if len(self._arrays) < self._limit:
            self._arrays.append(array)
            return array
        short = next((i for i, array in enumerate(self._arrays) if len(array) < rows), None)
        if short is not None:  # allocated for the short end of an epoch; its caller may still hold it
            self._arrays[short] = array
        return array
