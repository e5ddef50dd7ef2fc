"""Reads of a mix: each source's rows by the reader of that source."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from corgipile.orders.order import Step
from corgipile.tables.mixing import Mix

if TYPE_CHECKING:
    from corgipile.loader.readers import RowReader

__all__ = ["MixReader"]


class MixReader:
    """Divides each step among the sources' readers.

    ``ahead``: bytes in flight from stores; 0 for local sources.
    """

    def __init__(self, table: Mix, readers: Sequence["RowReader"], ahead: int = 0) -> None:
        self._table, self._readers, self.ahead = table, list(readers), ahead
        self._divided: tuple[Step, list[tuple[RowReader, Step]]] | None = None  # cached: `size` precedes `fill`

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""
        return sum(reader.bytes_read for reader in self._readers)

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        for reader, part in self._parts(step):
            reader.fill(part, urgent=urgent)

    def size(self, step: Step) -> int:
        """Return the variable-length bytes of a step, or 0 if a source does not know."""
        sizes = [reader.size(part) for reader, part in self._parts(step)]
        return sum(sizes) if all(sizes) else 0

    def hint(self, step: Step) -> None:
        """Do nothing: dividing a step takes as long as the announcement saves."""

    def _parts(self, step: Step) -> "list[tuple[RowReader, Step]]":
        if self._divided is None or self._divided[0] is not step:
            self._divided = step, list(self._divide(step))
        return self._divided[1]

    def _divide(self, step: Step) -> "Iterator[tuple[RowReader, Step]]":
        for number, places, rows in self._table.shares(step.extents):
            edges = np.flatnonzero(np.diff(rows) != 1)
            extents = np.stack([rows[np.append(0, edges + 1)], rows[np.append(edges, len(rows) - 1)] + 1], axis=1)
            yield self._readers[number], Step(extents, step.into[places], step.visit[:0])

    def idle(self) -> None:
        """Stop threads until the next read."""
        for reader in self._readers:
            reader.idle()

    def close(self) -> None:
        """Close files and threads."""
        for reader in self._readers:
            reader.close()
