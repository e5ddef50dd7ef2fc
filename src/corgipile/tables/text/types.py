"""The types of columns of text, found from stretches of it."""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from corgipile.errors import BadArgument, MissingColumn
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.text.lines import Lines

__all__ = ["Types", "chosen", "known", "stretches", "wider"]

STRETCHES, BYTES = 16, 1 << 18  # that are looked at, and of each; a text of fewer is looked at as a whole
_PAIRS = (({pa.int64(), pa.float64()}, pa.float64()), ({pa.binary()}, pa.binary()))
Types = Mapping[str, "str | pa.DataType"]


def stretches(lines: Lines, read: Callable[[int, int], pa.Schema]) -> Iterator[pa.Schema]:
    """Yield the schemas of stretches of rows, the first and the last among them, evenly apart."""
    rows = len(lines)
    step = max(1, BYTES * rows // max(1, lines.file.size))
    count = min(STRETCHES, -(-rows // step))
    for number in range(count):
        start = number * max(0, rows - step) // max(1, count - 1)
        yield read(start, min(rows, start + step))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that values of both fit: text, unless there is a better one.

    Example:
        >>> wider(pa.int64(), pa.float64()), wider(pa.int64(), pa.date32()), wider(pa.null(), pa.bool_())
        (DataType(double), DataType(string), DataType(bool))
    """
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return other if pa.types.is_null(one) else one
    pair = {one, other}
    plain = next((kind for known, kind in _PAIRS if pair & known == known), None)
    if plain is not None:
        return plain
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in pair):
        units = {kind.unit for kind in pair if pa.types.is_timestamp(kind)}
        return pa.timestamp("ns" if "ns" in units else "s")
    return _wider_nested(one, other) if all(map(pa.types.is_nested, pair)) else pa.string()


def _wider_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type))
    if pa.types.is_list(one) or pa.types.is_list(other):
        return pa.string()
    fields = {field.name: field.type for field in one}
    for field in other:
        fields[field.name] = wider(fields.get(field.name, pa.null()), field.type)
    return pa.struct(list(fields.items()))


def known(kind: pa.DataType) -> pa.DataType:
    """Return a type, text where no value was seen: text is what any value fits."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, known(field.type)) for field in kind])
    return pa.list_(known(kind.value_type)) if pa.types.is_list(kind) else kind


def chosen(types: Types | None, names: list[str], path: str) -> dict[str, pa.DataType]:
    """Check what the caller says of types."""
    found = {}
    for name, kind in dict(types or {}).items():
        if name not in names:
            raise MissingColumn(f"{path} has no column {name!r}; it has {listed(names)}{did_you_mean(name, names)}")
        try:
            found[name] = kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
        except (ValueError, TypeError):
            raise BadArgument(
                f"types[{name!r}] must be an Arrow type or its name, such as 'float32' or 'string', got {kind!r}"
            ) from None
    return found
