"""Models of labels in a search: one per point, fold and label, vectorised across labels."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadLabel
from corgipile.linear.label_sets import LabelSets
from corgipile.linear.model_stack import learn_labels
from corgipile.linear.schedule import Schedule
from corgipile.linear.search_runs import Chunk, Run, Runs, all_rows, hint_for_split, in_one
from corgipile.linear.sgd import SGD, Figures, FloatArray, Locate
from corgipile.tables.table import IntArray

__all__ = ["LabelRuns"]


class LabelRuns(Runs):
    """The models of a search with labels.

    Args:
        how: As for `Runs`.
        found: The labels of rows.
    """

    def __init__(self, *how: Any, found: LabelSets) -> None:
        self._found, self._sets = found, np.ascontiguousarray(found.sets)
        super().__init__(*how)

    def _runs(self, make: Callable[[Schedule], SGD], fold: int, schedule: Schedule, name: str | None) -> Iterator[Run]:
        for label in range(len(self._found.labels)):
            yield Run(make(schedule), fold, schedule, make, team=fold, point_name=name, label=label)

    def _arrange(self, runs: list[Run], parts: npt.NDArray[np.uint8]) -> list[Run]:
        return sorted(runs, key=attrgetter("fold"))  # a stable sort keeps a point's models in label order

    def _kinds(self) -> int:
        return len(self._sets)

    def _describe_models(self) -> str:
        return f"{self._folds * len(self._found.labels)} models"

    def _count(self, labels: FloatArray, folds: npt.NDArray[np.uint8], counts: IntArray) -> None:
        """Count rows by label set and fold."""
        at = labels.astype(np.intp) * self._folds + folds
        counts += np.bincount(at, minlength=counts.size).reshape(counts.shape)

    def _check(self, counts: IntArray) -> None:
        rows, bad = counts.sum(axis=0), []
        for label, has_label in zip(self._found.labels, self._sets.T, strict=True):
            having = counts[has_label].sum(axis=0)
            parts = ((having, "have"), (rows - having, "lack"))
            bad += [(label, how, int(part.sum())) for part, how in parts if np.count_nonzero(part) == 1]
        if bad:
            label, how, some = bad[0]
            how = {"have": "has", "lack": "lacks"}[how] if some == 1 else how
            also = f" (as for {len(bad) - 1} more labels)" * (len(bad) > 1)
            raise BadLabel(
                f"{all_rows(some)} that {how} label {label!r} {in_one(some, self._folds)}, whose models would never "
                f"see one{also}; {hint_for_split(max(one[2] for one in bad), self._folds)}leave such labels out"
            )

    def _by_fold(self, figures: list[Figures]) -> list[Figures]:
        each, by_fold = len(self._found.labels), []
        for start in range(0, len(figures), each):
            some = figures[start : start + each]
            loss, score = (float(np.mean([one[at] for one in some])) for at in (1, 2))
            by_fold.append(Figures(some[0].rows, loss, score, some[0].weight))
        return by_fold

    def _visit(self, chunks: Iterator[Chunk], runs: Sequence[Run], *, own: bool) -> None:
        for chunk in chunks:
            left = [run for run in runs if not run.diverged]
            for fold, some in groupby(left, key=lambda run: run.fold):
                places = np.flatnonzero((chunk.folds == fold) == own)
                if len(places):
                    self._learn(chunk, places, list(some))

    def _learn(self, chunk: Chunk, places: npt.NDArray[np.intp], runs: list[Run]) -> None:
        """Train a fold's models on rows, in chunks."""
        for start in range(0, len(places), self._each):
            some = places[start : start + self._each]
            visit, name = chunk.visit[some], partial(_locate_in, chunk.name, some)
            for team in _consecutive([run for run in runs if not run.diverged]):
                found = learn_labels(
                    [run.sgd for run in team], chunk.rows, chunk.labels, self._sets, visit, name, chunk.weights,
                    first=team[0].label,
                )  # fmt: skip
                for at in found:
                    team[at - team[0].label].diverged = True


def _locate_in(locate: Locate, places: npt.NDArray[np.intp], place: int) -> str:
    return locate(int(places[place]))


def _consecutive(runs: list[Run]) -> Iterator[list[Run]]:
    """Yield runs of models with consecutive labels."""
    start = 0
    for at in range(1, len(runs) + 1):
        if at == len(runs) or runs[at].label != runs[at - 1].label + 1:
            yield runs[start:at]
            start = at
