"""Statistics of random permutations, in standard deviations of a normal variable ("sigmas")."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.orders.order import IntArray

Floats = npt.NDArray[np.float64]


def ranks_of(values: IntArray) -> IntArray:
    """Return the rank of each value among those of the last axis."""
    return np.argsort(np.argsort(values, axis=-1), axis=-1)


def chi_sigmas(counts: npt.NDArray[Any], expected: Any) -> float:
    """Return by how much counts deviate from expected ones: chi-square as a normal variable (Wilson and Hilferty).

    Example:
        >>> round(chi_sigmas(np.array([48, 52]), 50), 1), round(chi_sigmas(np.array([10, 90]), 50), 1)
        (-0.5, 6.8)
    """
    return _normal(float(((counts - expected) ** 2 / expected).sum()), counts.size - 1)


def _normal(square: float, freedom: int) -> float:
    spread = 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


def mean_sigmas(values: npt.NDArray[Any], mean: float, least_spread: float) -> float:
    """Return the distance of the mean of independent values, of at least this standard deviation, from ``mean``."""
    spread = max(float(values.std()), least_spread)
    return float((values.mean() - mean) / spread * values.size**0.5)


def uniform_sigmas(ranks: IntArray) -> float:
    """Return by how much items of permutations, [permutations, items], deviate from equally frequent ranks."""
    count, items = ranks.shape
    cells = (np.arange(items) * items + ranks).reshape(-1)
    table = np.bincount(cells, minlength=items * items)
    square = (items - 1) / count * ((table - count / items) ** 2).sum()
    return _normal(float(square), (items - 1) ** 2)


def pair_sigmas(one: IntArray, other: IntArray) -> Iterator[tuple[str, float]]:
    """Yield three deviations of pairs of permutations, [pairs, items] each, from those of independent ones."""
    items = one.shape[1]
    a, b = (ranks - (items - 1) / 2 for ranks in (one, other))
    related = (a * b).sum(axis=1) * 12 / (items * (items * items - 1))
    yield "correlation", mean_sigmas(related, 0.0, items**-0.5 / 2)
    yield "equal places", mean_sigmas((one == other).sum(axis=1), 1.0, 0.5)
    yield "repeated neighbours", mean_sigmas(repetitions(one, other), (items - 1) / items, 0.5)


def repetitions(one: IntArray, other: IntArray) -> IntArray:
    """Count items with the same successor in both permutations, given as ranks."""
    sequence = np.argsort(one, axis=1)
    return np.asarray((np.diff(np.take_along_axis(other, sequence, axis=1), axis=1) == 1).sum(axis=1))
