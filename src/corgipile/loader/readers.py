"""Readers that put rows into slots: in the kernel from known places in files, or through the table's own reads."""

from collections.abc import Sequence
from typing import Protocol

from corgipile.loader.buffer import Buffer
from corgipile.loader.in_place import LayoutReader, movable
from corgipile.loader.mixed import MixReader
from corgipile.loader.remote import RemoteLayoutReader, RemoteTableReader
from corgipile.loader.table_reader import TableReader
from corgipile.loader.text import TextReader
from corgipile.loader.varlen_reader import VarlenReader
from corgipile.orders.order import Step
from corgipile.tables.io.descriptors import POOL
from corgipile.tables.io.remote import is_remote
from corgipile.tables.mixing import Mix
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table

__all__ = ["RowReader", "row_reader"]


class RowReader(Protocol):
    """Reads runs of rows into slots."""

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots and return when done; ``urgent``: the consumer waits for them."""

    def size(self, step: Step) -> int:
        """Return the variable-length bytes of a step, or 0 if they are unknown before reading."""

    def hint(self, step: Step) -> None:
        """Announce a step that later calls of `fill` read."""

    def idle(self) -> None:
        """Stop threads until the next read."""

    def close(self) -> None:
        """Close files and threads."""


def row_reader(
    table: Table, buffer: Buffer, sources: Sequence[str], size: int, *, sequential: bool, ahead: int = 0
) -> RowReader:
    """Choose the reader that fills a buffer of ``size`` bytes: in the kernel if every column lies at a known place.

    ``ahead``: bytes in flight from a remote store.
    """
    if isinstance(table, Mix):
        readers = [
            row_reader(source, buffer, sources, size, sequential=sequential, ahead=ahead // len(table.tables))
            for source in table.tables
        ]
        return MixReader(table, readers, ahead)
    place, fixed = table.location(sources), not buffer.varlen
    if ahead and is_remote(table):
        plain = fixed and place is not None and place.bits is None and not place.kept
        if place is not None and plain and all(movable(place.layout, buffer)):
            return RemoteLayoutReader(place.layout, buffer, ahead)
        return RemoteTableReader(table, buffer, sources, ahead, max(1.0, row_bytes(table, sources)))
    openable = place is not None and (place.bits is None or POOL.spare(len(place.layout.paths)))
    if place is not None and fixed and openable and all(movable(place.layout, buffer)):
        return LayoutReader(place, buffer, len(table), sequential=sequential)
    if place is not None and not fixed and VarlenReader.supports(place, buffer):
        return VarlenReader(table, place, buffer, sources, size, sequential=sequential)
    return TextReader.of(table, buffer, sources, size) or TableReader(table, buffer, sources, size)
