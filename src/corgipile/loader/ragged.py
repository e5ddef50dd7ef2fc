"""Gathering of variable-length rows into one run of memory, one part after another."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.loader.array_pool import ArrayPool
from corgipile.tables.spans import Rows
from corgipile.tables.table import fixed_field, is_bytes, is_wide, item_bytes

__all__ = ["Lend", "Lender", "Ragged", "SlotArray", "Span"]

MAX_NARROW_ITEMS = (1 << 31) - 1  # items that 32-bit offsets reach
POOLED_PARTS = 16  # a budget's divisor for the memory that is reused: larger batches get memory of their own
Bytes = npt.NDArray[np.uint8]
SlotArray = npt.NDArray[np.int32]
Span = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]  # address and length of each slot's row
Lend = Callable[[int], Bytes]


class Lender:
    """Lends memory for rows, in multiples of ``step`` bytes; fresh pages cost more than filling them.

    Args:
        step: Bytes of the smallest piece.
        limit: Budget in bytes.
        pieces: Largest number of pieces to reuse.
    """

    def __init__(self, step: int, limit: int | None, pieces: int) -> None:
        self._step, self._pool = step, ArrayPool(pieces)
        self._largest = step if limit is None else max(step, limit // POOLED_PARTS)

    def lend(self, nbytes: int) -> Bytes:
        """Return memory for this many bytes; its values are undefined."""
        size = -(-max(nbytes, 1) // self._step) * self._step
        return self._pool.array(size, (), np.dtype(np.uint8)) if self.pooled(size) else np.empty(size, np.uint8)

    def pooled(self, nbytes: int) -> bool:
        """Return whether memory of this size is reused."""
        return nbytes <= self._largest


class Ragged:
    """Rows of one column, back to back, and their lengths."""

    def __init__(self, kind: pa.DataType, lend: Lend) -> None:
        self._kind, self._lend, self._item = kind, lend, item_bytes(kind)
        self._data, self._items = np.empty(0, np.uint8), 0
        self._lengths: list[npt.NDArray[np.int64]] = []

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return self._items * self._item

    @property
    def room(self) -> int:
        """Return the bytes of the lent memory."""
        return len(self._data)

    def add(self, span: Span, visit: SlotArray) -> bool:
        """Add the rows in these slots; return False if they are too long for the type's offsets."""
        lengths = span[1][visit]
        items = self._items + int(lengths.sum())
        if items > MAX_NARROW_ITEMS and not is_wide(self._kind):
            return False
        begin, end = self._items * self._item, items * self._item
        if end > len(self._data):
            data = self._lend(end)
            data[:begin] = self._data[:begin]
            self._data = data
        _kernel.gather_ragged(self._data[begin:end], *span, self._item, visit)
        self._items = items
        self._lengths.append(lengths)
        return True

    def column(self, *, arrow: bool) -> pa.Array | Rows:
        """Return the rows as an Arrow array, or lists of numbers as `Rows`."""
        kind, count = self._kind, sum(map(len, self._lengths))
        ends, data = np.zeros(count + 1, np.int64), self._data[: self._items * self._item]
        np.cumsum(np.concatenate(self._lengths), out=ends[1:])
        fixed = None if arrow else fixed_field(kind.value_type)
        if fixed is not None:
            return Rows(data.view(fixed[0]), ends)
        offsets = pa.py_buffer(ends if is_wide(kind) else ends.astype(np.int32))
        if is_bytes(kind):
            return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(data)])
        values = pa.Array.from_buffers(kind.value_type, self._items, [None, pa.py_buffer(data)])
        return pa.Array.from_buffers(kind, count, [None, offsets], children=[values])
