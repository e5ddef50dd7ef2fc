"""Rows of varying length into slots by the kernel: first the offsets that say where they lie, then their items."""

from collections.abc import Sequence

import numpy as np

from corgipile import _kernel
from corgipile.arrow_memory import Tidy
from corgipile.errors import CorruptFile, ReadFailed
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.in_place import LayoutReader, movable
from corgipile.orders.order import Step
from corgipile.tables.io.descriptors import POOL
from corgipile.tables.location import Location
from corgipile.tables.table import IntArray, Table, VarlenLayout

__all__ = ["VarlenReader"]


class VarlenReader(LayoutReader):
    """Reads rows of which some columns vary in length, where all lie at known places in files.

    The slots of a step are free when its size is asked for: what its rows take is known once their offsets are read,
    and where each row lies is noted with its slot.

    Args:
        table: The rows.
        found: Where they lie.
        buffer: Where they go.
        sources: The columns that are read.
        size: Bytes of the buffer.
        sequential: Whether rows are read as they lie.
    """

    def __init__(
        self, table: Table, found: Location, buffer: Buffer, sources: Sequence[str], size: int, *, sequential: bool
    ) -> None:
        super().__init__(found, buffer, len(table), sequential=sequential)
        self._table, self._sources = table, list(sources)
        self._located: Step | None = None  # the step whose offsets were read
        self._coming = 0  # bytes of it
        self._tidy = Tidy(max(size, buffer.limit or 0))

    @staticmethod
    def serves(found: Location, buffer: Buffer) -> bool:
        """Say whether the kernel reads all columns of a buffer from there: from files, that may be open at once."""
        columns = found.layout.columns
        lists = all(isinstance(columns[name], VarlenLayout) for name in buffer.varlen.names)
        return lists and not found.kept and all(movable(found.layout, buffer)) and POOL.spare(len(found.layout.paths))

    def _add_columns(self, reader: object) -> None:
        super()._add_columns(reader)
        for name in self._buffer.varlen.names:
            column = self._layout.columns[name]
            assert isinstance(column, VarlenLayout)  # noqa: S101 - asked before
            _kernel.reader_list(
                reader, column.starts, column.offsets, self._fds_of(column), column.items, column.counts,
                *self._buffer.varlen.places(name),
                item=column.item, wide=column.dtype == np.int64, text=column.text,
            )  # fmt: skip

    def _locate(self, step: Step, *, urgent: bool) -> None:
        """Read offsets, and the columns of fixed width."""
        if self._located is step:
            return
        self._located, self._coming = None, 0
        self.each(step, self._offsets, urgent=urgent)
        self._located = step

    def _offsets(
        self, reader: object, extents: IntArray, into: SlotArray, sweep: SlotArray | None, urgent: bool
    ) -> tuple[int, int, int] | None:
        failure = _kernel.reader_read(reader, extents, into, None, urgent)
        self._coming += _kernel.reader_listed(reader)
        return failure

    def _items(
        self, reader: object, extents: IntArray, into: SlotArray, sweep: SlotArray | None, urgent: bool
    ) -> tuple[int, int, int] | None:
        return self._buffer.varlen.read(reader, extents, into, urgent=urgent)

    def size(self, step: Step) -> int:
        """Return the bytes of varying length that a step will bring."""
        self._locate(step, urgent=True)
        return self._coming

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        self._locate(step, urgent=urgent)
        self._located = None
        self.each(step, self._items, urgent=urgent)
        self._tidy.passed(self._coming)

    def failure(self, code: int, fd: int, row: int) -> ReadFailed | CorruptFile:
        """Return the error of a reading that the kernel could not do; of a damaged row what the table says of it."""
        if code >= 0:
            return super().failure(code, fd, row)
        bits = self._found.bits
        number = row if bits is None else int(bits.before(np.array([row]))[0])
        try:
            self._table.read(number, number + 1, self._sources)
        except CorruptFile as error:
            return error
        path = self._layout.paths[self._fds.tolist().index(fd)]
        return CorruptFile(f"{path}: row {row} has offsets, or text, that cannot be")

    def hint(self, step: Step) -> None:
        """Do nothing: where items lie shows only when offsets are there."""
