"""Trains one model per label, all in the same pass."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from reprlib import repr as short
from typing import Any

import numpy as np

from corgipile.errors import BadArgument, BadLabel
from corgipile.linear import passes
from corgipile.linear.divergence import Untrained
from corgipile.linear.fit import StackTraining, memory_beside
from corgipile.linear.label_sets import LabelSets, find_label_sets
from corgipile.linear.model import Model
from corgipile.linear.multilabel import LabelModels
from corgipile.linear.problem import MIN_IDS, Task, order_of, prepare
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import MAX_SCALED_BYTES, MAX_SCALED_ROWS, Figures
from corgipile.linear.stack import Run, Stack, at_once, max_threads
from corgipile.losses import loss_of
from corgipile.settings import TrainArguments
from corgipile.sizes import Size, parse_bytes
from corgipile.tables.table import Table

__all__ = ["CLASSES", "check_model", "labels_of", "memory_with_labels", "train_labels"]

UNKNOWN_BYTES = 1 << 60  # row bytes before columns are chosen: large, so that a relative memory is no limit
CLASSES = np.array([0, 1])


def train_labels(
    given: TrainArguments, schedule: Schedule, opened: Table, save: Callable[[Model], object] | None
) -> Model:
    """Train as `corgipile.train` does, one model per label."""
    labels = labels_of(opened, given)
    task = prepare(labels.table(opened), replace(given, label=labels.name), classes=CLASSES, on_bad=given.on_bad)
    memory = memory_with_labels(given, task, labels, task.sgd(schedule).bytes)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        training = LabelTraining(task.with_statistics(), feeder, schedule, given, found=labels)
        return training.run(given.epochs, None, given.callback, save)


def memory_with_labels(given: TrainArguments, task: Task, labels: LabelSets, each: int) -> Size | None:
    """Return the memory for rows, where a model takes ``each`` bytes; note labels that may be ids."""
    count, rows, memory = len(labels.labels), len(task.source), given.memory
    if labels.column is not None and count > MIN_IDS and 2 * count > rows:
        task.note(f"label column {labels.column!r} has {count} labels in {rows} rows: does it hold ids?")
    if memory is None:
        return None
    models, sets = each * count, labels.numbers.nbytes + labels.sets.nbytes
    what = f"models of {count} labels take {models} bytes and the labels of {rows} rows {sets}"
    return memory_beside(memory, task, models + sets, f"{what}; give {2 * (models + sets)} bytes")


def labels_of(table: Table, given: Any) -> LabelSets:
    """Read the labels of rows from the columns of ``given.labels``; label sets may take half of the memory."""
    named = given.labels if isinstance(given.labels, str) or len(given.labels) > 1 else given.labels[0]
    half = math.inf if given.memory is None else parse_bytes(given.memory, whole=UNKNOWN_BYTES) // 2
    labels = find_label_sets(table, named, most=half)
    _check_counts(labels)
    _check_features(given, labels)
    return labels


def check_model(model: str) -> None:
    """Raise BadArgument unless a model is binary."""
    if loss_of(model).numbers or loss_of(model, len(CLASSES)).per_class:
        raise BadArgument(f"model must be logistic, svm or squared_hinge with labels, got {model!r}")


def _check_counts(sets: LabelSets) -> None:
    """Raise BadLabel for a label of no row or of all rows."""
    rows = len(sets.numbers)
    for label, count in zip(sets.labels, sets.counts.tolist(), strict=True):
        if count in (0, rows):
            raise BadLabel(
                f"{'all' if count else 'none'} of {rows} rows have label {label!r}; it must be in some rows, not in all"
            )


def _check_features(given: Any, labels: LabelSets) -> None:
    columns = labels.labels if labels.column is None else [labels.column]
    features = [given.features] if isinstance(given.features, str) else given.features
    for name in features if isinstance(features, list | tuple) else ():
        if name in columns:
            raise BadArgument(f"the label column {name!r} is among the features; leave it out")
    if given.weight in columns:
        raise BadArgument(f"column {given.weight!r} is a label; it cannot also be the weight")


class LabelTraining(StackTraining):
    """A training run of models by label."""

    def __init__(self, *how: Any, found: LabelSets) -> None:
        super().__init__(*how, label=found.column, labels=found.labels)
        task, schedule = self.task, self.schedule
        self._params.pop("balance")
        self._labels, self._untrained = found.labels, Untrained(task.loss, len(task.classes))
        make, count = partial(task.sgd, scaled=False), len(found.labels)
        self._each = [Run(make(schedule), schedule, make, adaptive=self._adaptive, label=at) for at in range(count)]
        few = 1 if task.weight is not None else at_once(self._each[0].sgd) // 2  # take as long as a full vector
        threads = min(max_threads(), max(1, count // max(1, few)))
        for run in self._each:
            run.team = run.label * threads // count
        width = 1 if task.inputs.sparse else task.inputs.width * task.inputs.dtype.itemsize
        each, sets = min(MAX_SCALED_ROWS, max(1, MAX_SCALED_BYTES // width)), np.ascontiguousarray(found.sets)
        self._stack = Stack(task, task.sgd(schedule), self._each, each=each, threads=threads, sets=sets)
        self._learning = self._each  # the models that learn: all, or only those that restart

    def run(self, *how: Any) -> Model:
        """Train as `Trainer.run` does."""
        with self._stack:
            return super().run(*how)

    def _pass(self, epoch: int, *, first: bool) -> int:
        self._learning = self._each if first else self._learning
        how = self._feeder, epoch, self._learning, None, self._on_rows
        return self._stack.visit_all(*how, strict=not self._adaptive)

    def _restart(self) -> bool:
        learning = self._learning
        self._learning = self._stack.restart(learning, self._untrained, self._note)
        return bool(self._learning)

    def _note(self, before: Schedule, other: Schedule, runs: list[Run]) -> None:
        labels = short([self._labels[run.label] for run in runs])
        self.task.note_restart(before, other, f" in {len(runs)} of {len(self._each)} labels, {labels}")

    def _figures(self) -> Figures:
        for error in filter(None, (run.error for run in self._each)):
            raise error
        each = [passes.check_figures(run.sgd.flush(), run.sgd, self._feeder) for run in self._each]
        return Figures(each[0].rows, *(_mean([one[at] for one in each]) for at in (1, 2)))

    def _current_model(self) -> Model:
        parts = [run.sgd.weights() for run in self._each]
        coef, bias = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
        return self._models(LabelModels, (coef, bias), [run.schedule for run in self._each])


def _mean(numbers: list[float]) -> float:
    """Return the mean, added in order as PostgreSQL does."""
    return float(np.cumsum(numbers)[-1]) / len(numbers)
