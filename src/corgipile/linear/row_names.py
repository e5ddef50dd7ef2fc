"""Names of rows in errors, with the missing value that makes a row unusable."""

from typing import Any, Self

import numpy as np
import pyarrow as pa

from corgipile.features.hashed import HashedColumns
from corgipile.features.table import EncodedColumns
from corgipile.linear.nulls import NullsAsNaN
from corgipile.tables.row_place import row_place
from corgipile.tables.table import Table
from corgipile.tables.wrapper import Wrapper

__all__ = ["RowName"]


class RowName(str):
    """A row's name in errors.

    Args:
        table: The table.
        row: The row's number.

    Attributes:
        missing: The hashed column that is null in the row, with a remedy; empty if there is none.

    Example:
        >>> from corgipile.tables import open
        >>> RowName(open({"x": [1, 2]}), 1)
        "row 1 of MemoryTable(2 rows of 'x':int64)"
    """

    __slots__ = ("_row", "_table", "missing")
    missing: str
    _table: Table
    _row: int

    def __new__(cls, table: Table, row: int, suffix: str = "") -> Self:
        """Name a row, and read it to find missing values; ``also`` follows the name."""
        place = row_place(table, row)
        place = f" ({place})" if place and not place.endswith(f" {row} of {table!r}") else ""
        name = super().__new__(cls, f"row {row} of {table!r}{place}{suffix}")
        read = table.table if isinstance(table, NullsAsNaN) else table
        name._table, name._row = read, row
        name.missing = _describe_null(*read.missing(row)) if isinstance(read, HashedColumns) else ""
        return name

    def further(self, text: str) -> Self:
        """Return the name followed by a text."""
        return type(self)(self._table, self._row, text)

    def column(self, feature: int) -> tuple[str, int | None] | None:
        """Return the column, and the place in it, of a number after hashed features; None for others."""
        return self._table.column_of(feature) if isinstance(self._table, HashedColumns) else None

    def stored(self, column: str, place: int | None) -> str:
        """Return whether a column holds null or NaN, as text; ``place`` is the place in a list."""
        value: Any = self._table.take(np.array([self._row]), [column]).column(0)[0]
        if place is not None and value.is_valid and pa.types.is_nested(value.type):
            value = value.values[place] if place < len(value.values) else value
        return "NaN" if value.is_valid else "null"

    def fills(self, column: str) -> bool:
        """Return whether a column already has a fill value."""
        table = self._table
        while isinstance(table, Wrapper):
            changed = table.changed if isinstance(table, EncodedColumns) else {}
            if getattr(changed.get(column), "fill", None) is not None:
                return True
            table = table.table
        return False


def _describe_null(column: str = "", kind: str = "") -> str:
    """Return the remedy for a column that is null in a row."""
    if not column:
        return ""
    if kind == "number":
        return f"a null in column {column!r}; fill it, or train with missing= to replace it"
    noun, meaning = ("text column", "a text without words") if kind == "words" else ("column", "no category")
    remedy = f"on_bad='skip', or with missing=0, which treats a null as {meaning}"
    return f"a null in the {noun} {column!r}; fill it, or train with {remedy}"
