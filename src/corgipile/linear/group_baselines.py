"""Detects models by group that learnt nothing, by comparing them with constant predictors."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.linear.divergence import IDLE, SLIGHT, Untrained
from corgipile.linear.sgd import Figures
from corgipile.losses import Loss

__all__ = ["GroupBaselines"]

MAX_SAMPLED_LABELS = 16  # labels per group that determine the best constant, where the mean does not
SAMPLE_SLACK = 1.0  # relative slack over a constant that few labels determine
Numbers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


class GroupBaselines(Untrained):
    """Computes the loss of each group's best constant predictor from the labels of an epoch.

    Args:
        loss: The loss.
        classes: Class values, ascending.
        groups: The number of groups.
        class_weight: The weight of each class; None: 1.

    Example:
        >>> from corgipile.losses import loss_of
        >>> base = GroupBaselines(loss_of("huber:1", 0), np.zeros(0), 2)
        >>> base.add(np.array([1e5, 1e5, 1.0]), None, np.array([0, 0, 1]))
        >>> base.learnt_nothing(0, Figures(2, 9e4, 0.0)), base.learnt_nothing(1, Figures(2, 0.0, 0.0))
        (True, False)
    """

    def __init__(self, loss: Loss, classes: npt.NDArray[Any], groups: int, class_weight: Floats | None = None) -> None:
        super().__init__(loss, len(classes), groups)
        self._classes, self._class_weight = codes_of(classes), class_weight
        self._squared = loss.numbers and loss.of_mean and not loss.exponential  # R² gives the loss of the mean
        self._counts = np.zeros((groups, 0 if loss.numbers else len(classes)))
        self._sample = np.zeros((groups, MAX_SAMPLED_LABELS if loss.numbers and not self._squared else 0))
        self._n_sampled = np.zeros(groups, np.int64)

    def add(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None, numbers: Any = None) -> None:
        """Add labels, each to the group of its number."""
        super().add(labels, weights, numbers)
        labels, good = labels.astype(np.float64, copy=False), np.isfinite(labels)
        if weights is not None:
            good &= np.isfinite(weights) & (weights > 0)
        if not self.loss.numbers:
            self._count(labels, good, weights, numbers)
        elif not self._squared:
            self._add_to_sample(labels[good], numbers[good])

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

    def _add_to_sample(self, labels: Floats, numbers: Numbers) -> None:
        """Add the first few labels of each group, which come in random order."""
        if not (open_samples := self._n_sampled[numbers] < MAX_SAMPLED_LABELS).any():
            return
        labels, numbers = labels[open_samples], numbers[open_samples]
        order = np.argsort(numbers, kind="stable")
        sampled_groups, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        places = self._n_sampled[numbers[order]] + np.arange(len(order)) - np.repeat(starts, counts)
        fits = places < MAX_SAMPLED_LABELS
        self._sample[numbers[order][fits], places[fits]] = labels[order][fits]
        self._n_sampled[sampled_groups] = np.minimum(self._n_sampled[sampled_groups] + counts, MAX_SAMPLED_LABELS)

    def constant(self, group: int, figures: Figures) -> float:
        """Return the loss of a group's best constant predictor, given the figures of its model."""
        code, parameter = self.loss.code, self.loss.parameter
        if self._squared:
            return figures.loss / (1 - figures.score) if figures.score < 1 else figures.loss
        if self.loss.numbers:
            labels = self._sample[group, : self._n_sampled[group]]
            return _kernel.sgd_constant(code, parameter, labels, np.ones(len(labels)))[1]
        counts = self._counts[group] if self._class_weight is None else self._counts[group] * self._class_weight
        return _kernel.sgd_constant_of_classes(code, parameter, counts / (counts.sum() or 1))[1]

    def learnt_nothing(self, group: int, figures: Figures) -> bool:
        """Return whether a group's loss is above that of its best constant predictor.

        False for a group of one class: that constant has loss 0, which hardly any model reaches.
        """
        if figures.rows < 2 or not figures.loss > SLIGHT * self.untrained(group):
            return False
        least, slack = self.constant(group, figures), SAMPLE_SLACK if self._sample.size else IDLE - 1
        return bool(figures.loss > least + slack * abs(least) and (self.loss.numbers or least > 0))
