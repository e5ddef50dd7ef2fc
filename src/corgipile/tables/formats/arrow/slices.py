"""Reads rows of an uncompressed record batch, only the bytes they need."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow.flatbuffers import Batch
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.pieces import by_schema, same_schema
from corgipile.tables.layout import NUMBERS
from corgipile.tables.table import LIMIT, IntArray, fixed_field, is_bytes, is_list, is_wide
from corgipile.tables.values import is_view, viewless

types = pa.types
UNSUPPORTED = -2  # instead of a place
MAX_INLINE = 12  # bytes stored in the view itself
VIEW_DTYPE = np.dtype([("size", "<i4"), ("head", "V4"), ("which", "<i4"), ("at", "<i4")])


class Place(NamedTuple):
    """A column's first field node and first buffer in the metadata.

    Each of the ``views`` view arrays before it counts as two buffers, since their number of data buffers varies by
    batch.
    """

    kind: pa.DataType
    node: int
    buffer: int
    views: int = 0

    @property
    def is_source(self) -> bool:
        """Return False: it holds no file."""
        return False


class Places(NamedTuple):
    """The places of many columns, and those of scalar numbers as arrays.

    Attributes:
        places: All places.
        numbers: int64[5, n], of each column of numbers: index, node, buffer, view arrays before it, bytes of a number.
    """

    places: Sequence[Place]
    numbers: IntArray

    @classmethod
    def of(cls, places: Sequence[Place]) -> "Places":
        """Return the places of columns."""
        known = [(i, place, NUMBERS.get(place.kind.id)) for i, place in enumerate(places)]
        found = [(i, place.node, place.buffer, place.views, kind.itemsize) for i, place, kind in known if kind]
        return cls(places, np.array(found, np.int64).reshape(-1, 5).T)


def spans(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the number of field nodes and buffers of a type; None if it varies or the type is unknown."""
    if isinstance(kind, pa.BaseExtensionType):
        return spans(kind.storage_type)
    nodes, buffers = 1, 2
    if types.is_null(kind):
        buffers = 0
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        buffers = 1
    elif is_bytes(kind):
        buffers = 3
    elif not (_is_list(kind) or types.is_primitive(kind) or types.is_decimal(kind) or _has_two_buffers(kind)):
        return None
    for child in _children(kind):
        inner = spans(child)
        if inner is None:
            return None
        nodes, buffers = nodes + inner[0], buffers + inner[1]
    return nodes, buffers


def _children(kind: pa.DataType) -> list[pa.DataType]:
    return [] if types.is_dictionary(kind) else [kind.field(i).type for i in range(kind.num_fields)]


def views_in(kind: pa.DataType) -> int:
    """Return the number of view arrays in a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return views_in(kind.storage_type)
    return int(is_view(kind)) + sum(map(views_in, _children(kind)))


@by_schema
def places(schema: pa.Schema) -> dict[str, Place] | None:
    """Return the place of every column, of dictionary columns that of the indices; None if a type is unknown."""
    node = buffer = views = 0
    found = {}
    for field in schema:
        span = spans(field.type)
        if span is None:
            return None
        kind = field.type.index_type if types.is_dictionary(field.type) else field.type
        found[field.name] = Place(kind, node, buffer, views)
        node, buffer, views = node + span[0], buffer + span[1], views + views_in(field.type)
    return found


def sliceable(kind: pa.DataType) -> bool:
    """Return whether rows of this type can be read without decoding their whole record batch."""
    if types.is_primitive(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind) or spans(kind) is None:
        return False
    return all(sliceable(child) and not is_view(child) for child in _children(kind))


@by_schema
def all_sliceable(schema: pa.Schema) -> bool:
    """Return whether rows of all columns can be read without decoding their whole record batch."""
    return all(sliceable(place.kind) for place in (places(schema) or {}).values())


@by_schema
def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows in memory: view columns have plain values."""
    fields = [field.with_type(viewless(field.type)) for field in schema]
    return same_schema(pa.schema(fields, schema.metadata))


def _is_list(kind: pa.DataType) -> bool:
    return is_list(kind) or bool(types.is_map(kind))


def _has_two_buffers(kind: pa.DataType) -> bool:
    return bool(types.is_dictionary(kind) or types.is_fixed_size_binary(kind) or is_view(kind))


class BatchSlices:
    """Reads columns of one uncompressed record batch.

    Args:
        file: The file.
        at: Start of the body.
        batch: The batch's metadata.
    """

    def __init__(self, file: File, at: int, batch: Batch) -> None:
        self._file = file
        self._at = at
        self._batch = batch

    def column(self, place: Place, start: int, stop: int) -> pa.Array:
        """Read rows ``start`` to ``stop`` of a column; views become plain values."""
        place = self._in_batch(place)
        self._check_rows(place.node)
        with decoding(self._file.path):
            array = self._array(place, start, stop)
            if fixed_field(place.kind) is None:
                array.validate(full=True)
        return array

    def data_offset(self, place: Place) -> int | None:
        """Return the file offset of a fixed-width column's numbers; None if it has nulls."""
        kind, node, buffer, _ = self._in_batch(place)
        rows = self._batch.rows
        self._check_rows(node)
        while True:
            length, nulls = self._node(node)
            if length < rows:
                raise CorruptFile(f"{self._file.path}: a column has {length} rows, its record batch {rows}")
            if nulls:
                return None
            if not types.is_fixed_size_list(kind):
                break
            rows *= kind.list_size
            kind, node, buffer = kind.value_type, node + 1, buffer + 1
        offset, length = self._buffer(buffer + 1)
        if length < rows * kind.bit_width // 8:
            raise CorruptFile(f"{self._file.path}: {rows} numbers do not fit a buffer of {length} bytes")
        return self._at + offset

    def item_places(self, place: Place) -> tuple[int, int, int] | None:
        """Return the file offsets of a column's offsets and items, and its number of items.

        The items of a fixed-width column are its rows. None if the column has nulls or views.
        """
        kind, node, buffer, _ = self._in_batch(place)
        if is_view(kind):
            return None
        if fixed_field(kind) is not None:
            at = self.data_offset(place)
            return None if at is None else (0, at, self._batch.rows)
        self._check_rows(node)
        nulls = self._node(node)[1]
        offsets, nbytes = self._buffer(buffer + 1)
        if nulls:
            return None
        if nbytes < (self._batch.rows + 1) * (8 if is_wide(kind) else 4):
            raise CorruptFile(f"{self._file.path}: a column has fewer rows than its record batch")
        if is_bytes(kind):
            at, items = self._buffer(buffer + 2)
            return self._at + offsets, self._at + at, items
        items, nulls = self._node(node + 1)
        at, nbytes = self._buffer(buffer + 3)
        if nbytes < items * (kind.value_type.bit_width // 8):
            raise CorruptFile(f"{self._file.path}: {items} numbers do not fit a buffer of {nbytes} bytes")
        return None if nulls else (self._at + offsets, self._at + at, items)

    def all_item_places(self, columns: Places) -> IntArray:
        """Return the `item_places` of columns, int64[columns, 3]; `UNSUPPORTED` for those that have none."""
        batch, (at, node, buffer, views, width) = self._batch, columns.numbers
        found = np.full((len(columns.places), 3), UNSUPPORTED, np.int64)
        shift = np.append(0, np.cumsum(batch.views, dtype=np.int64))
        buffer = buffer + shift[np.minimum(views, len(batch.views))] + 1
        right = len(at) > 0 and node.max() < len(batch.nodes) and buffer.max() < len(batch.buffers)
        if right:
            (rows, nulls), (offset, nbytes) = batch.nodes[node].T, batch.buffers[buffer].T
            full = nulls == 0
            right = (rows == batch.rows).all() and (nbytes >= rows * width)[full].all()
            found[at[full]] = np.stack([0 * rows, self._at + offset, rows], axis=1)[full]
        others = np.delete(np.arange(len(found)), at if right else at[:0])  # all of them if one is damaged
        for i in others.tolist():
            found[i] = self.item_places(columns.places[i]) or UNSUPPORTED
        return found

    def _in_batch(self, place: Place) -> Place:
        """Return the column's place in this batch."""
        return place._replace(buffer=place.buffer + sum(self._batch.views[: place.views])) if place.views else place

    def _check_rows(self, node: int) -> None:
        length = self._node(node)[0]
        if length != self._batch.rows:
            raise CorruptFile(f"{self._file.path}: a column has {length} rows, its record batch {self._batch.rows}")

    def _node(self, index: int) -> tuple[int, int]:
        if index >= len(self._batch.nodes):
            raise CorruptFile(f"{self._file.path}: a record batch has fewer columns than the schema")
        return int(self._batch.nodes[index, 0]), int(self._batch.nodes[index, 1])

    def _buffer(self, index: int) -> tuple[int, int]:
        if index >= len(self._batch.buffers):
            raise CorruptFile(f"{self._file.path}: a record batch has fewer buffers than the schema needs")
        return int(self._batch.buffers[index, 0]), int(self._batch.buffers[index, 1])

    def _bytes(self, index: int, start: int, stop: int) -> bytes:
        offset, length = self._buffer(index)
        if not 0 <= start <= stop <= length:
            raise CorruptFile(f"{self._file.path}: a buffer has {length} bytes, bytes {start} to {stop} are needed")
        return self._file.read(self._at + offset + start, stop - start)

    def _array(self, place: Place, start: int, stop: int) -> pa.Array:
        kind, node, buffer, _ = place
        length, nulls = self._node(node)
        if not 0 <= start <= stop <= length:
            raise CorruptFile(f"{self._file.path}: a column has {length} rows, rows {start} to {stop} are needed")
        if types.is_null(kind):  # `pa.nulls` would allocate a bit per row
            return pa.Array.from_buffers(kind, stop - start, [None])
        if start == stop:
            return pa.nulls(0, viewless(kind))
        # Bitmaps are read from a whole byte; the array's offset skips the rows before `start`.
        first = start - start % 8 if nulls or types.is_boolean(kind) else start
        validity = pa.py_buffer(self._bytes(buffer, first // 8, (stop + 7) // 8)) if nulls else None
        buffers: list[pa.Buffer | None] = [validity]
        children: Sequence[pa.Array] = ()
        if types.is_struct(kind):
            children = self._fields(place, first, stop)
        elif types.is_fixed_size_list(kind):
            inner = Place(kind.value_type, node + 1, buffer + 1)
            children = [self._array(inner, first * kind.list_size, stop * kind.list_size)]
        elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
            begin, end = first * kind.bit_width // 8, (stop * kind.bit_width + 7) // 8
            buffers.append(pa.py_buffer(self._bytes(buffer + 1, begin, end)))
        elif is_view(kind):
            buffers += self._view_buffers(place, first, stop)
        else:
            offsets = self._offsets(place, first, stop)
            low, high = int(offsets[0]), int(offsets[-1])
            buffers.append(pa.py_buffer(offsets - offsets[0]))
            if _is_list(kind):
                children = [self._array(Place(kind.field(0).type, node + 1, buffer + 2), low, high)]
            else:
                buffers.append(pa.py_buffer(self._bytes(buffer + 2, low, high)))
        return pa.Array.from_buffers(
            viewless(kind), stop - start, buffers, -1 if nulls else 0, start - first, list(children)
        )

    def _view_buffers(self, place: Place, start: int, stop: int) -> list[pa.Buffer]:
        """Return offsets and bytes of view rows; nulls are empty."""
        views = np.frombuffer(self._bytes(place.buffer + 1, 16 * start, 16 * stop), VIEW_DTYPE)
        sizes = views["size"].astype(np.int64)
        if self._node(place.node)[1]:
            validity = np.frombuffer(self._bytes(place.buffer, start // 8, (stop + 7) // 8), np.uint8)
            sizes[np.unpackbits(validity, bitorder="little")[: len(sizes)] == 0] = 0
        ends = np.append(0, np.cumsum(sizes))
        if (sizes < 0).any() or ends[-1] >= LIMIT:
            raise CorruptFile(f"{self._file.path}: rows {start} to {stop} of a view column state {ends[-1]} bytes")
        far = np.flatnonzero(sizes > MAX_INLINE)
        inline = (np.arange(MAX_INLINE) < sizes[:, None]) & (sizes <= MAX_INLINE)[:, None]
        data = np.empty(int(ends[-1]), np.uint8)
        data[(ends[:-1, None] + np.arange(MAX_INLINE))[inline]] = views.view(np.uint8).reshape(-1, 16)[:, 4:][inline]
        self._file.gather(self._view_places(place, views[far], sizes[far]), sizes[far], data, ends[:-1][far])
        return [pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]

    def _view_places(self, place: Place, views: npt.NDArray[np.void], sizes: IntArray) -> IntArray:
        """Return the file offset of each view's bytes."""
        count = self._batch.views[place.views] if place.views < len(self._batch.views) else 0
        buffers = np.array([self._buffer(place.buffer + 2 + k) for k in range(count)], np.int64).reshape(-1, 2)
        which, at = views["which"].astype(np.int64), views["at"].astype(np.int64)
        if ((which < 0) | (which >= count)).any() or ((at < 0) | (at + sizes > buffers[which, 1])).any():
            raise CorruptFile(f"{self._file.path}: a view points outside its record batch")
        places: IntArray = self._at + buffers[which, 0] + at
        return places

    def _fields(self, place: Place, start: int, stop: int) -> Sequence[pa.Array]:
        node, buffer = place.node + 1, place.buffer + 1
        arrays = []
        for i in range(place.kind.num_fields):
            kind = place.kind.field(i).type
            arrays.append(self._array(Place(kind, node, buffer), start, stop))
            inner = spans(kind) or (0, 0)
            node, buffer = node + inner[0], buffer + inner[1]
        return arrays

    def _offsets(self, place: Place, start: int, stop: int) -> npt.NDArray[np.signedinteger]:
        dtype = np.dtype("<i8" if is_wide(place.kind) else "<i4")
        data = self._bytes(place.buffer + 1, start * dtype.itemsize, (stop + 1) * dtype.itemsize)
        offsets: npt.NDArray[np.signedinteger] = np.frombuffer(data, dtype)
        if offsets[0] < 0 or bool(np.any(offsets[1:] < offsets[:-1])):
            raise CorruptFile(f"{self._file.path}: the offsets of a column of type {place.kind} must not decrease")
        return offsets
