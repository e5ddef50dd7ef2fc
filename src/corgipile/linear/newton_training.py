"""Training to the optimum by Newton's method: each pass sums the loss and its derivatives over all rows."""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, ConvergenceWarning
from corgipile.linear import passes
from corgipile.linear.fit import Meter, Trainer
from corgipile.linear.model import Model
from corgipile.linear.newton import (
    GRADIENT,
    GRAM,
    TRIANGLE,
    Doubles,
    Factor,
    Newton,
    Sums,
    factor_gram,
    factor_rows,
)
from corgipile.linear.problem import Record, Task
from corgipile.linear.scaling import Learnt, Scaling
from corgipile.linear.sgd import Figures, outputs_of
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of
from corgipile.settings import TrainArguments, changed, declared
from corgipile.suggestions import listed

__all__ = ["MAX_COEFFICIENTS", "MAX_PASSES", "NewtonTraining", "check_settings", "suits"]

NEWTON_SETTINGS = {
    "model", "features", "label", "encode", "missing", "epochs", "l2", "memory", "seed", "intercept", "standardize",
    "tolerance", "on_bad", "test", "validation", "group", "save", "overwrite", "solver", "callback", "on_rows", "text",
    "interactions", "hash_bits", "ngrams", "weight", "class_weight", "warm_start",
}  # fmt: skip
KINDS = ("linear", "logistic", "softmax", "ovr_logistic", "poisson", "huber", "quantile", "squared_hinge")
ROBUST = ("huber", "quantile")  # curvature is 0 for most residuals
SEPARABLE = ("logistic", "softmax", "ovr_logistic")
MAX_COEFFICIENTS = 4096  # of all outputs, with intercepts: their matrix of second derivatives is in memory
MAX_PASSES = 200  # where epochs is not given
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


def suits(given: TrainArguments) -> bool:
    """Return whether ``solver="auto"`` tries Newton's method: for regression, without settings of SGD."""
    loss, hashed = loss_of(given.model), given.text is not None or given.interactions is not None
    return loss.numbers and loss.name in KINDS and not hashed and not list(_others(given))


def _others(given: TrainArguments) -> Iterator[tuple[str, str]]:
    """Yield settings that Newton's method does not have."""
    return changed(given, [name for name in declared(type(given)) if name not in NEWTON_SETTINGS])


def check_settings(given: TrainArguments) -> None:
    """Raise BadArgument for a setting that Newton's method does not have, or a loss without second derivatives."""
    for name, got in _others(given):
        raise BadArgument(f"{name} needs solver='sgd', got {got} with solver='newton'")
    if loss_of(given.model).name not in KINDS:
        raise BadArgument(f"with solver='newton' model must be one of {', '.join(KINDS)}, got {given.model!r}")


class Point(NamedTuple):
    """Weights whose objective is known, and the step from them."""

    weights: Doubles
    objective: float
    step: Doubles


class NewtonTraining(Trainer):
    """A training run by Newton's method with halved steps, after the records of a warm start.

    Features are standardised inside; ``task.scaling``, if any, is that of the penalty. Least squares take one pass,
    and further ones to correct its rounding if features depend on each other; if nearly so, a pass of Householder
    reflections of the rows replaces the first solution.
    """

    def __init__(
        self, task: Task, feeder: BufferedReader, given: TrainArguments, past: Model | None, params: Record
    ) -> None:
        super().__init__(task, feeder, params | {"solver": "newton"}, past.history if past else (), given.on_rows)
        self._past, self._tolerance = past, given.tolerance
        self._limit = given.tolerance or TOLERANCE
        _check_count(task)
        self.newton = newton = Newton(
            task.kind,
            task.inputs,
            task.classes,
            intercept=task.intercept,
            on_bad=task.on_bad,
            class_weight=task.class_weight,
        )
        known = task.scaling if past is None and not (task.keep_flags or task.inputs.sparse) else None
        self._space = known or passes.moments(task.inputs, task.table(), feeder).scaling(centred=task.intercept)
        self._weights = np.zeros((newton.outputs, newton.width))
        if past is not None:
            coef, bias = self._space.unfold(past.coef.astype(np.float64), past.intercept.astype(np.float64))
            self._weights = np.hstack([coef, bias[:, None]])[:, : newton.width]
            self._weights -= self._weights.mean(axis=0) if newton.loss.name == "softmax" else 0
        penalised = (task.scaling or Scaling.none(task.inputs.width)).scale / self._space.scale
        self._penalty = np.append(given.l2 * penalised**2, 0.0)[: newton.width]  # second derivatives
        self._quadratic, self._what, self._length, self._done = newton.loss.name == "linear", GRAM, 1.0, False
        self._blend, self._width, self._narrow = float(newton.loss.name == "huber"), 1.0, 0.0
        self._level = 0  # passes at this width; 0: one that finds where the optimum moves as the width falls
        self._best: Point | None = None
        self._factor: Factor | None = None
        self._forced = False  # whether bounding parabolas are needed, since second derivatives are singular
        self._dependent, self._stable = 0, False  # weights that others determine; the level above took one pass
        self._first = 0.0  # the objective after the first step
        self._gap, self._epochs, self._ill = np.inf, 0, False  # ill: too near to dependent for corrections

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        meter, before = Meter(self._feeder), self._weights
        sums = self._pass(epoch)
        figures = passes.check_figures(sums.figures, self.newton, self._feeder)
        objective = float(sums.loss / figures.rows + (self._penalty * before**2).sum() / 2)
        self._epochs += 1
        self._first = objective if self._epochs <= 2 else self._first
        self._advance(sums, objective)
        if self._quadratic and self._done and self._what == GRAM:  # the one pass did not see its solution
            figures, objective = self._solved(sums, self._weights - before, objective)
        return meter.record(epoch, self.task.kind, figures, self.newton.skipped, objective=objective)

    def _pass(self, epoch: int) -> Sums:
        """Return the sums over all rows at the current weights."""
        task, newton, start = self.task, self.newton, not self._epochs and self._past is None
        with newton.summing(self._what, self._weights, self._space, start=start, blend=self._blend, width=self._width):
            for step in passes.steps(self._feeder, newton.inputs, task.label, task.weight, epoch):
                newton.learn(*step)
                self._on_rows(len(step.visit))
        return newton.sums()

    def _solved(self, sums: Sums, step: Doubles, objective: float) -> tuple[Figures, float]:
        """Return the figures and the objective of least squares after a step, from those before it."""
        figures, penalty = sums.figures, self._penalty * sums.figures.rows
        right = sums.gradient + penalty * (self._weights - step)
        loss = max(0.0, float(sums.loss + (sums.gradient * step).sum() - (step * (right + penalty * step)).sum() / 2))
        unexplained = (1 - figures.score) * loss / (sums.loss or 1)
        better = figures._replace(loss=loss / figures.weight, score=1 - unexplained)
        return better, objective + float((right * step).sum()) / 2 / figures.rows

    def _advance(self, sums: Sums, objective: float) -> None:  # noqa: PLR0911 - one return per outcome of a pass
        """Take the next step, or a shorter one if the last did not decrease the objective."""
        best, rows = self._best, sums.figures.rows
        if best is not None and not self._quadratic and not objective <= best.objective + ROUNDING * abs(objective):
            self._halve(best) if self._gap > self._limit else self._end(0 * best.step)
            return
        gradient = sums.gradient + self._penalty * rows * self._weights
        if not sums.wrong and not self._penalty.any() and self.newton.loss.name in SEPARABLE:
            self._finish("perfect separation: the model is right on all rows, and larger weights would lower the loss")
            return
        step = self._step(sums, gradient)
        if step is None:
            return
        self._gap = float(abs((gradient * step).sum()) / 2 / rows / (objective or 1))
        if self._narrow and not self._level:
            self._follow(step)
            return
        self._best, self._length = Point(self._weights, objective, step), 1.0
        size = float(np.abs(step).max() / (np.abs(self._weights).max() or 1))
        if self._quadratic:
            self._refine(step, size, best)
            return
        self._weights = self._weights + step
        if self._epochs == 1 and self.newton.loss.name == "quantile":
            self._begin_width(sums, float((sums.gradient * step).sum()) if self._past is None else 0.0)
        if self._epochs == 1 and self._past is None:
            return
        if self._gap <= self._limit or size <= SMALL_STEP or self._gap * objective <= ROUNDING * self._first:
            self._end(np.abs(step))
            return
        self._level += 1
        self._blend = self._blend / BLEND_FACTOR if self._blend > MIN_BLEND else 0.0

    def _begin_width(self, sums: Sums, decrease: float) -> None:
        """Smooth the kink of quantile over a typical residual; further passes narrow that."""
        self._width = float(np.sqrt(max(sums.squares + decrease, 0.0) / sums.figures.weight)) or 1.0
        self._narrow, self._best, self._level = self._width * MIN_WIDTH, None, 1

    def _follow(self, step: Doubles) -> None:
        """Follow the optimum, which moves linearly with the width while the same rows lie in it, to a smaller width."""
        factor = STABLE_FACTOR if self._stable else WIDTH_FACTOR
        self._weights = self._weights + step * ((1 - 1 / factor) / PROBE)
        self._width, self._what, self._level, self._best = self._width / factor, GRAM, 1, None

    def _end(self, step: Doubles) -> None:
        """End after the last step; with a share of bounding parabolas, or a smoothed kink, go on with less."""
        if self._blend and not self._forced:
            self._blend, self._best = 0.0, None
        elif self._width > self._narrow > 0:
            self._blend, self._forced = 0.0, False
            self._width, self._what, self._best = self._width * (1 - PROBE), GRADIENT, None
            self._stable, self._level = self._level == 1, 0
        else:
            self._done = True
            if step.max() > UNBOUNDED_STEP:
                names = self._names(np.asarray(step.max(axis=0) > step.max() / 2))
                self._finish(f"quasi-complete separation: the weights of {names} grow without bound")

    def _step(self, sums: Sums, gradient: Doubles) -> Doubles | None:
        """Return the step by the sums; None if it needs another pass first."""
        newton, penalty = self.newton, self._penalty * sums.figures.rows
        if self._what == TRIANGLE:
            precision = DEPENDENT_ROWS * float(np.finfo(newton.inputs.dtype).eps)
            self._factor, step = factor_rows(sums.matrices[0].copy(), penalty, self._weights[0], precision)
            self._note_dependent(self._factor)
            self._what, self._ill = GRADIENT, self._factor.least**2 < ILL
            return step[None, :]
        if self._what == GRAM:
            tolerance = ILL if self._quadratic else DEPENDENT
            self._factor = factor_gram(sums.matrices, newton.outputs, penalty, tolerance)
            if self._quadratic and (self._factor.unclear or self._factor.least < ILL):
                self._what = TRIANGLE
                return None
            if self._epochs == 1 and (self._quadratic or self._past is None):  # later, curvature may vanish
                self._note_dependent(self._factor)
                self._dependent = int(self._factor.aliased.sum())
            elif newton.loss.name in ROBUST and self._blend < 1 and self._factor.aliased.sum() > self._dependent:
                self._blend, self._forced = 1.0, True  # too few rows have curvature
                return None
        assert self._factor is not None  # noqa: S101 - for the type checker: the first pass sets it
        return -self._factor.solve(gradient)

    def _refine(self, step: Doubles, size: float, last: Point | None) -> None:
        """Take a step of least squares: the solution, or a correction of its rounding."""
        if last is None:
            self._done = self._what == GRAM and self._factor is not None and self._factor.least >= WELL
            self._what = GRAM if self._done else GRADIENT
        else:
            stuck = self._ill or (self._epochs > 2 and np.abs(step).max() > np.abs(last.step).max() / 2)
            self._done = bool(stuck or size <= REFINED or self._gap <= (self._tolerance or 0))
            if stuck:
                return
        self._weights = self._weights + step

    def _halve(self, best: Point) -> None:
        self._length /= 2
        if self.newton.loss.name in ROBUST:
            self._blend = min(1.0, self._blend * BLEND_FACTOR + MIN_BLEND)
        self._done = self._length < MIN_LENGTH
        self._weights = best.weights + (0.0 if self._done else self._length) * best.step

    def _finish(self, text: str) -> None:
        self._done = True
        self._warn(f"{text}; use l2= above 0")

    def _warn(self, text: str) -> None:
        self.task.note(text)
        warnings.warn(text, ConvergenceWarning, stacklevel=6)

    def _note_dependent(self, factor: Factor) -> None:
        """Warn of features that others determine: their coefficients stay as they were, at first 0."""
        aliased = np.asarray(factor.aliased.reshape(self.newton.outputs, -1).any(axis=0))
        if aliased.any():
            many = bool(aliased.sum() > 1)
            self._warn(
                f"collinear column{'s' * many} {self._names(aliased)}: constant, or determined by columns before; "
                f"{'their coefficients are' if many else 'its coefficient is'} 0"
            )

    def _names(self, chosen: npt.NDArray[np.bool_]) -> str:
        """Return the names of some weights."""
        model = self._current_model()
        names = model.names or [f"{self.task.inputs.name}[{at}]" for at in range(model.width)]
        return listed([name for name, on in zip([*names, "(intercept)"], chosen, strict=False) if on])

    def _stops(self, record: Record) -> bool:
        return self._done

    def _note_outcome(self) -> None:
        if self._done or not self._epochs:
            return
        if self._length < 1 and self._best is not None:
            self._weights = self._best.weights
        if self._epochs > 1 and not self._quadratic:
            self._warn(
                f"no convergence after {self._epochs} passes: a step would lower the objective by {self._gap:.2g} of "
                f"itself, tolerance={self._limit:g}; use more epochs, or l2= above 0"
            )

    def _current_model(self) -> Model:
        task, width, learnt = self.task, self.task.inputs.width, None
        bias = self._weights[:, width] if task.intercept else np.zeros(len(self._weights))
        coef, bias = self._space.fold(self._weights[:, :width], bias)
        if task.scaling is not None:
            learnt = Learnt(task.scaling, *task.scaling.unfold(coef, bias))
        return Model(task.kind, coef, bias, task.classes, self._params, self.history, learnt)


def _check_count(task: Task) -> None:
    """Raise BadArgument for too many coefficients."""
    outputs, width = outputs_of(task.kind, task.classes), task.inputs.width + task.intercept
    if outputs * width > MAX_COEFFICIENTS:
        per = f"{outputs} x " * (outputs > 1)
        raise BadArgument(
            f"solver='newton' needs at most {MAX_COEFFICIENTS} coefficients, got {per}{width}; "
            "use solver='sgd', or 'dual' for logistic, ovr_logistic and squared_hinge"
        )
