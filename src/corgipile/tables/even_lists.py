"""Detection, from a few rows, of list columns with rows of equal length, as pandas writes arrays."""

from typing import TYPE_CHECKING, Any

import numpy as np

from corgipile.tables.spans import flat

if TYPE_CHECKING:
    from corgipile.tables.table import Table

__all__ = ["even_length", "sampled_width"]

SAMPLE_ROWS, SAMPLE_BYTES = 64, 1 << 20


def sampled_width(table: "Table", name: str) -> int | None:
    """Return the length of a list column's rows if those at the beginning, the middle and the end agree.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> sampled_width(open(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]})), "x")
        2
    """
    if not len(table):
        return None
    first = table.read(0, 1, [name])
    size = min(SAMPLE_ROWS, len(table), int(SAMPLE_BYTES / max(1, first.nbytes)) + 1)
    width = even_length(first.column(0))
    starts = sorted({0, (len(table) - size) // 2, len(table) - size})
    for start, stop in [*((start, start + 1) for start in starts), *((start, start + size) for start in starts)]:
        if width is None or even_length(table.read(start, stop, [name]).column(0)) != width:
            return None  # single rows come first: others may be much longer than the first one
    return width


def even_length(column: Any) -> int | None:
    """Return the common length of all lists of a column; None if it is 0, differs, or there are nulls.

    Example:
        >>> import pyarrow as pa
        >>> even_length(pa.array([[1, 2], [3, 4]])), even_length(pa.array([[1], [2, 3]]))
        (2, None)
    """
    if column.null_count or column.flatten().null_count:
        return None
    lengths = np.unique(np.diff(flat(column.offsets)))
    return int(lengths[0]) or None if len(lengths) == 1 else None
