"""What tables have in common: what is asked of them is checked here, so that they read rows that are there."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.io.pieces import check_rows, empty
from corgipile.tables.materialized import brought
from corgipile.tables.methods import Views
from corgipile.tables.table import IntArray, Layout, check_columns, check_run, even_cuts

__all__ = ["Checked"]


class Checked(Views):
    """Checks rows and columns asked for; those who derive from it say their length and schema and take rows.

    Example:
        >>> class Squares(Checked):
        ...     schema = pa.schema({"square": pa.int64()})
        ...     def __len__(self):
        ...         return 5
        ...     def _take_rows(self, rows, names):
        ...         return pa.RecordBatch.from_arrays([pa.array(rows**2) for _ in names], names)
        >>> Squares().read(1, 4).to_pydict(), Squares().take([]).num_rows
        ({'square': [1, 4, 9]}, 0)
        >>> Squares().take([5])
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: row 5 asked for; the table has rows 0 to 5
    """

    schema: pa.Schema

    def __len__(self) -> int:
        raise NotImplementedError

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows."""
        return even_cuts(len(self), rows)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        check_run(start, stop, len(self))
        names = check_columns(self.schema, columns)
        if start == stop:
            return empty(self.schema, names)
        there = brought(self, names)
        batch = self._read_run(start, stop, names) if there is None else there.read(start, stop, names)
        return self._counted(batch, stop - start)

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the order asked for."""
        rows = check_rows(rows, len(self))
        names = check_columns(self.schema, columns)
        if not len(rows):
            return empty(self.schema, names)
        there = brought(self, names)
        batch = self._take_rows(rows, names) if there is None else there.take(rows, names)
        return self._counted(batch, len(rows))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return None: rows have no place of fixed width in files."""
        check_columns(self.schema, columns)
        return None

    def _counted(self, batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        if batch.num_columns and batch.num_rows != rows:
            raise CorruptFile(f"{self!r}: {rows} rows are asked for; {batch.num_rows} were read")
        return batch

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a run of rows, at least one."""
        return self._take_rows(np.arange(start, stop), names)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read scattered rows, at least one."""
        raise NotImplementedError
