"""Arrow types of Avro schemas."""

from typing import Any

import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.nesting import check_types

__all__ = ["column_type", "least_bytes", "swelling"]

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("date", "int"): pa.date32(),
    ("time-millis", "int"): pa.time32("ms"),
    ("time-micros", "long"): pa.time64("us"),
    ("timestamp-millis", "long"): pa.timestamp("ms", "UTC"),
    ("timestamp-micros", "long"): pa.timestamp("us", "UTC"),
    ("local-timestamp-millis", "long"): pa.timestamp("ms"),
    ("local-timestamp-micros", "long"): pa.timestamp("us"),
}
NEEDED = {"name", "type"}
_WIDER = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())


def column_type(schema: Any, where: str, known: dict[str, Any], space: str | None = None) -> pa.DataType:
    """Return the type of values that an Avro schema describes.

    Args:
        schema: The Avro schema.
        where: Its name in messages.
        known: The named types defined so far.
        space: The namespace of names without one.

    Raises:
        BadSchema: Arrow has no such type, or the type is recursive.

    Example:
        >>> column_type(["null", {"type": "array", "items": "long"}], "x", {})
        ListType(list<item: int64>)
    """
    if isinstance(schema, list):
        return _union(schema, where, known, space)
    if isinstance(schema, dict):
        return _complex(schema, where, known, space)
    if schema in _PLAIN:
        return _PLAIN[schema]
    kind = known.get(str(schema)) or known.get(f"{space}.{schema}")
    if kind is None:
        raise BadSchema(f"{where} must be a known type that is not recursive, got {schema!r}")
    return kind


def _union(schema: list[Any], where: str, known: dict[str, Any], space: str | None) -> pa.DataType:
    some = [one for one in schema if one != "null"]
    if len(some) == 1:
        return column_type(some[0], where, known, space)
    for words, kind in _WIDER:
        if some and all(isinstance(one, str) and one in words for one in some):
            return kind
    if not some:
        return pa.null()
    raise BadSchema(f"{where} must hold values of one type, or null, got {json_of(some)}")


def json_of(schema: Any) -> str:
    """Return a schema as text of at most 100 characters."""
    return str(schema)[:100]


def _complex(schema: dict[str, Any], where: str, known: dict[str, Any], space: str | None) -> pa.DataType:
    word = schema.get("type")
    if word == "record":
        inner = schema.get("namespace", space)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) and one.keys() >= NEEDED for one in fields):
            raise BadSchema(f"{where} is a record without fields; each must have a name and a type")
        members = [(one["name"], column_type(one["type"], where, known, inner)) for one in fields]
        return _named(schema, space, known, pa.struct(members))
    if word == "enum":
        return _named(schema, space, known, pa.string())
    if word == "array":
        return pa.list_(column_type(schema.get("items"), where, known, space))
    if word == "map":
        return pa.map_(pa.string(), column_type(schema.get("values"), where, known, space))
    logical = _logical(schema, where)
    if word == "fixed":
        size = schema.get("size")
        if not isinstance(size, int) or not 0 < size < 1 << 31:
            raise BadSchema(f"{where}: bytes must have a length from 1 to 2^31 - 1, got {size!r}")
        return _named(schema, space, known, logical or pa.binary(size))
    return logical or column_type(word, where, known, space)


def _named(schema: dict[str, Any], space: str | None, known: dict[str, Any], kind: pa.DataType) -> pa.DataType:
    name, own = str(schema.get("name")), schema.get("namespace", space)
    check_types([pa.field(name, kind)], "its schema")  # a type may contain types named earlier
    known[name if "." in name or not own else f"{own}.{name}"] = kind
    return kind


def _logical(schema: dict[str, Any], where: str) -> pa.DataType | None:
    name, word = schema.get("logicalType"), schema.get("type")
    if name == "decimal" and word in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= 76:
            raise BadSchema(f"{where}: a decimal must have 1 to 76 digits, got {precision!r}")
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if name == "uuid" and word == "string":
        return pa.string()
    return _LOGICAL.get((str(name), str(word)))


_LEAST = {"null": 0, "float": 4, "double": 8}


def least_bytes(schema: Any, known: dict[str, int] | None = None) -> int:
    """Return the minimum stored bytes of a value; a type name counts as one byte.

    Raises:
        BadSchema: Arrays hold zero-byte values: a few bytes could state any number of them.

    Example:
        >>> least_bytes(["null", "double"]), least_bytes({"type": "array", "items": "long"})
        (1, 1)
    """
    known = {} if known is None else known
    if isinstance(schema, list):
        return 1 + min((least_bytes(one, known) for one in schema), default=0)
    if not isinstance(schema, dict):
        return _LEAST.get(schema, known.get(str(schema).rpartition(".")[2], 1))
    word = schema.get("type")
    if word == "record":
        size = sum(least_bytes(field["type"], known) for field in schema["fields"])
    elif word in ("array", "map"):
        if not least_bytes(schema.get("items", schema.get("values")), known) and word == "array":
            raise BadSchema(f"an array must hold values that take bytes, got {json_of(schema.get('items'))}")
        size = 1
    else:
        size = int(schema.get("size", 0)) if word == "fixed" else 1 if word == "enum" else least_bytes(word, known)
    known[str(schema.get("name")).rpartition(".")[2]] = size
    return size


def swelling(schema: pa.Schema) -> int:
    """Return the largest ratio of a row's size as Python objects to its stored size.

    Example:
        >>> swelling(pa.schema({"x": pa.string()})), swelling(pa.schema({"x": pa.list_(pa.float64())}))
        (1, 4)
    """
    ratio, level = 1, [field.type for field in schema]
    while level:
        for kind in level:
            if pa.types.is_map(kind) or pa.types.is_list(kind):
                item = kind.item_type if pa.types.is_map(kind) else kind.value_type
                ratio = max(ratio, 200 if pa.types.is_nested(item) else {"double": 4, "float": 8}.get(str(item), 20))
        level = [kind.field(i).type for kind in level for i in range(kind.num_fields)]
    return ratio
