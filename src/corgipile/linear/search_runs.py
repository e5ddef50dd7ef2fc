"""Trains the models of a search together, each on the rows outside its fold, and evaluates it on that fold."""

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

CHUNK_BYTES = 512 << 10  # bytes of rows that all models visit before the next ones: they stay in a core's cache
MIN_ROWS, SPARSE = 256, 1024  # smallest chunk, because a call has a fixed cost; chunk of sparse rows
MAX_THREADS = 16
log = logging.getLogger("corgipile")


@dataclass(eq=False)
class Run:
    """One model in training.

    Attributes:
        sgd: The model.
        fold: The fold that it does not see.
        schedule: Its learning rates.
        make: Creates an untrained model.
        team: The number of its team, which visits rows at once; in evaluation the number of its fold.
        point_name: The text of its grid point; None if the user chose its rate.
        losses: Losses of the epochs so far.
        diverged: Whether it diverged and stopped learning.
        label: The number of its label, with labels.
    """

    sgd: SGD
    fold: int
    schedule: Schedule
    make: Callable[[Schedule], SGD]
    team: int = 0
    point_name: str | None = None
    losses: list[float] = field(default_factory=list)
    diverged: bool = False
    label: int = 0


class Chunk(NamedTuple):
    """Rows that all models visit before the next ones.

    Attributes:
        rows: The rows by slot.
        labels: Their labels, by slot.
        visit: The visited slots.
        folds: The fold of each visit.
        name: Names a row by its place in ``visit``.
        weights: Weights by slot; None: all 1.
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
        tasks: The task of each grid point.
        schedules: The learning rates of each point.
        point_name: The text of each point; None if the user chose its rate.
        parts: The fold of each row.
        folds: The number of folds.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        schedules: Sequence[Schedule],
        point_name: Sequence[str | None],
        parts: npt.NDArray[np.uint8],
        folds: int,
    ) -> None:
        self._task, self._parts, self._folds = tasks[0], parts, folds
        self._scaler, inputs = tasks[0].sgd(schedules[0]), tasks[0].inputs
        self._each = SPARSE if inputs.sparse else max(MIN_ROWS, CHUNK_BYTES // (inputs.width * inputs.dtype.itemsize))
        makers = [partial(one.sgd, scaled=False) for one in tasks]
        self.points = [
            [
                run
                for fold, left_out in enumerate(np.bincount(parts, minlength=folds).tolist())
                for run in self._runs(partial(make, left_out=left_out), fold, schedule, name)
            ]
            for make, schedule, name in zip(makers, schedules, point_name, strict=True)
        ]
        self.all = self._arrange([run for point in self.points for run in point], parts)
        self._threads = min(len(os.sched_getaffinity(0)), len(self.all), MAX_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "corgipile-search")

    def _runs(self, make: Callable[[Schedule], SGD], fold: int, schedule: Schedule, name: str | None) -> Iterator[Run]:
        """Yield the models of a point that do not see a fold."""
        yield Run(make(schedule), fold, schedule, make, point_name=name)

    def _arrange(self, runs: list[Run], parts: npt.NDArray[np.uint8]) -> list[Run]:
        """Return models with those adjacent that can visit a row at once, as a team."""
        own_folds = np.array([run.fold for run in runs], np.uint8)
        for run, team in zip(runs, teams([run.sgd for run in runs], own_folds, parts), strict=True):
            run.team = team
        return sorted(runs, key=attrgetter("team", "fold"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def learn(self, feeder: BufferedReader, epochs: int, on_rows: Callable[[int], object] | None) -> None:
        """Train all epochs.

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
                    self._visit_step(chunks, runs, own=False)
                    seen += visits
                    if on_rows is not None:
                        on_rows(visits)
                if first:
                    self._check(counts)
                restarting = self._lower(runs, untrained)
                for run in runs:
                    if run not in restarting:
                        self._end_epoch(run, epoch)
                if restarting and on_rows is not None:
                    on_rows(-seen)
                runs = restarting

    def _lower(self, runs: Sequence[Run], untrained: Untrained) -> list[Run]:
        """Reset models whose default rate diverged, with a lower rate; return them."""
        restarting: list[Run] = []
        n_folds: Counter[tuple[str | None, Schedule, Schedule]] = Counter()
        for run in runs:
            loss = math.nan if run.diverged else run.sgd.flush().loss
            other = None if run.point_name is None else run.schedule.restarted(untrained, run.fold, loss)
            if other is not None:
                restarting.append(run)
                n_folds[run.point_name, run.schedule, other] += 1
                run.schedule, run.sgd, run.diverged = other, run.make(other), False
        for (point, before, other), folds in n_folds.items():
            log.warning(other.describe_restart(before, f" in {folds} of {self._describe_models()} of {point}"))
        return restarting

    def _describe_models(self) -> str:
        return f"{self._folds} folds"

    def evaluate(self, feeder: BufferedReader) -> list[list[Figures]]:
        """Return the figures of each model on the rows of its fold, by point and fold."""
        task, evaluators = self._task, []
        trained = sorted(self.all, key=attrgetter("fold"))
        for run in trained:
            coef, bias = run.sgd.weights()
            if task.scaling is not None:
                coef, bias = task.scaling.fold(coef, bias)
            evaluate = SGD(task.kind, task.inputs, task.classes, on_bad=task.on_bad)
            evaluators.append(replace(run, sgd=evaluate, team=run.fold))
            evaluators[-1].diverged = run.diverged or not (np.isfinite(coef).all() and np.isfinite(bias).all())
            if not evaluators[-1].diverged:
                evaluators[-1].sgd.assign(coef, bias)
            evaluators[-1].sgd.begin(0.0)
        self._scaler = SGD(task.kind, task.inputs, task.classes)  # the weights are now for unscaled rows
        for chunks, _ in self._steps(feeder, 0):
            self._visit_step(chunks, evaluators, own=True)
        figures = [Figures(0, math.inf, math.nan) if run.diverged else run.sgd.flush() for run in evaluators]
        for run, found in zip(evaluators, figures, strict=True):
            if not found.rows and not run.diverged:
                raise BadValue(f"no rows of fold {run.fold} of {feeder.table!r} were used; all were skipped")
            if not found.weight and not run.diverged:
                raise BadValue(
                    f"the weights of fold {run.fold} of {feeder.table!r} are all zero: it cannot be evaluated"
                )
        by_run = {id(run): found for run, found in zip(trained, figures, strict=True)}
        return [self._by_fold([by_run[id(run)] for run in point]) for point in self.points]

    def _by_fold(self, figures: list[Figures]) -> list[Figures]:
        """Return the figures of each fold from those of a point's models."""
        return figures

    def _steps(
        self, feeder: BufferedReader, epoch: int, counts: IntArray | None = None, untrained: Untrained | None = None
    ) -> Iterator[tuple[Callable[[], Iterator[Chunk]], int]]:
        """Yield a function that returns the chunks of a step, and the number of visits."""
        inputs, label, weight = self._task.inputs, self._task.label, self._task.weight
        for visit, numbers in zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True):
            rows, labels = rows_in(feeder.buffer, inputs, visit), feeder.buffer.dense(label)
            weights = None if weight is None else feeder.buffer.dense(weight)
            folds = self._parts[numbers]
            if counts is not None and len(counts):
                self._count(labels[visit], folds, counts)
            if untrained is not None and untrained.loss.numbers:
                for fold in range(self._folds):
                    own_folds = visit[folds != fold]
                    row_weights = None if weights is None else weights[own_folds]
                    untrained.add_each(labels[own_folds], row_weights, np.full(len(own_folds), fold))
            step = Chunk(rows, labels, visit, folds, partial(_name, numbers, feeder), weights)
            yield partial(self._chunks, step), len(visit)

    def _chunks(self, step: Chunk) -> Iterator[Chunk]:
        """Yield a step whole, or in standardised parts."""
        if self._scaler.scaling is None:
            yield step
            return
        for start in range(0, len(step.visit), self._each):
            some = step.visit[start : start + self._each]
            scaled, owners = self._scaler.scaled(step.rows, some)
            places = np.arange(len(some), dtype=np.int32)
            folds, name = step.folds[start : start + self._each], partial(_locate_shifted, step.name, start)
            weights = None if step.weights is None else step.weights[some]
            yield Chunk(scaled, step.labels[some], places, folds, name, weights)
            del owners

    def _visit_step(self, chunks: Callable[[], Iterator[Chunk]], runs: Sequence[Run], *, own: bool) -> None:
        """Let all models visit a step: with enough threads one model per thread, else whole teams."""
        if self._threads == len(self.all):
            groups = [[run] for run in runs]
        else:
            groups = [list(team) for _, team in groupby(runs, key=attrgetter("team"))]
        threads = min(self._threads, len(groups))
        at = [len(groups) * thread // threads for thread in range(threads + 1)]
        shares = [[run for some in groups[start:stop] for run in some] for start, stop in pairwise(at)]
        futures = [self._pool.submit(self._visit, chunks(), some, own=own) for some in shares[1:]]
        try:
            self._visit(chunks(), shares[0], own=own)
        finally:
            wait(futures)  # they read slots that the next step may overwrite
        for future in futures:
            future.result()

    def _visit(self, chunks: Iterator[Chunk], runs: Sequence[Run], *, own: bool) -> None:
        """Train or evaluate some models on their rows."""
        for chunk in chunks:
            left = [run for run in runs if not run.diverged]
            if not left:
                return
            own_folds = np.array([run.fold for run in left], np.uint8)
            found = learn_parts([run.sgd for run in left], own_folds, *chunk, own=own, each=self._each)
            for run, diverged in zip(left, found, strict=True):
                run.diverged = diverged

    def _kinds(self) -> int:
        """Return the number of row kinds that are counted by fold."""
        return len(self._task.classes)

    def _count(self, labels: FloatArray, folds: npt.NDArray[np.uint8], counts: IntArray) -> None:
        """Count rows by class and fold; the kernel reports unknown labels."""
        classes = codes_of(self._task.classes)
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        good = classes[codes] == labels
        counts += np.bincount(codes[good] * self._folds + folds[good], minlength=counts.size).reshape(counts.shape)

    def _check(self, counts: IntArray) -> None:
        for value, row in zip(self._task.classes, counts, strict=True):
            if np.count_nonzero(row) == 1:
                raise BadLabel(
                    f"{all_rows(row.sum())} of class {value} of {self._task.label!r} {in_one(row.sum(), self._folds)}"
                    f", whose models would never see it; {hint_for_split(row.sum(), self._folds)}leave the class out"
                )

    def _end_epoch(self, run: Run, epoch: int) -> None:
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
        lowered_schedule = run.schedule.lowered()
        if run.point_name is not None and lowered_schedule is not None and run.sgd.has_plateaued(run.losses):
            run.schedule = lowered_schedule


def _name(numbers: IntArray, feeder: BufferedReader, place: int) -> str:
    return RowName(feeder.table, int(numbers[place]))


def _locate_shifted(name: Callable[[int], str], by: int, place: int) -> str:
    return name(by + place)


def all_rows(rows: int) -> str:
    """Return a number of rows as text.

    Example:
        >>> all_rows(1), all_rows(3)
        ('the one row', 'all 3 rows')
    """
    return "the one row" if rows == 1 else f"all {rows} rows"


def in_one(rows: int, folds: int) -> str:
    """Return the text for rows that share a fold."""
    return f"{'is' if rows == 1 else 'are'} in one of {folds} folds"


def hint_for_split(rows: int, folds: int) -> str:
    """Return what could split the rows, as the beginning of a hint; empty for one row.

    Example:
        >>> hint_for_split(1, 3), hint_for_split(4, 2)
        ('', 'another seed or group, or ')
    """
    return "" if rows == 1 else "fewer folds, " * (folds > 2) + "another seed or group, or "
