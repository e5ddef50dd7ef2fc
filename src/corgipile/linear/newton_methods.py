"""Steps of Newton's method: how the sums of a pass move the weights, by the shape of the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.linear.newton import (
    GRADIENT,
    GRAM,
    TRIANGLE,
    Doubles,
    Factor,
    Sums,
    factor_gram,
    factor_rows,
    hessian,
    shrink,
)
from corgipile.linear.sgd import Figures

__all__ = ["TOLERANCE", "DampedNewton", "Goal", "LeastSquares", "Method", "method_of"]

SEPARABLE = ("logistic", "softmax", "ovr_logistic")
TOLERANCE = 1e-12  # expected decrease of the objective, relative to it, at which training ends
SMALL_STEP = 1e-11  # relative size of a step at which it ends too
WELL = 1e-2  # relative pivot of least squares above which one pass gives 12 digits
REFINED = 1e-8  # relative size of a correction of least squares whose own error is within float64's digits
ILL = 1e-10  # relative pivot of least squares below which rows are rotated instead of multiplied
DEPENDENT = 1e-12  # relative pivot of a weight that others determine
DEPENDENT_ROWS = 64  # the same for rotated rows, in units of their precision
MIN_LENGTH = 2.0**-20  # shortest step, relative to the full one
ROUNDING = 1e-13  # of the objective
UNBOUNDED_STEP = 0.1  # a last step that changes scores by this much shows weights that grow for ever
WIDTH_FACTOR, STABLE_FACTOR = 10.0, 1e4  # by which the smoothed kink of quantile narrows; if rows in it stay the same
PROBE, MIN_WIDTH = 1e-3, 1e-9  # share by which it narrows to find the direction; smallest share of the first width
BLEND_FACTOR, MIN_BLEND = 10, 1e-3  # by which the share of bounding parabolas falls from pass to pass


@dataclass(frozen=True)
class Goal:
    """The objective of a model, and when its training ends.

    Attributes:
        loss: The name of the loss.
        outputs: Scores of a row.
        l2: Second derivatives of the penalty, by weight; the intercept, which is last, has none.
        l1: Slopes of the penalty, by weight.
        tolerance: Expected relative decrease at which training ends; None: the default.
        precision: The relative rounding of features.
        warm: Whether training continues a model.
        names: Returns the names of chosen weights.
    """

    loss: str
    outputs: int
    l2: Doubles
    l1: Doubles
    tolerance: float | None
    precision: float
    warm: bool
    names: Callable[[npt.NDArray[np.bool_]], str]

    @property
    def penalised(self) -> bool:
        """Return whether there is a penalty."""
        return bool(self.l2.any() or self.l1.any())

    def value(self, sums: Sums, weights: Doubles) -> float:
        """Return the objective at weights, by their sums."""
        penalty = (self.l2 * weights**2).sum() / 2 + (self.l1 * np.abs(weights)).sum()
        return float(sums.totals.loss / sums.figures.rows + penalty)


class Point(NamedTuple):
    """Weights whose objective is known, and the step from them."""

    weights: Doubles
    objective: float
    step: Doubles


class Method:
    """One model's weights, [outputs, width], on their way to the optimum.

    Attributes:
        weights: For standardised features, the intercept last.
        what, blend, width: What the next pass sums, see kernel/newton/state.h and loss.h.
        figures, objective, skipped: Results of the last pass.
        passes: Their number.
        gap: Expected decrease of the objective by the last step, relative to it.
        done: Whether training has ended.
        notes: Warnings to the user.
    """

    def __init__(self, goal: Goal, weights: Doubles) -> None:
        self.goal, self.weights = goal, weights
        self.what, self.blend, self.width = GRAM, 0.0, 1.0
        self.figures, self.objective, self.skipped = Figures(0, 0.0, 0.0, 0.0), 0.0, 0
        self.passes, self.gap, self.done = 0, np.inf, False
        self.notes: list[str] = []
        self._best: Point | None = None
        self._factor: Factor | None = None
        self._whole = np.zeros((0, 0))

    def advance(self, sums: Sums) -> None:
        """Take the step that the sums of a pass at the weights give."""
        self.figures, self.skipped = sums.figures, sums.totals.skipped
        if not sums.figures.weight:  # a group without rows
            self.done = True
            return
        self.objective = self.goal.value(sums, self.weights)
        self.passes += 1
        self._advance(sums)

    def note_outcome(self) -> None:
        """End where training ran out of passes."""

    def _advance(self, sums: Sums) -> None:
        raise NotImplementedError

    def _gradient(self, sums: Sums) -> Doubles:
        """Return the gradient of the sum of losses and squared weights."""
        return sums.gradient + self.goal.l2 * sums.figures.rows * self.weights

    def _set_factor(self, sums: Sums, tolerance: float) -> Factor:
        """Factor the second derivatives of a pass."""
        goal = self.goal
        shifts = goal.outputs > 1 and not goal.l1.any()
        self._whole = hessian(sums.matrices, goal.outputs, goal.l2 * sums.figures.rows, shifts=shifts)
        self._factor = factor_gram(self._whole.copy() if goal.l1.any() else self._whole, tolerance)
        return self._factor

    def _solve(self, gradient: Doubles, rows: int) -> Doubles:
        """Return the step to the optimum of the quadratic model, and note the decrease that it promises."""
        assert self._factor is not None  # noqa: S101 - for the type checker: the first pass sets it
        goal = self.goal
        if not goal.l1.any():
            step = -self._factor.solve(gradient)
            decrease = abs(float((gradient * step).sum())) / 2
        else:
            step, decrease = shrink(self._whole, gradient, self.weights, goal.l1 * rows)
            if goal.loss == "softmax":  # scores do not change if all intercepts move alike
                step -= np.where((goal.l1 == 0) & (goal.l2 == 0), step.mean(axis=0), 0.0)
        self._note_gap(decrease, rows)
        return step

    def _note_gap(self, decrease: float, rows: int) -> None:
        self.gap = decrease / rows / (self.objective or 1)

    def _finish(self, text: str) -> None:
        self.done = True
        self.notes.append(f"{text}; use l2= above 0")

    def _note_dependent(self, factor: Factor) -> None:
        """Warn of features that others determine: their coefficients stay as they were, at first 0."""
        aliased = np.asarray(factor.aliased.reshape(self.goal.outputs, -1).any(axis=0))
        if aliased.any() and not self.goal.l1.any():
            many = bool(aliased.sum() > 1)
            self.notes.append(
                f"collinear column{'s' * many} {self.goal.names(aliased)}: constant, or determined by columns before; "
                f"{'their coefficients are' if many else 'its coefficient is'} 0"
            )


class LeastSquares(Method):
    """Least squares: one pass, and further ones to correct its rounding if features depend on each other.

    If nearly so, a pass of Householder reflections of the rows replaces the first solution.
    """

    def __init__(self, goal: Goal, weights: Doubles) -> None:
        super().__init__(goal, weights)
        self._ill = False  # too near to dependent for corrections

    def _advance(self, sums: Sums) -> None:
        step = self._step(sums)
        if step is None:
            return
        last, before = self._best, self.weights
        self._best = Point(before, self.objective, step)
        size = float(np.abs(step).max() / (np.abs(before).max() or 1))
        if last is None:
            one = not self.goal.l1.any() and self._factor is not None and self._factor.least >= WELL
            self.done = self.what == GRAM and one
            self.what = GRAM if self.done else GRADIENT
        else:
            stuck = self._ill or (self.passes > 2 and np.abs(step).max() > np.abs(last.step).max() / 2)
            self.done = bool(stuck or size <= REFINED or self.gap <= (self.goal.tolerance or 0))
            if stuck:
                return
        self.weights = before + step
        if self.done and self.what == GRAM:  # the one pass did not see its solution
            self._set_results(sums, self.weights - before)

    def _step(self, sums: Sums) -> Doubles | None:
        """Return the step by the sums; None if it needs another pass first."""
        goal, rows, gradient = self.goal, sums.figures.rows, self._gradient(sums)
        if self.what == TRIANGLE:
            precision = DEPENDENT_ROWS * goal.precision
            self._factor, step = factor_rows(sums.matrices[0].copy(), goal.l2 * rows, self.weights[0], precision)
            self._note_dependent(self._factor)
            self.what, self._ill = GRADIENT, self._factor.least**2 < ILL
            self._note_gap(abs(float((gradient * step).sum())) / 2, rows)
            return step[None, :]
        if self.what == GRAM:
            factor = self._set_factor(sums, ILL)
            if not goal.l1.any() and (factor.unclear or factor.least < ILL):
                self.what = TRIANGLE
                return None
            if self.passes == 1:
                self._note_dependent(factor)
        return self._solve(gradient, rows)

    def _set_results(self, sums: Sums, step: Doubles) -> None:
        """Compute the results after a step from those before it."""
        figures, penalty = sums.figures, self.goal.l2 * sums.figures.rows
        right = sums.gradient + penalty * (self.weights - step)
        loss = max(
            0.0, float(sums.totals.loss + (sums.gradient * step).sum() - (step * (right + penalty * step)).sum() / 2)
        )
        unexplained = (1 - figures.score) * loss / (sums.totals.loss or 1)
        self.figures = figures._replace(loss=loss / figures.weight, score=1 - unexplained)
        self.objective += float((right * step).sum()) / 2 / figures.rows


class DampedNewton(Method):
    """Newton steps, halved until they decrease the objective."""

    def __init__(self, goal: Goal, weights: Doubles) -> None:
        super().__init__(goal, weights)
        self._limit, self._length = goal.tolerance or TOLERANCE, 1.0
        self._dependent = 0  # weights that others determine
        self._first = 0.0  # the objective after the first step

    def note_outcome(self) -> None:
        """Go back to the best weights and warn if training ran out of passes."""
        if self._length < 1 and self._best is not None:
            self.weights = self._best.weights
        if self.passes > 1:
            self.notes.append(
                f"no convergence after {self.passes} passes: a step would lower the objective by {self.gap:.2g} of "
                f"itself, tolerance={self._limit:g}; use more epochs, or l2= above 0"
            )

    def _advance(self, sums: Sums) -> None:
        self._first = self.objective if self.passes <= 2 else self._first
        best = self._best
        if best is not None and not self.objective <= best.objective + ROUNDING * abs(self.objective):
            self._halve(best) if self.gap > self._limit else self._end(0 * best.step)
            return
        if not sums.totals.wrong and not self.goal.penalised and self.goal.loss in SEPARABLE:
            self._finish("perfect separation: the model is right on all rows, and larger weights would lower the loss")
            return
        if self.what == GRAM and not self._set_curvature(sums):
            return
        self._take(sums, self._solve(self._gradient(sums), sums.figures.rows))

    def _set_curvature(self, sums: Sums) -> bool:
        """Factor the second derivatives of a pass; return whether they give a step."""
        factor = self._set_factor(sums, DEPENDENT)
        if self.passes == 1 and not self.goal.warm:  # later, curvature may vanish
            self._note_dependent(factor)
            self._dependent = int(factor.aliased.sum())
        return True

    def _take(self, sums: Sums, step: Doubles) -> None:
        """Take a step, or end with it."""
        self._best, self._length = Point(self.weights, self.objective, step), 1.0
        size = float(np.abs(step).max() / (np.abs(self.weights).max() or 1))
        self.weights = self.weights + step
        if self.passes == 1:
            self._begin(sums, step)
            if not self.goal.warm:
                return
        if self.gap <= self._limit or size <= SMALL_STEP or self.gap * self.objective <= ROUNDING * self._first:
            self._end(np.abs(step))
        else:
            self._go_on()

    def _begin(self, sums: Sums, step: Doubles) -> None:
        """Prepare for the passes after the first step."""

    def _go_on(self) -> None:
        """Prepare for the pass after a step."""

    def _end(self, step: Doubles) -> None:
        """End after the last step."""
        self.done = True
        if step.max() > UNBOUNDED_STEP:
            names = self.goal.names(np.asarray(step.max(axis=0) > step.max() / 2))
            self._finish(f"quasi-complete separation: the weights of {names} grow without bound")

    def _halve(self, best: Point) -> None:
        self._length /= 2
        self.done = self._length < MIN_LENGTH
        self.weights = best.weights + (0.0 if self.done else self._length) * best.step


class RobustNewton(DampedNewton):
    """Steps for losses that are linear far from the label, so that most rows have no curvature.

    A share of bounding parabolas, ``blend``, replaces it, which falls to 0.
    """

    def __init__(self, goal: Goal, weights: Doubles) -> None:
        super().__init__(goal, weights)
        self.blend = float(goal.loss == "huber")
        self._forced = False  # whether bounding parabolas are needed, since second derivatives are singular

    def _set_curvature(self, sums: Sums) -> bool:
        super()._set_curvature(sums)
        first, factor = self.passes == 1 and not self.goal.warm, self._factor
        if first or self.blend == 1 or factor is None or factor.aliased.sum() <= self._dependent:
            return True
        self.blend, self._forced = 1.0, True  # too few rows have curvature
        return False

    def _go_on(self) -> None:
        self.blend = self.blend / BLEND_FACTOR if self.blend > MIN_BLEND else 0.0

    def _end(self, step: Doubles) -> None:
        if self.blend and not self._forced:
            self.blend, self._best = 0.0, None
        else:
            super()._end(step)

    def _halve(self, best: Point) -> None:
        self.blend = min(1.0, self.blend * BLEND_FACTOR + MIN_BLEND)
        super()._halve(best)


class QuantileNewton(RobustNewton):
    """Steps for quantiles: the kink of the loss is smoothed over a width that falls until the solution is exact."""

    def __init__(self, goal: Goal, weights: Doubles) -> None:
        super().__init__(goal, weights)
        self._narrow = 0.0  # the width at which training ends
        self._level = 0  # passes at this width; 0: one that finds where the optimum moves as the width falls
        self._stable = False  # the level above took one pass

    def _take(self, sums: Sums, step: Doubles) -> None:
        if self._narrow and not self._level:
            self._follow(step)
        else:
            super()._take(sums, step)

    def _begin(self, sums: Sums, step: Doubles) -> None:
        """Smooth the kink over a typical residual; further passes narrow that."""
        decrease = 0.0 if self.goal.warm else float((sums.gradient * step).sum())
        self.width = float(np.sqrt(max(sums.totals.squares + decrease, 0.0) / sums.figures.weight)) or 1.0
        self._narrow, self._best, self._level = self.width * MIN_WIDTH, None, 1

    def _go_on(self) -> None:
        super()._go_on()
        self._level += 1

    def _follow(self, step: Doubles) -> None:
        """Follow the optimum, which moves linearly with the width while the same rows lie in it, to a smaller width."""
        factor = STABLE_FACTOR if self._stable else WIDTH_FACTOR
        self.weights = self.weights + step * ((1 - 1 / factor) / PROBE)
        self.width, self.what, self._level, self._best = self.width / factor, GRAM, 1, None

    def _end(self, step: Doubles) -> None:
        if (self.blend and not self._forced) or not self.width > self._narrow > 0:
            super()._end(step)
            return
        self.blend, self._forced = 0.0, False
        self.width, self.what, self._best = self.width * (1 - PROBE), GRADIENT, None
        self._stable, self._level = self._level == 1, 0


METHODS: dict[str, type[Method]] = {"linear": LeastSquares, "huber": RobustNewton, "quantile": QuantileNewton}


def method_of(goal: Goal, weights: Doubles) -> Method:
    """Return the method for a goal, at weights."""
    return METHODS.get(goal.loss, DampedNewton)(goal, weights)
