"""Standardised features: training on shifted and scaled rows, predicting with weights for unscaled rows."""

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
    """The shift and the positive divisor of each feature, float64[features]; sparse features are only divided."""

    center: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @classmethod
    def none(cls, width: int) -> Self:
        """Return the scaling that changes nothing."""
        return cls(np.zeros(width), np.ones(width))

    @property
    def idle(self) -> bool:
        """Return whether it changes nothing."""
        return not self.center.any() and bool((self.scale == 1).all())

    def setting(self, *, keep_flags: bool) -> bool | None:
        """Return the ``standardize`` that repeats it: None, the default, where flags were kept as they are."""
        return None if keep_flags and ((self.center == 0) & (self.scale == 1)).any() else True

    def dense(self, rows: FloatArray, visit: SlotArray) -> FloatArray:
        """Return the visited rows, standardised."""
        scaled = rows[visit].reshape(len(visit), -1)
        self.apply(scaled)
        return scaled

    def apply(self, rows: FloatArray) -> None:
        """Standardise dense rows, [rows, features], in place."""
        _kernel.scaling_apply(self.center.astype(rows.dtype), (1 / self.scale).astype(rows.dtype), rows)

    def sparse(self, indices: npt.NDArray[np.int32], values: FloatArray) -> None:
        """Divide the entries of sparse rows, in place; the kernel reports indices out of range."""
        values /= self.scale.astype(values.dtype)[np.clip(indices, 0, len(self.scale) - 1)]

    def fold(self, coef: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights for unscaled rows from weights for standardised rows.

        Example:
            >>> coef, bias = Scaling(np.array([3.0]), np.array([2.0])).fold(np.array([[4.0]]), np.array([1.0]))
            >>> coef.tolist(), bias.tolist()
            ([[2.0]], [-5.0])
        """
        return self._folded(coef, bias, back=False)

    def unfold(self, coef: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights for standardised rows from weights for unscaled rows."""
        return self._folded(coef, bias, back=True)

    def _folded(self, coef: FloatArray, bias: FloatArray, *, back: bool) -> tuple[FloatArray, FloatArray]:
        weights, intercepts = coef.astype(np.float64, order="C"), bias.astype(np.float64)
        _kernel.scaling_fold(self.center, self.scale, weights, intercepts, coef.dtype.itemsize, back)
        return weights.astype(coef.dtype), intercepts.astype(bias.dtype)


class Learnt(NamedTuple):
    """The model during training, which a warm start continues to the same bits.

    Attributes:
        scaling: The scaling of rows; None: unscaled.
        coef: Weights for such rows; with averaging the last ones, not their mean.
        intercept: Their intercepts.
        optimizer_state: The result of `SGD.optimizer_state`.
    """

    scaling: Scaling | None
    coef: FloatArray
    intercept: FloatArray
    optimizer_state: npt.NDArray[np.float64] | None = None


class Moments:
    """Mean and spread of each feature, accumulated over rows; rows with NaN or infinity are ignored.

    Results depend only on the rows and their order, not on the batches: every host gets the same bits.
    """

    def __init__(self, inputs: Features) -> None:
        self._inputs = inputs
        self._sums = _kernel.moments_new(inputs.width)

    def add(self, rows: FloatArray, visit: SlotArray) -> None:
        """Add dense rows by slot."""
        _kernel.moments_dense(self._sums, rows, visit)

    def add_sparse(self, indices: npt.NDArray[np.int32], values: FloatArray, rows: int) -> None:
        """Add the entries of sparse rows; absent entries are 0."""
        _kernel.moments_sparse(self._sums, indices, values, rows)

    def scaling(self, *, centred: bool, keep_flags: bool = False) -> Scaling:
        """Return the scaling to mean 0 (if centred) and spread 1; constant features stay unscaled.

        With ``keep_flags`` features of 0 and 1 stay unscaled if there are enough rows to learn them. The moments
        are consumed.

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
            raise BadValue(f"feature {bad} has numbers so large that their spread overflows float64")
        return Scaling(center, scale)
