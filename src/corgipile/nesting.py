"""Nesting limits of stored data, checked before recursive code reads them."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadSchema, CorruptFile

__all__ = ["MAX_DEPTH", "MAX_IPC_DEPTH", "MAX_SQL_DEPTH", "check_depth", "check_text", "check_types", "parse_json"]

MAX_DEPTH = 128  # levels of lists and objects
MAX_SQL_DEPTH = 1000  # open brackets of a statement, DuckDB's limit for expressions
MAX_FIELDS = 1 << 17  # of one column, since types that contain others twice double at every level
MAX_IPC_DEPTH = 62  # levels of a column's type that Arrow writes: its limit is 64 fields, the column's own included
Error = type[Exception]


def check_depth(depth: int, where: str, error: Error = CorruptFile, most: int = MAX_DEPTH) -> None:
    """Raise an error if data nest too deep.

    Example:
        >>> check_depth(129, "x.json")
        Traceback (most recent call last):
        ...
        corgipile.errors.CorruptFile: x.json must nest at most 128 levels deep, got 129; flatten it
    """
    if depth > most:
        raise error(f"{where} must nest at most {most} levels deep, got {depth}; flatten it")


def check_text(text: bytes | memoryview, where: str, error: Error = CorruptFile) -> None:
    """Raise an error if JSON nests deeper than `MAX_DEPTH`."""
    check_depth(_kernel.json_depth(text), where, error)


def parse_json(
    text: bytes | str, where: str, error: Error = CorruptFile, refuse: Callable[[str], Any] | None = None
) -> Any:
    """Parse untrusted JSON.

    Args:
        text: The JSON.
        where: Its name in messages.
        error: The class of the error to raise.
        refuse: Called for NaN and infinity; None accepts them.

    Raises:
        Exception: Of type ``error``: it is not JSON, or nests deeper than `MAX_DEPTH`.

    Example:
        >>> parse_json(b'{"rows": [1, 2]}', "x.json")
        {'rows': [1, 2]}
    """
    check_text(text.encode("utf-8", "replace") if isinstance(text, str) else text, where, error)
    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as reason:
        raise error(f"{where} is not JSON: {reason}") from None


def check_types(fields: Iterable[pa.Field], where: str, most: int = MAX_DEPTH) -> None:
    """Raise an error if a column's type nests too deep, or the name of a field is not text.

    Raises:
        BadSchema: A type nests deeper than ``most``, or has too many fields.
        UnicodeDecodeError: A name is not text, which pyarrow reports only when rows are read.
    """
    for field in fields:
        level, depth, count = [field], 0, 0
        while level:
            count += len(level)
            check_depth(depth, f"{where}: column {field.name!r}", BadSchema, most)
            if count > MAX_FIELDS:
                raise BadSchema(
                    f"{where}: column {field.name!r} must have at most {MAX_FIELDS} inner fields; flatten it"
                )
            level = [
                sub.type.field(i) for sub in level if str(sub.name) is not None for i in range(sub.type.num_fields)
            ]
            depth += 1
