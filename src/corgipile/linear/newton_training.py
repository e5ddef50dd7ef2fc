"""Training to the optimum by Newton's method: each pass sums the loss and its derivatives over all rows."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, ConvergenceWarning
from corgipile.linear import passes
from corgipile.linear.fit import Meter, Trainer
from corgipile.linear.model import Model
from corgipile.linear.newton import Doubles, Newton, Sums
from corgipile.linear.newton_methods import Goal, method_of
from corgipile.linear.newton_stack import Members
from corgipile.linear.precheck import sampled_rows
from corgipile.linear.problem import Record, Task
from corgipile.linear.scaling import Learnt, Moments, Scaling
from corgipile.linear.sgd import outputs_of
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of
from corgipile.settings import TrainArguments, changed, declared
from corgipile.suggestions import listed

__all__ = ["MAX_COEFFICIENTS", "MAX_PASSES", "NewtonTraining", "check_settings", "suits"]

NEWTON_SETTINGS = {
    "model", "features", "label", "encode", "missing", "epochs", "l2", "memory", "seed", "intercept", "standardize",
    "tolerance", "on_bad", "test", "validation", "group", "save", "overwrite", "solver", "callback", "on_rows", "text",
    "interactions", "hash_bits", "ngrams", "weight", "class_weight", "warm_start", "l1", "by", "labels",
}  # fmt: skip
KINDS = ("linear", "logistic", "softmax", "ovr_logistic", "poisson", "huber", "quantile", "squared_hinge")
MAX_COEFFICIENTS = 4096  # of all outputs, with intercepts: their matrix of second derivatives is in memory
MAX_PASSES = 200  # where epochs is not given
MIN_SAMPLED_ROWS = 1 << 16  # of a table whose features are standardised by sampled rows
MAX_MEAN, MAX_SQUARE = 1.0, 1e6  # of features that sampled rows have standardised well enough
CALLER = 8  # frames from a warning to the caller of `train`


def suits(given: TrainArguments) -> bool:
    """Return whether ``solver="auto"`` tries Newton's method: for regression, without settings of SGD."""
    loss, hashed = loss_of(given.model), given.text is not None or given.interactions is not None
    has = loss.name in KINDS and not (given.l1 and loss.name == "quantile")
    return loss.numbers and has and not hashed and not list(_others(given))


def _others(given: TrainArguments) -> Iterator[tuple[str, str]]:
    """Yield settings that Newton's method does not have."""
    return changed(given, [name for name in declared(type(given)) if name not in NEWTON_SETTINGS])


def check_settings(given: TrainArguments) -> None:
    """Raise BadArgument for a setting that Newton's method does not have, or a loss without second derivatives."""
    for name, got in _others(given):
        raise BadArgument(f"{name} needs solver='sgd', got {got} with solver='newton'")
    if loss_of(given.model).name not in KINDS:
        raise BadArgument(f"with solver='newton' model must be one of {', '.join(KINDS)}, got {given.model!r}")
    if given.l1 and loss_of(given.model).name == "quantile":
        raise BadArgument(f"l1 of quantile needs solver='sgd', got l1={given.l1:g} with solver='newton'")


class NewtonTraining(Trainer):
    """A training run by Newton's method after the records of a warm start: of one model, or of several at once.

    Features are standardised inside; ``task.scaling``, if any, is that of the penalty.
    """

    def __init__(
        self,
        task: Task,
        feeder: BufferedReader,
        given: TrainArguments,
        params: Record,
        *,
        past: Model | None = None,
        members: Members | None = None,
    ) -> None:
        super().__init__(task, feeder, params | {"solver": "newton"}, past.history if past else (), given.on_rows)
        _check_count(task)
        self._members = members or Members()
        self.newton = Newton(
            task.kind,
            task.inputs,
            task.classes,
            intercept=task.intercept,
            on_bad=task.on_bad,
            class_weight=task.class_weight,
        )
        self._warm, self._sampled = past is not None, False
        self._begin(given, past, self._find_spaces(past))
        self._restart = partial(self._begin, given, past)

    def _begin(self, given: TrainArguments, past: Model | None, spaces: list[Scaling]) -> None:
        self._spaces = spaces
        self._methods = [method_of(self._goal(given, space), self._start(given, past)) for space in spaces]

    def _find_spaces(self, past: Model | None) -> list[Scaling]:
        """Return the mean and spread of features in the rows of each model."""
        task, members, centred = self.task, self._members, self.task.intercept
        if members.route is None:
            known = task.scaling if past is None and not (task.keep_flags or task.inputs.sparse) else None
            return [known or self._sampled_space() or self._space()] * members.count
        sums, all_ = [Moments(task.inputs) for _ in range(members.count)], np.ones(members.count, np.bool_)
        for step in passes.steps(self._feeder, task.inputs, route=members.route):
            for at, part in members.parts(step, all_):
                passes.add_moments(sums[at], task.inputs, self._feeder, part.visit)
        return [one.scaling(centred=centred) for one in sums]

    def _space(self) -> Scaling:
        """Return the mean and spread of features of all rows, which takes a read of them."""
        return passes.moments(self.task.inputs, self.task.table(), self._feeder).scaling(centred=self.task.intercept)

    def _sampled_space(self) -> Scaling | None:
        """Return the mean and spread of sampled rows, which the first pass checks; None: all rows are needed."""
        task = self.task
        if len(task.source) < MIN_SAMPLED_ROWS or task.inputs.sparse or not task.intercept or self._members.count > 1:
            return None
        rows = sampled_rows(task.table(), task.inputs).reshape(-1, task.inputs.width).astype(np.float64)
        spread = rows.std(axis=0)
        self._sampled = bool(np.isfinite(spread).all() and (spread > 0).all())
        return Scaling(rows.mean(axis=0), spread) if self._sampled else None

    def _goal(self, given: TrainArguments, space: Scaling) -> Goal:
        task, newton, width = self.task, self.newton, self.newton.width
        penalised = (task.scaling or Scaling.none(task.inputs.width)).scale / space.scale
        l2, l1 = (np.append(part, 0.0)[:width] for part in (given.l2 * penalised**2, given.l1 * penalised))
        precision = float(np.finfo(task.inputs.dtype).eps)
        return Goal(newton.loss.name, newton.outputs, l2, l1, given.tolerance, precision, self._warm, self._names)

    def _start(self, given: TrainArguments, past: Model | None) -> Doubles:
        """Return the weights at which training starts."""
        newton = self.newton
        if past is None:
            return np.zeros((newton.outputs, newton.width))
        coef, bias = self._spaces[0].unfold(past.coef.astype(np.float64), past.intercept.astype(np.float64))
        start = np.hstack([coef, bias[:, None]])[:, : newton.width]
        return start - (start.mean(axis=0) if newton.loss.name == "softmax" and not given.l1 else 0)

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        meter = Meter(self._feeder)
        found = self._pass(epoch)
        if self._sampled and not _is_standardised(found[0].matrices[0]):
            self._on_rows(-len(self._feeder.table))
            self._restart([self._space()])
            found = self._pass(epoch)
        self._sampled = False
        for at, sums in found.items():
            self._methods[at].advance(sums)
        each = [method.figures for method in self._methods]
        figures = each[0] if len(each) == 1 else self._members.total(each)
        self.newton.skipped = sum(method.skipped for method in self._methods)
        passes.check_figures(figures, self.newton, self._feeder)
        parts = [method.objective * own.rows for method, own in zip(self._methods, each, strict=True)]
        objective = self._methods[0].objective if len(each) == 1 else sum(parts) / sum(own.rows for own in each)
        self._report()
        return meter.record(epoch, self.task.kind, figures, self.newton.skipped, objective=objective)

    def _pass(self, epoch: int) -> dict[int, Sums]:
        """Return the sums over all rows of the models in training."""
        task, newton, members = self.task, self.newton, self._members
        steps = passes.steps(self._feeder, newton.inputs, task.label, task.weight, epoch, members.route)
        found: dict[int, Sums] = {}
        if members.count == 1 and members.route is None:
            with self._summing(0):
                for step in steps:
                    newton.learn(*step)
                    self._on_rows(len(step.visit))
            return {0: newton.sums()}
        open_ = np.array([not method.done for method in self._methods])
        for step in steps:
            for at, part in members.parts(step, open_):
                with self._summing(at):
                    newton.learn(*part)
                found[at] = newton.sums() if at not in found else found[at].plus(newton.sums())
            self._on_rows(len(step.visit))
        return found

    def _summing(self, at: int) -> AbstractContextManager[None]:
        """Begin the sums of a model."""
        method, start = self._methods[at], not (self._methods[at].passes or self._warm)
        how = method.what, method.weights, self._spaces[at]
        return self.newton.summing(*how, start=start, blend=method.blend, width=method.width)

    def _report(self) -> None:
        """Warn of the methods' new notes."""
        for text in self._members.described([method.notes for method in self._methods]):
            self.task.note(text)
            warnings.warn(text, ConvergenceWarning, stacklevel=CALLER)

    def _names(self, chosen: npt.NDArray[np.bool_]) -> str:
        """Return the names of some weights."""
        model = self._current_model()
        names = model.names or [f"{self.task.inputs.name}[{at}]" for at in range(model.width)]
        return listed([name for name, on in zip([*names, "(intercept)"], chosen, strict=False) if on])

    def _stops(self, record: Record) -> bool:
        return all(method.done for method in self._methods)

    def _note_outcome(self) -> None:
        for method in self._methods:
            if method.passes and not method.done:
                method.note_outcome()
        self._report()

    def _current_model(self) -> Model:
        task, width, learnt, parts = self.task, self.task.inputs.width, None, []
        for method, space in zip(self._methods, self._spaces, strict=True):
            weights = method.weights
            parts.append(
                space.fold(weights[:, :width], weights[:, width] if task.intercept else np.zeros(len(weights)))
            )
        coef, bias = (np.concatenate(part) for part in zip(*parts, strict=True))
        if task.scaling is not None:
            learnt = Learnt(task.scaling, *task.scaling.unfold(coef, bias))
        params = self._params | self._members.params([method.figures for method in self._methods], task.loss.score)
        return self._members.kind(task.kind, coef, bias, task.classes, params, self.history, learnt)


def _is_standardised(matrix: Doubles) -> bool:
    """Return whether features, by their products with each other and with 1, are near mean 0 and spread 1."""
    mean = matrix[-1, :-1] / matrix[-1, -1]
    square = np.diag(matrix)[:-1] / matrix[-1, -1] - mean**2
    return bool((np.abs(mean) <= MAX_MEAN).all() and (square >= 1 / MAX_SQUARE).all() and (square <= MAX_SQUARE).all())


def _check_count(task: Task) -> None:
    """Raise BadArgument for too many coefficients."""
    outputs, width = outputs_of(task.kind, task.classes), task.inputs.width + task.intercept
    if outputs * width > MAX_COEFFICIENTS:
        per = f"{outputs} x " * (outputs > 1)
        raise BadArgument(
            f"solver='newton' needs at most {MAX_COEFFICIENTS} coefficients, got {per}{width}; "
            "use solver='sgd', or 'dual' for logistic, ovr_logistic and squared_hinge"
        )
