"""Where rows lie, by the index of a file: an index is a table too, and short ones are kept."""

from collections.abc import Sequence

import numpy as np

from corgipile.tables.arrow.spans import flat
from corgipile.tables.io.common import Common
from corgipile.tables.table import IntArray, Table

__all__ = ["Entries"]

SHORT = 1 << 14  # entries of an index that are kept
ROOM = 4 << 20  # bytes kept for all files together


class Entries:
    """Looks up columns of numbers of an index.

    Some rows of a short index take as long to read as all of it, and a folder of shards has many: a batch finds a few
    rows in each. So those asked for lately are kept.

    Args:
        index: The index.

    Example:
        >>> from corgipile.tables import open
        >>> Entries(open({"start": [0, 5, 9], "size": [5, 4, 3]})).take(np.array([2, 0]), ["size", "start"])
        [array([3, 5]), array([9, 0])]
    """

    def __init__(self, index: Table) -> None:
        self.index = index

    def take(self, rows: IntArray, names: Sequence[str]) -> list[IntArray]:
        """Return these columns of rows, in any order."""
        if len(self.index) > SHORT:
            return [flat(column) for column in self.index.take(rows, list(names)).columns]
        return [_kept.of(self, name, lambda name=name: self._whole(name))[rows] for name in names]  # type: ignore[misc]

    def _whole(self, name: str) -> IntArray:
        return np.asarray(flat(self.index.read(0, len(self.index), [name]).column(0)))


_kept: Common[IntArray] = Common(ROOM, lambda column: int(column.nbytes))
