"""Rows routed to several models: each learns outside its fold, on its label, or both, vectorised across models."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import Diverged
from corgipile.linear import passes
from corgipile.linear.divergence import Untrained
from corgipile.linear.problem import Task
from corgipile.linear.schedule import Schedule
from corgipile.linear.sgd import SGD, Step
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.resident import cores

__all__ = ["Run", "Stack", "at_once", "learn_all", "max_threads"]

MAX_THREADS = 16


@dataclass(eq=False)
class Run:
    """One model in training.

    Attributes:
        sgd: The model.
        schedule: Its learning rates.
        make: Creates an untrained model.
        adaptive: Whether its rate is a default, which is lowered if it diverges.
        fold: The fold that it does not see.
        label: The number of its label, with labels.
        team: Its team, which visits rows at once in one thread.
        point: The text of its grid point.
        losses: Losses of the epochs so far.
        error: Its divergence, with which it stopped learning.
    """

    sgd: SGD
    schedule: Schedule
    make: Callable[[Schedule], SGD]
    adaptive: bool
    fold: int = 0
    label: int = 0
    team: object = 0
    point: str = ""
    losses: list[float] = field(default_factory=list)
    error: Diverged | None = None


class Stack:
    """Models in training on the same rows; models of a fold are adjacent, and in it those of a team.

    ``scaler`` standardises ``each`` rows, which all models visit before the next ones. ``parts`` is the fold of each
    row, ``sets`` whether a label set has a label.
    """

    def __init__(
        self,
        task: Task,
        scaler: SGD,
        runs: list[Run],
        *,
        each: int,
        threads: int,
        parts: npt.NDArray[np.uint8] | None = None,
        sets: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._task, self._scaler, self.all = task, scaler, runs
        self._each, self._parts, self._sets = each, parts, sets
        self._threads = min(max_threads(), threads)
        self._pool = ThreadPoolExecutor(self._threads, "corgipile-stack")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def visit_all(
        self,
        feeder: BufferedReader,
        epoch: int,
        runs: Sequence[Run],
        watch: Callable[[Step], object] | None = None,
        on_rows: Callable[[int], object] | None = None,
        *,
        own: bool = False,
        strict: bool = False,
    ) -> int:
        """Train models on the rows of an epoch outside their fold, and return the number of rows.

        With ``own`` evaluate them on the rows of their fold. ``watch`` receives each step, whose ``numbers`` are the
        folds; ``strict`` raises the error of a model that diverged.
        """
        task, seen = self._task, 0
        for run in runs:
            run.sgd.begin(0.0 if own else run.schedule.rate(epoch))
        route = None if self._parts is None else self._parts.__getitem__
        for step in passes.steps(feeder, task.inputs, task.label, task.weight, epoch, route):
            if watch is not None:
                watch(step)
            self._share(step, runs, own=own)
            for error in filter(None, (run.error for run in runs if strict)):
                raise error
            seen += len(step.visit)
            if on_rows is not None:
                on_rows(len(step.visit))
        return seen

    def restart(
        self, runs: Sequence[Run], untrained: Untrained, announce: Callable[[Schedule, Schedule, list[Run]], object]
    ) -> list[Run]:
        """Reset models whose default rate diverged, with a lower rate, and return them.

        ``announce`` receives the schedule before and after, and the models that change so.
        """
        changed, restarting = defaultdict[tuple[str, Schedule, Schedule], list[Run]](list), []
        for run in runs:
            loss = math.nan if run.error else run.sgd.flush().loss
            other = run.schedule.restarted(untrained, run.fold, loss) if run.adaptive else None
            if other is not None:
                changed[run.point, run.schedule, other].append(run)
                restarting.append(run)
                run.schedule, run.sgd, run.error = other, run.make(other), None
        for (_, before, other), of in changed.items():
            announce(before, other, of)
        return restarting

    def _share(self, step: Step, runs: Sequence[Run], *, own: bool) -> None:
        """Let all models visit a step: with enough threads one model per thread, else whole teams."""
        if self._threads == len(self.all):
            groups = [[run] for run in runs]
        else:
            groups = [list(team) for _, team in groupby(runs, key=attrgetter("team"))]
        threads = min(self._threads, len(groups))
        at = [len(groups) * thread // threads for thread in range(threads + 1)]
        shares = [[run for some in groups[start:stop] for run in some] for start, stop in pairwise(at)]
        futures = [self._pool.submit(self._visit, step, some, own=own) for some in shares[1:]]
        try:
            self._visit(step, shares[0], own=own)
        finally:
            wait(futures)  # they read slots that the next step may overwrite
        for future in futures:
            future.result()

    def _visit(self, step: Step, runs: Sequence[Run], *, own: bool) -> None:
        """Train or evaluate some models on their rows, in chunks."""
        for piece in self._scaler.pieces(step, self._each):
            for start in range(0, len(piece.visit), self._each):
                chunk = piece.part(slice(start, start + self._each))
                for fold, some in groupby(runs, key=attrgetter("fold")):
                    left = [run for run in some if run.error is None]
                    rows = chunk
                    if chunk.numbers is not None:
                        rows = chunk.part(np.flatnonzero((chunk.numbers == fold) == own))
                    for team in [left] * bool(left) if self._sets is None else _consecutive(left):
                        models = [run.sgd for run in team]
                        for at, error in learn_all(models, rows, self._sets, first=team[0].label).items():
                            team[at].error = error


def max_threads() -> int:
    """Return how many threads may train models."""
    return min(cores(), MAX_THREADS)


def _consecutive(runs: list[Run]) -> Iterator[list[Run]]:
    """Yield runs of models with consecutive labels."""
    ends = [at for at in range(1, len(runs)) if runs[at].label != runs[at - 1].label + 1]
    yield from (runs[start:stop] for start, stop in pairwise([0, *ends, len(runs)]) if stop > start)


def at_once(model: SGD) -> int:
    """Return how many similar models visit a row at once."""
    return _kernel.sgd_at_once(model._state)  # noqa: SLF001 - a function of the class


def learn_all(
    models: Sequence[SGD], step: Step, sets: npt.NDArray[np.bool_] | None = None, *, first: int = 0
) -> dict[int, Diverged]:
    """Train models on the same rows; return divergences by model.

    With ``sets``, bool[sets, labels], the labels of rows are numbers of sets, and each model has its own label, from
    ``first`` on. Models do not standardise; the kernel vectorises across adjacent models that differ only in rates,
    penalties, means or weights.
    """
    features, numbers, weights = step.for_kernel()
    states = [model._state for model in models]  # noqa: SLF001 - a function of the class
    labels = 0 if sets is None else sets.shape[1]
    results = _kernel.sgd_each(states, features, *numbers, step.visit, *weights, sets, labels, first)
    steps = {at: step for at, (status, _) in enumerate(results) if status}
    if steps and sets is not None:  # slots outside the visit may hold anything
        set_numbers = np.fmax(np.fmin(step.labels, len(sets) - 1), 0).astype(np.intp)
        steps = {at: step._replace(labels=sets[:, first + at].take(set_numbers).astype(np.float64)) for at in steps}
    return _finish(models, results, steps)


def _finish(models: Sequence[SGD], results: list[tuple[int, int]], steps: dict[int, Step]) -> dict[int, Diverged]:
    """Let models that the kernel stopped finish their steps alone; return divergences."""
    diverged = {}
    for at, step in steps.items():
        try:
            models[at]._learn_all(step, results[at])  # noqa: SLF001 - a function of the class
        except Diverged as error:
            diverged[at] = error
    return diverged
