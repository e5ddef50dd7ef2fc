"""Sparse rows as they wait in a buffer, and what is wrong with those that cannot be learnt from."""

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadSparseRow, BadValue, CorgiPileError, RaggedRows
from corgipile.loader.buffer import Buffer

__all__ = ["NULL", "NULL_VALUE", "Sparse", "flaw", "gathered", "sparse_rows"]

NULL = -(1 << 31)  # stands for an index that is null
FloatArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]
Flaw = tuple[type[CorgiPileError], str]
NULL_INDEX: Flaw = BadSparseRow, "has a null among its sparse indices; fill or drop such rows first"
NULL_VALUE: Flaw = (
    BadValue,
    "has a feature that is null, NaN or infinite; finite numbers are needed",
)
_NO_INDEX = np.array([NULL], np.int32)
_NO_VALUE = np.array([np.nan])


class Sparse(NamedTuple):
    """Where sparse rows lie, one entry a slot: addresses of indices and values, and lengths.

    Attributes:
        indices: Where the int32 indices of a row begin.
        values: Where its values begin.
        lengths: How many of each it has.
        flaws: What is wrong with rows of which nothing else is kept, by slot.
    """

    indices: npt.NDArray[np.uint64]
    values: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    flaws: Mapping[int, Flaw] = {}


def gathered(
    rows: Sparse, visit: SlotArray, real: np.dtype[Any]
) -> tuple[npt.NDArray[np.int32], FloatArray, npt.NDArray[np.int64]]:
    """Return copies of sparse rows back to back: indices, values, lengths."""
    lengths = np.ascontiguousarray(rows.lengths[visit])
    indices, values = np.empty(lengths.sum(), np.int32), np.empty(lengths.sum(), real)
    for out, addresses in ((indices, rows.indices), (values, rows.values)):
        _kernel.gather_ragged(out.view(np.uint8), addresses, rows.lengths, out.itemsize, visit)
    return indices, values, lengths


def sparse_rows(buffer: Buffer, columns: tuple[str, ...], real: np.dtype[Any], visit: SlotArray) -> Sparse:
    """Return the sparse rows that wait in a buffer.

    Where one that is to be visited has more indices than values, or fewer, a null stands in its place: the learner
    meets it in its turn, as it meets other rows that it cannot learn from.
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
    """Say what is wrong with a row; in place of one of its lists that is null there is a list of one null."""
    length = int(rows.lengths[slot])
    if length == 1 and _at(rows.indices[slot], np.dtype(np.int32)) == NULL:
        return NULL_INDEX
    if count == 1 and np.isnan(_at(rows.values[slot], real)):
        return NULL_VALUE
    return RaggedRows, f"has {length} sparse indices and {count} values; as many are needed"


def _at(address: Any, kind: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(int(address), kind.itemsize), kind)[0]


def flaw(rows: Any, slot: int, real: np.dtype[Any]) -> Flaw | None:
    """Say what is wrong with a row beyond what the kernel says of it."""
    if not isinstance(rows, Sparse):
        return None
    indices = gathered(rows, np.array([slot], np.int32), real)[0]
    return rows.flaws.get(slot, NULL_INDEX if NULL in indices else None)
