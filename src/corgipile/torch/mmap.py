"""Arrow data in mapped files: the byte ranges of rows, and prefetch advice to the system for these."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel

IntArray = npt.NDArray[np.int64]
types = pa.types

MAX_BYTES = 1 << 30


class Ranges(NamedTuple):
    """Ranges of memory: int64 addresses and int64 lengths in bytes."""

    address: IntArray
    length: IntArray


class Buffers:
    """Locates the bytes of one column, or of a nested level of it, in all record batches.

    A batch's buffers are located when first needed, so a large table opens at no cost.

    ``array`` returns the column of a record batch by the batch's number.
    """

    def __init__(self, kind: pa.DataType, array: Callable[[int], pa.Array], batches: int) -> None:
        if isinstance(kind, pa.BaseExtensionType):
            kind, array = kind.storage_type, _then(array, lambda outer: outer.storage)
        self._array = array
        self._buffers = np.full((batches, 4), -1, np.int64)  # first row, validity, first and second buffer; 0: absent
        self._offsets: dict[int, npt.NDArray[np.signedinteger]] = {}
        self._fixed_list = kind.list_size if types.is_fixed_size_list(kind) else 0
        self._listed = _offset_bits(kind)
        self._bits = self._listed or _value_bits(kind)
        self._inner: list[Buffers] = []
        if types.is_struct(kind):
            fields = range(kind.num_fields)
            self._inner = [Buffers(kind.field(i).type, _then(array, _field(i)), batches) for i in fields]
        elif self._fixed_list or types.is_list(kind) or types.is_large_list(kind):
            self._inner = [Buffers(kind.value_type, _then(array, lambda outer: outer.values), batches)]

    def ranges(self, batch: IntArray, start: IntArray, stop: IntArray) -> Iterator[Ranges]:
        """Yield the ranges of rows ``start`` to ``stop`` of batches; offsets before the values they point to."""
        self._find(batch)
        first, validity, one, two = self._buffers[batch].T
        inner_start, inner_stop = start, stop
        start, stop = start + first, stop + first
        yield _bits(validity, start, stop, 1)
        if self._bits:
            yield _bits(one, start, stop + (self._listed > 0), self._bits)
        if self._listed:
            inner_start, inner_stop = self._listed_rows(batch, start), self._listed_rows(batch, stop)
            if not self._inner:
                yield _bits(two, inner_start, inner_stop, 8)
        elif self._fixed_list:
            inner_start, inner_stop = start * self._fixed_list, stop * self._fixed_list
        for inner in self._inner:
            yield from inner.ranges(batch, inner_start, inner_stop)

    def _find(self, batches: IntArray) -> None:
        for batch in np.unique(batches[self._buffers[batches, 0] < 0]).tolist():
            array = self._array(batch)
            buffers = array.buffers()[:3]
            places = [buffer.address if buffer is not None else 0 for buffer in buffers]
            if self._listed and len(buffers) > 1 and buffers[1] is not None:
                self._offsets[batch] = np.frombuffer(buffers[1], f"i{self._listed // 8}")
            self._buffers[batch, 1 : 1 + len(places)] = places
            self._buffers[batch, 0] = array.offset  # last, since other threads read it

    def _listed_rows(self, batch: IntArray, row: IntArray) -> IntArray:
        """Return the first element of each row."""
        no_offsets = np.zeros(0, np.int32)
        pairs = zip(batch.tolist(), row.tolist(), strict=True)
        lookups = ((self._offsets.get(number, no_offsets), at) for number, at in pairs)
        return np.fromiter(
            (int(offsets[at]) if at < len(offsets) else 0 for offsets, at in lookups), np.int64, len(row)
        )


def _then(outer: Callable[[int], Any], get: Callable[[Any], pa.Array]) -> Callable[[int], pa.Array]:
    return lambda i: get(outer(i))


def _column(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: batch.column(name)


def _field(i: int) -> Callable[[pa.Array], pa.Array]:
    return lambda outer: outer.field(i)


def _offset_bits(kind: pa.DataType) -> int:
    """Return the bits per offset of a variable-length type, else 0."""
    if types.is_large_list(kind) or types.is_large_binary(kind) or types.is_large_string(kind):
        return 64
    return 32 if types.is_list(kind) or types.is_binary(kind) or types.is_string(kind) else 0


def _value_bits(kind: pa.DataType) -> int:
    """Return the bits per value in an array's first value buffer, 0 if absent or unknown."""
    if types.is_dictionary(kind):
        return int(kind.index_type.bit_width)
    plain = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) if plain else 0


def _bits(address: IntArray, start: IntArray, stop: IntArray, bits: int) -> Ranges:
    """Return the range of elements of ``bits`` bits; empty if the buffer is missing."""
    first = start * bits // 8
    length = np.clip((stop * bits + 7) // 8 - first, 0, MAX_BYTES)  # damaged offsets may hold any value
    return Ranges(address + first, np.where(address > 0, length, 0))


class Mapped:
    """Record batches in mapped files whose rows can be prefetched.

    Touching a row waits for each of its pages, and the system reads on for its read-ahead, perhaps megabytes. Announced
    rows are fetched concurrently, and only the pages they lie in.

    Example:
        >>> batch = pa.record_batch({"x": pa.array(range(10), pa.int64()), "s": pa.array(["abc"] * 10)})
        >>> rows = Mapped([batch], ["x", "s"], [])
        >>> [sorted(set(ranges.length.tolist())) for ranges in rows.ranges(np.array([3, 8]))]
        [[0], [0], [8], [8], [3]]
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: Sequence[str], paths: Iterable[str]) -> None:
        nonempty = [batch for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in nonempty)], dtype=np.int64)
        self._columns = [
            Buffers(nonempty[0].schema.field(name).type, _then(nonempty.__getitem__, _column(name)), len(nonempty))
            for name in (columns if nonempty else ())
        ]
        self._where = mappings(paths)
        self._advise(self._where, _kernel.ADVICE_RANDOM)

    def ranges(self, rows: IntArray) -> Iterator[Ranges]:
        """Yield the ranges of rows, all columns level by level: all offsets come before any is read."""
        batch = np.searchsorted(self._starts, rows, side="right") - 1
        start = rows - self._starts[batch]
        levels = zip_longest(*(column.ranges(batch, start, start + 1) for column in self._columns))
        yield from (ranges for level in levels for ranges in level if ranges is not None)

    def hint(self, rows: IntArray) -> None:
        """Start fetching rows; waits at most for the offsets of variable-length rows."""
        for ranges in self.ranges(rows):
            self._advise(ranges, _kernel.ADVICE_SOON)

    def now(self, rows: IntArray) -> None:
        """Wait until rows are in memory, without blocking other Python threads."""
        for ranges in self.ranges(rows):
            self._advise(ranges, _kernel.ADVICE_NOW)

    def close(self) -> None:
        """Restore the system's read-ahead."""
        self._advise(self._where, _kernel.ADVICE_NORMAL)

    @staticmethod
    def _advise(ranges: Ranges, what: int) -> None:
        # A failure only delays fetching until rows are touched.
        _kernel.advise(ranges.address, ranges.length, what)


def mappings(paths: Iterable[str]) -> Ranges:
    """Return where files are mapped in this process; empty if the system does not list mappings."""
    wanted, found = {str(Path(path).resolve()) for path in paths}, []
    table = Path("/proc/self/maps")
    for line in table.read_text().splitlines() if wanted and table.exists() else ():
        place = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ +(/.*)", line)
        if place and place[3] in wanted:
            found.append((int(place[1], 16), int(place[2], 16) - int(place[1], 16)))
    address, length = np.array(found, np.int64).reshape(-1, 2).T.copy()
    return Ranges(address, length)
