"""One training: what is learnt from what, and the kernel that learns it, epoch by epoch."""

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
from corgipile.linear.weights_memory import left_for_rows
from corgipile.loader.buffered_reader import ALL, BufferedReader
from corgipile.losses import Loss, loss_of
from corgipile.orders import Shard
from corgipile.sizes import OnBad, Size
from corgipile.steps import step_of
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table

__all__ = ["Task", "Training"]

MANY = 100  # classes that may be ids, and the largest cut of a rate
SCALING_HELPS = "standardize=True would help"
HOW = ("average", "step", "l1")  # settings that say what is known beside the weights
Record = dict[str, Any]
K = TypeVar("K", bound=SGD)
log = logging.getLogger("corgipile")


@dataclass
class Task:
    """What is learnt, from what; ``weight`` is the column of what rows count for, ``weighs`` what classes are to."""

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
    weighs: str | Mapping[str, float] | None = None
    class_weight: npt.NDArray[np.float64] | None = None
    standardize: bool = False
    keep_flags: bool = False  # leave features of 0 and 1 unscaled, if standardize was not given
    scaling: Scaling | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Return the classes; where no order has read the labels, they are read now."""
        return self.labels.find()

    @property
    def loss(self) -> Loss:
        """Return what is made small."""
        return loss_of(self.kind, len(self.classes))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the feature columns as the table stores them."""
        return self.inputs.columns if self.encoding is None else self.encoding.columns

    @property
    def row_bytes(self) -> float:
        """Return the bytes of a row as it is stored: its features, its label and what it counts for."""
        return row_bytes(self.source, [*self.inputs.columns, self.label, *filter(None, [self.weight])])

    def table(self) -> NullsAsNaN:
        """Return the table with nulls as NaN."""
        return NullsAsNaN(self.source, self.inputs, self.label, self.weight, skip=self.on_bad == "skip")

    def feeder(
        self, order: Any, memory: Size | None, seed: int, shard: Shard = ALL, *, keep: bool = False
    ) -> BufferedReader:
        """Open a reader of the training rows, or of a rank's share of them; few rows may be kept."""
        rows, sketch = (self.table(), self.label, order, left_for_rows(self, memory), seed), self.labels.sketch
        also: dict[str, Any] = {"weight": self.weight, "shard": shard, "update": self.batch_size, "keep": keep}
        return self.inputs.feeder(*rows, sketch=sketch, **also)

    def surveyed(self, feeder: BufferedReader | None = None) -> Self:
        """Read the labels, where nobody has, and the features if they are to be standardised; return what is known.

        Features that a feeder keeps are not read again.
        """
        classes, rows = self.labels.find(), len(self.source)
        if len(classes) > MANY and 2 * len(classes) > rows:
            self.note(f"label {self.label!r} has {len(classes)} values in {rows} rows: is it an id, not a class?")
        found = replace(self, class_weight=weights_of(self.weighs, self.labels, self.kind))
        if not self.standardize or self.scaling is not None:
            return found
        moments, centred = passes.moments(self.inputs, self.table(), feeder), not self.inputs.sparse and self.intercept
        return replace(found, scaling=moments.scaling(centred=centred, keep_flags=self.keep_flags))

    def sgd(self, schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> SGD:
        """Return an SGD kernel that has learnt nothing yet, and scales rows itself if they are to be.

        Args:
            schedule: Its rates.
            scaled: Whether it does.
            left_out: Rows of the table that it does not see.
        """
        return self.made(SGD, schedule, scaled=scaled, left_out=left_out)

    def made(self, make: Callable[..., K], schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> K:
        """Return what a kind of SGD kernel, or kernels, is for this task."""
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
        """Return what a model says of its task."""
        said = {*self.columns, *self.inputs.columns, self.label, *self.inputs.left_out}
        return {
            "features": list(self.columns),
            "lists": self.inputs.lists,
            **({"encoding": self.encoding.state()} if self.encoding else {}),
            "left_out": self.inputs.left_out,
            "others": [name for name in self.source.schema.names if name not in said],
            "notes": self.notes,
            "standardize": self.scaling is not None and self.scaling.setting(keep_flags=self.keep_flags),
        }

    def hint_scaling(self, why: str) -> None:
        """Suggest standardised features once, if features are unscaled."""
        if self.scaling is None and not any(SCALING_HELPS in note for note in self.notes):
            self.note(f"{why}: {SCALING_HELPS}")

    def note_restart(self, before: Schedule, other: Schedule, of: str = "") -> None:
        """Log that training restarts at another rate; ``of`` names the affected models."""
        self.note(other.begins_again(before, of))
        if other.learning_rate < before.learning_rate:
            self.hint_scaling("if the scale of features is to blame")

    def note(self, text: str) -> None:
        """Tell the user something, in the log and in the model."""
        self.notes.append(text)
        log.warning(text)


class Best(NamedTuple):
    """The weights of the epoch with the least loss on held-out rows, for features as they are."""

    epoch: int
    loss: float
    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]


class Training:
    """One training, epoch by epoch.

    Args:
        task: What is learnt.
        feeder: The rows.
        schedule: The learning rates.
        past: The model to go on from.
        params: What the model is to say of how it was trained.
        adaptive: Whether nobody chose the learning rate, so that it is lowered where an epoch diverges, or a regression
            comes to rest, and raised where labels are far off.
        on_rows: Told of rows learnt; by a negative number of those that are to be learnt again.
        ranks: Who learns besides.
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
        self._adaptive, self._trying = adaptive, adaptive and not self.history
        self._on_rows, self._told = on_rows, 0
        self._baseline: Baseline | None = None
        self._best = self._known_best()
        self._scaled = self._scale_kept()
        self._begin()

    def run(
        self,
        epochs: int,
        measure: Callable[[Model], Record] | None,
        callback: Callable[[Record], object],
        save: Callable[[Model], object] | None,
    ) -> Model:
        """Run so many epochs more, or as many as bring something, and return the model."""
        for epoch in range(len(self.history), len(self.history) + epochs):
            record = self._run_with_retry(epoch) if self._trying else self._epoch(epoch)
            if measure is not None:
                record |= measure(self._present())
            self.history.append(record)
            waited = self._reduce_on_plateau(record)
            callback(record)
            self._hint_scaling()
            stop = self.schedule.enough(recent_losses(self.history), epoch) or waited
            self._update_best()
            if save is not None:
                save(self.model())
            if stop:
                break
        self._judge()
        model = self.model()
        if save is not None:
            save(model)
        return model

    def _reduce_on_plateau(self, record: Record) -> bool:
        """Keep the weights if they are the best so far; say whether it is long that they were."""
        patience = self._params.get("patience")
        if patience is None:
            return False
        if self._best is None or record["test_loss"] < self._best.loss:
            present = self._present()
            self._best = Best(record["epoch"], record["test_loss"], present.coef, present.intercept)
        return bool(record["epoch"] - self._best.epoch >= patience)

    def _known_best(self) -> "Best | None":
        """Return the best epoch of an earlier model, if it kept one and this one does."""
        past = self._past
        if past is None or self._params.get("patience") is None or "best_epoch" not in past.params:
            return None
        epoch = past.params["best_epoch"]
        return Best(epoch, past.history[epoch]["test_loss"], past.coef, past.intercept)

    def _scale_kept(self) -> bool:
        """Standardise dense rows that stay in memory once for all epochs; say whether they are so now."""
        task = self.task
        if task.scaling is None or task.inputs.sparse or not self._feeder.kept():
            return False
        rows = self._feeder.buffer.dense(task.inputs.name)
        task.scaling.apply(rows.reshape(len(rows), -1))
        return True

    def _begin(self) -> None:
        """Make an SGD kernel that has learnt what an earlier model had."""
        task, past = self.task, self._past
        self.sgd = task.sgd(self.schedule, scaled=not self._scaled)
        if past is None:
            return
        coef, bias, beside = past.coef, past.intercept, None
        if (learnt := past.learnt) is not None and learnt.scaling is task.scaling and self._alike(learnt):
            _, coef, bias, beside = learnt
        elif task.scaling is not None:
            coef, bias = task.scaling.unfold(coef, bias)
        self.sgd.assign(coef, bias, beside)

    def _alike(self, learnt: Learnt) -> bool:
        """Say whether an earlier model was learnt in the same way: what it knew beside its weights is then of use."""
        past, now = self._past.params if self._past else {}, self._params
        same = all(past.get(name, now[name]) == now[name] for name in HOW)
        return same and self.sgd.lines == (0 if learnt.beside is None else len(learnt.beside))

    def _run_with_retry(self, epoch: int) -> Record:
        """Run an epoch; from nothing, at another rate, where it diverges or its labels are far off."""
        while True:
            try:
                record = self._epoch(epoch)
                other = None if self._baseline is None else self.schedule.again(self._baseline, 0, record["loss"])
                if other is None:
                    return record
            except Diverged:
                if (other := self.schedule.lowered()) is None:
                    raise
            self._restart(other)

    def _restart(self, other: Schedule) -> None:
        self.task.note_restart(self.schedule, other)
        self.schedule, self._baseline = other, None
        self._tell(-self._told)
        del self.sgd  # two at a time would be beyond the budget
        self._begin()

    def _update_best(self) -> None:
        """Take a lower learning rate where a regression stands still and its steps are to blame."""
        lower = self.schedule.lowered()
        if self._adaptive and lower is not None and self.sgd.has_plateaued(recent_losses(self.history)):
            self.schedule = lower
            log.info("the loss stands still; going on with a fifth of the learning rate")

    def _tell(self, rows: int) -> None:
        self._told += rows
        if self._on_rows is not None:
            self._on_rows(rows)

    def _epoch(self, epoch: int) -> Record:
        start, read = time.perf_counter(), self._feeder.bytes_read
        counted, self._told = None, 0
        if self._baseline is None:
            self._baseline = Baseline(self.task.kind, self.task.classes, self.task.class_weight)
            counted = self._baseline.add
        rate = self.schedule.rate(epoch)
        try:
            figures = self._learn(self.sgd, self._feeder, self.task.label, rate, epoch, self._tell, counted)
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
        """Return what was learnt so far: the weights of the best epoch, if it was asked for, else the present ones."""
        model, best = self._present(), self._best
        if best is None:
            return model
        learnt = model.learnt or Learnt(None, *self.sgd.last())
        params = {**model.params, "best_epoch": best.epoch}
        return replace(model, coef=best.coef, intercept=best.intercept, params=params, learnt=learnt)

    def _present(self) -> Model:
        """Return what was learnt so far, for features as they are."""
        coef, bias = self.sgd.weights()
        learnt, beside, scaling = None, self.sgd.beside(), self.task.scaling
        if scaling is not None or beside is not None:
            learnt = Learnt(scaling, *self.sgd.last(), beside)
        if scaling is not None:
            coef, bias = scaling.fold(coef, bias)
        params = {**self._params, "learning_rate": self.schedule.learning_rate}
        return Model(self.task.kind, coef, bias, self.task.classes, params, self.history, learnt)

    def _hint_scaling(self) -> None:
        """Suggest standardised features if the first two epochs learnt nothing."""
        base = self._baseline
        if len(self.history) == 2 and base is not None and base.idle(self.history[-1]["loss"]):
            self.task.hint_scaling("two epochs were no better than a constant prediction; if features differ in scale")

    def _judge(self) -> None:
        """Tell the user where the last epoch was worse than no model."""
        base = self._baseline
        if base is None:
            return
        loss, cure = self.history[-1]["loss"], self.schedule.cure(standardized=self.task.scaling is not None)
        if base.adrift(loss):
            text = (
                f"training diverged: the loss is {loss:.4g} after the last epoch, "
                f"that of a model that always says the same {base.constant():.4g}; {cure}"
            )
            self.task.notes.append(text)
            warnings.warn(text, DivergenceWarning, stacklevel=4)
        elif base.idle(loss):
            nothing = ": nothing was learnt yet" * (not base.tells(self.history[-1].get("accuracy", 0.0)))
            self.task.note(
                f"the loss is {loss:.4g} after the last epoch, that of a model that always says the same "
                f"{base.constant():.4g}{nothing}; {self._help()}"
            )

    def _help(self) -> str:
        """Say what would help where nothing was learnt."""
        step = step_of(self.schedule.step)
        if self._adaptive and step.same and self.schedule.learning_rate < step.usual / MANY:
            return (
                "a few rows are far longer than all others, and steps short enough for them; step='normalized' may help"
            )
        also = "" if self.task.scaling is not None else ", or standardize=True,"
        return f"more epochs or another {'step' if step.fixed else 'learning_rate'}{also} may help"
