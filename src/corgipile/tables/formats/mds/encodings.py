"""Encodings of MDS columns, and their conversion to Arrow columns."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.tables.formats.mds.images import IMAGES
from corgipile.tables.formats.mds.stored import Encoding, Stored
from corgipile.tables.spans import array_of

__all__ = ["DTYPES", "SHAPES", "encoding_of"]

SCALARS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
DTYPES = {  # codes in arrays whose dtype is stored per row
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
SHAPES = ("<u1", "<u2", "<u4", "<u8")


def encoding_of(name: str, encoding: str, sample: Stored) -> Encoding:
    """Return the encoding of a column.

    Args:
        name: The column.
        encoding: The encoding in the index: ``"int"``, ``"ndarray:float32:3,4"``.
        sample: Some of its values, for arrays whose type and shape are stored per row.

    Raises:
        BadSchema: The index has an invalid array type.
    """
    base, _, parameters = encoding.partition(":")
    if base == "int" or base in SCALARS:
        dtype = np.dtype("int64" if base == "int" else base)
        return Encoding(pa.from_numpy_dtype(dtype), partial(_numbers, dtype=dtype, shape=()))
    if base == "ndarray":
        return _array_encoding(name, parameters, sample)
    if base in ("str", "json", "str_decimal"):
        return Encoding(pa.string(), _text)
    if base in ("str_int", "str_float"):
        kind = pa.int64() if base == "str_int" else pa.float64()
        return Encoding(kind, partial(_parse_numbers, kind=kind))
    if base in IMAGES:
        return IMAGES[base]
    return Encoding(pa.binary(), _blobs, whole=True)


def _array_encoding(name: str, parameters: str, sample: Stored) -> Encoding:
    dtype_name, _, dims = parameters.partition(":")
    if dtype_name and dtype_name not in SCALARS:
        raise BadSchema(f"column {name!r}: the array type must be one of {', '.join(SCALARS)}, got {dtype_name!r}")
    if dtype_name and dims:
        dtype, shape = np.dtype(dtype_name), tuple(map(int, dims.split(",")))
        return Encoding(_nested(dtype, shape), partial(_numbers, dtype=dtype, shape=shape))
    first = (
        _read_head(sample, 0, dtype_name) if len(sample.ends) > 1 else _Head(np.dtype(dtype_name or "float64"), (0,), 0)
    )
    shape = tuple(map(int, dims.split(","))) if dims else first.shape
    kind: pa.DataType = pa.from_numpy_dtype(first.dtype)
    for _ in shape:
        kind = pa.list_(kind)
    return Encoding(
        kind, partial(_arrays, dtype_name=dtype_name, dims=shape if dims else None, kind=kind, dtype=first.dtype)
    )


def _nested(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> pa.DataType:
    kind: pa.DataType = pa.from_numpy_dtype(dtype)
    for side in reversed(shape):
        kind = pa.list_(kind, side)
    return kind


class _Head(NamedTuple):
    """Dtype and shape in the head of an array, and the bytes of the head."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    size: int


def _read_head(stored: Stored, row: int, dtype_name: str, dims: tuple[int, ...] | None = None) -> _Head:
    """Read the head of an array whose type or shape is stored per row."""
    data = stored.data[stored.ends[row] : stored.ends[row + 1]]
    at = 0 if dtype_name else 1
    code = 0 if dtype_name or not len(data) else int(data[0])
    shape: tuple[int, ...] = dims or ()
    if dims is None and len(data) > at:
        axes, width = int(data[at]) >> 2, int(data[at]) & 3
        end = at + 1 + axes * (1 << width)
        shape = tuple(int(side) for side in data[at + 1 : end].view(SHAPES[width])) if end <= len(data) else ()
        at = end
    if (not dtype_name and code not in DTYPES) or not shape:
        raise BadValue(f"{stored.place(row)} must be a numeric array")
    return _Head(np.dtype(dtype_name or DTYPES[code]), shape, at)


def _numbers(stored: Stored, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> pa.Array:
    """Return a column of fixed-width values."""
    column = array_of(stored.data.view(dtype.newbyteorder("<")).astype(dtype, copy=False))
    for side in reversed(shape):
        column = pa.FixedSizeListArray.from_arrays(column, side)
    return column


def _arrays(
    stored: Stored, dtype_name: str, dims: tuple[int, ...] | None, kind: pa.DataType, dtype: np.dtype[np.generic]
) -> pa.Array:
    """Return arrays of varying shapes as lists of any length."""
    rows, axes = len(stored.ends) - 1, 0
    inner = kind
    while pa.types.is_list(inner):
        inner, axes = inner.value_type, axes + 1
    found = [_read_head(stored, row, dtype_name, dims) for row in range(rows)]
    for row, head in enumerate(found):
        size = stored.ends[row + 1] - stored.ends[row] - head.size
        if head.dtype != dtype or len(head.shape) != axes:
            raise BadValue(
                f"{stored.place(row)} must be {dtype} with {axes} axes as in the first row, got {head.dtype} with "
                f"{len(head.shape)}"
            )
        if size != dtype.itemsize * int(np.prod(head.shape, dtype=np.int64)):
            raise BadValue(f"{stored.place(row)} must be an array of shape {head.shape}, got {size} bytes")
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
                raise BadValue(
                    f"{stored.place(row)} must be UTF-8 text, got {error.reason} at byte {error.start}"
                ) from None
        raise
    return column


def _parse_numbers(stored: Stored, kind: pa.DataType) -> pa.Array:
    """Parse numbers stored as text."""
    text = _text(stored)
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        for row, value in enumerate(text):
            try:
                value.cast(kind)
            except pa.ArrowInvalid:
                raise BadValue(f"{stored.place(row)} must be {kind}, got {value.as_py()!r}") from None
        raise
