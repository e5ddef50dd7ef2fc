"""Caching of small tables: all rows are read once and stay in memory, each in the slot of its number."""

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
from corgipile.tables.table import IntArray, Table, even_cuts

__all__ = ["CachedRows", "fits_cache", "max_cached_bytes", "read_all"]

MAX_CACHED = 16 << 20  # largest cached table
MIN_BUDGET_RATIO = 4  # smallest ratio of the budget to the cached rows: reading and learning need the others
VARLEN_READS = 4  # reads of variable-length rows if only reading shows their size


def max_cached_bytes(memory: Size | None, nbytes: int) -> int:
    """Return the largest table in bytes that is read into memory before it is examined.

    Example:
        >>> max_cached_bytes("64MB", 10**6), max_cached_bytes("1%", 10**6)
        (8388608, 1250)
    """
    limit = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=nbytes)
    return min(MAX_CACHED // 2, limit // (2 * MIN_BUDGET_RATIO))


def fits_cache(rows: int, row_bytes: float, limit: int | None) -> bool:
    """Return whether rows of this size are cached within a budget.

    Example:
        >>> fits_cache(10_000, 232, 64 << 20), fits_cache(10_000, 232, 1 << 20), fits_cache(10**6, 232, None)
        (True, False, False)
    """
    return rows * row_bytes <= (MAX_CACHED if limit is None else min(MAX_CACHED, limit // MIN_BUDGET_RATIO))


def read_all(reader: RowReader, table: Table, buffer: Buffer, limit: int | None) -> bool:
    """Read all rows into the slots of their numbers; False if they take more than twice the cache's limit."""
    rows, cap = len(table), 2 * (MAX_CACHED if limit is None else min(MAX_CACHED, limit // MIN_BUDGET_RATIO))
    known = not buffer.varlen or (table.nbytes <= cap and table.units(buffer.varlen.names) is None)
    whole = (table.memory_runs(rows) or [(0, rows)]) if known else None
    for start, stop in whole or pairwise(even_cuts(rows, max(1, -(-rows // VARLEN_READS))).tolist()):
        into = np.arange(start, stop, dtype=np.int32)
        reader.fill(Step(np.array([[start, stop]]), into, into))
        if buffer.varlen and buffer.nbytes > cap:
            return False
    return True


class CachedRows:
    """A pass over cached rows, whose numbers are their slots."""

    def __init__(self, rows: Iterable[IntArray]) -> None:
        self._rows, self._stopped = rows, False

    def visits(self) -> Iterator[SlotArray]:
        """Yield each step's slots."""
        for rows in self._rows:
            if self._stopped:
                raise BadArgument(ENDED)
            yield rows.astype(np.int32)

    def progress(self) -> Progress:
        """Return empty progress: no step waits for reading."""
        return Progress()

    def stop(self) -> None:
        """End this pass."""
        self._stopped = True
