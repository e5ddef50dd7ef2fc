"""Sparse rows, as compressed sparse rows are stored: a column of indices and one of values."""

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

LOOK_ROWS = 1 << 17  # whose places are looked through at a time


def as_values(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values of sparse rows have in Arrow: learners take floats, which hold counts exactly.

    Example:
        >>> as_values(np.dtype("uint16")), as_values(np.dtype(">f8")), as_values(np.dtype("int64"))
        (dtype('float32'), dtype('float64'), dtype('float64'))
    """
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


class SparseRows:
    """The three arrays of compressed sparse rows.

    Args:
        where: What an error calls it.
        starts: Where the entries of each row begin, and the last end.
        indices: The place of each entry in its row.
        values: The entries.
        shape: Rows and the width of a row.

    Raises:
        CorruptFile: Their lengths contradict each other.
        BadSchema: They are no numbers.
    """

    def __init__(self, where: str, starts: Stored, indices: Stored, values: Stored, shape: tuple[int, int]) -> None:
        self.where, self._starts, self._indices, self._values = where, starts, indices, values
        self.rows, self.width = shape
        for name, one, kinds in (("indptr", starts, "iu"), ("indices", indices, "iu"), ("data", values, "biuf")):
            if len(one.shape) != 1 or one.dtype.kind not in kinds or one.dtype.itemsize > 8:
                raise BadSchema(
                    f"{where}: {name} is {one.dtype} of shape {one.shape}; numbers with one axis are needed"
                )
        if starts.shape[0] != self.rows + 1 or indices.shape != values.shape:
            raise CorruptFile(
                f"{where}: {self.rows} rows need {self.rows + 1} numbers of indptr, and as many of indices as of data; "
                f"there are {starts.shape[0]}, {indices.shape[0]} and {values.shape[0]}"
            )
        if not 0 <= self.width <= 1 << 31:
            raise BadSchema(f"{where}: rows have a width of {self.width}; up to 2^31 is right")
        self._edges: IntArray | None = None

    @property
    def stored(self) -> tuple[Stored, ...]:
        """Return the arrays."""
        return self._starts, self._indices, self._values

    @property
    def mean(self) -> float:
        """Return the entries of a row."""
        return self._values.shape[0] / max(1, self.rows)

    def spans(self, fetch: Fetch) -> "Spans":
        """Return where the entries of rows that are being read lie."""
        return fetch.once(self._starts, lambda: self._spans(fetch.starts, fetch.stops))

    def _spans(self, starts: IntArray, stops: IntArray) -> "Spans":
        found = self._starts.get(starts, stops + 1).astype(np.int64, copy=False)
        sizes = stops - starts + 1
        ends = np.cumsum(sizes)
        lengths = np.delete(np.diff(found), ends[:-1] - 1)  # between the last of a run and the first of the next
        low, high = found[ends - sizes], found[ends - 1]
        if len(found) and ((lengths < 0).any() or low.min() < 0 or high.max() > self._values.shape[0]):
            raise CorruptFile(f"{self.where}: indptr does not ascend from 0 to the {self._values.shape[0]} entries")
        return Spans(low, high, np.append(0, np.cumsum(lengths)))

    def lengths(self, rows: IntArray) -> IntArray:
        """Return how many entries each of these rows has."""
        wanted, back = np.unique(rows, return_inverse=True)
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        runs = wanted[np.append(0, breaks + 1)], wanted[np.append(breaks, len(wanted) - 1)] + 1
        lengths: IntArray = np.diff(self._spans(*runs).offsets)[back]
        return lengths

    def places(self, fetch: Fetch) -> "Places":
        """Return the indices of rows that are being read, ascending in each."""
        return fetch.once(self._indices, lambda: self._places(self.spans(fetch)))

    def _places(self, spans: "Spans") -> "Places":
        indices = self._indices.get(spans.low, spans.high)
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self.width):
            raise CorruptFile(
                f"{self.where}: indices are from {indices.min()} to {indices.max()}; rows have {self.width} places"
            )
        indices = indices.astype(np.int32, copy=False)
        turns = indices[1:] <= indices[:-1]
        edges = spans.offsets[1:-1]
        turns[edges[(edges > 0) & (edges < len(indices))] - 1] = False
        if not turns.any():
            return Places(indices, None)
        order = np.lexsort((indices, np.repeat(np.arange(len(spans.offsets) - 1), np.diff(spans.offsets))))
        return Places(indices[order], order)

    def values(self, fetch: Fetch) -> npt.NDArray[Any]:
        """Return the values of rows that are being read."""
        spans, order = self.spans(fetch), self.places(fetch).order
        found = self._values.get(spans.low, spans.high)
        found = found.astype(as_values(found.dtype), copy=False)
        return found if order is None else found[order]

    def edges(self) -> IntArray | None:
        """Return the rows in which chunks begin; None where entries are found without others."""
        chunk = max(self._indices.chunk, self._values.chunk)
        if not chunk:
            return None
        if self._edges is None:
            parts = pairwise(even_cuts(self.rows, LOOK_ROWS).tolist())
            looked = (self._starts.get(np.array([start]), np.array([stop])) for start, stop in parts)
            self._edges = varlen_cuts((part.astype(np.int64, copy=False) for part in looked), chunk)
        return self._edges


class Spans(NamedTuple):
    """Where entries lie: those of each run from ``low`` to ``high``; ``offsets`` say where each row's end."""

    low: IntArray
    high: IntArray
    offsets: IntArray


class Places(NamedTuple):
    """Indices, and how they were put in order where they were in none."""

    indices: npt.NDArray[np.int32]
    order: IntArray | None


class Entries:
    """A column of sparse rows.

    Args:
        rows: The rows.
    """

    kind: pa.DataType
    stored: Sequence[Stored]
    width: float

    def __init__(self, rows: SparseRows) -> None:
        self.sparse, self.stored = rows, rows.stored

    def edges(self) -> IntArray | None:
        """Return the rows in which chunks begin."""
        return self.sparse.edges()

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of rows."""
        return self.sparse.lengths(rows) * int(self.kind.value_type.bit_width // 8)

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        raise NotImplementedError


class _Indices(Entries):
    """The column of indices."""

    def __init__(self, rows: SparseRows) -> None:
        super().__init__(rows)
        self.kind, self.width = pa.list_(pa.int32()), 4.0 * rows.mean

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        return list_array(self.kind, self.sparse.spans(fetch).offsets, self.sparse.places(fetch).indices)


class _Values(Entries):
    """The column of values."""

    def __init__(self, rows: SparseRows, values: Stored) -> None:
        super().__init__(rows)
        kind = as_values(values.dtype)
        self.kind, self.width = pa.list_(pa.from_numpy_dtype(kind)), kind.itemsize * rows.mean

    def array(self, fetch: Fetch) -> pa.Array:
        """Return rows."""
        return list_array(self.kind, self.sparse.spans(fetch).offsets, self.sparse.values(fetch))


def sparse_columns(name: str, where: str, arrays: Sequence[Stored], shape: tuple[int, int]) -> dict[str, Column]:
    """Return sparse rows as two columns, ``NAME_k`` and ``NAME_v``.

    Args:
        name: What they are called.
        where: What an error calls them.
        arrays: indptr, indices and data.
        shape: Rows and the width of a row.
    """
    starts, indices, values = arrays
    rows = SparseRows(where, starts, indices, values, shape)
    return {f"{name}_k": _Indices(rows), f"{name}_v": _Values(rows, values)}
