"""Standardised features: learnt from rows shifted and scaled, handed out as weights of the rows as they are."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Learnt", "Moments", "Scaling"]

FloatArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]
NOISE = 8  # roundings: a column whose values differ by less of their size is constant


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
        self.mean = np.zeros(width)
        self._squares = np.zeros(width)

    def add(self, rows: FloatArray) -> None:
        """Add rows [rows, features] by the method of Chan, Golub and LeVeque."""
        rows = rows.reshape(len(rows), -1).astype(np.float64)
        rows = rows[np.isfinite(rows).all(axis=1)]
        if not len(rows):
            return
        mean, before = rows.mean(axis=0), self.rows
        self.rows += len(rows)
        shift = mean - self.mean
        self._squares += ((rows - mean) ** 2).sum(axis=0) + shift**2 * (before * len(rows) / self.rows)
        self.mean += shift * (len(rows) / self.rows)

    def add_sparse(self, indices: npt.NDArray[np.int32], values: FloatArray, rows: int) -> None:
        """Add the entries of sparse rows; what is not there is 0."""
        width = len(self.mean)
        good = (indices >= 0) & (indices < width) & np.isfinite(values)
        indices, real = indices[good], values[good].astype(np.float64)
        before, self.rows = self.rows, self.rows + rows
        if not self.rows:
            return
        sums = np.bincount(indices, real, width)
        raw = self._squares + before * self.mean**2 + np.bincount(indices, real**2, width)
        self.mean = (self.mean * before + sums) / self.rows
        self._squares = np.maximum(raw - self.rows * self.mean**2, 0)

    @property
    def spread(self) -> npt.NDArray[np.float64]:
        """Return the standard deviations."""
        return np.sqrt(self._squares / max(self.rows, 1))

    def scaling(self, dtype: np.dtype[Any], *, centred: bool) -> Scaling:
        """Return the scaling that leaves mean 0 (where centred) and spread 1; constant features are left unscaled.

        Example:
            >>> moments = Moments(2)
            >>> moments.add(np.array([[1.0, 5.0], [3.0, 5.0]]))
            >>> moments.scaling(np.dtype(np.float32), centred=True)
            Scaling(center=array([2., 5.]), scale=array([1., 1.]))
        """
        spread = self.spread
        constant = spread <= NOISE * np.finfo(dtype).eps * np.abs(self.mean)
        center = self.mean if centred else np.zeros_like(self.mean)
        return Scaling(center.copy(), np.where(constant, 1.0, spread))
