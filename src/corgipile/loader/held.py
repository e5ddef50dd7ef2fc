"""Rows of varying length in the buffer: kept in the record batches they came in, found by slot."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadSchema, BadValue
from corgipile.tables.base import is_bytes, is_list, is_wide, item_bytes

__all__ = ["Held"]

SlotArray = npt.NDArray[np.int32]
Span = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]


class Held:
    """Holds the columns that have no fixed width.

    Args:
        slots: Number of slots.
        kinds: Types of the columns by name.
    """

    def __init__(self, slots: int, kinds: Mapping[str, pa.DataType]) -> None:
        self._slots, self._kinds = slots, dict(kinds)
        self._owner = np.full(slots if kinds else 0, -1, np.int64)
        self._row = np.zeros(slots if kinds else 0, np.int64)
        self._batches: dict[int, pa.RecordBatch] = {}
        self._alive: dict[int, int] = {}
        self._retired: list[tuple[int, list[pa.RecordBatch]]] = []
        self._next = self._fills = 0
        self._lock = threading.Lock()  # the reader puts rows while the consumer gathers others
        spanned = [name for name, kind in kinds.items() if item_bytes(kind)]
        self._spans: dict[str, Span] = {n: (np.zeros(slots, np.uint64), np.zeros(slots, np.int64)) for n in spanned}
        self._nulls: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self._kinds)

    @property
    def nbytes(self) -> int:
        """Return the bytes of record batches not yet let go."""
        batches = [*list(self._batches.values()), *(batch for _, batches in list(self._retired) for batch in batches)]
        return sum(int(batch.nbytes) for batch in batches)

    def span(self, name: str) -> Span:
        """Return memory address and length of each slot's row, see `Store.ragged`."""
        if name not in self._spans:
            raise BadSchema(f"column {name!r} has type {self._kinds.get(name)}; a list of numbers is needed")
        if name in self._nulls:
            raise BadValue(f"column {name!r} holds nulls; fill or drop such rows first")
        return self._spans[name]

    def put(self, batch: pa.RecordBatch, into: SlotArray) -> None:
        """Keep the rows of a batch that go to slots."""
        kept = np.flatnonzero(into >= 0)
        if len(kept):
            batch = batch.select(list(self._kinds))
            self._adopt(batch, into[kept], kept, {**self._batches, self._next: batch})

    def _adopt(self, batch: pa.RecordBatch, slots: SlotArray, rows: npt.NDArray[Any], batches: dict[int, Any]) -> None:
        with self._lock:
            self._owner[slots], self._row[slots] = self._next, rows
            self._batches = batches
            self._alive = {number: self._alive.get(number, len(rows)) for number in batches}
            self._next += 1
            for name in self._spans:
                self._point(name, batch.column(name), slots, rows)

    def _point(self, name: str, column: pa.Array, slots: SlotArray, rows: npt.NDArray[Any]) -> None:
        if column.null_count or (is_list(column.type) and column.values.null_count):
            self._nulls.add(name)
            return
        offsets, base = _place(column)
        address, length = self._spans[name]
        address[slots] = (base + offsets[rows] * item_bytes(column.type)).astype(np.uint64)
        length[slots] = offsets[rows + 1] - offsets[rows]

    def release(self, into: SlotArray, before: int) -> None:
        """Before a step is read: let go of the rows in the slots it will use, and of all batches put before ``before``.

        Args:
            into: Slots about to be used again.
            before: A value `mark` returned.
        """
        slots = into[into >= 0]
        left, counts = np.unique(self._owner[slots], return_counts=True)
        self._owner[slots] = -1
        for number, count in zip(left.tolist(), counts.tolist(), strict=True):
            if number in self._alive:
                self._alive[number] -= count
        for number in [n for n, alive in self._alive.items() if not alive or n < before]:
            del self._alive[number], self._batches[number]

    def mark(self) -> int:
        """Return a number that batches put from now on are not below."""
        return self._next

    def settle(self, ahead: int) -> None:
        """After a step was put: where rows of few slots keep many batches alive, copy them together.

        Sliding windows leave a few rows of each batch behind. What they leave is let go ``ahead + 1`` steps later, when
        no visit that began before can still be reading it.
        """
        self._fills += 1
        self._retired = [(since, batches) for since, batches in self._retired if self._fills - since <= ahead + 1]
        if sum(batch.num_rows for batch in self._batches.values()) <= 2 * self._slots:
            return
        slots = np.flatnonzero(self._owner >= 0).astype(np.int32)
        together = self.gather(slots)
        self._retired.append((self._fills, list(self._batches.values())))
        self._adopt(together, slots, np.arange(len(slots)), {self._next: together})

    def gather(self, visit: SlotArray) -> pa.RecordBatch:
        """Return the rows in these slots as one record batch, in visiting order."""
        spanned = [name for name in self._spans if name not in self._nulls]
        columns = {name: _join(self._kinds[name], self._spans[name], visit) for name in spanned}
        rest = [name for name in self._kinds if columns.get(name) is None]
        if rest:
            taken = self._take(visit, rest)
            columns |= {name: taken.column(name) for name in rest}
        return pa.RecordBatch.from_pydict({name: columns[name] for name in self._kinds})

    def _take(self, visit: SlotArray, names: list[str]) -> pa.RecordBatch:
        if not len(visit):
            return pa.schema([(name, self._kinds[name]) for name in names]).empty_table().to_batches()[0]
        with self._lock:
            owners, rows = self._owner[visit], self._row[visit]
            batches = {number: self._batches[number].select(names) for number in np.unique(owners).tolist()}
        order = np.argsort(owners, kind="stable")
        owners, rows = owners[order], rows[order]
        starts = np.flatnonzero(np.diff(owners, prepend=-2))
        runs = zip(starts, np.append(starts[1:], len(rows)), strict=True)
        parts = [batches[int(owners[start])].take(pa.array(rows[start:stop])) for start, stop in runs]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back))


def _place(column: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """Return the offsets of a column's rows, in items, and the address they count from."""
    buffers = column.buffers()
    if is_list(column.type):
        values = column.values
        data, shift = values.buffers()[1], values.offset
    else:
        data, shift = buffers[2], 0
    raw = (
        np.frombuffer(buffers[1], np.int64 if is_wide(column.type) else np.int32)
        if len(column)
        else np.zeros(1, np.int64)
    )
    offsets = raw[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return offsets, (data.address if data is not None else 0) + shift * item_bytes(column.type)


def _join(kind: pa.DataType, span: Span, visit: SlotArray) -> pa.Array | None:
    """Copy rows together; None if they are too long for the type's offsets."""
    item = item_bytes(kind)
    offsets = np.zeros(len(visit) + 1, np.int64)
    np.cumsum(span[1][visit], out=offsets[1:])
    if offsets[-1] >= 1 << 31 and not is_wide(kind):
        return None
    data = np.empty(int(offsets[-1]) * item, np.uint8)
    _kernel.gather_ragged(data, span[0], span[1], item, visit)
    ends = pa.py_buffer(offsets if is_wide(kind) else offsets.astype(np.int32))
    if is_bytes(kind):
        return pa.Array.from_buffers(kind, len(visit), [None, ends, pa.py_buffer(data)])
    values = pa.Array.from_buffers(kind.value_type, int(offsets[-1]), [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(kind, len(visit), [None, ends], children=[values])
