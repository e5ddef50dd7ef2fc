"""What rows are called where one cannot be learnt from, and what is missing in it."""

from typing import Any, Self

import numpy as np
import pyarrow as pa

from corgipile.features.hashed import HashedColumns
from corgipile.features.table import EncodedColumns
from corgipile.linear.nulls import NullsAsNaN
from corgipile.tables.row_place import row_place
from corgipile.tables.table import Table

__all__ = ["RowName"]


class RowName(str):
    """A row of a table, as errors call it.

    Args:
        table: The table.
        row: The row's number.

    Attributes:
        missing: Which of the columns that are hashed is null in it, and what to do; nothing where none is.

    Example:
        >>> from corgipile.tables import open
        >>> RowName(open({"x": [1, 2]}), 1)
        "row 1 of MemoryTable(2 rows of 'x':int64)"
    """

    __slots__ = ("_row", "_table", "missing")
    missing: str
    _table: Table
    _row: int

    def __new__(cls, table: Table, row: int, also: str = "") -> Self:
        """Name a row, and read it to find out what is missing; ``also`` is said behind its name."""
        place = row_place(table, row)
        place = f" ({place})" if place and not place.endswith(f" {row} of {table!r}") else ""
        name = super().__new__(cls, f"row {row} of {table!r}{place}{also}")
        read = table.table if isinstance(table, NullsAsNaN) else table
        name._table, name._row = read, row
        name.missing = _told(*read.missing(row)) if isinstance(read, HashedColumns) else ""
        return name

    def further(self, text: str) -> Self:
        """Return the same with something behind it."""
        return type(self)(self._table, self._row, text)

    def column(self, feature: int) -> tuple[str, int | None] | None:
        """Return the column, and the place in it, of a number that stands behind hashed features; None elsewhere."""
        return self._table.column_of(feature) if isinstance(self._table, HashedColumns) else None

    def stored(self, column: str, place: int | None) -> str:
        """Say which of the two stands in a column, null or NaN; ``place`` is that in a list."""
        value: Any = self._table.take(np.array([self._row]), [column]).column(0)[0]
        if place is not None and value.is_valid and pa.types.is_nested(value.type):
            value = value.values[place] if place < len(value.values) else value
        return "NaN" if value.is_valid else "null"

    def fills(self, column: str) -> bool:
        """Say whether a number stands for what is missing in a column already."""
        table: Any = self._table
        while table is not None:
            changed = table.changed if isinstance(table, EncodedColumns) else {}
            if getattr(changed.get(column), "fill", None) is not None:
                return True
            table = getattr(table, "table", None)
        return False


def _told(column: str = "", kind: str = "") -> str:
    """Say what to do about a column that is null in a row."""
    if not column:
        return ""
    if kind == "number":
        return f"a null in column {column!r}; fill it, or train with missing= what stands for it"
    what, empty = ("text column", "a text without words") if kind == "words" else ("column", "no category")
    instead = f"on_bad='skip', or with missing=0: a null is {empty} then"
    return f"a null in the {what} {column!r}; fill it, or train with {instead}"
