"""Correlation tests for two orders of the same rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgipile.quality.codes import Codes
from corgipile.quality.keys import Floats
from corgipile.quality.visits import Sample

GROUPINGS = (8, 16, 32, 64)
MAX_PAIRS = 1 << 20  # pairs of rows in one batch that are compared at most
DISTANCES = 256  # bins of distances, two per doubling


@dataclass(frozen=True)
class Correlation:
    """Correlation of two orders and its distance from zero in standard errors."""

    value: float
    sigmas: float

    @property
    def sure(self) -> bool:
        """Return whether the correlation is far above chance."""
        return abs(self.value) > 0.3 and self.sigmas > 8


def correlation(one: npt.ArrayLike, other: npt.ArrayLike) -> Correlation:
    """Correlate two values per row, with rows in storage order.

    Neighbouring rows are shuffled together, so they are not independent. The standard error is that of sums over
    stretches of storage, the largest over several lengths.

    Example:
        >>> line, shuffled = np.arange(1000), np.random.default_rng(0).permutation(1000)
        >>> correlation(line, line + shuffled // 10).sure, correlation(line, shuffled).sure
        (True, False)
    """
    a, b = (_center(values) for values in (one, other))
    square = float(a @ a)
    if len(a) < GROUPINGS[-1] or square == 0 or not b.any():
        return Correlation(0.0, 0.0)
    slope = float(a @ b) / square
    residual = a * (b - slope * a)
    error = max(_error(residual, groups) for groups in GROUPINGS) / square
    value = slope * (square / float(b @ b)) ** 0.5
    return Correlation(value, abs(slope) / error if error else float("inf"))


def units(at: npt.ArrayLike) -> float:
    """Return the number of independent row places in an epoch: for a block shuffle, about the number of blocks.

    Example:
        >>> blocks = np.repeat(np.random.default_rng(0).permutation(50), 20)
        >>> round(units(blocks), -1)
        50.0
    """
    a = _center(at)
    square = float(a @ a)
    if square == 0:
        return 1.0
    time = 1.0
    for lag in range(1, len(a) // 4):
        near = float(a[lag:] @ a[:-lag]) / square
        if near < 0.05:
            break
        time += 2 * near
    return len(a) / time


def common(one: Sample, other: Sample) -> tuple[Sample, Sample]:
    """Return the rows that two samples share, in storage order."""
    _, left, right = np.intersect1d(one.hashes, other.hashes, assume_unique=True, return_indices=True)
    by_id = np.argsort(one.ids[left], kind="stable")
    return one.select(left[by_id]), other.select(right[by_id])


def shared_again(one: Sample, other: Sample) -> tuple[int, float, float]:
    """Return the number of row pairs in one batch, the share that share another, and that share by chance.

    Chance is estimated from pairs stored equally far apart, since any order of blocks keeps a block's rows together.

    Example:
        >>> rows, mixed = np.arange(4000), np.random.default_rng(0).permutation(4000)
        >>> fixed, free = (Sample(rows, rows, rows, batches // 40) for batches in (rows, mixed))
        >>> [round(value, 2) for value in shared_again(fixed, fixed)]
        [78000, 1.0, 0.65]
        >>> pairs, share, chance = shared_again(fixed, free)
        >>> share < 1.2 * chance < 0.013
        True
    """
    sizes = [_pairs(np.unique(some.batches, return_counts=True)[1]) for some in (one, other)]
    if max(sizes) > MAX_PAIRS:
        fewer = one.hashes <= np.median(one.hashes)
        return shared_again(one.select(np.flatnonzero(fewer)), other.select(np.flatnonzero(fewer)))
    both = np.unique(np.column_stack([one.batches, other.batches]), axis=0, return_counts=True)[1]
    every, first, second = _all_distances(one.ids), _distances(one), _distances(other)
    chance = float((first * second / np.maximum(every, 1)).sum())
    return sizes[0], _pairs(both) / max(1, sizes[0]), chance / max(1, sizes[0])


def _distances(sample: Sample) -> Floats:
    """Count pairs of rows in one batch by their distance in storage."""
    by_batch = np.argsort(sample.batches, kind="stable")
    ids, batches = sample.ids[by_batch].astype(np.float64), sample.batches[by_batch]
    counts = np.zeros(DISTANCES)
    for lag in range(1, int(np.unique(batches, return_counts=True)[1].max())):
        near = batches[lag:] == batches[:-lag]
        distances = np.maximum(ids[lag:][near] - ids[:-lag][near], 1.0)
        counts += np.bincount((2 * np.log2(distances)).astype(np.int64), minlength=DISTANCES)
    return counts


def _all_distances(ids: Codes) -> Floats:
    """Count all pairs of rows by their distance; rows are in storage order."""
    places = ids.astype(np.float64)
    within = [np.searchsorted(places, places + 2 ** (at / 2)).sum() for at in range(1, DISTANCES + 1)]
    return np.diff(np.array(within, np.float64), prepend=float(_pairs(np.array([len(ids) + 1]))))


def _pairs(counts: Codes) -> int:
    return int((counts * (counts - 1) // 2).sum())


def _center(values: npt.ArrayLike) -> Floats:
    numbers = np.asarray(values, np.float64)
    centred: Floats = numbers - numbers.mean() if len(numbers) else numbers
    return centred


def _error(products: Floats, groups: int) -> float:
    sums = np.add.reduceat(products, np.arange(groups) * len(products) // groups)
    return float(np.sqrt((sums**2).sum() * groups / (groups - 1)))
