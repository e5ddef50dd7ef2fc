"""NumPy arrays as columns of Arrow: in place where they lie as Arrow has them, else copied once."""

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
MISSING = ("NAType", "NaTType")  # of pandas, which need not be there


def of_matrix(array: npt.NDArray[Any]) -> pa.Table:
    """Make a table of an array with a row an entry of its first axis: the column ``features``.

    Raises:
        BadSchema: It has one axis, or none.

    Example:
        >>> of_matrix(np.eye(2)).to_pydict()
        {'features': [[1.0, 0.0], [0.0, 1.0]]}
    """
    if array.dtype.names is not None:
        return of_structure(array)
    if array.ndim < 2:
        raise BadSchema(
            f"an array of shape {array.shape} has no rows of features; a dictionary names columns: "
            '{"x": array}, and (X, y) is features and labels'
        )
    return pa.table({FEATURES: column_of(FEATURES, array)})


def of_structure(array: npt.NDArray[Any]) -> pa.Table:
    """Make a table of a structured array: a column a field.

    Example:
        >>> of_structure(np.array([(1, 2.5)], [("x", "i4"), ("y", "f4")])).to_pydict()
        {'x': [1], 'y': [2.5]}
    """
    if array.ndim != 1:
        raise BadSchema(f"a structured array must have one axis, got shape {array.shape}")
    return of_columns({name: array[name] for name in array.dtype.names or ()})


def of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Make a table of arrays by name: of NumPy, Arrow, or whatever NumPy makes an array of; lists are typed by Arrow.

    Raises:
        BadArgument: Their lengths differ, or a name is no text.
        BadSchema: A column is of no type that Arrow has.

    Example:
        >>> of_columns({"x": np.zeros((2, 1)), "label": [0, 1]}).schema.names
        ['x', 'label']
    """
    for name in columns:
        if not isinstance(name, str):
            raise BadArgument(f"names of columns must be text, got {name!r}")
    if not columns:
        raise BadArgument("an empty dictionary was given to open; at least one column is needed")
    made = {name: column_of(name, values) for name, values in columns.items()}
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise BadArgument(f"columns must have as many rows as each other: {said}")
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
    one = isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__")
    return one or getattr(value, "ndim", 1) == 0


def of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """Make a table from dictionaries, one per row; missing keys are null.

    Example:
        >>> of_rows([{"x": 1.5}, {"x": 2.5, "y": "a"}]).to_pydict()
        {'x': [1.5, 2.5], 'y': [None, 'a']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return of_columns({name: [row.get(name) for row in rows] for name in names})


def of_pair(rows: pa.Table, labels: Any) -> pa.Table:
    """Add labels to rows.

    Raises:
        BadArgument: There are not as many, or the rows have such a column.

    Example:
        >>> of_pair(of_matrix(np.eye(2)), [0, 1]).schema.names
        ['features', 'label']
    """
    column = column_of(LABEL, labels)
    if LABEL in rows.schema.names:
        raise BadArgument(f"the rows have a column {LABEL!r}, and labels were given beside them; leave one out")
    if len(column) != rows.num_rows:
        raise BadArgument(f"{len(column)} labels were given for {rows.num_rows} rows; one for each is needed")
    return rows.append_column(LABEL, column)


def column_of(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Make a column of values, the first axis of which counts rows.

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
        raise BadSchema(f"column {name!r} has rows of shape {array.shape[1:]}, which hold nothing")
    mask = np.ma.getmaskarray(array) if np.ma.is_masked(array) else None
    made = _flat(name, np.ma.getdata(array), mask)
    for size in reversed(array.shape[1:]):
        made = pa.FixedSizeListArray.from_arrays(made, size)
    return made


def as_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return what is an array, or gives NumPy one.

    Example:
        >>> as_array("x", np.eye(2)).shape
        (2, 2)
    """
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadArgument(f"column {name!r}: NumPy takes no {type(values).__name__} such as this: {error}") from None


def _flat(name: str, array: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return all numbers of an array as an Arrow array, nulls where they are masked."""
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
        raise BadSchema(
            f"column {name!r} is of {kind}; numbers up to 64 bits, truth values, text, bytes and dates are columns"
        )
    values = array.reshape(-1).tolist()
    if kind.kind == "O" and array.ndim == 1:
        values = _nulled(values)
    if mask is not None:
        values = [None if out else value for value, out in zip(values, mask.reshape(-1).tolist(), strict=True)]
    return by_arrow(name, values)


def _nulled(values: list[Any]) -> list[Any]:
    """Return Python objects with None in place of NaN, which is what pandas has where a cell of text is empty.

    The objects are the same where none is NaN, or all are, for then they are numbers that have a type. NaN within
    lists stays.
    """
    out = [_is_missing(value) for value in values]
    if not any(out) or all(gone or value is None for value, gone in zip(values, out, strict=True)):
        return values
    return [None if gone else value for value, gone in zip(values, out, strict=True)]


def _is_missing(value: Any) -> bool:
    return (isinstance(value, float | np.floating) and bool(np.isnan(value))) or type(value).__name__ in MISSING


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as they lie; truth values have a bit each in Arrow."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)], 0)


def _times(name: str, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return dates and durations; those of units that Arrow lacks in seconds, or days."""
    unit, count = np.datetime_data(values.dtype)
    letter = values.dtype.kind
    if count != 1 or unit not in ("s", "ms", "us", "ns", *(("D",) if letter == "M" else ())):
        finer = {"Y": "D", "M": "D", "W": "D", "D": "s"}.get(unit, "s")
        if unit == "generic" or (letter == "m" and unit in ("Y", "M")):
            raise BadSchema(f"column {name!r} is of {values.dtype}, which has no length; give a unit such as [s]")
        if unit in ("ps", "fs", "as"):
            finer = "ns"
        values = values.astype(f"{letter}8[{'s' if letter == 'm' and finer == 'D' else finer}]")
    return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False), mask=mask)


def _structures(name: str, values: npt.NDArray[Any], mask: Any) -> pa.Array:
    if mask is not None and mask.any():
        raise BadSchema(f"column {name!r} is a structured array with masked values; give each field as a column")
    fields = values.dtype.names or ()
    parts: Sequence[Any] = [column_of(f"{name}.{field}", values[field]) for field in fields]
    return pa.StructArray.from_arrays(parts, names=list(fields))


def by_arrow(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Make a column of values as Arrow does; where it takes no list for NaN beside text, NaN is null.

    Raises:
        BadSchema: They are of no type that Arrow has, or of none that can be told.

    Example:
        >>> by_arrow("x", [[1], None]).type
        ListType(list<item: int64>)
    """
    try:
        made = pa.array(values, from_pandas=True) if hasattr(values, "dtype") else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(values, list) and (nulled := _nulled(values)) is not values:
            return by_arrow(name, nulled)
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadSchema(f"column {name!r} is of no one type that Arrow has: {reason[:300]}") from None
    if pa.types.is_null(made.type) and len(made):
        raise BadSchema(f"column {name!r} holds nothing but nulls, which tell no type; leave it out")
    return made
