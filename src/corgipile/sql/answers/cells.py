"""Values of a result as text or as JSON values."""

import json
import math
from datetime import date, time
from decimal import Decimal
from functools import singledispatch
from typing import Any

import pyarrow as pa

__all__ = ["NULL", "is_number", "json_values", "texts"]

NULL = "NULL"
_FLOAT_DIGITS = 15  # decimal digits that a 64-bit float represents exactly
_MAX_NUMBER_WIDTH = 9  # characters; longer floats are rounded
_JOINERS = "\u200c\u200d"  # zero-width characters that some scripts need


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are right-aligned.

    Example:
        >>> is_number(pa.float32()), is_number(pa.string())
        (True, False)
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def texts(column: pa.Array, *, most: int = 1000) -> list[str]:
    r"""Format the values of a column for tables: one line each, escaped control characters, NULL as text.

    At most ``most`` characters are needed of a value; one more is returned to reveal that it is longer.

    Example:
        >>> texts(pa.array([0.1, 0.6931471805599453, None])), texts(pa.array(["two\nlines"]))
        (['0.1', '0.693147', 'NULL'], ['two\\nlines'])
    """
    return [NULL if value is None else _text(value)[: most + 1] for value in _values(column, most)]


def json_values(column: pa.Array) -> list[Any]:
    """Return the values of a column for JSON: dates as text, bytes in hexadecimal, NaN and infinity as null.

    Example:
        >>> json_values(pa.array([1.5, float("nan")])), json_values(pa.array([b"ab"]))
        ([1.5, None], ['6162'])
    """
    return [_plain(value) for value in _values(column)]


def _values(column: pa.Array, most: int | None = None) -> list[Any]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _values(column.storage, most) if kind.extension_name != "arrow.uuid" else _by_one(column)
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode(), most)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        try:  # Python's types end with the year 9999 and have no nanoseconds
            return list(column.cast(pa.string()).to_pylist())
        except pa.ArrowException:
            pass
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [None if not one.is_valid else _values(one.values[:most]) for one in column]
    return _by_one(column)


def _by_one(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):  # a value that Python cannot represent
        return [f"<{column.type}>" if one.is_valid else None for one in column]


@singledispatch
def _text(value: Any) -> str:
    return clean(str(value))


@_text.register
def _(value: bool) -> str:
    return str(value).lower()


@_text.register
def _(value: float) -> str:
    """Format a number: in full if short, else with six significant digits, but all digits before the point."""
    exact = str(value)
    if len(exact) <= _MAX_NUMBER_WIDTH or not math.isfinite(value):
        return exact
    return f"{value:.2f}" if 1e5 <= abs(value) < 1e15 else f"{value:.6g}"


@_text.register
def _(value: bytes) -> str:
    return f"\\x{value.hex()}"


@_text.register
def _(value: list) -> str:  # type: ignore[type-arg]
    return f"[{', '.join(map(_inner, value))}]"


@_text.register
def _(value: dict) -> str:  # type: ignore[type-arg]
    return f"{{{', '.join(f'{_inner(name)}: {_inner(one)}' for name, one in value.items())}}}"


@_text.register
def _(value: pa.MonthDayNano) -> str:
    """Format an interval: ``1 year 2 months -3 days 04:05:06.5``."""
    months, days, nanoseconds = value
    years = int(months / 12)
    counts = ((years, "year"), (months - 12 * years, "month"), (days, "day"))
    parts = [f"{count} {unit}{'s' * (abs(count) != 1)}" for count, unit in counts if count]
    if nanoseconds or not parts:
        seconds, left = divmod(abs(nanoseconds), 10**9)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append("-" * (nanoseconds < 0) + clock + f".{left:09}".rstrip("0").rstrip("."))
    return " ".join(parts)


def _inner(value: Any) -> str:
    return NULL if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _text(value)


def clean(text: str) -> str:
    r"""Escape the characters that a terminal cannot show: line ends, control characters, invalid text.

    Example:
        >>> clean("a\tb"), clean("\x1b[31m")
        ('a\\tb', '\\x1b[31m')
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _JOINERS else one.encode("unicode_escape").decode() for one in text
    )


@singledispatch
def _plain(value: Any) -> Any:
    return str(value)


@_plain.register(type(None))
@_plain.register(str)
@_plain.register(int)
def _same(value: Any) -> Any:
    return value


@_plain.register
def _(value: float) -> float | None:
    return value if math.isfinite(value) else None


@_plain.register
def _(value: Decimal) -> Any:
    """Return a number if JSON readers keep its digits, else text."""
    if not value.is_finite():
        return None
    if value == value.to_integral_value():
        return int(value)
    return float(value) if len(value.as_tuple().digits) <= _FLOAT_DIGITS else str(value)


@_plain.register
def _(value: bytes) -> str:
    return value.hex()


@_plain.register
def _(value: pa.MonthDayNano) -> str:
    return _text(value)


@_plain.register(date)
@_plain.register(time)
def _when(value: Any) -> str:
    return str(value.isoformat())


@_plain.register
def _(value: dict) -> dict[str, Any]:  # type: ignore[type-arg]
    return {str(name): _plain(one) for name, one in value.items()}


@_plain.register(list)
@_plain.register(tuple)
def _many(value: Any) -> list[Any]:
    return [_plain(one) for one in value]
