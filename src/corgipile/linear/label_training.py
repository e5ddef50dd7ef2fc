"""Trains one model per label, all in the same pass."""

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
from corgipile.linear.multi_model import HELD_OUT, rates_of, unscale
from corgipile.linear.multilabel import LabelModels
from corgipile.linear.schedule import Schedule, schedule_of
from corgipile.linear.sgd import Locate, SlotArray, rows_in
from corgipile.linear.sparse import Sparse
from corgipile.linear.train import open_source, order_of, prepare
from corgipile.linear.training import MIN_IDS, Record, Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of
from corgipile.settings import TrainArguments, TrainSettings, declared
from corgipile.sizes import parse_bytes
from corgipile.tables.table import Table

__all__ = ["CLASSES", "check_model", "labels_of", "train_labels"]

UNSUPPORTED = (
    "solver", "inner", "warm_start", "test", "validation", "group", "patience", "by", "class_weight", "label",
)  # fmt: skip
UNKNOWN_BYTES = 1 << 60  # row bytes before columns are chosen: large, so that a relative memory is no limit
CLASSES = np.array([0, 1])
CHUNK = 4096  # rows that all models visit before the next ones
CHUNK_BYTES = 4 << 20  # bytes of dense rows in a chunk
MAX_THREADS = 16


def train_labels(given: TrainArguments) -> LabelModels:
    """Train as `corgipile.train` does, one model per label.

    Raises:
        BadArgument: A setting is not supported with labels, or the model is not binary.
        BadLabel: No row has a label, or all have.
        BudgetTooSmall: Models and label sets take more than half of the memory.
    """
    _check_supported(given)
    schedule = schedule_of(given, given.tolerance)
    opened = open_source(given)
    labels = labels_of(opened, given)
    task = prepare(labels.table(opened), replace(given, label=labels.name), classes=CLASSES, on_bad=given.on_bad)
    if labels.column is not None and len(labels.labels) > MIN_IDS and 2 * len(labels.labels) > (rows := len(opened)):
        task.note(f"label column {labels.column!r} has {len(labels.labels)} labels in {rows} rows: does it hold ids?")
    memory = _row_memory(given, task, schedule, labels)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        return LabelTraining(task.with_statistics(), schedule, given, labels, feeder).run()


def labels_of(table: Table, given: Any) -> LabelSets:
    """Read the labels of rows from the columns of ``given.labels``.

    Raises:
        BadArgument: A label column is also a feature or the weight.
        BadLabel: No row has a label, or all have.
        BudgetTooSmall: Label sets take more than half of the memory.
    """
    named = given.labels if isinstance(given.labels, str) or len(given.labels) > 1 else given.labels[0]
    half = math.inf if given.memory is None else parse_bytes(given.memory, whole=UNKNOWN_BYTES) // 2
    labels = find_label_sets(table, named, most=half)
    _check_counts(labels)
    _check_features(given, labels)
    return labels


def _check_supported(given: TrainArguments) -> None:
    defaults = {name: declared(TrainArguments)[name].default for name in UNSUPPORTED} | {"classes": None}
    for name, default in defaults.items():
        if getattr(given, name) is not default and getattr(given, name) != default:
            hint = f"; {HELD_OUT}" if name in ("test", "validation") else ""
            raise BadArgument(f"{name} does not go with labels, got {name}={short(getattr(given, name))}{hint}")
    check_model(given.model)


def check_model(model: str) -> None:
    """Raise BadArgument unless a model is binary."""
    if loss_of(model).numbers or loss_of(model, len(CLASSES)).per_class:
        raise BadArgument(f"a label is there or not: logistic, svm and squared_hinge tell, got {model!r}")


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


def _row_memory(given: TrainArguments, task: Task, schedule: Schedule, found: LabelSets) -> Any:
    """Return the memory for rows, without that for models and label sets.

    Raises:
        BudgetTooSmall: Those take more than half.
    """
    if given.memory is None:
        return None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=len(task.source) * width)
    models, labels = task.sgd(schedule).bytes * len(found.labels), found.numbers.nbytes + found.sets.nbytes
    if models + labels > memory // 2:
        raise BudgetTooSmall(
            f"memory is {given.memory!r}: models of {len(found.labels)} labels take {models} bytes and the labels of "
            f"{len(found.numbers)} rows {labels}; give {2 * (models + labels)} bytes"
        )
    return memory - models - labels


class Chunk(NamedTuple):
    """Rows that all models visit in sequence, and their label sets."""

    rows: Any
    numbers: npt.NDArray[Any]
    sets: npt.NDArray[np.bool_]
    visit: SlotArray
    locate: Locate
    weights: Any


class LabelTraining:
    """A training run of models by label.

    Args:
        task: The task.
        schedule: The learning rates.
        given: The settings.
        found: The labels of the rows.
        feeder: Reads the rows.
    """

    def __init__(
        self, task: Task, schedule: Schedule, given: TrainArguments, found: LabelSets, feeder: BufferedReader
    ) -> None:
        self._task, self._schedule, self._given, self._labels, self._feeder = task, schedule, given, found, feeder
        self._scaler = task.sgd(schedule)
        self._each = [task.sgd(schedule, scaled=False) for _ in found.labels]
        self._schedules, self._untrained = [schedule] * len(self._each), Untrained(task.loss, len(task.classes))
        worth = 1 if task.weight is not None else worth_a_thread(self._each[0])
        self._threads = min(len(os.sched_getaffinity(0)), MAX_THREADS, max(1, len(self._each) // worth))
        self._sets = np.ascontiguousarray(found.sets)
        self._learning = list(range(len(self._each)))  # the models that learn: all, or only those that restart
        self._retrying = False
        self._diverged: dict[int, Diverged] = {}
        self._history: list[Record] = []
        self._params = self._facts()

    def run(self) -> LabelModels:
        """Train all epochs and return the models."""
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
        return params | {"label": self._labels.column, "labels": self._labels.labels}

    def _epoch(self, epoch: int, pool: ThreadPoolExecutor) -> Record:
        self._learning = list(range(len(self._each)))
        self._retrying = self._given.learning_rate is None
        try:
            while True:
                start, read = time.perf_counter(), self._feeder.bytes_read
                rows = self._pass(epoch, pool)
                if not (self._retrying and self._restart()):
                    break
                if self._given.on_rows is not None:
                    self._given.on_rows(-rows)
            for error in self._diverged.values():
                raise error
        except Diverged as error:
            raise self._schedule.diverged(epoch, str(error), standardized=self._task.scaling is not None) from None
        figures = [passes.check_figures(model.flush(), model, self._feeder) for model in self._each]
        skipped = rows - figures[0].rows
        return {
            "epoch": epoch,
            "loss": _mean([model.loss for model in figures]),
            "accuracy": _mean([model.score for model in figures]),
            "rows": figures[0].rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": self._feeder.bytes_read - read,
            **({"skipped": skipped} if skipped else {}),
        }

    def _pass(self, epoch: int, pool: ThreadPoolExecutor) -> int:
        """Train the learning models on all rows; return the number of rows."""
        rows, self._diverged = 0, {}
        for at in self._learning:
            self._each[at].begin(self._schedules[at].rate(epoch))
        for step, visit in enumerate(self._feeder.epoch(epoch)):
            self._step(visit, passes.row_at(self._feeder, epoch, step), pool)
            rows += len(visit)
            if self._given.on_rows is not None:
                self._given.on_rows(len(visit))
        return rows

    def _restart(self) -> bool:
        """Reset diverged models with lower learning rates; return whether there are any."""
        before = self._schedules[self._learning[0]]
        losses = {at: math.nan if at in self._diverged else self._each[at].flush().loss for at in self._learning}
        lowered = {at: self._schedules[at].restarted(self._untrained, 0, loss) for at, loss in losses.items()}
        self._learning = [at for at, one in lowered.items() if one is not None]
        for at, one in lowered.items():
            if one is not None:
                self._schedules[at], self._each[at] = one, self._task.sgd(one, scaled=False)
        if restarted := self._learning:
            labels = short([self._labels.labels[at] for at in restarted])
            of = f" in {len(restarted)} of {len(self._each)} labels, {labels}"
            self._task.note_restart(before, self._schedules[restarted[0]], of)
        return bool(self._learning)

    def _step(self, visit: SlotArray, locate: Locate, pool: ThreadPoolExecutor) -> None:
        """Train all models on the rows of a step, split among the threads."""
        futures = [pool.submit(self._learn, visit, locate, at) for at in range(1, self._threads)]
        try:
            self._learn(visit, locate, 0)
        finally:
            wait(futures)  # they read slots that the next step may overwrite
        for future in futures:
            future.result()

    def _learn(self, visit: SlotArray, locate: Locate, first: int) -> None:
        start, stop = (len(self._learning) * thread // self._threads for thread in (first, first + 1))
        if start == stop:
            return
        runs = list(_consecutive(self._learning[start:stop]))
        for chunk in self._chunks(visit, locate):
            for run in runs:
                found = learn_labels(self._each[run.start : run.stop], *chunk, first=run.start)
                if found and not self._retrying:
                    raise next(iter(found.values()))
                self._diverged.update(found)

    def _chunks(self, visit: SlotArray, locate: Locate) -> Iterator[Chunk]:
        """Yield the rows in chunks, standardised if requested."""
        task, buffer = self._task, self._feeder.buffer
        rows, numbers = rows_in(buffer, task.inputs, visit), buffer.dense(task.label)
        weights = None if task.weight is None else buffer.dense(task.weight)
        most = CHUNK if isinstance(rows, Sparse) else min(CHUNK, max(1, CHUNK_BYTES // max(1, rows[:1].nbytes)))
        for start in range(0, len(visit), most):
            part, name = visit[start : start + most], _locate_shifted(locate, start)
            if self._scaler.scaling is None:
                yield Chunk(rows, numbers, self._sets, part, name, weights)
                continue
            (scaled, owners), places = self._scaler.scaled(rows, part), np.arange(len(part), dtype=np.int32)
            counts = None if weights is None else weights[part]
            yield Chunk(scaled, numbers[part], self._sets, places, name, counts)
            del owners

    def _models(self) -> LabelModels:
        """Return the current models, for unscaled features."""
        parts = [model.weights() for model in self._each]
        coef, bias = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
        coef, bias, learnt = unscale(self._task.scaling, coef, bias)
        params = self._params | rates_of(self._schedules)
        return LabelModels(self._task.kind, coef, bias, CLASSES, params, self._history, learnt)


def _mean(numbers: list[float]) -> float:
    """Return the mean, added in order as PostgreSQL does."""
    return float(np.cumsum(numbers)[-1]) / len(numbers)


def _locate_shifted(locate: Locate, by: int) -> Callable[[int], str]:
    return lambda place: locate(by + place)


def _consecutive(numbers: list[int]) -> Iterator[range]:
    """Yield runs of consecutive numbers."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at
