"""Small tables cached in memory, so that several passes read the file once."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import CorgiPileError
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.remote import is_remote
from corgipile.tables.memory import MemoryTable
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import IntArray, Table

__all__ = ["ReadOnce", "read_once"]


class ReadOnce(MemoryTable):
    """Serves the rows of another table from memory, under the same identity.

    Args:
        table: The other table.

    Example:
        >>> import pyarrow as pa
        >>> rows = MemoryTable(pa.table({"label": [0, 1, 1]}))
        >>> ReadOnce(rows).read(1, 3).to_pydict(), ReadOnce(rows).fingerprint == rows.fingerprint
        ({'label': [1, 1]}, True)
    """

    def __init__(self, table: Table) -> None:
        rows = table.read_whole() if isinstance(table, ArrowFile) else None
        super().__init__(pa.Table.from_batches([table.read(0, len(table))]) if rows is None else rows)
        self.table = table

    def __reduce__(self) -> tuple[type[MemoryTable], tuple[Any]]:
        return ReadOnce, (self.table,)

    def __repr__(self) -> str:
        return repr(self.table)

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return self.table.nbytes

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the other table."""
        return self.table.fingerprint

    @property
    def tables(self) -> Sequence[Table]:
        """Return the other table."""
        return (self.table,)

    @property
    def taken_runs(self) -> int:
        """Return that of the other table."""
        return self.table.taken_runs

    def cuts(self, rows: int) -> IntArray:
        """Cut where the other table does."""
        return self.table.cuts(rows)

    def by_column(self, column: str) -> bool:
        """Return whether the other table reads a column alone, so that both tables get the same order."""
        return self.table.by_column(column)

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield the other table, with the same row numbers."""
        yield self.table, np.arange(len(rows)), rows


def read_once(table: Table, limit: int) -> Table:
    """Cache a table in memory if its rows have at most ``limit`` bytes; otherwise return it unchanged.

    Remote and encoded tables have their own caches. Read errors are left to later reads.

    Example:
        >>> rows = MemoryTable(pa.table({"label": [0, 1, 1]}))
        >>> read_once(rows, 1 << 20) is rows
        True
    """
    if isinstance(table, MemoryTable) or table.units(table.schema.names) is not None or is_remote(table):
        return table
    with suppress(CorgiPileError):
        if _size(table, limit) <= limit:
            return ReadOnce(table)
    return table


def _size(table: Table, limit: int) -> float:
    """Return the bytes of all rows in memory, or the stored bytes if they are the same or exceed the limit."""
    stored = table.nbytes
    return stored if stored > limit or isinstance(table, ArrowFile) else len(table) * row_bytes(table)
