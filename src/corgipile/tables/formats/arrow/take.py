"""Reads scattered rows of uncompressed record batches in few calls, column by column."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.formats.arrow.slices import BatchSlices, Place
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.row_cache import RowCache
from corgipile.tables.table import LIMIT, IntArray, fixed_field, is_list, is_wide, item_bytes

types = pa.types
UNKNOWN, UNSUPPORTED = -1, -2
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
        self._known: dict[str, IntArray] = {}
        self._end_caches: dict[str, RowCache] = {}

    def take(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> pa.RecordBatch | None:
        """Take rows; None if runs must be read: for columns of other types and batches with nulls.

        ``slices`` returns the bodies of some batches.
        """
        if not all(width(field.type) for field in schema) or not self._find(schema.names, rows, slices):
            return None
        fixed = [field for field in schema if fixed_field(field.type) is not None]
        fixed.sort(key=_item_bytes, reverse=True)  # so that each column is aligned
        columns: dict[str, pa.Array] = {}
        step = max(1, MAX_VALUES_PER_READ // max(1, len(rows)))
        with decoding(self._file.path):
            for at in range(0, len(fixed), step):
                columns |= self._fixed(fixed[at : at + step], rows)
            columns |= {field.name: self._varlen(field, rows) for field in schema if field.name not in columns}
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def sizes(self, schema: pa.Schema, rows: IntArray, slices: Slices) -> IntArray | None:
        """Return the bytes of each row; None if rows cannot be located one by one."""
        if not all(width(field.type) for field in schema):
            return None
        varlen = [field for field in schema if fixed_field(field.type) is None]
        if not self._find([field.name for field in varlen], rows, slices):
            return None
        fixed = sum(width(field.type) for field in schema if fixed_field(field.type) is not None)
        sizes = np.full(len(rows), fixed, np.int64)
        for field in varlen:
            low, high = self._ends(field, self._places_of(field.name, rows), rows)
            sizes += (high - low) * width(field.type)
        return sizes

    def take_bytes(self, field: pa.Field, rows: IntArray, slices: Slices) -> list[bytes]:
        """Take rows of a binary column."""
        self._find([field.name], rows, slices)
        places = self._places_of(field.name, rows)
        low, high = self._ends(field, places, rows)
        return self._file.gather_bytes(places[:, 1] + low, high - low)

    def _batches(self, rows: IntArray) -> IntArray:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _find(self, names: Sequence[str], rows: IntArray, slices: Slices) -> bool:
        """Locate columns in the batches of these rows; return whether all are supported."""
        near = np.unique(self._batches(rows))
        fresh = [name for name in names if name not in self._known]
        empty = np.full((len(fresh), len(self._starts) - 1, 3), UNKNOWN)
        for name, places in zip(fresh, empty, strict=True):  # the first of two threads wins
            self._known.setdefault(name, places)
        missing, new, supported = {}, np.zeros(len(near), np.bool_), True
        for name in names:
            known = self._known[name]
            states = known[near, 0]
            if (lowest := states.min(initial=0)) < 0:
                supported &= lowest != UNSUPPORTED
                missing[name], new = known, new | (states == UNKNOWN)
        for batch, body in zip(near[new].tolist(), slices(near[new]), strict=True):
            for name, known in missing.items():
                known[batch] = found = body.item_places(self._places[name]) or (UNSUPPORTED, 0, 0)
                supported &= found[0] != UNSUPPORTED
        return bool(supported)

    def _places_of(self, name: str, rows: IntArray) -> IntArray:
        """Return, for each row's batch, the start of a column's offsets and items, and the number of items."""
        places: IntArray = self._known[name][self._batches(rows)]
        return places

    def _fixed(self, fields: Sequence[pa.Field], rows: IntArray) -> dict[str, pa.Array]:
        """Take fixed-width columns in one call."""
        batches = self._batches(rows)
        places = np.stack([self._known[field.name][batches] for field in fields])
        within, sizes = rows - self._starts[batches], np.array([[width(field.type)] for field in fields])
        self._check(within, within + 1, places)
        offsets = places[..., 1] + within * sizes
        data = self._file.gather(offsets.ravel(), np.broadcast_to(sizes, offsets.shape).ravel())
        ends = np.cumsum(sizes * len(rows)).tolist()
        parts = zip(fields, [0, *ends], ends, strict=False)
        return {field.name: _flat(field.type, len(rows), data[start:stop]) for field, start, stop in parts}

    def _varlen(self, field: pa.Field, rows: IntArray) -> pa.Array:
        kind, places = field.type, self._places_of(field.name, rows)
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


def _item_bytes(field: pa.Field) -> int:
    fixed = fixed_field(field.type)
    return 0 if fixed is None else fixed[0].itemsize


def _flat(kind: pa.DataType, count: int, data: npt.NDArray[np.uint8]) -> pa.Array:
    """Return bytes as an Arrow array of a fixed-width type."""
    if not types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)
    inner = _flat(kind.value_type, count * kind.list_size, data)
    return pa.Array.from_buffers(kind, count, [None], 0, 0, [inner])
