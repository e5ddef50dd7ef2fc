"""Sizes of pages and rows of Parquet columns, from the metadata and page headers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corgipile.errors import CorruptFile
from corgipile.tables.ascending import Span
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import by_schema
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.varints import varint, zigzag
from corgipile.tables.table import IntArray

__all__ = [
    "DICTIONARY",
    "LARGE_PAGE",
    "MIN_BUFFER",
    "NUMBER_BYTES",
    "NumberedFile",
    "Page",
    "bits_of",
    "chunk_bytes",
    "chunk_columns",
    "chunk_ranges",
    "chunk_span",
    "page_bytes",
    "pages",
    "read_page",
    "row_bits",
    "unpacked",
]

HEAD, MAX_HEAD, MAX_NESTING = 64, 1 << 20, 4  # bytes read of a page header, its largest size, records in records
SMALL_CHUNK = 1 << 20  # bytes of a column chunk whose pages are not looked at
LARGE_PAGE = 8 << 20  # bytes far above the page size of common writers
BUFFER, MIN_BUFFER = 1 << 16, 1 << 13  # bytes read ahead of a column chunk; of many columns with short ones
USUAL_PAGE = 3 << 20  # bytes of a page and its copy from common writers
TRUTHS, NUMBERS, BYTES, RECORD = (1, 2), (4, 5, 6), 8, 12  # Thrift types
DICTIONARY = 2  # type of a page
NUMBER_BYTES = {"INT32": 1, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # least bytes of a decoded number


def row_bits(kind: pa.DataType) -> int:
    """Return the bits of a row in memory, 0 if rows differ in length.

    Example:
        >>> row_bits(pa.list_(pa.float32(), 3)), row_bits(pa.bool_()), row_bits(pa.string())
        (96, 1, 0)
    """
    times = 1
    while pa.types.is_fixed_size_list(kind):
        kind, times = kind.value_type, times * kind.list_size
    try:
        return 0 if pa.types.is_dictionary(kind) else int(kind.bit_width * times)
    except ValueError:
        return 0


class NumberedFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A file whose columns are read by number."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}  # paths by name take most of the time to open a file of many columns


@by_schema
def bits_of(schema: pa.Schema) -> dict[str, int]:
    """Return the `row_bits` of each column."""
    return {field.name: row_bits(field.type) for field in schema}


def _leaves(kind: pa.DataType) -> int:
    """Count the column chunks of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))


@by_schema
def chunk_columns(schema: pa.Schema) -> dict[str, range]:
    """Return the range of column chunks of each column.

    Example:
        >>> chunk_columns(pa.schema({"a": pa.int8(), "b": pa.struct({"x": pa.int8(), "y": pa.int8()})}))
        {'a': range(0, 1), 'b': range(1, 3)}
    """
    ranges, at = {}, 0
    for field in schema:
        ranges[field.name] = range(at, at + _leaves(field.type))
        at += len(ranges[field.name])
    return ranges


def chunk_bytes(chunk: Any) -> int:
    """Return the decoded bytes of a column chunk, at least."""
    return max(int(chunk.total_uncompressed_size), int(chunk.num_values) * NUMBER_BYTES.get(chunk.physical_type, 0))


def chunk_ranges(file: File, chunks: Sequence[Any]) -> tuple[IntArray, IntArray]:
    """Return the offsets and lengths of column chunks."""
    ranges = [(min(_page_starts(chunk)), int(chunk.total_compressed_size)) for chunk in chunks]
    starts, lengths = np.array(ranges, np.int64).reshape(-1, 2).T
    if (starts < 0).any() or (lengths < 0).any() or (starts > file.size - lengths).any():
        raise CorruptFile(f"{file.path} is damaged: a column chunk claims bytes beyond its end")
    return starts, lengths


def chunk_span(chunk: Any) -> Span | None:
    """Return the value range of a column chunk, None if it is unknown."""
    stats = chunk.statistics
    if stats is None or not stats.has_min_max:
        return None
    try:
        return Span(stats.min, stats.max)
    except (pa.ArrowException, ValueError, OverflowError):  # a type or time that Python cannot represent
        return None


def _page_starts(chunk: Any) -> list[int]:
    """Return the offset of the first data page, and that of the dictionary page if there is one."""
    starts = [int(chunk.data_page_offset)]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        starts.append(int(chunk.dictionary_page_offset))
    return starts


def page_bytes(file: File, chunk: Any, buffer: int = BUFFER) -> int:
    """Return the bytes held while a column chunk is read: its dictionary and largest page, compressed and decoded.

    For remote files, which would need a request, common sizes are assumed.
    """
    whole = buffer + int(chunk.total_uncompressed_size + chunk.total_compressed_size)
    if isinstance(file, RemoteFile) or whole <= SMALL_CHUNK:
        return min(USUAL_PAGE, whole)
    sizes: dict[bool, int] = {}
    for page in pages(file, chunk):
        if page is None:
            return whole
        is_dictionary = page.kind == DICTIONARY
        sizes[is_dictionary] = max(sizes.get(is_dictionary, 0), page.nbytes + page.stored)
    return buffer + sum(sizes.values())


class Page(NamedTuple):
    """A page of a column chunk, as its header describes it.

    Attributes:
        kind: Its type, such as `DICTIONARY`.
        nbytes: Decoded bytes.
        stored: Stored bytes.
        start: Offset of the stored bytes.
        values: Number of values, nulls included.
        encoding: Encoding of the values.
        levels: Bytes of levels that lie uncompressed before the values, None if they are part of the values.
        packed: Whether the values are compressed.
    """

    kind: int
    nbytes: int
    stored: int
    start: int
    values: int
    encoding: int
    levels: int | None
    packed: bool


def pages(file: File, chunk: Any) -> Iterator[Page | None]:
    """Yield the pages of a column chunk from their headers; None, and no more, for a header that is damaged."""
    at = min(_page_starts(chunk))
    end = min(file.size, at + int(chunk.total_compressed_size))
    while 0 <= at < end:
        page = read_page(file, at)
        yield page
        if page is None:
            return
        at = page.start + page.stored


def unpacked(file: File, page: Page, codec: str) -> bytes:
    """Return the values of a page, with their levels unless these are stored before them."""
    levels = page.levels or 0
    data = file.read(page.start, page.stored)[levels:]
    if not page.packed or codec == "UNCOMPRESSED":
        return data
    packing = pa.Codec("lz4_raw" if codec == "LZ4" else codec.lower())
    return bytes(packing.decompress(data, page.nbytes - levels, asbytes=True))


def read_page(file: File, start: int) -> Page | None:
    """Return the page at an offset, None if its header is damaged."""
    size = HEAD
    while True:
        head = file.read(start, min(size, file.size - start)) if 0 <= start < file.size else b""
        try:
            found, length = _record(head, 0, MAX_NESTING)
            return _page(found, start + length)
        except IndexError:
            if len(head) < size or size > MAX_HEAD:
                return None
            size *= 32
        except (KeyError, TypeError, ValueError):
            return None


def _page(found: dict[int, Any], start: int) -> Page:
    kind, nbytes, stored = found[1], found[2], found[3]
    about = found[{0: 5, DICTIONARY: 7, 3: 8}[kind]]
    second = kind == 3
    page = Page(
        kind, nbytes, stored, start, about[1], about[4 if second else 2], about[5] + about[6] if second else None,
        not second or about.get(7, True),
    )  # fmt: skip
    if min(nbytes, stored, page.values, page.levels or 0) < 0:
        raise ValueError(page)
    return page


def _record(data: bytes, at: int, levels: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a record in Thrift's compact form, and the offset behind it."""
    fields, field = dict[int, Any](), 0
    while head := data[at]:
        if head >> 4:
            field, at = field + (head >> 4), at + 1
        else:
            field, at = zigzag(data, at + 1)
        kind = head & 15
        if kind in TRUTHS:
            fields[field] = kind == TRUTHS[0]
        elif kind in NUMBERS:
            fields[field], at = zigzag(data, at)
        elif kind == BYTES:
            size, at = varint(data, at)
            at += size
        elif kind == RECORD and levels:
            fields[field], at = _record(data, at, levels - 1)
        else:
            raise ValueError(kind)
    return fields, at + 1
