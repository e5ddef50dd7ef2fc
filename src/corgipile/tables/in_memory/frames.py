"""Data frames: pandas column by column, others as they give themselves to Arrow."""

import logging
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.in_memory.arrays import column_of

__all__ = ["of_pandas", "plain"]

log = logging.getLogger("corgipile")


def of_pandas(frame: Any) -> pa.Table:
    """Make a table of a pandas frame; columns of NumPy numbers stay where they lie if they lie together, NaN stays NaN.

    The index is no column. Where it has a name that is said, since it may hold something.

    Example:
        >>> import pandas as pd
        >>> of_pandas(pd.DataFrame({"x": [1.5, float("nan")], 7: ["a", None]})).to_pydict()
        {'x': [1.5, nan], '7': ['a', None]}
    """
    named = [str(name) for name in frame.index.names if name is not None]
    if named:
        log.warning("the index %s of the data frame is left out; reset_index() makes a column of it", ", ".join(named))
    if not len(frame.columns):
        raise BadArgument("the data frame has no columns, so its rows hold nothing")
    names = [str(name) for name in frame.columns]
    columns = [_column(name, frame.iloc[:, place]) for place, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def _column(name: str, series: Any) -> Any:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufmM":
        return column_of(name, series.to_numpy())
    return column_of(name, series.array if hasattr(series.array, "__arrow_array__") else series)


def plain(rows: pa.Table) -> pa.Table:
    """Make text of views, which Polars has: rows cannot be picked of these.

    Example:
        >>> plain(pa.table({"x": pa.array(["a"], pa.string_view())})).schema.field("x").type
        DataType(large_string)
    """
    types = pa.types
    for place, field in enumerate(rows.schema):
        text, binary = types.is_string_view(field.type), types.is_binary_view(field.type)
        if text or binary:
            kind = pa.large_string() if text else pa.large_binary()
            rows = rows.set_column(place, field.with_type(kind), rows.column(place).cast(kind))
    return rows
