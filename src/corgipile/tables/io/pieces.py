"""Reads of a table stored in pieces: record batches, row groups or files."""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.nesting import check_types
from corgipile.tables.io.files import decoding
from corgipile.tables.layout import LIMIT, IntArray
from corgipile.tables.spans import array_of
from corgipile.tables.values import as_type, is_view, viewless

ReadPiece = Callable[[int, int, int], pa.RecordBatch]
TakePiece = Callable[[int, IntArray], pa.RecordBatch]
Value = TypeVar("Value")


def read_pieces(starts: IntArray, start: int, stop: int, read: ReadPiece) -> pa.RecordBatch:
    """Read rows ``start`` to ``stop``, piece by piece, and join them.

    Args:
        starts: int64[pieces + 1], first row of each piece, then the number of rows.
        start: First row.
        stop: Row after the last; more than ``start``.
        read: Reads rows ``a`` to ``b`` of piece ``i``, counted from the piece's own first row.
    """
    first = int(np.searchsorted(starts, start, side="right")) - 1
    last = int(np.searchsorted(starts, stop, side="left"))
    batches = []
    for piece in range(first, last):
        low = int(starts[piece])
        begin, end = max(start - low, 0), min(stop, int(starts[piece + 1])) - low
        if begin < end:
            batches.append(read(piece, begin, end))
    return join(batches)


def take_pieces(starts: IntArray, rows: IntArray, take: TakePiece) -> pa.RecordBatch:
    """Take scattered rows, at least one, in the order requested."""
    pieces = np.searchsorted(starts, rows, side="right") - 1
    if (pieces == pieces[0]).all():
        return take(int(pieces[0]), rows - starts[pieces[0]])
    order = np.argsort(rows, kind="stable")  # each piece takes ascending rows
    found, firsts = np.unique(pieces[order], return_index=True)
    groups = np.split(order, firsts[1:])
    batch = join([take(int(piece), rows[group] - starts[piece]) for piece, group in zip(found, groups, strict=True)])
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.arange(len(rows))
    return pick_rows(batch, inverse)


def places_of(numbers: npt.NDArray[Any]) -> Iterator[tuple[int, IntArray]]:
    """Yield each distinct number in ascending order with its positions.

    Example:
        >>> [(number, places.tolist()) for number, places in places_of(np.array([7, 2, 7]))]
        [(2, [1]), (7, [0, 2])]
    """
    order = np.argsort(numbers, kind="stable")
    found, firsts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, firsts)[1:], strict=True)


def merge_cuts(starts: IntArray, rows: int) -> IntArray:
    """Merge whole pieces into blocks of about ``rows`` rows.

    Example:
        >>> merge_cuts(np.array([0, 4, 8, 12, 13]), 9).tolist()
        [0, 8, 13]
    """
    if rows < 1:
        raise BadArgument(f"block rows must be at least 1, got {rows}")
    edges = np.unique(starts)
    cuts, at = [0], 0
    while at < len(edges) - 1:
        goal = edges[at] + rows
        above = min(int(np.searchsorted(edges, goal)), len(edges) - 1)
        nearer_below = above - 1 > at and goal - edges[above - 1] < edges[above] - goal
        at = above - 1 if nearer_below else max(above, at + 1)
        cuts.append(int(edges[at]))
    return np.array(cuts, np.int64)


def runs_of(rows: IntArray, gap: int, most: int = LIMIT) -> tuple[IntArray, IntArray]:
    """Cover sorted distinct rows by runs of at most ``most`` rows, bridging holes of up to ``gap`` rows.

    Returns:
        First row, and row after the last, of each run.

    Example:
        >>> runs_of(np.array([1, 2, 5, 9]), 2)
        (array([1, 9]), array([ 6, 10]))
    """
    breaks = np.flatnonzero((np.diff(rows) > gap + 1) | (np.diff(rows // most) != 0))
    return rows[np.append(0, breaks + 1)], rows[np.append(breaks, len(rows) - 1)] + 1


def take_once(rows: IntArray, take: Callable[[IntArray], pa.RecordBatch]) -> pa.RecordBatch:
    """Take rows in any order by a function that gets each row once, ascending."""
    if bool(np.all(rows[:-1] < rows[1:])):
        return take(rows)
    wanted, inverse = np.unique(rows, return_inverse=True)
    return pick_rows(take(wanted), inverse)


def take_runs(
    rows: IntArray, gap: int, read: Callable[[int, int], pa.RecordBatch], most: int = LIMIT
) -> pa.RecordBatch:
    """Take scattered rows by reading the runs that contain them, up to ``most`` rows at a time."""
    return take_once(rows, lambda wanted: _read_runs(wanted, gap, read, most))


def _read_runs(wanted: IntArray, gap: int, read: Callable[[int, int], pa.RecordBatch], most: int) -> pa.RecordBatch:
    firsts, stops = runs_of(wanted, gap, most)
    batches = []
    edges = np.searchsorted(wanted, stops)
    low = 0
    for first, stop, high in zip(firsts.tolist(), stops.tolist(), edges.tolist(), strict=True):
        batch = read(first, stop)
        if high - low < stop - first:
            batch = pick_rows(batch, wanted[low:high] - first)
        batches.append(batch)
        low = high
    return join(batches)


def pick_rows(batch: pa.RecordBatch, rows: IntArray) -> pa.RecordBatch:
    """Return rows of a record batch in the order requested."""
    try:
        return batch.take(array_of(rows))
    except pa.ArrowNotImplementedError:
        return pa.RecordBatch.from_arrays([_pick_column(column, rows) for column in batch.columns], schema=batch.schema)


def _pick_column(column: pa.Array, rows: IntArray) -> pa.Array:
    """Return rows of a column, also of a type for which Arrow has no take kernel."""
    if is_view(column.type):
        return _pick_views(column, rows)
    try:
        return column.take(array_of(rows))
    except pa.ArrowNotImplementedError:
        plain = viewless(column.type)  # concatenated views would each copy all bytes of their column
        return pa.concat_arrays([as_type(column.slice(row, 1), plain) for row in rows.tolist()]).cast(column.type)


def _pick_views(column: pa.Array, rows: IntArray) -> pa.Array:
    """Return rows of a view column; they view the same bytes."""
    known, views, *data = column.buffers()
    picked = np.frombuffer(views, "V16")[column.offset + rows] if views is not None else np.zeros(len(rows), "V16")
    if known is not None:
        bits = np.unpackbits(np.frombuffer(known, np.uint8), bitorder="little")[column.offset + rows]
        known = pa.py_buffer(np.packbits(bits, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(rows), [known, pa.py_buffer(picked), *data])


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join record batches into one; the schema is that of the first."""
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    try:
        arrays = [pa.concat_arrays([batch.column(i) for batch in batches]) for i in range(len(schema))]
    except pa.ArrowInvalid as error:
        raise BadArgument(f"rows do not fit one record batch: {error}; read fewer rows") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pick(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns."""
    if len(schema) == len(columns) and schema.names == [*columns]:
        return schema
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


_recent_schemas: list[pa.Schema] = []  # the last four
_recent_names: list[pa.Schema] = []  # the last four whose names are right


def same_schema(schema: pa.Schema) -> pa.Schema:
    """Return a recent equal schema, else this one, so that the files of a folder share one object."""
    for known in _recent_schemas:
        if known.equals(schema, check_metadata=True):
            return known
    _recent_schemas[:] = [schema, *_recent_schemas[:3]]
    return schema


def by_schema(function: Callable[[pa.Schema], Value]) -> Callable[[pa.Schema], Value]:
    """Cache a function's values for the last few schema objects, which the files of a folder share.

    Example:
        >>> names = by_schema(lambda schema: schema.names)
        >>> schema = pa.schema({"x": pa.int8()})
        >>> names(schema) is names(schema)
        True
    """
    recent: list[tuple[pa.Schema, Value]] = []

    @functools.wraps(function)
    def cached(schema: pa.Schema) -> Value:
        for known, value in recent:
            if known is schema:
                return value
        value = function(schema)
        recent[:] = [(schema, value), *recent[:7]]
        return value

    return cached


def empty(schema: pa.Schema, columns: Sequence[str]) -> pa.RecordBatch:
    """Return a record batch without rows."""
    fields = pick(schema, columns)
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in fields], schema=fields)


def check_rows(rows: IntArray, count: int) -> IntArray:
    """Return row numbers as int64; raise BadArgument for a number outside 0 to ``count - 1``."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise BadArgument(f"row numbers must be a list of integers, got {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.int64, copy=False)
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= count):
        raise BadArgument(f"row {rows[(rows < 0) | (rows >= count)][0]} asked for; the table has rows 0 to {count}")
    return rows


def check_names(schema: pa.Schema, path: str) -> None:
    """Raise BadSchema for no columns, equal names or deep nesting, CorruptFile for a name that is not text."""
    if any(known is schema for known in _recent_names):
        return
    with decoding(path):
        check_types(schema, path)
    names = schema.names
    if not names:
        raise BadSchema(f"{path} must have at least one column, got none")
    if len({*names}) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise BadSchema(f"{path}: column names must differ, got {names.count(name)} columns named {name!r}")
    _recent_names[:] = [schema, *_recent_names[:3]]


class Recent(Generic[Value]):
    """A thread-safe cache of the last few values; concurrent requests for a key make its value once.

    Example:
        >>> squares = Recent(2)
        >>> squares.get(3, lambda: 9)
        9
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of ``key``; make it if it is not cached."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
            finally:
                with self._lock:
                    self._locks.pop(key, None)
            with self._lock:
                self._values[key] = value
                self._evict()
        return value

    def clear(self) -> None:
        """Release all values."""
        with self._lock:
            self._values.clear()

    def _evict(self) -> None:
        while len(self._values) > self._room:
            self._values.popitem(last=False)
