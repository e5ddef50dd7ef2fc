"""What rows are called where one cannot be learnt from, and what is missing in it."""

from typing import Self

from corgipile.features.hashed import HashedColumns
from corgipile.linear.nulls import NaNs
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

    __slots__ = ("missing",)
    missing: str

    def __new__(cls, table: Table, row: int) -> Self:
        """Name a row, and read it to find out what is missing."""
        name = super().__new__(cls, f"row {row} of {table!r}")
        read = table.table if isinstance(table, NaNs) else table
        name.missing = _told(*read.missing(row)) if isinstance(read, HashedColumns) else ""
        return name


def _told(column: str = "", kind: str = "") -> str:
    """Say what to do about a column that is null in a row."""
    if not column:
        return ""
    if kind == "number":
        return f"a null in column {column!r}; fill it, or say missing= what stands for it"
    what, empty = ("text column", "a text without words") if kind == "words" else ("column", "no category")
    instead = f"on_bad='skip', or with missing=0: a null is {empty} then"
    return f"a null in the {what} {column!r}; fill it, or train with {instead}"
