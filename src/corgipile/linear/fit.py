"""The loop over epochs that all trainers share."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from corgipile.errors import BudgetTooSmall, Diverged
from corgipile.linear.model import Model
from corgipile.linear.multi_model import RATES
from corgipile.linear.problem import Record, Task
from corgipile.linear.scaling import Learnt
from corgipile.linear.schedule import Schedule, recent_losses
from corgipile.linear.sgd import Figures
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.settings import TrainArguments
from corgipile.sizes import Size, parse_bytes

__all__ = ["Meter", "StackTraining", "Trainer", "memory_beside"]


class Meter:
    """Measures an epoch."""

    def __init__(self, feeder: BufferedReader) -> None:
        self._feeder, self._start, self._read = feeder, time.perf_counter(), feeder.bytes_read

    def record(self, epoch: int, kind: str, figures: Figures, skipped: int, **more: Any) -> Record:
        """Return the record of an epoch."""
        return {
            "epoch": epoch,
            **figures.record(kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - self._start,
            "bytes_read": self._feeder.bytes_read - self._read,
            **more,
            **({"skipped": skipped} if skipped else {}),
        }


class Trainer:
    """A training run, epoch by epoch, after the records of a warm start, ``past``.

    ``on_rows`` is called with numbers of trained rows; a negative number undoes those of an epoch that restarts.
    """

    def __init__(
        self,
        task: Task,
        feeder: BufferedReader,
        params: Record,
        past: Sequence[Record] = (),
        on_rows: Callable[[int], object] | None = None,
    ) -> None:
        self.task, self._feeder, self._params = task, feeder, params
        self.history = [dict(record) for record in past]
        self._on_rows = on_rows or (lambda _: None)

    def run(
        self,
        epochs: int,
        measure: Callable[[Model], Record] | None = None,
        callback: Callable[[Record], object] | None = None,
        save: Callable[[Model], object] | None = None,
    ) -> Model:
        """Train so many more epochs, or until a stopping rule holds, and return the model."""
        first = len(self.history)
        for epoch in range(first, first + epochs):
            record = self._epoch(epoch, last=epoch + 1 == first + epochs)
            if measure is not None:
                record |= measure(self._current_model())
            self.history.append(record)
            if callback is not None:
                callback(record)
            stop = self._stops(record)
            if save is not None:
                save(self.model())
            if stop:
                break
        self._note_outcome()
        model = self.model()
        if save is not None:
            save(model)
        return model

    def model(self) -> Model:
        """Return the model to save."""
        return self._current_model()

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        """Train an epoch and return its record."""
        raise NotImplementedError

    def _current_model(self) -> Model:
        """Return the model with the current weights, for unscaled features."""
        raise NotImplementedError

    def _stops(self, record: Record) -> bool:
        """Return whether training ends after an epoch; adjust learning rates for the next."""
        raise NotImplementedError

    def _note_outcome(self) -> None:
        """Add notes after the last epoch."""


def memory_beside(memory: Size, task: Task, used: int, what: str) -> int:
    """Return the memory for rows, without that for models and what routes rows to them, which may take half."""
    limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes)
    if used > limit // 2:
        raise BudgetTooSmall(f"memory is {memory!r}: {what}")
    return limit - used


class StackTraining(Trainer):
    """A training run of several models; those whose default rate diverges begin the epoch again."""

    def __init__(
        self, task: Task, feeder: BufferedReader, schedule: Schedule, given: TrainArguments, **params: Any
    ) -> None:
        super().__init__(task, feeder, task.params(given, feeder, schedule.step) | params, on_rows=given.on_rows)
        self.schedule, self._adaptive = schedule, given.learning_rate is None

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        task, first = self.task, True
        try:
            while True:
                meter = Meter(self._feeder)
                rows = self._pass(epoch, first=first)
                if not self._restart():
                    break
                self._on_rows(-rows)
                first = False
            figures = self._figures()
        except Diverged as error:
            raise self.schedule.diverged(epoch, str(error), standardized=task.scaling is not None) from None
        return meter.record(epoch, task.kind, figures, rows - figures.rows)

    def _stops(self, record: Record) -> bool:
        return self.schedule.enough(recent_losses(self.history), record["epoch"])

    def _models(
        self,
        kind: type[Model],
        weights: tuple[npt.NDArray[Any], npt.NDArray[Any]],
        schedules: Sequence[Schedule],
        **params: Any,
    ) -> Model:
        """Return the current models, for unscaled features."""
        (coef, bias), learnt, task = weights, None, self.task
        if task.scaling is not None:
            learnt = Learnt(task.scaling, coef, bias)
            coef, bias = task.scaling.fold(coef, bias)
        rates = [schedule.learning_rate for schedule in schedules]
        params |= {RATES: rates} if len({*rates}) > 1 else {"learning_rate": rates[0]}
        return kind(task.kind, coef, bias, task.classes, self._params | params, self.history, learnt)

    def _pass(self, epoch: int, *, first: bool) -> int:
        """Train the models that learn on their rows; return the number of all rows."""
        raise NotImplementedError

    def _restart(self) -> bool:
        """Reset diverged models with lower learning rates; return whether there are any."""
        raise NotImplementedError

    def _figures(self) -> Figures:
        """Return the figures of all models together."""
        raise NotImplementedError
