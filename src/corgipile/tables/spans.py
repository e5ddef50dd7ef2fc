"""Zero-copy conversions between Arrow columns, NumPy arrays and Python objects."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.tables.layout import IntArray, fixed_field, is_bytes, is_list, is_wide, item_bytes

__all__ = ["Rows", "array_of", "flat", "floats", "objects", "places"]


def places(column: pa.Array) -> tuple[IntArray, int]:
    """Return the offsets of a column's rows in items, and the address they count from.

    Example:
        >>> places(pa.array([b"ab", b"", b"c"]))[0].tolist()
        [0, 2, 2, 3]
    """
    buffers = column.buffers()
    if is_list(column.type):
        data, shift = column.values.buffers()[1], column.values.offset
    else:
        data, shift = buffers[2], 0
    wide = np.int64 if is_wide(column.type) else np.int32
    raw = np.frombuffer(buffers[1], wide) if len(column) else np.zeros(1, np.int64)
    offsets = raw[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return offsets, (data.address if data is not None else 0) + shift * item_bytes(column.type)


def flat(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers without nulls as an array, without a copy except for booleans.

    Arrow's own conversion imports pandas if it is installed, which takes a second and 50 MB.

    Example:
        >>> flat(pa.array([1, 2, 3], pa.int16())[1:])
        array([2, 3], dtype=int16)
    """
    if pa.types.is_boolean(column.type):
        return flat(column.cast(pa.uint8())).view(np.bool_)
    fixed = fixed_field(column.type)
    if fixed is None:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if not len(column):
        return np.empty(0, fixed[0])
    return np.frombuffer(column.buffers()[1], fixed[0], column.offset + len(column))[column.offset :]


def floats(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers as `flat` does; as float64 with NaN for null, or times with NaT, if there are nulls.

    Example:
        >>> floats(pa.array([1, None], pa.int16()))
        array([ 1., nan])
    """
    if column.null_count and pa.types.is_temporal(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return flat(column.cast(pa.float64(), safe=False).fill_null(float("nan")) if column.null_count else column)


def array_of(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as a flat Arrow array, without a copy except for booleans and without pandas; see `flat`.

    Example:
        >>> array_of(np.array([[1, 2], [3, 4]], np.int16)).to_pylist()
        [1, 2, 3, 4]
    """
    items = np.ascontiguousarray(values).reshape(-1)
    data = np.packbits(items, bitorder="little") if items.dtype == np.bool_ else items
    return pa.Array.from_buffers(pa.from_numpy_dtype(items.dtype), len(items), [None, pa.py_buffer(data)], 0)


class Rows(Sequence[npt.NDArray[Any]]):
    """Rows of numbers in one flat array; each becomes an array on access, since many small arrays take much memory.

    Args:
        values: The numbers of all rows.
        ends: Start of each row, then the end of the last.

    Example:
        >>> list(Rows(np.arange(3), np.array([0, 2, 3])))
        [array([0, 1]), array([2])]
    """

    def __init__(self, values: npt.NDArray[Any], ends: IntArray) -> None:
        self.values, self.ends = values, ends

    @classmethod
    def joined(cls, parts: "Sequence[Rows]") -> Self:
        """Concatenate rows."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), np.append(0, np.cumsum(lengths)))

    @property
    def lengths(self) -> IntArray:
        """Return the length of each row."""
        return np.diff(self.ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, place: int) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> npt.NDArray[Any] | Self:
        if isinstance(place, int):
            start, stop = self.ends[range(len(self))[place]], self.ends[range(1, len(self) + 1)[place]]
            return self.values[start:stop]
        start, stop, _ = place.indices(len(self))
        ends = self.ends[start : stop + 1]
        return type(self)(self.values[ends[0] : ends[-1]], ends - ends[0])

    def split(self) -> list[npt.NDArray[Any]]:
        """Return one array per row, views of the numbers."""
        values, ends = self.values, self.ends.tolist()
        return [values[start:stop] for start, stop in pairwise(ends)]

    def taken(self, places: IntArray) -> Self:
        """Return rows by position."""
        return type(self).joined([self[:0], *(self[place : place + 1] for place in places.tolist())])


def objects(column: pa.Array, *, own: bool = False) -> Sequence[Any] | pa.Array:
    """Return one object per row (bytes, str or an array), or the column itself for other types and columns with nulls.

    Arrays are writable: they are copies, unless ``own`` states that the caller owns the column.

    Example:
        >>> objects(pa.array(["a", "bc"]))
        ['a', 'bc']
        >>> list(objects(pa.array([[1, 2], [3]])))
        [array([1, 2]), array([3])]
    """
    kind = column.type
    if not item_bytes(kind) or column.null_count or (is_list(kind) and column.values.null_count):
        return column
    offsets, base = places(column)
    if is_bytes(kind):
        address = (offsets[:-1] + base).astype(np.uint64)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return _kernel.gather_objects(address, np.diff(offsets), np.arange(len(column), dtype=np.int32), text)
    values = flat(column.values)[offsets[0] : offsets[-1]]
    return Rows(values if own and values.flags.writeable else values.copy(), offsets - offsets[0])
