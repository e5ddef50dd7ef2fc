"""Models trained side by side: each visits the rows that are not of its fold, and at last judges those that are."""

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadLabel, BadValue, Diverged
from corgipile.linear.classes import codes_of
from corgipile.linear.divergence import Untrained
from corgipile.linear.model_stack import learn_parts, teams
from corgipile.linear.row_names import RowName
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import SGD, Figures, FloatArray, SlotArray, rows_in
from corgipile.linear.sparse import Sparse
from corgipile.linear.training import Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.tables.table import IntArray

__all__ = ["Chunk", "Run", "Runs"]

CHUNK = 512 << 10  # bytes of rows that all models visit before the next ones come: they stay in a core's cache
LEAST, SPARSE = 256, 1024  # rows at least, for a call costs as much as some; of sparse rows, which differ in length
MOST_THREADS = 16
log = logging.getLogger("corgipile")


@dataclass(eq=False)
class Run:
    """One model in training.

    Attributes:
        sgd: The model.
        fold: The rows it does not see.
        schedule: Its rates.
        make: Makes a model that has learnt nothing.
        team: The number of those with whom it visits rows at once; of one that judges, of those of its fold.
        told: What its point of the grid is, where nobody chose the rate there; None where somebody did.
        losses: Of the epochs so far.
        diverged: Whether it did: it learns no more.
        label: The label it tells, of several a row.
    """

    sgd: SGD
    fold: int
    schedule: Schedule
    make: Callable[[Schedule], SGD]
    team: int = 0
    told: str | None = None
    losses: list[float] = field(default_factory=list)
    diverged: bool = False
    label: int = 0


class Chunk(NamedTuple):
    """Rows that are visited together.

    Attributes:
        rows: Where they lie.
        labels: Their labels, by slot.
        visit: Their slots.
        folds: The fold of each that is visited.
        name: What names one of them, by its place in the visits.
        weights: What they count for, by slot; None: each as much.
    """

    rows: FloatArray | Sparse
    labels: FloatArray
    visit: SlotArray
    folds: npt.NDArray[np.uint8]
    name: Callable[[int], str]
    weights: FloatArray | None = None


class Runs:
    """The models of a search.

    Args:
        tasks: What is learnt, of each point of the grid.
        schedules: The rates of each.
        told: What each is, where nobody chose its rate; else None.
        parts: The fold of each row.
        folds: How many there are.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        schedules: Sequence[Schedule],
        told: Sequence[str | None],
        parts: npt.NDArray[np.uint8],
        folds: int,
    ) -> None:
        self._task, self._parts, self._folds = tasks[0], parts, folds
        self._scaler, inputs = tasks[0].sgd(schedules[0]), tasks[0].inputs
        self._each = SPARSE if inputs.sparse else max(LEAST, CHUNK // (inputs.width * inputs.dtype.itemsize))
        makers = [partial(one.sgd, scaled=False) for one in tasks]
        self.points = [
            [
                run
                for fold, left_out in enumerate(np.bincount(parts, minlength=folds).tolist())
                for run in self._made(partial(make, left_out=left_out), fold, schedule, name)
            ]
            for make, schedule, name in zip(makers, schedules, told, strict=True)
        ]
        self.all = self._arranged([run for point in self.points for run in point], parts)
        self._threads = min(len(os.sched_getaffinity(0)), len(self.all), MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "corgipile-search")

    def _made(self, make: Callable[[Schedule], SGD], fold: int, schedule: Schedule, name: str | None) -> Iterator[Run]:
        """Yield the models of a point that do not see a fold."""
        yield Run(make(schedule), fold, schedule, make, told=name)

    def _arranged(self, runs: list[Run], parts: npt.NDArray[np.uint8]) -> list[Run]:
        """Return models in an order in which those that can visit a row at once stand side by side, as a team."""
        theirs = np.array([run.fold for run in runs], np.uint8)
        for run, team in zip(runs, teams([run.sgd for run in runs], theirs, parts), strict=True):
            run.team = team
        return sorted(runs, key=attrgetter("team", "fold"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def learn(self, feeder: BufferedReader, epochs: int, on_rows: Callable[[int], object] | None) -> None:
        """Run all epochs.

        Raises:
            BadLabel: All rows of a class are in one fold.
        """
        counts = np.zeros((self._kinds(), self._folds), np.int64)
        untrained = Untrained(self._task.loss, len(self._task.classes), self._folds)
        for epoch in range(epochs):
            runs = self.all
            while runs:
                seen = 0
                for run in runs:
                    run.sgd.begin(run.schedule.rate(epoch))
                first = epoch == 0 and runs is self.all
                seeing = (counts, untrained) if first else ()
                for chunks, visits in self._steps(feeder, epoch, *seeing):
                    self._side_by_side(chunks, runs, own=False)
                    seen += visits
                    if on_rows is not None:
                        on_rows(visits)
                if first:
                    self._check(counts)
                again = self._lower(runs, untrained)
                for run in runs:
                    if run not in again:
                        self._end(run, epoch)
                if again and on_rows is not None:
                    on_rows(-seen)
                runs = again

    def _lower(self, runs: Sequence[Run], untrained: Untrained) -> list[Run]:
        """Give another rate, where nobody chose one, to models that begin again, which forget all; return these."""
        again: list[Run] = []
        told: Counter[tuple[str | None, Schedule, Schedule]] = Counter()
        for run in runs:
            loss = math.nan if run.diverged else run.sgd.flush().loss
            other = None if run.told is None else run.schedule.again(untrained, run.fold, loss)
            if other is not None:
                again.append(run)
                told[run.told, run.schedule, other] += 1
                run.schedule, run.sgd, run.diverged = other, run.make(other), False
        for (point, before, other), folds in told.items():
            log.warning(other.begins_again(before, f" in {folds} of {self._said()} of {point}"))
        return again

    def _said(self) -> str:
        return f"{self._folds} folds"

    def judge(self, feeder: BufferedReader) -> list[list[Figures]]:
        """Return what each model is worth on the rows of its fold, by point and fold."""
        task, judges = self._task, []
        trained = sorted(self.all, key=attrgetter("fold"))
        for run in trained:
            coef, bias = run.sgd.weights()
            if task.scaling is not None:
                coef, bias = task.scaling.fold(coef, bias)
            judge = SGD(task.kind, task.inputs, task.classes, on_bad=task.on_bad)
            judges.append(replace(run, sgd=judge, team=run.fold))
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
            if not found.weight and not run.diverged:
                raise BadValue(f"the weights of fold {run.fold} of {feeder.table!r} are all zero: it cannot be judged")
        of = {id(run): found for run, found in zip(trained, figures, strict=True)}
        return [self._by_fold([of[id(run)] for run in point]) for point in self.points]

    def _by_fold(self, figures: list[Figures]) -> list[Figures]:
        """Return the figures of each fold, of those of the models of a point."""
        return figures

    def _steps(
        self, feeder: BufferedReader, epoch: int, counts: IntArray | None = None, untrained: Untrained | None = None
    ) -> Iterator[tuple[Callable[[], Iterator[Chunk]], int]]:
        """Yield, for each step, what makes its chunks, and its visits."""
        inputs, label, weight = self._task.inputs, self._task.label, self._task.weight
        for visit, numbers in zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True):
            rows, labels = rows_in(feeder.buffer, inputs, visit), feeder.buffer.dense(label)
            weights = None if weight is None else feeder.buffer.dense(weight)
            folds = self._parts[numbers]
            if counts is not None and len(counts):
                self._count(labels[visit], folds, counts)
            if untrained is not None and untrained.loss.numbers:
                for fold in range(self._folds):
                    theirs = visit[folds != fold]
                    counts_for = None if weights is None else weights[theirs]
                    untrained.add_each(labels[theirs], counts_for, np.full(len(theirs), fold))
            step = Chunk(rows, labels, visit, folds, partial(_name, numbers, feeder), weights)
            yield partial(self._chunks, step), len(visit)

    def _chunks(self, step: Chunk) -> Iterator[Chunk]:
        """Yield a step as it is, or standardised in parts."""
        if self._scaler.scaling is None:
            yield step
            return
        for start in range(0, len(step.visit), self._each):
            some = step.visit[start : start + self._each]
            scaled, kept = self._scaler.scaled(step.rows, some)
            places = np.arange(len(some), dtype=np.int32)
            folds, name = step.folds[start : start + self._each], partial(_shifted, step.name, start)
            weights = None if step.weights is None else step.weights[some]
            yield Chunk(scaled, step.labels[some], places, folds, name, weights)
            del kept

    def _side_by_side(self, chunks: Callable[[], Iterator[Chunk]], runs: Sequence[Run], *, own: bool) -> None:
        """Let all models visit a step, each by itself where there are threads enough, and else each team in one."""
        if self._threads == len(self.all):
            parted = [[run] for run in runs]
        else:
            parted = [list(team) for _, team in groupby(runs, key=attrgetter("team"))]
        threads = min(self._threads, len(parted))
        at = [len(parted) * thread // threads for thread in range(threads + 1)]
        each = [[run for some in parted[start:stop] for run in some] for start, stop in pairwise(at)]
        waiting = [self._pool.submit(self._visit, chunks(), some, own=own) for some in each[1:]]
        try:
            self._visit(chunks(), each[0], own=own)
        finally:
            wait(waiting)  # they read slots that the next step may take
        for one in waiting:
            one.result()

    def _visit(self, chunks: Iterator[Chunk], runs: Sequence[Run], *, own: bool) -> None:
        """Let some models visit the rows that are theirs."""
        for chunk in chunks:
            left = [run for run in runs if not run.diverged]
            if not left:
                return
            theirs = np.array([run.fold for run in left], np.uint8)
            found = learn_parts([run.sgd for run in left], theirs, *chunk, own=own, each=self._each)
            for run, diverged in zip(left, found, strict=True):
                run.diverged = diverged

    def _kinds(self) -> int:
        """Return how many kinds of rows are counted."""
        return len(self._task.classes)

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
                    f"{all_of(row.sum())} of class {value} of {self._task.label!r} {in_one(row.sum(), self._folds)}, "
                    f"whose models would never see it; {more_in(row.sum(), self._folds)}leave the class out"
                )

    def _end(self, run: Run, epoch: int) -> None:
        if run.diverged:
            return
        figures = run.sgd.flush()
        if figures.rows and not figures.weight:
            raise BadValue(f"the weights of {self._task.source!r} are all zero outside fold {run.fold}")
        run.losses.append(figures.loss)
        try:
            run.schedule.enough(run.losses, epoch)
        except Diverged:
            run.diverged = True
        lower = run.schedule.lowered()
        if run.told is not None and lower is not None and run.sgd.has_plateaued(run.losses):
            run.schedule = lower


def _name(numbers: IntArray, feeder: BufferedReader, place: int) -> str:
    return RowName(feeder.table, int(numbers[place]))


def _shifted(name: Callable[[int], str], by: int, place: int) -> str:
    return name(by + place)


def all_of(rows: int) -> str:
    """Say of how many rows something is told.

    Example:
        >>> all_of(1), all_of(3)
        ('the one row', 'all 3 rows')
    """
    return "the one row" if rows == 1 else f"all {rows} rows"


def in_one(rows: int, folds: int) -> str:
    """Say that rows are in one fold."""
    return f"{'is' if rows == 1 else 'are'} in one of {folds} folds"


def more_in(rows: int, folds: int) -> str:
    """Say what would part rows, where anything does.

    Example:
        >>> more_in(1, 3), more_in(4, 2)
        ('', 'another seed or group, or ')
    """
    return "" if rows == 1 else "fewer folds, " * (folds > 2) + "another seed or group, or "
