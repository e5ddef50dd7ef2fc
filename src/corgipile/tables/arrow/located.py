"""Where columns lie in the plain record batches of an Arrow file: numbers, or offsets and the items they count."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.arrow.flatbuffers import Batch
from corgipile.tables.arrow.slices import BatchSlices, Place
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

Parts = tuple[int, int, int]  # where numbers, or offsets, begin in a body, and of offsets where items do, and how many


def placeable(kind: pa.DataType, *, varlen: bool) -> bool:
    """Say whether rows of a type may have a fixed place, in one part or, as those of varying length, in two."""
    return fixed_field(kind) is not None or (varlen and item_bytes(kind) > 0)


def lay_out(
    file: File,
    fields: Sequence[pa.Field],
    places: Sequence[Place],
    described: Iterable[Batch],
    begins: IntArray,
    starts: IntArray,
) -> Layout | None:
    """Return where columns lie; None where a record batch is compressed, or has nulls.

    Args:
        file: The file.
        fields: The columns.
        places: Where their parts are listed.
        described: The metadata of each record batch.
        begins: Where each begins in the file.
        starts: First row of each, then the number of rows.
    """
    found = _parts(file, fields, places, described, len(begins))
    if found is None:
        return None
    made = zip(fields, found, strict=True)
    columns = {field.name: _column(field.type, parts, begins + file.base, starts) for field, parts in made}
    return Layout((file.path,), columns, (file.which,))


def _parts(
    file: File, fields: Sequence[pa.Field], places: Sequence[Place], described: Iterable[Batch], count: int
) -> IntArray | None:
    """Return where the parts of columns begin in a record batch, int64[columns, batches, 3]; None if unfit."""
    made = np.empty((len(fields), count, 3), np.int64)
    last: Batch | None = None
    for at, head in enumerate(described):
        if head is last:
            made[:, at] = made[:, at - 1]
            continue
        last, body = head, BatchSlices(file, 0, head)
        found = [] if head.compressed else [_in(body, *one) for one in zip(fields, places, strict=True)]
        inside = [parts for parts in found if parts is not None]
        if len(inside) < len(fields):
            return None
        made[:, at] = inside
    return made


def _in(body: BatchSlices, field: pa.Field, place: Place) -> Parts | None:
    if fixed_field(field.type) is None:
        return body.item_places(place)
    offset = body.data_offset(place)
    return None if offset is None else (offset, 0, 0)


def _column(kind: pa.DataType, parts: IntArray, begins: IntArray, starts: IntArray) -> ColumnLayout:
    if fixed_field(kind) is not None:
        return ColumnLayout.joined(kind, starts, begins + parts[:, 0])
    dtype: np.dtype[np.generic] = np.dtype(np.int64 if is_wide(kind) else np.int32)
    files = np.zeros(len(begins), np.int32)
    offsets, items = begins + parts[:, 0], begins + parts[:, 1]
    return VarlenLayout(dtype, (), starts, files, offsets, items, parts[:, 2].copy(), item_bytes(kind), is_text(kind))
