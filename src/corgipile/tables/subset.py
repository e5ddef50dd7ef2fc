"""Some rows of a table as a table of its own."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import check_rows, empty
from corgipile.tables.table import (
    ColumnLayout,
    IntArray,
    Layout,
    Single,
    Table,
    check_columns,
    check_run,
    row_sizes,
    shared_bytes,
)

__all__ = ["Subset", "runs_within"]


class Subset:
    """Serves some rows of a table, in their stored order; the table's blocks stay apart where that costs nothing.

    Args:
        table: The table.
        runs: int64[k, 2], first row of each run and the row after its last, ascending and apart from each other.

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
            raise BadArgument(f"runs must ascend, apart and none empty, got {runs[:4].tolist()}...")
        if len(edges) and not 0 <= edges[0] <= edges[-1] <= len(table):
            raise BadArgument(f"runs go from row {edges[0]} to {edges[-1]}; the table has rows 0 to {len(table)}")
        self.table, self.runs = table, runs
        self._starts = np.cumsum([0, *(runs[:, 1] - runs[:, 0])], dtype=np.int64)

    def __reduce__(self) -> tuple[type["Subset"], tuple[Table, IntArray]]:
        return Subset, (self.table, self.runs)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"Subset({len(self)} rows of {self.table!r})"

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the table."""
        return self.table.schema

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of these rows, were all of one size."""
        return int(self.table.nbytes * len(self) / max(len(self.table), 1))

    @property
    def fingerprint(self) -> str:
        """Return the identity: that of the table, and the runs."""
        return digest(self.table.fingerprint, self.runs.astype("<i8").tobytes().hex())

    def cuts(self, rows: int) -> IntArray:
        """Cut where the table's own blocks end, joining what is left of them to at most ``rows`` rows."""
        whole = self.table.cuts(rows)
        run = np.searchsorted(self.runs[:, 1], whole, side="right")
        run_starts = np.append(self.runs[:, 0], whole[-1])[run]
        edges = np.unique(self._starts[run] + np.maximum(whole - run_starts, 0))
        cuts, at = [0], 0
        while at < len(edges) - 1:
            at = max(at + 1, int(np.searchsorted(edges, edges[at] + rows, side="right")) - 1)
            cuts.append(int(edges[at]))
        return np.array(cuts, np.int64)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows, at once if they lie together."""
        check_run(start, stop, len(self))
        if start == stop:
            return empty(self.schema, check_columns(self.schema, columns))
        first, last = np.searchsorted(self._starts, (start, stop - 1), side="right") - 1
        if first == last:
            begin = int(self.runs[first, 0]) + start - int(self._starts[first])
            return self.table.read(begin, begin + stop - start, columns)
        return self.take(np.arange(start, stop), columns)

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the order asked for."""
        return self.table.take(self.places(check_rows(rows, len(self))), columns)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, if the table tells."""
        return row_sizes(self.table, self.places(rows), columns)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into an object of its own."""
        return cast("Single", self.table).take_bytes(self.places(rows), column)

    def places(self, rows: IntArray) -> IntArray:
        """Return the numbers that rows have in the table."""
        if not len(rows):
            return rows
        run = np.searchsorted(self._starts, rows, side="right") - 1
        return np.asarray(rows + (self.runs[:, 0] - self._starts[:-1])[run])

    @property
    def place(self) -> str:
        """Return what tells the files of the table from all others, where it is encoded."""
        return str(self.table.place)  # type: ignore[attr-defined]

    @property
    def spill(self) -> Any:
        """Return the folder for spill files of the table, where it is encoded."""
        return self.table.spill  # type: ignore[attr-defined]

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the table holds for columns, whatever the rows."""
        return shared_bytes(self.table, columns)

    def units(self, columns: Sequence[str]) -> Any:
        """Return the units of the table, where it is encoded: all of them are unpacked, if any are."""
        units = getattr(self.table, "units", None)
        return None if units is None else units(columns)

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> "Subset":
        """Return the same rows of the table as it is once its units are unpacked."""
        return Subset(unpack(self.table, columns), self.runs)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Say where these rows lie, if the table says where its rows do."""
        layout = self.table.layout(columns)
        if layout is None or not len(self):
            return None
        located = {name: self._column(column) for name, column in layout.columns.items()}
        return Layout(layout.paths, located, layout.identities)

    def _column(self, column: ColumnLayout) -> ColumnLayout:
        pieces, runs = runs_within(self.runs, column.starts)
        lengths = runs[:, 1] - runs[:, 0]
        offsets = column.offsets[pieces] + (runs[:, 0] - column.starts[pieces]) * column.width
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        return ColumnLayout(column.dtype, column.shape, starts, column.files[pieces], offsets)


def runs_within(runs: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Cut runs of rows where pieces begin.

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
