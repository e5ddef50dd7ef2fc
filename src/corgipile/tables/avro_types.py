"""Arrow types of Avro schemas."""

from typing import Any

import pyarrow as pa

from corgipile.errors import BadSchema

__all__ = ["column_type"]

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
