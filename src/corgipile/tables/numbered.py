"""Numbers for what is none, so that blocks can be described by text, times and categories as well."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadSchema
from corgipile.tables.arrow.spans import flat

__all__ = ["Numbered", "is_numbered"]

MOST = 1024  # classes that kernel/plan/sketch.h tells apart
_WORDS = "is_string", "is_large_string", "is_binary", "is_large_binary", "is_fixed_size_binary"
_VIEWS = "is_string_view", "is_binary_view"
_TIMES = "is_timestamp", "is_date", "is_time", "is_duration"
_NUMBERS = "is_integer", "is_floating", "is_boolean", "is_decimal"


def is_numbered(kind: pa.DataType) -> bool:
    """Say whether a column of this type holds what can be numbered: numbers, text, bytes, times, or categories of them.

    Example:
        >>> is_numbered(pa.string()), is_numbered(pa.list_(pa.int32()))
        (True, False)
    """
    if pa.types.is_dictionary(kind):
        return is_numbered(kind.value_type)
    return _is(kind, *_NUMBERS, *_TIMES, *_WORDS, *_VIEWS)


class Numbered:
    """Turns the parts of one column into numbers, the same for the same value in each.

    Numbers stay what they are. Times count what they are stored in. Text and bytes are numbered as they come, what is
    missing like any other; from the 1024th value on all others count as one.

    Args:
        name: The column.
        kind: Its type.

    Raises:
        BadSchema: It cannot be numbered.

    Example:
        >>> column = Numbered("label", pa.string())
        >>> column.of(pa.array(["cat", None, "dog"])).to_pylist(), column.of(pa.array(["dog", "cat"])).to_pylist()
        ([0, 1, 2], [2, 0])
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        if not is_numbered(kind):
            raise BadSchema(f"column {name!r} is {kind}; a column of numbers, text or times is needed, one a row")
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        self.floating = _is(inner, "is_floating", "is_decimal")
        self._words = _is(inner, *_WORDS, *_VIEWS)
        self._known: dict[Any, int] = {}

    def of(self, part: pa.Array) -> pa.Array:
        """Return the numbers of the rows that come next."""
        if self._words:
            return self._codes(part)
        if pa.types.is_dictionary(part.type):
            part = part.dictionary_decode()
        if _is(part.type, *_TIMES):
            return part.view(pa.int32() if part.type.bit_width == 32 else pa.int64())
        return part.cast(pa.float64()) if pa.types.is_decimal(part.type) else part

    def _codes(self, part: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(part.type):  # perhaps of many more values than rows
            part = part.dictionary_decode() if len(part.dictionary) > MOST else part
        if _is(part.type, *_VIEWS):
            part = part.cast(pa.large_binary())
        if not pa.types.is_dictionary(part.type):
            part = part.dictionary_encode(null_encoding="encode")
        codes = pa.array(self._numbers(part.dictionary), pa.int32())
        found = codes.take(part.indices)
        return found.fill_null(self._code(None)) if found.null_count else found

    def _numbers(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the numbers of values; once all are given away, only those are made objects of that have one."""
        numbers, at = np.full(len(values), MOST - 1, np.int32), 0
        while at < len(values) and len(self._known) < MOST - 1:
            some = values.slice(at, MOST).to_pylist()
            numbers[at : at + len(some)] = [self._code(value) for value in some]
            at += len(some)
        rest = values.slice(at)
        found = pc.index_in(rest, pa.array(list(self._known), rest.type))
        numbers[at:] = flat(pc.fill_null(found, MOST - 1))
        return numbers

    def _code(self, value: Any) -> int:
        if value not in self._known and len(self._known) < MOST - 1:
            self._known[value] = len(self._known)
        return self._known.get(value, MOST - 1)


def _is(kind: pa.DataType, *names: str) -> bool:
    return any(getattr(pa.types, name)(kind) for name in names)
