"""Whole scalar columns as arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.tables.scan import scan_column
from corgipile.tables.table import Table, check_columns

__all__ = ["column"]


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
