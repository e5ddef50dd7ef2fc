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


def chi_sigmas(counts: npt.NDArray[Any], expected: Any, freedom: int | None = None) -> float:
    """Return by how much counts deviate from expected ones: chi-square as a normal variable (Wilson and Hilferty).

    Example:
        >>> round(chi_sigmas(np.array([48, 52]), 50), 1), round(chi_sigmas(np.array([10, 90]), 50), 1)
        (-0.4, 6.8)
    """
    return _normal(float(((counts - expected) ** 2 / expected).sum()), freedom or counts.size - 1)


def _normal(square: float, freedom: int) -> float:
    spread = 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


def mean_sigmas(values: npt.NDArray[Any], mean: float, least_spread: float) -> float:
    """Return the distance of independent values' mean from its expectation.

    ``least_spread`` is the smallest standard deviation of one value that is assumed.
    """
    spread = max(float(values.std()), least_spread)
    return float((values.mean() - mean) / spread * values.size**0.5)


def uniform_sigmas(ranks: IntArray) -> float:
    """Return by how much items of permutations, [permutations, items], deviate from having each rank equally often.

    The expected deviation is that of independent permutations, so equal ones deviate too.

    Example:
        >>> some = np.random.default_rng(0).permuted(np.tile(np.arange(9), (1000, 1)), axis=1)
        >>> abs(uniform_sigmas(some)) < 4, uniform_sigmas(np.tile(some[:10], (100, 1))) > 50
        (True, True)
    """
    count, items = ranks.shape
    cells = (np.arange(items) * items + ranks).reshape(-1)
    table = np.bincount(cells, minlength=items * items)
    square = (items - 1) / count * ((table - count / items) ** 2).sum()
    return _normal(float(square), (items - 1) ** 2)


def pair_sigmas(one: IntArray, other: IntArray) -> Iterator[tuple[str, float]]:
    """Yield how pairs of permutations, [pairs, items] each, depend on each other.

    Yields:
        The mean correlation, the number of equal ranks, and the number of repeated neighbours, each against that of
        independent permutations.
    """
    items = one.shape[1]
    a, b = (ranks - (items - 1) / 2 for ranks in (one, other))
    related = (a * b).sum(axis=1) * 12 / (items * (items * items - 1))
    yield "correlation", mean_sigmas(related, 0.0, items**-0.5 / 2)
    yield "equal places", mean_sigmas((one == other).sum(axis=1), 1.0, 0.5)
    yield "repeated neighbours", mean_sigmas(repeated_neighbours(one, other), (items - 1) / items, 0.5)


def repeated_neighbours(one: IntArray, other: IntArray) -> IntArray:
    """Count items with the same successor in both permutations, given as ranks.

    Example:
        >>> repeated_neighbours(np.array([[0, 1, 2, 3]]), np.array([[2, 3, 0, 1]])).tolist()
        [2]
    """
    sequence = np.argsort(one, axis=1)
    return np.asarray((np.diff(np.take_along_axis(other, sequence, axis=1), axis=1) == 1).sum(axis=1))
