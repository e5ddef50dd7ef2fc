"""Newton's method: sums over rows from the kernel, and the step that they give."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.linear.features import Features
from corgipile.linear.row_errors import Locate
from corgipile.linear.scaling import Scaling
from corgipile.linear.sgd import SGD, Figures, FloatArray, SlotArray, Step
from corgipile.linear.sparse import Sparse
from corgipile.resident import cores
from corgipile.sizes import OnBad

__all__ = ["GRADIENT", "GRAM", "TRIANGLE", "Factor", "Newton", "Sums", "factor_gram", "factor_rows"]

Doubles = npt.NDArray[np.float64]
GRADIENT, GRAM, TRIANGLE = range(3)  # cp_newton_matrix of the kernel
MIN_THREAD_ROWS = 1 << 12  # fewer rows are summed by one thread
CONSTANT = 1e-20  # curvature that is rounding, relative to the largest


class Sums(NamedTuple):
    """The sums of a pass.

    Attributes:
        figures: Its figures.
        loss: The weighted sum of losses.
        squares: The weighted sum of squared errors of regressions.
        wrong: Rows whose score is not strictly on the side of their label.
        gradient: Of that sum, [outputs, width].
        matrices: Its second derivatives by pair of outputs, [pairs, width, width]; or a triangle.
    """

    figures: Figures
    loss: float
    squares: float
    wrong: int
    gradient: Doubles
    matrices: Doubles


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

    def learn(
        self,
        rows: FloatArray | Sparse,
        labels: FloatArray,
        visit: SlotArray,
        locate: Locate,
        weights: FloatArray | None = None,
        numbers: npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Add the rows of a `Step`; raise as `SGD.learn`."""
        step = Step(rows, labels, visit, locate, weights, numbers)
        features, (y, y_type), (w, w_type) = step.for_kernel()

        def add(lane: int) -> tuple[int, int]:
            return _kernel.newton_add(self._sums, lane, features, y, y_type, w, w_type, visit, self._rows)

        faults = (self._map if len(visit) >= MIN_THREAD_ROWS else map)(add, self._lanes)
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
        totals = _kernel.newton_end(self._sums, gradient, None if self._what == GRADIENT else matrices)
        rows, self.skipped, wrong, loss, correct, squares, total, square, weight = totals
        spread = square - total * total / (weight or 1)
        score = correct / (weight or 1)
        if self.loss.numbers:
            score = 1 - squares / spread if spread > 0 else float(squares == 0)
        if self._what == GRAM:  # the kernel fills the upper triangles
            matrices = np.triu(matrices) + np.triu(matrices, 1).transpose(0, 2, 1)
        return Sums(Figures(rows, loss / (weight or 1), score, weight), loss, squares, wrong, gradient, matrices)


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


def factor_gram(matrices: Doubles, outputs: int, penalty: Doubles, tolerance: float) -> Factor:
    """Factor second derivatives with those of a penalty, [width]; pivots up to the tolerance count as 0.

    Softmax scores do not change if all outputs move alike. Curvature in that direction makes the sum of the steps 0.
    """
    width = len(penalty)
    whole = np.zeros((outputs, width, outputs, width))
    if len(matrices) > outputs:
        at = np.triu_indices(outputs)
        for k, other, matrix in zip(*at, matrices, strict=True):
            whole[k, :, other] = whole[other, :, k] = matrix
        whole += (np.einsum("kikj->ij", whole) / outputs)[None, :, None, :]
    else:
        for own, matrix in enumerate(matrices):
            whole[own, :, own] = matrix
    triangle = whole.reshape(outputs * width, outputs * width)
    diagonal = np.diag(triangle)
    triangle[np.diag_indices(len(triangle))] = np.where(diagonal > CONSTANT * diagonal.max(), diagonal, 0.0) + np.tile(
        penalty, outputs
    )
    varying = np.diag(triangle) > 0
    least = _kernel.newton_factor(triangle, tolerance)
    return Factor(triangle, least, bool((varying & (np.diag(triangle) == 0)).any()))


def factor_rows(triangle: Doubles, penalty: Doubles, weights: Doubles, tolerance: float) -> tuple[Factor, Doubles]:
    """Return the factor of a triangle of rows with a right-hand side, and the step; see `factor_gram`."""
    root = np.sqrt(penalty)
    extra = np.hstack([np.diag(root), (-root * weights)[:, None]])[root > 0]
    least = _kernel.newton_rotate(triangle, np.ascontiguousarray(extra), tolerance)
    step, whole = triangle[:-1, -1].copy(), np.ascontiguousarray(triangle[:-1, :-1])
    _kernel.newton_solve(whole, step, 0)
    return Factor(whole, least), step
