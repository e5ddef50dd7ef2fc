"""A training run of one model, epoch by epoch."""

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy.typing as npt

from corgipile.errors import Diverged, DivergenceWarning
from corgipile.linear import passes
from corgipile.linear.divergence import Baseline
from corgipile.linear.fit import Meter, Trainer
from corgipile.linear.model import Model
from corgipile.linear.problem import Record, Task
from corgipile.linear.ranks import Ranks, learn
from corgipile.linear.scaling import Learnt
from corgipile.linear.schedule import Schedule, recent_losses
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.steps import step_of

__all__ = ["Training"]

MAX_REDUCTION = 100  # of a rate that does not show that few rows determine it
STATE_SETTINGS = ("average", "step", "l1")  # settings that determine the optimizer state
log = logging.getLogger("corgipile")


class BestEpoch(NamedTuple):
    """The weights of the epoch with the smallest held-out loss, for unscaled features."""

    epoch: int
    loss: float
    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]


class Training(Trainer):
    """A training run of one model by SGD, on one of several ``ranks`` if given.

    An ``adaptive`` learning rate is a default: it is lowered if an epoch diverges or a regression plateaus, and raised
    for labels far from 0.
    """

    def __init__(
        self,
        task: Task,
        feeder: BufferedReader,
        schedule: Schedule,
        past: Model | None,
        params: Record,
        *,
        adaptive: bool,
        on_rows: Callable[[int], object] | None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(task, feeder, params, past.history if past else (), on_rows)
        self._learn = partial(passes.learn, weight=task.weight) if ranks is None else partial(learn, ranks)
        self.schedule, self._past = schedule, past
        self._adaptive, self._may_restart = adaptive, adaptive and not self.history
        self._rows_reported = 0
        self._baseline: Baseline | None = None
        self._best = self._past_best()
        self._scaled = self._scale_cached()
        self._new_sgd()

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        return self._run_with_retry(epoch) if self._may_restart else self._pass(epoch)

    def _stops(self, record: Record) -> bool:
        out_of_patience = self._update_best(record)
        self._hint_scaling()
        stop = self.schedule.enough(recent_losses(self.history), record["epoch"]) or out_of_patience
        self._reduce_on_plateau()
        return stop

    def _update_best(self, record: Record) -> bool:
        """Keep the weights if they are the best so far; return whether patience has run out."""
        patience = self._params.get("patience")
        if patience is None:
            return False
        if self._best is None or record["test_loss"] < self._best.loss:
            present = self._current_model()
            self._best = BestEpoch(record["epoch"], record["test_loss"], present.coef, present.intercept)
        return bool(record["epoch"] - self._best.epoch >= patience)

    def _past_best(self) -> "BestEpoch | None":
        """Return the best epoch of a warm start, if both trainings have patience."""
        past = self._past
        if past is None or self._params.get("patience") is None or "best_epoch" not in past.params:
            return None
        epoch = past.params["best_epoch"]
        return BestEpoch(epoch, past.history[epoch]["test_loss"], past.coef, past.intercept)

    def _scale_cached(self) -> bool:
        """Standardise cached dense rows once for all epochs; return whether that was done."""
        task = self.task
        if task.scaling is None or task.inputs.sparse or not self._feeder.all_in_memory():
            return False
        rows = self._feeder.buffer.dense(task.inputs.name)
        task.scaling.apply(rows.reshape(len(rows), -1))
        return True

    def _new_sgd(self) -> None:
        """Create the SGD kernel, with the weights of a warm start."""
        task, past = self.task, self._past
        self.sgd = task.sgd(self.schedule, scaled=not self._scaled)
        if past is None:
            return
        coef, bias, state = past.coef, past.intercept, None
        if (learnt := past.learnt) is not None and learnt.scaling is task.scaling and self._same_state(learnt):
            _, coef, bias, state = learnt
        elif task.scaling is not None:
            coef, bias = task.scaling.unfold(coef, bias)
        self.sgd.assign(coef, bias, state)

    def _same_state(self, learnt: Learnt) -> bool:
        """Return whether a warm start has the same form of optimizer state."""
        past, now = self._past.params if self._past else {}, self._params
        same = all(past.get(name, now[name]) == now[name] for name in STATE_SETTINGS)
        return same and self.sgd.state_rows == (0 if learnt.optimizer_state is None else len(learnt.optimizer_state))

    def _run_with_retry(self, epoch: int) -> Record:
        """Train an epoch; restart at another rate if it diverges or its labels are far from 0."""
        while True:
            try:
                record = self._pass(epoch)
                other = None if self._baseline is None else self.schedule.restarted(self._baseline, 0, record["loss"])
                if other is None:
                    return record
            except Diverged:
                if (other := self.schedule.lowered()) is None:
                    raise
            self._restart(other)

    def _restart(self, other: Schedule) -> None:
        self.task.note_restart(self.schedule, other)
        self.schedule, self._baseline = other, None
        self._report_rows(-self._rows_reported)
        del self.sgd  # two kernels would exceed the budget
        self._new_sgd()

    def _reduce_on_plateau(self) -> None:
        """Lower the learning rate if a regression has plateaued because of its steps."""
        lowered_schedule = self.schedule.lowered()
        if self._adaptive and lowered_schedule is not None and self.sgd.has_plateaued(recent_losses(self.history)):
            self.schedule = lowered_schedule
            log.info("the loss has plateaued; the learning rate is reduced to a fifth")

    def _report_rows(self, rows: int) -> None:
        self._rows_reported += rows
        self._on_rows(rows)

    def _pass(self, epoch: int) -> Record:
        meter, counted, self._rows_reported = Meter(self._feeder), None, 0
        if self._baseline is None:
            self._baseline = Baseline(self.task.kind, self.task.classes, self.task.class_weight)
            counted = self._baseline.add
        rate = self.schedule.rate(epoch)
        try:
            figures = self._learn(self.sgd, self._feeder, self.task.label, rate, epoch, self._report_rows, counted)
        except Diverged as error:
            standardized = self.task.scaling is not None
            raise self.schedule.diverged(epoch, str(error), standardized=standardized) from None
        return meter.record(epoch, self.sgd.kind, figures, self.sgd.skipped)

    def model(self) -> Model:
        """Return the model: with the weights of the best epoch if patience is set, else with the current ones."""
        model, best = self._current_model(), self._best
        if best is None:
            return model
        learnt = model.learnt or Learnt(None, *self.sgd.last())
        params = {**model.params, "best_epoch": best.epoch}
        return replace(model, coef=best.coef, intercept=best.intercept, params=params, learnt=learnt)

    def _current_model(self) -> Model:
        """Return the model with the current weights, for unscaled features."""
        coef, bias = self.sgd.weights()
        learnt, state, scaling = None, self.sgd.optimizer_state(), self.task.scaling
        if scaling is not None or state is not None:
            learnt = Learnt(scaling, *self.sgd.last(), state)
        if scaling is not None:
            coef, bias = scaling.fold(coef, bias)
        params = {**self._params, "learning_rate": self.schedule.learning_rate}
        return Model(self.task.kind, coef, bias, self.task.classes, params, self.history, learnt)

    def _hint_scaling(self) -> None:
        """Suggest standardised features if the first two epochs learnt nothing."""
        base = self._baseline
        if len(self.history) == 2 and base is not None and base.learnt_nothing(self.history[-1]["loss"]):
            self.task.hint_scaling("two epochs were no better than a constant prediction; if features differ in scale")

    def _note_outcome(self) -> None:
        """Warn if the last epoch was worse than a constant prediction."""
        base = self._baseline
        if base is None:
            return
        loss, cure = self.history[-1]["loss"], self.schedule.hint(standardized=self.task.scaling is not None)
        if base.has_diverged(loss):
            text = (
                f"training diverged: the loss is {loss:.4g} after the last epoch, "
                f"that of a constant prediction {base.constant():.4g}; {cure}"
            )
            self.task.notes.append(text)
            warnings.warn(text, DivergenceWarning, stacklevel=4)
        elif base.learnt_nothing(loss):
            nothing = ": nothing was learnt yet" * (not base.separates_classes(self.history[-1].get("accuracy", 0.0)))
            self.task.note(
                f"the loss is {loss:.4g} after the last epoch, that of a constant prediction "
                f"{base.constant():.4g}{nothing}; {self._hint()}"
            )

    def _hint(self) -> str:
        """Return a hint for a model that learnt nothing."""
        step = step_of(self.schedule.step)
        if self._adaptive and step.same and self.schedule.learning_rate < step.usual / MAX_REDUCTION:
            return "a few rows are far longer than all others and determine the learning rate; try step='normalized'"
        options = "" if self.task.scaling is not None else ", or standardize=True"
        return f"try more epochs or another {'step' if step.fixed else 'learning_rate'}{options}"
