"""Trains several models in the same passes: by group, or by label."""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from corgipile.errors import BudgetTooSmall, Diverged
from corgipile.linear.fit import Meter, Trainer
from corgipile.linear.model import Model
from corgipile.linear.multi_model import RATES
from corgipile.linear.problem import Record, Task
from corgipile.linear.scaling import Learnt
from corgipile.linear.schedule import Schedule, recent_losses
from corgipile.linear.sgd import Figures
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.settings import TrainArguments
from corgipile.sizes import Size, parse_bytes

__all__ = ["StackTraining", "memory_beside"]


def memory_beside(memory: Size, task: Task, used: int, what: str) -> int:
    """Return the memory for rows, without that for models and what routes rows to them.

    Raises:
        BudgetTooSmall: Those take more than half.
    """
    limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes)
    if used > limit // 2:
        raise BudgetTooSmall(f"memory is {memory!r}: {what}")
    return limit - used


class StackTraining(Trainer):
    """A training run of several models; those whose default rate diverges begin the epoch again.

    Args:
        task: The task.
        feeder: Reads the rows.
        schedule: The learning rates.
        given: The settings.
        **params: The parameters that only several models have.
    """

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
