"""Conversion of dictionary and view columns to plain values."""

from typing import Any

import pyarrow as pa

__all__ = ["as_type", "is_view", "value_type", "values", "viewless"]

types = pa.types


def is_view(kind: pa.DataType) -> bool:
    """Return whether rows of a type are views of bytes."""
    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries and views, at any depth.

    Example:
        >>> value_type(pa.dictionary(pa.int8(), pa.string())), value_type(pa.list_(pa.string_view()))
        (DataType(string), ListType(list<item: string>))
    """
    if types.is_primitive(kind):
        return kind
    if types.is_dictionary(kind):
        return value_type(kind.value_type)
    return _map_inner(kind, _inner_value_type)


def viewless(kind: pa.DataType) -> pa.DataType:
    """Return a type without views, which Arrow cannot take rows from; dictionaries remain.

    Example:
        >>> viewless(pa.dictionary(pa.int8(), pa.string_view()))
        DictionaryType(dictionary<values=string, indices=int8, ordered=0>)
    """
    if types.is_primitive(kind):
        return kind
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, viewless(kind.value_type), kind.ordered)
    return _map_inner(kind, lambda inner: inner if types.is_dictionary(inner) else viewless(inner))


def _inner_value_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type inside a list or struct; dictionaries of views remain, as Arrow cannot decode them."""
    return kind if types.is_dictionary(kind) and value_type(kind.value_type) != kind.value_type else value_type(kind)


def _map_inner(kind: pa.DataType, change: Any) -> pa.DataType:
    """Apply ``change`` to the inner types of a type that is no dictionary; views become plain."""
    if is_view(kind):
        return pa.string() if types.is_string_view(kind) else pa.binary()
    if types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(change(kind.field(i).type)) for i in range(kind.num_fields)])
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not listed or (inner := change(kind.value_type)) == kind.value_type:
        return kind
    field = kind.value_field.with_type(inner)
    if types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column to its `value_type` or `viewless` type.

    Example:
        >>> as_type(pa.array(["a", None, "a"]).dictionary_encode(), pa.string()).to_pylist()
        ['a', None, 'a']
    """
    if column.type == kind:
        return column
    if types.is_dictionary(kind):
        inner = as_type(column.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(column.indices, inner, None, kind.ordered)
    if types.is_dictionary(column.type):
        return as_type(column.dictionary, kind).take(column.indices)
    if types.is_nested(kind):  # a cast converts all items of the array that a slice is of
        column = pa.concat_arrays([column, column.slice(0, 0)])
    return column.cast(kind)


def values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode the dictionaries and views of a batch.

    Example:
        >>> values(pa.record_batch({"x": pa.array(["a", "b"]).dictionary_encode()})).schema.types
        [DataType(string)]
    """
    stored = batch.schema.types
    kinds = [value_type(kind) for kind in stored]
    if kinds == stored:
        return batch
    columns = [as_type(column, kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))
