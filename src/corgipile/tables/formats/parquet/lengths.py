"""Lengths of the values in Parquet pages, before these are decoded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.tables.formats.parquet.pages import DICTIONARY, LARGE_PAGE, NUMBER_BYTES, Page, pages, unpacked
from corgipile.tables.formats.parquet.repetition import list_lengths
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.varints import varint, zigzag
from corgipile.tables.table import IntArray

__all__ = ["Lengths", "lengths_of", "step_of"]

INDEXES, DELTA_LENGTHS, DELTA_STRINGS = (2, 8), 6, 7  # encodings
MAX_MINIBLOCK = 1 << 12  # values that a writer packs at once
BATCH = 1 << 13  # lengths unpacked at a time
MIN_RAGGED = 4 << 20  # bytes of a column chunk of lists whose rows are located


class Lengths(NamedTuple):
    """Bytes of the rows of a column chunk, page by page.

    Attributes:
        ends: Row after the last of each page.
        longest: Bytes of the longest row of each page, at most doubled; their mean in pages that state every byte.
        total: Bytes of all values outside the dictionary.
    """

    ends: IntArray
    longest: IntArray
    total: int


def lengths_of(file: File, metadata: Any, group: int, column: int, coded: int) -> Lengths:
    """Return the lengths of a column chunk's rows.

    Args:
        file: The file; no page of a remote file is requested.
        metadata: Its footer.
        group: The row group.
        column: The column chunk.
        coded: Bytes of the longest value of its dictionary.
    """
    chunk, kind, rows = metadata.row_group(group).column(column), metadata.schema.column(column), 0
    found, whole = list[tuple[int, int, int]](), list[Page]()
    for page in pages(file, chunk) if not isinstance(file, RemoteFile) else ():
        if page is None:
            return Lengths(np.array([chunk.num_values]), np.array([chunk.total_uncompressed_size]), 0)
        if page.kind != DICTIONARY:
            rows += page.values
            whole.append(page)
            found.append((rows, *_page_lengths(file, page, chunk.compression, kind, coded)))
    ends, longest, total = np.array(found or [(int(chunk.num_values), coded, 0)], np.int64).T
    if kind.max_repetition_level:
        rows = max(1, int(metadata.row_group(group).num_rows))
        width = max(int(longest.max()), NUMBER_BYTES.get(chunk.physical_type, 0))
        counted = None
        if whole and width * int(chunk.num_values) > MIN_RAGGED:
            counted = list_lengths(file, whole, chunk.compression, kind.max_repetition_level, rows)
        ends, longest = counted or (np.array([rows]), np.array([-(-int(chunk.num_values) // rows)]))
        longest = longest * width
    return Lengths(ends, longest, int(total.sum()))


def step_of(lengths: Sequence[Lengths], start: int, rows: int, room: int) -> int:
    """Return how many rows from a row on are decoded at once: at most ``rows``, within ``room`` bytes if possible."""
    while rows > 1:
        worst = 0
        for one in lengths:
            first, last = np.searchsorted(one.ends, [start, start + rows - 1], "right")
            worst += int(one.longest[first : last + 1].max(initial=0))
        if rows * worst <= room:
            break
        rows = max(room // worst, rows // 2)
    return max(1, rows)


def _page_lengths(file: File, page: Page, codec: str, column: Any, coded: int) -> tuple[int, int]:
    """Return the bytes of the longest value of a page, and of all its values."""
    if page.encoding in INDEXES:
        return coded, 0
    if page.encoding != DELTA_STRINGS:
        return page.nbytes // max(1, page.values), page.nbytes
    return _delta_lengths(file, page, codec, column)


def _delta_lengths(file: File, page: Page, codec: str, column: Any) -> tuple[int, int]:
    """Return the lengths of values that repeat the beginning of the value before."""
    most = page.nbytes, page.nbytes  # a value grows by what the page holds
    if max(page.nbytes, page.stored) > LARGE_PAGE:
        return most
    try:
        data = _values(file, page, codec, column)
        shared, at = _packed_lengths(data, 0, page.values)
        own, _ = _packed_lengths(data, at, page.values)
    except (IndexError, ValueError, OSError, pa.ArrowException):
        return most
    return shared[0] + own[0], shared[1] + own[1]


def _values(file: File, page: Page, codec: str, column: Any) -> bytes:
    """Return the encoded values of a page without their levels."""
    data = unpacked(file, page, codec)
    if page.levels is None:
        for most in (column.max_repetition_level, column.max_definition_level):
            data = data[4 + int.from_bytes(data[:4], "little") :] if most else data
    return data


def _packed_lengths(data: bytes, at: int, rows: int) -> tuple[tuple[int, int], int]:
    """Return the largest and the sum of numbers packed as differences, and the offset behind them."""
    block, at = varint(data, at)
    parts, at = varint(data, at)
    count, at = varint(data, at)
    last, at = zigzag(data, at)
    size = block // max(1, parts)
    if count > rows or size % 32 or not 0 < size <= MAX_MINIBLOCK:
        raise ValueError(count)
    padded, longest, total, places = np.frombuffer(data + bytes(8), np.uint8), last, last, list[tuple[int, int, int]]()
    missing = count - 1
    while missing > 0:
        least, at = zigzag(data, at)
        widths, at = data[at : at + parts], at + parts
        for width in widths:
            if missing <= 0:
                break
            places.append((8 * at, width, least))
            at, missing = at + width * size // 8, missing - size
        if len(widths) < parts or max(widths) > 32 or at > len(data):
            raise ValueError(at)
        if missing <= 0 or len(places) * size >= BATCH:
            lengths = last + np.cumsum(_differences(padded, np.array(places), size)[: min(missing, 0) or None])
            last, longest, total = int(lengths[-1]), max(longest, int(lengths.max())), total + int(lengths.sum())
            places.clear()
    return (longest, total), at


def _differences(padded: Any, places: Any, size: int) -> Any:
    """Unpack differences, given the first bit, the width and the base of each group."""
    begin, width, least = places.T[:, :, None]
    bits = begin + width * np.arange(size)
    words = np.lib.stride_tricks.sliding_window_view(padded, 8)[bits >> 3].view("<u8")[..., 0].astype(np.int64)
    return (((words >> (bits & 7)) & ((1 << width) - 1)) + least).ravel()
