"""Trains the models of a search together, each on the rows outside its fold, and evaluates it on that fold."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadLabel, BadValue, Diverged
from corgipile.linear.classes import codes_of
from corgipile.linear.divergence import Untrained
from corgipile.linear.label_sets import LabelSets
from corgipile.linear.problem import Task
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import SGD, Figures, FloatArray, Step
from corgipile.linear.stack import Run, Stack, at_once
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.tables.table import IntArray

__all__ = ["Runs"]

CHUNK_BYTES = 512 << 10  # bytes of rows that all models visit before the next ones: they stay in a core's cache
MIN_ROWS, SPARSE = 256, 1024  # smallest chunk, because a call has a fixed cost; chunk of sparse rows
log = logging.getLogger("corgipile")


class Runs(Stack):
    """The models of a search: one per point, fold and label; ``parts`` is the fold of each row.

    The point's name is None if the user chose its rate.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        schedules: Sequence[Schedule],
        point_names: Sequence[str | None],
        parts: npt.NDArray[np.uint8],
        folds: int,
        found: LabelSets | None,
    ) -> None:
        self._folds, self._found, inputs = folds, found, tasks[0].inputs
        left_out, labels = np.bincount(parts, minlength=folds).tolist(), 1 if found is None else len(found.labels)
        self.points = [
            [
                Run(make(schedule), schedule, make, name is not None, fold, label, point=name or "")
                for fold, make in enumerate(partial(one.sgd, scaled=False, left_out=left) for left in left_out)
                for label in range(labels)
            ]
            for one, schedule, name in zip(tasks, schedules, point_names, strict=True)
        ]
        # a stable sort keeps a point's models in label order
        runs = sorted((run for point in self.points for run in point), key=_place)
        for place, some in groupby(runs, key=_place):
            for at, run in enumerate(some):
                run.team = (place, at // at_once(run.sgd))
        each = SPARSE if inputs.sparse else max(MIN_ROWS, CHUNK_BYTES // (inputs.width * inputs.dtype.itemsize))
        sets = None if found is None else np.ascontiguousarray(found.sets)
        scaler = tasks[0].sgd(schedules[0])
        super().__init__(tasks[0], scaler, runs, each=each, threads=len(runs), parts=parts, sets=sets)

    def learn(self, feeder: BufferedReader, epochs: int, on_rows: Callable[[int], object] | None) -> None:
        """Train all epochs; raise BadLabel if all rows of a class are in one fold."""
        kinds = len(self._task.classes) if self._sets is None else len(self._sets)
        counts = np.zeros((kinds, self._folds), np.int64)
        untrained = Untrained(self._task.loss, len(self._task.classes), self._folds)
        for epoch in range(epochs):
            runs = self.all
            while runs:
                first = epoch == 0 and runs is self.all
                watch = partial(self._count, counts, untrained) if first else None
                seen = self.visit_all(feeder, epoch, runs, watch, on_rows)
                if first:
                    (self._check if self._found is None else self._check_labels)(counts)
                restarting = self.restart(runs, untrained, self._announce)
                again = {id(run) for run in restarting}
                for run in (run for run in runs if id(run) not in again):
                    self._end_epoch(run, epoch)
                if restarting and on_rows is not None:
                    on_rows(-seen)
                runs = restarting

    def _announce(self, before: Schedule, other: Schedule, runs: list[Run]) -> None:
        models = f"{self._folds} folds" if self._found is None else f"{self._folds * len(self._found.labels)} models"
        log.warning(other.describe_restart(before, f" in {len(runs)} of {models} of {runs[0].point}"))

    def evaluate(self, feeder: BufferedReader) -> list[list[Figures]]:
        """Return the figures of each model on the rows of its fold, by point and fold."""
        task, evaluators = self._task, []
        trained = sorted(self.all, key=attrgetter("fold"))
        for run in trained:
            coef, bias = run.sgd.weights()
            if task.scaling is not None:
                coef, bias = task.scaling.fold(coef, bias)
            sgd, error = SGD(task.kind, task.inputs, task.classes, on_bad=task.on_bad), run.error
            if error is None and not (np.isfinite(coef).all() and np.isfinite(bias).all()):
                error = Diverged("weights overflowed")
            if error is None:
                sgd.assign(coef, bias)
            evaluators.append(replace(run, sgd=sgd, team=run.fold, error=error))
        self._scaler = SGD(task.kind, task.inputs, task.classes)  # the weights are now for unscaled rows
        self.visit_all(feeder, 0, evaluators, own=True)
        figures = [Figures(0, math.inf, math.nan) if run.error else run.sgd.flush() for run in evaluators]
        for run, found in zip(evaluators, figures, strict=True):
            if not found.rows and not run.error:
                raise BadValue(f"no rows of fold {run.fold} of {feeder.table!r} were used; all were skipped")
            if not found.weight and not run.error:
                zero = f"the weights of fold {run.fold} of {feeder.table!r} are all zero"
                raise BadValue(f"{zero}: it cannot be evaluated")
        by_run = dict(zip(map(id, trained), figures, strict=True))
        return [self._by_fold([by_run[id(run)] for run in point]) for point in self.points]

    def _by_fold(self, figures: list[Figures]) -> list[Figures]:
        """Return the figures of each fold from those of a point's models: means over labels."""
        each, by_fold = len(figures) // self._folds, []
        for start in range(0, len(figures), each):
            some = figures[start : start + each]
            loss, score = (float(np.mean([one[at] for one in some])) for at in (1, 2))
            by_fold.append(Figures(some[0].rows, loss, score, some[0].weight))
        return by_fold

    def _count(self, counts: IntArray, untrained: Untrained, step: Step) -> None:
        """Count rows by class or label set, and fold; sum the losses of untrained models."""
        labels, folds = step.labels[step.visit], step.numbers
        assert folds is not None  # noqa: S101 - for the type checker
        if self._found is not None:
            places = labels.astype(np.intp) * self._folds + folds
            counts += np.bincount(places, minlength=counts.size).reshape(counts.shape)
        elif not untrained.loss.numbers:
            self._count_classes(counts, labels, folds)
        else:
            for fold in range(self._folds):
                own_folds = step.visit[folds != fold]
                row_weights = None if step.weights is None else step.weights[own_folds]
                untrained.add(step.labels[own_folds], row_weights, np.full(len(own_folds), fold))

    def _count_classes(self, counts: IntArray, labels: FloatArray, folds: npt.NDArray[np.integer]) -> None:
        """Count rows by class and fold; the kernel reports unknown labels."""
        classes = codes_of(self._task.classes)
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        good = classes[codes] == labels
        counts += np.bincount(codes[good] * self._folds + folds[good], minlength=counts.size).reshape(counts.shape)

    def _check(self, counts: IntArray) -> None:
        for value, row in zip(self._task.classes, counts, strict=True):
            if np.count_nonzero(row) == 1:
                raise BadLabel(
                    f"{_all_rows(row.sum())} of class {value} of {self._task.label!r} {_in_one(row.sum(), self._folds)}"
                    f", whose models would never see it; {_hint_for_split(row.sum(), self._folds)}leave the class out"
                )

    def _check_labels(self, counts: IntArray) -> None:
        assert self._found is not None  # noqa: S101 - for the type checker
        rows, bad = counts.sum(axis=0), []
        for label, has_label in zip(self._found.labels, self._found.sets.T, strict=True):
            having = counts[has_label].sum(axis=0)
            parts = ((having, "have"), (rows - having, "lack"))
            bad += [(label, how, int(part.sum())) for part, how in parts if np.count_nonzero(part) == 1]
        if bad:
            label, how, some = bad[0]
            how = {"have": "has", "lack": "lacks"}[how] if some == 1 else how
            also = f" (as for {len(bad) - 1} more labels)" * (len(bad) > 1)
            raise BadLabel(
                f"{_all_rows(some)} that {how} label {label!r} {_in_one(some, self._folds)}, whose models would never "
                f"see one{also}; {_hint_for_split(max(one[2] for one in bad), self._folds)}leave such labels out"
            )

    def _end_epoch(self, run: Run, epoch: int) -> None:
        if run.error:
            return
        figures = run.sgd.flush()
        if figures.rows and not figures.weight:
            raise BadValue(f"the weights of {self._task.source!r} are all zero outside fold {run.fold}")
        run.losses.append(figures.loss)
        try:
            run.schedule.enough(run.losses, epoch)
        except Diverged as error:
            run.error = error
        lowered_schedule = run.schedule.lowered()
        if run.adaptive and lowered_schedule is not None and run.sgd.has_plateaued(run.losses):
            run.schedule = lowered_schedule


def _place(run: Run) -> tuple[object, ...]:
    """Return a sort key that puts models that can visit a row at once side by side."""
    schedule = run.schedule
    return run.fold, at_once(run.sgd), schedule.step, schedule.l1 > 0, schedule.l2 > 0


def _all_rows(rows: int) -> str:
    """Return a number of rows as text.

    Example:
        >>> _all_rows(1), _all_rows(3)
        ('the one row', 'all 3 rows')
    """
    return "the one row" if rows == 1 else f"all {rows} rows"


def _in_one(rows: int, folds: int) -> str:
    """Return the text for rows that share a fold."""
    return f"{'is' if rows == 1 else 'are'} in one of {folds} folds"


def _hint_for_split(rows: int, folds: int) -> str:
    """Return what could split the rows, as the beginning of a hint; empty for one row.

    Example:
        >>> _hint_for_split(1, 3), _hint_for_split(4, 2)
        ('', 'another seed or group, or ')
    """
    return "" if rows == 1 else "fewer folds, " * (folds > 2) + "another seed or group, or "
