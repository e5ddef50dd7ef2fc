"""Look-ups in the index of a file; columns of short indexes are cached."""

from collections.abc import Sequence

import numpy as np

from corgipile.tables.io.common import Common
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray, Table

__all__ = ["Entries"]

MAX_CACHED_ENTRIES = 1 << 14  # rows of an index whose columns are cached
MAX_CACHED_BYTES = 4 << 20  # bytes cached for all files


class Entries:
    """Looks up numeric columns of an index.

    Reading a few rows of a short index takes as long as reading all, and a batch needs a few rows of each shard's. So
    recently used columns are cached.

    Example:
        >>> from corgipile.tables import open
        >>> Entries(open({"start": [0, 5, 9], "size": [5, 4, 3]})).take(np.array([2, 0]), ["size", "start"])
        [array([3, 5]), array([9, 0])]
    """

    def __init__(self, index: Table) -> None:
        self.index = index

    def take(self, rows: IntArray, names: Sequence[str]) -> list[IntArray]:
        """Return these columns of some rows, in any order."""
        if len(self.index) > MAX_CACHED_ENTRIES:
            return [flat(column) for column in self.index.take(rows, list(names)).columns]
        return [_cached.of(self, name, lambda name=name: self._whole(name))[rows] for name in names]  # type: ignore[misc]

    def _whole(self, name: str) -> IntArray:
        return np.asarray(flat(self.index.read(0, len(self.index), [name]).column(0)))


_cached: Common[IntArray] = Common(MAX_CACHED_BYTES, lambda column: int(column.nbytes))
