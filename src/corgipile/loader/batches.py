"""Batches in the format asked for, cut from gathered rows; arrays the consumer let go are used again."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, MissingExtra
from corgipile.loader.store import SlotArray, Store

__all__ = ["Format", "Gatherer"]

Format = Literal["numpy", "torch", "arrow"]
GATHER_ROWS, GATHER_BYTES = 4096, 1 << 20  # gathered at a time: small batches share the cost of a call
FREE_REFERENCES = 2  # of an array nobody but this module holds: the list's and getrefcount's own


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
        self._cut = _cutter(form, [*store.fields])
        self._spare: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in store.fields}
        self._held: list[pa.RecordBatch] = []
        self.filled = 0
        self._arrays = self._fresh()

    def _fresh(self) -> dict[str, npt.NDArray[np.generic]]:
        return {name: self._array(name) for name in self._store.fields}

    def _array(self, name: str) -> npt.NDArray[np.generic]:
        for array in self._spare[name]:
            if sys.getrefcount(array) <= FREE_REFERENCES + 1:  # and the loop's
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
            self._held.append(self._store.gather_held(visit))
        self.filled = end

    def cut(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop`` of those gathered as one batch."""
        rows: dict[str, Any] = {name: array[start:stop] for name, array in self._arrays.items()}
        if self._held:
            if len(self._held) > 1:
                self._held = [pa.concat_batches(self._held)]
            part = self._held[0].slice(start, stop - start)
            rows |= {name: part.column(name) for name in self._store.held}
        return self._cut(rows)

    def next(self) -> None:
        """Begin anew; arrays still in the consumer's hands are left to it."""
        self._arrays = {}
        self._arrays = self._fresh()
        self._held, self.filled = [], 0


def _cutter(form: Format, fixed: list[str]) -> Callable[[dict[str, Any]], Any]:
    if form == "numpy":
        return lambda rows: {k: v if k in fixed else v.to_numpy(zero_copy_only=False) for k, v in rows.items()}
    if form == "arrow":
        return _arrow
    if form != "torch":
        raise BadArgument(f'format must be "numpy", "torch" or "arrow", got {form!r}')
    try:
        import torch  # noqa: PLC0415  # optional
    except ImportError:
        raise MissingExtra('format="torch" needs PyTorch: pip install torch') from None
    return lambda rows: {k: torch.from_numpy(v) if k in fixed else _tensors(torch, v) for k, v in rows.items()}


def _arrow(rows: Mapping[str, Any]) -> pa.RecordBatch:
    """Make a record batch; arrays are copied, since Arrow data must not change when arrays are used again."""
    columns = {}
    for name, value in rows.items():
        if isinstance(value, pa.Array):
            columns[name] = value
            continue
        column = pa.array(value.reshape(-1).copy())
        for size in reversed(value.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)


def _tensors(torch: Any, column: pa.Array) -> Any:
    """Return one tensor a row for lists of numbers, Python values for the rest."""
    kind = column.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and kind.value_type.num_fields == 0:
        return [torch.from_numpy(np.array(row)) for row in column.to_numpy(zero_copy_only=False)]
    return column.to_pylist()
