"""Layouts of columns in the plain record batches of an Arrow file."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.formats.arrow.flatbuffers import Batch
from corgipile.tables.formats.arrow.slices import UNSUPPORTED, BatchSlices, Place, Places
from corgipile.tables.io.files import File
from corgipile.tables.table import (
    ColumnLayout,
    IntArray,
    Layout,
    VarlenLayout,
    fixed_field,
    is_text,
    is_wide,
    item_bytes,
)

__all__ = ["lay_out", "placeable"]

_recent: list[tuple[Batch, list[Place], IntArray]] = []  # the places of the last two heads and columns


def placeable(kind: pa.DataType, *, varlen: bool) -> bool:
    """Return whether rows of a type can be read in place; with ``varlen`` also those of variable length."""
    return fixed_field(kind) is not None or (varlen and item_bytes(kind) > 0)


def lay_out(
    file: File,
    fields: Sequence[pa.Field],
    places: Sequence[Place],
    metadata: Iterable[Batch],
    begins: IntArray,
    starts: IntArray,
) -> Layout | None:
    """Return the layout of columns; None if a record batch is compressed or has nulls.

    Args:
        file: The file.
        fields: The columns.
        places: Their nodes and buffers.
        metadata: The metadata of each record batch.
        begins: File offset of each batch's body.
        starts: First row of each, then the number of rows.
    """
    found = _parts(file, fields, places, metadata, len(begins))
    if found is None:
        return None
    kinds = [fixed_field(field.type) for field in fields]
    widths = np.array([kind[0].itemsize * math.prod(kind[1]) if kind else 0 for kind in kinds])
    begins, files = begins + file.base, np.zeros(len(begins), np.int32)
    offsets = found[..., 0] + begins
    scattered = (offsets[:, :-1] + np.diff(starts[:-1]) * widths[:, None] != offsets[:, 1:]).all(axis=1).tolist()
    columns = {}
    for field, kind, single, own, parts in zip(fields, kinds, scattered, offsets, found, strict=True):
        if kind is not None and single:  # most columns of a file share these arrays
            columns[field.name] = ColumnLayout(*kind, starts, files, own)
        else:
            columns[field.name] = _column(field.type, parts, begins, starts)
    return Layout((file.path,), columns, (file.which,))


def _parts(
    file: File, fields: Sequence[pa.Field], places: Sequence[Place], metadata: Iterable[Batch], count: int
) -> IntArray | None:
    """Return where columns lie in batches, int64[columns, batches, 3]; None if they cannot be read in place.

    The numbers are the start of numbers or offsets in the body, and for offsets, start and number of items.
    """
    parts = np.empty((len(fields), count, 3), np.int64)
    last: Batch | None = None
    for at, head in enumerate(metadata):
        if head is last:
            parts[:, at] = parts[:, at - 1]
            continue
        last, known = head, next((known for known in _recent if known[0] is head and known[1] == places), None)
        if known is not None:  # the files of a folder often have equal metadata
            parts[:, at] = known[2]
            continue
        if head.compressed:
            return None
        parts[:, at] = BatchSlices(file, 0, head).all_item_places(Places.of(places))
        if (parts[:, at, 0] == UNSUPPORTED).any():
            return None
        fixed = [fixed_field(field.type) is not None for field in fields]
        parts[fixed, at, 0] = parts[fixed, at, 1]
        _recent[:] = [(head, list(places), parts[:, at].copy()), *_recent[:1]]
    return parts


def _column(kind: pa.DataType, parts: IntArray, begins: IntArray, starts: IntArray) -> ColumnLayout:
    if fixed_field(kind) is not None:
        return ColumnLayout.joined(kind, starts, begins + parts[:, 0])
    dtype: np.dtype[np.generic] = np.dtype(np.int64 if is_wide(kind) else np.int32)
    files = np.zeros(len(begins), np.int32)
    offsets, items = begins + parts[:, 0], begins + parts[:, 1]
    return VarlenLayout(dtype, (), starts, files, offsets, items, parts[:, 2].copy(), item_bytes(kind), is_text(kind))
