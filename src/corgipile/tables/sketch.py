"""What a column looks like, block by block: label shares, or means."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, BadValue
from corgipile.tables.base import IntArray, Table, check_columns, fixed_field
from corgipile.tables.placed import PlacedColumn

FloatArray = npt.NDArray[np.float64]
RUN_BYTES = 2 << 20
MOST_CLASSES = 64
MOST_INTEGER_CLASSES = 1024
SAMPLE_ROWS = 64


class Sketch(NamedTuple):
    """Describes each block of a table by a few numbers.

    Attributes:
        values: float64[blocks, k]: the share of each class, or (k = 1) the mean.
        classes: float64[k], the classes found, ascending; None if the values are means.
    """

    values: FloatArray
    classes: FloatArray | None


def sketch(table: Table, cuts: IntArray, column: str) -> Sketch:
    """Describe a column block by block, by reading only this column once.

    Integers and booleans of at most 1024 values, and floats of at most 64 integral values, are classes; other
    columns are described by their mean.

    Args:
        table: The table.
        cuts: Block boundaries.
        column: A scalar column of numbers.

    Raises:
        BadSchema: The column holds no scalars.
        BadValue: A value is NaN, infinite or null.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"label": [0, 0, 1, 1, 1, 0]}))
        >>> sketch(table, table.cuts(3), "label").values.round(2).tolist()
        [[0.67, 0.33], [0.33, 0.67]]
    """
    check_columns(table.schema, [column])
    kind = table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise BadSchema(f"column {column!r} is {kind}; a column of numbers is needed, one a row")
    cuts = np.asarray(cuts, np.int64)
    if not len(cuts) or cuts[0] != 0 or cuts[-1] != len(table) or (np.diff(cuts) < 0).any():
        raise BadArgument(f"cuts must run from 0 to {len(table)}, got {cuts[:1].tolist()} to {cuts[-1:].tolist()}")
    tally = _Tally(len(cuts) - 1, MOST_CLASSES if pa.types.is_floating(kind) else MOST_INTEGER_CLASSES)
    step = RUN_BYTES // 8
    read = _reader(table, column)
    for start in range(0, len(table), step):
        stop = min(start + step, len(table))
        values = read(start, stop)
        first = int(np.searchsorted(cuts, start, side="right")) - 1
        last = int(np.searchsorted(cuts, stop, side="left"))
        lengths = np.minimum(cuts[first + 1 : last + 1], stop) - np.maximum(cuts[first:last], start)
        tally.add(values, np.repeat(np.arange(last - first), lengths), first)
    return tally.sketch(np.diff(cuts))


def row_bytes(table: Table, columns: Sequence[str] | None = None) -> float:
    """Return the bytes of one row in memory: exact for columns of fixed width, else from a sample of rows.

    Example:
        >>> from corgipile.tables import open
        >>> row_bytes(open(pa.table({"label": [0, 1, 1]})), ["label"])
        8.0
    """
    exact, varying = 0.0, []
    for name in check_columns(table.schema, columns):
        place = fixed_field(table.schema.field(name).type)
        if place is None:
            varying.append(name)
        else:
            exact += place[0].itemsize * float(np.prod(place[1]))
    if not varying or not len(table):
        return exact
    size = min(SAMPLE_ROWS, len(table))
    starts = sorted({0, (len(table) - size) // 2, len(table) - size})
    sampled = sum(table.read(start, start + size, varying).nbytes for start in starts)
    return exact + float(sampled) / (size * len(starts))


def _reader(table: Table, column: str) -> Callable[[int, int], npt.NDArray[Any]]:
    """Return what reads numbers of a column: straight from where they lie, if they have a fixed place."""
    layout = table.layout([column]) if len(table) else None
    if layout is not None:
        placed = PlacedColumn(layout, column)
        return lambda start, stop: _finite(placed.read(start, stop), column, start)
    return lambda start, stop: _numbers(table.read(start, stop, [column]).column(0), column, start)


def _numbers(array: pa.Array, column: str, start: int) -> npt.NDArray[Any]:
    if array.null_count:
        row = start + int(np.flatnonzero(np.asarray(array.is_null()))[0])
        raise BadValue(f"column {column!r} is null in row {row}; every row needs a number")
    return _finite(array.to_numpy(zero_copy_only=False), column, start)


def _finite(values: npt.NDArray[Any], column: str, start: int) -> npt.NDArray[Any]:
    bad = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(0, np.bool_)
    if bad.any():
        row = int(np.argmax(bad))
        raise BadValue(f"column {column!r} is {values[row]} in row {start + row}; it must be a finite number")
    return values


class _Tally:
    """Adds up values and counts classes, block by block; gives up counting when there are too many."""

    def __init__(self, blocks: int, most: int) -> None:
        self._most = most
        self._sums = np.zeros(blocks)
        self._counts: dict[float, FloatArray] | None = {}

    def add(self, values: npt.NDArray[Any], blocks: IntArray, first: int) -> None:
        """Add values that lie in these blocks, counted from block ``first``."""
        span = int(blocks[-1]) + 1
        encoded = _encode(values, self._most) if self._counts is not None else None
        if self._counts is None or encoded is None or len(self._counts) > self._most:
            self._stop_counting()
            self._sums[first : first + span] += np.bincount(blocks, values.astype(np.float64), span)
            return
        found, codes = encoded
        table = np.bincount(blocks * len(found) + codes, minlength=span * len(found)).reshape(span, len(found))
        for code in np.flatnonzero(table.any(axis=0)).tolist():
            counts = self._counts.setdefault(float(found[code]), np.zeros(len(self._sums)))
            counts[first : first + span] += table[:, code]

    def _stop_counting(self) -> None:
        for value, counts in (self._counts or {}).items():
            self._sums += value * counts
        self._counts = None

    def sketch(self, rows: IntArray) -> Sketch:
        """Turn counts into shares, sums into means; a block without rows gets zeros."""
        rows = np.maximum(rows, 1)
        if len(self._counts or ()) > self._most:
            self._stop_counting()
        if self._counts is None:
            return Sketch((self._sums / rows)[:, None], None)
        classes = np.array(sorted(self._counts), np.float64)
        counts = [self._counts[value] for value in classes.tolist()]
        values = np.stack(counts, axis=1) / rows[:, None] if counts else np.zeros((len(rows), 0))
        return Sketch(values, classes)


def _encode(values: npt.NDArray[Any], most: int) -> tuple[FloatArray, IntArray] | None:
    """Return the values there may be, at most about ``most``, and the place of each value among them; None if more."""
    if values.dtype.kind in "iub":
        low, high = int(values.min()), int(values.max())
        if high - low < most:
            return np.arange(low, high + 1, dtype=np.float64), values.astype(np.int64) - low
    encoded = pa.array(values).dictionary_encode()
    found = encoded.dictionary.to_numpy(zero_copy_only=False).astype(np.float64)
    if len(found) > most or (found != np.floor(found)).any():
        return None
    return found, encoded.indices.to_numpy().astype(np.int64)
