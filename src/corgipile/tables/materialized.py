"""Registry of columns that are already in a spill file, so that reads use it."""

import weakref
from collections.abc import Sequence
from typing import Any

from corgipile.tables.table import Table

__all__ = ["find_spilled", "record_spilled"]

_spilled: "weakref.WeakKeyDictionary[Any, tuple[frozenset[str], Table]]" = weakref.WeakKeyDictionary()


def record_spilled(table: Table, columns: Sequence[str], spilled: Table) -> None:
    """Record the spilled table of columns; each table keeps only the latest entry."""
    _spilled[table] = frozenset(columns), spilled


def find_spilled(table: Any, columns: Sequence[str]) -> Table | None:
    """Return the spilled table with these columns, None if they are not spilled.

    Example:
        >>> class Rows: ...
        >>> there, here = Rows(), Rows()
        >>> record_spilled(there, ["x", "label"], here)
        >>> find_spilled(there, ["label"]) is here, find_spilled(there, ["y"])
        (True, None)
    """
    entry = _spilled.get(table) if _spilled else None
    return entry[1] if entry is not None and entry[0].issuperset(columns) else None
