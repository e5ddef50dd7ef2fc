"""Copies tables to PostgreSQL by binary COPY, encoded by NumPy without a Python object for each value."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.tables import Table
from corgipile.tables.databases import quoted
from corgipile.tables.table import even_cuts

if TYPE_CHECKING:
    import psycopg

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_PIECE = 1 << 22  # bytes encoded at a time
_TYPES = {  # Arrow type: name, OID and layout in PostgreSQL
    pa.int16(): ("smallint", 21, ">i2"),
    pa.int32(): ("integer", 23, ">i4"),
    pa.int64(): ("bigint", 20, ">i8"),
    pa.float32(): ("real", 700, ">f4"),
    pa.float64(): ("double precision", 701, ">f8"),
}


def copy_table(connection: "psycopg.Connection[Any]", name: str, table: Table) -> int:
    """Create a table and copy all rows of another into it.

    Args:
        connection: A psycopg connection.
        name: SQL name of the table to create, with its schema if any.
        table: A table of numbers or equally long lists of numbers, without nulls.

    Returns:
        The number of rows.

    Example:
        >>> import psycopg, corgipile as cp
        >>> with psycopg.connect(server.url) as connection:
        ...     copy_table(connection, "higgs", cp.open("higgs.arrow"))  # doctest: +SKIP
    """
    columns = ", ".join(f"{quoted(field.name)} {_sql_type(field)}" for field in table.schema)
    step = max(1, _PIECE // (row_layout(table.schema).itemsize))
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({columns})")
        with cursor.copy(f"COPY {name} FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(SIGNATURE)
            for start, stop in pairwise(even_cuts(len(table), step).tolist()):
                copy.write(encode(table.read(start, stop)))
            copy.write(b"\xff\xff")
    return len(table)


def row_layout(schema: pa.Schema) -> "np.dtype[np.void]":
    """Return the layout of a row in binary COPY: number of fields, then bytes and value of each field.

    A scalar is ``[column]["value"]``, a list ``[column]["items"]["value"]``.

    Example:
        >>> row_layout(pa.schema({"x": pa.list_(pa.float32(), 28), "label": pa.int32()})).itemsize
        258
    """
    return np.dtype([("fields", ">i2"), *((field.name, _field_layout(field)) for field in schema)])


def encode(rows: pa.RecordBatch) -> bytes:
    """Encode rows for binary COPY; raise BadValue if a value is null.

    Example:
        >>> encode(pa.record_batch({"a": pa.array([7], pa.int16())})).hex(" ")
        '00 01 00 00 00 02 00 07'
    """
    out = np.zeros(rows.num_rows, row_layout(rows.schema))
    out["fields"] = rows.num_columns
    for field, column in zip(rows.schema, rows.columns, strict=True):
        inner = column.flatten() if _width(field) else column
        if column.null_count or inner.null_count:
            raise BadValue(f"column {field.name!r} must not contain nulls")
        values, part = inner.to_numpy(), out[field.name]
        part["bytes"] = part.dtype.itemsize - 4
        if width := _width(field):
            for name, value in {"dimensions": 1, "element": _TYPES[field.type.value_type][1], "length": width}.items():
                part[name] = value
            part["first"] = 1
            part, values = part["items"], values.reshape(-1, width)
            part["bytes"] = part.dtype["value"].itemsize
        part["value"] = values
    return out.tobytes()


def decode(data: bytes, schema: pa.Schema) -> npt.NDArray[np.void]:
    """Decode binary COPY to a structured array of `row_layout`; raise BadValue for other columns, lengths or nulls.

    Example:
        >>> rows = pa.record_batch({"a": pa.array([7, 8], pa.int16())})
        >>> decode(SIGNATURE + encode(rows) + bytes([255, 255]), rows.schema)["a"]["value"].tolist()
        [7, 8]
    """
    layout = row_layout(schema)
    rows, rest = divmod(len(data) - len(SIGNATURE) - 2, layout.itemsize)
    if rest or rows < 0:
        raise BadValue(f"the data must be a multiple of {layout.itemsize} bytes a row, got {len(data)} bytes")
    records = np.frombuffer(data, layout, rows, len(SIGNATURE))
    for name in schema.names:
        if (records["fields"] != len(schema)).any() or (records[name]["bytes"] != layout[name].itemsize - 4).any():
            raise BadValue(f"column {name!r} must not contain nulls or lists of other lengths")
    return records


def _field_layout(field: pa.Field) -> "np.dtype[np.void]":
    width = _width(field)
    kind = field.type.value_type if width else field.type
    if kind not in _TYPES:
        raise BadSchema(f"column {field.name!r} must be numeric or a fixed-size list of numbers, got {field.type}")
    number = [("bytes", ">i4"), ("value", _TYPES[kind][2])]
    if not width:
        return np.dtype(number)
    head = [(name, ">i4") for name in ("bytes", "dimensions", "nulls", "element", "length", "first")]
    return np.dtype([*head, ("items", np.dtype(number), (width,))])


def _width(field: pa.Field) -> int:
    return field.type.list_size if pa.types.is_fixed_size_list(field.type) else 0


def _sql_type(field: pa.Field) -> str:
    return f"{_TYPES[field.type.value_type][0]}[]" if _width(field) else _TYPES[field.type][0]
