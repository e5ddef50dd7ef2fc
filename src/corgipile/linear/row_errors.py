"""Names of rows in errors, and error messages for features that are not finite numbers."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadValue
from corgipile.features.hashed import HashedColumns
from corgipile.features.table import EncodedColumns
from corgipile.linear.features import Features
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.sparse import NULL_VALUE, Flaw
from corgipile.tables.row_place import row_place
from corgipile.tables.table import Table
from corgipile.tables.wrapper import Wrapper

__all__ = ["FILLED", "TRAINED", "Locate", "RowName", "bad_value", "picked"]

Locate = Callable[[int], str]  # names a row by its place in a visit
TRAINED = "fill it, or train with missing= to replace null and NaN"
FILLED = "fill it, train with missing=, or replace it by a number: model.filled(0), or --missing 0 in a command"
FILLED_HINT = "; for this model use model.filled(0), or --missing 0 in a command"


class RowName(str):
    """A row's name in errors.

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


def picked(locate: Locate, places: Any) -> Locate:
    """Return a function that names the rows at some places: a slice, or an array of numbers.

    Example:
        >>> picked(str, slice(3, 9))(1), picked(str, np.array([4, 8]))(1)
        ('4', '8')
    """
    if isinstance(places, slice):
        return lambda place: locate((places.start or 0) + place)
    return lambda place: locate(int(places[place]))


def _describe_null(column: str = "", kind: str = "") -> str:
    """Return the remedy for a column that is null in a row."""
    if not column:
        return ""
    if kind == "number":
        return f"a null in column {column!r}; fill it, or train with missing= to replace it"
    noun, meaning = ("text column", "a text without words") if kind == "words" else ("column", "no category")
    remedy = f"on_bad='skip', or with missing=0, which treats a null as {meaning}"
    return f"a null in the {noun} {column!r}; fill it, or train with {remedy}"


def bad_value(
    inputs: Features, where: str, values: npt.NDArray[Any], indices: npt.NDArray[Any] | None = None, hint: str = TRAINED
) -> Flaw:
    """Return the error class and message for a row, by its first feature that is not finite.

    ``where`` names the row; a `RowName` also looks up the stored value. ``indices`` number the features of a sparse
    row.

    Example:
        >>> inputs = Features(("a", "b"), sparse=False, width=2, dtype=np.dtype("f4"), lists=False, widths=(1, 1))
        >>> bad_value(inputs, "row 7", np.array([1.0, np.inf]))[1]
        "has inf in column 'b'; a finite number is needed"
    """
    if isinstance(where, RowName) and where.missing:
        return BadValue, f"has {where.missing}{FILLED_HINT * (hint is FILLED)}"
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:  # standardisation made a finite value overflow
        return NULL_VALUE
    number, feature = float(values[bad[0]]), int(bad[0] if indices is None else indices[bad[0]])
    column, place = _place(inputs, where, feature)
    at = f"column {column!r}" if place is None else f"feature {place}{f' of column {column!r}' * bool(column)}"
    if np.isinf(number):
        return BadValue, f"has {number:g} in {at}; a finite number is needed"
    stored_value = "null or NaN"
    if isinstance(where, RowName):
        stored_value = stored_value if column == inputs.columns[-1] and inputs.sparse else where.stored(column, place)
        hint = "fill it" if where.fills(column) else hint
    else:
        hint = TRAINED
    return BadValue, f"has {stored_value} in {at}; a finite number is needed: {hint}"


def _place(inputs: Features, where: str, feature: int) -> tuple[str, int | None]:
    """Return the column of a feature, and its place in the row where a column or array has several."""
    located = where.column(feature) if isinstance(where, RowName) else None
    if located is not None:
        return located
    if inputs.lists and not isinstance(where, RowName):  # an array has no columns
        return "", feature
    if inputs.lists:
        return inputs.columns[-1], feature
    for column, width in zip(inputs.columns, inputs.widths, strict=True):
        if feature < width:
            return column, None if width == 1 else feature
        feature -= width
    return inputs.columns[-1], feature
