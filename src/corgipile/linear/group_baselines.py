"""Whether models by group have learnt anything: their losses beside those of models that always say the same."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.linear.divergence import IDLE, SLIGHT, Untrained
from corgipile.linear.sgd import Figures
from corgipile.losses import Loss

__all__ = ["GroupBaselines"]

SAMPLED = 16  # labels of a group of which the best constant is made, where their mean is not it
ABOUT = 1.0  # how much more than such a constant a model may lose: it is known by few labels
Numbers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


class GroupBaselines(Untrained):
    """Counts the labels of an epoch, those of each group by themselves.

    Args:
        loss: What is made small.
        classes: Class values, ascending.
        groups: How many groups there are.
        class_weight: What a row of each class counts for; None: 1.

    Example:
        >>> from corgipile.losses import loss_of
        >>> base = GroupBaselines(loss_of("huber:1", 0), np.zeros(0), 2)
        >>> base.add_each(np.array([1e5, 1e5, 1.0]), None, np.array([0, 0, 1]))
        >>> base.idle(0, Figures(2, 9e4, 0.0)), base.idle(1, Figures(2, 0.0, 0.0))
        (True, False)
    """

    def __init__(self, loss: Loss, classes: npt.NDArray[Any], groups: int, class_weight: Floats | None = None) -> None:
        super().__init__(loss, len(classes), groups)
        self._classes, self._of_class = codes_of(classes), class_weight
        self._squared = loss.numbers and loss.of_mean and not loss.exponential  # R² says what the mean loses
        self._counts = np.zeros((groups, 0 if loss.numbers else len(classes)))
        self._sample = np.zeros((groups, SAMPLED if loss.numbers and not self._squared else 0))
        self._kept = np.zeros(groups, np.int64)

    def add_each(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None, numbers: Numbers | None) -> None:
        """Count labels, each for the group of its number."""
        super().add_each(labels, weights, numbers)
        assert numbers is not None  # noqa: S101 - for the type checker
        labels, good = labels.astype(np.float64, copy=False), np.isfinite(labels)
        if weights is not None:
            good &= np.isfinite(weights) & (weights > 0)
        if not self.loss.numbers:
            self._count(labels, good, weights, numbers)
        elif not self._squared:
            self._keep(labels[good], numbers[good])

    def _count(self, labels: Floats, good: npt.NDArray[np.bool_], weights: Any, numbers: Numbers) -> None:
        groups, classes = self._counts.shape
        at = np.minimum(np.searchsorted(self._classes, labels), classes - 1)
        good &= self._classes[at] == labels
        places = numbers[good].astype(np.int64) * classes + at[good]
        counts = None if weights is None else weights[good].astype(np.float64)
        if len(places) * 4 > groups * classes:
            self._counts += np.bincount(places, counts, groups * classes).reshape(groups, classes)
        else:
            np.add.at(self._counts.reshape(-1), places, 1.0 if counts is None else counts)

    def _keep(self, labels: Floats, numbers: Numbers) -> None:
        """Keep the first few labels of each group, which come in random order."""
        if not (some := self._kept[numbers] < SAMPLED).any():
            return
        labels, numbers = labels[some], numbers[some]
        order = np.argsort(numbers, kind="stable")
        found, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        places = self._kept[numbers[order]] + np.arange(len(order)) - np.repeat(starts, counts)
        fits = places < SAMPLED
        self._sample[numbers[order][fits], places[fits]] = labels[order][fits]
        self._kept[found] = np.minimum(self._kept[found] + counts, SAMPLED)

    def constant(self, group: int, figures: Figures) -> float:
        """Return what the best model of a group that always says the same loses, where this one has these figures."""
        code, parameter = self.loss.code, self.loss.parameter
        if self._squared:
            return figures.loss / (1 - figures.score) if figures.score < 1 else figures.loss
        if self.loss.numbers:
            labels = self._sample[group, : self._kept[group]]
            return _kernel.sgd_constant(code, parameter, labels, np.ones(len(labels)))[1]
        counts = self._counts[group] if self._of_class is None else self._counts[group] * self._of_class
        return _kernel.sgd_constant_of_classes(code, parameter, counts / (counts.sum() or 1))[1]

    def idle(self, group: int, figures: Figures) -> bool:
        """Say whether a group's loss is above that of a model that always says the same.

        Of a group of one class it is not said: such a model loses nothing, and hardly any other one does as well.
        """
        if figures.rows < 2 or not figures.loss > SLIGHT * self.untrained(group):
            return False
        least, slack = self.constant(group, figures), ABOUT if self._sample.size else IDLE - 1
        return bool(figures.loss > least + slack * abs(least) and (self.loss.numbers or least > 0))
