"""Measured values of rows: a class, or one or more numbers."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument

Floats = npt.NDArray[np.float64]

MAX_CLASSES = 1024
MAX_FLOAT_CLASSES = 64
CHUNK = 1 << 16


class Keys:
    """Returns measured values piecewise, so that no full one-hot matrix is built.

    Classes are one-hot: booleans, text, integers of at most 1024 values, floats of at most 64 whole values. All other
    values are numbers, in one or more columns.

    Example:
        >>> Keys(["cat", "dog", "cat"]).rows([0, 2]).tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values)
        if array.ndim not in (1, 2) or array.size == 0:
            raise BadArgument(f"values must have shape (rows,) or (rows, columns), got {array.shape}")
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
        """Build from some rows of a table with known mean and variance: class codes, or numbers.

        Example:
            >>> some = Keys.known(np.array([0, 0, 1]), np.array([0.5, 0.5]), np.array([0.25, 0.25]), classes=True)
            >>> some.rows([2]).tolist(), len(some)
            ([[0.0, 1.0]], 3)
        """
        keys = cls.__new__(cls)
        fields = {"_codes": values} if classes else {"_codes": None, "_numbers": values.reshape(len(values), -1)}
        vars(keys).update(fields, mean=mean, variance=variance)
        return keys

    @property
    def kinds(self) -> int:
        """Return the number of classes, or of numeric columns."""
        return len(self.mean)

    def rows(self, which: Any) -> Floats:
        """Return the values of rows given by a slice or row numbers, float64[rows, kinds]."""
        if self._codes is None:
            numbers: Floats = self._numbers[which]
            return numbers
        codes = self._codes[which]
        hot: Floats = np.zeros((len(codes), self.kinds))
        hot[np.arange(len(codes)), codes] = 1.0
        return hot

    def means(self, which: Any, rows: int) -> Floats:
        """Return the mean of each run of ``rows`` rows, float64[runs, kinds].

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
        """Return the squared distance of the mean of some rows from the mean of all rows.

        Example:
            >>> Keys(["cat", "dog", "cat", "cat"]).off(slice(2, 4))
            0.125
        """
        if self._codes is None or self.kinds <= MAX_CLASSES:
            return float(((self.means(which, which.stop - which.start)[0] - self.mean) ** 2).sum())
        classes, counts = np.unique(self._codes[which], return_counts=True)  # most classes are absent
        shares = counts / counts.sum()
        return float((self.mean**2).sum() + (shares * (shares - 2 * self.mean[classes])).sum())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._numbers) if self._codes is None else len(self._codes)


def _codes(array: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the class of each row; None if rows are numbers."""
    kind = array.dtype.kind
    if kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        return None
    max_classes = {"i": MAX_CLASSES, "u": MAX_CLASSES, "f": MAX_FLOAT_CLASSES}.get(kind, len(array))
    if kind not in "biufSUO":
        return None
    try:
        names, codes = np.unique(array, return_inverse=True)
    except TypeError:
        raise BadArgument(f"values must be comparable to be classes, got dtype {array.dtype}") from None
    return codes.astype(np.int64) if len(names) <= max_classes else None


def _numbers(array: npt.NDArray[Any]) -> Floats:
    try:
        numbers = array.astype(np.float64).reshape(len(array), -1)
    except (TypeError, ValueError):
        raise BadArgument(f"values must be numbers or classes, got dtype {array.dtype}") from None
    if not np.isfinite(numbers).all():
        raise BadArgument("values must be finite, got NaN or infinity")
    return numbers
