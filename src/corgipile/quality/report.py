"""Quality report of one epoch."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.coverage import Coverage, coverage
from corgipile.quality.keys import Keys
from corgipile.quality.spread import deff_of, prefix_of


@dataclass(frozen=True)
class Report:
    """Quality of one epoch of visits.

    Attributes:
        batch: Rows per batch.
        deff: Design effect of a batch; 1.0 is a full shuffle.
        prefix: Prefix discrepancy, norm ``"worst"``: about 0.9 (two classes) to 1.3 (ten) for a full shuffle.
        coverage: Whether each row was visited exactly once.
    """

    batch: int
    deff: float
    prefix: float
    coverage: Coverage


def measure(ids: npt.ArrayLike | Iterable[npt.ArrayLike], labels: npt.ArrayLike, batch: int = 256) -> Report:
    """Measure an epoch of any loader from the row numbers it visited.

    Args:
        ids: Row numbers in visit order: one array, or arrays one after another (a loader's batches).
        labels: A class or number per row (see ``Keys``), in storage order.
        batch: Rows per batch, for ``deff``.

    Example:
        >>> report = measure(range(1000), [0] * 500 + [1] * 500, batch=100)
        >>> report.deff, report.coverage.exact
        (100.0, True)
    """
    visited = _row_numbers(ids)
    keys = Keys(labels)
    audit = coverage(visited, len(keys))
    if audit.foreign:
        raise BadArgument(f"ids must be 0 to {len(keys) - 1}, the rows that have labels, got {audit.foreign} others")
    return Report(batch, deff_of(keys, visited, batch), prefix_of(keys, visited), audit)


def _row_numbers(ids: npt.ArrayLike | Iterable[npt.ArrayLike]) -> npt.NDArray[np.int64]:
    if isinstance(ids, np.ndarray | range):
        pieces = [np.asarray(ids)]
    else:
        pieces = [np.atleast_1d(np.asarray(piece)) for piece in ids]  # type: ignore[union-attr]
    kinds = {piece.dtype.kind for piece in pieces if piece.size}
    if not kinds <= {"i", "u"}:
        raise BadArgument(f"ids must be row numbers, got {', '.join(sorted({str(p.dtype) for p in pieces}))}")
    return np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, np.int64)
