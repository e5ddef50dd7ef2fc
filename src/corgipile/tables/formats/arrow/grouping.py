"""Regroups rows from batches of any length into groups of equal length."""

from collections.abc import Iterator

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.sizes import parse_bytes
from corgipile.tables.formats.arrow.flatbuffers import FREE_ROWS
from corgipile.tables.io.pieces import join
from corgipile.tables.row_bytes import fixed_row_bytes

__all__ = ["Groups"]

MAX_TIMES = 4  # largest ratio of a group's bytes to the requested ones


class Groups:
    """Collects rows until a group is full.

    Args:
        size: Rows of a group (int), or bytes ("1MB"); the first batch converts bytes to rows if rows vary in length.
            Groups of much longer rows have fewer.
        schema: Schema of the rows.

    Raises:
        BadArgument: The size is less than a row or a byte.

    Example:
        >>> groups = Groups(2, pa.schema([("x", pa.int64())]))
        >>> [len(group) for group in groups.add(pa.record_batch({"x": [1, 2, 3]}))], len(groups.rest())
        ([2], 1)
    """

    def __init__(self, size: int | str, schema: pa.Schema) -> None:
        self._length = _length(size, schema)
        self._bytes = 0 if isinstance(size, int) else parse_bytes(size, "record_batch")
        self._pending: list[pa.RecordBatch] = []
        self._limit = MAX_TIMES * self._bytes if not self._length else 0
        self._waiting_bytes = self.waiting = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows; yield the groups that they fill."""
        if not batch.num_rows:
            return
        if not self._length:
            self._length = max(1, min(FREE_ROWS, self._bytes * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, self._length):
            some = batch.slice(start, self._length)
            size = some.nbytes if self._limit else 0
            if self._waiting_bytes + size > self._limit and self.waiting:
                yield join(self._pending)
                self._pending, self._waiting_bytes, self.waiting = [], 0, 0
            self._pending.append(some)
            self.waiting += some.num_rows
            self._waiting_bytes += size
            if self.waiting >= self._length:
                joined = join(self._pending)
                self.waiting -= self._length
                self._pending = [joined.slice(self._length)] if self.waiting else []
                self._waiting_bytes = self._pending[0].nbytes if self.waiting and self._limit else 0
                yield joined.slice(0, self._length)

    def rest(self) -> pa.RecordBatch | None:
        """Return the rows of the last, incomplete group; None if it is empty."""
        return join(self._pending) if self.waiting else None


def _length(size: int | str, schema: pa.Schema) -> int:
    """Return the rows of a group, 0 if the first batch decides."""
    if isinstance(size, int):
        if size < 1:
            raise BadArgument(f"record_batch must be at least 1 row, got {size}")
        return size
    nbytes = parse_bytes(size, "record_batch")
    if nbytes < 1:
        raise BadArgument(f"record_batch must be at least 1 byte, got {size!r}")
    width = fixed_row_bytes(schema)
    return max(1, nbytes // width) if width else 0
