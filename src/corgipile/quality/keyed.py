"""Spread of a key over the batches of an epoch, measured while they are read."""

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

MAX_LAGS = 64
INTERVAL_GROUPS = 32
HEAD_FRACTION = 0.1
MAX_SAMPLED = 512
MIN_BATCHES, MIN_DEFF = 16, 0.1
T95 = 2.04  # 97.5 % quantile of Student's t, 31 degrees of freedom


@dataclass(frozen=True)
class Spread:
    """Spread of a key over one epoch.

    Attributes:
        key: Name of the key.
        kinds: Number of classes, or of numeric columns.
        deff: Design effect of a batch, and half the width of its 95 % interval; 1 is a full shuffle.
        together: deff of the union of all ranks' batches in a step, over at most 512 steps; None for one rank.
        head, middle, tail: deff in the first tenth of the epoch, its middle and its last tenth.
        prefix: Prefix discrepancy of the worst class or column; 0.9 to 1.3 for a full shuffle.
        variation: Total variation of a batch's classes from the epoch's, and of independent draws; None for numbers.
        lags: Correlation of the means of batches 1, 2, … apart, at most 64.
        gap: The class whose longest gap most exceeds a full shuffle's; None for numbers.
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
    """Accumulates the spread of a key in one epoch, in constant memory."""

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
        self._products = np.zeros(MAX_LAGS)
        self._means: Floats = np.zeros(0)
        self._mean_squares = 0.0
        self.batches = 0
        self._ranks = 1
        self._rows = 0
        self._sample: Floats = np.zeros((0, 1))  # rows and sums of every n-th batch
        self._sample_stride = 1  # n of the sample
        self._together: Floats = np.zeros((0, 1))  # the same of all ranks' batches in these steps

    def add(self, values: npt.NDArray[Any], sizes: Codes) -> None:
        """Add the values of consecutive batches, and the rows per batch."""
        self._add(values, None if self._numbers else self._classes.codes(values), sizes)

    def add_codes(self, codes: Codes, sizes: Codes) -> None:
        """Add classes by their codes."""
        self._add(codes, codes, sizes)

    def _add(self, values: npt.NDArray[Any], codes: Codes | None, sizes: Codes) -> None:
        if codes is None and self._rows and not self._numbers:
            raise BadArgument(
                f"{self.name} must be a class as in the first batch, got a number, or too many classes, later"
            )
        sums = self._number_sums(values, sizes) if codes is None else self._class_sums(codes, sizes)
        means, row_sums = sums / sizes[:, None], np.column_stack([sizes, sums])
        self._points.widen(3 + self._kinds)
        self._points.add(_to_points(row_sums))
        self._means = self._means + means.sum(axis=0)
        self._mean_squares += float((means**2).sum())
        self._add_lags(means)
        self._add_sample(row_sums)
        self.batches += len(sizes)
        self._rows += int(sizes.sum())

    def merge(self, other: Self) -> None:
        """Add another rank that ran in step, and consume it."""
        self._widen(max(self._kinds, other._kinds))
        if not self._numbers:
            codes = self._classes.learn(other._classes.names)
            self._widen(len(self._classes.names))
            other._renumber(codes, self._kinds)
        self._points.merge(other._points)
        self._squares = self._squares + other._squares
        self._products = self._products + other._products
        self._first = _add_padded(self._first, other._first)
        self._last = _add_padded(self._last[::-1], other._last[::-1])[::-1]
        self._means, self._mean_squares = self._means + other._means, self._mean_squares + other._mean_squares
        self._merge_samples(other)
        if self._gaps and other._gaps:
            self._gaps.merge(other._gaps)
        self._rows += other._rows
        self.batches += other.batches
        self._ranks += other._ranks

    def same_batches(self, other: Self) -> bool:
        """Return whether two epochs had equal sums in all batches, with enough differing batches to rule out chance."""
        sums, other_sums = self._points.sums, other._points.sums
        return len(sums) >= MIN_BATCHES and np.array_equal(sums, other_sums) and self.spread().deff[0] > MIN_DEFF

    def spread(self) -> Spread:
        """Return the spread of an epoch with at least one batch."""
        points = self._points.sums
        total = points.sum(axis=0)
        mean = total[3:] / total[0]
        variance = self._squares / total[0] - mean**2
        variance = np.where(variance > 1e-12 * np.maximum(1, mean**2), variance, 0)
        cut = max(1, round(HEAD_FRACTION * len(points)))
        tail = max(cut, len(points) - cut)

        def part(some: Floats) -> tuple[float, float]:
            return _deff(some, mean, float(variance.sum()))

        return Spread(
            self.name, self._kinds, part(points), part(_to_points(self._together)) if self._ranks > 1 else None,
            part(points[:cut]), part(points[cut:tail]), part(points[tail:]),
            _prefix(points, mean, variance), None if self._numbers else self._variation(mean),
            self._lags(), self._gaps.worst(self._classes.names) if self._gaps and not self._numbers else None,
        )  # fmt: skip

    def _class_sums(self, codes: Codes, sizes: Codes) -> Floats:
        self._widen(len(self._classes.names))
        sums: Floats = np.empty((len(sizes), self._kinds))
        last, longest = self._gaps.room(self._kinds) if self._gaps else (None, None)
        _kernel.classes_add(codes, sizes, sums, self._rows, last, longest)
        rows = sums.sum(axis=0)
        self._squares += rows
        if self._gaps:
            self._gaps.count(rows.astype(np.int64))
        return sums

    def _number_sums(self, values: npt.NDArray[Any], sizes: Codes) -> Floats:
        if values.dtype.kind not in "biuf":
            raise BadArgument(f"{self.name} must be classes or numbers, got {values.dtype} of shape {values.shape}")
        numbers = values.reshape(len(values), -1).astype(np.float64)
        if not np.isfinite(numbers).all():
            raise BadArgument(f"{self.name} must be finite numbers, got NaN or infinity")
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

    def _renumber(self, codes: Codes, kinds: int) -> None:
        """Renumber the classes by another rank's codes, which may order them differently and contain more."""

        def renumber(array: Floats, before: int = 0) -> Floats:
            out: Floats = np.zeros((*array.shape[:-1], before + kinds))
            out[..., :before] = array[..., :before]
            out[..., before + codes[: self._kinds]] = array[..., before:]
            return out

        self._squares, self._means = renumber(self._squares), renumber(self._means)
        self._sample, self._together = renumber(self._sample, 1), renumber(self._together, 1)
        self._first, self._last = renumber(self._first), renumber(self._last)
        self._points.change(lambda sums: renumber(sums, 3))
        if self._gaps:
            self._gaps.renumber(codes, kinds)
        self._kinds = kinds

    def _add_lags(self, means: Floats) -> None:
        """Add the products of the means of batches at most 64 places away."""
        line = np.concatenate([np.zeros((MAX_LAGS, self._kinds)), self._last, means])
        for lag in range(1, MAX_LAGS + 1):  # a matrix product's threads would slow the loader
            self._products[lag - 1] += np.vdot(means, line[MAX_LAGS + len(self._last) - lag : len(line) - lag])
        self._first = np.concatenate([self._first, means[: MAX_LAGS - len(self._first)]])
        self._last = line[MAX_LAGS:][-MAX_LAGS:]

    def _add_sample(self, sums: Floats) -> None:
        """Sample the sums of batches, spread over the epoch."""
        self._sample = np.concatenate([self._sample, sums[-self.batches % self._sample_stride :: self._sample_stride]])
        while len(self._sample) > MAX_SAMPLED:
            self._halve()

    def _halve(self) -> None:
        if self._ranks == 1:
            self._sample = self._sample[::2]
        self._together, self._sample_stride = self._together[::2], self._sample_stride * 2

    def _steps(self) -> Floats:
        return self._sample if self._ranks == 1 else self._together

    def _merge_samples(self, other: Self) -> None:
        """Add up the batches of each step; all ranks sample the same steps."""
        while self._sample_stride < other._sample_stride:
            self._halve()
        while other._sample_stride < self._sample_stride:
            other._halve()
        self._together = _add_padded(self._steps(), other._steps())
        self._sample = np.concatenate([self._sample, other._sample])

    def _lags(self) -> tuple[float, ...]:
        count = self.batches
        mean = self._means / count
        spread = self._mean_squares - count * float(mean @ mean)
        if spread <= 1e-12 * max(1.0, self._mean_squares):
            return ()
        lags = []
        for lag in range(1, min(MAX_LAGS, count // (2 * self._ranks)) + 1):
            pairs = count - lag * self._ranks
            ends = 2 * self._means - self._first[:lag].sum(axis=0) - self._last[-lag:].sum(axis=0)
            product = self._products[lag - 1] - float(mean @ ends) + pairs * float(mean @ mean)
            lags.append(float(product / spread * count / pairs))
        return tuple(lags)

    def _variation(self, shares: Floats) -> tuple[float, float]:
        """Return the mean total variation of batches from the epoch, and of independent draws (about normal)."""
        rows = self._sample[:, :1]
        variation = np.abs(self._sample[:, 1:] / rows - shares).sum(axis=1).mean() / 2
        floor = np.sqrt(2 * shares * (1 - shares) / (np.pi * rows)).sum(axis=1).mean() / 2
        return float(variation), float(floor)


def _to_points(batches: Floats) -> Floats:
    """Return rows, 1, squared sums per row, and sums of batches given by rows and sums."""
    rows, sums = batches[:, :1], batches[:, 1:]
    return np.column_stack([rows, np.ones(len(rows)), (sums**2).sum(axis=1) / rows[:, 0], sums])


def _deff(points: Floats, mean: Floats, variance: float) -> tuple[float, float]:
    """Return deff of some points, and half the width of its 95 % interval, from the spread of 32 stretches."""
    if variance == 0 or not len(points):
        return 0.0, 0.0
    groups = np.add.reduceat(points, np.unique(np.arange(INTERVAL_GROUPS) * len(points) // INTERVAL_GROUPS), axis=0)
    far = (groups[:, 2] - 2 * groups[:, 3:] @ mean + groups[:, 0] * float(mean @ mean)) / variance
    values = far / groups[:, 1]
    half = T95 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("inf")
    return float(far.sum() / groups[:, 1].sum()), half


def _prefix(points: Floats, mean: Floats, variance: Floats) -> float:
    path = np.cumsum(points[:, 3:], axis=0) - np.cumsum(points[:, 0])[:, None] * mean
    spread = np.sqrt(np.where(variance > 0, variance, np.inf) * points[:, 0].sum())
    return float((np.abs(path) / spread).max(initial=0.0))


def _add_padded(one: Floats, other: Floats) -> Floats:
    """Return the sum of two arrays of rows, padding the shorter one."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    out = longer.copy()
    out[: len(shorter)] += shorter
    return out
