"""Numeric codes of text, times and categories, so that block sketches can use them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadSchema
from corgipile.tables.spans import flat

__all__ = ["Numbered", "is_numbered"]

MAX_CODES = 1024  # classes that kernel/plan/sketch.h distinguishes
_WORDS = "is_string", "is_large_string", "is_binary", "is_large_binary", "is_fixed_size_binary"
_VIEWS = "is_string_view", "is_binary_view"
_TIMES = "is_timestamp", "is_date", "is_time", "is_duration"
_NUMBERS = "is_integer", "is_floating", "is_boolean", "is_decimal"


def is_numbered(kind: pa.DataType) -> bool:
    """Return whether a type has numeric codes: numbers, text, bytes, times, or categories of these.

    Example:
        >>> is_numbered(pa.string()), is_numbered(pa.list_(pa.int32()))
        (True, False)
    """
    if pa.types.is_dictionary(kind):
        return is_numbered(kind.value_type)
    return _is(kind, *_NUMBERS, *_TIMES, *_WORDS, *_VIEWS)


class Numbered:
    """Converts parts of a column to numbers, equal for equal values.

    Numbers are unchanged. Times become their stored integers. Text and bytes get codes in order of appearance, null
    included; all values from the 1024th on share one code.

    Args:
        name: The column.
        kind: Its type.

    Raises:
        BadSchema: The type has no numeric codes.

    Example:
        >>> column = Numbered("label", pa.string())
        >>> column.of(pa.array(["cat", None, "dog"])).to_pylist(), column.of(pa.array(["dog", "cat"])).to_pylist()
        ([0, 1, 2], [2, 0])
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        if not is_numbered(kind):
            raise BadSchema(f"column {name!r} must hold one number, text or time a row, got {kind}")
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        self.floating = _is(inner, "is_floating", "is_decimal")
        self._words = _is(inner, *_WORDS, *_VIEWS)
        self._known: dict[Any, int] = {}

    def of(self, part: pa.Array) -> pa.Array:
        """Return the numbers of the next part."""
        if self._words:
            return self._codes(part)
        if pa.types.is_dictionary(part.type):
            part = part.dictionary_decode()
        if _is(part.type, *_TIMES):
            return part.view(pa.int32() if part.type.bit_width == 32 else pa.int64())
        return part.cast(pa.float64()) if pa.types.is_decimal(part.type) else part

    def _codes(self, part: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(part.type):  # the dictionary may have many more values than rows
            part = part.dictionary_decode() if len(part.dictionary) > MAX_CODES else part
        if _is(part.type, *_VIEWS):
            part = part.cast(pa.large_binary())
        if not pa.types.is_dictionary(part.type):
            part = part.dictionary_encode(null_encoding="encode")
        codes = pa.array(self._codes_of(part.dictionary), pa.int32())
        result = codes.take(part.indices)
        return result.fill_null(self._code(None)) if result.null_count else result

    def _codes_of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of values; once all codes are taken, only known values are looked up."""
        numbers, at = np.full(len(values), MAX_CODES - 1, np.int32), 0
        while at < len(values) and len(self._known) < MAX_CODES - 1:
            some = values.slice(at, MAX_CODES).to_pylist()
            numbers[at : at + len(some)] = [self._code(value) for value in some]
            at += len(some)
        others = values.slice(at)
        known = pc.index_in(others, pa.array(list(self._known), others.type))
        numbers[at:] = flat(pc.fill_null(known, MAX_CODES - 1))
        return numbers

    def _code(self, value: Any) -> int:
        if value not in self._known and len(self._known) < MAX_CODES - 1:
            self._known[value] = len(self._known)
        return self._known.get(value, MAX_CODES - 1)


def _is(kind: pa.DataType, *names: str) -> bool:
    return any(getattr(pa.types, name)(kind) for name in names)
