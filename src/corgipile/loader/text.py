"""Reads numbers out of text straight into slots."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

from corgipile.loader.buffer import Buffer
from corgipile.loader.readers import TableReader
from corgipile.orders.order import Step
from corgipile.tables.table import Table
from corgipile.tables.text.csv import CsvTable
from corgipile.tables.text.fields import Slots, slots_for

__all__ = ["TextReader"]

TOGETHER = 512 << 10  # bytes of text that a thread reads and parses at a time


class TextReader(TableReader):
    """Reads text as its table does, but numbers with no Arrow array in between.

    What the kernel is not sure of, such as a null, is left to the table: it says what is wrong with it.
    """

    def __init__(
        self, table: CsvTable, buffer: Buffer, sources: Sequence[str], size: int, slots: list[Slots | None]
    ) -> None:
        super().__init__(table, buffer, sources, size)
        self._text, self._slots, self._sure = table, slots, True
        self._most = max(1, min(TOGETHER, self._room) * len(table) // max(1, table.nbytes))

    @classmethod
    def of(cls, table: Table, buffer: Buffer, sources: Sequence[str], size: int) -> Self | None:
        """Return a reader; None where columns are no numbers of such text, or one is wanted twice."""
        if not isinstance(table, CsvTable) or buffer.varlen or not table.has_numbers:
            return None
        slots: list[Slots | None] = [None] * len(table.schema)
        for field in buffer.fields.values():
            array = buffer.dense(field.name)
            for source, begin in zip(field.sources, field.begins, strict=True):
                place = table.schema.get_field_index(source)
                found = slots_for(table.schema.field(place).type, array, begin * field.dtype.itemsize, field.row_bytes)
                if found is None or slots[place] is not None:
                    return None
                slots[place] = found
        return cls(table, buffer, sources, size, slots)

    def fill(self, step: Step, *, hurry: bool = True) -> None:
        """Read runs of rows into slots."""
        parts = list(self._parts(step)) if self._sure else [step]
        for part, nbytes in zip(parts, self._put(parts), strict=True):
            self._sure = self._sure and nbytes is not None
            if nbytes is None:
                super().fill(part, hurry=hurry)
            else:
                self._count(nbytes)

    def _put(self, parts: list[Step]) -> Iterator[int | None]:
        """Parse parts, each by a thread; return the bytes of each, None where it must be read as other tables are."""
        if not self._sure:
            return iter([None] * len(parts))
        if len(parts) == 1:
            return iter([self._put_part(parts[0])])
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "corgipile-reader")
        return self._pool.map(self._put_part, parts)

    def _put_part(self, part: Step) -> int | None:
        return self._text.put(part.extents, part.into, self._slots)

    def _parts(self, step: Step) -> Iterator[Step]:
        """Divide a step into parts of not too much text."""
        extents, into = step.extents, step.into
        if len(into) <= self._most:
            yield from [step] if len(into) else []
            return
        lengths = extents[:, 1] - extents[:, 0]
        ends = np.cumsum(lengths)
        for begin in range(0, len(into), self._most):
            end = min(begin + self._most, len(into))
            first, last = np.searchsorted(ends, [begin, end - 1], side="right")
            some = extents[first : last + 1].copy()
            some[0, 0] += begin - (ends[first] - lengths[first])
            some[-1, 1] -= ends[last] - end
            yield Step(some, into[begin:end], step.visit)
