"""Standardised features: learnt from rows shifted and scaled, handed out as weights of the rows as they are."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadValue
from corgipile.linear.features import Features

__all__ = ["Learnt", "Moments", "Scaling"]

FloatArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Scaling:
    """What is taken from each feature and what it is then divided by; sparse features are only divided.

    Attributes:
        center: float64[features].
        scale: float64[features], positive.
    """

    center: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @classmethod
    def none(cls, width: int) -> Self:
        """Return the scaling that leaves features as they are."""
        return cls(np.zeros(width), np.ones(width))

    @property
    def idle(self) -> bool:
        """Say whether it leaves features as they are."""
        return not self.center.any() and bool((self.scale == 1).all())

    def setting(self, *, keep_flags: bool) -> bool | None:
        """Return the ``standardize`` that repeats it: None, the default, where flags were kept as they are."""
        return None if keep_flags and ((self.center == 0) & (self.scale == 1)).any() else True

    def dense(self, rows: FloatArray, visit: SlotArray) -> FloatArray:
        """Return the visited rows standardised, one after another."""
        scaled = rows[visit].reshape(len(visit), -1)
        self.apply(scaled)
        return scaled

    def apply(self, rows: FloatArray) -> None:
        """Standardise dense rows, [rows, features], in place."""
        _kernel.scaling_apply(self.center.astype(rows.dtype), (1 / self.scale).astype(rows.dtype), rows)

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
        return self._folded(coef, bias, back=False)

    def unfold(self, coef: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Do the opposite."""
        return self._folded(coef, bias, back=True)

    def _folded(self, coef: FloatArray, bias: FloatArray, *, back: bool) -> tuple[FloatArray, FloatArray]:
        weights, intercepts = coef.astype(np.float64, order="C"), bias.astype(np.float64)
        _kernel.scaling_fold(self.center, self.scale, weights, intercepts, coef.dtype.itemsize, back)
        return weights.astype(coef.dtype), intercepts.astype(bias.dtype)


class Learnt(NamedTuple):
    """A model as it was learnt: what going on to the same bits needs where the model itself says less.

    Attributes:
        scaling: What rows were standardised by; None: they were learnt from as they are.
        coef: Weights of such rows, the last ones where their mean predicts.
        intercept: Their intercepts.
        beside: What `SGD.beside` returned.
    """

    scaling: Scaling | None
    coef: FloatArray
    intercept: FloatArray
    beside: npt.NDArray[np.float64] | None = None


class Moments:
    """Mean and spread of each feature, from rows some at a time; rows that are not all finite are passed over.

    They depend on the rows and their order alone, not on how they come: every host gets the same bits.

    Args:
        inputs: Form, width and number type of the features.
    """

    def __init__(self, inputs: Features) -> None:
        self._inputs = inputs
        self._sums = _kernel.moments_new(inputs.width)

    def add(self, rows: FloatArray, visit: SlotArray) -> None:
        """Add dense rows by slot."""
        _kernel.moments_dense(self._sums, rows, visit)

    def add_sparse(self, indices: npt.NDArray[np.int32], values: FloatArray, rows: int) -> None:
        """Add the entries of sparse rows; what is not there is 0."""
        _kernel.moments_sparse(self._sums, indices, values, rows)

    def scaling(self, *, centred: bool, keep_flags: bool = False) -> Scaling:
        """Return the scaling that leaves mean 0 (where centred) and spread 1; constant features are left unscaled.

        With ``keep_flags`` features of 0 and 1 stay unscaled if there are enough rows to learn them. Ends the
        moments.

        Raises:
            BadValue: The spread of a feature is beyond what float64 can hold.

        Example:
            >>> moments = Moments(Features(("x",), sparse=False, width=2, dtype=np.dtype(np.float32), lists=True))
            >>> moments.add(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([0, 1], np.int32))
            >>> moments.scaling(centred=True)
            Scaling(center=array([2., 5.]), scale=array([1., 1.]))
        """
        inputs = self._inputs
        center, scale = np.empty(inputs.width), np.empty(inputs.width)
        how = inputs.sparse, centred, keep_flags, inputs.dtype.itemsize
        bad = _kernel.moments_scaling(self._sums, *how, center, scale)
        if bad >= 0:
            raise BadValue(f"feature {bad} has numbers so large that their spread is beyond what float64 holds")
        return Scaling(center, scale)
