"""Location of a row in its file, for messages."""

from typing import Any

import numpy as np

from corgipile.tables.concat import ConcatTable
from corgipile.tables.memory import MemoryTable
from corgipile.tables.selection import Selection
from corgipile.tables.text.table import TextTable

__all__ = ["row_place"]


def row_place(table: Any, row: int) -> str:
    """Return the file and the line or row number of a table's row; empty for rows in memory.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> row_place(open(pa.table({"x": [1, 2]})), 1)
        ''
    """
    inner = table
    while inner is not None:
        if isinstance(inner, ConcatTable):
            for part in inner.tables:
                if row < len(part):
                    break
                row -= len(part)
            inner = part
            continue
        below = getattr(inner, "table", None)
        if isinstance(inner, Selection):
            row = int(inner.places(np.array([row]))[0])
        elif below is None or len(below) != len(inner):
            break
        inner = below
    if isinstance(inner, TextTable):
        return f"{inner.path}, line {inner.line(row)}"
    return "" if isinstance(inner, MemoryTable) else f"row {row} of {inner!r}"
