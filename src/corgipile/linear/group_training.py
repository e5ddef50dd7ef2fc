"""Trains a model for each value of a column, all from the same read of the table."""

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
from corgipile.linear.multi_model import HELD_OUT, folded, rates_of
from corgipile.linear.schedule import Schedule, recent_losses, schedule_of
from corgipile.linear.sgd import Figures, rows_in
from corgipile.linear.train import begun, order_of, prepare
from corgipile.linear.training import Record, Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.settings import TrainArguments, TrainSettings, declared
from corgipile.sizes import Size, parse_bytes
from corgipile.steps import step_of
from corgipile.tables.table import Table

__all__ = ["GroupTraining", "train_groups"]

NOT_BY_GROUP = ("solver", "inner", "warm_start", "test", "validation", "group", "patience")
NUMBERED = 16  # bytes: the number of a row in the buffer, and of one that is visited
log = logging.getLogger("corgipile")


def train_groups(given: TrainArguments) -> Groups:
    """Train as `corgipile.train`, a model for each value of a column.

    Raises:
        BadArgument: A setting is for one model.
        BudgetTooSmall: Models and the groups of rows take more than half of the memory.
    """
    _check_alone(given)
    schedule = schedule_of(given, given.tolerance)
    opened = begun(given)
    task = prepare(opened, given, classes=given.classes, on_bad=given.on_bad)
    training = GroupTraining(opened, task, schedule, given)
    with task.feeder(order_of(given.order, given.memory), training.memory, given.seed) as feeder:
        save = None if given.save is None else partial(Model.save, path=given.save, overwrite=given.overwrite)
        return training.run(task.surveyed(), feeder, save or (lambda _: None))


def _check_alone(given: TrainArguments) -> None:
    """Raise where a setting is for one model.

    Raises:
        BadArgument: One is.
    """
    for name in NOT_BY_GROUP:
        if getattr(given, name) != declared(TrainArguments)[name].default:
            also = f"; {HELD_OUT}" if name in ("test", "validation") else ""
            raise BadArgument(
                f"{name} is for one model, got {name}={short(getattr(given, name))} with by={given.by!r}{also}"
            )
    for name in ("label", "weight"):
        if given.by == getattr(given, name):
            raise BadArgument(f"by={given.by!r} is the column of {name}s")


def _divided(given: TrainArguments, task: Task, codes: Codes, models: int) -> Size | None:
    """Return what of the memory is for rows: the rest is for models, and for the group of each row.

    Raises:
        BudgetTooSmall: These take more than half.
    """
    if given.memory is None:
        return None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=len(task.source) * width)
    if codes.nbytes + models > memory // 2:
        raise BudgetTooSmall(f"memory is {given.memory!r}, of which {_parts(len(codes), codes.nbytes, models)}")
    return max(1, int((memory - codes.nbytes - models) * width / (width + NUMBERED)))


def _parts(rows: int, codes: int, models: int) -> str:
    """Say what models and the groups of rows take, in bytes, and how much memory would do."""
    return (
        f"models by group take {models} bytes and the groups of {rows} rows {codes}; give memory={2 * (codes + models)}"
    )


class GroupTraining:
    """One training of models by group, epoch by epoch.

    Args:
        source: The rows, with the column of groups.
        task: What is learnt.
        schedule: The learning rates.
        given: What was asked for.
    """

    def __init__(self, source: Table, task: Task, schedule: Schedule, given: TrainArguments) -> None:
        assert given.by is not None  # noqa: S101 - for the type checker: the caller has asked
        self.schedule, self.history = schedule, list[Record]()
        self._given, self._by = given, given.by
        self.groups, self.codes = find_groups(source, given.by, *self._most(task))
        self._known = Values(given.by, self.groups)
        self.sgd = self._sgd(task, [1])
        self._schedules: list[Schedule] = [schedule] * len(self.groups)
        self._losses: list[list[float]] = [[] for _ in self.groups]
        self._base = GroupBaselines(task.loss, task.classes, len(self.groups), task.class_weight)
        self.memory = _divided(given, task, self.codes, self.sgd.bytes * len(self.groups))

    def _most(self, task: Task) -> tuple[float, Callable[[int], str]]:
        """Return how many models half of the memory holds, were there nothing else, and what says how much would do."""
        each, rows = task.made(partial(GroupSGD, [1], str), self.schedule).bytes, len(task.source)

        def told(groups: int) -> str:
            codes = rows * np.min_scalar_type(groups).itemsize
            return f"of {groups} groups {_parts(rows, codes, groups * each)}"

        if self._given.memory is None:
            return math.inf, told
        memory = parse_bytes(self._given.memory, whole=rows * task.row_bytes)
        return memory / 2 / each, told

    def _sgd(self, task: Task, groups: Sequence[int]) -> GroupSGD:
        return task.made(partial(GroupSGD, groups, self._known.told), self.schedule)

    def run(self, task: Task, feeder: BufferedReader, save: Callable[[Groups], object]) -> Groups:
        """Run all epochs and return the models."""
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
        self._tell(task)
        save(models)
        return models

    def _epoch(self, task: Task, feeder: BufferedReader, epoch: int) -> Record:
        sgd, lowers = self.sgd, self._given.learning_rate is None
        running, count = np.ones(len(self.groups), np.bool_), not epoch
        try:
            while True:
                sgd.learning[:] = running
                start, read = time.perf_counter(), feeder.bytes_read
                sgd.tried[:] = [lowers and one.lowered() is not None for one in self._schedules]
                rows = self._pass(task, feeder, epoch, count=count)
                figures = sgd.flush()
                count = False
                if not (lowers and (running := self._lower(task, running)).any()):
                    break
                if self._given.on_rows is not None:
                    self._given.on_rows(-rows)
            figures = passes.checked(figures, sgd, feeder)
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
        """Let the groups that learn visit their rows, and count labels; return how many rows there are, of all."""
        seen, sgd = 0, self.sgd
        sgd.begin([one.rate(epoch) for one in self._schedules])
        for step, (visit, rows) in enumerate(zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True)):
            labels = feeder.buffer.dense(task.label)
            weights = None if task.weight is None else feeder.buffer.dense(task.weight)
            locate = passes.row_at(feeder, epoch, step)
            found = rows_in(feeder.buffer, task.inputs, visit)
            if count:
                self._base.add_each(labels[visit], None if weights is None else weights[visit], self.codes[rows])
            sgd.learn_groups(found, labels, visit, self.codes[rows], locate, weights)
            seen += len(visit)
            if self._given.on_rows is not None:
                self._given.on_rows(len(visit))
        return seen

    def _lower(self, task: Task, running: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Give another rate to those of the running groups that begin again, which forget all; return which do."""
        sgd, again = self.sgd, np.zeros_like(running)
        told = defaultdict[tuple[Schedule, Schedule], list[int]](list)
        for at in np.flatnonzero(running).tolist():
            found = self._schedules[at].again(self._base, at, sgd.each[at].loss if sgd.learning[at] else math.nan)
            if found is not None:
                told[self._schedules[at], found].append(at)
                self._schedules[at], again[at] = found, True
                sgd.forget(at)
        for (before, other), groups in told.items():
            which = _some([self.groups[at] for at in groups])
            task.note_restart(before, other, f" in {len(groups)} of {len(self.groups)} groups of {self._by!r}, {which}")
        return again

    def _update_best(self) -> None:
        """Lower the rates of groups that stand still for them, as `Training` does of one model."""
        if self._given.learning_rate is not None:
            return
        for at, one in enumerate(self.sgd.each):
            self._losses[at].append(one.loss)
            lower = self._schedules[at].lowered()
            if lower is not None and self.sgd.stands_still(at, self._losses[at]):
                self._schedules[at] = lower

    def _models(self, task: Task, params: Record, each: list[Figures]) -> Groups:
        """Return what was learnt so far, for features as they are."""
        coef, bias, learnt = folded(task.scaling, *self.sgd.weights())
        each = each or [Figures(0, 0.0, 0.0)] * len(self.groups)
        figures = {"rows": [one.rows for one in each], "loss": [one.loss for one in each]}
        figures[task.loss.score] = [one.score for one in each]
        params = {**params, **rates_of(self._schedules), "of_groups": figures}
        return Groups(task.kind, coef, bias, task.classes, params, self.history, learnt)

    def _tell(self, task: Task) -> None:
        """Say of groups what is to be known of their models."""
        rows = [one.rows for one in self.sgd.each]
        log.info("models of %d groups of %r", len(rows), self._by)
        if not rows:
            return
        for count, what in (
            (0, "no row that can be learnt from; their models say the same of every row"),
            (1, "one row"),
        ):
            found = [self.groups[at] for at, one in enumerate(rows) if one == count]
            if found:
                task.note(f"{len(found)} of {len(rows)} groups of {self._by!r} have {what}: {_some(found)}")
        self._tell_idle(task)

    def _tell_idle(self, task: Task) -> None:
        """Name groups whose models are worse than one that always says the same."""
        idle = [at for at, one in enumerate(self.sgd.each) if self._base.idle(at, one)]
        if not idle:
            return
        one, what = idle[0], "step" if step_of(self.schedule.step).fixed else "learning_rate"
        figures, named = self.sgd.each[one], _some([self.groups[at] for at in idle])
        task.note(
            f"nothing was learnt yet in {len(idle)} of {len(self.groups)} groups of {self._by!r}, {named}: of the "
            f"first the loss is {figures.loss:.4g} after the last epoch, that of a model that always says the same "
            f"{self._base.constant(one, figures):.4g}; more epochs or another {what} may help"
        )


def _some(values: list[Value], most: int = 5) -> str:
    told = ", ".join("null" if value is None else repr(value) for value in values[:most])
    return told + (f" and {len(values) - most} more" if len(values) > most else "")
