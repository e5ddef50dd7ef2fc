"""Selections of rows of a table: by a mask, or by row numbers in any order."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.even_lists import sampled_width
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import check_rows, take_runs
from corgipile.tables.location import Location
from corgipile.tables.row_mask import RowMask
from corgipile.tables.table import IntArray, Table, even_cuts
from corgipile.tables.wrapper import Wrapper

__all__ = ["MaskTable", "Selection", "TakeTable"]

MAX_GAP, RUN = 8 << 10, 1 << 20  # unneeded bytes read to save a request, and bytes read at a time


class Selection(Wrapper):
    """Base class of selections of rows; subclasses define the selected rows by `places`.

    Args:
        table: The underlying table.
    """

    samples_widths = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows of {self.table!r})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of these rows, estimated from the mean row."""
        return int(self.table.nbytes * len(self) / max(len(self.table), 1))

    def places(self, rows: IntArray) -> IntArray:
        """Return the row numbers in the underlying table."""
        raise NotImplementedError

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows."""
        return even_cuts(len(self), rows)

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut every so many rows as fit a run of pages."""
        return self.cuts(max(1, run_bytes * len(self) // max(self.nbytes, 1)))

    def memory_runs(self, most: int) -> None:
        """Return None: rows may be copied."""

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows, None if it varies among these rows."""
        return sampled_width(self, name)

    def _locate(self, place: Location | None) -> Location | None:
        return None

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._take_rows(np.arange(start, stop), names)


class MaskTable(Selection):
    """Serves the rows of a table that a mask selects, in stored order; the mask takes 1.13 bits a row.

    A block is read as the runs of rows that cover it, without the rows that are not selected.

    Args:
        table: The table.
        bits: The mask of its rows.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"label": [0, 1, 2, 3, 4]}))
        >>> MaskTable(table, RowMask.of([True, False, True, False, True])).read(1, 3).to_pydict()
        {'label': [2, 4]}
    """

    def __init__(self, table: Table, bits: RowMask) -> None:
        super().__init__(table)
        self.bits = bits

    def __reduce__(self) -> tuple[type["MaskTable"], tuple[Table, RowMask]]:
        return MaskTable, (self.table, self.bits)

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and the bits."""
        return digest(self.table.fingerprint, self.bits.digest)

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows, or at the units of an encoded table."""
        if rows < 1 or not len(self) or self.units(self.schema.names) is None:
            return even_cuts(len(self), rows)
        return np.unique(self.bits.before(self.table.cuts(max(1, rows * len(self.table) // len(self)))))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read the covering runs of the table and drop rows that are not selected."""
        width = max(1, self.table.nbytes // max(1, len(self.table)))
        rows = self.bits.within(start, stop)
        return take_runs(rows, MAX_GAP // width, lambda a, b: self.table.read(a, b, names), max(1, RUN // width))

    def places(self, rows: IntArray) -> IntArray:
        """Return the row numbers in the underlying table."""
        return self.bits.rows(rows)

    def _locate(self, place: Location | None) -> Location | None:
        return None if place is None or place.bits is not None else place._replace(bits=self.bits)


class TakeTable(Selection):
    """Serves rows of a table by number, in any order and with repeats; takes 8 bytes a row.

    Args:
        table: The table.
        rows: Numbers of its rows.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> TakeTable(MemoryTable(pa.table({"label": [0, 1, 2]})), np.array([2, 0, 2])).read(0, 3).to_pydict()
        {'label': [2, 0, 2]}
    """

    def __init__(self, table: Table, rows: IntArray) -> None:
        super().__init__(table)
        self.rows = check_rows(rows, len(table))

    def __reduce__(self) -> tuple[type["TakeTable"], tuple[Table, IntArray]]:
        return TakeTable, (self.table, self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and the row numbers."""
        return digest(self.table.fingerprint, self.rows.astype("<i8").tobytes().hex())

    def places(self, rows: IntArray) -> IntArray:
        """Return the row numbers in the underlying table."""
        return self.rows[rows]
