"""Coverage of an epoch: whether each row was visited exactly once."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument


@dataclass(frozen=True)
class Coverage:
    """Visits of an epoch.

    Attributes:
        rows: Rows of the table.
        visits: Number of visits.
        missing: Rows never visited.
        repeated: Rows visited more than once.
        most: Visits of the row visited most often.
        foreign: Visits of rows outside the table.
    """

    rows: int
    visits: int
    missing: int
    repeated: int
    most: int
    foreign: int

    @property
    def exact(self) -> bool:
        """Return whether each row was visited exactly once."""
        return self.missing == self.repeated == self.foreign == 0


def coverage(ids: npt.ArrayLike, rows: int) -> Coverage:
    """Audit the row numbers visited in one epoch.

    Args:
        ids: Row numbers, in any order.
        rows: Rows of the table.

    Example:
        >>> coverage([2, 0, 1], rows=3).exact
        True
        >>> coverage([2, 2, 1], rows=3)
        Coverage(rows=3, visits=3, missing=1, repeated=1, most=2, foreign=0)
    """
    seen = np.asarray(ids)
    if seen.size == 0:
        seen = seen.astype(np.int64)
    if seen.ndim != 1 or seen.dtype.kind not in "iu":
        raise BadArgument(f"ids must be one row number per visit, got {seen.dtype} of shape {seen.shape}")
    inside = seen[(seen >= 0) & (seen < rows)]
    times = np.bincount(inside.astype(np.int64), minlength=rows)
    return Coverage(
        rows=rows,
        visits=len(seen),
        missing=int((times == 0).sum()),
        repeated=int((times > 1).sum()),
        most=int(times.max(initial=0)),
        foreign=len(seen) - len(inside),
    )
