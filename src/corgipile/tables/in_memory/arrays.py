"""NumPy arrays as Arrow columns, without a copy where their layout is Arrow's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema

__all__ = [
    "as_array",
    "by_arrow",
    "column_of",
    "is_rows",
    "of_columns",
    "of_matrix",
    "of_pair",
    "of_rows",
    "of_structure",
]

FEATURES, LABEL = "features", "label"
MISSING_TYPES = ("NAType", "NaTType")  # pandas types, by name since pandas is optional


def of_matrix(array: npt.NDArray[Any]) -> pa.Table:
    """Return the table of an array with rows on its first axis, as the column ``features``.

    Raises:
        BadSchema: The array has fewer than two axes.

    Example:
        >>> of_matrix(np.eye(2)).to_pydict()
        {'features': [[1.0, 0.0], [0.0, 1.0]]}
    """
    if array.dtype.names is not None:
        return of_structure(array)
    if array.ndim < 2:
        raise BadSchema(
            f"an array of features must have two axes or more, got shape {array.shape}; name columns in a dictionary, "
            '{"x": array}, or pass features and labels as (X, y)'
        )
    return pa.table({FEATURES: column_of(FEATURES, array)})


def of_structure(array: npt.NDArray[Any]) -> pa.Table:
    """Return the table of a structured array, a column per field.

    Example:
        >>> of_structure(np.array([(1, 2.5)], [("x", "i4"), ("y", "f4")])).to_pydict()
        {'x': [1], 'y': [2.5]}
    """
    if array.ndim != 1:
        raise BadSchema(f"a structured array must have one axis, got shape {array.shape}")
    return of_columns({name: array[name] for name in array.dtype.names or ()})


def of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Return the table of named columns: arrays of NumPy or Arrow, array-likes, or lists, which Arrow types.

    Raises:
        BadArgument: Lengths differ, or a name is not text.
        BadSchema: A column has no Arrow type.

    Example:
        >>> of_columns({"x": np.zeros((2, 1)), "label": [0, 1]}).schema.names
        ['x', 'label']
    """
    for name in columns:
        if not isinstance(name, str):
            raise BadArgument(f"names of columns must be text, got {name!r}")
    if not columns:
        raise BadArgument("a dictionary of columns must have at least one, got none")
    made = {name: column_of(name, values) for name, values in columns.items()}
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        summary = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise BadArgument(f"columns must have equal lengths: {summary}")
    return pa.table(made)


def is_rows(source: Any) -> bool:
    """Return whether dictionaries are rows: some value has no length, so it is not a column.

    Example:
        >>> is_rows([{"x": 1.5}, {"x": 2.5}]), is_rows([{"x": [1.5]}, {"x": [2.5]}]), is_rows([])
        (True, False, False)
    """
    rows = isinstance(source, Sequence) and bool(source) and all(isinstance(row, Mapping) for row in source)
    return rows and any(map(_is_cell, (value for row in source for value in row.values())))


def _is_cell(value: Any) -> bool:
    scalar = isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__")
    return scalar or getattr(value, "ndim", 1) == 0


def of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """Make a table from dictionaries, one per row; missing keys are null.

    Example:
        >>> of_rows([{"x": 1.5}, {"x": 2.5, "y": "a"}]).to_pydict()
        {'x': [1.5, 2.5], 'y': [None, 'a']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return of_columns({name: [row.get(name) for row in rows] for name in names})


def of_pair(rows: pa.Table, labels: Any) -> pa.Table:
    """Return rows with a column of labels.

    Raises:
        BadArgument: Their numbers differ, or the rows have that column.

    Example:
        >>> of_pair(of_matrix(np.eye(2)), [0, 1]).schema.names
        ['features', 'label']
    """
    column = column_of(LABEL, labels)
    if LABEL in rows.schema.names:
        raise BadArgument(f"labels must not be passed for rows with a column {LABEL!r}; drop one of them")
    if len(column) != rows.num_rows:
        raise BadArgument(f"there must be one label per row, got {len(column)} for {rows.num_rows} rows")
    return rows.append_column(LABEL, column)


def column_of(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Return the column of values with rows on the first axis.

    Example:
        >>> column_of("x", np.zeros((3, 2, 2), np.int8)).type
        FixedSizeListType(fixed_size_list<item: fixed_size_list<item: int8>[2]>[2])
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise BadArgument(f"column {name!r} must be an array or a list, got {type(values).__name__}")
    if hasattr(values, "__arrow_array__") or hasattr(values, "__arrow_c_array__") or not hasattr(values, "__array__"):
        return by_arrow(name, values)
    array = as_array(name, values)
    if array.ndim == 0:
        raise BadArgument(f"column {name!r} must be an array or a list, got {values!r}")
    if 0 in array.shape[1:]:
        raise BadSchema(f"column {name!r}: rows must not be empty, got shape {array.shape[1:]}")
    mask = np.ma.getmaskarray(array) if np.ma.is_masked(array) else None
    made = _flat_array(name, np.ma.getdata(array), mask)
    for size in reversed(array.shape[1:]):
        made = pa.FixedSizeListArray.from_arrays(made, size)
    return made


def as_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array, or an array-like converted by NumPy.

    Example:
        >>> as_array("x", np.eye(2)).shape
        (2, 2)
    """
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadArgument(f"column {name!r}: NumPy cannot convert this {type(values).__name__}: {error}") from None


def _flat_array(name: str, array: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return all values of an array as an Arrow array; masked values are null."""
    kind = array.dtype
    if kind.names is not None:
        return _structures(name, array.reshape(-1), mask)
    if kind.kind in "biuf" and kind.itemsize <= 8:
        plain = np.ascontiguousarray(array, kind.newbyteorder("=")).reshape(-1)
        if mask is None:
            return _numbers(plain)
        return pa.array(plain, mask=mask.reshape(-1))
    if kind.kind in "mM":
        return _times(name, array.reshape(-1), mask)
    if kind.kind not in "OUST":
        raise BadSchema(f"column {name!r} must be numbers up to 64 bits, booleans, text, bytes or dates, got {kind}")
    values = array.reshape(-1).tolist()
    if kind.kind == "O" and array.ndim == 1:
        values = _nan_to_none(values)
    if mask is not None:
        values = [None if missing else value for value, missing in zip(values, mask.reshape(-1).tolist(), strict=True)]
    return by_arrow(name, values)


def _nan_to_none(values: list[Any]) -> list[Any]:
    """Return Python objects with None in place of NaN, which pandas stores for missing text.

    The list is unchanged if no object is NaN, or all are, since those are floats. NaN within lists stays.
    """
    missing = [_is_missing(value) for value in values]
    if not any(missing) or all(gone or value is None for value, gone in zip(values, missing, strict=True)):
        return values
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]


def _is_missing(value: Any) -> bool:
    return (isinstance(value, float | np.floating) and bool(np.isnan(value))) or type(value).__name__ in MISSING_TYPES


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers without a copy; booleans are packed to bits."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)], 0)


def _times(name: str, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return dates and durations; units that Arrow lacks are converted."""
    unit, count = np.datetime_data(values.dtype)
    letter = values.dtype.kind
    if count != 1 or unit not in ("s", "ms", "us", "ns", *(("D",) if letter == "M" else ())):
        finer = {"Y": "D", "M": "D", "W": "D", "D": "s"}.get(unit, "s")
        if unit == "generic" or (letter == "m" and unit in ("Y", "M")):
            raise BadSchema(f"column {name!r} must have a fixed unit of time such as [s], got {values.dtype}")
        if unit in ("ps", "fs", "as"):
            finer = "ns"
        values = values.astype(f"{letter}8[{'s' if letter == 'm' and finer == 'D' else finer}]")
    return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False), mask=mask)


def _structures(name: str, values: npt.NDArray[Any], mask: Any) -> pa.Array:
    if mask is not None and mask.any():
        raise BadSchema(
            f"column {name!r} must not be a structured array with masked values; pass each field as a column"
        )
    fields = values.dtype.names or ()
    parts: Sequence[Any] = [column_of(f"{name}.{field}", values[field]) for field in fields]
    return pa.StructArray.from_arrays(parts, names=list(fields))


def by_arrow(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Return the column that Arrow infers from values; if NaN mixed with text fails, NaN is null.

    Raises:
        BadSchema: The values have no common Arrow type, or are all null.

    Example:
        >>> by_arrow("x", [[1], None]).type
        ListType(list<item: int64>)
    """
    try:
        made = pa.array(values, from_pandas=True) if hasattr(values, "dtype") else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(values, list) and (nulled := _nan_to_none(values)) is not values:
            return by_arrow(name, nulled)
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadSchema(f"the values of column {name!r} must have one Arrow type: {reason[:300]}") from None
    if pa.types.is_null(made.type) and len(made):
        raise BadSchema(f"column {name!r} must have a value that is not null, to infer its type; drop it")
    return made
