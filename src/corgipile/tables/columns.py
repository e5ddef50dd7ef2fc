"""Whole scalar columns as arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.tables.concat import ConcatTable
from corgipile.tables.mixing import Mix
from corgipile.tables.scan import scan_column
from corgipile.tables.table import Table, check_columns

__all__ = ["by_column", "column"]


def column(table: Table, name: str) -> npt.NDArray[Any]:
    """Read all rows of a scalar column into an array, in parts.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile import tables
        >>> column(tables.open(pa.table({"label": [3, 1]})), "label").tolist()
        [3, 1]
    """
    if pa.types.is_nested(kind := table.schema.field(check_columns(table.schema, [name])[0]).type):
        raise BadSchema(f"column {name!r} must have one value a row, got {kind}")
    parts = [part.to_numpy(zero_copy_only=False) for _, part in scan_column(table, name)]
    return np.concatenate(parts) if parts else np.zeros(0)


def by_column(table: Table, column: str) -> bool:
    """Return whether a table can read one column without the others."""
    inner = getattr(table, "table", None)  # of a wrapper, or a part of a table
    if inner is not None and inner.schema.get_all_field_indices(column):
        return by_column(inner, column)
    if isinstance(table, ConcatTable | Mix):
        return all(by_column(part, column) for part in table.tables)
    return getattr(table, "columnar", False) or table.layout([column]) is not None
