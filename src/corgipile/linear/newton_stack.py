"""Models that Newton's method trains in the same passes: one, one per group, or one per label."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.linear.group_sgd import total_figures
from corgipile.linear.group_training import groups_of
from corgipile.linear.group_values import Codes, Value
from corgipile.linear.groups import Groups
from corgipile.linear.label_sets import LabelSets
from corgipile.linear.label_training import memory_with_labels
from corgipile.linear.model import Model
from corgipile.linear.multilabel import LabelModels
from corgipile.linear.problem import Record, Task
from corgipile.linear.sgd import Figures, Step, outputs_of
from corgipile.settings import TrainArguments
from corgipile.sizes import Size
from corgipile.suggestions import listed
from corgipile.tables.table import Table

__all__ = ["Members", "members_of"]

Flags = npt.NDArray[np.bool_]


class Members:
    """The models of a run; this class is a single model of all rows.

    Attributes:
        count: The number of models.
        kind: The class of the result.
        route: Returns the group of each row; None: there are no groups.
    """

    count: int = 1
    kind: type[Model] = Model
    route: Any = None

    def parts(self, step: Step, learning: Flags) -> Iterator[tuple[int, Step]]:
        """Yield the models in training that have rows in a step, and these rows with the models' labels."""
        raise NotImplementedError

    def params(self, each: list[Figures], score: str) -> Record:
        """Return what the result stores of its models."""
        return {}

    def total(self, each: list[Figures]) -> Figures:
        """Return the figures of all models together."""
        return total_figures(each)

    def described(self, notes: list[list[str]]) -> list[str]:
        """Clear the models' notes and return each distinct one with the models that it concerns."""
        of = defaultdict[str, list[int]](list)
        for at, texts in enumerate(notes):
            for text in texts:
                of[text].append(at)
            texts.clear()
        return [self._of(text, models) for text, models in of.items()]

    def _of(self, text: str, models: list[int]) -> str:
        return text


class GroupMembers(Members):
    """A model for each value of a column; ``codes`` is the group number of each row."""

    kind = Groups

    def __init__(self, by: str, groups: list[Value], codes: Codes) -> None:
        self.by, self.groups, self.count, self.route = by, groups, len(groups), codes.__getitem__

    def parts(self, step: Step, learning: Flags) -> Iterator[tuple[int, Step]]:
        """Yield the groups in training that have rows in a step, and these rows."""
        assert step.numbers is not None  # noqa: S101 - for the type checker: the groups route rows
        places = np.argsort(step.numbers, kind="stable")
        present, starts = np.unique(step.numbers[places], return_index=True)
        for at, part in zip(present.tolist(), np.split(places, starts[1:]), strict=True):
            if learning[at]:
                yield at, step.part(part)

    def params(self, each: list[Figures], score: str) -> Record:
        """Return the groups and their results."""
        names = {"rows": [one.rows for one in each], "loss": [one.loss for one in each]}
        return {
            "by": self.by,
            "groups": self.groups,
            "of_groups": names | {score: [one.score for one in each]},
        }

    def _of(self, text: str, models: list[int]) -> str:
        return f"{text} (in groups {listed(str(self.groups[at]) for at in models)} of {self.by!r})"


class LabelMembers(Members):
    """A binary model for each label."""

    kind = LabelModels

    def __init__(self, found: LabelSets) -> None:
        self.found, self.count = found, len(found.labels)

    def parts(self, step: Step, learning: Flags) -> Iterator[tuple[int, Step]]:
        """Yield the labels in training, and all rows of a step with 1 for those that have the label."""
        sets = step.labels[step.visit].astype(np.intp)
        for at in np.flatnonzero(learning).tolist():
            labels = np.zeros_like(step.labels)
            labels[step.visit] = self.found.sets[sets, at]
            yield at, step._replace(labels=labels)

    def params(self, each: list[Figures], score: str) -> Record:
        """Return the labels."""
        return {"label": self.found.column, "labels": self.found.labels}

    def total(self, each: list[Figures]) -> Figures:
        """Return the means over labels."""
        return total_figures(each)._replace(rows=each[0].rows)

    def _of(self, text: str, models: list[int]) -> str:
        return f"{text} (for labels {listed(str(self.found.labels[at]) for at in models)})"


def members_of(
    given: TrainArguments, task: Task, opened: Table, labels: LabelSets | None
) -> tuple[Members, Size | None]:
    """Return the models of a run, and the memory for rows; several models may take half of it."""
    outputs, width = outputs_of(task.kind, task.classes), task.inputs.width + task.intercept
    each = 8 * (3 * (outputs * width) ** 2 + 4 * outputs * width)  # sums, and the matrix of all weights
    if labels is not None:
        return LabelMembers(labels), memory_with_labels(given, task, labels, each)
    if given.by is None:
        return Members(), given.memory
    groups, codes, memory = groups_of(given, task, opened, each)
    return GroupMembers(given.by, groups, codes), memory
