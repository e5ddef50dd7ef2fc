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


def column_type(said: Any, where: str, known: dict[str, Any], space: str | None = None) -> pa.DataType:
    """Return the type of values that an Avro schema describes.

    Args:
        said: The schema.
        where: What messages call it.
        known: The types with names met so far.
        space: The namespace that names without one are in.

    Raises:
        BadSchema: There is no such type in Arrow, or it holds itself.

    Example:
        >>> column_type(["null", {"type": "array", "items": "long"}], "x", {})
        ListType(list<item: int64>)
    """
    if isinstance(said, list):
        return _union(said, where, known, space)
    if isinstance(said, dict):
        return _complex(said, where, known, space)
    if said in _PLAIN:
        return _PLAIN[said]
    kind = known.get(str(said)) or known.get(f"{space}.{said}")
    if kind is None:
        raise BadSchema(f"{where} is {said!r}, which no type is, or one that holds itself")
    return kind


def _union(said: list[Any], where: str, known: dict[str, Any], space: str | None) -> pa.DataType:
    some = [one for one in said if one != "null"]
    if len(some) == 1:
        return column_type(some[0], where, known, space)
    for words, kind in _WIDER:
        if some and all(isinstance(one, str) and one in words for one in some):
            return kind
    if not some:
        return pa.null()
    raise BadSchema(f"{where} holds values of several types ({json_of(some)}); one, and null, is right")


def json_of(said: Any) -> str:
    """Write a schema short."""
    return str(said)[:100]


def _complex(said: dict[str, Any], where: str, known: dict[str, Any], space: str | None) -> pa.DataType:
    word = said.get("type")
    if word == "record":
        inner = said.get("namespace", space)
        fields = said.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) and one.keys() >= NEEDED for one in fields):
            raise BadSchema(f"{where} is a record without fields")
        made = [(one["name"], column_type(one["type"], where, known, inner)) for one in fields]
        return _named(said, space, known, pa.struct(made))
    if word == "enum":
        return _named(said, space, known, pa.string())
    if word == "array":
        return pa.list_(column_type(said.get("items"), where, known, space))
    if word == "map":
        return pa.map_(pa.string(), column_type(said.get("values"), where, known, space))
    logical = _logical(said, where)
    if word == "fixed":
        size = said.get("size")
        if not isinstance(size, int) or not 0 < size < 1 << 31:
            raise BadSchema(f"{where} is bytes of length {size!r}")
        return _named(said, space, known, logical or pa.binary(size))
    return logical or column_type(word, where, known, space)


def _named(said: dict[str, Any], space: str | None, known: dict[str, Any], kind: pa.DataType) -> pa.DataType:
    name, own = str(said.get("name")), said.get("namespace", space)
    check_types([pa.field(name, kind)], "its schema")  # a type may contain types named earlier
    known[name if "." in name or not own else f"{own}.{name}"] = kind
    return kind


def _logical(said: dict[str, Any], where: str) -> pa.DataType | None:
    name, word = said.get("logicalType"), said.get("type")
    if name == "decimal" and word in ("bytes", "fixed"):
        precision, scale = said.get("precision"), said.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= 76:
            raise BadSchema(f"{where} is a decimal of {precision!r} digits; 1 to 76 are right")
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if name == "uuid" and word == "string":
        return pa.string()
    return _LOGICAL.get((str(name), str(word)))


_LEAST = {"null": 0, "float": 4, "double": 8}


def least_bytes(said: Any, known: dict[str, int] | None = None) -> int:
    """Return the minimum bytes of a value of a schema; names of types count as one byte.

    Raises:
        BadSchema: Arrays hold zero-byte values: a few bytes could state any number of them.

    Example:
        >>> least_bytes(["null", "double"]), least_bytes({"type": "array", "items": "long"})
        (1, 1)
    """
    known = {} if known is None else known
    if isinstance(said, list):
        return 1 + min((least_bytes(one, known) for one in said), default=0)
    if not isinstance(said, dict):
        return _LEAST.get(said, known.get(str(said).rpartition(".")[2], 1))
    word = said.get("type")
    if word == "record":
        size = sum(least_bytes(field["type"], known) for field in said["fields"])
    elif word in ("array", "map"):
        if not least_bytes(said.get("items", said.get("values")), known) and word == "array":
            raise BadSchema(f"an array must hold values that take bytes, got {json_of(said.get('items'))}")
        size = 1
    else:
        size = int(said.get("size", 0)) if word == "fixed" else 1 if word == "enum" else least_bytes(word, known)
    known[str(said.get("name")).rpartition(".")[2]] = size
    return size


def swelling(schema: pa.Schema) -> int:
    """Return the largest ratio of a row's size as Python objects to its stored size.

    Example:
        >>> swelling(pa.schema({"x": pa.string()})), swelling(pa.schema({"x": pa.list_(pa.float64())}))
        (1, 4)
    """
    found, level = 1, [field.type for field in schema]
    while level:
        for kind in level:
            if pa.types.is_map(kind) or pa.types.is_list(kind):
                item = kind.item_type if pa.types.is_map(kind) else kind.value_type
                found = max(found, 200 if pa.types.is_nested(item) else {"double": 4, "float": 8}.get(str(item), 20))
        level = [kind.field(i).type for kind in level for i in range(kind.num_fields)]
    return found
