"""Running sums along an epoch of unknown length, in constant memory."""

from collections.abc import Callable
from typing import Self

import numpy as np

from corgipile.quality.keys import Floats

MAX_POINTS = 1024


class Points:
    """Stores sums of consecutive batches, at most 1,024: once full, neighbours are added up.

    Example:
        >>> points = Points(1)
        >>> points.add(np.ones((3000, 1)))
        >>> points.stride, len(points.sums), int(points.sums.sum())
        (4, 750, 3000)
    """

    def __init__(self, columns: int) -> None:
        self.stride = 1
        self._sums = np.zeros((MAX_POINTS, columns))
        self._batches = 0

    @property
    def sums(self) -> Floats:
        """Return float64[points, columns]; each point sums ``stride`` batches, the last one the rest."""
        return self._sums[: -(-self._batches // self.stride)]

    def widen(self, columns: int) -> None:
        """Add columns that were zero so far."""
        if columns > self._sums.shape[1]:
            self._sums = np.pad(self._sums, ((0, 0), (0, columns - self._sums.shape[1])))

    def change(self, columns: Callable[[Floats], Floats]) -> None:
        """Apply a function to the columns of all points."""
        self._sums = columns(self._sums)

    def add(self, rows: Floats) -> None:
        """Add the rows of batches: float64[batches, columns]."""
        while len(rows):
            free = MAX_POINTS * self.stride - self._batches
            if not free:
                self._halve()
                continue
            chunk = rows[:free]
            at = np.arange(self._batches, self._batches + len(chunk)) // self.stride
            firsts = np.flatnonzero(np.diff(at, prepend=-1))
            self._sums[at[firsts]] += np.add.reduceat(chunk, firsts, axis=0)
            self._batches += len(chunk)
            rows = rows[free:]

    def merge(self, other: Self) -> None:
        """Add the sums of a rank that ran in step."""
        while self.stride < other.stride:
            self._halve()
        while other.stride < self.stride:
            other._halve()
        columns = max(self._sums.shape[1], other._sums.shape[1])
        self.widen(columns)
        other.widen(columns)
        self._sums += other._sums
        self._batches = max(self._batches, other._batches)

    def _halve(self) -> None:
        pairs = self._sums.reshape(MAX_POINTS // 2, 2, -1).sum(axis=1)
        self._sums = np.concatenate([pairs, np.zeros_like(pairs)])
        self.stride *= 2
