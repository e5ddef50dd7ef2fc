"""Trains one model per value of a column, all in the same pass."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from corgipile.errors import BadArgument
from corgipile.linear import passes
from corgipile.linear.divergence import GroupBaselines
from corgipile.linear.fit import StackTraining, memory_beside
from corgipile.linear.group_sgd import GroupSGD
from corgipile.linear.group_values import Codes, Value, Values, find_groups
from corgipile.linear.groups import Groups
from corgipile.linear.model import Model
from corgipile.linear.problem import Record, Task, order_of, prepare
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import Figures
from corgipile.settings import TrainArguments
from corgipile.sizes import Size, parse_bytes
from corgipile.steps import step_of
from corgipile.tables.table import Table

__all__ = ["check_by", "groups_of", "train_groups"]

ROW_OVERHEAD = 16  # bytes per row: its number in the buffer and in the visit
log = logging.getLogger("corgipile")


def train_groups(
    given: TrainArguments, schedule: Schedule, opened: Table, save: Callable[[Model], object] | None
) -> Model:
    """Train as `corgipile.train` does, one model per value of a column."""
    check_by(given)
    task = prepare(opened, given, classes=given.classes, on_bad=given.on_bad)
    groups, codes, memory = groups_of(given, task, opened, task.sgd(schedule).bytes)
    known = Values(str(given.by), groups)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        training = GroupTraining(task.with_statistics(), feeder, schedule, given, known=known, codes=codes)
        return training.run(given.epochs, None, given.callback, save)


def check_by(given: TrainArguments) -> None:
    """Raise BadArgument if the group column has another part."""
    for name in ("label", "weight"):
        if given.by is not None and given.by == getattr(given, name):
            raise BadArgument(f"by={given.by!r} is the {name} column; give another one")


def groups_of(given: TrainArguments, task: Task, opened: Table, each: int) -> tuple[list[Value], Codes, Size | None]:
    """Return the groups, the group number of each row, and the memory for rows; a model takes ``each`` bytes."""
    memory, limit, describe = given.memory, math.inf, partial(_describe_memory, len(task.source))
    if memory is not None:
        limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes) / 2 / each
    how = limit, lambda count: f"for {count} groups {describe(count, each)}"
    groups, codes = find_groups(opened, str(given.by), *how)
    if memory is not None:
        left = memory_beside(memory, task, codes.nbytes + each * len(groups), describe(len(groups), each))
        memory = max(1, int(left * task.row_bytes / (task.row_bytes + ROW_OVERHEAD)))
    return groups, codes, memory


def _describe_memory(rows: int, groups: int, each: int) -> str:
    """Return the bytes of models and group numbers as text, with the memory that suffices."""
    models, codes = groups * each, rows * np.min_scalar_type(groups).itemsize
    taken = f"models by group take {models} bytes and the groups of {rows} rows {codes}"
    return f"{taken}; give memory={2 * (codes + models)}"


class GroupTraining(StackTraining):
    """A training run of models by group; ``codes`` is the group number of each row."""

    def __init__(self, *how: Any, known: Values, codes: Codes) -> None:
        self._groups, self._by, self._codes = [*known.number_of], known.column, codes
        super().__init__(*how, by=self._by, groups=self._groups)
        task, schedule = self.task, self.schedule
        rows = np.bincount(codes, minlength=len(self._groups)).tolist()
        self.sgd = task.new_sgd(partial(GroupSGD, rows, known.describe), schedule)
        self._schedules: list[Schedule] = [schedule] * len(rows)
        self._losses: list[list[float]] = [[] for _ in rows]
        self._base = GroupBaselines(task.loss, task.classes, len(rows), task.class_weight)
        self._running = np.ones(len(rows), np.bool_)  # groups that learn: all, or only those that restart

    def _pass(self, epoch: int, *, first: bool) -> int:
        if first:
            self._running[:] = True
        self.sgd.learning[:] = self._running
        self.sgd.tried[:] = [self._adaptive and schedule.lowered() is not None for schedule in self._schedules]
        rates, count = [schedule.rate(epoch) for schedule in self._schedules], first and not epoch
        on_labels, route = self._base.add if count else None, self._codes.__getitem__
        how = self.task.label, rates, epoch, self._on_rows, on_labels, self.task.weight, route
        rows = passes.visit_all(self.sgd, self._feeder, *how)
        self._total = self.sgd.flush()
        return rows

    def _restart(self) -> bool:
        if not self._adaptive:
            return False
        sgd, restarts = self.sgd, np.zeros_like(self._running)
        by_change = defaultdict[tuple[Schedule, Schedule], list[int]](list)
        for at in np.flatnonzero(self._running).tolist():
            loss = sgd.each[at].loss if sgd.learning[at] else math.nan
            other = self._schedules[at].restarted(self._base, at, loss)
            if other is not None:
                by_change[self._schedules[at], other].append(at)
                self._schedules[at], restarts[at] = other, True
                sgd.forget(at)
        for (before, other), groups in by_change.items():
            which = _listed([self._groups[at] for at in groups])
            of = f" in {len(groups)} of {len(self._groups)} groups of {self._by!r}, {which}"
            self.task.note_restart(before, other, of)
        self._running = restarts
        return bool(restarts.any())

    def _figures(self) -> Figures:
        return passes.check_figures(self._total, self.sgd, self._feeder)

    def _stops(self, record: Record) -> bool:
        """Lower the learning rates of groups whose losses have plateaued."""
        for at, figures in enumerate(self.sgd.each if self._adaptive else ()):
            self._losses[at].append(figures.loss)
            lower = self._schedules[at].lowered()
            if lower is not None and self.sgd.group_has_plateaued(at, self._losses[at]):
                self._schedules[at] = lower
        return super()._stops(record)

    def _current_model(self) -> Model:
        each = self.sgd.each or [Figures(0, 0.0, 0.0)] * len(self._groups)
        figures: dict[str, Any] = {"rows": [one.rows for one in each], "loss": [one.loss for one in each]}
        figures[self.task.loss.score] = [one.score for one in each]
        return self._models(Groups, self.sgd.weights(), self._schedules, of_groups=figures)

    def _note_outcome(self) -> None:
        rows = [one.rows for one in self.sgd.each]
        log.info("models of %d groups of %r", len(rows), self._by)
        if not rows:
            return
        for count, what in enumerate(("no row to train on; their models are constant", "one row")):
            found = [self._groups[at] for at, one in enumerate(rows) if one == count]
            if found:
                self.task.note(f"{len(found)} of {len(rows)} groups of {self._by!r} have {what}: {_listed(found)}")
        self._note_idle()

    def _note_idle(self) -> None:
        """Note groups whose models are worse than a constant predictor."""
        idle = [at for at, one in enumerate(self.sgd.each) if self._base.learnt_nothing(at, one)]
        if not idle:
            return
        one, what = idle[0], "step" if step_of(self.schedule.step).fixed else "learning_rate"
        figures, named = self.sgd.each[one], _listed([self._groups[at] for at in idle])
        self.task.note(
            f"nothing was learnt yet in {len(idle)} of {len(self._groups)} groups of {self._by!r}, {named}: after the "
            f"last epoch the loss of the first is {figures.loss:.4g}, that of a constant prediction "
            f"{self._base.constant(one, figures):.4g}; try more epochs or another {what}"
        )


def _listed(values: list[Value], limit: int = 5) -> str:
    text = ", ".join("null" if value is None else repr(value) for value in values[:limit])
    return text + (f" and {len(values) - limit} more" if len(values) > limit else "")
