"""Newton's method: sums over rows from the kernel, and the step that they give."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.linear.features import Features
from corgipile.linear.scaling import Scaling
from corgipile.linear.sgd import SGD, Figures, Step
from corgipile.resident import cores
from corgipile.sizes import OnBad

__all__ = [
    "GRADIENT",
    "GRAM",
    "TRIANGLE",
    "Factor",
    "Newton",
    "Sums",
    "factor_gram",
    "factor_rows",
    "hessian",
    "shrink",
]

Doubles = npt.NDArray[np.float64]
GRADIENT, GRAM, TRIANGLE = range(3)  # cp_newton_matrix of the kernel
MIN_THREAD_ROWS = 1 << 12  # fewer rows are summed by one thread
CONSTANT = 1e-20  # curvature that is rounding, relative to the largest
SWEEPS, MAX_ROUNDS = 16, 10_000  # passes of coordinate descent between checks; checks
ALIASED, SLACK = 1e-12, 1e-11  # relative pivot of a weight that others determine; rounding of slopes


class Totals(NamedTuple):
    """Sums over rows by weight; ``wrong`` counts those whose score is not strictly on the side of their label."""

    rows: int
    skipped: int
    wrong: int
    loss: float
    correct: float
    squares: float
    labels: float
    square_labels: float
    weight: float


@dataclass(frozen=True)
class Sums:
    """The sums of a pass, or of a part of its rows.

    Attributes:
        totals: Of losses and labels.
        gradient: Of the losses, [outputs, width].
        matrices: Their second derivatives by pair of outputs, [pairs, width, width]; or a triangle.
        what: The kind of these.
        numbers: Whether labels are numbers.
    """

    totals: Totals
    gradient: Doubles
    matrices: Doubles
    what: int
    numbers: bool

    @property
    def figures(self) -> Figures:
        """Return the figures."""
        all_ = self.totals
        weight = all_.weight or 1
        spread, score = all_.square_labels - all_.labels**2 / weight, all_.correct / weight
        if self.numbers:
            score = 1 - all_.squares / spread if spread > 0 else float(all_.squares == 0)
        return Figures(all_.rows, all_.loss / weight, score, all_.weight)

    def plus(self, other: "Sums") -> "Sums":
        """Return the sums of these rows and others; a triangle is replaced."""
        matrices, totals = self.matrices, Totals(*map(add, self.totals, other.totals))
        if self.what == TRIANGLE:
            _kernel.newton_rotate(matrices[0], other.matrices[0], 0.0)
        elif self.what == GRAM:
            matrices = matrices + other.matrices
        return Sums(totals, self.gradient + other.gradient, matrices, self.what, self.numbers)


class Newton(SGD):
    """The kernel's sums over rows for a linear model; weights are float64, whatever the features are."""

    def __init__(
        self,
        kind: str,
        inputs: Features,
        classes: npt.NDArray[Any],
        *,
        intercept: bool = True,
        on_bad: OnBad = "raise",
        class_weight: Doubles | None = None,
        isa: int = -1,
    ) -> None:
        super().__init__(kind, inputs, classes, intercept=intercept, on_bad=on_bad)
        self.width, self._rows = inputs.width + intercept, 0
        self._sums = _kernel.newton_new(
            self.loss.code,
            self.loss.parameter,
            np.ascontiguousarray(codes_of(classes)),
            number_bytes=inputs.dtype.itemsize,
            sparse=inputs.sparse,
            features=inputs.width,
            outputs=self.outputs,
            intercept=intercept,
            skip=on_bad == "skip",
            class_weight=class_weight,
            isa=isa,
        )
        self._lanes, self._what = range(_kernel.newton_lanes(self._sums)), GRAM
        self._map: Callable[..., Any] = map

    @contextmanager
    def summing(
        self, what: int, weights: Doubles, space: Scaling, *, start: bool, blend: float = 0.0, width: float = 1.0
    ) -> Iterator[None]:
        """Begin a pass at weights for standardised features, the intercept last; its rows are added inside."""
        self._rows, self._what = 0, what
        settings = np.ascontiguousarray(weights), space.center, 1 / space.scale
        _kernel.newton_begin(self._sums, what, start, blend, width, *settings)
        with ThreadPoolExecutor(min(cores(), len(self._lanes))) as pool:
            self._map = pool.map
            yield

    def learn(self, *parts: Any) -> None:
        """Add the rows of a `Step`; raise as `SGD.learn`."""
        step = Step(*parts)
        visit = step.visit
        features, (y, y_type), (w, w_type) = step.for_kernel()

        def add_to(lane: int) -> tuple[int, int]:
            return _kernel.newton_add(self._sums, lane, features, y, y_type, w, w_type, visit, self._rows)

        faults = (self._map if len(visit) >= MIN_THREAD_ROWS else map)(add_to, self._lanes)
        if bad := [(place, status) for status, place in faults if status]:
            place, status = min(bad)
            raise self._refused_in(step, status, place)
        self._rows += len(visit)

    def sums(self) -> Sums:
        """End a pass and return its sums."""
        pairs, size = self.outputs, self.width + (self._what == TRIANGLE)
        if self.loss.name == "softmax":
            pairs = pairs * (pairs + 1) // 2
        gradient, matrices = np.empty((self.outputs, self.width)), np.empty((pairs, size, size))
        totals = Totals(*_kernel.newton_end(self._sums, gradient, None if self._what == GRADIENT else matrices))
        self.skipped = totals.skipped
        if self._what == GRAM:  # the kernel fills the upper triangles
            matrices = np.triu(matrices) + np.triu(matrices, 1).transpose(0, 2, 1)
        return Sums(totals, gradient, matrices, self._what, self.loss.numbers)


@dataclass(frozen=True)
class Factor:
    """The triangle R of second derivatives R'R, and its smallest pivot relative to its column.

    It is ``unclear`` if rounding may hide or feign that weights determine others.
    """

    triangle: Doubles
    least: float
    unclear: bool = False

    @property
    def aliased(self) -> npt.NDArray[np.bool_]:
        """Return which weights the others determine: their steps are 0."""
        return np.asarray(np.diag(self.triangle) == 0)

    def solve(self, right: Doubles) -> Doubles:
        """Return the solution of R'R x = right."""
        x = right.ravel().copy()
        _kernel.newton_solve(self.triangle, x, 1)
        return x.reshape(right.shape)


def hessian(matrices: Doubles, outputs: int, penalty: Doubles, *, shifts: bool) -> Doubles:
    """Return the second derivatives of all weights, [outputs * width] squared, with those of a penalty, [width].

    Softmax scores do not change if all outputs move alike. With ``shifts``, curvature in that direction makes the sum
    of the steps 0.
    """
    width = len(penalty)
    whole = np.zeros((outputs, width, outputs, width))
    if len(matrices) > outputs:
        at = np.triu_indices(outputs)
        for k, other, matrix in zip(*at, matrices, strict=True):
            whole[k, :, other] = whole[other, :, k] = matrix
        if shifts:
            whole += (np.einsum("kikj->ij", whole) / outputs)[None, :, None, :]
    else:
        for own, matrix in enumerate(matrices):
            whole[own, :, own] = matrix
    square = whole.reshape(outputs * width, outputs * width)
    diagonal = np.diag(square)
    square[np.diag_indices(len(square))] = np.where(diagonal > CONSTANT * diagonal.max(), diagonal, 0.0) + np.tile(
        penalty, outputs
    )
    return square


def factor_gram(square: Doubles, tolerance: float) -> Factor:
    """Factor second derivatives, in place; pivots up to the tolerance count as 0."""
    varying = np.diag(square) > 0
    least = _kernel.newton_factor(square, tolerance)
    return Factor(square, least, bool((varying & (np.diag(square) == 0)).any()))


def shrink(square: Doubles, gradient: Doubles, weights: Doubles, l1: Doubles) -> tuple[Doubles, float]:
    """Minimise a quadratic model plus ``l1`` times the absolute weights by coordinate descent.

    When the weights that are 0 stay the same, the others are solved for, which ends the descent.

    Args:
        square: The second derivatives of the model.
        gradient: Its gradient at the weights, [outputs, width].
        weights: Where it holds.
        l1: By weight, [width].

    Returns:
        The step, and the decrease.
    """
    slope, at, signs = gradient.ravel().copy(), weights.ravel().copy(), None
    limit, diagonal = np.tile(l1, len(weights)), np.diag(square)
    for _ in range(MAX_ROUNDS):
        moved = _kernel.newton_shrink(square, slope, at, limit, SWEEPS)
        before, signs = signs, np.sign(at) * (limit > 0)
        if not moved:
            break
        if before is None or (before != signs).any():
            continue
        on = np.flatnonzero((signs != 0) | (limit == 0))
        factor, exact = factor_gram(square[np.ix_(on, on)], ALIASED), at.copy()
        exact[on] -= factor.solve(slope[on] + limit[on] * signs[on])
        other, most = slope + square[:, on] @ (exact - at)[on], limit + SLACK * (limit + diagonal * abs(exact)).max()
        if (np.sign(exact) * (limit > 0) == signs).all() and (np.abs(other) <= most)[signs == 0].all():
            at = exact
            break
    step = at - weights.ravel()
    model = gradient.ravel() + square @ step / 2
    rise = float(model @ step + limit @ (np.abs(at) - np.abs(weights.ravel())))
    return step.reshape(weights.shape), abs(rise)


def factor_rows(triangle: Doubles, penalty: Doubles, weights: Doubles, tolerance: float) -> tuple[Factor, Doubles]:
    """Return the factor of a triangle of rows with a right-hand side, and the step; see `factor_gram`."""
    root = np.sqrt(penalty)
    extra = np.hstack([np.diag(root), (-root * weights)[:, None]])[root > 0]
    least = _kernel.newton_rotate(triangle, np.ascontiguousarray(extra), tolerance)
    step, whole = triangle[:-1, -1].copy(), np.ascontiguousarray(triangle[:-1, :-1])
    _kernel.newton_solve(whole, step, 0)
    return Factor(whole, least), step
