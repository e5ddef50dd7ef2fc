"""Infers column types of text from sampled stretches."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.errors import BadArgument, MissingColumn, ParseError
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.formats.text.lines import Lines, Parse
from corgipile.tables.spans import flat

__all__ = ["Types", "chosen", "exact", "known", "not_utf8", "stretches", "wider"]

MAX_STRETCHES, STRETCH_BYTES = 16, 1 << 18  # stretches sampled, and bytes of each; a shorter text is read whole
MAX_SURVEYED_BYTES = 1 << 20  # bytes of a row that is parsed to infer types, which takes many times as much
MIN_GIVEN_BACK = 1 << 16  # bytes of parsed rows after which freed pages are returned to the system
_WIDE_INTEGERS = (pa.uint64(), pa.decimal128(38, 0), pa.decimal256(76, 0), pa.string())  # hold integers beyond int64
_NUMBERS = [pa.int64(), *_WIDE_INTEGERS[:3], pa.float64()]  # ascending width
_WHOLE = re.compile(r"\s*[-+]?\d+\s*")
Types = Mapping[str, "str | pa.DataType"]


def stretches(lines: Lines, look: Parse) -> Iterator[pa.Schema]:
    """Yield the schemas of evenly spaced stretches of rows, the first and the last included."""
    rows = len(lines)
    step = max(1, STRETCH_BYTES * rows // max(1, lines.file.size))
    count, found = min(MAX_STRETCHES, -(-rows // step)), False
    for number in range(count):
        start = number * max(0, rows - step) // max(1, count - 1)
        places = lines.places(start, min(rows, start + step))
        short = np.flatnonzero(np.diff(places) <= MAX_SURVEYED_BYTES)
        for run in np.split(short, np.flatnonzero(np.diff(short) > 1) + 1):
            for batch in lines.run(start + int(run[0]), start + int(run[-1]) + 1, look) if len(run) else ():
                found = True
                yield batch.schema
                if batch.nbytes > MIN_GIVEN_BACK:
                    give_back()
    if rows and not found:  # all rows are long
        yield next(lines.run(0, 1, look)).schema


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds the values of both types, at worst text.

    Example:
        >>> wider(pa.int64(), pa.float64()), wider(pa.int64(), pa.date32()), wider(pa.uint64(), pa.int64())
        (DataType(double), DataType(string), DataType(uint64))
    """
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return other if pa.types.is_null(one) else one
    if pa.binary() in (pair := {one, other}):
        return pa.binary()
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in pair):
        units = {kind.unit for kind in pair if pa.types.is_timestamp(kind)}
        return pa.timestamp("ns" if "ns" in units else "s")
    return _common_nested(one, other) if all(map(pa.types.is_nested, pair)) else pa.string()


def _common_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type))
    if pa.types.is_list(one) or pa.types.is_list(other):
        return pa.string()
    fields = {field.name: field.type for field in one}
    for field in other:
        fields[field.name] = wider(fields.get(field.name, pa.null()), field.type)
    return pa.struct(list(fields.items()))


def known(kind: pa.DataType) -> pa.DataType:
    """Return the type with text in place of null types, since text holds any value."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, known(field.type)) for field in kind])
    return pa.list_(known(kind.value_type)) if pa.types.is_list(kind) else kind


def exact(
    rows: pa.RecordBatch, read: Callable[[str, pa.DataType], pa.RecordBatch], declared: Container[str] = ()
) -> dict[str, pa.DataType]:
    """Return exact types for the integer columns that pyarrow rounded to double.

    Args:
        rows: Rows with the types that pyarrow infers: double for integers beyond int64, binary for text that is not
            UTF-8.
        read: Reads a column of the same rows as another type.
        declared: Columns whose types the caller set.

    Raises:
        ParseError: A column is not UTF-8.
    """
    found: dict[str, pa.DataType] = {}
    for field in rows.schema:
        if pa.types.is_binary(field.type) and field.name not in declared:
            texts = rows.column(field.name).drop_null().to_pylist()
            cell = next(text for text in texts if "\ufffd" in text.decode("utf-8", "replace"))
            raise ParseError(not_utf8(field.name, f"{cell[:40]!r}"))
        for path, rounded in _doubles(field.type, rows.column(field.name)):
            values = np.abs(flat(rounded.drop_null()))
            if not ((values >= 2.0**63) & (values < np.inf)).any():
                continue
            for kind in _WIDE_INTEGERS:
                wanted = _replace_type(found.get(field.name, field.type), path, kind)
                try:
                    column = read(field.name, wanted).column(0)
                except ParseError:
                    continue
                if pa.types.is_unsigned_integer(kind) or not _is_exact(rounded, _at(column, path)):
                    found[field.name] = wanted
                break
    return found


def not_utf8(name: str, what: str) -> str:
    """Return the error message for a column that is not UTF-8, with a hint."""
    return (
        f"column {name!r} must be UTF-8, got {what}; convert the file, for example with "
        f"`iconv -f LATIN1 -t UTF-8`, or keep the bytes with types={{{name!r}: 'binary'}}"
    )


def _doubles(kind: pa.DataType, values: pa.Array) -> Iterator[tuple[tuple[int, ...], pa.Array]]:
    """Yield path and values of each double column within a nested type."""
    if pa.types.is_float64(kind):
        yield (), values
    for number in range(kind.num_fields if pa.types.is_list(kind) or pa.types.is_struct(kind) else 0):
        for path, inner in _doubles(kind.field(number).type, _at(values, (number,))):
            yield (number, *path), inner


def _at(values: pa.Array, path: tuple[int, ...]) -> pa.Array:
    for number in path:
        values = values.flatten() if pa.types.is_list(values.type) else values.flatten()[number]
    return values


def _replace_type(kind: pa.DataType, path: tuple[int, ...], new: pa.DataType) -> pa.DataType:
    if not path:
        return new
    if pa.types.is_list(kind):
        return pa.list_(_replace_type(kind.value_type, path[1:], new))
    fields = list(kind)
    fields[path[0]] = fields[path[0]].with_type(_replace_type(fields[path[0]].type, path[1:], new))
    return pa.struct(fields)


def _is_exact(rounded: pa.Array, exactly: pa.Array) -> bool:
    """Return whether doubles are exact: they print as the same numbers, or some text is not an integer."""

    def equal(one: float, other: Any) -> bool:
        return one is None or Decimal(repr(one)) == Decimal(other)

    texts = exactly.to_pylist()
    if pa.types.is_string(exactly.type) and not all(text is None or _WHOLE.fullmatch(text) for text in texts):
        return True
    return all(map(equal, rounded.to_pylist(), texts))


def chosen(types: Types | None, names: list[str], path: str) -> dict[str, pa.DataType]:
    """Return the caller's types as Arrow types; raise an error for a missing column or unknown type."""
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
