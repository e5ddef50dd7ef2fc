"""A training run: its task, and the loop over epochs."""

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.errors import Diverged, DivergenceWarning
from corgipile.features import Encoding
from corgipile.linear import passes
from corgipile.linear.classes import Labels, weights_of
from corgipile.linear.divergence import Baseline
from corgipile.linear.features import Features
from corgipile.linear.model import Model
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.ranks import Ranks, learn
from corgipile.linear.scaling import Learnt, Scaling
from corgipile.linear.schedule import Schedule, recent_losses
from corgipile.linear.sgd import SGD
from corgipile.linear.weights_memory import memory_for_rows
from corgipile.loader.buffered_reader import ALL, BufferedReader
from corgipile.losses import Loss, loss_of
from corgipile.orders import Shard
from corgipile.sizes import OnBad, Size
from corgipile.steps import step_of
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table

__all__ = ["Task", "Training"]

MIN_IDS = 100  # more classes may be ids; also the largest reduction of a rate
SCALING_HELPS = "standardize=True would help"
STATE_SETTINGS = ("average", "step", "l1")  # settings that determine the optimizer state
Record = dict[str, Any]
K = TypeVar("K", bound=SGD)
log = logging.getLogger("corgipile")


@dataclass
class Task:
    """A training task: rows, features and label; ``class_weight_setting`` is as the user gave it."""

    source: Table
    inputs: Features
    label: str
    kind: str
    labels: Labels
    batch_size: int
    intercept: bool
    on_bad: OnBad
    encoding: Encoding | None = None
    average: bool = False
    weight: str | None = None
    class_weight_setting: str | Mapping[str, float] | None = None
    class_weight: npt.NDArray[np.float64] | None = None
    standardize: bool = False
    keep_flags: bool = False  # leave features of 0 and 1 unscaled, if standardize was not set
    scaling: Scaling | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Return the classes; this reads the labels unless an order has read them."""
        return self.labels.find()

    @property
    def loss(self) -> Loss:
        """Return the loss to minimise."""
        return loss_of(self.kind, len(self.classes))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the feature columns as the table stores them."""
        return self.inputs.columns if self.encoding is None else self.encoding.columns

    @property
    def row_bytes(self) -> float:
        """Return the stored bytes of a row: its features, label and weight."""
        return row_bytes(self.source, [*self.inputs.columns, self.label, *filter(None, [self.weight])])

    def table(self) -> NullsAsNaN:
        """Return the table with nulls as NaN."""
        return NullsAsNaN(self.source, self.inputs, self.label, self.weight, skip=self.on_bad == "skip")

    def feeder(
        self, order: Any, memory: Size | None, seed: int, shard: Shard = ALL, *, keep: bool = False
    ) -> BufferedReader:
        """Open a reader of the training rows, or of a rank's shard; ``keep``: it may cache few rows."""
        rows, sketch = (self.table(), self.label, order, memory_for_rows(self, memory), seed), self.labels.sketch
        options: dict[str, Any] = {"weight": self.weight, "shard": shard, "update": self.batch_size, "keep": keep}
        return self.inputs.feeder(*rows, sketch=sketch, **options)

    def with_statistics(self, feeder: BufferedReader | None = None) -> Self:
        """Read the labels unless they were read, and the features if they are standardised; return the full task.

        Features that a reader caches are not read again.
        """
        classes, rows = self.labels.find(), len(self.source)
        if len(classes) > MIN_IDS and 2 * len(classes) > rows:
            self.note(f"label {self.label!r} has {len(classes)} values in {rows} rows: does it hold ids?")
        found = replace(self, class_weight=weights_of(self.class_weight_setting, self.labels, self.kind))
        if not self.standardize or self.scaling is not None:
            return found
        moments, centred = passes.moments(self.inputs, self.table(), feeder), not self.inputs.sparse and self.intercept
        return replace(found, scaling=moments.scaling(centred=centred, keep_flags=self.keep_flags))

    def sgd(self, schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> SGD:
        """Return an untrained SGD kernel, which standardises rows itself with ``scaled``.

        Args:
            schedule: The learning rates.
            scaled: Whether the kernel standardises rows, if the task does.
            left_out: Rows of the table that it does not see.
        """
        return self.new_sgd(SGD, schedule, scaled=scaled, left_out=left_out)

    def new_sgd(self, make: Callable[..., K], schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> K:
        """Return what ``make`` creates for this task: an SGD kernel, or several."""
        return make(
            self.kind,
            self.inputs,
            self.classes,
            batch_size=self.batch_size,
            l2=schedule.l2,
            intercept=self.intercept,
            average=self.average,
            step=schedule.step,
            l1=schedule.l1,
            max_norm=schedule.max_norm,
            on_bad=self.on_bad,
            scaling=self.scaling if scaled else None,
            class_weight=self.class_weight,
            rows=len(self.source) - left_out,
        )

    def facts(self) -> Record:
        """Return the facts of the task that a model stores."""
        listed = {*self.columns, *self.inputs.columns, self.label, *self.inputs.left_out}
        return {
            "features": list(self.columns),
            "lists": self.inputs.lists,
            **({"encoding": self.encoding.state()} if self.encoding else {}),
            "left_out": self.inputs.left_out,
            "others": [name for name in self.source.schema.names if name not in listed],
            "notes": self.notes,
            "standardize": self.scaling is not None and self.scaling.setting(keep_flags=self.keep_flags),
        }

    def hint_scaling(self, why: str) -> None:
        """Suggest standardised features once, if features are unscaled."""
        if self.scaling is None and not any(SCALING_HELPS in note for note in self.notes):
            self.note(f"{why}: {SCALING_HELPS}")

    def note_restart(self, before: Schedule, other: Schedule, of: str = "") -> None:
        """Log that training restarts at another rate; ``of`` names the affected models."""
        self.note(other.describe_restart(before, of))
        if other.learning_rate < before.learning_rate:
            self.hint_scaling("if features differ in scale")

    def note(self, text: str) -> None:
        """Add a note to the log and to the model."""
        self.notes.append(text)
        log.warning(text)


class BestEpoch(NamedTuple):
    """The weights of the epoch with the smallest held-out loss, for unscaled features."""

    epoch: int
    loss: float
    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]


class Training:
    """A training run, epoch by epoch.

    Args:
        task: The task.
        feeder: Reads the rows.
        schedule: The learning rates.
        past: The model of a warm start.
        params: The settings that the model records.
        adaptive: Whether the learning rate is a default: it is lowered if an epoch diverges or a regression plateaus,
            and raised for labels far from 0.
        on_rows: Called with numbers of trained rows; a negative number undoes those of an epoch that restarts.
        ranks: The ranks that train the same model.
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
        self._learn = partial(passes.learn, weight=task.weight) if ranks is None else partial(learn, ranks)
        self.task, self.schedule = task, schedule
        self.history = [dict(record) for record in past.history] if past else []
        self._feeder, self._past, self._params = feeder, past, params
        self._adaptive, self._may_restart = adaptive, adaptive and not self.history
        self._on_rows, self._rows_reported = on_rows, 0
        self._baseline: Baseline | None = None
        self._best = self._past_best()
        self._scaled = self._scale_cached()
        self._new_sgd()

    def run(
        self,
        epochs: int,
        measure: Callable[[Model], Record] | None,
        callback: Callable[[Record], object],
        save: Callable[[Model], object] | None,
    ) -> Model:
        """Train so many more epochs, or until a stopping rule holds, and return the model."""
        for epoch in range(len(self.history), len(self.history) + epochs):
            record = self._run_with_retry(epoch) if self._may_restart else self._epoch(epoch)
            if measure is not None:
                record |= measure(self._current_model())
            self.history.append(record)
            out_of_patience = self._reduce_on_plateau(record)
            callback(record)
            self._hint_scaling()
            stop = self.schedule.enough(recent_losses(self.history), epoch) or out_of_patience
            self._update_best()
            if save is not None:
                save(self.model())
            if stop:
                break
        self._note_outcome()
        model = self.model()
        if save is not None:
            save(model)
        return model

    def _reduce_on_plateau(self, record: Record) -> bool:
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
        if task.scaling is None or task.inputs.sparse or not self._feeder.kept():
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
        return same and self.sgd.state_rows == (0 if learnt.beside is None else len(learnt.beside))

    def _run_with_retry(self, epoch: int) -> Record:
        """Train an epoch; restart at another rate if it diverges or its labels are far from 0."""
        while True:
            try:
                record = self._epoch(epoch)
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

    def _update_best(self) -> None:
        """Lower the learning rate if a regression has plateaued because of its steps."""
        lowered_schedule = self.schedule.lowered()
        if self._adaptive and lowered_schedule is not None and self.sgd.has_plateaued(recent_losses(self.history)):
            self.schedule = lowered_schedule
            log.info("the loss has plateaued; the learning rate is reduced to a fifth")

    def _report_rows(self, rows: int) -> None:
        self._rows_reported += rows
        if self._on_rows is not None:
            self._on_rows(rows)

    def _epoch(self, epoch: int) -> Record:
        start, read = time.perf_counter(), self._feeder.bytes_read
        counted, self._rows_reported = None, 0
        if self._baseline is None:
            self._baseline = Baseline(self.task.kind, self.task.classes, self.task.class_weight)
            counted = self._baseline.add
        rate = self.schedule.rate(epoch)
        try:
            figures = self._learn(self.sgd, self._feeder, self.task.label, rate, epoch, self._report_rows, counted)
        except Diverged as error:
            standardized = self.task.scaling is not None
            raise self.schedule.diverged(epoch, str(error), standardized=standardized) from None
        return {
            "epoch": epoch,
            **figures.record(self.sgd.kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": self._feeder.bytes_read - read,
            **({"skipped": self.sgd.skipped} if self.sgd.skipped else {}),
        }

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
        if self._adaptive and step.same and self.schedule.learning_rate < step.usual / MIN_IDS:
            return "a few rows are far longer than all others and determine the learning rate; try step='normalized'"
        options = "" if self.task.scaling is not None else ", or standardize=True"
        return f"try more epochs or another {'step' if step.fixed else 'learning_rate'}{options}"
