"""Arrays that are used again once nobody holds them: fresh memory costs more than what is written there."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayPool", "Make"]

Make = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]  # an array of a shape and type, with anything in it


def _references(arrays: list[npt.NDArray[Any]]) -> int:
    """Count the references of a list's last array as `ArrayPool` does in its loop: it depends on the interpreter."""
    count = 0
    for array in arrays:
        count = sys.getrefcount(array)
    return count


FREE_REFERENCES = _references([np.empty(0)])  # of an array that nobody but its list holds


class ArrayPool:
    """Gives arrays of some rows of one width.

    Args:
        most: How many are kept.
        make: Makes one of a shape and type.

    Example:
        >>> spare = ArrayPool(2)
        >>> held = spare.array(3, (2,), np.dtype("f4"))
        >>> held.shape, spare.array(3, (2,), np.dtype("f4")) is held
        ((3, 2), False)
    """

    def __init__(self, most: int, make: Make = np.empty) -> None:
        self._most, self._make, self._arrays = most, make, list[npt.NDArray[Any]]()

    def array(self, rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array of these rows that nobody else holds; what is in it is left from before."""
        for array in self._arrays:
            if sys.getrefcount(array) <= FREE_REFERENCES and len(array) >= rows:
                return array if len(array) == rows else array[:rows]
        made = self._make((rows, *shape), dtype)
        if len(self._arrays) < self._most:
            self._arrays.append(made)
            return made
        short = next((i for i, array in enumerate(self._arrays) if len(array) < rows), None)
        if short is not None:  # of the end of an epoch: it is whoever's who holds it
            self._arrays[short] = made
        return made
