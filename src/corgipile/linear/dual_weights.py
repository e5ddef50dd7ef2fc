"""Largest ratio of sample weights that the dual solver supports."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadValue
from corgipile.linear.classes import codes_of
from corgipile.linear.row_names import Locate

__all__ = ["Spread"]

# A dual variable is at most C times its row's weight, and the model is a sum of rows times their variables.
# Such a sum has 53 binary digits: beside a row of weight 2^40 a row of weight 1 has 13 left, as many as a duality
# gap of 1e-4 needs.
MAX_WEIGHT_RATIO = 2.0**40
# The variable of a row of margin m is near C exp(-m): 1e-308 is the end of normal numbers, and squares end at 1e308.
MIN_C, MAX_C = 2.0**-512, 2.0**512
RATIO_LIMIT = (
    f"solver='dual' supports a ratio up to {MAX_WEIGHT_RATIO:.2g}: give weights nearer to each other, or 0 to rows "
    "to leave out"
)
Floats = npt.NDArray[np.float64]


class Spread:
    """Tracks the smallest and the largest weight, and refuses ratios that float64 cannot hold.

    Args:
        bound: C, 1 / (l2 rows).
        l2: The penalty, for errors.
        classes: Class values, ascending.
        class_weight: The weight of each class; None: 1.

    Raises:
        BadArgument: Class weights or the penalty exceed the range of float64.

    Example:
        >>> Spread(1e300, 1e-303, np.array([0, 1]))
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: l2=1e-303 gives C = 1 / (l2 rows) = 1e+300; C must be 7.5e-155 to 1.3e+154
    """

    def __init__(self, bound: float, l2: float, classes: npt.NDArray[Any], class_weight: Floats | None = None) -> None:
        if not MIN_C <= bound <= MAX_C:
            raise BadArgument(f"l2={l2:g} gives C = 1 / (l2 rows) = {bound:.3g}; C must be {MIN_C:.2g} to {MAX_C:.2g}")
        self._bound, self._classes, self._class_weight = bound, codes_of(classes), class_weight
        self._least, self._most = np.inf, 0.0
        if class_weight is not None and (class_weight > 0).any():
            self._check_classes(classes, class_weight)

    def _check_classes(self, classes: npt.NDArray[Any], weights: Floats) -> None:
        heavy, light = int(np.argmax(weights)), int(np.argmin(np.where(weights > 0, weights, np.inf)))
        described = {at: f"rows of class {classes[at].item()!r} have weight {weights[at]:g}" for at in (light, heavy)}
        if weights[heavy] / MAX_WEIGHT_RATIO > weights[light]:
            raise BadArgument(f"class_weight: {described[heavy]}, {described[light]}; {RATIO_LIMIT}")
        for at, description in described.items():
            if self._out_of_range(weights[at]):
                raise BadArgument(f"class_weight: {description}; {self._range()}")

    def _out_of_range(self, count: float) -> bool:
        return not MIN_C <= self._bound * count <= MAX_C

    def _range(self) -> str:
        low, high = MIN_C / self._bound, min(MAX_C / self._bound, float(np.finfo(np.float64).max))
        return f"with this l2 solver='dual' needs 0, or {low:.2g} to {high:.2g}"

    def add(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any], locate: Locate) -> None:
        """Take in row weights; rows that cannot be trained on are ignored.

        Raises:
            BadValue: A weight differs from another by more than float64 supports.
        """
        counts = weights.astype(np.float64)
        if self._class_weight is not None:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            counts = counts * self._class_weight[at]
        good = np.isfinite(counts) & (counts > 0)
        if not good.any():
            return
        light, heavy = int(np.argmin(np.where(good, counts, np.inf))), int(np.argmax(np.where(good, counts, 0.0)))
        for row in (light, heavy):
            if self._out_of_range(counts[row]):
                raise BadValue(f"{locate(row)} has weight {counts[row]:g}; {self._range()}")
        if max(self._most, counts[heavy]) / MAX_WEIGHT_RATIO > min(self._least, counts[light]):
            row, other = (light, self._most) if counts[light] < self._most / MAX_WEIGHT_RATIO else (heavy, self._least)
            other = counts[light] if row == heavy and counts[light] < other else other
            raise BadValue(f"{locate(row)} has weight {counts[row]:g}, another row {other:g}; {RATIO_LIMIT}")
        self._least, self._most = min(self._least, counts[light]), max(self._most, counts[heavy])
