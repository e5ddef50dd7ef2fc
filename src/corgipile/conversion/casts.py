"""Columns as other types: every value is checked to be the same number."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.conversion.stream import Stream
from corgipile.conversion.writers.form import child_of
from corgipile.errors import BadSchema, BadValue
from corgipile.tables.arrow.spans import flat
from corgipile.tables.table import is_list
from corgipile.tables.text.types import Types, chosen
from corgipile.tables.values import as_type, value_type

__all__ = ["cast"]

types = pa.types
SHOWN = 60  # characters of a value
Make = Callable[[pa.Array, pa.DataType], pa.Array | None]


def cast(found: Stream, wanted: Types | None, *, inexact: bool = False) -> Stream:
    """Return a stream whose columns have other types.

    A type that is said of lists is that of their items.

    Args:
        found: The stream.
        wanted: Types by the names of columns.
        inexact: Whether floats may be rounded.

    Raises:
        MissingColumn: There is no such column.
        BadSchema: There is no way from one type to the other.
        BadValue: A value is none of the type; raised when it comes.
    """
    kinds = {
        name: _items(value_type(found.schema.field(name).type), kind)
        for name, kind in chosen(wanted, found.schema.names, "the source").items()
    }
    if not kinds:
        return found
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in found.schema]
    schema = pa.schema(fields, found.schema.metadata)
    return found._replace(schema=schema, batches=_batches(found, schema, kinds, _rounded if inexact else _same))


def _batches(
    found: Stream, schema: pa.Schema, kinds: Mapping[str, pa.DataType], make: Make
) -> Iterator[pa.RecordBatch]:
    done = found.first
    for batch in found.batches:
        columns = {name: _cast(batch.column(name), name, kind, done, make) for name, kind in kinds.items()}
        arrays = [columns.get(name, column) for name, column in zip(schema.names, batch.columns, strict=True)]
        kept = [field.with_type(column.type) for field, column in zip(schema, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kept, schema.metadata))
        done += batch.num_rows


def _cast(column: pa.Array, name: str, kind: pa.DataType, first: int, make: Make) -> pa.Array:
    """Cast the rows of a column, of which ``first`` is the number of the first."""
    column = as_type(column, value_type(column.type))
    if column.type == kind:
        return column
    try:
        made = make(column, kind)
        if made is not None:
            return made
        row = _first_bad(column, lambda part: make(part, kind) is None)
        rounds = _rounded(column.slice(row, 1), kind) is not None
    except pa.ArrowNotImplementedError:
        raise BadSchema(
            f"column {name!r} is {column.type}, of which no {kind} can be made; leave it as it is"
        ) from None
    shown = str(column[row].as_py())
    raise BadValue(
        f"column {name!r}, row {first + row}: {shown[:SHOWN]}{' ...' * (len(shown) > SHOWN)} is no {kind}, exactly; "
        f"{'inexact=True (--inexact) rounds it' if rounds else 'another type, or the column as it is, holds it'}"
    )


def _first_bad(column: pa.Array, bad: Callable[[pa.Array], bool]) -> int:
    """Find the first row that is bad: those before a place are not, one of those up to another is."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(column.slice(low, middle - low)) else (middle, high)
    return low


def _items(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a list type with items of another type; of what is no list, or where a list is wanted, what is wanted."""
    nested = is_list(kind) or types.is_fixed_size_list(kind)
    if not nested or types.is_nested(wanted):
        return wanted
    field = kind.value_field.with_type(_items(kind.value_type, wanted))
    if types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)


def _same(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast values; None where one is not the same afterwards."""
    try:
        made = column.cast(kind, safe=not _is_float(kind))
        if _is_text(column.type) or _is_text(kind):
            return None if _overflows(made, column) else made
        back = made.cast(column.type, safe=not _is_float(column.type))  # whole numbers beyond 2^53 are floats, too
        return made if _equal(back, column) else None
    except pa.ArrowInvalid:
        return None


def _rounded(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast values, floats to the nearest; None where one is too large, or no number of that kind."""
    if not _is_float(kind) or _is_text(column.type):
        return _same(column, kind)
    try:
        made = column.cast(kind, safe=False)
    except pa.ArrowInvalid:
        return None
    return None if np.isinf(_numbers(made)).sum() != np.isinf(_numbers(column)).sum() else made


def _overflows(made: pa.Array, text: pa.Array) -> bool:
    """Say whether infinite numbers were made of text that says others."""
    if not _is_float(made.type):
        return False
    infinite = int(np.isinf(_numbers(made)).sum())
    return infinite > 0 and infinite != sum("inf" in str(value).lower() for value in _values(text).to_pylist())


def _equal(one: pa.Array, other: pa.Array) -> bool:
    """Compare the values of columns of one type; what is no number is equal to itself."""
    values, others = _values(one), _values(other)
    if _is_float(one.type):
        return bool(np.array_equal(flat(values), flat(others), equal_nan=True))
    return bool(values.equals(others))


def _values(column: pa.Array) -> pa.Array:
    """Return what is in lists, or the rows of what is none, nulls left out."""
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
