"""Whether training diverged, or learnt nothing: its loss beside that of a model without features."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.classes import codes_of
from corgipile.losses import loss_of

__all__ = ["Baseline"]

ADRIFT = 1.1  # times the loss of a model that never learnt: noise of a large step stays below
IDLE, SLIGHT = 1.05, 1e-3
SAMPLE = 1 << 13  # labels of which the best constant is made, where they are numbers


class Baseline:
    """Counts the labels of an epoch.

    Args:
        kind: The name of a loss.
        classes: Class values, ascending.

    Example:
        >>> base = Baseline("logistic", np.array([0, 1]))
        >>> base.add(np.array([0, 0, 0, 1]))
        >>> round(base.constant(), 3), round(base.untrained(), 3)
        (0.562, 0.693)
    """

    def __init__(self, kind: str, classes: npt.NDArray[Any]) -> None:
        self.loss, self._classes = loss_of(kind, len(classes)), codes_of(classes)
        self._squared = self.loss.of_mean and not self.loss.exponential
        self._counts = np.zeros(len(classes))
        self._sample: list[npt.NDArray[np.float64]] = []
        self._rows, self._every, self._kept = 0, 1, 0
        self._mean, self._squares = 0.0, 0.0
        self._found: tuple[float, float] | None = None

    def add(self, labels: npt.NDArray[Any]) -> None:
        """Count labels; those that cannot be learnt from are passed over."""
        self._found = None
        if self.loss.numbers:
            labels = labels.astype(np.float64)
            labels = labels[np.isfinite(labels) & ((labels >= 0) | (not self.loss.not_negative))]
            if len(labels):
                self._note(labels)
        elif len(self._classes) == 2:
            ones = np.count_nonzero(labels == self._classes[1])
            self._counts += (np.count_nonzero(labels == self._classes[0]), ones)
        else:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            self._counts += np.bincount(at[self._classes[at] == labels], minlength=len(self._classes))

    def _note(self, labels: npt.NDArray[np.float64]) -> None:
        """Take note of labels that are numbers: by their moments where those say all of the loss, else by a sample."""
        if self._squared:
            self._moments(labels)
        else:
            self._keep(labels)
        self._rows += len(labels)

    def _moments(self, labels: npt.NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # of labels so large the loss is infinite too
            mean = float(labels.mean())
            shift, rows = mean - self._mean, self._rows + len(labels)
            squares = float(((labels - mean) ** 2).sum())
        self._squares += squares + shift * shift * self._rows * len(labels) / rows
        self._mean += shift * len(labels) / rows

    def _keep(self, labels: npt.NDArray[np.float64]) -> None:
        """Keep every so many of the labels: half as many where there were too many."""
        kept = labels[-self._rows % self._every :: self._every]
        self._sample.append(kept)
        self._kept += len(kept)
        while self._kept > 2 * SAMPLE:
            self._sample = [np.concatenate(self._sample)[::2]]
            self._every, self._kept = 2 * self._every, len(self._sample[0])

    def _losses(self) -> tuple[float, float]:
        """Return the mean loss of weights of 0, and of the best constant."""
        if self._found is None:
            code, parameter = self.loss.code, self.loss.parameter
            if self._squared:
                best = self._squares / max(self._rows, 1) / 2
                self._found = best + self._mean * self._mean / 2, best
            elif self.loss.numbers:
                self._found = _kernel.sgd_constant(code, parameter, np.concatenate([np.zeros(0), *self._sample]))
            else:
                shares = self._counts / max(self._counts.sum(), 1)
                self._found = _kernel.sgd_constant_of_classes(code, parameter, shares)
        return self._found

    def constant(self) -> float:
        """Return the mean loss of the best model that says the same of every row."""
        return self._losses()[1]

    def untrained(self) -> float:
        """Return the mean loss of a model whose weights are all 0."""
        return self._losses()[0]

    def adrift(self, loss: float) -> bool:
        """Say whether a loss is above that of a model that never learnt."""
        return loss > ADRIFT * max(self.untrained(), self.constant())

    def idle(self, loss: float) -> bool:
        """Say whether a loss is above that of a model that says the same of every row."""
        return loss > max(IDLE * self.constant(), SLIGHT * self.untrained())
