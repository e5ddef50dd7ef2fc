"""One training: what is learnt from what, and the machine that does it, epoch by epoch."""

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from corgipile.errors import Diverged, DivergenceWarning
from corgipile.linear import passes
from corgipile.linear.baseline import Baseline
from corgipile.linear.beside import NaNs
from corgipile.linear.inputs import Inputs
from corgipile.linear.machine import Machine, OnBad
from corgipile.linear.model import Model
from corgipile.linear.scaling import Learnt, Scaling
from corgipile.linear.schedule import Schedule
from corgipile.loader.feeder import Feeder
from corgipile.tables.base import Table

__all__ = ["Course", "Task"]

LEAST_RATE = 1e-12
Record = dict[str, Any]
log = logging.getLogger("corgipile")


@dataclass
class Task:
    """What is learnt, from what."""

    source: Table
    inputs: Inputs
    label: str
    kind: str
    classes: npt.NDArray[Any]
    batch_size: int
    intercept: bool
    on_bad: OnBad
    scaling: Scaling | None = None
    notes: list[str] = field(default_factory=list)

    def table(self) -> NaNs:
        """Return the table as the learner reads it."""
        return NaNs(self.source, self.inputs, self.label, skip=self.on_bad == "skip")

    def machine(self, schedule: Schedule) -> Machine:
        """Return a machine that has learnt nothing yet."""
        return Machine(
            self.kind,
            self.inputs,
            self.classes,
            batch_size=self.batch_size,
            l2=schedule.l2,
            intercept=self.intercept,
            on_bad=self.on_bad,
            scaling=self.scaling,
        )

    def note(self, text: str) -> None:
        """Tell the user something, in the log and in the model."""
        self.notes.append(text)
        log.warning(text)


class Course:
    """One training: its machine, epoch by epoch."""

    def __init__(
        self,
        task: Task,
        feeder: Feeder,
        schedule: Schedule,
        past: Model | None,
        *,
        adaptive: bool,
        on_rows: Callable[[int], object] | None,
    ) -> None:
        self.task, self.schedule = task, schedule
        self._feeder, self._on_rows = feeder, on_rows
        self._adaptive = adaptive and (past is None or not past.history)
        self._baseline: Baseline | None = None
        self._past = past
        self._begin()

    def _begin(self) -> None:
        """Make a machine that has learnt what an earlier model had."""
        task, past = self.task, self._past
        self.machine = task.machine(self.schedule)
        if past is None:
            return
        coef, bias = past.coef, past.intercept
        if task.scaling is not None:
            same = past.learnt is not None and past.learnt.scaling is task.scaling
            coef, bias = past.learnt[1:] if same and past.learnt else task.scaling.unfold(coef, bias)
        self.machine.assign(coef, bias)

    def epoch(self, epoch: int) -> Record:
        """Run an epoch; the first one again, at a tenth of the learning rate, where a rate nobody chose diverges."""
        while True:
            try:
                record = self._epoch(epoch)
            except Diverged:
                if not self._adaptive or self.schedule.learning_rate < LEAST_RATE:
                    raise
            else:
                drifts = self._baseline is not None and self._baseline.adrift(record["loss"])
                if not self._adaptive or not drifts or self.schedule.learning_rate < LEAST_RATE:
                    self._adaptive = False
                    return record
            rate = self.schedule.learning_rate
            self.schedule, self._baseline = replace(self.schedule, learning_rate=rate / 10), None
            self.task.note(f"learning rate {rate:g} diverges; beginning again at {rate / 10:g}")
            self._begin()

    def _epoch(self, epoch: int) -> Record:
        start, read = time.perf_counter(), self._feeder.bytes_read
        counted = None
        if self._baseline is None:
            self._baseline = Baseline(self.task.kind, self.task.classes)
            counted = self._baseline.add
        rate = self.schedule.rate(epoch)
        try:
            figures = passes.learn(self.machine, self._feeder, self.task.label, rate, epoch, self._on_rows, counted)
        except Diverged as error:
            standardized = self.task.scaling is not None
            raise self.schedule.diverged(epoch, str(error), standardized=standardized) from None
        return {
            "epoch": epoch,
            **figures.record(self.machine.kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": self._feeder.bytes_read - read,
            **({"skipped": self.machine.skipped} if self.machine.skipped else {}),
        }

    def model(self, params: Record, history: list[Record]) -> Model:
        """Return what was learnt so far, for features as they are."""
        coef, bias = self.machine.weights()
        learnt = None
        if self.task.scaling is not None:
            learnt = Learnt(self.task.scaling, coef, bias)
            coef, bias = self.task.scaling.fold(coef, bias)
        return Model(self.task.kind, coef, bias, self.task.classes, params, history, learnt)

    def judge(self, history: list[Record]) -> None:
        """Tell the user where the last epoch was worse than no model."""
        base = self._baseline
        if base is None:
            return
        loss, cure = history[-1]["loss"], self.schedule.cure(standardized=self.task.scaling is not None)
        if base.adrift(loss):
            text = (
                f"training diverged: the loss is {loss:.4g} after the last epoch, "
                f"that of a model that always says the same {base.constant():.4g}; {cure}"
            )
            self.task.notes.append(text)
            warnings.warn(text, DivergenceWarning, stacklevel=3)
        elif base.idle(loss):
            self.task.note(
                f"the loss is {loss:.4g} after the last epoch, that of a model that always says the same "
                f"{base.constant():.4g}: nothing was learnt yet; more epochs or another learning_rate may help"
            )
