"""Compressed sparse rows (CSR) as two columns: indices and values."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadSchema, CorruptFile
from corgipile.tables.arrays.columns import Column, Fetch, list_array
from corgipile.tables.arrays.stored import Stored
from corgipile.tables.pages import varlen_cuts
from corgipile.tables.table import IntArray, even_cuts

__all__ = ["Entries", "SparseRows", "as_values", "sparse_columns"]

ROWS_PER_READ = 1 << 17  # rows whose starts are read at a time


def as_values(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of sparse values in Arrow: a float that holds counts exactly, as learners need.

    Example:
        >>> as_values(np.dtype("uint16")), as_values(np.dtype(">f8")), as_values(np.dtype("int64"))
        (dtype('float32'), dtype('float64'), dtype('float64'))
    """
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


class SparseRows:
    """The three arrays of compressed sparse rows (CSR).

    Args:
        where: Name for error messages.
        starts: Start of each row's entries, then the end of the last (indptr).
        indices: Column of each entry.
        values: The entries.
        shape: Rows and columns.

    Raises:
        CorruptFile: The lengths of the arrays contradict each other.
        BadSchema: The arrays are not numeric.
    """

    def __init__(self, where: str, starts: Stored, indices: Stored, values: Stored, shape: tuple[int, int]) -> None:
        self.where, self._starts, self._indices, self._values = where, starts, indices, values
        self.rows, self.width = shape
        for name, array, kinds in (("indptr", starts, "iu"), ("indices", indices, "iu"), ("data", values, "biuf")):
            if len(array.shape) != 1 or array.dtype.kind not in kinds or array.dtype.itemsize > 8:
                raise BadSchema(
                    f"{where}: {name} must be numbers with one axis, got {array.dtype} of shape {array.shape}"
                )
        if starts.shape[0] != self.rows + 1 or indices.shape != values.shape:
            raise CorruptFile(
                f"{where}: indptr must have {self.rows + 1} numbers, and indices as many as data, got "
                f"{starts.shape[0]}, {indices.shape[0]} and {values.shape[0]}"
            )
        if not 0 <= self.width <= 1 << 31:
            raise BadSchema(f"{where}: rows must have at most 2^31 columns, got {self.width}")
        self._edges: IntArray | None = None

    @property
    def stored(self) -> tuple[Stored, ...]:
        """The stored arrays."""
        return self._starts, self._indices, self._values

    @property
    def mean(self) -> float:
        """The mean number of entries in a row."""
        return self._values.shape[0] / max(1, self.rows)

    def spans(self, fetch: Fetch) -> "Spans":
        """Return the entry ranges of the rows being read."""
        return fetch.once(self._starts, lambda: self._spans(fetch.starts, fetch.stops))

    def _spans(self, starts: IntArray, stops: IntArray) -> "Spans":
        begins = self._starts.get(starts, stops + 1).astype(np.int64, copy=False)
        sizes = stops - starts + 1
        ends = np.cumsum(sizes)
        lengths = np.delete(np.diff(begins), ends[:-1] - 1)  # drop the differences between runs
        low, high = begins[ends - sizes], begins[ends - 1]
        if len(begins) and ((lengths < 0).any() or low.min() < 0 or high.max() > self._values.shape[0]):
            raise CorruptFile(
                f"{self.where}: indptr must ascend from 0 to the number of entries, {self._values.shape[0]}"
            )
        return Spans(low, high, np.append(0, np.cumsum(lengths)))

    def lengths(self, rows: IntArray) -> IntArray:
        """Return the number of entries of each row."""
        wanted, inverse = np.unique(rows, return_inverse=True)
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        runs = wanted[np.append(0, breaks + 1)], wanted[np.append(breaks, len(wanted) - 1)] + 1
        lengths: IntArray = np.diff(self._spans(*runs).offsets)[inverse]
        return lengths

    def places(self, fetch: Fetch) -> "Places":
        """Return the column indices of the rows being read, ascending within each row."""
        return fetch.once(self._indices, lambda: self._places(self.spans(fetch)))

    def _places(self, spans: "Spans") -> "Places":
        indices = self._indices.get(spans.low, spans.high)
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self.width):
            raise CorruptFile(
                f"{self.where}: indices must be from 0 to below {self.width}, got {indices.min()} to {indices.max()}"
            )
        indices = indices.astype(np.int32, copy=False)
        descending = indices[1:] <= indices[:-1]
        edges = spans.offsets[1:-1]
        descending[edges[(edges > 0) & (edges < len(indices))] - 1] = False
        if not descending.any():
            return Places(indices, None)
        order = np.lexsort((indices, np.repeat(np.arange(len(spans.offsets) - 1), np.diff(spans.offsets))))
        return Places(indices[order], order)

    def values(self, fetch: Fetch) -> npt.NDArray[Any]:
        """Return the values of the rows being read."""
        spans, order = self.spans(fetch), self.places(fetch).order
        values = self._values.get(spans.low, spans.high)
        values = values.astype(as_values(values.dtype), copy=False)
        return values if order is None else values[order]

    def edges(self) -> IntArray | None:
        """Return the first row of each chunk; None if the arrays are not chunked."""
        chunk = max(self._indices.chunk, self._values.chunk)
        if not chunk:
            return None
        if self._edges is None:
            parts = pairwise(even_cuts(self.rows, ROWS_PER_READ).tolist())
            starts_read = (self._starts.get(np.array([start]), np.array([stop])) for start, stop in parts)
            self._edges = varlen_cuts((part.astype(np.int64, copy=False) for part in starts_read), chunk)
        return self._edges


class Spans(NamedTuple):
    """Entry ranges: each run's from ``low`` to ``high``; ``offsets`` are the ends of its rows."""

    low: IntArray
    high: IntArray
    offsets: IntArray


class Places(NamedTuple):
    """Column indices, and the permutation that sorted them, if any."""

    indices: npt.NDArray[np.int32]
    order: IntArray | None


class Entries:
    """A column of entries of sparse rows.

    Args:
        rows: The rows.
    """

    kind: pa.DataType
    stored: Sequence[Stored]
    width: float
    longest = 0

    def __init__(self, rows: SparseRows) -> None:
        self.sparse, self.stored = rows, rows.stored

    def edges(self) -> IntArray | None:
        """Return the first row of each chunk."""
        return self.sparse.edges()

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of rows."""
        return self.sparse.lengths(rows) * int(self.kind.value_type.bit_width // 8)

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        raise NotImplementedError


class _Indices(Entries):
    """The column of indices."""

    def __init__(self, rows: SparseRows) -> None:
        super().__init__(rows)
        self.kind, self.width = pa.list_(pa.int32()), 4.0 * rows.mean

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        return list_array(self.kind, self.sparse.spans(fetch).offsets, self.sparse.places(fetch).indices)


class _Values(Entries):
    """The column of values."""

    def __init__(self, rows: SparseRows, values: Stored) -> None:
        super().__init__(rows)
        kind = as_values(values.dtype)
        self.kind, self.width = pa.list_(pa.from_numpy_dtype(kind)), kind.itemsize * rows.mean

    def array(self, fetch: Fetch) -> pa.Array:
        """Return the rows being read."""
        return list_array(self.kind, self.sparse.spans(fetch).offsets, self.sparse.values(fetch))


def sparse_columns(name: str, where: str, arrays: Sequence[Stored], shape: tuple[int, int]) -> dict[str, Column]:
    """Return sparse rows as two columns, ``NAME_k`` and ``NAME_v``.

    Args:
        name: Prefix of the columns.
        where: Name for error messages.
        arrays: indptr, indices and data.
        shape: Rows and columns.
    """
    starts, indices, values = arrays
    rows = SparseRows(where, starts, indices, values, shape)
    return {f"{name}_k": _Indices(rows), f"{name}_v": _Values(rows, values)}
