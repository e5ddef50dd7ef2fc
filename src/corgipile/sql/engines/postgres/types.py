"""Conversion of PostgreSQL's types to Arrow's, and of psycopg's rows to record batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from corgipile.sql.exceptions import DataError

__all__ = ["Column", "batches", "columns_of"]

BATCH_ROWS = 1 << 14
NUMERIC, WITH_ZONE = 1700, 1184
SCALARS = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.int64(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: pa.timestamp("us"),
    WITH_ZONE: pa.timestamp("us", "UTC"),
    NUMERIC: pa.float64(),
}
ARRAYS = {1000: 16, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1231: NUMERIC}
ARRAYS |= {1182: 1082, 1115: 1114, 1185: 1184}
TEXTS = {1009, 1014, 1015}  # arrays of text


@dataclass(frozen=True)
class Column:
    """A column of a result: its name, its Arrow type and the OID of its PostgreSQL type."""

    name: str
    kind: pa.DataType
    number: int

    @property
    def convert(self) -> Callable[[Any], Any] | None:
        """The function that converts psycopg's values to Arrow's, or None."""
        if self.number == NUMERIC and pa.types.is_floating(self.kind):
            return float
        if self.number == 1231:
            return _floats
        return None


def _floats(value: Any) -> Any:
    return [None if one is None else _floats(one) for one in value] if isinstance(value, list) else float(value)


def columns_of(result: Any, zone: str = "UTC") -> list[Column]:
    """Return the columns of a libpq result.

    Numerics without a scale become doubles; types unknown to Arrow become text.
    """
    columns = []
    for i in range(result.nfields):
        name = (result.fname(i) or b"").decode("utf-8", "replace")
        number, modifier = result.ftype(i), result.fmod(i)
        kind = _kind(number, modifier)
        columns.append(Column(name, pa.timestamp("us", zone) if kind == SCALARS[WITH_ZONE] else kind, number))
    return columns


def _kind(number: int, modifier: int) -> pa.DataType:
    if number == NUMERIC and modifier >= 0:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if 0 < precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if number in TEXTS:
        return pa.list_(pa.string())
    if number in ARRAYS:
        return pa.list_(SCALARS[ARRAYS[number]])
    return SCALARS.get(number, pa.string())


def nested(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[Column]:
    """Return columns with the array depth of the first rows, which PostgreSQL's types lack."""
    result = []
    for i, column in enumerate(columns):
        kind = column.kind
        first = next((row[i] for row in rows if row[i]), None) if pa.types.is_list(kind) else None
        while isinstance(first, list) and first and isinstance(first[0], list):
            first, kind = first[0], pa.list_(kind)
        result.append(Column(column.name, kind, column.number))
    return result


def batches(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Convert rows to record batches lazily, except for the first batch."""
    remaining = iter(rows)
    first = list(islice(remaining, BATCH_ROWS))
    columns = nested(columns, first)
    schema = pa.schema([(column.name, column.kind) for column in columns])

    def generate() -> Iterator[pa.RecordBatch]:
        part = first
        while part:
            yield _batch(schema, columns, part)
            part = list(islice(remaining, BATCH_ROWS)) if len(part) == BATCH_ROWS else []

    return schema, generate()


def _batch(schema: pa.Schema, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    arrays = []
    for i, column in enumerate(columns):
        values, convert = [row[i] for row in rows], column.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            arrays.append(pa.array(values, column.kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"column {column.name!r} must hold only {column.kind}: {error}; cast it to text") from None
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
