"""How evenly a key is spread over the batches of an epoch, as they go by."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.quality.codes import Classes, Codes
from corgipile.quality.gaps import Gap, Gaps
from corgipile.quality.keys import Floats
from corgipile.quality.points import Points

LAGS = 64
GROUPS = 32
HEAD = 0.1
SAMPLED = 512
LEAST_BATCHES, LEAST_DEFF = 16, 0.1
T95 = 2.04  # of 31 degrees of freedom


@dataclass(frozen=True)
class Spread:
    """How a key was spread over one epoch.

    Attributes:
        key: Its name.
        kinds: Classes, or columns of numbers.
        deff: Design effect of a batch, and half the width of its 95 % interval; 1 is a full shuffle.
        together: The same of the batches that all ranks take in one step, as one; of up to 512 steps; None of one rank.
        head, middle, tail: The same of the first tenth of the epoch, of its middle, of its last tenth.
        prefix: Prefix discrepancy of the worst class or column; 0.9 to 1.3 for a full shuffle.
        variation: Total variation of a batch's classes from the epoch's, and of independent draws; None of numbers.
        lags: Correlation of the means of batches 1, 2, … apart, at most 64.
        gap: The class whose longest gap between visits most exceeds a full shuffle's; None of numbers.
    """

    key: str
    kinds: int
    deff: tuple[float, float]
    together: tuple[float, float] | None
    head: tuple[float, float]
    middle: tuple[float, float]
    tail: tuple[float, float]
    prefix: float
    variation: tuple[float, float] | None
    lags: tuple[float, ...]
    gap: Gap | None


class KeyWatch:
    """Add up what a key does in one epoch, in memory that does not grow with it."""

    def __init__(self, name: str, classes: Classes | None = None, *, gaps: bool = True) -> None:
        self.name = name
        self._classes = classes or Classes()
        self._numbers = False
        self._kinds = 0
        self._squares: Floats = np.zeros(0)
        self._points = Points(3)
        self._gaps = Gaps() if gaps else None
        self._first: Floats = np.zeros((0, 0))
        self._last: Floats = np.zeros((0, 0))
        self._products = np.zeros(LAGS)
        self._means: Floats = np.zeros(0)
        self._mean_squares = 0.0
        self.batches = 0
        self._ranks = 1
        self._rows = 0
        self._sample: Floats = np.zeros((0, 1))  # rows and sums of some batches, spread over the epoch,
        self._every = 1  # one of so many,
        self._together: Floats = np.zeros((0, 1))  # and of all ranks in these steps

    def add(self, values: npt.NDArray[Any], sizes: Codes) -> None:
        """Take the values of some batches, one after the other, and how many rows each has."""
        self._add(values, None if self._numbers else self._classes.codes(values), sizes)

    def add_codes(self, codes: Codes, sizes: Codes) -> None:
        """Take classes by their codes."""
        self._add(codes, codes, sizes)

    def _add(self, values: npt.NDArray[Any], codes: Codes | None, sizes: Codes) -> None:
        if codes is None and self._rows and not self._numbers:
            raise BadArgument(f"{self.name} was a class at first and is a number, or of too many classes, later")
        sums = self._of_numbers(values, sizes) if codes is None else self._of_classes(codes, sizes)
        means, both = sums / sizes[:, None], np.column_stack([sizes, sums])
        self._points.widen(3 + self._kinds)
        self._points.add(_as_points(both))
        self._means = self._means + means.sum(axis=0)
        self._mean_squares += float((means**2).sum())
        self._add_lags(means)
        self._keep(both)
        self.batches += len(sizes)
        self._rows += int(sizes.sum())

    def merge(self, other: Self) -> None:
        """Add what another rank saw, which ran in step; it is used up."""
        self._widen(max(self._kinds, other._kinds))
        if not self._numbers:
            codes = self._classes.learn(other._classes.names)
            self._widen(len(self._classes.names))
            other._place(codes, self._kinds)
        self._points.merge(other._points)
        self._squares = self._squares + other._squares
        self._products = self._products + other._products
        self._first = _added(self._first, other._first)
        self._last = _added(self._last[::-1], other._last[::-1])[::-1]
        self._means, self._mean_squares = self._means + other._means, self._mean_squares + other._mean_squares
        self._merge_samples(other)
        if self._gaps and other._gaps:
            self._gaps.merge(other._gaps)
        self._rows += other._rows
        self.batches += other.batches
        self._ranks += other._ranks

    def same_batches(self, other: Self) -> bool:
        """Say whether two epochs had the same in every batch, where that is no accident: many batches, which differ."""
        mine, its = self._points.sums, other._points.sums
        return len(mine) >= LEAST_BATCHES and np.array_equal(mine, its) and self.spread().deff[0] > LEAST_DEFF

    def spread(self) -> Spread:
        """Return what was found; of an epoch with at least one batch."""
        points = self._points.sums
        total = points.sum(axis=0)
        mean = total[3:] / total[0]
        variance = self._squares / total[0] - mean**2
        variance = np.where(variance > 1e-12 * np.maximum(1, mean**2), variance, 0)
        cut = max(1, round(HEAD * len(points)))
        tail = max(cut, len(points) - cut)

        def part(some: Floats) -> tuple[float, float]:
            return _deff(some, mean, float(variance.sum()))

        return Spread(
            self.name, self._kinds, part(points), part(_as_points(self._together)) if self._ranks > 1 else None,
            part(points[:cut]), part(points[cut:tail]), part(points[tail:]),
            _prefix(points, mean, variance), None if self._numbers else self._variation(mean),
            self._lags(), self._gaps.worst(self._classes.names) if self._gaps and not self._numbers else None,
        )  # fmt: skip

    def _of_classes(self, codes: Codes, sizes: Codes) -> Floats:
        self._widen(len(self._classes.names))
        sums: Floats = np.empty((len(sizes), self._kinds))
        last, longest = self._gaps.room(self._kinds) if self._gaps else (None, None)
        _kernel.classes_add(codes, sizes, sums, self._rows, last, longest)
        rows = sums.sum(axis=0)
        self._squares += rows
        if self._gaps:
            self._gaps.count(rows.astype(np.int64))
        return sums

    def _of_numbers(self, values: npt.NDArray[Any], sizes: Codes) -> Floats:
        if values.dtype.kind not in "biuf":
            raise BadArgument(f"{self.name} holds {values.dtype} of shape {values.shape}; classes or numbers are right")
        numbers = values.reshape(len(values), -1).astype(np.float64)
        if not np.isfinite(numbers).all():
            raise BadArgument(f"{self.name} holds NaN or infinity; finite numbers are wanted")
        self._numbers = True
        self._widen(numbers.shape[1])
        self._squares += (numbers**2).sum(axis=0)
        sums: Floats = np.add.reduceat(numbers, np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=0)
        return sums

    def _widen(self, kinds: int) -> None:
        grown = kinds - self._kinds
        if grown > 0:
            self._kinds = kinds
            self._squares, self._means = np.pad(self._squares, (0, grown)), np.pad(self._means, (0, grown))
            self._points.widen(3 + kinds)
            self._first = np.pad(self._first, ((0, 0), (0, grown)))
            self._last = np.pad(self._last, ((0, 0), (0, grown)))
            self._sample = np.pad(self._sample, ((0, 0), (0, grown)))
            self._together = np.pad(self._together, ((0, 0), (0, grown)))

    def _place(self, codes: Codes, kinds: int) -> None:
        """Give classes the codes of another rank, which may have seen them in another order, some not in this epoch."""

        def placed(array: Floats, before: int = 0) -> Floats:
            out: Floats = np.zeros((*array.shape[:-1], before + kinds))
            out[..., :before] = array[..., :before]
            out[..., before + codes[: self._kinds]] = array[..., before:]
            return out

        self._squares, self._means = placed(self._squares), placed(self._means)
        self._sample, self._together = placed(self._sample, 1), placed(self._together, 1)
        self._first, self._last = placed(self._first), placed(self._last)
        self._points.change(lambda sums: placed(sums, 3))
        if self._gaps:
            self._gaps.place(codes, kinds)
        self._kinds = kinds

    def _add_lags(self, means: Floats) -> None:
        """Add the products of the means of batches up to 64 apart."""
        line = np.concatenate([np.zeros((LAGS, self._kinds)), self._last, means])
        for lag in range(1, LAGS + 1):  # not one product of matrices, whose threads would take a core from the loader
            self._products[lag - 1] += np.vdot(means, line[LAGS + len(self._last) - lag : len(line) - lag])
        self._first = np.concatenate([self._first, means[: LAGS - len(self._first)]])
        self._last = line[LAGS:][-LAGS:]

    def _keep(self, sums: Floats) -> None:
        """Keep rows and sums of some batches, spread over the epoch."""
        self._sample = np.concatenate([self._sample, sums[-self.batches % self._every :: self._every]])
        while len(self._sample) > SAMPLED:
            self._halve()

    def _halve(self) -> None:
        if self._ranks == 1:
            self._sample = self._sample[::2]
        self._together, self._every = self._together[::2], self._every * 2

    def _steps(self) -> Floats:
        return self._sample if self._ranks == 1 else self._together

    def _merge_samples(self, other: Self) -> None:
        """Add up the batches of one step, of which every rank kept as many as are spread evenly over its own."""
        while self._every < other._every:
            self._halve()
        while other._every < self._every:
            other._halve()
        self._together = _added(self._steps(), other._steps())
        self._sample = np.concatenate([self._sample, other._sample])

    def _lags(self) -> tuple[float, ...]:
        count = self.batches
        mean = self._means / count
        spread = self._mean_squares - count * float(mean @ mean)
        if spread <= 1e-12 * max(1.0, self._mean_squares):
            return ()
        found = []
        for lag in range(1, min(LAGS, count // (2 * self._ranks)) + 1):
            pairs = count - lag * self._ranks
            ends = 2 * self._means - self._first[:lag].sum(axis=0) - self._last[-lag:].sum(axis=0)
            product = self._products[lag - 1] - float(mean @ ends) + pairs * float(mean @ mean)
            found.append(float(product / spread * count / pairs))
        return tuple(found)

    def _variation(self, shares: Floats) -> tuple[float, float]:
        """Return the mean total variation of batches from the epoch, and that of independent draws, about normal."""
        rows = self._sample[:, :1]
        found = np.abs(self._sample[:, 1:] / rows - shares).sum(axis=1).mean() / 2
        floor = np.sqrt(2 * shares * (1 - shares) / (np.pi * rows)).sum(axis=1).mean() / 2
        return float(found), float(floor)


def _as_points(batches: Floats) -> Floats:
    """Return rows, 1, squared sums by row, and sums of batches that are given by rows and sums."""
    rows, sums = batches[:, :1], batches[:, 1:]
    return np.column_stack([rows, np.ones(len(rows)), (sums**2).sum(axis=1) / rows[:, 0], sums])


def _deff(points: Floats, mean: Floats, variance: float) -> tuple[float, float]:
    """Return deff of some points and half the width of its 95 % interval, from the spread of 32 stretches of them."""
    if variance == 0 or not len(points):
        return 0.0, 0.0
    groups = np.add.reduceat(points, np.unique(np.arange(GROUPS) * len(points) // GROUPS), axis=0)
    far = (groups[:, 2] - 2 * groups[:, 3:] @ mean + groups[:, 0] * float(mean @ mean)) / variance
    each = far / groups[:, 1]
    half = T95 * float(each.std(ddof=1)) / len(each) ** 0.5 if len(each) > 1 else float("inf")
    return float(far.sum() / groups[:, 1].sum()), half


def _prefix(points: Floats, mean: Floats, variance: Floats) -> float:
    path = np.cumsum(points[:, 3:], axis=0) - np.cumsum(points[:, 0])[:, None] * mean
    spread = np.sqrt(np.where(variance > 0, variance, np.inf) * points[:, 0].sum())
    return float((np.abs(path) / spread).max(initial=0.0))


def _added(one: Floats, other: Floats) -> Floats:
    """Return the sum of two arrays of rows of which one may be longer."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    out = longer.copy()
    out[: len(shorter)] += shorter
    return out
