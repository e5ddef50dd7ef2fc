"""A table with the block boundaries of the server."""

import numpy as np
import pyarrow as pa

from corgipile.tables import MemoryTable


class CutTable(MemoryTable):
    """A table with the block boundaries of the server."""

    def __init__(self, rows, cuts):
        super().__init__(rows)
        self._cuts = np.array(cuts, np.int64)

    def cuts(self, rows):
        return self._cuts

    def replaced(self, columns):
        return CutTable(pa.Table.from_batches([super().replaced(columns).read(0, len(self))]), self._cuts)
