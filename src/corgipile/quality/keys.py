"""What is measured of a row: its class, or one or more numbers."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument

Floats = npt.NDArray[np.float64]

MOST_CLASSES = 1024
MOST_FLOAT_CLASSES = 64
CHUNK = 1 << 16


class Keys:
    """Give the measured values of rows in pieces, so that a one-hot matrix never fills memory.

    Classes are measured one-hot: booleans, words, integers of at most 1024 values, floats of at most 64 whole
    values. All else is numbers, one column or more.

    Args:
        values: One value a row, in any order; or ``[rows, columns]`` numbers.

    Example:
        >>> Keys(["cat", "dog", "cat"]).rows([0, 2]).tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values)
        if array.ndim not in (1, 2) or array.size == 0:
            raise BadArgument(f"values of shape {array.shape}: one value a row, or rows by columns, is wanted")
        self._codes = _codes(array) if array.ndim == 1 else None
        if self._codes is not None:
            share = np.bincount(self._codes) / len(array)
            self.mean: Floats = share
            self.variance: Floats = share * (1 - share)
        else:
            self._numbers = _numbers(array)
            self.mean = self._numbers.mean(axis=0)
            self.variance = self._numbers.var(axis=0)

    @classmethod
    def known(cls, values: npt.NDArray[Any], mean: Floats, variance: Floats, *, classes: bool) -> Self:
        """Take some rows of a table of which mean and variance of all are known: codes of classes, or numbers.

        Example:
            >>> some = Keys.known(np.array([0, 0, 1]), np.array([0.5, 0.5]), np.array([0.25, 0.25]), classes=True)
            >>> some.rows([2]).tolist(), len(some)
            ([[0.0, 1.0]], 3)
        """
        made = cls.__new__(cls)
        found = {"_codes": values} if classes else {"_codes": None, "_numbers": values.reshape(len(values), -1)}
        vars(made).update(found, mean=mean, variance=variance)
        return made

    @property
    def kinds(self) -> int:
        """Return the columns measured: classes, or columns of numbers."""
        return len(self.mean)

    def rows(self, which: Any) -> Floats:
        """Return float64[rows, kinds] of these rows: a slice or row numbers."""
        if self._codes is None:
            numbers: Floats = self._numbers[which]
            return numbers
        codes = self._codes[which]
        hot: Floats = np.zeros((len(codes), self.kinds))
        hot[np.arange(len(codes)), codes] = 1.0
        return hot

    def means(self, which: Any, rows: int) -> Floats:
        """Return the mean of each run of so many of these rows, float64[runs, kinds]: of classes they are counted.

        Example:
            >>> Keys(["cat", "dog", "cat", "cat"]).means(slice(None), 2).tolist()
            [[0.5, 0.5], [1.0, 0.0]]
        """
        if self._codes is None:
            means: Floats = self._numbers[which].reshape(-1, rows, self.kinds).mean(axis=1)
            return means
        codes = self._codes[which].reshape(-1, rows)
        at = codes + self.kinds * np.arange(len(codes))[:, None]
        return np.bincount(at.ravel(), minlength=len(codes) * self.kinds).reshape(-1, self.kinds) / rows

    def off(self, which: slice) -> float:
        """Return the squared distance of the mean of these rows from the mean of all.

        Example:
            >>> Keys(["cat", "dog", "cat", "cat"]).off(slice(2, 4))
            0.125
        """
        if self._codes is None or self.kinds <= MOST_CLASSES:
            return float(((self.means(which, which.stop - which.start)[0] - self.mean) ** 2).sum())
        classes, counts = np.unique(self._codes[which], return_counts=True)  # of most classes there are none
        shares = counts / counts.sum()
        return float((self.mean**2).sum() + (shares * (shares - 2 * self.mean[classes])).sum())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._numbers) if self._codes is None else len(self._codes)


def _codes(array: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the class of each row, None if rows are numbers."""
    kind = array.dtype.kind
    if kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        return None
    most = {"i": MOST_CLASSES, "u": MOST_CLASSES, "f": MOST_FLOAT_CLASSES}.get(kind, len(array))
    if kind not in "biufSUO":
        return None
    try:
        names, codes = np.unique(array, return_inverse=True)
    except TypeError:
        raise BadArgument(f"values of dtype {array.dtype} don't compare, so they are no classes") from None
    return codes.astype(np.int64) if len(names) <= most else None


def _numbers(array: npt.NDArray[Any]) -> Floats:
    try:
        numbers = array.astype(np.float64).reshape(len(array), -1)
    except (TypeError, ValueError):
        raise BadArgument(f"values of dtype {array.dtype} are neither numbers nor classes") from None
    if not np.isfinite(numbers).all():
        raise BadArgument("values hold NaN or infinity; finite numbers are wanted")
    return numbers
