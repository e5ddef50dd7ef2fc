"""Scattered rows of uncompressed record batches: the bytes of all of them are asked for at once, column by column."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.arrow.slices import BatchSlices, Place
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.kept import Kept
from corgipile.tables.table import LIMIT, IntArray, fixed_field, is_list, is_wide, item_bytes

types = pa.types
UNKNOWN, UNFIT = -1, -2
Slices = Callable[[IntArray], Iterable[BatchSlices]]


class Take:
    """Takes rows from many record batches; what is learnt of a batch is kept in a few numbers a column.

    Args:
        file: The file.
        places: Where each column's parts are listed.
        starts: First row of each record batch, then the number of rows.
    """

    def __init__(self, file: File, places: Mapping[str, Place], starts: IntArray) -> None:
        self._file, self._places, self._starts = file, places, starts
        self._known: dict[str, IntArray] = {}
        self._kept: dict[str, Kept] = {}

    def take(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> pa.RecordBatch | None:
        """Take rows; None where runs must be read.

        That is so for columns of other types and batches with nulls. ``slices`` gives the bodies of some batches.
        """
        if not all(width(field.type) for field in schema):
            return None
        arrays = []
        for field in schema:
            found = self._find(field.name, rows, slices)
            if (found[:, 0] == UNFIT).any():
                return None
            with decoding(self._file.path):
                arrays.append(self._column(field, found, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def sizes(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> IntArray | None:
        """Return the bytes of rows; None where they are not found one by one."""
        if not all(width(field.type) for field in schema):
            return None
        sizes = np.zeros(len(rows), np.int64)
        for field in schema:
            size = width(field.type)
            if fixed_field(field.type) is None:
                found = self._find(field.name, rows, slices)
                if (found[:, 0] == UNFIT).any():
                    return None
                low, high = self._ends(field, found, rows)
                sizes += (high - low) * size
            else:
                sizes += size
        return sizes

    def take_bytes(self, field: pa.Field, rows: IntArray, slices: Slices) -> list[bytes]:
        """Take rows of a binary column."""
        found = self._find(field.name, rows, slices)
        low, high = self._ends(field, found, rows)
        return self._file.gather_bytes(found[:, 1] + low, high - low)

    def _batches(self, rows: IntArray) -> IntArray:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _find(self, name: str, rows: IntArray, slices: Slices) -> IntArray:
        """Return where the offsets and the items of a column begin, and the number of items, for each row's batch."""
        batches = self._batches(rows)
        known = self._known.get(name)
        if known is None:  # of two threads the first one's
            known = self._known.setdefault(name, np.full((len(self._starts) - 1, 3), UNKNOWN))
        unknown = known[batches, 0] == UNKNOWN
        new = np.unique(batches[unknown]) if unknown.any() else batches[:0]
        for batch, body in zip(new, slices(new), strict=True):
            known[batch] = body.item_places(self._places[name]) or (UNFIT, 0, 0)
        return known[batches]

    def _column(self, field: pa.Field, found: IntArray, rows: IntArray) -> pa.Array:
        kind = field.type
        size = width(kind)
        if fixed_field(kind) is not None:
            within = rows - self._starts[self._batches(rows)]
            self._check(within, within + 1, found)
            data = self._file.gather(found[:, 1] + within * size, np.full(len(rows), size))
            return _flat(kind, len(rows), data)
        wide = _offset_type(kind)
        low, high = self._ends(field, found, rows)
        data = self._file.gather(found[:, 1] + low * size, (high - low) * size)
        ends = np.append(0, np.cumsum(high - low))
        if ends[-1] >= LIMIT and not is_wide(kind):
            raise BadArgument(f"{len(rows)} rows do not fit one record batch ({ends[-1]} items); take fewer at a time")
        offsets = pa.py_buffer(ends.astype(wide))
        if is_list(kind):
            items = _flat(kind.value_type, int(ends[-1]), data)
            return pa.Array.from_buffers(kind, len(rows), [None, offsets], 0, 0, [items])
        array = pa.Array.from_buffers(kind, len(rows), [None, offsets, pa.py_buffer(data)], 0)
        array.validate(full=True)
        return array

    def _ends(self, field: pa.Field, found: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first item of each row, and the item after its last."""
        kept = self._kept.get(field.name) or self._kept.setdefault(field.name, Kept(int(self._starts[-1]), (2,)))
        low, high = kept.take(rows, lambda some, at: self._read_ends(field.type, found[at], some)).T
        return low, high

    def _read_ends(self, kind: pa.DataType, found: IntArray, rows: IntArray) -> IntArray:
        """Read those of some rows; neighbours are asked for by one call."""
        wide, count = _offset_type(kind), len(rows)
        begins = found[:, 0] + (rows - self._starts[self._batches(rows)]) * wide.itemsize
        if count and (np.diff(begins) == wide.itemsize).all():
            ends = self._file.gather(begins[:1], np.array([(count + 1) * wide.itemsize])).view(wide)
            pairs = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
        else:
            data = self._file.gather(begins, np.full(count, 2 * wide.itemsize))
            pairs = data.view(wide).reshape(-1, 2).astype(np.int64)
        self._check(pairs[:, 0], pairs[:, 1], found)
        return pairs

    def _check(self, low: IntArray, high: IntArray, found: IntArray) -> None:
        wrong = (low < 0) | (high < low) | (high > found[:, 2])
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise CorruptFile(
                f"{self._file.path}: items {low[bad]} to {high[bad]} of a column of {found[bad, 2]} are needed"
            )


def _offset_type(kind: pa.DataType) -> np.dtype[np.signedinteger]:
    return np.dtype("<i8" if is_wide(kind) else "<i4")


def width(kind: pa.DataType) -> int:
    """Return the bytes of what rows of a type consist of: items, or whole rows of fixed width; 0 for other types."""
    fixed = fixed_field(kind)
    return item_bytes(kind) if fixed is None else int(fixed[0].itemsize * np.prod(fixed[1], dtype=np.int64))


def _flat(kind: pa.DataType, count: int, data: npt.NDArray[np.uint8]) -> pa.Array:
    """Make an array of values of fixed width."""
    if not types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)
    inner = _flat(kind.value_type, count * kind.list_size, data)
    return pa.Array.from_buffers(kind, count, [None], 0, 0, [inner])
