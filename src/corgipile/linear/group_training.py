"""Trains one model per value of a column, all in the same pass."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from reprlib import repr as short

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BudgetTooSmall, Diverged
from corgipile.linear import passes
from corgipile.linear.group_baselines import GroupBaselines
from corgipile.linear.group_sgd import GroupSGD
from corgipile.linear.group_values import Codes, Value, Values, find_groups
from corgipile.linear.groups import Groups
from corgipile.linear.model import Model
from corgipile.linear.multi_model import HELD_OUT, rates_of, unscale
from corgipile.linear.schedule import Schedule, recent_losses, schedule_of
from corgipile.linear.sgd import Figures, rows_in
from corgipile.linear.train import open_source, order_of, prepare
from corgipile.linear.training import Record, Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.settings import TrainArguments, TrainSettings, declared
from corgipile.sizes import Size, parse_bytes
from corgipile.steps import step_of
from corgipile.tables.table import Table

__all__ = ["GroupTraining", "train_groups"]

NOT_BY_GROUP = ("solver", "inner", "warm_start", "test", "validation", "group", "patience")
ROW_OVERHEAD = 16  # bytes per row: its number in the buffer and in the visit
log = logging.getLogger("corgipile")


def train_groups(given: TrainArguments) -> Groups:
    """Train as `corgipile.train` does, one model per value of a column.

    Raises:
        BadArgument: A setting is not supported with groups.
        BudgetTooSmall: Models and group numbers take more than half of the memory.
    """
    _check_alone(given)
    schedule = schedule_of(given, given.tolerance)
    opened = open_source(given)
    task = prepare(opened, given, classes=given.classes, on_bad=given.on_bad)
    training = GroupTraining(opened, task, schedule, given)
    with task.feeder(order_of(given.order, given.memory), training.memory, given.seed) as feeder:
        save = None if given.save is None else partial(Model.save, path=given.save, overwrite=given.overwrite)
        return training.run(task.with_statistics(), feeder, save or (lambda _: None))


def _check_alone(given: TrainArguments) -> None:
    """Raise BadArgument for settings that groups do not support."""
    for name in NOT_BY_GROUP:
        if getattr(given, name) != declared(TrainArguments)[name].default:
            also = f"; {HELD_OUT}" if name in ("test", "validation") else ""
            raise BadArgument(
                f"{name} is for one model, got {name}={short(getattr(given, name))} with by={given.by!r}{also}"
            )
    for name in ("label", "weight"):
        if given.by == getattr(given, name):
            raise BadArgument(f"by={given.by!r} is the {name} column; give another one")


def _row_memory(given: TrainArguments, task: Task, codes: Codes, models: int) -> Size | None:
    """Return the memory for rows, without that for models and group numbers.

    Raises:
        BudgetTooSmall: Those take more than half.
    """
    if given.memory is None:
        return None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=len(task.source) * width)
    if codes.nbytes + models > memory // 2:
        raise BudgetTooSmall(f"memory is {given.memory!r}: {_describe_memory(len(codes), codes.nbytes, models)}")
    return max(1, int((memory - codes.nbytes - models) * width / (width + ROW_OVERHEAD)))


def _describe_memory(rows: int, codes: int, models: int) -> str:
    """Return the bytes of models and group numbers as text, with the memory that suffices."""
    return (
        f"models by group take {models} bytes and the groups of {rows} rows {codes}; give memory={2 * (codes + models)}"
    )


class GroupTraining:
    """A training run of models by group.

    Args:
        source: The rows, with the group column.
        task: The task.
        schedule: The learning rates.
        given: The settings.
    """

    def __init__(self, source: Table, task: Task, schedule: Schedule, given: TrainArguments) -> None:
        assert given.by is not None  # noqa: S101 - for the type checker: the caller checked it
        self.schedule, self.history = schedule, list[Record]()
        self._given, self._by = given, given.by
        self.groups, self.codes = find_groups(source, given.by, *self._max_groups(task))
        self._known = Values(given.by, self.groups)
        self.sgd = self._sgd(task, [1])
        self._schedules: list[Schedule] = [schedule] * len(self.groups)
        self._losses: list[list[float]] = [[] for _ in self.groups]
        self._base = GroupBaselines(task.loss, task.classes, len(self.groups), task.class_weight)
        self.memory = _row_memory(given, task, self.codes, self.sgd.bytes * len(self.groups))

    def _max_groups(self, task: Task) -> tuple[float, Callable[[int], str]]:
        """Return how many models fit half of the memory, and a function that describes the memory of n groups."""
        each, rows = task.new_sgd(partial(GroupSGD, [1], str), self.schedule).bytes, len(task.source)

        def describe(groups: int) -> str:
            codes = rows * np.min_scalar_type(groups).itemsize
            return f"for {groups} groups {_describe_memory(rows, codes, groups * each)}"

        if self._given.memory is None:
            return math.inf, describe
        memory = parse_bytes(self._given.memory, whole=rows * task.row_bytes)
        return memory / 2 / each, describe

    def _sgd(self, task: Task, groups: Sequence[int]) -> GroupSGD:
        return task.new_sgd(partial(GroupSGD, groups, self._known.describe), self.schedule)

    def run(self, task: Task, feeder: BufferedReader, save: Callable[[Groups], object]) -> Groups:
        """Train all epochs and return the models."""
        given = self._given
        self.sgd = self._sgd(task, np.bincount(self.codes, minlength=len(self.groups)).tolist())
        params = {name: getattr(given, name) for name in declared(TrainSettings)} | task.facts()
        params["average"] = task.average
        params |= feeder.facts() | {"adaptive": given.learning_rate is None, "step": self.schedule.step}
        params |= {"by": self._by, "groups": self.groups}
        models = self._models(task, params, [])
        for epoch in range(given.epochs):
            self.history.append(self._epoch(task, feeder, epoch))
            if given.callback is not None:
                given.callback(self.history[-1])
            self._update_best()
            models = self._models(task, params, self.sgd.each)
            save(models)
            if self.schedule.enough(recent_losses(self.history), epoch):
                break
        self._note_groups(task)
        save(models)
        return models

    def _epoch(self, task: Task, feeder: BufferedReader, epoch: int) -> Record:
        sgd, lowers = self.sgd, self._given.learning_rate is None
        running, count = np.ones(len(self.groups), np.bool_), not epoch
        try:
            while True:
                sgd.learning[:] = running
                start, read = time.perf_counter(), feeder.bytes_read
                sgd.tried[:] = [lowers and schedule.lowered() is not None for schedule in self._schedules]
                rows = self._pass(task, feeder, epoch, count=count)
                figures = sgd.flush()
                count = False
                if not (lowers and (running := self._lower(task, running)).any()):
                    break
                if self._given.on_rows is not None:
                    self._given.on_rows(-rows)
            figures = passes.check_figures(figures, sgd, feeder)
        except Diverged as error:
            raise self.schedule.diverged(epoch, str(error), standardized=task.scaling is not None) from None
        return {
            "epoch": epoch,
            **figures.record(sgd.kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": feeder.bytes_read - read,
            **({"skipped": rows - figures.rows} if rows > figures.rows else {}),
        }

    def _pass(self, task: Task, feeder: BufferedReader, epoch: int, *, count: bool) -> int:
        """Train the learning groups on their rows, and count labels; return the number of rows of all groups."""
        seen, sgd = 0, self.sgd
        sgd.begin([schedule.rate(epoch) for schedule in self._schedules])
        for step, (visit, rows) in enumerate(zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True)):
            labels = feeder.buffer.dense(task.label)
            weights = None if task.weight is None else feeder.buffer.dense(task.weight)
            locate = passes.row_at(feeder, epoch, step)
            features = rows_in(feeder.buffer, task.inputs, visit)
            if count:
                self._base.add_each(labels[visit], None if weights is None else weights[visit], self.codes[rows])
            sgd.learn_groups(features, labels, visit, self.codes[rows], locate, weights)
            seen += len(visit)
            if self._given.on_rows is not None:
                self._given.on_rows(len(visit))
        return seen

    def _lower(self, task: Task, running: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Reset diverged groups and lower their learning rates; return which groups restart."""
        sgd, restarts = self.sgd, np.zeros_like(running)
        by_change = defaultdict[tuple[Schedule, Schedule], list[int]](list)
        for at in np.flatnonzero(running).tolist():
            lowered = self._schedules[at].restarted(self._base, at, sgd.each[at].loss if sgd.learning[at] else math.nan)
            if lowered is not None:
                by_change[self._schedules[at], lowered].append(at)
                self._schedules[at], restarts[at] = lowered, True
                sgd.forget(at)
        for (before, other), groups in by_change.items():
            which = _listed([self.groups[at] for at in groups])
            task.note_restart(before, other, f" in {len(groups)} of {len(self.groups)} groups of {self._by!r}, {which}")
        return restarts

    def _update_best(self) -> None:
        """Lower the learning rates of groups whose losses have plateaued."""
        if self._given.learning_rate is not None:
            return
        for at, figures in enumerate(self.sgd.each):
            self._losses[at].append(figures.loss)
            lower = self._schedules[at].lowered()
            if lower is not None and self.sgd.group_has_plateaued(at, self._losses[at]):
                self._schedules[at] = lower

    def _models(self, task: Task, params: Record, each: list[Figures]) -> Groups:
        """Return the current models, for unscaled features."""
        coef, bias, learnt = unscale(task.scaling, *self.sgd.weights())
        each = each or [Figures(0, 0.0, 0.0)] * len(self.groups)
        figures = {"rows": [one.rows for one in each], "loss": [one.loss for one in each]}
        figures[task.loss.score] = [one.score for one in each]
        params = {**params, **rates_of(self._schedules), "of_groups": figures}
        return Groups(task.kind, coef, bias, task.classes, params, self.history, learnt)

    def _note_groups(self, task: Task) -> None:
        """Note groups that have no rows, one row, or a useless model."""
        rows = [one.rows for one in self.sgd.each]
        log.info("models of %d groups of %r", len(rows), self._by)
        if not rows:
            return
        for count, what in (
            (0, "no row to train on; their models are constant"),
            (1, "one row"),
        ):
            found = [self.groups[at] for at, one in enumerate(rows) if one == count]
            if found:
                task.note(f"{len(found)} of {len(rows)} groups of {self._by!r} have {what}: {_listed(found)}")
        self._note_idle(task)

    def _note_idle(self, task: Task) -> None:
        """Note groups whose models are worse than a constant predictor."""
        idle = [at for at, one in enumerate(self.sgd.each) if self._base.learnt_nothing(at, one)]
        if not idle:
            return
        one, what = idle[0], "step" if step_of(self.schedule.step).fixed else "learning_rate"
        figures, named = self.sgd.each[one], _listed([self.groups[at] for at in idle])
        task.note(
            f"nothing was learnt yet in {len(idle)} of {len(self.groups)} groups of {self._by!r}, {named}: after the "
            f"last epoch the loss of the first is {figures.loss:.4g}, that of a constant prediction "
            f"{self._base.constant(one, figures):.4g}; try more epochs or another {what}"
        )


def _listed(values: list[Value], limit: int = 5) -> str:
    text = ", ".join("null" if value is None else repr(value) for value in values[:limit])
    return text + (f" and {len(values) - limit} more" if len(values) > limit else "")
