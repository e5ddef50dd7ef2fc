"""Rows in groups of equal length, whatever the batches they come in."""

from collections.abc import Iterator

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.sizes import parse_bytes
from corgipile.tables.arrow.flatbuffers import FREE_ROWS
from corgipile.tables.io.pieces import join
from corgipile.tables.row_bytes import fixed_row_bytes

__all__ = ["Groups"]


class Groups:
    """Collects rows until a group is full.

    Args:
        size: Rows of a group (int), or bytes ("1MB"), which the first rows make a number of rows where rows differ.
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
        self.waiting = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; yield the groups that they fill."""
        if not batch.num_rows:
            return
        if not self._length:
            self._length = max(1, min(FREE_ROWS, self._bytes * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, self._length):
            self._pending.append(batch.slice(start, self._length))
            self.waiting += self._pending[-1].num_rows
            if self.waiting >= self._length:
                joined = join(self._pending)
                self._pending = [joined.slice(self._length)]
                self.waiting = self._pending[0].num_rows
                yield joined.slice(0, self._length)

    def rest(self) -> pa.RecordBatch | None:
        """Return the rows of the last group, None if there are none."""
        return join(self._pending) if self.waiting else None


def _length(size: int | str, schema: pa.Schema) -> int:
    """Return rows of a group, 0 if they depend on the first rows."""
    if isinstance(size, int):
        if size < 1:
            raise BadArgument(f"record_batch is {size} rows; at least 1 is right")
        return size
    wanted = parse_bytes(size, "record_batch")
    if wanted < 1:
        raise BadArgument(f"record_batch is {size!r}; at least 1 byte is right")
    width = fixed_row_bytes(schema)
    return max(1, wanted // width) if width else 0
