"""Tables in memory."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.pieces import check_names, check_rows, empty, pick_rows, read_pieces, take_pieces
from corgipile.tables.table import IntArray, Layout, check_columns, check_run, even_cuts

SAMPLES = 64


class MemoryTable:
    """Serves the rows of a ``pyarrow.Table``.

    Args:
        rows: The rows; they are not copied.

    Example:
        >>> import pyarrow as pa
        >>> table = MemoryTable(pa.table({"label": [0, 1, 1]}))
        >>> table.take([2, 0]).to_pydict()
        {'label': [1, 0]}
    """

    columnar = True  # a column is read without the others

    def __init__(self, rows: pa.Table) -> None:
        check_names(rows.schema, "the table in memory")
        self.schema: pa.Schema = rows.schema
        self._rows = rows
        self._batches = [batch for batch in rows.to_batches() if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)], dtype=np.int64)

    def __reduce__(self) -> tuple[type["MemoryTable"], tuple[pa.Table]]:
        return MemoryTable, (self._rows,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"MemoryTable({len(self)} rows of {describe(self.schema)})"

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows."""
        return int(self._rows.nbytes)

    @property
    def fingerprint(self) -> str:
        """Return the identity: schema, number of rows, and the content of some of them."""
        picks = np.unique(np.linspace(0, max(len(self) - 1, 0), SAMPLES).astype(np.int64))
        sample = [str(self.take(picks[picks < len(self)]).to_pylist())]
        return digest(describe(self.schema), str(len(self)), *sample)

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows."""
        return even_cuts(len(self), rows)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return one run of rows; nothing is copied if they lie in one chunk."""
        check_run(start, stop, len(self))
        names = check_columns(self.schema, columns)
        if start == stop:
            return empty(self.schema, names)
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._batches[i].slice(a, b - a).select(names))

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return scattered rows in the order asked for."""
        rows = check_rows(rows, len(self))
        names = check_columns(self.schema, columns)
        if not len(rows):
            return empty(self.schema, names)
        return take_pieces(self._starts, rows, lambda i, local: pick_rows(self._batches[i].select(names), local))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return None: the rows lie in no file."""
        check_columns(self.schema, columns)
        return None
