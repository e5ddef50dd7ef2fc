"""Levels of categories that others are told from: with all of a column's there would be no standard errors."""

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
ALIKE = 1e-10  # share by which sums of the same numbers differ at most


@dataclass(frozen=True)
class References:
    """The coefficients of a model that says the same with fewer of them.

    Attributes:
        kept: Places of the coefficients that are left.
        coef: All coefficients, those of the levels that are left out 0.
        left: Places of these levels.
    """

    kept: npt.NDArray[np.intp]
    coef: FloatArray
    left: tuple[int, ...] = ()

    def of(self, matrix: FloatArray) -> FloatArray:
        """Return the rows and columns of a matrix that are left."""
        return matrix[np.ix_(self.kept, self.kept)]


def references(model: "Model", coef: FloatArray, curves: FloatArray) -> References:
    """Leave out the last level of each column of which every row has one level; they are in other coefficients.

    The numbers of such a column add up to the intercept's 1, or where there is none to those of the first such column:
    what is added to the coefficients of all its levels, and taken from the intercept, changes no score.

    Args:
        model: The model; with a penalty its levels are told apart, and stay.
        coef: Its coefficients, the intercept's last.
        curves: The sum of second derivatives over the rows, [coefficients, coefficients].
    """
    coef, left = coef.copy(), []
    base = [model.width] if len(coef) > model.width else []
    for levels in [] if model.params.get("l2") else _levels(model):
        if not base:
            base = levels
            continue
        both = float(curves[np.ix_(base, levels)].sum())
        each = [float(curves[some, some].sum()) for some in (base, levels)]
        if both <= 0 or not np.allclose(each, both, rtol=ALIKE, atol=0):
            continue
        last = max(at for at in levels if curves[at, at] > 0)
        coef[base] += coef[last]
        coef[levels] -= coef[last]
        left.append(last)
    return References(np.setdiff1d(np.arange(len(coef)), left), coef, tuple(left))


def _levels(model: "Model") -> list[list[int]]:
    """Return the places of the levels of each column that has them."""
    encoding, found, at = model.encoding, [], 0
    each: Sequence[Any] = encoding.features if encoding is not None and model.names else ()
    for one in each:
        stop = at + len(one.names)
        if isinstance(one, Categories) and one.way != "ordinal":
            found.append(list(range(at, stop)))
        at = stop
    return found
