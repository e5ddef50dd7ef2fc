"""A reader that parses numbers from text straight into slots."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.table_reader import TableReader
from corgipile.orders.order import Step
from corgipile.tables.concat import ConcatTable
from corgipile.tables.formats.text.csv import CsvTable
from corgipile.tables.formats.text.fields import Slots, slots_for
from corgipile.tables.io.pieces import places_of
from corgipile.tables.table import IntArray, Table

__all__ = ["TextReader"]

PART_BYTES = 512 << 10  # bytes of text that a thread reads and parses at a time


class TextReader(TableReader):
    """Reads text like its table, but parses numbers without an Arrow array in between.

    Fields that the kernel cannot parse, such as nulls, are left to the table, which parses them or raises the error.
    """

    def __init__(
        self, table: Table, text: "CsvTable | _Files", buffer: Buffer, sources: Sequence[str], size: int,
        slots: list[Slots | None],
    ) -> None:  # fmt: skip
        super().__init__(table, buffer, sources, size)
        self._text, self._slots, self._in_kernel = text, slots, True
        self._most = max(1, min(PART_BYTES, self._room) * len(table) // max(1, table.nbytes))

    @classmethod
    def of(cls, table: Table, buffer: Buffer, sources: Sequence[str], size: int) -> Self | None:
        """Return a reader; None if a column is not a number in such text, or is read twice."""
        text = _text_of(table)
        if text is None or buffer.varlen:
            return None
        slots: list[Slots | None] = [None] * len(table.schema)
        for field in buffer.fields.values():
            array = buffer.dense(field.name)
            for source, begin in zip(field.sources, field.begins, strict=True):
                place = table.schema.get_field_index(source)
                target = slots_for(table.schema.field(place).type, array, begin * field.dtype.itemsize, field.row_bytes)
                if target is None or slots[place] is not None:
                    return None
                slots[place] = target
        return cls(table, text, buffer, sources, size, slots)

    def fill(self, step: Step, *, urgent: bool = True) -> None:
        """Read runs of rows into slots."""
        parts = list(self._parts(step)) if self._in_kernel else [step]
        for part, nbytes in zip(parts, self._put(parts), strict=True):
            self._in_kernel = self._in_kernel and nbytes is not None
            if nbytes is None:
                super().fill(part, urgent=urgent)
            else:
                self._count(nbytes)

    def _put(self, parts: list[Step]) -> Iterator[int | None]:
        """Parse parts in threads; return their bytes, None for a part that the table must read."""
        if not self._in_kernel:
            return iter([None] * len(parts))
        if len(parts) == 1:
            return iter([self._put_part(parts[0])])
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "corgipile-reader")
        return self._pool.map(self._put_part, parts)

    def _put_part(self, part: Step) -> int | None:
        return self._text.put(part.extents, part.into, self._slots)

    def _parts(self, step: Step) -> Iterator[Step]:
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
    """Return the parser of a table's text; None if it is not text, or the kernel cannot parse its fields."""
    if isinstance(table, CsvTable):
        return table if table.has_numbers else None
    if type(table) is not ConcatTable:
        return None
    files = [file for file in table.tables if isinstance(file, CsvTable) and file.has_numbers]
    same_schema = len(files) == len(table.tables) and all(file.schema.equals(table.schema) for file in files)
    return _Files(files) if same_schema else None


class _Files:
    """Files with the same columns, one after the other."""

    def __init__(self, files: Sequence[CsvTable]) -> None:
        self._files = files
        self._starts = np.cumsum([0, *map(len, files)], dtype=np.int64)

    def put(self, runs: IntArray, into: SlotArray, slots: list[Slots | None]) -> int | None:
        """Parse as `CsvTable.put`, for runs that may span files."""
        first = np.searchsorted(self._starts, runs[:, 0], side="right") - 1
        counts = np.maximum(np.searchsorted(self._starts, runs[:, 1], side="left") - first, 0)
        run = np.repeat(np.arange(len(runs)), counts)
        file = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
        low = np.maximum(self._starts[file], runs[run, 0]) - self._starts[file]
        high = np.minimum(self._starts[file + 1], runs[run, 1]) - self._starts[file]
        parts, owner, total = np.stack([low, high], axis=1), np.repeat(file, high - low), 0
        parts_of = dict(places_of(file))
        for file_number, places in places_of(owner):
            done = self._files[file_number].put(parts[parts_of[file_number]], into[places], slots)
            if done is None:
                return None
            total += done
        return total
