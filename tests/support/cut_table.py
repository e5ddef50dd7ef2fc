"""A table with the blocks that the server has."""

import numpy as np

from corgipile.tables import MemoryTable


class CutTable(MemoryTable):
    """A table with the blocks that the server has."""

    def __init__(self, rows, cuts):
        super().__init__(rows)
        self._cuts = np.array(cuts, np.int64)

    def cuts(self, rows):
        return self._cuts
