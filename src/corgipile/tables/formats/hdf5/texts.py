"""Variable-length text and lists of numbers in HDF5: references into global heaps, read without h5py."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.tables.arrays.stored import Stored
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import Recent
from corgipile.tables.table import IntArray

__all__ = ["REFERENCE", "Texts"]

REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("number", "<u4")])  # for addresses of 8 bytes
HEAP = struct.Struct("<4sB3xQ")  # head of a heap: mark, version, bytes
ITEM = struct.Struct("<HH4xQ")  # head of a text: number, reference count, bytes
HEAP_MARK, VERSION = b"GCOL", 1
MAX_HEAPS, MAX_CACHED_BYTES = 64, 4 << 20  # heaps cached, mostly of 4 KB, and bytes of all
Heap = tuple[bytes, dict[int, tuple[int, int]]]


class Texts:
    """An array of variable-length text, or of the bytes of lists of numbers.

    Args:
        file: The file.
        references: Reference of each text.
        item: Bytes of a number.
    """

    dtype = np.dtype(object)

    def __init__(self, file: File, references: Stored, item: int = 1) -> None:
        self._file, self._references, self._item = file, references, item
        self.shape, self.chunk = references.shape, references.chunk
        self._heaps: Recent[Heap] = Recent(MAX_HEAPS)
        self._cached_bytes = 0

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows, each row as bytes."""
        references = self._references.get(starts, stops)
        texts = np.empty(len(references), object)
        for row, (length, place, number) in enumerate(references.tolist()):
            texts[row] = self._text(length * self._item, place, number) if length else b""
        return texts

    def lengths(self, starts: IntArray, stops: IntArray) -> IntArray:
        """Return the bytes of each text without reading it."""
        return self._references.get(starts, stops)["length"].astype(np.int64) * self._item

    def _text(self, length: int, place: int, number: int) -> bytes:
        data, items = self._heaps.get(place, lambda: self._heap(place))
        start, size = items.get(number, (0, -1))
        if length > size:
            raise CorruptFile(f"{self._file.path}: the heap at byte {place} has no text {number} of {length} bytes")
        return data[start : start + length]

    def _heap(self, place: int) -> Heap:
        """Read a heap up to its first incomplete item."""
        mark, version, size = HEAP.unpack(self._file.read(place, HEAP.size))
        if mark != HEAP_MARK or version != VERSION or size < HEAP.size:
            raise CorruptFile(f"{self._file.path}: byte {place} must begin a heap of texts")
        self._cached_bytes += size
        if self._cached_bytes > MAX_CACHED_BYTES:
            self._heaps.clear()
            self._cached_bytes = size
        data, items, at = self._file.read(place, size), {}, HEAP.size
        while at + ITEM.size <= size:
            number, _, length = ITEM.unpack_from(data, at)
            at += ITEM.size
            if not number or at + length > size:  # free space
                break
            items[number] = (at, length)
            at += -(-length // 8) * 8
        return data, items
