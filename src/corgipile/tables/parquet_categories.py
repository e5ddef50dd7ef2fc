"""Columns of a Parquet file whose rows are numbers of values: what their dictionaries take, and how to do without."""

import io
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corgipile import arrow_compute as pc
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.parquet_pages import BUFFER, page_bytes, page_head

__all__ = [
    "coded_width",
    "columns_reader",
    "decoding_bytes",
    "in_batches",
    "longest_value",
    "metadata_for",
    "without_types",
]

LENGTH, SHORT = 4, 1 << 12  # bytes: of a value's length in a dictionary; of values that no batch has too many of
WORST = 4 << 20  # bytes of a batch, were all of its values the longest
LARGE_PAGE = 8 << 20  # bytes, of which a page as writers make them takes a part
POINTERS = 16  # bytes that a decoder keeps for each value of a dictionary, beside a copy of them
ASKED = 1 << 20  # stored bytes of a dictionary whose size a store is asked for; writers by themselves make smaller ones
_readers = threading.local()  # the last of each thread
TYPES = b"ARROW:schema"  # the key under which Arrow keeps its own types


class Dictionary(NamedTuple):
    """The dictionary of a column chunk, which is decoded whole before any row.

    Attributes:
        nbytes: Its values, decoded.
        stored: The same as they are stored.
        values: How many they are.
    """

    nbytes: int
    stored: int
    values: int

    @property
    def decoding(self) -> int:
        """Return the bytes that decoding takes as long as rows of the chunk are read."""
        return self.stored + 2 * self.nbytes + POINTERS * self.values


def _dictionary(file: File, chunk: Any) -> Dictionary | None:
    """Return the dictionary of a column chunk; None where there is none, or a store would be asked for a small one."""
    if not chunk.has_dictionary_page or not chunk.dictionary_page_offset:
        return None
    if isinstance(file, RemoteFile) and chunk.data_page_offset - chunk.dictionary_page_offset < ASKED:
        return None
    found = page_head(file, int(chunk.dictionary_page_offset))
    most = int(chunk.total_uncompressed_size), int(chunk.total_compressed_size), int(chunk.total_uncompressed_size)
    return None if found is None or len(found) < 3 else Dictionary(*map(min, found, most))


def decoding_bytes(file: File, chunks: Iterable[Any], least: int) -> int:
    """Return the bytes that dictionaries of column chunks, or a page, take while rows are decoded; 0 for few."""
    taken = page = 0
    for chunk in chunks:
        found, page = _dictionary(file, chunk), max(page, 2 * page_bytes(file, chunk))
        taken += found.decoding if found is not None else 0
    return max(taken if taken > least else 0, page if page > LARGE_PAGE else 0)


def longest_value(file: File, metadata: Any, group: int, columns: Iterable[int]) -> int:
    """Return the bytes of the longest values in the dictionaries of column chunks, 0 where all are short."""
    longest = 0
    for chunk in map(metadata.row_group(group).column, columns):
        found, path = _dictionary(file, chunk), chunk.path_in_schema
        if found is None or found.nbytes - LENGTH * (found.values - 1) <= SHORT:
            continue
        with decoding(file.path):
            opened = pq.ParquetFile(file.source(), metadata=metadata, read_dictionary=[path])
            column = next(opened.iter_batches(1, [group], [path], use_threads=False)).column(0)
            while column.type.num_fields and not pa.types.is_dictionary(column.type):
                column = column.field(0) if pa.types.is_struct(column.type) else column.values
            text = pa.types.is_dictionary(column.type)
            longest += int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0) if text else 0
    return longest if longest > SHORT else 0


def in_batches(file: Any, names: list[str], groups: Iterable[tuple[int, int]], rows: int) -> Iterator[pa.RecordBatch]:
    """Decode row groups, each with its `longest_value`: so many rows at a time, fewer where all could be as long."""
    for size, some in itertools.groupby(groups, key=lambda pair: pair[1]):
        step = min(rows, max(1, WORST // size)) if size else rows
        yield from file.iter_batches(step, [group for group, _ in some], names, use_threads=False)


def coded_width(file: File, chunks: Iterable[Any], rows: int) -> float:
    """Return the bytes of a row of column chunks, if its values are as long as those of the dictionaries are."""
    size = 0.0
    for chunk in chunks:
        found = _dictionary(file, chunk)
        if found is None:
            size += chunk.total_uncompressed_size
        else:
            mean = found.nbytes / max(1, found.values)
            size += max(chunk.total_uncompressed_size - found.nbytes, mean * chunk.num_values)
    return size / rows


def without_types(metadata: Any) -> Any:
    """Return the metadata of a file less the types that Arrow kept in it: of categories, their values are then read.

    As a dictionary Arrow makes all values of each of the column chunk's rows that it decodes, and a table to find them.
    """
    out = io.BytesIO()
    metadata.write_metadata_file(out)
    before, key, after = out.getvalue().rpartition(TYPES)
    return pq.read_metadata(io.BytesIO(before + key.swapcase() + after)) if key else metadata


def metadata_for(schema: pa.Schema, metadata: Any, untyped: Callable[[], Any]) -> Any:
    """Return the metadata to read columns with: `without_types` where that reads categories as values.

    Categories that have an order are not: it is that of the dictionary.
    """
    if not any(pa.types.is_dictionary(kind) and not kind.ordered for kind in schema.types):
        return metadata
    found = (made := untyped()).schema.to_arrow_schema()
    return made if all(found.field(field.name).type == _untyped(field.type) for field in schema) else metadata


def _untyped(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column that is read without the types that Arrow kept, if a cast makes the column of it."""
    if pa.types.is_dictionary(kind):
        return kind if kind.ordered else _untyped(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def columns_reader(owner: Any, path: str, metadata: Any, source: Any = None) -> Any:
    """Return a reader of some columns of a file: this thread's, as making one takes as long as there are columns.

    Args:
        owner: The table.
        path: The file.
        metadata: Its footer.
        source: What to read instead of the file, by a reader made for it.
    """
    last = getattr(_readers, "last", (None, None, None))
    if source is None and last[0] == weakref.ref(owner) and last[1] is metadata:
        return last[2]
    made = pq.ParquetFile(source or pa.OSFile(path), metadata=metadata, buffer_size=BUFFER, pre_buffer=False)
    if source is None:
        _readers.last = weakref.ref(owner), metadata, made
    return made
