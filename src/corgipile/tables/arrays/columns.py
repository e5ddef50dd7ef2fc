"""Arrow columns of stored arrays: numbers, text, categories, nullable values, lists."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile
from corgipile.tables.arrays.stored import Field, InPlace, Stored, row_width
from corgipile.tables.formats.numpy import nested
from corgipile.tables.spans import array_of
from corgipile.tables.table import LIMIT, IntArray
from corgipile.tables.unit_check import sampled_runs

__all__ = ["Categorical", "Column", "Fetch", "Lists", "Nullable", "Numbers", "Text", "column_of", "field_columns"]

ASSUMED_TEXT_BYTES = 32  # of variable-length text, before any is read
SAMPLE_ROWS = 64  # rows of each of three samples
Value = TypeVar("Value")


class Fetch:
    """Runs of rows being read; an array that several columns share is read once.

    Args:
        starts: First row of each run.
        stops: Row after the last of each run.
    """

    def __init__(self, starts: IntArray, stops: IntArray) -> None:
        self.starts, self.stops = starts, stops
        self._cache: dict[int, Any] = {}

    def __call__(self, stored: Stored) -> npt.NDArray[Any]:
        """Return the rows of an array."""
        if isinstance(stored, Field):
            rows: npt.NDArray[Any] = self(stored.whole)[stored.name]
            return rows
        return self.once(stored, lambda: stored.get(self.starts, self.stops))

    def once(self, key: object, make: Callable[[], Value]) -> Value:
        """Return the cached value of an object; make it if it is missing."""
        if id(key) not in self._cache:
            self._cache[id(key)] = make()
        value: Value = self._cache[id(key)]
        return value


class Column(Protocol):
    """A column.

    Attributes:
        kind: Its type.
        stored: The arrays of its rows.
        width: Approximate bytes of a row in memory.
        longest: Bytes of the longest sampled value of varying length, 0 if lengths are unknown.
    """

    kind: pa.DataType
    stored: Sequence[Stored]
    width: float
    longest: int

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""

    def edges(self) -> IntArray | None:
        """Return the first row of each chunk, then the number of rows; None if the arrays are not chunked."""

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of each row; None if they are unknown."""


class _OneArrayPerColumn:
    """A column whose arrays have one entry per row."""

    stored: Sequence[Stored]
    longest = 0

    def edges(self) -> IntArray | None:
        """Return the chunk edges of the array with the largest chunks."""
        chunk, rows = max(array.chunk for array in self.stored), self.stored[0].shape[0]
        return None if not chunk else np.append(np.arange(0, rows, chunk, dtype=np.int64), np.int64(rows))

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return None: lengths are unknown."""
        return None


class Numbers(_OneArrayPerColumn):
    """Numbers or booleans; fixed-size lists of them if rows have a shape."""

    def __init__(self, stored: Stored) -> None:
        self.stored, self._array = (stored,), stored
        self.kind: pa.DataType = pa.from_numpy_dtype(stored.dtype.newbyteorder("="))
        for size in reversed(stored.shape[1:]):
            self.kind = pa.list_(self.kind, size)
        self.width = float(row_width(stored))

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of each row."""
        return np.full(len(rows), int(self.width), np.int64)

    def in_place(self) -> InPlace | None:
        """Return the array that the kernel can read in place; None if it cannot."""
        if self._array.dtype.kind == "b" or not self._array.dtype.isnative:
            return None
        unpacked = getattr(self._array, "inflated", None)
        array = self._array if unpacked is None else unpacked()
        return array if isinstance(array, InPlace) else None

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        values = fetch(self._array)
        return nested(values.astype(values.dtype.newbyteorder("="), copy=False), self._array.shape[1:])


def _sampled_lengths(stored: Stored) -> tuple[float, int]:
    """Return the mean and the largest length of sampled values, 0 if lengths are unknown."""
    lengths_of, rows = getattr(stored, "lengths", None), stored.shape[0]
    if lengths_of is None or not rows:
        return 0.0, 0
    lengths = lengths_of(*sampled_runs(rows))
    return max(1.0, float(lengths.mean())), int(lengths.max())


class Text(_OneArrayPerColumn):
    """Text of variable or fixed length.

    Args:
        stored: NumPy text, or its bytes.
        where: Name for error messages.
        binary: Whether bytes stay bytes.
    """

    def __init__(self, stored: Stored, where: str, *, binary: bool = False) -> None:
        self.stored, self._array, self._where = (stored,), stored, where
        self.kind = pa.binary() if binary else pa.string()
        self._lengths: Callable[[IntArray, IntArray], IntArray] | None = getattr(stored, "lengths", None)
        mean, self.longest = _sampled_lengths(stored)
        fixed = float(stored.dtype.itemsize) if stored.dtype.kind in "SU" else None
        self.width = fixed or mean or float(ASSUMED_TEXT_BYTES)

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of each row, estimated from a sample for variable-length text of unknown lengths."""
        if self.kind != pa.string():
            return None
        if self._lengths is not None:
            return self._lengths(rows, rows + 1)
        return np.full(len(rows), int(self.width) if self._array.dtype.kind in "SU" else self._mean, np.int64)

    @cached_property
    def _mean(self) -> int:
        """The mean bytes of a text, from samples at the beginning, the middle and the end."""
        rows = self._array.shape[0]
        starts = np.unique(np.maximum(0, np.array([0, rows // 2, rows - SAMPLE_ROWS])))
        sample = text_array(self._array.get(starts, np.minimum(starts + SAMPLE_ROWS, rows)), self.kind, self._where)
        return int(sample.nbytes / max(1, len(sample)))

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        return text_array(fetch(self._array), self.kind, self._where)


def text_array(values: npt.NDArray[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Return NumPy text as an Arrow array.

    Raises:
        BadValue: A text is not UTF-8.
    """
    items = values.tolist()
    if any(isinstance(item, bytes) for item in items[:1]):
        encoded = pa.array(items, pa.binary())
        try:
            return encoded.cast(kind)
        except pa.ArrowInvalid as error:
            raise BadValue(f"{where} must be UTF-8 text: {str(error).splitlines()[0][:100]}") from None
    return pa.array([item if isinstance(item, str) else None for item in items], kind)


class Categorical(_OneArrayPerColumn):
    """A dictionary column of category codes; negative codes are nulls.

    Args:
        codes: The codes.
        categories: The categories, in memory.
        ordered: Whether the categories have an order.
        where: Name for error messages.
    """

    def __init__(self, codes: Stored, categories: pa.Array, where: str, *, ordered: bool = False) -> None:
        self.stored, self._codes, self._where = (codes,), codes, where
        self.categories = categories
        self.kind = pa.dictionary(pa.from_numpy_dtype(codes.dtype.newbyteorder("=")), categories.type, ordered)
        self.width = float(codes.dtype.itemsize + categories.nbytes / max(1, len(categories)))

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of the category of each row."""
        wanted, inverse = np.unique(rows, return_inverse=True)
        codes = self._codes.get(wanted, wanted + 1)
        lengths = np.append([len(str(value).encode()) for value in self.categories.to_pylist()], 0).astype(np.int64)
        return lengths[np.where((codes < 0) | (codes >= len(lengths)), -1, codes)][inverse]

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        codes = fetch(self._codes)
        codes = codes.astype(codes.dtype.newbyteorder("="), copy=False)
        if len(codes) and int(codes.max()) >= len(self.categories):
            raise CorruptFile(
                f"{self._where}: codes must be below the {len(self.categories)} categories, got {codes.max()}"
            )
        valid = codes >= 0
        indices = array_of(codes) if valid.all() else pa.array(codes, mask=~valid)
        return pa.DictionaryArray.from_arrays(indices, self.categories, ordered=self.kind.ordered)


class Nullable(_OneArrayPerColumn):
    """A column with a null mask, true for nulls."""

    def __init__(self, values: Column, mask: Stored) -> None:
        self.stored, self._values, self._mask = (*values.stored, mask), values, mask
        self.kind, self.width = values.kind, values.width + 1

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of each row."""
        return self._values.sizes(rows)

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        values, null = self._values.array(fetch), fetch(self._mask).astype(bool, copy=False)
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
        return (
            values
            if not null.any()
            else pa.Array.from_buffers(values.type, len(values), [valid, *values.buffers()[1:]], offset=values.offset)
        )


class Lists(_OneArrayPerColumn):
    """Variable-length lists of numbers, one array per row."""

    def __init__(self, stored: Stored, item: np.dtype[Any]) -> None:
        self.stored, self._array, self._item = (stored,), stored, item
        mean, longest = _sampled_lengths(stored)
        self.kind, self.width = pa.list_(pa.from_numpy_dtype(item.newbyteorder("="))), mean or 8.0 * item.itemsize
        self.longest = longest

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        rows = fetch(self._array)
        read = [np.frombuffer(row, self._item) if isinstance(row, bytes) else row for row in rows]
        parts = [np.asarray(row, self._item.newbyteorder("=")) for row in read]
        return list_array(self.kind, np.append(0, np.cumsum([len(part) for part in parts])), np.concatenate(parts))


def list_array(kind: pa.DataType, offsets: npt.NDArray[Any], values: npt.NDArray[Any]) -> pa.Array:
    """Return a list array of contiguous numbers."""
    if offsets[-1] >= LIMIT:
        raise BadArgument(
            f"{len(offsets) - 1} rows do not fit one record batch: {offsets[-1]} numbers; read fewer rows"
        )
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, ends], children=[array_of(values)])


def column_of(stored: Stored, where: str, item: Any = None) -> Column:
    """Return the column of an array.

    Args:
        stored: The array.
        where: Name for error messages.
        item: Type of an array of objects: ``str``, ``bytes``, or the dtype of lists.
    """
    kind = stored.dtype.kind
    if kind in "biuf" and stored.dtype.itemsize <= 8:
        if 0 in stored.shape[1:]:
            raise BadSchema(f"{where}: rows must not be empty, got shape {stored.shape[1:]}")
        return Numbers(stored)
    flat = len(stored.shape) == 1
    if flat and (kind in "SUT" or item in (str, bytes)):
        return Text(stored, where, binary=item is bytes)
    if flat and kind == "O" and isinstance(item, np.dtype) and item.kind in "iuf":
        return Lists(stored, item)
    raise BadSchema(
        f"{where} must be numbers up to 64 bits, booleans, or text with one axis, got {stored.dtype} of shape "
        f"{stored.shape}; choose other arrays with columns=[...]"
    )


def field_columns(stored: Stored, where: str) -> dict[str, Column]:
    """Return the fields of a structured array as columns."""
    if len(stored.shape) != 1:
        raise BadSchema(f"{where}: a structured array must have one axis, got shape {stored.shape}")
    return {name: column_of(Field(stored, name), f"{where}, field {name!r}") for name in stored.dtype.names or ()}
