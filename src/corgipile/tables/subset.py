"""Subsets of a table: runs of rows in stored order."""

from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.io.files import digest
from corgipile.tables.location import Location
from corgipile.tables.selection import Selection
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table

__all__ = ["Subset", "runs_within"]


class Subset(Selection):
    """Serves runs of rows of a table, in stored order; cuts follow the table's blocks where possible.

    Args:
        table: The table.
        runs: int64[k, 2], first row of each run and the row after its last; ascending, without overlap.

    Raises:
        BadArgument: The runs overlap, descend, or leave the table.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"label": [0, 1, 2, 3, 4]}))
        >>> Subset(table, [[0, 2], [4, 5]]).read(1, 3).to_pydict()
        {'label': [1, 4]}
    """

    def __init__(self, table: Table, runs: Any) -> None:
        runs = np.asarray(runs, np.int64).reshape(-1, 2)
        edges = runs.ravel()
        if (np.diff(edges) < 0).any() or (runs[:, 1] <= runs[:, 0]).any():
            raise BadArgument(f"runs must ascend without overlap, none empty, got {runs[:4].tolist()}...")
        if len(edges) and not 0 <= edges[0] <= edges[-1] <= len(table):
            raise BadArgument(f"runs must lie within rows 0 to {len(table)}, got rows {edges[0]} to {edges[-1]}")
        super().__init__(table)
        self.runs = runs
        self._starts = np.cumsum([0, *(runs[:, 1] - runs[:, 0])], dtype=np.int64)

    @classmethod
    def of(cls, table: Table, runs: Any) -> "Subset":
        """Create a subset; a subset of a subset refers to the underlying table.

        Example:
            >>> from corgipile.tables import MemoryTable
            >>> table = Subset(MemoryTable(pa.table({"label": [0, 1, 2, 3, 4]})), [[0, 2], [3, 5]])
            >>> Subset.of(table, [[1, 3]]).runs.tolist()
            [[1, 2], [3, 4]]
        """
        if not isinstance(table, Subset):
            return cls(table, runs)
        runs = np.asarray(runs, np.int64).reshape(-1, 2)
        run, parts = runs_within(runs, table._starts)  # noqa: SLF001 - the same class
        return cls(table.table, parts + (table.runs[:, 0] - table._starts[:-1])[run][:, None])  # noqa: SLF001

    def __reduce__(self) -> tuple[type["Subset"], tuple[Table, IntArray]]:
        return Subset, (self.table, self.runs)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and the runs."""
        return digest(self.table.fingerprint, self.runs.astype("<i8").tobytes().hex())

    def cuts(self, rows: int) -> IntArray:
        """Cut at the table's blocks, with small remainders joined up to ``rows`` rows."""
        whole = self.table.cuts(rows)
        run = np.searchsorted(self.runs[:, 1], whole, side="right")
        run_starts = np.append(self.runs[:, 0], whole[-1])[run]
        edges = np.unique(self._starts[run] + np.maximum(whole - run_starts, 0))
        cuts, at = [0], 0
        while at < len(edges) - 1:
            at = max(at + 1, int(np.searchsorted(edges, edges[at] + rows, side="right")) - 1)
            cuts.append(int(edges[at]))
        return np.array(cuts, np.int64)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a run of rows, by one read if it is contiguous in the table."""
        first, last = np.searchsorted(self._starts, (start, stop - 1), side="right") - 1
        if first == last:
            begin = int(self.runs[first, 0]) + start - int(self._starts[first])
            return self.table.read(begin, begin + stop - start, names)
        return super()._read_run(start, stop, names)

    def places(self, rows: IntArray) -> IntArray:
        """Return the row numbers in the underlying table."""
        if not len(rows):
            return rows
        run = np.searchsorted(self._starts, rows, side="right") - 1
        return np.asarray(rows + (self.runs[:, 0] - self._starts[:-1])[run])

    def within(self, rows: IntArray) -> IntArray:
        """Return the positions of the table's rows in this subset, without rows outside it."""
        run = np.searchsorted(self.runs[:, 1], rows, side="right")
        begins = np.append(self.runs[:, 0], len(self.table))[run]
        here = rows >= begins
        return np.asarray((rows - begins + self._starts[run])[here])

    def _locate(self, place: Location | None) -> Location | None:
        if place is None or place.bits is not None or not len(self):
            return None
        return place._replace(layout=self._cut(place.layout))

    def _cut(self, layout: Layout) -> Layout:
        located = {name: self._cut_column(column) for name, column in layout.columns.items()}
        return Layout(layout.paths, located, layout.identities)

    def _cut_column(self, column: ColumnLayout) -> ColumnLayout:
        pieces, runs = runs_within(self.runs, column.starts)
        lengths = runs[:, 1] - runs[:, 0]
        offsets = column.offsets[pieces] + (runs[:, 0] - column.starts[pieces]) * column.width
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        return column.cut(starts, pieces, offsets)


def runs_within(runs: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Split runs of rows at the boundaries of pieces.

    Args:
        runs: int64[k, 2], ascending.
        starts: int64[pieces + 1], first row of each piece, then the number of rows.

    Returns:
        The piece of each part, and the parts as runs.

    Example:
        >>> runs_within(np.array([[1, 6], [8, 9]]), np.array([0, 4, 10]))[1].tolist()
        [[1, 4], [4, 6], [8, 9]]
    """
    if not len(runs):
        return np.empty(0, np.int64), runs
    inner = starts[1:-1]
    run = np.searchsorted(runs[:, 0], inner, side="left") - 1
    inside = (run >= 0) & (inner < runs[run, 1])
    firsts = np.sort(np.append(runs[:, 0], inner[inside]))
    stops = np.sort(np.append(runs[:, 1], inner[inside]))
    return np.searchsorted(starts, firsts, side="right") - 1, np.stack([firsts, stops], axis=1)
