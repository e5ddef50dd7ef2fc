"""Detects training that diverged or learnt nothing, by comparing its loss with that of constant predictors."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.linear.sgd import Figures
from corgipile.losses import Loss, loss_of

__all__ = ["Baseline", "GroupBaselines", "Untrained"]

IDLE, SLIGHT = 1.05, 1e-3  # times the constant predictor's loss; of the zero model's loss
MAX_SAMPLED_LABELS = 1 << 13  # numeric labels sampled to find the best constant
GROUP_LABELS = 16  # labels per group that determine the best constant, where the mean does not
SAMPLE_SLACK = 1.0  # relative slack over a constant that few labels determine
Numbers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


class Untrained:
    """Sums the loss of the zero model over the labels of an epoch, per model, by ``kernel/sgd/baseline.h``.

    Example:
        >>> zero = Untrained(loss_of("linear", 0), 0)
        >>> zero.add(np.array([2.0, np.nan, 4.0]))
        >>> zero.untrained(), zero.has_diverged(5.4), zero.has_diverged(5.6)
        (5.0, False, True)
    """

    def __init__(self, loss: Loss, classes: int, models: int = 1) -> None:
        self.loss, self._sums, self._zero = loss, np.zeros((models, 3)), 0.0
        if not loss.numbers:
            self._zero = _kernel.sgd_constant_of_classes(loss.code, loss.parameter, np.full(classes, 1 / classes))[0]

    def add(
        self, labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None, numbers: Numbers | None = None
    ) -> None:
        """Add labels, each to the model of its number; those that cannot be trained on are ignored."""
        if not self.loss.numbers:
            return
        labels = np.ascontiguousarray(labels, np.float64)
        weights = None if weights is None else np.ascontiguousarray(weights, np.float64)
        numbers = None if numbers is None else np.ascontiguousarray(numbers, np.int64)
        _kernel.sgd_untrained(self.loss.code, self.loss.parameter, labels, weights, self._sums, numbers)

    def untrained(self, model: int = 0) -> float:
        """Return the mean loss of the model whose weights are all 0."""
        loss, weight, _ = self._sums[model].tolist()
        return loss / weight if weight > 0 else self._zero

    def label_distance(self, model: int = 0) -> float:
        """Return mean log(1 + |label|), which a loss of bounded slope uses as the labels' distance from 0."""
        _, weight, label_distance = self._sums[model].tolist()
        return label_distance / weight if weight > 0 else 0.0

    def has_diverged(self, loss: float, model: int = 0) -> bool:
        """Return whether a loss is above that of the zero model."""
        return _kernel.sgd_adrift(loss, self.untrained(model))


class Baseline(Untrained):
    """Computes the loss of the best constant predictor from the labels of an epoch.

    Example:
        >>> base = Baseline("logistic", np.array([0, 1]))
        >>> base.add(np.array([0, 0, 0, 1]))
        >>> round(base.constant(), 3), round(base.untrained(), 3)
        (0.562, 0.693)
    """

    def __init__(
        self, kind: str, classes: npt.NDArray[Any], class_weight: npt.NDArray[np.float64] | None = None
    ) -> None:
        super().__init__(loss_of(kind, len(classes)), len(classes))
        self._classes = codes_of(classes)
        self._squared = self.loss.of_mean and not self.loss.exponential
        self._counts, self._class_weight = np.zeros(len(classes)), class_weight
        self._sample: list[npt.NDArray[np.float64]] = []  # float64[2, rows]: labels and their weights
        self._rows, self._every, self._n_sampled, self._weight = 0, 1, 0, 0.0
        self._mean, self._squares = 0.0, 0.0
        self._constant: float | None = None

    def add(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None, numbers: Any = None) -> None:
        """Add labels with their weights; labels that cannot be trained on are ignored."""
        self._constant = None
        super().add(labels, weights)
        if len(self._classes) == 2 and weights is None:
            ones = np.count_nonzero(labels == self._classes[1])
            self._counts += (np.count_nonzero(labels == self._classes[0]), ones)
            return
        if self.loss.numbers:
            labels = labels.astype(np.float64, copy=False)
            good = np.isfinite(labels)
            if self.loss.not_negative:
                good &= labels >= 0
        else:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            good = self._classes[at] == labels
        if weights is not None:
            weights = weights.astype(np.float64)
            good &= np.isfinite(weights) & (weights >= 0)
            weights = weights[good]
        if not self.loss.numbers:
            self._counts += np.bincount(at[good], weights, len(self._classes))
            return
        labels = labels if good.all() else labels[good]
        if len(labels) if weights is None else weights.any():
            self._add_numbers(labels, weights)

    def _add_numbers(self, labels: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None) -> None:
        """Add numeric labels: moments determine a squared loss, other losses need a sample."""
        if self._squared:
            self._moments(labels, weights)
        else:
            self._add_to_sample(np.stack([labels, np.ones(len(labels)) if weights is None else weights]))
        self._rows += len(labels)

    def _moments(self, labels: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None) -> None:
        weight = float(len(labels) if weights is None else weights.sum())
        with np.errstate(over="ignore", invalid="ignore"):  # such labels make the loss infinite too
            mean = float((labels if weights is None else weights * labels).sum()) / weight
            shift, total = mean - self._mean, self._weight + weight
            deviations = labels - mean
            squares = float((deviations * deviations if weights is None else weights * deviations * deviations).sum())
        self._squares += squares + shift * shift * self._weight * weight / total
        self._mean += shift * weight / total
        self._weight = total

    def _add_to_sample(self, rows: npt.NDArray[np.float64]) -> None:
        """Add every nth label with its weight to the sample; a full sample is halved and n doubled."""
        sampled = rows[:, -self._rows % self._every :: self._every]
        self._sample.append(sampled)
        self._n_sampled += sampled.shape[1]
        while self._n_sampled > 2 * MAX_SAMPLED_LABELS:
            self._sample = [np.concatenate(self._sample, axis=1)[:, ::2]]
            self._every, self._n_sampled = 2 * self._every, self._sample[0].shape[1]

    def constant(self) -> float:
        """Return the mean loss of the best constant predictor."""
        if self._constant is None:
            code, parameter = self.loss.code, self.loss.parameter
            if self._squared:
                self._constant = self._squares / (self._weight or 1) / 2
            elif self.loss.numbers:
                labels, weights = np.concatenate([np.zeros((2, 0)), *self._sample], axis=1)
                self._constant = _kernel.sgd_constant(code, parameter, labels, weights)[1]
            else:
                counts = self._counts if self._class_weight is None else self._counts * self._class_weight
                shares = counts / (counts.sum() or 1)
                self._constant = _kernel.sgd_constant_of_classes(code, parameter, shares)[1]
        return self._constant

    def separates_classes(self, accuracy: float) -> bool:
        """Return whether more than two classes are separated: twice as accurately as by the most frequent class.

        One-versus-rest losses say little about which score is the highest.
        """
        return len(self._classes) > 2 and bool(accuracy * self._counts.sum() > 2 * self._counts.max())

    def learnt_nothing(self, loss: float) -> bool:
        """Return whether a loss is above that of the best constant predictor."""
        return loss > max(IDLE * self.constant(), SLIGHT * self.untrained())


class GroupBaselines(Untrained):
    """Computes the loss of each group's best constant predictor from the labels of an epoch.

    Example:
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
        self._sample = np.zeros((2, groups, GROUP_LABELS if loss.numbers and not self._squared else 0))  # with weights
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
            rows = np.stack([labels, np.ones(len(labels)) if weights is None else weights])
            self._add_to_sample(rows[:, good], numbers[good])

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

    def _add_to_sample(self, rows: Floats, numbers: Numbers) -> None:
        """Add the first few labels of each group, which come in random order, and their weights."""
        if not (open_samples := self._n_sampled[numbers] < GROUP_LABELS).any():
            return
        rows, numbers = rows[:, open_samples], numbers[open_samples]
        order = np.argsort(numbers, kind="stable")
        sampled_groups, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        places = self._n_sampled[numbers[order]] + np.arange(len(order)) - np.repeat(starts, counts)
        fits = places < GROUP_LABELS
        self._sample[:, numbers[order][fits], places[fits]] = rows[:, order][:, fits]
        self._n_sampled[sampled_groups] = np.minimum(self._n_sampled[sampled_groups] + counts, GROUP_LABELS)

    def constant(self, group: int, figures: Figures) -> float:
        """Return the loss of a group's best constant predictor, given the figures of its model."""
        code, parameter = self.loss.code, self.loss.parameter
        if self._squared:
            return figures.loss / (1 - figures.score) if figures.score < 1 else figures.loss
        if self.loss.numbers:
            labels, weights = np.ascontiguousarray(self._sample[:, group, : self._n_sampled[group]])
            return _kernel.sgd_constant(code, parameter, labels, weights)[1]
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
