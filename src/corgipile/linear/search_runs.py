"""Models trained side by side: each visits the rows that are not of its fold, and at last judges those that are."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadLabel, BadValue, Diverged
from corgipile.linear.classes import codes_of
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import SGD, Figures, FloatArray, SlotArray, rows_in
from corgipile.linear.sparse import Sparse
from corgipile.linear.training import Task
from corgipile.loader.feeder import Feeder
from corgipile.tables.table import IntArray

__all__ = ["Runs"]

CHUNK = 512 << 10  # bytes of rows that all models visit before the next ones come: they stay in a core's cache
LEAST, SPARSE = 256, 1024  # rows at least, for a call costs as much as some; of sparse rows, which differ in length
MOST_THREADS = 16


@dataclass
class Run:
    """One model in training.

    Attributes:
        sgd: The model.
        fold: The rows it does not see.
        schedule: Its rates.
        losses: Of the epochs so far.
        diverged: Whether it did: it learns no more.
    """

    sgd: SGD
    fold: int
    schedule: Schedule
    losses: list[float] = field(default_factory=list)
    diverged: bool = False


class Chunk(NamedTuple):
    """Rows that are visited together.

    Attributes:
        rows: Where they lie.
        labels: Their labels, by slot.
        visit: Their slots.
        folds: The fold of each that is visited.
        name: What names one of them, by its place in the visits.
    """

    rows: FloatArray | Sparse
    labels: FloatArray
    visit: SlotArray
    folds: npt.NDArray[np.uint8]
    name: Callable[[int], str]

    def of(self, fold: int, *, own: bool) -> tuple[SlotArray, Callable[[int], str]]:
        """Return the visits of rows that are of a fold, or that are not."""
        places = np.flatnonzero((self.folds == fold) == own)
        return self.visit[places], lambda place: self.name(int(places[place]))


class Runs:
    """The models of a search.

    Args:
        tasks: What is learnt, of each point of the grid.
        schedules: The rates of each.
        parts: The fold of each row.
        folds: How many there are.
    """

    def __init__(
        self, tasks: Sequence[Task], schedules: Sequence[Schedule], parts: npt.NDArray[np.uint8], folds: int
    ) -> None:
        self._task, self._parts, self._folds = tasks[0], parts, folds
        self._scaler = tasks[0].sgd(schedules[0])
        self.points = [
            [Run(one.sgd(schedule, scaled=False), fold, schedule) for fold in range(folds)]
            for one, schedule in zip(tasks, schedules, strict=True)
        ]
        self.all = [run for point in self.points for run in point]
        self._threads = min(len(os.sched_getaffinity(0)), len(self.all), MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "corgipile-search")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def learn(self, feeder: Feeder, epochs: int, on_rows: Callable[[int], object] | None) -> None:
        """Run all epochs.

        Raises:
            BadLabel: All rows of a class are in one fold.
        """
        counts = np.zeros((len(self._task.classes), self._folds), np.int64)
        for epoch in range(epochs):
            for run in self.all:
                run.sgd.begin(run.schedule.rate(epoch))
            for chunks, visits in self._steps(feeder, epoch, counts if epoch == 0 else None):
                self._side_by_side(chunks, self.all, own=False)
                if on_rows is not None:
                    on_rows(visits)
            if epoch == 0:
                self._check(counts)
            for run in self.all:
                self._end(run, epoch)

    def judge(self, feeder: Feeder) -> list[list[Figures]]:
        """Return what each model is worth on the rows of its fold, by point and fold."""
        task, judges = self._task, []
        for run in self.all:
            coef, bias = run.sgd.weights()
            if task.scaling is not None:
                coef, bias = task.scaling.fold(coef, bias)
            judges.append(Run(SGD(task.kind, task.inputs, task.classes, on_bad=task.on_bad), run.fold, run.schedule))
            judges[-1].diverged = run.diverged or not (np.isfinite(coef).all() and np.isfinite(bias).all())
            if not judges[-1].diverged:
                judges[-1].sgd.assign(coef, bias)
            judges[-1].sgd.begin(0.0)
        self._scaler = SGD(task.kind, task.inputs, task.classes)  # weights are now those of rows as they are
        for chunks, _ in self._steps(feeder, 0):
            self._side_by_side(chunks, judges, own=True)
        figures = [Figures(0, math.inf, math.nan) if run.diverged else run.sgd.flush() for run in judges]
        for run, found in zip(judges, figures, strict=True):
            if not found.rows and not run.diverged:
                raise BadValue(f"no rows of fold {run.fold} of {feeder.table!r} were used; all were skipped")
        return [figures[at : at + self._folds] for at in range(0, len(figures), self._folds)]

    def _steps(
        self, feeder: Feeder, epoch: int, counts: IntArray | None = None
    ) -> Iterator[tuple[Callable[[], Iterator[Chunk]], int]]:
        """Yield, for each step, what makes its chunks, and its visits."""
        inputs, label = self._task.inputs, self._task.label
        rows_each = SPARSE if inputs.sparse else max(LEAST, CHUNK // (inputs.width * inputs.dtype.itemsize))
        for visit, numbers in zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True):
            rows, labels = rows_in(feeder.buffer, inputs, visit), feeder.buffer.dense(label)
            folds = self._parts[numbers]
            if counts is not None and len(counts):
                self._count(labels[visit], folds, counts)
            step = Chunk(rows, labels, visit, folds, partial(_name, numbers, feeder))
            yield partial(self._chunks, step, rows_each), len(visit)

    def _chunks(self, step: Chunk, each: int) -> Iterator[Chunk]:
        for start in range(0, len(step.visit), each):
            some, folds = step.visit[start : start + each], step.folds[start : start + each]
            name = partial(_shifted, step.name, start)
            if self._scaler.scaling is None:
                yield Chunk(step.rows, step.labels, some, folds, name)
                continue
            scaled, kept = self._scaler.scaled(step.rows, some)
            yield Chunk(scaled, step.labels[some], np.arange(len(some), dtype=np.int32), folds, name)
            del kept

    def _side_by_side(self, chunks: Callable[[], Iterator[Chunk]], runs: Sequence[Run], *, own: bool) -> None:
        """Let all models visit a step, each in one thread."""
        each = [runs[at :: self._threads] for at in range(self._threads)]
        waiting = [self._pool.submit(_visit, chunks(), some, own=own) for some in each[1:]]
        try:
            _visit(chunks(), each[0], own=own)
        finally:
            wait(waiting)  # they read slots that the next step may take
        for one in waiting:
            one.result()

    def _count(self, labels: FloatArray, folds: npt.NDArray[np.uint8], counts: IntArray) -> None:
        """Count rows by class and fold; labels of no class are the kernel's to see."""
        classes = codes_of(self._task.classes)
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        good = classes[codes] == labels
        counts += np.bincount(codes[good] * self._folds + folds[good], minlength=counts.size).reshape(counts.shape)

    def _check(self, counts: IntArray) -> None:
        for value, row in zip(self._task.classes, counts, strict=True):
            if np.count_nonzero(row) == 1:
                raise BadLabel(
                    f"all {row.sum()} rows of class {value} of {self._task.label!r} are in one of {self._folds} folds, "
                    "whose models would never see it; fewer folds, another seed or group, or leave the class out"
                )

    def _end(self, run: Run, epoch: int) -> None:
        if run.diverged:
            return
        run.losses.append(run.sgd.flush().loss)
        try:
            run.schedule.enough(run.losses, epoch)
        except Diverged:
            run.diverged = True


def _name(numbers: IntArray, feeder: Feeder, place: int) -> str:
    return f"row {numbers[place]} of {feeder.table!r}"


def _shifted(name: Callable[[int], str], by: int, place: int) -> str:
    return name(by + place)


def _visit(chunks: Iterator[Chunk], runs: Sequence[Run], *, own: bool) -> None:
    """Let some models visit the rows that are theirs."""
    for chunk in chunks:
        theirs = {fold: chunk.of(fold, own=own) for fold in {run.fold for run in runs}}
        for run in runs:
            visit, name = theirs[run.fold]
            if run.diverged or not len(visit):
                continue
            try:
                run.sgd.learn(chunk.rows, chunk.labels, visit, name)
            except Diverged:
                run.diverged = True
