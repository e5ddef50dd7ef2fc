"""What reading a column of a Parquet file takes: sizes of its pages and its rows, from the metadata and a few bytes."""

from typing import Any

import pyarrow as pa

from corgipile.tables.ascending import Span
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile

__all__ = ["chunk_columns", "chunk_range", "chunk_span", "page_bytes", "page_head", "row_bits"]

HEAD = 64  # bytes in which the sizes of a page stand
BUFFER = 1 << 16
USUAL = 3 << 20
NUMBER, RECORD, FIRST_NUMBER = 5, 12, b"\x15"  # types of Thrift, and how a field 1 that is a number begins


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


def _leaves(kind: pa.DataType) -> int:
    """Count the column chunks of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))


def chunk_columns(schema: pa.Schema) -> dict[str, range]:
    """Return the numbers of the column chunks of each column.

    Example:
        >>> chunk_columns(pa.schema({"a": pa.int8(), "b": pa.struct({"x": pa.int8(), "y": pa.int8()})}))
        {'a': range(0, 1), 'b': range(1, 3)}
    """
    found, at = {}, 0
    for field in schema:
        found[field.name] = range(at, at + _leaves(field.type))
        at += len(found[field.name])
    return found


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return where a column chunk begins in the file, and its bytes."""
    return min(_page_starts(chunk)), int(chunk.total_compressed_size)


def chunk_span(chunk: Any) -> Span | None:
    """Return the least and the most that a column chunk holds, if it is known."""
    stats = chunk.statistics
    if stats is None or not stats.has_min_max:
        return None
    try:
        return Span(stats.min, stats.max)
    except (pa.ArrowException, ValueError, OverflowError):  # of a type, or a time, that Python does not have
        return None


def _page_starts(chunk: Any) -> list[int]:
    """Return where the first page of rows begins, and the page of the dictionary if there is one."""
    starts = [int(chunk.data_page_offset)]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        starts.append(int(chunk.dictionary_page_offset))
    return starts


def page_bytes(file: File, chunk: Any) -> int:
    """Return the bytes that reading a column chunk takes at a time: its dictionary and a page, compressed and not.

    Of an object in a store these are not asked for, but taken to be as large as writers make them.
    """
    found = BUFFER
    if isinstance(file, RemoteFile):
        return min(USUAL, BUFFER + int(chunk.total_uncompressed_size + chunk.total_compressed_size))
    for start in _page_starts(chunk):
        sizes = page_head(file, start)
        found += sum(sizes[:2]) if sizes else int(chunk.total_uncompressed_size + chunk.total_compressed_size)
    return min(found, BUFFER + int(chunk.total_uncompressed_size + chunk.total_compressed_size))


def page_head(file: File, start: int) -> list[int] | None:
    """Return the bytes of a page, decoded and stored, and of a dictionary its values; None where they are not found.

    They are fields 2 and 3 of its header, and field 1 of field 7, in Thrift's compact form.
    """
    head = file.read(start, min(HEAD, file.size - start)) if 0 <= start < file.size else b""
    at, field, found = 0, 0, {}
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
        found[field] = value >> 1  # zigzag; sizes are not negative
        if field == 7:
            break
    return [found[key] for key in (2, 3, 7) if key in found] if 2 in found and 3 in found else None
