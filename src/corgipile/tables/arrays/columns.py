"""Columns of Arrow made of stored arrays: numbers, text, categories, structures, sparse rows."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile
from corgipile.tables.arrays.stored import Field, InPlace, Stored, row_width
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.numpy import nested
from corgipile.tables.table import LIMIT, IntArray

__all__ = ["Categorical", "Column", "Fetch", "Lists", "Nullable", "Numbers", "Text", "column_of", "field_columns"]

TEXT_BYTES = 32  # of a text of any length, where nothing was read of it
SAMPLE = 64
Made = TypeVar("Made")


class Fetch:
    """Runs of rows that are being read: each array is read once, whatever the columns made of it.

    Args:
        starts: First row of each run.
        stops: Row after the last of each.
    """

    def __init__(self, starts: IntArray, stops: IntArray) -> None:
        self.starts, self.stops = starts, stops
        self._made: dict[int, Any] = {}

    def __call__(self, stored: Stored) -> npt.NDArray[Any]:
        """Return the rows of an array."""
        if isinstance(stored, Field):
            found: npt.NDArray[Any] = self(stored.whole)[stored.name]
            return found
        return self.once(stored, lambda: stored.get(self.starts, self.stops))

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """Return what was made for this object, made now if it was not."""
        if id(key) not in self._made:
            self._made[id(key)] = make()
        made: Made = self._made[id(key)]
        return made


class Column(Protocol):
    """A column.

    Attributes:
        kind: Its type.
        stored: What its rows are made of.
        width: Bytes of a row in memory, about.
    """

    kind: pa.DataType
    stored: Sequence[Stored]
    width: float

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows that are being read."""

    def edges(self) -> IntArray | None:
        """Return the rows at which units of decoding begin, then the number of rows; None where there are no units."""

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of rows, where these are found without others; None where that is not known."""


class _Even:
    """A column of arrays that have a row for each of its rows."""

    stored: Sequence[Stored]

    def edges(self) -> IntArray | None:
        """Return where chunks begin, of the array that has the largest."""
        chunk, rows = max(one.chunk for one in self.stored), self.stored[0].shape[0]
        return None if not chunk else np.append(np.arange(0, rows, chunk, dtype=np.int64), np.int64(rows))

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return nothing: lengths are not known."""
        return None


class Numbers(_Even):
    """Numbers or truth values, lists of one length of them where rows have a shape."""

    def __init__(self, stored: Stored) -> None:
        self.stored, self._one = (stored,), stored
        self.kind: pa.DataType = pa.from_numpy_dtype(stored.dtype.newbyteorder("="))
        for size in reversed(stored.shape[1:]):
            self.kind = pa.list_(self.kind, size)
        self.width = float(row_width(stored))

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of rows."""
        return np.full(len(rows), int(self.width), np.int64)

    def in_place(self) -> InPlace | None:
        """Return where the kernel may read the rows; None where it cannot."""
        if self._one.dtype.kind == "b" or not self._one.dtype.isnative:
            return None
        unpacked = getattr(self._one, "unpacked", None)
        one = self._one if unpacked is None else unpacked()
        return one if isinstance(one, InPlace) else None

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        values = fetch(self._one)
        return nested(values.astype(values.dtype.newbyteorder("="), copy=False), self._one.shape[1:])


class Text(_Even):
    """Text, of any length or padded.

    Args:
        stored: Text of NumPy, or bytes of it.
        where: What an error calls the column.
        binary: Whether bytes stay bytes.
    """

    def __init__(self, stored: Stored, where: str, *, binary: bool = False) -> None:
        self.stored, self._one, self._where = (stored,), stored, where
        self.kind = pa.binary() if binary else pa.string()
        self.width = float(stored.dtype.itemsize if stored.dtype.kind in "SU" else TEXT_BYTES)

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of rows, those of text of any length by a few of them."""
        if self.kind != pa.string():
            return None
        return np.full(len(rows), int(self.width) if self._one.dtype.kind in "SU" else self._mean, np.int64)

    @cached_property
    def _mean(self) -> int:
        """Return the bytes of a text, by some at the beginning, the middle and the end."""
        rows = self._one.shape[0]
        starts = np.unique(np.maximum(0, np.array([0, rows // 2, rows - SAMPLE])))
        found = text_array(self._one.get(starts, np.minimum(starts + SAMPLE, rows)), self.kind, self._where)
        return int(found.nbytes / max(1, len(found)))

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        return text_array(fetch(self._one), self.kind, self._where)


def text_array(values: npt.NDArray[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Return text of NumPy's as Arrow has it.

    Raises:
        BadValue: Some is no UTF-8.
    """
    items = values.tolist()
    if any(isinstance(item, bytes) for item in items[:1]):
        made = pa.array(items, pa.binary())
        try:
            return made.cast(kind)
        except pa.ArrowInvalid as error:
            raise BadValue(f"{where} has bytes that are no UTF-8 text ({str(error).splitlines()[0][:100]})") from None
    return pa.array([item if isinstance(item, str) else None for item in items], kind)


class Categorical(_Even):
    """Categories by their codes; a code below 0 is a null.

    Args:
        codes: The codes.
        categories: What they stand for, in memory.
        ordered: Whether the categories have an order.
        where: What an error calls the column.
    """

    def __init__(self, codes: Stored, categories: pa.Array, where: str, *, ordered: bool = False) -> None:
        self.stored, self._codes, self._where = (codes,), codes, where
        self.categories = categories
        self.kind = pa.dictionary(pa.from_numpy_dtype(codes.dtype.newbyteorder("=")), categories.type, ordered)
        self.width = float(codes.dtype.itemsize + categories.nbytes / max(1, len(categories)))

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of what these rows stand for."""
        wanted, back = np.unique(rows, return_inverse=True)
        codes = self._codes.get(wanted, wanted + 1)
        each = np.append([len(str(value).encode()) for value in self.categories.to_pylist()], 0).astype(np.int64)
        return each[np.where((codes < 0) | (codes >= len(each)), -1, codes)][back]

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        codes = fetch(self._codes)
        codes = codes.astype(codes.dtype.newbyteorder("="), copy=False)
        if len(codes) and int(codes.max()) >= len(self.categories):
            raise CorruptFile(f"{self._where} has code {codes.max()}; there are {len(self.categories)} categories")
        known = codes >= 0
        made = array_of(codes) if known.all() else pa.array(codes, mask=~known)
        return pa.DictionaryArray.from_arrays(made, self.categories, ordered=self.kind.ordered)


class Nullable(_Even):
    """A column with a mask beside it, true where a row is null."""

    def __init__(self, values: Column, mask: Stored) -> None:
        self.stored, self._values, self._mask = (*values.stored, mask), values, mask
        self.kind, self.width = values.kind, values.width + 1

    def sizes(self, rows: IntArray) -> IntArray | None:
        """Return the bytes of rows."""
        return self._values.sizes(rows)

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        made, missing = self._values.array(fetch), fetch(self._mask).astype(bool, copy=False)
        known = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        return (
            made
            if not missing.any()
            else pa.Array.from_buffers(made.type, len(made), [known, *made.buffers()[1:]], offset=made.offset)
        )


class Lists(_Even):
    """Lists of numbers of any length, one array a row."""

    def __init__(self, stored: Stored, item: np.dtype[Any]) -> None:
        self.stored, self._one, self._item = (stored,), stored, item
        self.kind, self.width = pa.list_(pa.from_numpy_dtype(item.newbyteorder("="))), float(8 * item.itemsize)

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        rows = fetch(self._one)
        parts = [np.asarray(row, self._item.newbyteorder("=")) for row in rows]
        return list_array(self.kind, np.append(0, np.cumsum([len(part) for part in parts])), np.concatenate(parts))


def list_array(kind: pa.DataType, offsets: npt.NDArray[Any], values: npt.NDArray[Any]) -> pa.Array:
    """Return lists of numbers that lie one after another."""
    if offsets[-1] >= LIMIT:
        raise BadArgument(
            f"{len(offsets) - 1} rows of {offsets[-1]} numbers do not fit one batch; read fewer at a time"
        )
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, ends], children=[array_of(values)])


def column_of(stored: Stored, where: str, item: Any = None) -> Column:
    """Return what Arrow makes of an array.

    Args:
        stored: The array.
        where: What an error calls it.
        item: Of arrays of objects: ``str``, ``bytes``, or the dtype of lists.

    Raises:
        BadSchema: It holds what is no column.
    """
    kind = stored.dtype.kind
    if kind in "biuf" and stored.dtype.itemsize <= 8:
        if 0 in stored.shape[1:]:
            raise BadSchema(f"{where} has rows of shape {stored.shape[1:]}, which hold nothing")
        return Numbers(stored)
    flat = len(stored.shape) == 1
    if flat and (kind in "SUT" or item in (str, bytes)):
        return Text(stored, where, binary=item is bytes)
    if flat and kind == "O" and isinstance(item, np.dtype) and item.kind in "iuf":
        return Lists(stored, item)
    raise BadSchema(
        f"{where} is of {stored.dtype} and shape {stored.shape}; numbers up to 64 bits, truth values, and text with "
        "one axis are columns: columns=[...] names others"
    )


def field_columns(stored: Stored, where: str) -> dict[str, Column]:
    """Return the fields of an array of structures as columns."""
    if len(stored.shape) != 1:
        raise BadSchema(f"{where} is an array of structures of shape {stored.shape}; one axis is needed")
    return {name: column_of(Field(stored, name), f"{where}, field {name!r}") for name in stored.dtype.names or ()}
