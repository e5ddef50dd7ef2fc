"""Dictionary-encoded columns of Parquet files: memory of dictionaries, and decoding without them."""

import io
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corgipile import arrow_compute as pc
from corgipile.arrow_memory import give_back
from corgipile.tables.encoded import GROUP_BYTES
from corgipile.tables.formats.parquet.lengths import Lengths, lengths_of, step_of
from corgipile.tables.formats.parquet.pages import DICTIONARY, LARGE_PAGE, NUMBER_BYTES, read_page
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.remote import RemoteFile

__all__ = [
    "BATCH_ROWS",
    "LARGE_PAGE",
    "coded_width",
    "columns_reader",
    "decoding_bytes",
    "in_batches",
    "metadata_for",
    "row_lengths",
    "without_types",
]

LENGTH_BYTES, SHORT_BYTES = 4, 1 << 9  # of a value's length in a dictionary; of values that fit any batch
MAX_WORST_BYTES, BATCH_ROWS = 4 << 20, 1 << 16  # bytes of a batch of longest values; rows of any batch
POINTER_BYTES = 16  # bytes of a decoder for each value of a dictionary, besides a copy
MIN_REQUESTED = 1 << 20  # stored bytes of a remote dictionary worth a request for its size
_readers = threading.local()  # the last reader of each thread
TYPES = b"ARROW:schema"  # the metadata key of Arrow types


class Dictionary(NamedTuple):
    """The dictionary of a column chunk, which is decoded whole before any row.

    Attributes:
        nbytes: Decoded bytes of its values.
        stored: Stored bytes of its values.
        values: Number of values.
    """

    nbytes: int
    stored: int
    values: int

    @property
    def decoding(self) -> int:
        """Return the bytes that the decoder holds while rows of the chunk are read."""
        return self.stored + 2 * self.nbytes + POINTER_BYTES * self.values


def _dictionary(file: File, chunk: Any) -> Dictionary | None:
    """Return the dictionary of a column chunk; None without one, or for a small remote one."""
    if not chunk.has_dictionary_page or not chunk.dictionary_page_offset:
        return None
    if isinstance(file, RemoteFile) and chunk.data_page_offset - chunk.dictionary_page_offset < MIN_REQUESTED:
        return None
    page = read_page(file, int(chunk.dictionary_page_offset))
    if page is None or page.kind != DICTIONARY:
        return None
    bounds = int(chunk.total_uncompressed_size), int(chunk.total_compressed_size), int(chunk.total_uncompressed_size)
    return Dictionary(*map(min, (page.nbytes, page.stored, page.values), bounds))


def decoding_bytes(
    file: File, metadata: Any, groups: Iterable[int], columns: Sequence[int], page_bytes: Callable[[Any], int]
) -> int:
    """Return the bytes of the dictionaries or a page of row groups during decoding; 0 if they are small."""
    most = 0
    for group in map(metadata.row_group, groups):
        total, page, chunks = 0, 0, [*map(group.column, columns)]
        if (3 + POINTER_BYTES) * sum(chunk.total_uncompressed_size for chunk in chunks) <= GROUP_BYTES:
            continue  # too small for a large dictionary or page
        for chunk in chunks:
            dictionary, in_page = _dictionary(file, chunk), page_bytes(chunk)
            if dictionary is not None:
                total += dictionary.decoding
                in_page = max(0, in_page - dictionary.nbytes - dictionary.stored)
            page = max(page, 3 * in_page // 2, in_page + (dictionary.nbytes if dictionary is not None else 0))
        most = max(most, total if total > GROUP_BYTES else 0, page if page > LARGE_PAGE else 0)
    return most


def row_lengths(file: File, metadata: Any, group: int, columns: Iterable[int]) -> list[Lengths]:
    """Return the lengths of the rows of column chunks."""
    chunks = ((column, metadata.row_group(group).column(column)) for column in columns)
    return [
        lengths_of(file, metadata, group, column, _longest_coded(file, metadata, group, chunk))
        for column, chunk in chunks
    ]


def _longest_coded(file: File, metadata: Any, group: int, chunk: Any) -> int:
    """Return the bytes of the longest value of a chunk's dictionary, 0 if it is short."""
    dictionary = None if chunk.physical_type in NUMBER_BYTES else _dictionary(file, chunk)
    path = chunk.path_in_schema
    if dictionary is None or (bound := dictionary.nbytes - LENGTH_BYTES * (dictionary.values - 1)) <= SHORT_BYTES:
        return 0
    if dictionary.nbytes > SHORT_BYTES * dictionary.values:  # decoding them to find the longest takes too much
        return bound
    with decoding(file.path):
        opened = pq.ParquetFile(file.source(), metadata=metadata, read_dictionary=[path])
        column = next(opened.iter_batches(1, [group], [path], use_threads=False)).column(0)
        while column.type.num_fields and not pa.types.is_dictionary(column.type):
            column = column.field(0) if pa.types.is_struct(column.type) else column.values
        is_coded = pa.types.is_dictionary(column.type)
        found = int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0) if is_coded else 0
        del opened, column
        give_back()  # the dictionary is decoded again with the rows
    return found if found > SHORT_BYTES else 0


def in_batches(
    file: Any, names: list[str], groups: Iterable[tuple[int, list[Lengths]]], rows: int
) -> Iterator[pa.RecordBatch]:
    """Decode row groups, each given with its `row_lengths`; long values shorten the batches of ``rows`` rows."""
    for has_long, some in itertools.groupby(groups, key=lambda pair: any(map(_has_long, pair[1]))):
        if not has_long:
            yield from file.iter_batches(rows, [group for group, _ in some], names, use_threads=False)
            continue
        for group, lengths in some:
            at, step = 0, step_of(lengths, 0, rows, MAX_WORST_BYTES)
            for batch in file.iter_batches(step, [group], names, use_threads=False):
                yield batch
                at += len(batch)
                file.reader.set_batch_size(step_of(lengths, at, rows, MAX_WORST_BYTES))  # of the next batch


def _has_long(lengths: Lengths) -> bool:
    return int(lengths.longest.max()) * BATCH_ROWS > MAX_WORST_BYTES


def coded_width(file: File, chunks: Iterable[Any], rows: int) -> float:
    """Return the mean bytes of a row of column chunks, with values as long as the mean dictionary value."""
    size = 0.0
    for chunk in chunks:
        dictionary = _dictionary(file, chunk)
        if dictionary is None:
            size += chunk.total_uncompressed_size
        else:
            mean = dictionary.nbytes / max(1, dictionary.values)
            size += max(chunk.total_uncompressed_size - dictionary.nbytes, mean * chunk.num_values)
    return size / rows


def without_types(metadata: Any) -> Any:
    """Return the metadata of a file without its Arrow types, so that categories decode as plain values.

    For dictionary types, Arrow would build all values of a chunk and a hash table.
    """
    out = io.BytesIO()
    metadata.write_metadata_file(out)
    before, key, after = out.getvalue().rpartition(TYPES)
    return pq.read_metadata(io.BytesIO(before + key.swapcase() + after)) if key else metadata


def metadata_for(schema: pa.Schema, metadata: Any, untyped: Callable[[], Any]) -> Any:
    """Return the metadata to read columns with: `without_types` if that decodes categories as plain values.

    Ordered categories need their dictionary, which holds the order.
    """
    if not any(pa.types.is_dictionary(kind) and not kind.ordered for kind in schema.types):
        return metadata
    stored = (plain := untyped()).schema.to_arrow_schema()
    return plain if all(stored.field(field.name).type == _decoded(field.type) for field in schema) else metadata


def _decoded(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has without Arrow types, if it can be cast back."""
    if pa.types.is_dictionary(kind):
        return kind if kind.ordered else _decoded(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def columns_reader(owner: Any, path: str, metadata: Any, buffer: int, source: Any = None) -> Any:
    """Return a reader for columns of a file, cached per thread, since opening is slow for many columns.

    Args:
        owner: The table.
        path: The file.
        metadata: Its footer.
        buffer: Bytes to read ahead of each column chunk.
        source: A source to read instead of the file, with a new reader.
    """
    last = getattr(_readers, "last", (None, None, None))
    if source is None and last[0] == weakref.ref(owner) and last[1] is metadata:
        return last[2]
    reader = pq.ParquetFile(source or pa.OSFile(path), metadata=metadata, buffer_size=buffer, pre_buffer=False)
    if source is None:
        _readers.last = weakref.ref(owner), metadata, reader
    return reader
