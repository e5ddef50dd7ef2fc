"""Layouts of columns in files, and the column types that they describe."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.io.descriptors import Identity

__all__ = [
    "LIMIT",
    "NUMBERS",
    "ColumnLayout",
    "IntArray",
    "Layout",
    "Pieces",
    "VarlenLayout",
    "fixed_field",
    "is_bytes",
    "is_list",
    "is_text",
    "is_wide",
    "item_bytes",
    "type_code",
]

IntArray = npt.NDArray[np.int64]
Pieces = dict[tuple[int, ...], tuple[IntArray, npt.NDArray[np.int32]]]  # first rows and files, by ids of arrays
LIMIT = 1 << 31  # items that 32-bit offsets can address
# Keyed by type id, since comparing ids is fast and lookups are frequent.
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
NUMBERS = {kind.id: np.dtype(kind.to_pandas_dtype()) for kind in (*_WHOLE, pa.float16(), pa.float32(), pa.float64())}
_LISTS = {pa.list_(pa.int8()).id, pa.large_list(pa.int8()).id}
_BYTES = {pa.binary().id, pa.string().id, pa.large_binary().id, pa.large_string().id}
_TEXT = {pa.string().id, pa.large_string().id}
_WIDE = {pa.large_list(pa.int8()).id, pa.large_binary().id, pa.large_string().id}
_CODES = {
    np.dtype(kind): code for code, kind in enumerate(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"))
}


@dataclass(frozen=True)
class ColumnLayout:
    """The layout of one fixed-width column.

    Rows ``starts[i]`` up to ``starts[i + 1]`` are contiguous in file ``files[i]`` from byte ``offsets[i]``.

    Attributes:
        dtype: NumPy dtype of one element, native byte order.
        shape: Shape of one row; ``()`` for a scalar column.
        starts: int64[pieces + 1], first row of each piece, then the number of rows.
        files: int32[pieces], index into ``Layout.paths``; see also `corgipile.tables.location`.
        offsets: int64[pieces], bytes.
    """

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    starts: IntArray
    files: npt.NDArray[np.int32]
    offsets: IntArray

    @classmethod
    def joined(cls, kind: pa.DataType, starts: IntArray, offsets: IntArray) -> Self:
        """Return the layout of a column in one file, with contiguous pieces joined."""
        dtype, shape = fixed_field(kind) or (np.dtype("u1"), ())
        width = dtype.itemsize * math.prod(shape)
        if len(offsets) == 1:  # common in files with many columns
            return cls(dtype, shape, starts, np.zeros(1, np.int32), offsets)
        has_gap = offsets[:-1] + np.diff(starts[:-1]) * width != offsets[1:]
        fresh = np.flatnonzero(np.append(True, has_gap)[: len(offsets)])
        return cls(dtype, shape, np.append(starts[fresh], starts[-1]), np.zeros(len(fresh), np.int32), offsets[fresh])

    @property
    def width(self) -> int:
        """Return the bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape)

    def cut(self, starts: IntArray, pieces: IntArray, offsets: IntArray) -> Self:
        """Return the layout of parts of these pieces, which begin at ``offsets``."""
        return replace(self, starts=starts, files=self.files[pieces], offsets=offsets)

    def numbered(self, first: int) -> Self:
        """Return the layout with file numbers shifted by ``first``; pieces in memory are unchanged."""
        return replace(self, files=np.where(self.files < 0, self.files, self.files + first).astype(np.int32))

    @staticmethod
    def end_to_end(
        parts: "Sequence[ColumnLayout]", begins: IntArray, firsts: IntArray, known: Pieces
    ) -> "ColumnLayout":
        """Concatenate a column's layouts in several tables.

        Args:
            parts: The layouts.
            begins: First row of each, then the number of rows.
            firsts: Number of the first file of each.
            known: The rows and files of columns that were joined before, which most columns share.
        """
        key = tuple(id(array) for part in parts for array in (part.starts, part.files))
        if key not in known:
            starts = [part.starts[:-1] + begin for part, begin in zip(parts, begins, strict=False)]
            files = [part.numbered(first).files for part, first in zip(parts, firsts.tolist(), strict=False)]
            known[key] = np.concatenate([*starts, begins[-1:]]), np.concatenate(files)
        names = ["offsets", *(["items", "counts"] if isinstance(parts[0], VarlenLayout) else [])]
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return replace(parts[0], starts=known[key][0], files=known[key][1], **joined)


@dataclass(frozen=True)
class VarlenLayout(ColumnLayout):
    """The layout of one column of varying length: lists of numbers, text or bytes, without nulls.

    A piece is an array of ``rows + 1`` item offsets of ``dtype``, relative to the first item of the piece.

    Attributes:
        items: int64[pieces], byte of the first item of each piece, in the same file.
        counts: int64[pieces], number of items.
        item: Bytes of an item.
        text: Whether rows are text, which must be UTF-8.
    """

    items: IntArray
    counts: IntArray
    item: int
    text: bool

    def cut(self, starts: IntArray, pieces: IntArray, offsets: IntArray) -> Self:
        """Return the layout of parts of these pieces, whose item offsets begin at ``offsets``."""
        return replace(super().cut(starts, pieces, offsets), items=self.items[pieces], counts=self.counts[pieces])


@dataclass(frozen=True)
class Layout:
    """The layout of several columns, which the kernel reads without Arrow objects.

    Attributes:
        paths: The files.
        columns: The layout of each column; of fixed width unless columns of varying length were requested.
        identities: The identities of the files when the table was opened; empty if unknown.
    """

    paths: tuple[str, ...]
    columns: Mapping[str, ColumnLayout]
    identities: tuple[Identity, ...] = ()


def fixed_field(kind: pa.DataType) -> tuple[np.dtype[np.generic], tuple[int, ...]] | None:
    """Return the dtype and row shape of a fixed-width column type, None for other types.

    Booleans give None, since Arrow packs them into bits.
    """
    shape: tuple[int, ...] = ()
    while (dtype := NUMBERS.get(kind.id)) is None and pa.types.is_fixed_size_list(kind):
        shape, kind = (*shape, kind.list_size), kind.value_type
    return None if dtype is None else (dtype, shape)


def type_code(dtype: np.dtype[np.generic]) -> int:
    """Return the kernel's code of a dtype, -1 if it has none; half floats count as 16-bit integers."""
    return _CODES.get(np.dtype("u2") if dtype == np.float16 else dtype, -1)


def is_list(kind: pa.DataType) -> bool:
    """Return whether rows of a type are lists of any length."""
    return kind.id in _LISTS


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether rows of a type are binary or text of any length."""
    return kind.id in _BYTES


def is_text(kind: pa.DataType) -> bool:
    """Return whether rows of a type are text of any length."""
    return kind.id in _TEXT


def is_wide(kind: pa.DataType) -> bool:
    """Return whether the offsets of a type have 64 bits."""
    return kind.id in _WIDE


def item_bytes(kind: pa.DataType) -> int:
    """Return the bytes of one item of a list of numbers or a string, 0 for other types."""
    if is_bytes(kind):
        return 1
    fixed = fixed_field(kind.value_type) if is_list(kind) else None
    return int(fixed[0].itemsize) if fixed and not fixed[1] else 0
