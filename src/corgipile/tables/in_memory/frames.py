"""Tables of data frames: pandas column by column, Polars by its Arrow export."""

import logging
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.tables.in_memory.arrays import by_arrow, column_of
from corgipile.tables.values import as_type, viewless

__all__ = ["of_pandas", "of_polars", "plain"]

_LARGE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
log = logging.getLogger("corgipile")


def of_pandas(frame: Any) -> pa.Table:
    """Return the table of a pandas frame; contiguous NumPy numbers are not copied, and NaN stays NaN.

    The index is dropped; a named index, which may hold data, causes a warning.

    Example:
        >>> import pandas as pd
        >>> of_pandas(pd.DataFrame({"x": [1.5, float("nan")], 7: ["a", None]})).to_pydict()
        {'x': [1.5, nan], '7': ['a', None]}
    """
    named = [str(name) for name in frame.index.names if name is not None]
    if named:
        log.warning(
            "the index %s of the data frame is dropped; keep it as a column with reset_index()", ", ".join(named)
        )
    if not len(frame.columns):
        raise BadArgument("the data frame must have at least one column, got none")
    names = [str(name) for name in frame.columns]
    columns = [_column(name, frame.iloc[:, place]) for place, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def _column(name: str, series: Any) -> Any:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufmM":
        return column_of(name, series.to_numpy())
    if hasattr(series, "cat"):  # categoricals, which Arrow converts itself
        return by_arrow(name, series.array)
    return column_of(name, series.array if hasattr(series.array, "__arrow_array__") else series)


def of_polars(frame: Any) -> pa.Table:
    """Return the table of a Polars frame.

    Raises:
        BadSchema: A column has a type that Arrow lacks, or Python objects, which Polars exports as addresses.

    Example:
        >>> import polars as pl
        >>> of_polars(pl.DataFrame({"x": ["a", None]})).schema.types
        [DataType(large_string)]
    """
    for name, kind in frame.schema.items():
        if "Object" in str(kind):
            raise BadSchema(f"column {name!r} must be of an Arrow type, got {kind}; cast or drop it")
    try:
        return frame.to_arrow()  # unlike the C interface, without views
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
    for name in frame.columns:
        try:
            frame.get_column(name).to_arrow()
        except (pa.ArrowException, TypeError, ValueError):
            raise BadSchema(f"column {name!r} must be of an Arrow type, got {frame.schema[name]}: {reason}") from None
    raise BadSchema(f"Arrow cannot convert the data frame: {reason}")


def plain(rows: pa.Table) -> pa.Table:
    """Return a table with views replaced by text or bytes, also within dictionaries and lists, to allow row selection.

    Example:
        >>> plain(pa.table({"x": pa.array(["a"], pa.string_view())})).schema.field("x").type
        DataType(large_string)
    """
    fields, columns = list(rows.schema), rows.columns
    for place, field in enumerate(rows.schema):
        kind = _LARGE.get(field.type) or viewless(field.type)
        if kind != field.type:
            parts = [as_type(part, kind) for part in columns[place].chunks]
            fields[place], columns[place] = field.with_type(kind), pa.chunked_array(parts, kind)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata)) if columns else rows
