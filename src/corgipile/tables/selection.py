"""Some rows of a table as a table of its own: by bits, or by their numbers in any order."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from corgipile.tables.checked import Checked
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import check_rows, take_runs
from corgipile.tables.location import Location, location, varlen_location
from corgipile.tables.row_mask import RowMask
from corgipile.tables.table import (
    IntArray,
    Single,
    Table,
    even_cuts,
    row_sizes,
    shared_bytes,
)
from corgipile.tables.wrapper import Wrapper

__all__ = ["MaskTable", "Selection", "TakeTable"]

BRIDGE, RUN = 8 << 10, 1 << 20  # bytes read in vain rather than asking twice, and read at a time


class Selection(Checked, Wrapper):
    """What tables of some rows of another share; those who derive from it say which, by `places`.

    Args:
        table: The other.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows of {self.table!r})"

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the table."""
        return self.table.schema

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of these rows, were all of one size."""
        return int(self.table.nbytes * len(self) / max(len(self.table), 1))

    def places(self, rows: IntArray) -> IntArray:
        """Return the numbers that rows have in the table."""
        raise NotImplementedError

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut into as many rows as a run of pages has bytes for."""
        return self.cuts(max(1, run_bytes * len(self) // max(self.nbytes, 1)))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self.table.take(self.places(rows), names)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, if the table tells."""
        return row_sizes(self.table, self.places(rows), columns)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into an object of its own."""
        return cast("Single", self.table).take_bytes(self.places(rows), column)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the table holds for columns, whatever the rows."""
        return shared_bytes(self.table, columns)


class MaskTable(Selection):
    """Serves the rows of a table that bits pick, in their stored order: a random part takes 1.13 bits a row.

    A block is read as the run of rows that covers it, and what is not picked is left out.

    Args:
        table: The table.
        bits: One for each of its rows.

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
        """Return the identity: that of the table, and the bits."""
        return digest(self.table.fingerprint, self.bits.digest)

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows, or where the table's units end if it is encoded."""
        if rows < 1 or not len(self) or self.units(self.schema.names) is None:
            return even_cuts(len(self), rows)
        return np.unique(self.bits.before(self.table.cuts(max(1, rows * len(self.table) // len(self)))))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read one run of rows: runs of the table that cover it, of which only these are kept."""
        width = max(1, self.table.nbytes // max(1, len(self.table)))
        rows = self.bits.within(start, stop)
        return take_runs(rows, BRIDGE // width, lambda a, b: self.table.read(a, b, names), max(1, RUN // width))

    def places(self, rows: IntArray) -> IntArray:
        """Return the numbers that rows have in the table."""
        return self.bits.rows(rows)

    def location(self, columns: Sequence[str]) -> Location | None:
        """Say where the kernel finds the table's rows, and which of them are these."""
        return self._of(location(self.table, columns))

    def varlen_location(self, columns: Sequence[str]) -> Location | None:
        """Say the same of columns of which some are of varying length."""
        return self._of(varlen_location(self.table, columns))

    def _of(self, found: Location | None) -> Location | None:
        return None if found is None or found.bits is not None else found._replace(bits=self.bits)


class TakeTable(Selection):
    """Serves rows of a table by their numbers, in any order, also more than once: 8 bytes a row.

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
        """Return the identity: that of the table, and the numbers."""
        return digest(self.table.fingerprint, self.rows.astype("<i8").tobytes().hex())

    def places(self, rows: IntArray) -> IntArray:
        """Return the numbers that rows have in the table."""
        return self.rows[rows]
