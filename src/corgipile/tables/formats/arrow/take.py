"""Reads scattered rows of uncompressed record batches in few calls, column by column."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.formats.arrow.slices import UNSUPPORTED, BatchSlices, Place, Places
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.pieces import Recent, by_schema
from corgipile.tables.io.row_cache import RowCache
from corgipile.tables.table import LIMIT, IntArray, fixed_field, is_list, is_wide, item_bytes

types = pa.types
UNKNOWN = -1
MAX_VALUES_PER_READ = 1 << 16  # values of fixed-width columns per call
Slices = Callable[[IntArray], Iterable[BatchSlices]]


class Take:
    """Takes rows from many record batches; caches three numbers per column and batch.

    Args:
        file: The file.
        places: Nodes and buffers of each column.
        starts: First row of each record batch, then the number of rows.
    """

    is_source = False

    def __init__(self, file: File, places: Mapping[str, Place], starts: IntArray) -> None:
        self._file, self._places, self._starts = file, places, starts
        self._known: Recent[tuple[Places, IntArray]] = Recent(4)  # by columns
        self._end_caches: dict[str, RowCache] = {}

    def take(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> pa.RecordBatch | None:
        """Take rows; None if runs must be read: for columns of other types and batches with nulls.

        ``slices`` returns the bodies of some batches.
        """
        widths, items = _widths(schema)
        known = self._find(schema.names, rows, slices) if widths.all() else None
        if known is None or (known[:, self._batches(rows), 0] == UNSUPPORTED).any():
            return None
        kinds, columns = schema.types, [None] * len(widths)
        fixed = np.argsort(-items, kind="stable")[: np.count_nonzero(items)]  # so that each column is aligned
        step = max(1, MAX_VALUES_PER_READ // max(1, len(rows)))
        with decoding(self._file.path):
            for some in (fixed[at : at + step] for at in range(0, len(fixed), step)):
                arrays = self._fixed([kinds[i] for i in some.tolist()], known[some], widths[some], rows)
                for i, array in zip(some.tolist(), arrays, strict=True):
                    columns[i] = array
            for i in np.flatnonzero(items == 0).tolist():
                columns[i] = self._varlen(schema.field(i), known[i], rows)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def sizes(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> IntArray | None:
        """Return the bytes of each row; None if rows cannot be located one by one."""
        widths, items = _widths(schema)
        varlen = [schema.field(i) for i in np.flatnonzero(items == 0).tolist()]
        known = self._find([field.name for field in varlen], rows, slices) if widths.all() else None
        if known is None or (known[:, self._batches(rows), 0] == UNSUPPORTED).any():
            return None
        sizes = np.full(len(rows), widths[items > 0].sum(), np.int64)
        for field, places in zip(varlen, known, strict=True):
            low, high = self._ends(field, places[self._batches(rows)], rows)
            sizes += (high - low) * width(field.type)
        return sizes

    def take_bytes(self, field: pa.Field, rows: IntArray, slices: Slices) -> list[bytes]:
        """Take rows of a binary column."""
        places = self._find([field.name], rows, slices)[0][self._batches(rows)]
        low, high = self._ends(field, places, rows)
        return self._file.gather_bytes(places[:, 1] + low, high - low)

    def _batches(self, rows: IntArray) -> IntArray:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _find(self, names: Sequence[str], rows: IntArray, slices: Slices) -> IntArray:
        """Return where columns lie, int64[columns, batches, 3]; set in the batches of these rows."""

        def make() -> tuple[Places, IntArray]:
            columns = Places.of([self._places[name] for name in names])
            return columns, np.full((len(names), len(self._starts) - 1, 3), UNKNOWN)

        columns, known = self._known.get(tuple(names), make)
        near = np.unique(self._batches(rows))
        new = near[(known[:1, near, 0] == UNKNOWN).any(axis=0)]
        for batch, body in zip(new.tolist(), slices(new), strict=True):
            found = body.all_item_places(columns)
            known[1:, batch] = found[1:]
            known[:1, batch] = found[:1]  # last: other threads check it
        return known

    def _fixed(
        self, kinds: Sequence[pa.DataType], known: IntArray, widths: IntArray, rows: IntArray
    ) -> Iterator[pa.Array]:
        """Take fixed-width columns in one call."""
        batches, sizes = self._batches(rows), widths[:, None]
        places, within = known[:, batches], rows - self._starts[batches]
        self._check(within, within + 1, places)
        offsets = places[..., 1] + within * sizes
        data = self._file.gather(offsets.ravel(), np.broadcast_to(sizes, offsets.shape).ravel())
        ends = np.cumsum(widths * len(rows)).tolist()
        parts = zip(kinds, [0, *ends], ends, strict=False)
        return (_flat(kind, len(rows), data[start:stop]) for kind, start, stop in parts)

    def _varlen(self, field: pa.Field, known: IntArray, rows: IntArray) -> pa.Array:
        kind, places = field.type, known[self._batches(rows)]
        size = width(kind)
        wide = _offset_type(kind)
        low, high = self._ends(field, places, rows)
        data = self._file.gather(places[:, 1] + low * size, (high - low) * size)
        ends = np.append(0, np.cumsum(high - low))
        if ends[-1] >= LIMIT and not is_wide(kind):
            raise BadArgument(f"{len(rows)} rows do not fit one record batch: {ends[-1]} items; take fewer rows")
        offsets = pa.py_buffer(ends.astype(wide))
        if is_list(kind):
            items = _flat(kind.value_type, int(ends[-1]), data)
            return pa.Array.from_buffers(kind, len(rows), [None, offsets], 0, 0, [items])
        array = pa.Array.from_buffers(kind, len(rows), [None, offsets, pa.py_buffer(data)], 0)
        array.validate(full=True)
        return array

    def _ends(self, field: pa.Field, places: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return each row's first item, and the item after its last."""
        cache = self._end_caches.get(field.name) or self._end_caches.setdefault(
            field.name, RowCache(int(self._starts[-1]), (2,))
        )
        low, high = cache.take(rows, lambda some, at: self._read_ends(field.type, places[at], some)).T
        return low, high

    def _read_ends(self, kind: pa.DataType, places: IntArray, rows: IntArray) -> IntArray:
        """Read the first and last items of rows; consecutive rows in one call."""
        wide, count = _offset_type(kind), len(rows)
        begins = places[:, 0] + (rows - self._starts[self._batches(rows)]) * wide.itemsize
        if count and (np.diff(begins) == wide.itemsize).all():
            ends = self._file.gather(begins[:1], np.array([(count + 1) * wide.itemsize])).view(wide)
            pairs = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
        else:
            data = self._file.gather(begins, np.full(count, 2 * wide.itemsize))
            pairs = data.view(wide).reshape(-1, 2).astype(np.int64)
        self._check(pairs[:, 0], pairs[:, 1], places)
        return pairs

    def _check(self, low: IntArray, high: IntArray, places: IntArray) -> None:
        wrong = (low < 0) | (high < low) | (high > places[..., 2])
        if wrong.any():
            bad = np.unravel_index(np.argmax(wrong), wrong.shape)
            row = bad[-1]
            raise CorruptFile(
                f"{self._file.path}: a column has {places[bad][2]} items, a row needs items {low[row]} to {high[row]}"
            )


def _offset_type(kind: pa.DataType) -> np.dtype[np.signedinteger]:
    return np.dtype("<i8" if is_wide(kind) else "<i4")


def width(kind: pa.DataType) -> int:
    """Return the bytes of a fixed-width row, or of an item of a variable-length row; 0 for other types."""
    fixed = fixed_field(kind)
    return item_bytes(kind) if fixed is None else fixed[0].itemsize * math.prod(fixed[1])


@by_schema
def _widths(schema: pa.Schema) -> IntArray:
    """Return the `width` of each column, and its bytes of a number if it has a fixed width, int64[2, columns]."""
    found = ((width(kind), fixed_field(kind)) for kind in schema.types)
    return np.array([(size, fixed[0].itemsize if fixed else 0) for size, fixed in found], np.int64).reshape(-1, 2).T


def _flat(kind: pa.DataType, count: int, data: npt.NDArray[np.uint8]) -> pa.Array:
    """Return bytes as an Arrow array of a fixed-width type."""
    if not types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)
    inner = _flat(kind.value_type, count * kind.list_size, data)
    return pa.Array.from_buffers(kind, count, [None], 0, 0, [inner])
