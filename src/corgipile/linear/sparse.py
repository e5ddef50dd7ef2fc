"""Buffered sparse rows, and the faults of those that cannot be trained on."""

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadSparseRow, BadValue, CorgiPileError, RaggedRows
from corgipile.loader.buffer import Buffer

__all__ = ["NULL", "NULL_VALUE", "Sparse", "flaw", "gather", "sparse_rows"]

NULL = -(1 << 31)  # replaces a null index
FloatArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]
Flaw = tuple[type[CorgiPileError], str]
NULL_INDEX: Flaw = BadSparseRow, "has a null among its sparse indices; fill or drop such rows first"
NULL_VALUE: Flaw = (BadValue, "has a feature that is null, NaN or infinite; finite numbers are needed")
_NO_INDEX = np.array([NULL], np.int32)
_NO_VALUE = np.array([np.nan])


class Sparse(NamedTuple):
    """Sparse rows, one entry per slot: addresses of indices and values, and lengths.

    Attributes:
        indices: Address of a row's int32 indices.
        values: Address of its values.
        lengths: Its number of entries.
        flaws: The fault of each row that was replaced, by slot.
        owners: The arrays at these addresses, if nothing else owns them.
    """

    indices: npt.NDArray[np.uint64]
    values: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    flaws: Mapping[int, Flaw] = {}
    owners: tuple[Any, ...] = ()


def gather(
    rows: Sparse, visit: SlotArray, real: np.dtype[Any]
) -> tuple[npt.NDArray[np.int32], FloatArray, npt.NDArray[np.int64]]:
    """Return copies of sparse rows back to back: indices, values, lengths."""
    lengths = np.ascontiguousarray(rows.lengths[visit])
    indices, values = np.empty(lengths.sum(), np.int32), np.empty(lengths.sum(), real)
    for out, addresses in ((indices, rows.indices), (values, rows.values)):
        _kernel.gather_ragged(out.view(np.uint8), addresses, rows.lengths, out.itemsize, visit)
    return indices, values, lengths


def sparse_rows(buffer: Buffer, columns: tuple[str, ...], real: np.dtype[Any], visit: SlotArray) -> Sparse:
    """Return the buffered sparse rows.

    A visited row whose numbers of indices and values differ is replaced by a null: the learner then handles it in
    order, like other rows that it cannot train on.
    """
    (indices, lengths), (values, counts) = (buffer.ragged(name) for name in columns)
    uneven = visit[lengths[visit] != counts[visit]]
    rows = Sparse(indices, values, lengths)
    if not uneven.size:
        return rows
    flaws = {int(slot): _uneven(rows, int(counts[slot]), int(slot), real) for slot in uneven}
    indices, values, lengths = indices.copy(), values.copy(), lengths.copy()
    indices[uneven], values[uneven], lengths[uneven] = _NO_INDEX.ctypes.data, _NO_VALUE.ctypes.data, 1
    return Sparse(indices, values, lengths, flaws)


def _uneven(rows: Sparse, count: int, slot: int, real: np.dtype[Any]) -> Flaw:
    """Return the fault of a row; a null list was read as a list of one null."""
    length = int(rows.lengths[slot])
    if length == 1 and _at(rows.indices[slot], np.dtype(np.int32)) == NULL:
        return NULL_INDEX
    if count == 1 and np.isnan(_at(rows.values[slot], real)):
        return NULL_VALUE
    return RaggedRows, f"has {length} sparse indices and {count} values; they must be equal in number"


def _at(address: Any, kind: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(int(address), kind.itemsize), kind)[0]


def flaw(rows: Any, slot: int, real: np.dtype[Any]) -> Flaw | None:
    """Return the fault of a row that the kernel does not distinguish."""
    if not isinstance(rows, Sparse):
        return None
    indices = gather(rows, np.array([slot], np.int32), real)[0]
    return rows.flaws.get(slot, NULL_INDEX if NULL in indices else None)
