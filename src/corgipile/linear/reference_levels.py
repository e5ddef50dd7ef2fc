"""Drops the reference level of each category: with all levels of a column there would be no standard errors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.features.encoders import Categories

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corgipile.linear.model import Model

__all__ = ["References", "references"]

FloatArray = npt.NDArray[np.float64]
SUM_TOLERANCE = 1e-10  # relative difference of equal sums


@dataclass(frozen=True)
class References:
    """An equivalent model with fewer coefficients.

    Attributes:
        kept: Places of the remaining coefficients.
        coef: All coefficients; those of removed levels are 0.
        left: Places of the removed levels.
    """

    kept: npt.NDArray[np.intp]
    coef: FloatArray
    left: tuple[int, ...] = ()

    def of(self, matrix: FloatArray) -> FloatArray:
        """Return the remaining rows and columns of a matrix."""
        return matrix[np.ix_(self.kept, self.kept)]


def references(model: "Model", coef: FloatArray, curves: FloatArray) -> References:
    """Remove the last level of each column with one level per row, and adjust the other coefficients.

    The dummies of such a column add up to the intercept's 1, or without an intercept to those of the first such
    column. Adding a constant to all levels and subtracting it from the intercept changes no score.

    Args:
        model: The model; with a penalty its levels are distinct and stay.
        coef: The coefficients, the intercept last.
        curves: The sum of second derivatives over rows, [coefficients, coefficients].
    """
    coef, left = coef.copy(), []
    base = [model.width] if len(coef) > model.width else []
    for levels in [] if model.params.get("l2") else _levels(model):
        if not base:
            base = levels
            continue
        both = float(curves[np.ix_(base, levels)].sum())
        sums = [float(curves[part, part].sum()) for part in (base, levels)]
        if both <= 0 or not np.allclose(sums, both, rtol=SUM_TOLERANCE, atol=0):
            continue
        last = max(at for at in levels if curves[at, at] > 0)
        coef[base] += coef[last]
        coef[levels] -= coef[last]
        left.append(last)
    return References(np.setdiff1d(np.arange(len(coef)), left), coef, tuple(left))


def _levels(model: "Model") -> list[list[int]]:
    """Return the places of the levels of each categorical column."""
    encoding, levels, at = model.encoding, [], 0
    encoders: Sequence[Any] = encoding.features if encoding is not None and model.names else ()
    for encoder in encoders:
        stop = at + len(encoder.names)
        if isinstance(encoder, Categories) and encoder.way != "ordinal":
            levels.append(list(range(at, stop)))
        at = stop
    return levels
