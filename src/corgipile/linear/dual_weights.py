"""How far apart what rows count for may be where dual variables are learnt."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadValue
from corgipile.linear.classes import codes_of
from corgipile.linear.sgd import Locate

__all__ = ["Spread"]

# A dual variable is at most C times what its row counts for, and the weights are sums of rows times their variables.
# Such a sum has 53 binary digits: of a row beside one that counts for 2^40 times as much 13 are left, as many as a
# duality gap of 1e-4 needs.
RATIO = 2.0**40
# The variable of a row of margin m is near C exp(-m): 1e-308 is the end of normal numbers, and squares end at 1e308.
LEAST, MOST = 2.0**-512, 2.0**512
LIMIT = (
    f"solver='dual' takes up to {RATIO:.2g} times as much, for float64 loses the rest: give weights nearer to each "
    "other, or 0 to rows that are to be left out"
)
Floats = npt.NDArray[np.float64]


class Spread:
    """Minds what rows count for: the least and the most so far.

    Args:
        bound: C, 1 / (l2 rows).
        l2: The penalty, for errors.
        classes: Class values, ascending.
        class_weight: What a row of each class counts for; None: 1.

    Raises:
        BadArgument: Classes count for so different numbers, or the penalty is so far from 1, that float64 does not do.

    Example:
        >>> Spread(1e300, 1e-303, np.array([0, 1]))
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: l2=1e-303 makes C = 1 / (l2 rows) 1e+300; solver='dual' takes 7.5e-155 to 1.3e+154
    """

    def __init__(self, bound: float, l2: float, classes: npt.NDArray[Any], class_weight: Floats | None = None) -> None:
        if not LEAST <= bound <= MOST:
            raise BadArgument(
                f"l2={l2:g} makes C = 1 / (l2 rows) {bound:.3g}; solver='dual' takes {LEAST:.2g} to {MOST:.2g}"
            )
        self._bound, self._classes, self._of_class = bound, codes_of(classes), class_weight
        self._least, self._most = np.inf, 0.0
        if class_weight is not None and (class_weight > 0).any():
            self._check_classes(classes, class_weight)

    def _check_classes(self, classes: npt.NDArray[Any], weights: Floats) -> None:
        heavy, light = int(np.argmax(weights)), int(np.argmin(np.where(weights > 0, weights, np.inf)))
        told = {at: f"rows of class {classes[at].item()!r} count for {weights[at]:g}" for at in (light, heavy)}
        if weights[heavy] / RATIO > weights[light]:
            raise BadArgument(f"class_weight: {told[heavy]}, {told[light]}; {LIMIT}")
        for at, which in told.items():
            if self._beyond(weights[at]):
                raise BadArgument(f"class_weight: {which}; {self._range()}")

    def _beyond(self, count: float) -> bool:
        return not LEAST <= self._bound * count <= MOST

    def _range(self) -> str:
        low, high = LEAST / self._bound, min(MOST / self._bound, float(np.finfo(np.float64).max))
        return f"solver='dual' takes 0, or {low:.2g} to {high:.2g} with this l2"

    def add(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any], locate: Locate) -> None:
        """Take in what rows count for; those that cannot be learnt from are passed over.

        Raises:
            BadValue: One counts for so much more or less than another that float64 does not do.
        """
        counts = weights.astype(np.float64)
        if self._of_class is not None:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            counts = counts * self._of_class[at]
        good = np.isfinite(counts) & (counts > 0)
        if not good.any():
            return
        light, heavy = int(np.argmin(np.where(good, counts, np.inf))), int(np.argmax(np.where(good, counts, 0.0)))
        for one in (light, heavy):
            if self._beyond(counts[one]):
                raise BadValue(f"{locate(one)} counts for {counts[one]:g}; {self._range()}")
        if max(self._most, counts[heavy]) / RATIO > min(self._least, counts[light]):
            one, other = (light, self._most) if counts[light] < self._most / RATIO else (heavy, self._least)
            other = counts[light] if one == heavy and counts[light] < other else other
            raise BadValue(f"{locate(one)} counts for {counts[one]:g}, another row for {other:g}; {LIMIT}")
        self._least, self._most = min(self._least, counts[light]), max(self._most, counts[heavy])
