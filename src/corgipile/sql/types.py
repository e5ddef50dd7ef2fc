"""DB-API 2.0 type objects and value constructors."""

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


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 - DB-API's name
    """Return the local time of day of a Unix timestamp."""
    return TimestampFromTicks(ticks).time()


class TypeCode:
    """A group of column types, compared with the type code in `Cursor.description`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


STRING, BINARY, NUMBER, DATETIME, ROWID = map(TypeCode, ("STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"))


def type_code(kind: pa.DataType) -> Any:
    """Return the type code of an Arrow type; nested types are their own code.

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
