"""Batches in the format asked for, cut from gathered rows; arrays the consumer let go are used again."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, MissingExtra
from corgipile.loader.store import SlotArray, Store
from corgipile.tables.base import fixed_field

__all__ = ["Format", "Gatherer"]

Format = Literal["numpy", "torch", "arrow"]
GATHER_ROWS, GATHER_BYTES = 8192, 2 << 20  # gathered at a time: small batches share the cost of a call


def _references(arrays: list[npt.NDArray[np.generic]]) -> int:
    """Count the references of a list's last array as `Gatherer` does in its loop: it depends on the interpreter."""
    count = 0
    for array in arrays:
        count = sys.getrefcount(array)
    return count


FREE_REFERENCES = _references([np.empty(0)])  # of an array that nobody but its list holds


class Gatherer:
    """Collects visited rows into arrays of several batches and cuts them.

    Args:
        store: Where the rows lie.
        batch_size: Rows of a batch.
        form: ``"numpy"``, ``"torch"`` or ``"arrow"``.
    """

    def __init__(self, store: Store, batch_size: int, form: Format) -> None:
        self._store = store
        row_bytes = sum(field.row_bytes for field in store.fields.values()) or GATHER_BYTES
        self.capacity = batch_size * max(1, min(GATHER_ROWS, GATHER_BYTES // row_bytes) // batch_size)
        self._cut, self._batch_size = _cutter(form), batch_size
        self._spare: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in store.fields}
        self._held: list[pa.RecordBatch] = []
        self.filled = 0
        self._arrays = self._fresh()

    def _fresh(self) -> dict[str, npt.NDArray[np.generic]]:
        return {name: self._array(name) for name in self._store.fields}

    def _array(self, name: str) -> npt.NDArray[np.generic]:
        for array in self._spare[name]:
            if sys.getrefcount(array) <= FREE_REFERENCES:
                return array
        field = self._store.fields[name]
        array = np.empty((self.capacity, *field.shape), field.dtype)
        if len(self._spare[name]) < 4:
            self._spare[name].append(array)
        return array

    def add(self, visit: SlotArray) -> None:
        """Gather more rows; at most what still fits."""
        end = self.filled + len(visit)
        for name, array in self._arrays.items():
            self._store.gather(name, visit, array[self.filled : end])
        if self._store.held and len(visit):
            self._held.append(self._store.held.gather(visit))
        self.filled = end

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Cut what was gathered: yield each batch with the number of rows up to its end."""
        size, stop = self._batch_size, self.filled
        if not stop:
            return iter(())
        ends = [*range(size, stop, size), stop]
        columns: dict[str, Any] = {name: array[:stop] for name, array in self._arrays.items()}
        if self._held:
            held = pa.concat_batches(self._held)
            columns |= {name: held.column(name) for name in self._store.held.names}
        return zip(ends, self._cut(columns, ends), strict=True)

    def next(self) -> None:
        """Begin anew; arrays still in the consumer's hands are left to it."""
        self._arrays = {}
        self._arrays = self._fresh()
        self._held, self.filled = [], 0


def _cutter(form: Format) -> Callable[[dict[str, Any], list[int]], Iterator[Any]]:
    if form == "numpy":
        return _numpy
    if form == "arrow":
        return _arrow
    if form != "torch":
        raise BadArgument(f'format must be "numpy", "torch" or "arrow", got {form!r}')
    try:
        import torch  # noqa: PLC0415  # optional
    except ImportError:
        raise MissingExtra('format="torch" needs PyTorch: pip install torch') from None
    return lambda columns, ends: _together(columns, {n: _tensors(torch, v, ends) for n, v in columns.items()})


def _together(columns: Mapping[str, Any], parts: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Make one dictionary a batch of each column's parts."""
    names = list(columns)
    return (dict(zip(names, values, strict=True)) for values in zip(*parts.values(), strict=True))


def _slices(column: Any, ends: list[int]) -> Iterator[Any]:
    """Cut an array at these row numbers."""
    return (column[start:stop] for start, stop in pairwise([0, *ends]))


def _numpy(columns: dict[str, Any], ends: list[int]) -> Iterator[Any]:
    parts = {}
    for name, column in columns.items():
        plain = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column
        parts[name] = _slices(plain, ends)
    return _together(columns, parts)


def _arrow(columns: dict[str, Any], ends: list[int]) -> Iterator[pa.RecordBatch]:
    """Make record batches of copies, since Arrow data must not change when arrays are used again."""
    made = {}
    for name, column in columns.items():
        made[name] = column
        if not isinstance(column, pa.Array):
            made[name] = pa.array(column.reshape(-1).copy())
            for size in reversed(column.shape[1:]):
                made[name] = pa.FixedSizeListArray.from_arrays(made[name], size)
    whole = pa.RecordBatch.from_pydict(made)
    return (whole.slice(start, stop - start) for start, stop in pairwise([0, *ends]))


def _tensors(torch: Any, column: Any, ends: list[int]) -> Iterable[Any]:
    """Cut a column into tensors; rows that are lists of numbers become one tensor each, others Python values."""
    if not isinstance(column, pa.Array):
        return torch.from_numpy(column).split(ends[0])  # type: ignore[no-any-return]
    kind = column.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and fixed_field(kind.value_type):
        rows = [torch.from_numpy(np.array(row)) for row in column.to_numpy(zero_copy_only=False)]
        return _slices(rows, ends)
    return _slices(column.to_pylist(), ends)
