"""Parsing and checks of arguments: sizes in rows, bytes or shares of a table; numbers, booleans, choices."""

import math
import numbers
import operator
import re
from typing import Any, Literal, get_args

from corgipile.errors import BadArgument, BadSize

__all__ = [
    "MAX_EPOCH",
    "OnBad",
    "Size",
    "choice",
    "format_bytes",
    "parse_bytes",
    "part_of",
    "real",
    "to_rows",
    "whole",
    "yes_or_no",
]

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
MAX_EPOCH = 1 << 62  # largest epoch: it and the next one fit 64-bit numbers everywhere
Size = int | str
OnBad = Literal["raise", "skip"]
_BYTES = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:([KMGT])(?:I?B)?|B)\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def whole(value: Any, what: str, least: int | None = None, most: int | None = None) -> int:
    """Return an integer of any type, also NumPy's, as an int.

    Raises:
        BadArgument: It is not an integer, or a bool, or out of bounds.

    Example:
        >>> whole(3, "batch_size", 1)
        3
        >>> whole(-1, "prefetch", 0, 64)
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: prefetch must be a whole number of 0 to 64, got -1
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        bounds = "" if least is None else f" of at least {least}" if most is None else f" of {least} to {most}"
        raise BadArgument(f"{what} must be a whole number{bounds}, got {value!r}")
    return number


def real(
    value: Any, what: str, least: float | None = None, most: float | None = None, above: float | None = None
) -> float:
    """Return a finite number of any type, also NumPy's, as a float.

    Raises:
        BadArgument: It is not a number, or a bool or text, or out of bounds.

    Example:
        >>> real(3, "l2")
        3.0
        >>> real("0.1", "learning_rate")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: learning_rate must be a finite number, got '0.1'
        >>> real(2, "decay", above=0, most=1)
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: decay must be above 0 and at most 1, got 2.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise BadArgument(f"{what} must be a finite number, got {value!r}")
    number = float(value)
    high_enough = (least is None or number >= least) and (above is None or number > above)
    if not high_enough or (most is not None and number > most):
        bounds = {f"above {above}": above, f"{least} or more": least, f"at most {most}": most}
        words = " and ".join(text for text, bound in bounds.items() if bound is not None)
        raise BadArgument(f"{what} must be {words}, got {number}")
    return number


def yes_or_no(value: Any, what: str) -> bool:
    """Return a bool, also NumPy's, as a bool.

    Raises:
        BadArgument: It is not a bool.

    Example:
        >>> yes_or_no(True, "intercept")
        True
    """
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise BadArgument(f"{what} must be True or False, got {value!r}")
    return bool(value)


def choice(value: Any, what: str, kind: Any) -> Any:
    """Return a value if it is among those of a ``Literal``.

    Raises:
        BadArgument: It is not.

    Example:
        >>> choice("drop", "on_bad", OnBad)
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: on_bad must be "raise" or "skip", got 'drop'
    """
    if value not in get_args(kind):
        names = " or ".join(f'"{option}"' for option in get_args(kind))
        raise BadArgument(f"{what} must be {names}, got {value!r}")
    return value


def parse_bytes(size: Size, what: str = "memory", whole: float | None = None) -> int:
    """Return the bytes of a size such as ``"64MB"``, ``"64M"`` or an int of bytes; 1 KB is 1024 bytes.

    Args:
        size: The size.
        what: Name of the parameter in messages.
        whole: Total bytes for shares such as ``"5%"``; None refuses shares.

    Raises:
        BadSize: The text does not parse, or the size is not positive.

    Example:
        >>> parse_bytes("256KB"), parse_bytes("1.5 MiB"), parse_bytes("1g"), parse_bytes(4096)
        (262144, 1572864, 1073741824, 4096)
        >>> parse_bytes("5%", whole=2000)
        100
    """
    match = _BYTES.fullmatch(size) if isinstance(size, str) else None
    share = _SHARE.fullmatch(size) if isinstance(size, str) and whole is not None else None
    if share and whole is not None:
        value = max(1, math.floor(whole * _share(size, share, what)))
    elif match:
        value = math.floor(float(match[1]) * float(1 << 10 * _POWERS[(match[2] or "").upper()]))
    elif isinstance(size, int) and not isinstance(size, bool):
        value = size
    else:
        or_share = "" if whole is None else ' or a share of the table such as "5%"'
        raise BadSize(f'{what} must be a size in bytes such as "64MB"{or_share}, got {size!r}')
    if value < 1:
        raise BadSize(f'{what} must be positive, got {size!r}; give bytes such as "64MB"')
    return value


def to_rows(size: Size, rows: int, row_bytes: float, what: str) -> int:
    """Return the rows, at least 1, of a size in rows (int), bytes (``"256KB"``) or a share of the table (``"2%"``).

    Args:
        size: The size.
        rows: Rows of the table.
        row_bytes: Bytes of one row.
        what: Name of the parameter in messages.

    Raises:
        BadSize: The text does not parse, or the size is not positive.

    Example:
        >>> to_rows(100, 5000, 40, "block"), to_rows("4KB", 5000, 40, "block"), to_rows("2%", 5000, 40, "buffer")
        (100, 102, 100)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 1:
            raise BadSize(f"{what} must be at least 1 row, got {size}")
        return size
    share = _SHARE.fullmatch(size) if isinstance(size, str) else None
    if share:
        return max(1, math.floor(rows * _share(size, share, what)))
    if not isinstance(size, str) or not _BYTES.fullmatch(size):
        raise BadSize(f'{what} must be rows (1000), bytes ("256KB") or a share of the table ("2%"), got {size!r}')
    return max(1, math.floor(parse_bytes(size, what) / row_bytes))


def _share(size: Size, match: re.Match[str], what: str) -> float:
    if not 0 < float(match[1]) <= 100:
        raise BadSize(f"{what} must be above 0% and at most 100%, got {size!r}")
    return float(match[1]) / 100


def part_of(size: Size, parts: int) -> Size:
    """Return a size divided by ``parts``; at least 1 if it is in rows.

    Example:
        >>> part_of(100, 3), part_of("4KB", 2), part_of("3%", 2)
        (33, '2KB', '1.5%')
    """
    if not isinstance(size, str):
        return max(1, size // parts)
    number = re.match(r"[\s\d.]*", size)[0]  # type: ignore[index]  # it matches anything
    return f"{float(number) / parts:.15g}{size[len(number) :].strip()}"


def format_bytes(count: float) -> str:
    """Format bytes with a unit.

    Example:
        >>> format_bytes(262144), format_bytes(1536), format_bytes(12)
        ('256 KB', '1.5 KB', '12 B')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1023.5:
            return f"{count:.3g} {unit}" if count < 999.5 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} TB"
