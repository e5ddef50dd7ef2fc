"""Casts of columns to other types, with a check that each value stays the same."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.conversion.stream import Stream
from corgipile.conversion.writers.form import child_of
from corgipile.errors import BadSchema, BadValue
from corgipile.tables.formats.text.types import Types, chosen
from corgipile.tables.spans import flat
from corgipile.tables.table import is_list
from corgipile.tables.values import as_type, value_type

__all__ = ["cast"]

types = pa.types
MAX_SHOWN = 60  # characters of a value in messages at most
Make = Callable[[pa.Array, pa.DataType], pa.Array | None]


def cast(source: Stream, wanted: Types | None, *, inexact: bool = False) -> Stream:
    """Return a stream with columns cast to other types; ``inexact`` lets floats be rounded.

    A type given for a list column is that of its items. A value that does not fit its type raises BadValue when it is
    read.
    """
    named, schema = chosen(wanted, source.schema.names, "the source"), source.schema
    kinds = {name: _items(value_type(schema.field(name).type), kind) for name, kind in named.items()}
    if not kinds:
        return source
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in schema]
    schema = pa.schema(fields, schema.metadata)
    return source._replace(schema=schema, batches=_batches(source, schema, kinds, _rounded if inexact else _same))


def _batches(
    source: Stream, schema: pa.Schema, kinds: Mapping[str, pa.DataType], make: Make
) -> Iterator[pa.RecordBatch]:
    done = source.first
    for batch in source.batches:
        columns = {name: _cast(batch.column(name), name, kind, done, make) for name, kind in kinds.items()}
        arrays = [columns.get(name, column) for name, column in zip(schema.names, batch.columns, strict=True)]
        kept = [field.with_type(column.type) for field, column in zip(schema, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kept, schema.metadata))
        done += batch.num_rows


def _cast(column: pa.Array, name: str, kind: pa.DataType, first: int, make: Make) -> pa.Array:
    """Cast the rows of a column; ``first`` is the number of the first row."""
    column = as_type(column, value_type(column.type))
    if column.type == kind:
        return column
    try:
        result = make(column, kind)
        if result is not None:
            return result
        row = _first_bad(column, lambda part: make(part, kind) is None)
        rounds = _rounded(column.slice(row, 1), kind) is not None
    except pa.ArrowNotImplementedError:
        raise BadSchema(f"column {name!r} must be castable to {kind}, got {column.type}: leave it as it is") from None
    shown = str(column[row].as_py())
    raise BadValue(
        f"column {name!r}, row {first + row}: {shown[:MAX_SHOWN]}{' ...' * (len(shown) > MAX_SHOWN)} is not a {kind}: "
        f"{'give inexact=True (--inexact) to round it' if rounds else 'choose another type, or none'}"
    )


def _first_bad(column: pa.Array, bad: Callable[[pa.Array], bool]) -> int:
    """Return the first bad row, by bisection."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(column.slice(low, middle - low)) else (middle, high)
    return low


def _items(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a list type with other items; for other types, or if a list is wanted, the wanted type."""
    nested = is_list(kind) or types.is_fixed_size_list(kind)
    if not nested or types.is_nested(wanted):
        return wanted
    field = kind.value_field.with_type(_items(kind.value_type, wanted))
    if types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)


def _same(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast values; None if a value changes."""
    try:
        result = column.cast(kind, safe=not _is_float(kind))
        if _is_text(column.type) or _is_text(kind):
            return None if _overflows(result, column) else result
        back = result.cast(column.type, safe=not _is_float(column.type))  # integers beyond 2^53 may become floats
        return result if _equal(back, column) else None
    except pa.ArrowInvalid:
        return None


def _rounded(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast values, rounding floats; None if a value is too large or not a number of that kind."""
    if not _is_float(kind) or _is_text(column.type):
        return _same(column, kind)
    try:
        result = column.cast(kind, safe=False)
    except pa.ArrowInvalid:
        return None
    return None if np.isinf(_numbers(result)).sum() != np.isinf(_numbers(column)).sum() else result


def _overflows(result: pa.Array, text: pa.Array) -> bool:
    """Return whether text with finite numbers became infinite."""
    if not _is_float(result.type):
        return False
    infinite = int(np.isinf(_numbers(result)).sum())
    return infinite > 0 and infinite != sum("inf" in str(value).lower() for value in _values(text).to_pylist())


def _equal(one: pa.Array, other: pa.Array) -> bool:
    """Compare the values of two columns of one type; NaN equals NaN."""
    values, others = _values(one), _values(other)
    if _is_float(one.type):
        return bool(np.array_equal(flat(values), flat(others), equal_nan=True))
    return bool(values.equals(others))


def _values(column: pa.Array) -> pa.Array:
    """Return the items of lists, or other columns' rows, without nulls."""
    inner = child_of(column)
    return column.drop_null() if inner is None else _values(inner)


def _numbers(column: pa.Array) -> Any:
    return flat(_values(column)).astype(np.float64)


def _inside(kind: pa.DataType) -> pa.DataType:
    nested = is_list(kind) or types.is_fixed_size_list(kind)
    return _inside(kind.value_type) if nested else kind


def _is_float(kind: pa.DataType) -> bool:
    return bool(types.is_floating(_inside(kind)))


def _is_text(kind: pa.DataType) -> bool:
    inner = _inside(kind)
    return bool(types.is_string(inner) or types.is_large_string(inner) or types.is_binary(inner))
