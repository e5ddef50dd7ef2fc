"""Trains a model for each of several labels, all from the same read of the table."""

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadLabel, BudgetTooSmall, Diverged
from corgipile.linear import passes
from corgipile.linear.divergence import Untrained
from corgipile.linear.label_sets import LabelSets, find_label_sets
from corgipile.linear.model_stack import learn_labels, worth_a_thread
from corgipile.linear.multi_model import HELD_OUT, folded, rates_of
from corgipile.linear.multilabel import LabelModels
from corgipile.linear.schedule import Schedule, schedule_of
from corgipile.linear.sgd import Locate, SlotArray, rows_in
from corgipile.linear.sparse import Sparse
from corgipile.linear.train import begun, order_of, prepare
from corgipile.linear.training import MANY, Record, Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of
from corgipile.settings import TrainArguments, TrainSettings, declared
from corgipile.sizes import parse_bytes
from corgipile.tables.table import Table

__all__ = ["CLASSES", "check_model", "labels_of", "train_labels"]

ALONE = (
    "solver", "inner", "warm_start", "test", "validation", "group", "patience", "by", "class_weight", "label",
)  # fmt: skip
UNKNOWN = 1 << 60  # bytes of rows whose columns are not chosen yet: a share of them is no bound
CLASSES = np.array([0, 1])
CHUNK = 4096  # rows that all models visit before the next ones come
COPIED = 4 << 20  # bytes of them at most, where a row has fewer
MOST_THREADS = 16


def train_labels(given: TrainArguments) -> LabelModels:
    """Train as `corgipile.train`, a model for each label.

    Raises:
        BadArgument: A setting is for one model, or the model is none of two classes.
        BadLabel: No row has a label, or all have.
        BudgetTooSmall: Models and the labels of rows take more than half of the memory.
    """
    _check_alone(given)
    schedule = schedule_of(given, given.tolerance)
    opened = begun(given)
    found = labels_of(opened, given)
    task = prepare(found.table(opened), replace(given, label=found.name), classes=CLASSES, on_bad=given.on_bad)
    if found.column is not None and len(found.labels) > MANY and 2 * len(found.labels) > (rows := len(opened)):
        task.note(
            f"label column {found.column!r} has {len(found.labels)} labels in {rows} rows: are they ids, not labels?"
        )
    memory = _left(given, task, schedule, found)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        return LabelTraining(task.surveyed(), schedule, given, found, feeder).run()


def labels_of(table: Table, given: Any) -> LabelSets:
    """Find which labels rows have, of the columns that ``given.labels`` names.

    Raises:
        BadArgument: A label is among the features, or the weight.
        BadLabel: No row has a label, or all have.
        BudgetTooSmall: The labels of rows take more than half of the memory.
    """
    named = given.labels if isinstance(given.labels, str) or len(given.labels) > 1 else given.labels[0]
    half = math.inf if given.memory is None else parse_bytes(given.memory, whole=UNKNOWN) // 2
    found = find_label_sets(table, named, most=half)
    _check_counts(found)
    _check_features(given, found)
    return found


def _check_alone(given: TrainArguments) -> None:
    usual = {name: declared(TrainArguments)[name].default for name in ALONE} | {"classes": None}
    for name, default in usual.items():
        if getattr(given, name) is not default and getattr(given, name) != default:
            also = f"; {HELD_OUT}" if name in ("test", "validation") else ""
            raise BadArgument(f"{name} does not go with labels, got {name}={short(getattr(given, name))}{also}")
    check_model(given.model)


def check_model(model: str) -> None:
    """Raise BadArgument unless a model tells two classes."""
    if loss_of(model).numbers or loss_of(model, len(CLASSES)).per_class:
        raise BadArgument(f"a label is there or not: logistic, svm and squared_hinge tell, got {model!r}")


def _check_counts(found: LabelSets) -> None:
    """Raise BadLabel for a label that no row has, or that all have."""
    rows = len(found.numbers)
    for label, count in zip(found.labels, found.counts.tolist(), strict=True):
        if count in (0, rows):
            raise BadLabel(
                f"{'all' if count else 'none'} of {rows} rows have label {label!r}; one that some have can be learnt"
            )


def _check_features(given: Any, found: LabelSets) -> None:
    columns = found.labels if found.column is None else [found.column]
    features = [given.features] if isinstance(given.features, str) else given.features
    for name in features if isinstance(features, list | tuple) else ():
        if name in columns:
            raise BadArgument(f"the label column {name!r} is among the features; a model would learn it by heart")
    if given.weight in columns:
        raise BadArgument(f"column {given.weight!r} is a label; it cannot be the weight too")


def _left(given: TrainArguments, task: Task, schedule: Schedule, found: LabelSets) -> Any:
    """Return what of the memory is for rows: the rest is for models, and for the labels of each row.

    Raises:
        BudgetTooSmall: These take more than half.
    """
    if given.memory is None:
        return None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=len(task.source) * width)
    models, labels = task.sgd(schedule).bytes * len(found.labels), found.numbers.nbytes + found.sets.nbytes
    if models + labels > memory // 2:
        raise BudgetTooSmall(
            f"memory is {given.memory!r}, of which models of {len(found.labels)} labels take {models} bytes and the "
            f"labels of {len(found.numbers)} rows {labels}; give {2 * (models + labels)} bytes"
        )
    return memory - models - labels


class Chunk(NamedTuple):
    """Rows that are visited together, one after the other, and the sets of their labels."""

    rows: Any
    numbers: npt.NDArray[Any]
    sets: npt.NDArray[np.bool_]
    visit: SlotArray
    locate: Locate
    weights: Any


class LabelTraining:
    """One training of models of labels, epoch by epoch.

    Args:
        task: What is learnt.
        schedule: The learning rates.
        given: What was asked for.
        found: The labels of the rows.
        feeder: The rows.
    """

    def __init__(
        self, task: Task, schedule: Schedule, given: TrainArguments, found: LabelSets, feeder: BufferedReader
    ) -> None:
        self._task, self._schedule, self._given, self._found, self._feeder = task, schedule, given, found, feeder
        self._scaler = task.sgd(schedule)
        self._each = [task.sgd(schedule, scaled=False) for _ in found.labels]
        self._schedules, self._untrained = [schedule] * len(self._each), Untrained(task.loss, len(task.classes))
        worth = 1 if task.weight is not None else worth_a_thread(self._each[0])
        self._threads = min(len(os.sched_getaffinity(0)), MOST_THREADS, max(1, len(self._each) // worth))
        self._sets = np.ascontiguousarray(found.sets)
        self._learning = list(range(len(self._each)))  # those that do: all, but where some begin again
        self._trying = False
        self._diverged: dict[int, Diverged] = {}
        self._history: list[Record] = []
        self._params = self._facts()

    def run(self) -> LabelModels:
        """Run all epochs and return the models."""
        given = self._given
        with ThreadPoolExecutor(self._threads, "corgipile-labels") as pool:
            for epoch in range(given.epochs):
                self._history.append(self._epoch(epoch, pool))
                if given.callback is not None:
                    given.callback(self._history[-1])
                self._save()
                if self._schedule.enough([float(record["loss"]) for record in self._history], epoch):
                    break
        self._save()
        return self._models()

    def _save(self) -> None:
        if self._given.save is not None:
            self._models().save(self._given.save, overwrite=self._given.overwrite)

    def _facts(self) -> Record:
        given, task = self._given, self._task
        params = {name: getattr(given, name) for name in declared(TrainSettings)} | task.facts()
        params |= {"average": task.average, "order": self._feeder.order.name}
        params |= {"buffer_bytes": self._feeder.buffer_bytes, "step": self._schedule.step}
        params |= {"adaptive": given.learning_rate is None}
        return params | {"label": self._found.column, "labels": self._found.labels}

    def _epoch(self, epoch: int, pool: ThreadPoolExecutor) -> Record:
        self._learning = list(range(len(self._each)))
        self._trying = self._given.learning_rate is None
        try:
            while True:
                start, read = time.perf_counter(), self._feeder.bytes_read
                rows = self._pass(epoch, pool)
                if not (self._trying and self._begin_again()):
                    break
                if self._given.on_rows is not None:
                    self._given.on_rows(-rows)
            for error in self._diverged.values():
                raise error
        except Diverged as error:
            raise self._schedule.diverged(epoch, str(error), standardized=self._task.scaling is not None) from None
        figures = [passes.checked(one.flush(), one, self._feeder) for one in self._each]
        skipped = rows - figures[0].rows
        return {
            "epoch": epoch,
            "loss": _mean([one.loss for one in figures]),
            "accuracy": _mean([one.score for one in figures]),
            "rows": figures[0].rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": self._feeder.bytes_read - read,
            **({"skipped": skipped} if skipped else {}),
        }

    def _pass(self, epoch: int, pool: ThreadPoolExecutor) -> int:
        """Let all that are to learn visit all rows; return how many there were."""
        rows, self._diverged = 0, {}
        for at in self._learning:
            self._each[at].begin(self._schedules[at].rate(epoch))
        for step, visit in enumerate(self._feeder.epoch(epoch)):
            self._step(visit, passes.row_at(self._feeder, epoch, step), pool)
            rows += len(visit)
            if self._given.on_rows is not None:
                self._given.on_rows(len(visit))
        return rows

    def _begin_again(self) -> bool:
        """Lower the rates of models that diverged, which forget all; say whether there are any."""
        before = self._schedules[self._learning[0]]
        losses = {at: math.nan if at in self._diverged else self._each[at].flush().loss for at in self._learning}
        lower = {at: self._schedules[at].again(self._untrained, 0, loss) for at, loss in losses.items()}
        self._learning = [at for at, one in lower.items() if one is not None]
        for at, one in lower.items():
            if one is not None:
                self._schedules[at], self._each[at] = one, self._task.sgd(one, scaled=False)
        if again := self._learning:
            labels = short([self._found.labels[at] for at in again])
            of = f" in {len(again)} of {len(self._each)} labels, {labels}"
            self._task.note_restart(before, self._schedules[again[0]], of)
        return bool(self._learning)

    def _step(self, visit: SlotArray, locate: Locate, pool: ThreadPoolExecutor) -> None:
        """Let all models visit the rows of a step, some of the models in each thread."""
        waiting = [pool.submit(self._learn, visit, locate, at) for at in range(1, self._threads)]
        try:
            self._learn(visit, locate, 0)
        finally:
            wait(waiting)  # they read slots that the next step may take
        for one in waiting:
            one.result()

    def _learn(self, visit: SlotArray, locate: Locate, first: int) -> None:
        start, stop = (len(self._learning) * thread // self._threads for thread in (first, first + 1))
        if start == stop:
            return
        runs = list(_consecutive(self._learning[start:stop]))
        for chunk in self._chunks(visit, locate):
            for run in runs:
                found = learn_labels(self._each[run.start : run.stop], *chunk, first=run.start)
                if found and not self._trying:
                    raise next(iter(found.values()))
                self._diverged.update(found)

    def _chunks(self, visit: SlotArray, locate: Locate) -> Iterator[Chunk]:
        """Yield rows some at a time, standardised if they are to be."""
        task, buffer = self._task, self._feeder.buffer
        rows, numbers = rows_in(buffer, task.inputs, visit), buffer.dense(task.label)
        weights = None if task.weight is None else buffer.dense(task.weight)
        most = CHUNK if isinstance(rows, Sparse) else min(CHUNK, max(1, COPIED // max(1, rows[:1].nbytes)))
        for start in range(0, len(visit), most):
            some, name = visit[start : start + most], _shifted(locate, start)
            if self._scaler.scaling is None:
                yield Chunk(rows, numbers, self._sets, some, name, weights)
                continue
            (scaled, kept), places = self._scaler.scaled(rows, some), np.arange(len(some), dtype=np.int32)
            counts = None if weights is None else weights[some]
            yield Chunk(scaled, numbers[some], self._sets, places, name, counts)
            del kept

    def _models(self) -> LabelModels:
        """Return what was learnt so far, for features as they are."""
        parts = [one.weights() for one in self._each]
        coef, bias = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
        coef, bias, learnt = folded(self._task.scaling, coef, bias)
        params = self._params | rates_of(self._schedules)
        return LabelModels(self._task.kind, coef, bias, CLASSES, params, self._history, learnt)


def _mean(numbers: list[float]) -> float:
    """Return the mean, added up one by one as PostgreSQL does."""
    return float(np.cumsum(numbers)[-1]) / len(numbers)


def _shifted(locate: Locate, by: int) -> Callable[[int], str]:
    return lambda place: locate(by + place)


def _consecutive(numbers: list[int]) -> Iterator[range]:
    """Yield runs of numbers that follow each other."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at
