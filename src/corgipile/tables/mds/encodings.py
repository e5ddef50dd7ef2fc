"""How the values of MDS columns are stored, and what Arrow columns they make."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.mds.images import IMAGES
from corgipile.tables.mds.stored import Encoding, Stored

__all__ = ["DTYPES", "SHAPES", "encoding_of"]

SCALARS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
DTYPES = {  # of arrays that say it row by row
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
SHAPES = ("<u1", "<u2", "<u4", "<u8")


def encoding_of(name: str, said: str, sample: Stored) -> Encoding:
    """Return the encoding of a column.

    Args:
        name: The column.
        said: What the index says: ``"int"``, ``"ndarray:float32:3,4"``.
        sample: Some of its values; arrays that say their type and shape row by row are told by them.

    Raises:
        BadSchema: The index says something impossible.
    """
    word, _, more = said.partition(":")
    if word == "int" or word in SCALARS:
        dtype = np.dtype("int64" if word == "int" else word)
        return Encoding(pa.from_numpy_dtype(dtype), partial(_numbers, dtype=dtype, shape=()))
    if word == "ndarray":
        return _array_encoding(name, more, sample)
    if word in ("str", "json", "str_decimal"):
        return Encoding(pa.string(), _text)
    if word in ("str_int", "str_float"):
        kind = pa.int64() if word == "str_int" else pa.float64()
        return Encoding(kind, partial(_parsed, kind=kind))
    if word in IMAGES:
        return IMAGES[word]
    return Encoding(pa.binary(), _blobs, whole=True)


def _array_encoding(name: str, more: str, sample: Stored) -> Encoding:
    said, _, sides = more.partition(":")
    if said and said not in SCALARS:
        raise BadSchema(f"column {name!r} is said to hold arrays of {said!r}; one of {', '.join(SCALARS)} is right")
    if said and sides:
        dtype, shape = np.dtype(said), tuple(map(int, sides.split(",")))
        return Encoding(_nested(dtype, shape), partial(_numbers, dtype=dtype, shape=shape))
    first = _headed(sample, 0, said) if len(sample.ends) > 1 else _Head(np.dtype(said or "float64"), (0,), 0)
    shape = tuple(map(int, sides.split(","))) if sides else first.shape
    kind: pa.DataType = pa.from_numpy_dtype(first.dtype)
    for _ in shape:
        kind = pa.list_(kind)
    return Encoding(kind, partial(_arrays, said=said, sides=shape if sides else None, kind=kind, dtype=first.dtype))


def _nested(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> pa.DataType:
    kind: pa.DataType = pa.from_numpy_dtype(dtype)
    for side in reversed(shape):
        kind = pa.list_(kind, side)
    return kind


class _Head(NamedTuple):
    """What an array says of itself, and the bytes that takes."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    size: int


def _headed(stored: Stored, row: int, said: str, sides: tuple[int, ...] | None = None) -> _Head:
    """Read the head of an array whose type, or shape, is not said for all."""
    data = stored.data[stored.ends[row] : stored.ends[row + 1]]
    at = 0 if said else 1
    code = 0 if said or not len(data) else int(data[0])
    shape: tuple[int, ...] = sides or ()
    if sides is None and len(data) > at:
        axes, width = int(data[at]) >> 2, int(data[at]) & 3
        end = at + 1 + axes * (1 << width)
        shape = tuple(int(side) for side in data[at + 1 : end].view(SHAPES[width])) if end <= len(data) else ()
        at = end
    if (not said and code not in DTYPES) or not shape:
        raise BadValue(f"{stored.place(row)} is no array of numbers")
    return _Head(np.dtype(said or DTYPES[code]), shape, at)


def _numbers(stored: Stored, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> pa.Array:
    """Take values that all have the same bytes."""
    column = array_of(stored.data.view(dtype.newbyteorder("<")).astype(dtype, copy=False))
    for side in reversed(shape):
        column = pa.FixedSizeListArray.from_arrays(column, side)
    return column


def _arrays(
    stored: Stored, said: str, sides: tuple[int, ...] | None, kind: pa.DataType, dtype: np.dtype[np.generic]
) -> pa.Array:
    """Take arrays, each of its own shape, as lists of any length."""
    rows, axes = len(stored.ends) - 1, 0
    inner = kind
    while pa.types.is_list(inner):
        inner, axes = inner.value_type, axes + 1
    found = [_headed(stored, row, said, sides) for row in range(rows)]
    for row, head in enumerate(found):
        size = stored.ends[row + 1] - stored.ends[row] - head.size
        if head.dtype != dtype or len(head.shape) != axes:
            raise BadValue(
                f"{stored.place(row)} is {head.dtype} of {len(head.shape)} axes; the first row is {dtype} of {axes}"
            )
        if size != dtype.itemsize * int(np.prod(head.shape, dtype=np.int64)):
            raise BadValue(f"{stored.place(row)} has {size} bytes, which are no array of shape {head.shape}")
    parts = [stored.data[stored.ends[row] + head.size : stored.ends[row + 1]] for row, head in enumerate(found)]
    values = np.concatenate([np.empty(0, np.uint8), *parts]).view(dtype)
    return _lists(array_of(values), [head.shape for head in found], kind)


def _lists(values: pa.Array, shapes: list[tuple[int, ...]], kind: pa.DataType) -> pa.Array:
    """Nest values in lists, from the innermost axis outwards."""
    axes = len(shapes[0]) if shapes else 0
    column = values if shapes else pa.nulls(0, kind)
    for axis in reversed(range(axes)):
        lengths = [np.full(int(np.prod(shape[:axis], dtype=np.int64)), shape[axis]) for shape in shapes]
        ends = np.append(0, np.cumsum(np.concatenate(lengths))).astype(np.int32)
        column = pa.ListArray.from_arrays(array_of(ends), column)
    return column


def _blobs(stored: Stored) -> pa.Array:
    offsets = pa.py_buffer(stored.ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(stored.ends) - 1, [None, offsets, pa.py_buffer(stored.data)])


def _text(stored: Stored) -> pa.Array:
    column = _blobs(stored).view(pa.string())
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row in range(len(column)):
            try:
                stored.bytes(row).decode()
            except UnicodeDecodeError as error:
                raise BadValue(f"{stored.place(row)} is no UTF-8 text: {error.reason} at byte {error.start}") from None
        raise
    return column


def _parsed(stored: Stored, kind: pa.DataType) -> pa.Array:
    """Read numbers written as text."""
    text = _text(stored)
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        for row, value in enumerate(text):
            try:
                value.cast(kind)
            except pa.ArrowInvalid:
                raise BadValue(f"{stored.place(row)} is {value.as_py()!r}; {kind} is right") from None
        raise
