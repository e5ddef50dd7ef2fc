"""Location of a row in its file, for messages."""

import numpy as np

from corgipile.tables.formats.text.table import TextTable
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import Table

__all__ = ["origin", "row_place"]


def origin(table: Table, row: int) -> tuple[Table, int]:
    """Return the stored table of a row, beneath all wrappers, and the row's number in it.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> origin(open(pa.table({"x": [1, 2, 3]})).slice(1), 1)
        (MemoryTable(3 rows of 'x':int64), 2)
    """
    while (part := next(table.parts_of(np.array([row])), None)) is not None:
        table, row = part[0], int(part[2][0])
    return table, row


def row_place(table: Table, row: int) -> str:
    """Return the file and the line or row number of a table's row; empty for rows in memory.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> row_place(open(pa.table({"x": [1, 2]})), 1)
        ''
    """
    inner, row = origin(table, row)
    if isinstance(inner, TextTable):
        return f"{inner.path}, line {inner.line(row)}"
    return "" if isinstance(inner, MemoryTable) else f"row {row} of {inner!r}"
