"""What a model without features would lose: by it training that drifts away, or learns nothing, is told."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Baseline"]

ADRIFT = 1.1  # times the loss of a model that never learnt: noise of a large step stays below
IDLE, SLIGHT = 1.05, 1e-3
FloatArray = npt.NDArray[np.float64]


class Baseline:
    """Counts the labels of an epoch.

    Args:
        kind: ``"logistic"``, ``"svm"``, ``"linear"`` or ``"softmax"``.
        classes: Class values, ascending.

    Example:
        >>> base = Baseline("logistic", np.array([0, 1]))
        >>> base.add(np.array([0, 0, 0, 1]))
        >>> round(base.constant(), 3), round(base.untrained(), 3)
        (0.562, 0.693)
    """

    def __init__(self, kind: str, classes: npt.NDArray[Any]) -> None:
        self.kind, self._classes = kind, classes
        self._counts = np.zeros(len(classes))
        self._rows, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, labels: npt.NDArray[Any]) -> None:
        """Count labels; those that cannot be learnt from are passed over."""
        if self.kind == "linear":
            self._moments(labels.astype(np.float64))
        elif len(self._classes) == 2:
            ones = np.count_nonzero(labels == self._classes[1])
            self._counts += (np.count_nonzero(labels == self._classes[0]), ones)
        else:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            self._counts += np.bincount(at[self._classes[at] == labels], minlength=len(self._classes))

    def _moments(self, labels: FloatArray) -> None:
        labels = labels[np.isfinite(labels)]
        if not len(labels):
            return
        before, self._rows = self._rows, self._rows + len(labels)
        with np.errstate(over="ignore", invalid="ignore"):  # of labels so large the loss is infinite too
            mean = float(labels.mean())
            shift = mean - self._mean
            squares = float(((labels - mean) ** 2).sum())
        self._squares += squares + shift * shift * before * len(labels) / self._rows
        self._mean += shift * len(labels) / self._rows

    def constant(self) -> float:
        """Return the mean loss of the best model that says the same of every row."""
        if self.kind == "linear":
            return self._squares / max(self._rows, 1) / 2
        shares = self._counts / max(self._counts.sum(), 1)
        if self.kind == "svm":
            return float(2 * np.minimum(shares, 1 - shares)[1 if len(shares) == 2 else slice(None)].sum())
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    def untrained(self) -> float:
        """Return the mean loss of a model whose weights are all 0."""
        if self.kind == "linear":
            return self.constant() + self._mean * self._mean / 2
        if self.kind == "svm":
            return 1.0 if len(self._classes) == 2 else float(len(self._classes))
        return float(np.log(len(self._classes)))

    def adrift(self, loss: float) -> bool:
        """Say whether a loss is above that of a model that never learnt."""
        return loss > ADRIFT * max(self.untrained(), self.constant())

    def idle(self, loss: float) -> bool:
        """Say whether a loss is above that of a model that says the same of every row."""
        return loss > max(IDLE * self.constant(), SLIGHT * self.untrained())
