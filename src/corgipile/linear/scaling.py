"""Standardised features: learnt from rows shifted and scaled, handed out as weights of the rows as they are."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadValue

__all__ = ["Learnt", "Moments", "Scaling"]

FloatArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]
NOISE = 8  # roundings: a column whose values differ by less of their size is constant


def _least(dtype: np.dtype[Any]) -> float:
    """Return the spread below which a column is constant: dividing by it would leave what the type can hold."""
    numbers = np.finfo(dtype)
    return float(numbers.tiny / numbers.eps)


@dataclass(frozen=True)
class Scaling:
    """What is taken from each feature and what it is then divided by; sparse features are only divided.

    Attributes:
        center: float64[features].
        scale: float64[features], positive.
    """

    center: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    def dense(self, rows: FloatArray, visit: SlotArray) -> FloatArray:
        """Return the visited rows standardised, one after another."""
        scaled = rows[visit].reshape(len(visit), -1)
        with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are the kernel's to see
            scaled -= self.center.astype(scaled.dtype)
            scaled *= (1 / self.scale).astype(scaled.dtype)
        return scaled

    def sparse(self, indices: npt.NDArray[np.int32], values: FloatArray) -> None:
        """Divide the entries of sparse rows, in place; indices out of range are the kernel's to see."""
        values /= self.scale.astype(values.dtype)[np.clip(indices, 0, len(self.scale) - 1)]

    def fold(self, coef: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Turn weights of standardised rows into weights of the rows as they are.

        Example:
            >>> coef, bias = Scaling(np.array([3.0]), np.array([2.0])).fold(np.array([[4.0]]), np.array([1.0]))
            >>> coef.tolist(), bias.tolist()
            ([[2.0]], [-5.0])
        """
        folded = coef.astype(np.float64) / self.scale
        return folded.astype(coef.dtype), (bias - folded @ self.center).astype(bias.dtype)

    def unfold(self, coef: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Do the opposite."""
        whole = coef.astype(np.float64)
        return (whole * self.scale).astype(coef.dtype), (bias + whole @ self.center).astype(bias.dtype)


class Learnt(NamedTuple):
    """A model as it was learnt from standardised rows: what going on to the same bits needs."""

    scaling: Scaling
    coef: FloatArray
    intercept: FloatArray


class Moments:
    """Mean and spread of each feature, from rows some at a time; rows that are not all finite are passed over."""

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._origin = np.zeros(width)  # a row: rows differ little from it, and a constant feature not at all
        self._mean = np.zeros(width)  # of the differences
        self._squares = np.zeros(width)

    def add(self, rows: FloatArray) -> None:
        """Add rows [rows, features] by the method of Chan, Golub and LeVeque."""
        rows = rows.reshape(len(rows), -1).astype(np.float64)
        finite = np.isfinite(rows).all(axis=1)
        rows = rows if finite.all() else rows[finite]
        if not len(rows):
            return
        if not self.rows:
            self._origin = rows[0].copy()
        before, self.rows = self.rows, self.rows + len(rows)
        with np.errstate(over="ignore", invalid="ignore"):  # a spread that is not finite is the caller's to see
            rows -= self._origin
            mean = rows.mean(axis=0)
            shift = mean - self._mean
            rows -= mean
            rows *= rows
            self._squares += rows.sum(axis=0) + shift**2 * (before * len(rows) / self.rows)
            self._mean += shift * (len(rows) / self.rows)

    def add_sparse(self, indices: npt.NDArray[np.int32], values: FloatArray, rows: int) -> None:
        """Add the entries of sparse rows; what is not there is 0."""
        width = len(self.mean)
        good = (indices >= 0) & (indices < width) & np.isfinite(values)
        indices, real = indices[good], values[good].astype(np.float64)
        before, self.rows = self.rows, self.rows + rows
        if not self.rows:
            return
        sums = np.bincount(indices, real, width)
        with np.errstate(over="ignore", invalid="ignore"):  # as above
            raw = self._squares + before * self._mean**2 + np.bincount(indices, real**2, width)
            self._mean = (self._mean * before + sums) / self.rows
            self._squares = np.maximum(raw - self.rows * self._mean**2, 0)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """Return the means."""
        return self._origin + self._mean

    @property
    def spread(self) -> npt.NDArray[np.float64]:
        """Return the standard deviations."""
        return np.sqrt(self._squares / max(self.rows, 1))

    def scaling(self, dtype: np.dtype[Any], *, centred: bool) -> Scaling:
        """Return the scaling that leaves mean 0 (where centred) and spread 1; constant features are left unscaled.

        Raises:
            BadValue: The spread of a feature is beyond what float64 can hold.

        Example:
            >>> moments = Moments(2)
            >>> moments.add(np.array([[1.0, 5.0], [3.0, 5.0]]))
            >>> moments.scaling(np.dtype(np.float32), centred=True)
            Scaling(center=array([2., 5.]), scale=array([1., 1.]))
        """
        spread, mean = self.spread, self.mean
        wide = np.flatnonzero(~np.isfinite(spread))
        if wide.size:
            raise BadValue(f"feature {wide[0]} has numbers so large that their spread is beyond what float64 holds")
        constant = spread <= np.maximum(NOISE * np.finfo(dtype).eps * np.abs(mean), _least(dtype))
        return Scaling(mean if centred else np.zeros_like(mean), np.where(constant, 1.0, spread))
