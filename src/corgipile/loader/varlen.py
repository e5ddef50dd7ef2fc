"""Variable-length rows of the buffer, held in the record batches or bundles they came in, by slot."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import interval_of
from corgipile.errors import BadSchema, BadValue
from corgipile.loader.ragged import Ragged, SlotArray, Span
from corgipile.tables.spans import array_of, objects, places
from corgipile.tables.table import IntArray, is_bytes, is_list, item_bytes

__all__ = ["Varlen", "slot_bytes"]

MAX_BATCHES = (1 << 31) - 1  # numbers of record batches
NO_OWNER = -1  # owner of a free slot; bundles are below, record batches from 0 on
CROWDED_SHARE = 1 / 2  # of the byte limit, above which sparse batches are compacted early
ROWS_PER_SLOT = 5 / 4  # above which a crowded buffer is compacted; orders of whole blocks stay below
SPARSE_SHARE = 2 / 3  # largest share of a sparse batch's rows that are buffered
MIN_SPARSE_SHARE = 1 / 8  # smallest share of all rows that are in sparse batches worth compacting
PART = 1 << 16  # slots released at a time: the record of a slot takes more memory than a narrow row
COPY_SHARE = 1 / 16  # of the byte limit, copied at a time


def slot_bytes(kinds: Mapping[str, pa.DataType]) -> int:
    """Return the bytes of a slot without its row: its batch, the row's index there, and each column's span.

    Example:
        >>> slot_bytes({}), slot_bytes({"text": pa.string()})
        (0, 24)
    """
    return (2 * 4 + sum(2 * 8 for kind in kinds.values() if item_bytes(kind))) if kinds else 0


class Varlen:
    """Holds the variable-length columns."""

    def __init__(self, slots: int, kinds: Mapping[str, pa.DataType], limit: int | None = None) -> None:
        self._slots, self._kinds = slots, dict(kinds)
        self._owner = np.full(slots if kinds else 0, NO_OWNER, np.int32)
        self._row = np.zeros(slots if kinds else 0, np.int32)
        self._means: dict[int, int] = {}  # mean row bytes of each batch, without columns of known lengths
        self._batches: dict[int, pa.RecordBatch] = {}
        self._alive: dict[int, int] = {}
        self._retired: list[tuple[int, list[pa.RecordBatch], IntArray]] = []  # fill number, batches, bundles
        self._next = self._fills = self._rows = self._freed = 0
        self._nbytes = slots * slot_bytes(kinds)  # plus the record batches in memory
        self._bundles = _kernel.bundles_new(interval_of(limit))  # rows read by the kernel, see kernel/io/bundles.h
        self._lock = threading.Lock()  # the reader puts rows while the consumer gathers others
        spanned = [name for name, kind in kinds.items() if item_bytes(kind)]
        self._spans: dict[str, Span] = {n: (np.zeros(slots, np.uint64), np.zeros(slots, np.int64)) for n in spanned}
        self._nulls: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def nbytes(self) -> int:
        """Return the bytes of slots and of rows in memory."""
        return self._nbytes + _kernel.bundles_look(self._bundles)[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self._kinds)

    def span(self, name: str) -> Span:
        """Return address and length of each slot's row, see `Buffer.ragged`."""
        if name not in self._spans:
            raise BadSchema(f"column {name!r} must hold lists of numbers, got type {self._kinds.get(name)}")
        if name in self._nulls:
            raise BadValue(f"column {name!r} holds nulls; fill or drop such rows first")
        return self._spans[name]

    def places(self, name: str) -> Span:
        """Return the arrays of address and length of each slot's row, to be filled by the kernel."""
        return self._spans[name]

    def read(self, reader: object, extents: IntArray, into: SlotArray, *, urgent: bool) -> tuple[int, int, int] | None:
        """Read rows in the kernel, which has their offsets; return the failure or None."""
        return _kernel.reader_items(reader, extents, into, self._owner, self._bundles, urgent)

    def freed(self) -> int:
        """Return the bytes of rows read by the kernel that were freed since the last call."""
        before, self._freed = self._freed, _kernel.bundles_look(self._bundles)[3]
        return self._freed - before

    def sizes(self, visit: SlotArray) -> npt.NDArray[np.int64]:
        """Return the bytes of the rows in these slots; the batch's mean for types without known lengths."""
        sizes = np.zeros(len(visit), np.int64)
        for name, (_, length) in self._spans.items():
            if name not in self._nulls:
                sizes += length[visit] * item_bytes(self._kinds[name])
        if len(self._spans) - len(self._nulls) < len(self._kinds):
            owners, which = np.unique(self._owner[visit], return_inverse=True)
            sizes += np.array([self._means.get(owner, 0) for owner in owners.tolist()], np.int64)[which]
            bundled = visit[self._owner[visit] < NO_OWNER]  # bundles have no nulls, so their lengths are known
            for name in self._nulls & self._spans.keys():
                exact = self._spans[name][1][bundled] * item_bytes(self._kinds[name])
                sizes[self._owner[visit] < NO_OWNER] += exact
        return sizes

    def put(self, batch: pa.RecordBatch, into: SlotArray) -> None:
        """Add the rows of a batch that go to slots."""
        rows = np.flatnonzero(into >= 0)
        if len(rows):
            self._add_batch(batch.select(list(self._kinds)), into[rows], rows)

    def _add_batch(self, batch: pa.RecordBatch, slots: SlotArray, rows: npt.NDArray[Any]) -> None:
        nbytes = int(batch.nbytes)
        with self._lock:
            number, self._next = self._next, (self._next + 1) % MAX_BATCHES
            while self._next in self._batches:
                self._next = (self._next + 1) % MAX_BATCHES
            self._owner[slots], self._row[slots] = number, rows
            self._batches[number], self._alive[number] = batch, len(rows)
            self._rows += batch.num_rows
            self._nbytes += nbytes
            exact = sum(self._set_spans(name, batch.column(name), slots, rows) for name in self._spans)
            self._means[number] = max(0, nbytes - exact) // max(1, batch.num_rows)

    def _set_spans(self, name: str, column: pa.Array, slots: SlotArray, rows: npt.NDArray[Any]) -> int:
        """Set the spans of a column's rows; return the bytes of all rows."""
        if column.null_count or (is_list(column.type) and column.values.null_count):
            self._nulls.add(name)
            return 0
        offsets, base = places(column)
        address, length = self._spans[name]
        item = item_bytes(column.type)
        starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
        address[slots] = (base + starts * item).astype(np.uint64)
        length[slots] = lengths
        return int(offsets[-1] - offsets[0]) * item

    def release(self, slots: SlotArray) -> None:
        """Release rows that are not visited again, and batches without other rows."""
        for start in range(0, len(slots), PART):
            part = slots[start : start + PART]
            if not _kernel.bundles_release(self._bundles, self._owner, part):
                continue
            part = part[part >= 0]
            owners, counts = np.unique(self._owner[part], return_counts=True)
            self._owner[part] = NO_OWNER
            for number, count in zip(owners.tolist(), counts.tolist(), strict=True):
                if number < 0:
                    continue
                self._alive[number] -= count
                if not self._alive[number]:
                    self._drop(number)

    def _drop(self, number: int) -> pa.RecordBatch:
        with self._lock:
            del self._alive[number], self._means[number]
            batch = self._batches.pop(number)
            self._rows -= batch.num_rows
            self._nbytes -= int(batch.nbytes)
        return batch

    def compact(self, ahead: int, most: int | None = None) -> None:
        """Compact sparse batches after a step: copy their few buffered rows to a new batch.

        Sliding windows leave a few rows of each batch behind. The old batches are dropped ``ahead + 1`` steps later,
        when no earlier visit can read them. Batches with most rows buffered are left alone: a copy would take as much
        memory again. ``most``: the byte limit, if any.
        """
        self._fills += 1
        while self._retired and self._fills - self._retired[0][0] > ahead + 1:
            _, batches, bundles = self._retired.pop(0)
            self._nbytes -= sum(int(batch.nbytes) for batch in batches)
            _kernel.bundles_drop(self._bundles, bundles)
        crowded = most is not None and self.nbytes > most * CROWDED_SHARE
        rows = self._rows + _kernel.bundles_look(self._bundles)[1]
        if rows <= self._slots * (ROWS_PER_SLOT if crowded else 2):
            return
        old = self._sparse(rows, None if most is None else most * COPY_SHARE)
        if len(old):
            self._copy_rows(old)

    def _copy_rows(self, old: npt.NDArray[np.int32]) -> None:
        """Copy the rows of owners into one record batch; the owners are dropped when no visit can read them."""
        slots = np.flatnonzero(np.isin(self._owner, old)).astype(np.int32)
        compacted = self.gather(slots)
        self._add_batch(compacted, slots, np.arange(len(slots)))
        batches = [self._drop(number) for number in old[old >= 0].tolist()]
        bundles = -2 - old[old < NO_OWNER].astype(np.int64)
        _kernel.bundles_retire(self._bundles, bundles)
        self._nbytes += sum(int(batch.nbytes) for batch in batches)
        self._retired.append((self._fills, batches, bundles))

    def _sparse(self, rows: int, most: float | None) -> npt.NDArray[np.int32]:
        """Return owners of few buffered rows, up to ``most`` bytes; none if compacting is not worth it."""
        stats = np.zeros((_kernel.bundles_look(self._bundles)[2], 3), np.int64)
        _kernel.bundles_tell(self._bundles, stats)
        numbers = np.array([*self._batches], np.int64)
        sizes = [(batch.nbytes, batch.num_rows, self._alive[number]) for number, batch in self._batches.items()]
        stats = np.concatenate([stats, np.array(sizes, np.int64).reshape(-1, 3)])
        owners = np.concatenate([-2 - np.arange(len(stats) - len(numbers)), numbers])
        share = stats[:, 2] / np.maximum(stats[:, 1], 1)
        sparse = np.flatnonzero((stats[:, 2] > 0) & (share < SPARSE_SHARE))
        sparse = sparse[np.lexsort((owners[sparse], share[sparse]))]
        if stats[sparse, 1].sum() < rows * MIN_SPARSE_SHARE:
            return np.zeros(0, np.int32)
        copied = np.cumsum(share[sparse] * stats[sparse, 0])
        count = len(sparse) if most is None else 1 + int(np.searchsorted(copied[1:], most))
        return owners[sparse[:count]].astype(np.int32)

    def kind(self, name: str) -> pa.DataType:
        """Return the type of a column."""
        return self._kinds[name]

    def joinable(self, name: str) -> bool:
        """Return whether the rows of a column are items in memory, without nulls."""
        return name in self._spans and name not in self._nulls

    def gather(self, visit: SlotArray) -> pa.RecordBatch:
        """Return the rows in these slots as a record batch, in visiting order."""
        columns = {
            name: _join(self._kinds[name], self._spans[name], visit) for name in filter(self.joinable, self._kinds)
        }
        unjoined = [name for name in self._kinds if columns.get(name) is None]
        columns |= self.take(visit, unjoined) if unjoined else {}
        return pa.RecordBatch.from_arrays([columns[name] for name in self._kinds], names=list(self._kinds))

    def objects(self, visit: SlotArray, names: Sequence[str]) -> dict[str, Sequence[Any] | pa.Array]:
        """Return the rows in these slots as one object per row, see `corgipile.tables.spans.objects`."""
        values: dict[str, Sequence[Any] | pa.Array] = {}
        for name in names:
            kind = self._kinds[name]
            if self.joinable(name) and is_bytes(kind):
                text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
                values[name] = _kernel.gather_objects(*self._spans[name], visit, text)
            else:
                values[name] = objects(self.take(visit, [name])[name], own=True)
        return values

    def take(self, visit: SlotArray, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return the rows in these slots as Arrow arrays, selected from the record batches or bundles they came in."""
        return dict(zip(names, self._take(visit, list(names)).columns, strict=True))

    def _take(self, visit: SlotArray, names: list[str]) -> pa.RecordBatch:
        if not len(visit):
            return pa.schema([(name, self._kinds[name]) for name in names]).empty_table().to_batches()[0]
        with self._lock:
            owners, rows = self._owner[visit], self._row[visit]
            batches = {own: self._batches[own].select(names) for own in np.unique(owners).tolist() if own >= 0}
        order = np.argsort(owners, kind="stable")
        owners, rows = owners[order], rows[order]
        starts = np.flatnonzero(np.diff(owners, prepend=-2))
        runs = zip(starts, np.append(starts[1:], len(rows)), strict=True)
        parts = [
            batches[int(owners[start])].take(array_of(rows[start:stop]))
            if owners[start] >= 0
            else self._bundle_rows(visit[order[start:stop]], names)
            for start, stop in runs
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(array_of(back))

    def _bundle_rows(self, visit: SlotArray, names: list[str]) -> pa.RecordBatch:
        """Return rows that the kernel read."""
        columns = [_join(self._kinds[name], self._spans[name], visit) for name in names]
        assert None not in columns  # noqa: S101 - a file's rows fit its own offset type
        return pa.RecordBatch.from_arrays(columns, names=names)


def _join(kind: pa.DataType, span: Span, visit: SlotArray) -> pa.Array | None:
    """Copy rows into one array; None if they are too long for the type's offsets."""
    rows = Ragged(kind, lambda nbytes: np.empty(nbytes, np.uint8))
    return rows.column(arrow=True) if rows.add(span, visit) else None
