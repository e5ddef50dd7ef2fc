"""Base class of tables that validates requested rows and columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corgipile.errors import BudgetTooSmall, CorruptFile
from corgipile.resident import available_memory
from corgipile.sizes import format_bytes
from corgipile.tables.io.files import File, describe, digest
from corgipile.tables.io.pieces import check_rows, empty, pick
from corgipile.tables.materialized import find_spilled
from corgipile.tables.row_bytes import fixed_row_bytes, row_bytes
from corgipile.tables.table import IntArray, Table, check_columns, check_run

__all__ = ["Checked", "FileTable"]

MIN_ROWS, MANY_ROWS, MUCH_BYTES = 1 << 10, 1 << 16, 1 << 26  # rows read at once, and bytes, that are compared
UNCERTAIN = 2  # how much a sample may exceed the mean bytes of a row


class Checked(Table):
    """Validates requested rows and columns; subclasses define `__len__`, `schema` and `_take_rows`.

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

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        check_run(start, stop, len(self))
        names = check_columns(self.schema, columns)
        if start == stop:
            return empty(self.schema, names)
        if stop - start > MIN_ROWS:
            self._check_memory(stop - start, names)
        spilled = find_spilled(self, names)
        batch = self._read_run(start, stop, names) if spilled is None else spilled.read(start, stop, names)
        return self._check_count(batch, stop - start)

    def _check_memory(self, rows: int, names: list[str]) -> None:
        """Raise BudgetTooSmall if rows take more memory than is free, by a sample if they differ in length."""
        if rows <= MANY_ROWS and self.nbytes * rows // len(self) <= MUCH_BYTES:
            return
        exact = fixed_row_bytes(pick(self.schema, names))
        taken = rows * exact if exact else int(rows * row_bytes(self, names) / UNCERTAIN)
        if taken > MUCH_BYTES and taken > (free := available_memory()):
            raise BudgetTooSmall(
                f"{rows} rows of {self!r} must fit in memory, but take {format_bytes(taken)} and {format_bytes(free)} "
                "are free; read fewer rows or columns, or iterate over a Loader"
            )

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the requested order."""
        rows = check_rows(rows, len(self))
        names = check_columns(self.schema, columns)
        if not len(rows):
            return empty(self.schema, names)
        spilled = find_spilled(self, names)
        batch = self._take_rows(rows, names) if spilled is None else spilled.take(rows, names)
        return self._check_count(batch, len(rows))

    def _check_count(self, batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        if batch.num_columns and batch.num_rows != rows:
            raise CorruptFile(f"{self!r}: {rows} rows were requested, but {batch.num_rows} were read")
        return batch

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a non-empty run of rows."""
        return self._take_rows(np.arange(start, stop), names)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read scattered rows; there is at least one."""
        raise NotImplementedError


class FileTable(Checked):
    """Implements the identity of a table that is stored in one file, ``_file``."""

    _file: File

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return self._file.path

    @property
    def nbytes(self) -> int:
        """Return the bytes of the file."""
        return self._file.size

    @property
    def fingerprint(self) -> str:
        """Return a digest of content, schema and rows."""
        return digest(self._file.identity, describe(self.schema), str(len(self)))
