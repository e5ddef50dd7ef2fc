"""Tables so small that all rows stay in memory, each in the slot of its number: they are read once for all epochs."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from corgipile.errors import BadArgument
from corgipile.loader.budget import DEFAULT_MEMORY
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.prefetch import ENDED
from corgipile.loader.readers import RowReader
from corgipile.loader.stats import Progress
from corgipile.orders import Step
from corgipile.sizes import Size, parse_bytes
from corgipile.tables.encoded import is_encoded
from corgipile.tables.memory import runs_in_memory
from corgipile.tables.table import IntArray, Table, even_cuts

__all__ = ["CachedRows", "most_read_once", "read_all", "small"]

MOST = 16 << 20  # bytes of rows that are kept
SHARE = 4  # of the budget: the others are for what reads and learns
PARTS = 4  # in which rows of varying length are read where only that shows their size


def most_read_once(memory: Size | None, nbytes: int) -> int:
    """Return the bytes of a table that is read into memory before anything is found out about it.

    Example:
        >>> most_read_once("64MB", 10**6), most_read_once("1%", 10**6)
        (8388608, 1250)
    """
    limit = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=nbytes)
    return min(MOST // 2, limit // (2 * SHARE))


def small(rows: int, row_bytes: float, limit: int | None) -> bool:
    """Say whether so many rows are kept in memory within a budget.

    Example:
        >>> small(10_000, 232, 64 << 20), small(10_000, 232, 1 << 20), small(10**6, 232, None)
        (True, False, False)
    """
    return rows * row_bytes <= (MOST if limit is None else min(MOST, limit // SHARE))


def read_all(reader: RowReader, table: Table, buffer: Buffer, limit: int | None) -> bool:
    """Read all rows into the slots of their numbers; False where they take more than rows looked at beforehand did."""
    rows, most = len(table), 2 * (MOST if limit is None else min(MOST, limit // SHARE))
    known = not buffer.varlen or (table.nbytes <= most and not is_encoded(table, buffer.varlen.names))
    whole = (runs_in_memory(table, rows) or [(0, rows)]) if known else None
    for start, stop in whole or pairwise(even_cuts(rows, max(1, -(-rows // PARTS))).tolist()):
        into = np.arange(start, stop, dtype=np.int32)
        reader.fill(Step(np.array([[start, stop]]), into, into))
        if buffer.varlen and buffer.nbytes > most:
            return False
    return True


class CachedRows:
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
