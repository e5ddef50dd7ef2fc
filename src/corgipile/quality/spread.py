"""Evenness of an order's spread of keys: within batches (deff) and along the epoch (prefix discrepancy)."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.keys import CHUNK, Floats, Keys

MAX_NUMBERS = 1 << 21  # numbers in memory at a time at most


def deff(values_in_visit_order: npt.ArrayLike, batch: int) -> float:
    """Measure the design effect of a batch: B * Var(batch mean) / sigma^2; 1.0 is a full shuffle.

    Classes are one-hot: the variances of the K class shares are summed over ``sum_k p_k (1 - p_k)``. Deviations are
    from the mean of all visited rows; a short last batch does not count.

    Args:
        values_in_visit_order: A class or number per row (see ``Keys``), in the order of visits.
        batch: Rows per batch, B.

    Returns:
        The design effect; 0.0 if all rows are equal.

    Example:
        >>> deff([0, 0, 0, 0, 1, 1, 1, 1], batch=4), deff([0, 1] * 4, batch=4)
        (4.0, 0.0)
    """
    return deff_of(Keys(values_in_visit_order), None, batch)


def deff_of(keys: Keys, ids: npt.NDArray[np.int64] | None, batch: int) -> float:
    """Measure deff of keys held in storage order and visited in the order ``ids``."""
    rows = len(keys) if ids is None else len(ids)
    if not 1 <= batch <= rows:
        raise BadArgument(f"batch must be 1 to {rows}, the rows visited, got {batch}")
    total = float(keys.variance.sum())
    if total == 0:
        return 0.0
    batches = rows // batch
    step = max(1, min(CHUNK // batch, MAX_NUMBERS // keys.kinds))
    squares = 0.0
    for first in range(0, batches, step):
        last = min(first + step, batches)
        which = slice(first * batch, last * batch)
        squares += float(((keys.means(which if ids is None else ids[which], batch) - keys.mean) ** 2).sum())
    return batch * squares / batches / total


def prefix_discrepancy(values_in_visit_order: npt.ArrayLike, norm: Literal["worst", "euclidean"] = "worst") -> float:
    """Measure the largest deviation of an epoch's running sum from a straight line, in units of sigma * sqrt(m).

    With m rows v_1 … v_m the path is d_k = sum_{i<=k} (v_i - v̄), and:

    - ``"worst"``: ``max_k |d_k| / (sigma sqrt(m))`` of the worst class (``sigma^2 = p (1 - p)``) or column.
      A full shuffle gives 0.87 for one column or two classes, 1.3 ± 0.2 for 10 equal classes, whatever m is.
    - ``"euclidean"``: ``max_k |d_k|_2 / (sigma sqrt(m))``, sigma^2 being the sum over classes or columns.
      A full shuffle gives 0.87 for one column or two classes, 0.6 ± 0.1 for 10 equal classes.

    A random order of constant blocks of b rows gives sqrt(b) times as much, whatever the buffer.

    Args:
        values_in_visit_order: A class or number per row (see ``Keys``), in the order of visits.
        norm: How classes or columns are combined.

    Example:
        >>> round(prefix_discrepancy([0] * 50 + [1] * 50), 3), round(prefix_discrepancy([0, 1] * 50), 3)
        (5.0, 0.1)
    """
    if norm not in ("worst", "euclidean"):
        raise BadArgument(f"norm must be 'worst' or 'euclidean', got {norm!r}")
    return prefix_of(Keys(values_in_visit_order), None, norm)


def prefix_of(keys: Keys, ids: npt.NDArray[np.int64] | None, norm: str = "worst") -> float:
    """Measure prefix discrepancy of keys held in storage order and visited in the order ``ids``."""
    rows = len(keys) if ids is None else len(ids)
    spread = keys.variance.sum() if norm == "euclidean" else keys.variance
    scale = np.sqrt(np.where(spread > 0, spread, np.inf))
    at: Floats = np.zeros(keys.kinds)
    worst = 0.0
    step = max(1, min(CHUNK, MAX_NUMBERS // keys.kinds))
    for start in range(0, rows, step):
        which = slice(start, min(start + step, rows))
        part = keys.rows(which if ids is None else ids[which]) - keys.mean
        path = part.cumsum(axis=0)
        path += at
        at = path[-1].copy()
        far = np.linalg.norm(path, axis=1) / scale if norm == "euclidean" else np.abs(path).max(axis=0) / scale
        worst = max(worst, float(far.max()))
    return worst / float(np.sqrt(rows))


def expected_deff_corgipile(batch: int, n: int, b: int, blocks: int, h_d: float) -> float:
    """Predict deff of a batch drawn from CorgiPile's buffer.

    ``(nb - B)/(nb - 1) + (1 - a) h_D (B - 1)/(nb - 1)`` with ``a = (n - 1)/(N - 1)``: about
    ``1 + (B - 1)(1 - a) h_D/(nb)``. For blocks of one class (h_D = b), a deff of 1 + x takes n = B/x blocks.

    Args:
        batch: Rows per batch, B.
        n: Blocks in the buffer.
        b: Rows per block.
        blocks: Blocks in the table, N.
        h_d: Block-wise variance factor of the table (``h_d``).

    Example:
        >>> round(expected_deff_corgipile(256, n=128, b=100, blocks=4000, h_d=100), 2)
        2.91
    """
    if not (1 <= n <= blocks and b >= 1 and 1 <= batch <= n * b):
        raise BadArgument(
            f"batch, blocks must satisfy 1 <= batch <= n b and n <= blocks, got batch {batch}, {n} blocks of {b} rows"
            f" in the buffer, {blocks} in the table"
        )
    if n * b == 1:
        return 1.0
    alpha = (n - 1) / (blocks - 1) if blocks > 1 else 1.0
    return ((n * b - batch) + (1 - alpha) * h_d * (batch - 1)) / (n * b - 1)
