"""Errors for nulls in columns that must hold numbers."""

import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadValue
from corgipile.tables.row_place import row_place
from corgipile.tables.scan import scan
from corgipile.tables.table import Table

__all__ = ["NullRow", "null_at"]


class NullRow(BadValue):
    """A null in some row of a column, not always the first."""

    column = ""

    @classmethod
    def of(cls, cells: pa.Array, at: int, column: str, row: int) -> "NullRow":
        """Make the error for a row; ``at`` is its index in ``cells``."""
        error = cls(f"row {row} of column {column!r} {_what(cells[at])}")
        error.column = column
        return error

    def first(self, table: Table, *, features: bool) -> BadValue:
        """Return an error that names the column's first null, its file and a remedy.

        ``features``: whether batches have encoded features instead of stored columns.
        """
        for start, batch in scan(table, [self.column]):
            if (at := null_at(batch.column(0))) is not None:
                return self._at(table, start + at, batch.column(0)[at], features=features)
        return self

    def _at(self, table: Table, row: int, cell: pa.Scalar, *, features: bool) -> BadValue:
        where = f" ({place})" if (place := row_place(table, row)) else ""
        remedy = "missing= fills such rows" if features else "features= with missing= fills such rows"
        drop = "" if cell.is_valid else f", table.filter(pyarrow.compute.field({self.column!r}).is_valid()) drops them"
        return BadValue(f"row {row} of column {self.column!r} {_what(cell)}{where}; {remedy}{drop}")


def _what(cell: pa.Scalar) -> str:
    return "holds a null" if cell.is_valid else "is null"


def null_at(column: pa.Array) -> int | None:
    """Return the index of the first null or list with a null; None without nulls.

    Example:
        >>> null_at(pa.array([[1], [2, None]])), null_at(pa.array([1, None])), null_at(pa.array([1]))
        (1, 1, None)
    """
    if column.null_count:
        return int(pc.index(pc.is_null(column), True).as_py())
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        inner = null_at(column.flatten())
        return None if inner is None else int(pc.list_parent_indices(column)[inner].as_py())
    return None
