"""Lengths of rows that the pages of Lance files state, before these are decoded."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.tables.io.files import File
from corgipile.tables.row_bytes import fixed_row_bytes

__all__ = ["longest_value"]

HEAD = 24  # bytes of a value that hold its unpacked size, if it is packed
MAX_HEADS = 1 << 8  # longest stored values of a page whose unpacked size is read
PACKED = re.compile(rb"(.{8})\x28\xb5\x2f\xfd", re.DOTALL)  # unpacked size, then a frame of zstd


def longest_value(file: File, metadata: Any, columns: Collection[str]) -> int:
    """Return the bytes of the longest values of columns, added up; 0 if their pages state none.

    Args:
        file: The file.
        metadata: Its metadata by the library.
        columns: The columns.
    """
    leaves = [(field.name, kind) for field in metadata.schema for kind in _leaves(field.type)]
    if len(leaves) != len(metadata.columns):  # an older version of the format
        return 0
    found = Counter[str]()
    for (name, kind), column in zip(leaves, metadata.columns, strict=True):
        if name in columns:
            found[name] += max((_longest_in_page(file, page, kind) for page in column.pages), default=0)
    return found.total()


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types whose values are stored as a column of pages."""
    if not pa.types.is_nested(kind) or pa.types.is_fixed_size_list(kind):
        yield kind
        return
    for at in range(kind.num_fields):
        yield from _leaves(kind.field(at).type)


def _longest_in_page(file: File, page: Any, kind: pa.DataType) -> int:
    values, *others = page.buffers
    if "FullZipLayout" in page.encoding and others:
        return _longest_zipped(file, values, others[0])
    if "MiniBlockLayout" in page.encoding and "repetition_index_depth: 1" in page.encoding:
        width = fixed_row_bytes(pa.schema([("", kind)]))
        index = np.frombuffer(file.read(others[-1].position, others[-1].size), "<u8").reshape(-1, 2).astype(np.int64)
        begins = np.append(0, np.flatnonzero(index[:, 0]))  # chunks in which rows end, so that the next one begins
        return int(np.add.reduceat(index[:, 1], begins).max()) * width
    return int(values.size) if "ConstantLayout" in page.encoding else 0


def _longest_zipped(file: File, values: Any, index: Any) -> int:
    """Return the bytes of the longest of values that are stored one after another."""
    data = file.read(index.position, index.size)
    for width in (1, 2, 4, 8):  # the last offset is the end of the values
        if len(data) % width == 0 and int.from_bytes(data[-width:], "little") == values.size:
            ends = np.frombuffer(data, f"<u{width}").astype(np.int64)
            sizes = np.diff(ends)
            longest = np.sort(np.argsort(-sizes, kind="stable")[:MAX_HEADS])
            begun = file.gather_bytes(values.position + ends[longest], np.minimum(sizes[longest], HEAD))
            stated = [int.from_bytes(found[1], "little") for head in begun if (found := PACKED.search(head))]
            return max(int(sizes.max(initial=0)), *stated, 0)
    return 0
