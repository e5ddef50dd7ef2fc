"""h_D of a table: the deviation of its blocks from random samples."""

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.keys import Keys


def h_d(values: npt.ArrayLike, cuts: npt.ArrayLike) -> float:
    """Measure the block-wise variance factor of a column.

    1 means that blocks are random samples, b (rows per block) that each block is constant.

    For labels this is h_D of the gradient of an output's bias at a constant predictor:
    ``b (1/N) sum_l |p_l - p|^2 / (1 - |p|^2)``; unequal blocks are weighted by their squared rows.

    Args:
        values: A class or number per row (see ``Keys``), in storage order.
        cuts: Block boundaries, ``blocks + 1`` row numbers from 0 to the number of rows.

    Returns:
        The factor; 0.0 if all rows are equal.

    Example:
        >>> h_d([0, 0, 1, 1], [0, 2, 4]), h_d([0, 1, 0, 1], [0, 2, 4])
        (2.0, 0.0)
    """
    keys, edges = Keys(values), np.asarray(cuts, dtype=np.int64)
    sizes = np.diff(edges)
    if edges.ndim != 1 or len(edges) < 2 or edges[0] != 0 or edges[-1] != len(keys) or (sizes < 1).any():
        raise BadArgument(f"cuts must rise from 0 to {len(keys)}, the number of rows, got {edges}")
    total = float(keys.variance.sum())
    if total == 0:
        return 0.0
    squares = 0.0
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        squares += keys.off(slice(start, stop)) * (stop - start) ** 2
    return squares / len(keys) / total
