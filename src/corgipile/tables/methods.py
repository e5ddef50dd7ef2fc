"""Views as methods of tables; tables of other packages have them as functions of `corgipile.tables`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from corgipile.tables.table import Table

__all__ = ["Views"]


class Views:
    """Adds to a table what makes other tables of it; nothing is copied.

    Example:
        >>> import corgipile as cp, pyarrow as pa, pyarrow.compute as pc
        >>> table = cp.open(pa.table({"x": [1, 2, 3], "label": [0, 1, 1]}))
        >>> table.filter(pc.field("label") == 1).slice(1).select(["x"]).read(0, 1).to_pydict()
        {'x': [3]}
    """

    def select(self, names: Sequence[str]) -> "Table":
        """Return the table with some of its columns, in this order; see `corgipile.tables.select`."""
        from corgipile.tables import views  # noqa: PLC0415 - which is made of tables

        return views.select(cast("Table", self), names)

    def slice(self, start: int = 0, stop: int | None = None) -> "Table":
        """Return the rows from one number to another; see `corgipile.tables.slice`."""
        from corgipile.tables import views  # noqa: PLC0415 - as above

        return views.slice(cast("Table", self), start, stop)

    def filter(self, expression: Any) -> "Table":
        """Return the rows for which an expression is true; see `corgipile.tables.filter`."""
        from corgipile.tables import views  # noqa: PLC0415 - as above

        return views.filter(cast("Table", self), expression)
