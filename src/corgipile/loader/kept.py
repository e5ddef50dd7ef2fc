"""Tables so small that all rows stay in memory, each in the slot of its number: they are read once for all epochs."""

from collections.abc import Iterable, Iterator

import numpy as np

from corgipile.errors import BadArgument
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.prefetch import ENDED
from corgipile.loader.readers import RowReader
from corgipile.loader.stats import Progress
from corgipile.orders import Step
from corgipile.tables.table import IntArray

__all__ = ["KeptRows", "read_all", "small"]

MOST = 16 << 20  # bytes of rows that are kept
SHARE = 4  # of the budget: the others are for what reads and learns
PARTS = 4  # in which rows of varying length are read, whose size shows only then


def small(rows: int, row_bytes: float, limit: int | None) -> bool:
    """Say whether so many rows are kept in memory within a budget.

    Example:
        >>> small(10_000, 232, 64 << 20), small(10_000, 232, 1 << 20), small(10**6, 232, None)
        (True, False, False)
    """
    return rows * row_bytes <= (MOST if limit is None else min(MOST, limit // SHARE))


def read_all(reader: RowReader, rows: int, buffer: Buffer, limit: int | None) -> bool:
    """Read all rows into the slots of their numbers; False where they take more than rows looked at beforehand did."""
    most = 2 * (MOST if limit is None else min(MOST, limit // SHARE))
    part = -(-rows // (PARTS if buffer.varlen else 1))
    for start in range(0, rows, max(1, part)):
        into = np.arange(start, min(start + part, rows), dtype=np.int32)
        reader.fill(Step(np.array([[start, start + len(into)]]), into, into))
        if buffer.varlen and buffer.nbytes > most:
            return False
    return True


class KeptRows:
    """One pass over rows that are in memory: their numbers are their slots."""

    def __init__(self, rows: Iterable[IntArray]) -> None:
        self._rows, self._stopped = rows, False

    def visits(self) -> Iterator[SlotArray]:
        """Yield the slots each step visits."""
        for rows in self._rows:
            if self._stopped:
                raise BadArgument(ENDED)
            yield rows.astype(np.int32)

    def progress(self) -> Progress:
        """Return that nobody waits."""
        return Progress()

    def stop(self) -> None:
        """End this pass."""
        self._stopped = True
