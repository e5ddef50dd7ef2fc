"""Promotion of column types to a common type."""

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["DIGITS", "common_type", "holds_all", "may_hold", "smallest_type"]

types = pa.types
DIGITS = {16: 11, 32: 24, 64: 53}  # binary digits of integers that a float of so many bits holds
_NUMBERS = [
    pa.int8(),
    pa.uint8(),
    pa.int16(),
    pa.uint16(),
    pa.float16(),
    pa.int32(),
    pa.uint32(),
    pa.float32(),
    pa.int64(),
]
_NUMBERS += [pa.uint64(), pa.float64()]


def holds_all(wanted: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a numeric type holds every value of another.

    Example:
        >>> [holds_all(pa.float64(), kind) for kind in (pa.float32(), pa.int32(), pa.int64())]
        [True, True, False]
        >>> holds_all(pa.int64(), pa.uint32()), holds_all(pa.int32(), pa.uint32()), holds_all(pa.uint32(), pa.int8())
        (True, False, False)
    """
    if kind == wanted:
        return _is_number(kind)
    if not (_is_number(kind) and _is_number(wanted)):
        return False
    if types.is_floating(wanted):
        return (
            kind.bit_width < wanted.bit_width if types.is_floating(kind) else _digits(kind) <= DIGITS[wanted.bit_width]
        )
    if types.is_floating(kind) or (types.is_signed_integer(kind) and types.is_unsigned_integer(wanted)):
        return False
    return _digits(kind) <= _digits(wanted)


def may_hold(wanted: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether ``wanted`` is double and ``kind`` an integer type that it holds only up to 2^53.

    Programs without null integers, such as pandas, write parts with nulls as double.

    Example:
        >>> [may_hold(pa.float64(), kind) for kind in (pa.int64(), pa.int32())]
        [True, False]
    """
    return bool(types.is_float64(wanted) and types.is_integer(kind) and not holds_all(wanted, kind))


def smallest_type(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the smallest numeric type that holds every value of all types; None if there is none.

    64-bit integers and floats give double, although it cannot hold the largest integers; reads check them.

    Example:
        >>> smallest_type([pa.int32(), pa.float32()]), smallest_type([pa.int8(), pa.uint8()])
        (DataType(double), DataType(int16))
        >>> smallest_type([pa.int64(), pa.float32()]), smallest_type([pa.int64(), pa.uint64()])
        (DataType(double), None)
    """
    smallest = next((one for one in _NUMBERS if all(holds_all(one, kind) for kind in kinds)), None)
    floats = all(map(_is_number, kinds)) and any(map(types.is_floating, kinds))
    return pa.float64() if smallest is None and floats else smallest


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the common type of two encodings of the same values, None if there is none.

    Text and unordered categories give text, since pandas numbers the categories of each part separately. Lists of null
    type take the item type of the others.

    Example:
        >>> common_type(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int16(), pa.string()))
        DataType(string)
        >>> common_type(pa.list_(pa.null()), pa.large_list(pa.string()))
        LargeListType(large_list<item: string>)
        >>> common_type(pa.list_(pa.int8()), pa.list_(pa.int64()))
    """
    if _is_list(one) and _is_list(other):
        inner = _inside(one.value_type, other.value_type)
        large = types.is_large_list(one) or types.is_large_list(other)
        return inner and (pa.large_list(inner) if large else pa.list_(inner))
    texts = [_text(one), _text(other)]
    return None if None in texts or one == other else pa.large_string() if pa.large_string() in texts else pa.string()


def _inside(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one == other or types.is_null(other):
        return one
    return other if types.is_null(one) else common_type(one, other)


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _text(kind: pa.DataType) -> pa.DataType | None:
    """Return the text type of text or of unordered categories of text, None for other types."""
    if types.is_dictionary(kind) and not kind.ordered:
        kind = kind.value_type
    return kind if types.is_string(kind) or types.is_large_string(kind) else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _digits(kind: pa.DataType) -> int:
    """Return the binary digits of an integer type, without the sign."""
    return int(kind.bit_width) - bool(types.is_signed_integer(kind))
