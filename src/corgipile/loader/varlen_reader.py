"""Kernel reads of variable-length rows into slots: their offsets first, then their items."""

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
    """Reads variable-length rows that lie at known places in files.

    `size` reads the step's offsets into its free slots: they give the bytes of its rows and the places of its items.
    """

    def __init__(
        self, table: Table, place: Location, buffer: Buffer, sources: Sequence[str], size: int, *, sequential: bool
    ) -> None:
        super().__init__(place, buffer, len(table), sequential=sequential)
        self._table, self._sources = table, list(sources)
        self._located: Step | None = None  # step whose offsets are read
        self._coming = 0  # variable-length bytes of that step
        self._tidy = Tidy(max(size, buffer.limit or 0))

    @staticmethod
    def supports(place: Location, buffer: Buffer) -> bool:
        """Return whether the kernel can read all columns of a buffer from files, which must all be open at once."""
        columns = place.layout.columns
        lists = all(isinstance(columns[name], VarlenLayout) for name in buffer.varlen.names)
        return lists and not place.kept and all(movable(place.layout, buffer)) and POOL.spare(len(place.layout.paths))

    def _add_columns(self, reader: object) -> None:
        super()._add_columns(reader)
        for name in self._buffer.varlen.names:
            column = self._layout.columns[name]
            assert isinstance(column, VarlenLayout)  # noqa: S101 - checked by `supports`
            _kernel.reader_list(
                reader, column.starts, column.offsets, self._fds_of(column), column.items, column.counts,
                *self._buffer.varlen.places(name),
                item=column.item, wide=column.dtype == np.int64, text=column.text,
            )  # fmt: skip

    def _locate(self, step: Step, *, urgent: bool) -> None:
        """Read a step's offsets and fixed-width columns."""
        if self._located is step:
            return
        self._located, self._coming = None, 0
        self.run_parts(step, self._offsets, urgent=urgent)
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
        """Return the variable-length bytes of a step."""
        self._locate(step, urgent=True)
        return self._coming

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        self._locate(step, urgent=urgent)
        self._located = None
        self.run_parts(step, self._items, urgent=urgent)
        self._tidy.passed(self._buffer.varlen.freed())

    def failure(self, code: int, fd: int, row: int) -> ReadFailed | CorruptFile:
        """Return the error of a failed read; for a damaged row the table's own error."""
        if code >= 0:
            return super().failure(code, fd, row)
        bits = self._location.bits
        number = row if bits is None else int(bits.before(np.array([row]))[0])
        try:
            self._table.read(number, number + 1, self._sources)
        except CorruptFile as error:
            return error
        path = self._layout.paths[self._fds.tolist().index(fd)]
        return CorruptFile(f"{path}: row {row} has invalid offsets or text")

    def hint(self, step: Step) -> None:
        """Do nothing: the items' places are unknown until their offsets are read."""
