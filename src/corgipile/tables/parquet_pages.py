"""Sizes of pages and rows of Parquet columns, from the metadata and page headers."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corgipile.tables.ascending import Span
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import by_schema
from corgipile.tables.io.remote import RemoteFile

__all__ = [
    "NumberedFile",
    "bits_of",
    "chunk_columns",
    "chunk_range",
    "chunk_span",
    "page_bytes",
    "page_head",
    "row_bits",
]

HEAD = 64  # bytes that contain the sizes in a page header
BUFFER = 1 << 16
USUAL_PAGE = 3 << 20  # bytes of a page and its copy from common writers
NUMBER, RECORD, FIRST_NUMBER = 5, 12, b"\x15"  # Thrift types, and the head of a field 1 that is a number


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


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return the offset and the bytes of a column chunk."""
    return min(_page_starts(chunk)), int(chunk.total_compressed_size)


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


def page_bytes(file: File, chunk: Any) -> int:
    """Return the bytes held while a column chunk is read: its dictionary and a page, compressed and decoded.

    For remote files, which would need a request, common sizes are assumed.
    """
    total = BUFFER
    if isinstance(file, RemoteFile):
        return min(USUAL_PAGE, BUFFER + int(chunk.total_uncompressed_size + chunk.total_compressed_size))
    for start in _page_starts(chunk):
        sizes = page_head(file, start)
        total += sum(sizes[:2]) if sizes else int(chunk.total_uncompressed_size + chunk.total_compressed_size)
    return min(total, BUFFER + int(chunk.total_uncompressed_size + chunk.total_compressed_size))


def page_head(file: File, start: int) -> list[int] | None:
    """Return the decoded and stored bytes of a page, and the number of values of a dictionary; None if unreadable.

    In Thrift's compact form these are fields 2 and 3 of the page header, and field 1 of field 7.
    """
    head = file.read(start, min(HEAD, file.size - start)) if 0 <= start < file.size else b""
    at, field, values = 0, 0, {}
    while at < len(head) and head[at] >> 4 and head[at] & 15 in (NUMBER, RECORD):
        field += head[at] >> 4
        if head[at] & 15 == RECORD:  # the first field inside is the number of values
            if field != 7 or head[at + 1 : at + 2] != FIRST_NUMBER:
                break
            at += 1
        value = shift = 0
        while True:
            at += 1
            if at >= len(head) or shift > 28:
                return None
            value |= (head[at] & 0x7F) << shift
            shift += 7
            if head[at] < 0x80:
                break
        at += 1
        values[field] = value >> 1  # zigzag; sizes are not negative
        if field == 7:
            break
    return [values[key] for key in (2, 3, 7) if key in values] if 2 in values and 3 in values else None
