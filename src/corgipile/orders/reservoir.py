"""Reservoir: Bismarck's multiplexed reservoir sampling (MRS)."""

from dataclasses import dataclass
from typing import ClassVar

from corgipile.orders.order import Blocks, Key
from corgipile.orders.streaming import Streaming


@dataclass(frozen=True, kw_only=True)
class Reservoir(Streaming):
    """Visit the rows that leave a reservoir sample, each followed by a row of the kept sample (MRS, Bismarck).

    A pass over m rows with a window of w visits each row once, as it leaves the reservoir or at the end, and m - w
    times a kept row in the loop: 2m - w visits for m > w, else m. Workers that share a pass make fewer loop visits, so
    that all have whole batches, or none if the smallest share leaves too few.

    Example:
        >>> import numpy as np
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = Reservoir(block=4, buffer=3).fit(12, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(12, even=4), Key(seed=0))))
        >>> len(visits), len(set(visits.tolist()))
        (21, 12)
    """

    name: ClassVar[str] = "reservoir"
    once: ClassVar[bool] = False
    reservoir: ClassVar[bool] = True

    def visits(self, blocks: Blocks, key: Key) -> int:
        """Return the rows visited in a pass of this rank, loop visits included."""
        return super().visits(blocks, key) + self.loops(blocks, key)

    def loops(self, blocks: Blocks, key: Key) -> int:
        """Return the loop visits of kept rows in a pass."""
        rows = super().visits(blocks, key)
        if key.workers == 1:
            return max(0, rows - self.window)
        shares = (key._replace(worker=worker).share(blocks.rows) for worker in range(key.workers))
        least = min(stop - first for first, stop in shares) - self.window
        return rows - self.window - (2 * rows - self.window) % key.batch if least >= key.batch - 1 else 0
