"""Texts of any length as HDF5 stores them: references into heaps, which are read without the library."""

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

REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("number", "<u4")])  # of files with addresses of 8 bytes
HEAP = struct.Struct("<4sB3xQ")  # its head: a mark, the version, its bytes
ITEM = struct.Struct("<HH4xQ")  # the head of each text: its number, how often it is referred to, its bytes
MARK, VERSION = b"GCOL", 1
KEPT = 64  # heaps in memory, mostly of 4 KB
Heap = tuple[bytes, dict[int, tuple[int, int]]]


class Texts:
    """Texts of any length.

    Args:
        file: The file.
        references: Where each text is.
    """

    dtype = np.dtype(object)

    def __init__(self, file: File, references: Stored) -> None:
        self._file, self._references = file, references
        self.shape, self.chunk = references.shape, references.chunk
        self._heaps: Recent[Heap] = Recent(KEPT)

    def get(self, starts: IntArray, stops: IntArray) -> npt.NDArray[Any]:
        """Read runs of rows, each as bytes."""
        found = self._references.get(starts, stops)
        made = np.empty(len(found), object)
        for row, (length, place, number) in enumerate(found.tolist()):
            made[row] = self._text(length, place, number) if length else b""
        return made

    def _text(self, length: int, place: int, number: int) -> bytes:
        data, items = self._heaps.get(place, lambda: self._heap(place))
        start, size = items.get(number, (0, -1))
        if length > size:
            raise CorruptFile(f"{self._file.path}: no text {number} of {length} bytes in the heap at byte {place}")
        return data[start : start + length]

    def _heap(self, place: int) -> Heap:
        """Read a heap; an item that is not whole ends it."""
        mark, version, size = HEAP.unpack(self._file.read(place, HEAP.size))
        if mark != MARK or version != VERSION or size < HEAP.size:
            raise CorruptFile(f"{self._file.path}: no heap of texts at byte {place}")
        data, items, at = self._file.read(place, size), {}, HEAP.size
        while at + ITEM.size <= size:
            number, _, length = ITEM.unpack_from(data, at)
            at += ITEM.size
            if not number or at + length > size:  # the rest is free
                break
            items[number] = (at, length)
            at += -(-length // 8) * 8
        return data, items
