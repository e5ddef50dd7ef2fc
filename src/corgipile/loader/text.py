"""Reads numbers out of text straight into slots."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.readers import TableReader
from corgipile.orders.order import Step
from corgipile.tables.concat import ConcatTable
from corgipile.tables.io.pieces import places_of
from corgipile.tables.table import IntArray, Table
from corgipile.tables.text.csv import CsvTable
from corgipile.tables.text.fields import Slots, slots_for

__all__ = ["TextReader"]

TOGETHER = 512 << 10  # bytes of text that a thread reads and parses at a time


class TextReader(TableReader):
    """Reads text as its table does, but numbers with no Arrow array in between.

    What the kernel is not sure of, such as a null, is left to the table: it says what is wrong with it.
    """

    def __init__(
        self, table: Table, text: "CsvTable | _Files", buffer: Buffer, sources: Sequence[str], size: int,
        slots: list[Slots | None],
    ) -> None:  # fmt: skip
        super().__init__(table, buffer, sources, size)
        self._text, self._slots, self._sure = text, slots, True
        self._most = max(1, min(TOGETHER, self._room) * len(table) // max(1, table.nbytes))

    @classmethod
    def of(cls, table: Table, buffer: Buffer, sources: Sequence[str], size: int) -> Self | None:
        """Return a reader; None where columns are no numbers of such text, or one is wanted twice."""
        text = _text_of(table)
        if text is None or buffer.varlen:
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
        return cls(table, text, buffer, sources, size, slots)

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        parts = list(self._parts(step)) if self._sure else [step]
        for part, nbytes in zip(parts, self._put(parts), strict=True):
            self._sure = self._sure and nbytes is not None
            if nbytes is None:
                super().fill(part, urgent=urgent)
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


def _text_of(table: Table) -> "CsvTable | _Files | None":
    """Return what reads numbers of a table's text; None where it is no text, or the kernel does not read its fields."""
    if isinstance(table, CsvTable):
        return table if table.has_numbers else None
    if type(table) is not ConcatTable:
        return None
    files = [file for file in table.tables if isinstance(file, CsvTable) and file.has_numbers]
    alike = len(files) == len(table.tables) and all(file.schema.equals(table.schema) for file in files)
    return _Files(files) if alike else None


class _Files:
    """Files of the same columns, one after the other.

    Args:
        files: The files.
    """

    def __init__(self, files: Sequence[CsvTable]) -> None:
        self._files = files
        self._starts = np.cumsum([0, *map(len, files)], dtype=np.int64)

    def put(self, runs: IntArray, into: SlotArray, slots: list[Slots | None]) -> int | None:
        """Do the same as `CsvTable.put`, for runs that may go from one file into the next."""
        first = np.searchsorted(self._starts, runs[:, 0], side="right") - 1
        counts = np.maximum(np.searchsorted(self._starts, runs[:, 1], side="left") - first, 0)
        run = np.repeat(np.arange(len(runs)), counts)
        file = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
        low = np.maximum(self._starts[file], runs[run, 0]) - self._starts[file]
        high = np.minimum(self._starts[file + 1], runs[run, 1]) - self._starts[file]
        parts, owner, total = np.stack([low, high], axis=1), np.repeat(file, high - low), 0
        mine = dict(places_of(file))
        for one, places in places_of(owner):
            done = self._files[one].put(parts[mine[one]], into[places], slots)
            if done is None:
                return None
            total += done
        return total
