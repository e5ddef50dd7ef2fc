"""View methods of tables; `corgipile.tables` has the same as functions for other packages' tables."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from corgipile.tables.table import Table

__all__ = ["Views", "as_method"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Views:
    """Adds methods that return views of a table; nothing is copied.

    Example:
        >>> import corgipile as cp, pyarrow as pa, pyarrow.compute as pc
        >>> table = cp.open(pa.table({"x": [1, 2, 3], "label": [0, 1, 1]}))
        >>> table.filter(pc.field("label") == 1).slice(1).select(["x"]).read(0, 1).to_pydict()
        {'x': [3]}
    """

    if TYPE_CHECKING:  # `as_method` adds them at run time

        def select(self, names: Sequence[str]) -> "Table":
            """Return the table with some of its columns."""

        def slice(self, start: int = 0, stop: int | None = None) -> "Table":
            """Return the rows from ``start`` to ``stop``."""

        def filter(self, expression: Any) -> "Table":
            """Return the rows for which an expression is true."""


def as_method(view: Function) -> Function:
    """Add a function of a table to `Views` as a method of the same name."""
    setattr(Views, view.__name__, view)
    return view
