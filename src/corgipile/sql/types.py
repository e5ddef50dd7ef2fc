"""Types of columns as DB-API 2.0 tells them apart, and its makers of values."""

import datetime as dt
from typing import Any

import pyarrow as pa

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Date",
    "DateFromTicks",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TypeCode",
    "type_code",
]

Binary, Date, Time, Timestamp = bytes, dt.date, dt.time, dt.datetime
DateFromTicks, TimestampFromTicks = dt.date.fromtimestamp, dt.datetime.fromtimestamp


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 - as DB-API calls it
    """Return the local time of day, of seconds since 1970."""
    return TimestampFromTicks(ticks).time()


class TypeCode:
    """A kind of types: equal to itself, and to what `Cursor.description` says of a column of such a type.

    Args:
        name: What it is called.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


STRING, BINARY, NUMBER, DATETIME, ROWID = map(TypeCode, ("STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"))


def type_code(kind: pa.DataType) -> Any:
    """Return the kind of a type; of lists and structures the type itself.

    Example:
        >>> type_code(pa.int8()), type_code(pa.list_(pa.int8()))
        (NUMBER, ListType(list<item: int8>))
    """
    types = pa.types
    if types.is_dictionary(kind):
        return type_code(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return STRING
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return BINARY
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return NUMBER
    return DATETIME if types.is_temporal(kind) else kind
