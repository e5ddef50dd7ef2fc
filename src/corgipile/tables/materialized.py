"""Columns of tables in stores that lie in a spill file by now: whatever is read of them is read there, not again."""

import weakref
from collections.abc import Sequence
from typing import Any

from corgipile.tables.table import Table

__all__ = ["brought", "note"]

_brought: "weakref.WeakKeyDictionary[Any, tuple[frozenset[str], Table]]" = weakref.WeakKeyDictionary()


def note(table: Table, columns: Sequence[str], there: Table) -> None:
    """Note where columns of a table lie by now; of a table the last are known."""
    _brought[table] = frozenset(columns), there


def brought(table: Any, columns: Sequence[str]) -> Table | None:
    """Return the same rows where these columns lie by now; None where they do not.

    Example:
        >>> class Rows: ...
        >>> there, here = Rows(), Rows()
        >>> note(there, ["x", "label"], here)
        >>> brought(there, ["label"]) is here, brought(there, ["y"])
        (True, None)
    """
    found = _brought.get(table) if _brought else None
    return found[1] if found is not None and found[0].issuperset(columns) else None
