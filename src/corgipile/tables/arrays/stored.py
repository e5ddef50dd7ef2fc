"""Stored arrays with rows on the first axis: in place, in memory, or in chunks decoded whole."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadSchema, CorruptFile
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import Recent
from corgipile.tables.table import IntArray

__all__ = [
    "Chunked",
    "Field",
    "InPlace",
    "MemoryArray",
    "Stored",
    "check_chunks",
    "check_item",
    "decoding_bytes",
    "row_width",
]

MAX_CHUNKS, MAX_ITEM_BYTES = 1 << 24, 16 << 20  # chunks of an array; bytes of a value
LARGE_CHUNK = 4 << 20  # bytes from which on one decoded chunk is cached instead of two
MAX_RECENT = 2  # decoded chunks cached: one that two threads read in part, and the next

Array = npt.NDArray[Any]


class Stored(Protocol):
    """An array read by runs of its first axis.

    Attributes:
        dtype: Type of the values, of any byte order; object for variable-length text.
        shape: Shape, rows first.
        chunk: Rows decoded together; 0 if single rows can be read.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunk: int

    def get(self, starts: IntArray, stops: IntArray) -> Array:
        """Read and concatenate runs of rows."""


def row_width(stored: Stored) -> int:
    """Return the bytes of a row."""
    return int(stored.dtype.itemsize) * int(np.prod(stored.shape[1:], dtype=object))


def decoding_bytes(stored: Stored) -> int:
    """Return the memory for decoding a chunk; 0 if single rows can be read."""
    return stored.chunk * row_width(stored) * getattr(stored, "copies", 1)


def check_item(dtype: np.dtype[Any], where: str) -> None:
    """Raise BadSchema if a value is too large to be read."""
    if int(dtype.itemsize) > MAX_ITEM_BYTES:
        raise BadSchema(f"{where} must hold values of at most {MAX_ITEM_BYTES} bytes, got {dtype.itemsize}")


def check_chunks(arrays: Iterable[Stored], where: str) -> None:
    """Raise BadSchema if the stated rows have too many chunks to list."""
    for array in arrays:
        if array.chunk and array.shape[0] // array.chunk > MAX_CHUNKS:
            stated = f"{array.shape[0]} rows in chunks of {array.chunk}"
            raise BadSchema(
                f"{where} must have at most {MAX_CHUNKS} chunks of rows, got {stated}; rewrite it in larger chunks"
            )


class MemoryArray:
    """An array in memory.

    Example:
        >>> MemoryArray(np.arange(5)).get(np.array([0, 3]), np.array([1, 5]))
        array([0, 3, 4])
    """

    chunk = 0

    def __init__(self, array: Array) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def get(self, starts: IntArray, stops: IntArray) -> Array:
        """Return concatenated runs of rows."""
        parts = [self.array[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class InPlace:
    """An array whose rows are stored uncompressed in a file, in pieces.

    Args:
        file: The file.
        dtype: Type of its numbers.
        shape: Shape, rows first.
        starts: First row of each piece, then the number of rows.
        offsets: File offset of each piece.
    """

    chunk = 0

    def __init__(
        self, file: File, dtype: np.dtype[Any], shape: tuple[int, ...], starts: IntArray, offsets: IntArray
    ) -> None:
        self.file, self.dtype, self.shape, self.starts, self.offsets = file, dtype, shape, starts, offsets
        ends = offsets + np.diff(starts) * row_width(self)
        if len(offsets) and (int(offsets.min()) < 0 or int(ends.max()) > file.size):
            raise CorruptFile(
                f"{file.path} is truncated or damaged: an array of {shape[0]} rows ends at byte {int(ends.max())}, "
                f"the file has {file.size} bytes"
            )

    def get(self, starts: IntArray, stops: IntArray) -> Array:
        """Read runs of rows in one call."""
        first = np.searchsorted(self.starts, starts, side="right") - 1
        counts = np.where(stops > starts, np.searchsorted(self.starts, stops, side="left") - first, 0)
        run = np.repeat(np.arange(len(starts)), counts)
        piece = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
        low, high = np.maximum(starts[run], self.starts[piece]), np.minimum(stops[run], self.starts[piece + 1])
        width = row_width(self)
        data = self.file.gather(self.offsets[piece] + (low - self.starts[piece]) * width, (high - low) * width)
        return data.view(self.dtype).reshape(-1, *self.shape[1:])


class Chunked:
    """An array in chunks of rows; the last may be shorter.

    Args:
        dtype: Type of decoded values.
        shape: Shape, rows first.
        chunk: Rows of a chunk.
        decode: Returns the rows of a chunk by its number.
        inner: Lengths of a chunk along the other axes, which may exceed those of the array.

    Example:
        >>> stored = Chunked(np.dtype(int), (5,), 2, lambda i: np.arange(2 * i, min(2 * i + 2, 5)))
        >>> stored.get(np.array([0, 3]), np.array([1, 5]))
        array([0, 3, 4])
    """

    copies = 2  # of a chunk while it is decoded: unpacked bytes and array

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        chunk: int,
        decode: Callable[[int], Array],
        inner: Sequence[int] = (),
    ) -> None:
        self.dtype, self.shape, self.chunk, self._decode = dtype, shape, chunk, decode
        self.copies = max(self.copies, -(-self.copies * math.prod(inner) // max(1, math.prod(shape[1:]))))
        self._recent: Recent[Array] = Recent(MAX_RECENT)

    def get(self, starts: IntArray, stops: IntArray) -> Array:
        """Read runs of rows, decoding their chunks."""
        out, at = np.empty((int((stops - starts).sum()), *self.shape[1:]), self.dtype), 0
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            for i in range(start // self.chunk, -(-stop // self.chunk) if stop > start else 0):
                base = i * self.chunk
                low, high = max(start, base), min(stop, base + self.chunk)
                out[at : at + high - low] = self._rows(i, low - base, high - base)
                at += high - low
        return out

    def _rows(self, i: int, low: int, high: int) -> Array:
        """Return rows of a chunk; a chunk read in part is cached."""
        rows = min(self.chunk, self.shape[0] - i * self.chunk)
        whole = high - low == rows
        return self._decode(i) if whole else self._recent.get(i, lambda: self._decode_cached(i))[low:high]

    def _decode_cached(self, i: int) -> Array:
        """Decode a chunk for the cache, which holds one large chunk at most."""
        if self.chunk * row_width(self) > LARGE_CHUNK:
            self._recent.clear()
        return self._decode(i)


class Field:
    """A field of a structured array; ``Fetch`` reads all its fields once.

    Args:
        whole: The array.
        name: The field.
    """

    def __init__(self, whole: Stored, name: str) -> None:
        kind = whole.dtype[name]
        self.whole, self.name, self.chunk = whole, name, whole.chunk
        self.dtype, self.shape = kind.base, (*whole.shape, *kind.shape)

    def get(self, starts: IntArray, stops: IntArray) -> Array:
        """Read runs of rows."""
        rows: Array = self.whole.get(starts, stops)[self.name]
        return rows
