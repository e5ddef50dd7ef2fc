"""Which types of numbers keep every value of others."""

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["DIGITS", "checked", "keeps", "smallest"]

types = pa.types
DIGITS = {16: 11, 32: 24, 64: 53}  # of whole numbers that floats of so many bits keep
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


def keeps(wanted: pa.DataType, kind: pa.DataType) -> bool:
    """Say whether a type of numbers keeps every value of another.

    Example:
        >>> [keeps(pa.float64(), kind) for kind in (pa.float32(), pa.int32(), pa.int64())]
        [True, True, False]
        >>> keeps(pa.int64(), pa.uint32()), keeps(pa.int32(), pa.uint32()), keeps(pa.uint32(), pa.int8())
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


def checked(wanted: pa.DataType, kind: pa.DataType) -> bool:
    """Say whether a type is double, and another of whole numbers, of which it keeps those that are not too large.

    Programs that know no null among whole numbers, such as pandas, write a part that has some as double.

    Example:
        >>> checked(pa.float64(), pa.int64()), checked(pa.float64(), pa.int32()), checked(pa.float32(), pa.int64())
        (True, False, False)
    """
    return bool(types.is_float64(wanted) and types.is_integer(kind) and not keeps(wanted, kind))


def smallest(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the smallest type of numbers that keeps every value of all; None where none does, or one is no number.

    Of 64-bit integers beside floats that is double, though it does not keep the largest: who reads them looks.

    Example:
        >>> smallest([pa.int32(), pa.float32()]), smallest([pa.int8(), pa.uint8()])
        (DataType(double), DataType(int16))
        >>> smallest([pa.int64(), pa.float32()]), smallest([pa.int64(), pa.uint64()])
        (DataType(double), None)
    """
    found = next((one for one in _NUMBERS if all(keeps(one, kind) for kind in kinds)), None)
    floats = all(map(_is_number, kinds)) and any(map(types.is_floating, kinds))
    return pa.float64() if found is None and floats else found


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _digits(kind: pa.DataType) -> int:
    """Return the binary digits of an integer, without its sign."""
    return int(kind.bit_width) - bool(types.is_signed_integer(kind))
