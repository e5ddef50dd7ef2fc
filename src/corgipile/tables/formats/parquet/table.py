"""Parquet files: small row groups are decoded whole, large ones unpacked in batches to a spill file."""

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import frugal, give_back
from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.ascending import Span
from corgipile.tables.encoded import (
    GROUP_BYTES,
    SMALL,
    Part,
    SpilledTable,
    group_columns,
    restore_type,
    unpack,
    write_plain,
)
from corgipile.tables.format import Format
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.formats.parquet import categories as coding
from corgipile.tables.formats.parquet import pages
from corgipile.tables.formats.parquet.sizes import SAMPLE_BYTES, ParquetSizes
from corgipile.tables.io.arriving import Arriving
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import PathLike, decoding, describe, digest
from corgipile.tables.io.pieces import (
    check_names,
    merge_cuts,
    pick,
    pick_rows,
    read_pieces,
    same_schema,
    take_pieces,
)
from corgipile.tables.io.remote import RemoteFile, file_of, this_scan
from corgipile.tables.io.side_by_side import in_step, side_by_side
from corgipile.tables.io.spill import Section, Spill, SpillWriter, spill_folder
from corgipile.tables.io.staged import fetch
from corgipile.tables.table import IntArray, Table

MAGIC = b"PAR1"
SUFFIXES = (".parquet", ".pq")
SAMPLE_ROWS = 64
MIN_HEAD_ROWS = 4  # rows of a row group that are decoded without the others
MAX_DIRECT_GROUPS = 3  # groups of columns that a single pass decodes without a spill file
BATCH_ROWS, BATCH_BYTES, BATCH_PARTS = coding.BATCH_ROWS, 1 << 17, 32  # decoded at a time; of the bytes in flight
BATCH_RUN, MAX_BATCH_BYTES = 1 << 12, 1 << 20  # bytes of a column worth a call; of a batch of many columns

DECODERS, QUEUE_SHARE = min(4, os.cpu_count() or 1), 1 / 3  # decoding threads for stores; bytes that may queue

TIDY_BYTES, TIDY_PARTS = 1 << 20, 4  # decoded bytes after which freed pages are returned to the system; likewise
PARSED_RATIO = 11  # parsed bytes of a footer per stored byte
_footers: Common[Any] = Common(8 << 20, lambda found: PARSED_RATIO * int(found.serialized_size))
_decoded: Common[pa.RecordBatch] = Common(SMALL, lambda rows: int(rows.nbytes))
_sampled: Common[pa.RecordBatch | None] = Common(SMALL, lambda rows: int(rows.nbytes) if rows is not None else 0)
_unpacked: Common[Table] = Common(4, lambda _: 1)
_readers = threading.local()  # the last reader of each thread, since two threads must not share one


class ParquetTable(ParquetSizes):
    """Reads a Parquet file.

    Its natural unit is the row group: a block has at least one. Reading a few rows of a large row group unpacks the
    requested columns, a few at a time, to a spill file.

    Args:
        path: The file.
        spill: Folder for spill files, ``"off"`` for none: row groups are then decoded whole in memory; see
            `corgipile.tables.io.spill.spill_folder`.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"label": [0, 1, 1]}), f"{folder}/a.parquet", row_group_size=2)
        ...     ParquetTable(f"{folder}/a.parquet").cuts(1).tolist()
        [0, 2, 3]
    """

    columnar, samples_widths = True, False  # each column is read without the others; pages have value counts

    def __init__(self, path: PathLike, spill: Spill = None) -> None:
        self._file, self.spill, self._spill = file_of(path), spill_folder(spill), spill
        if self._file.read(0, min(4, self._file.size)) != MAGIC:
            raise UnknownFormat(f"{self._file.path} is not a Parquet file: it does not begin with {MAGIC!r}")
        if self._file.size < 12 or self._file.read(self._file.size - 4, 4) != MAGIC:
            raise CorruptFile(f"{self._file.path} is truncated: it does not end with {MAGIC!r}")
        with decoding(self._file.path):
            opened = pages.NumberedFile(self._file.source())
            metadata = _footers.of(self, "footer", lambda: opened.metadata)
            self._remote_metadata = metadata if isinstance(self._file, RemoteFile) else None  # never requested again
            self.schema: pa.Schema = same_schema(opened.schema_arrow)
            check_names(self.schema, self._file.path)
            self._chunks, self._bits = pages.chunk_columns(self.schema), pages.bits_of(self.schema)
            counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._bytes = [metadata.row_group(i).total_byte_size for i in range(len(counts))]
        if any(count < 0 or count > 2**40 for count in counts):
            raise CorruptFile(f"{self._file.path} is damaged: a row group claims {max(counts, key=abs)} rows")
        if sum(counts) != metadata.num_rows:
            raise CorruptFile(f"{self._file.path} has {sum(counts)} rows in its groups, not {metadata.num_rows}")
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        super().__init__()
        self._unpacking = threading.Lock()

    def __reduce__(self) -> tuple[type["ParquetTable"], tuple[str, Spill]]:
        return ParquetTable, (self._file.path, self._spill)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"ParquetTable({self._file.path!r})"

    @property
    def _metadata(self) -> Any:
        """Return the footer, which is read again after eviction from the cache."""
        if self._remote_metadata is not None:
            return self._remote_metadata
        return _footers.of(self, "footer", self._read_footer)

    def _read_footer(self) -> Any:
        with decoding(self._file.path):
            return pages.NumberedFile(self._file.source()).metadata

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows, encoded but not compressed."""
        return sum(self._bytes)

    @property
    def fingerprint(self) -> str:
        """Return the identity of content, schema and rows."""
        return digest(self._file.identity, describe(self.schema), str(len(self)))

    def cuts(self, rows: int) -> IntArray:
        """Cut at row groups, merged to about ``rows`` rows."""
        return merge_cuts(self._starts, rows)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._piece(i, a, b, names))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda i, local: self._scattered(i, local, names))

    @property
    def place(self) -> str:
        """Return the identity of the file in its present state on this machine."""
        return self._file.place

    def part_rows(self) -> IntArray:
        """Return the rows of each row group."""
        return np.diff(self._starts)

    def spans(self, columns: Sequence[str], parts: Sequence[int]) -> dict[str, list[Span]]:
        """Return the value ranges of columns in row groups, without columns that lack statistics."""
        groups = [self._metadata.row_group(part) for part in parts]
        flat = [name for name in columns if not pa.types.is_nested(self.schema.field(name).type)]
        ranges = {name: [pages.chunk_span(group.column(self._chunks[name][0])) for group in groups] for name in flat}
        return {name: [span for span in spans if span] for name, spans in ranges.items() if all(spans)}

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Decode all rows in small batches into sections of a spill file."""
        self.write_groups(columns, out, range(len(self._bytes)))

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Open the sections that `write_plain` wrote as a table."""
        return SpilledTable(self, columns, [ArrowFile(next(sections)) for _ in self._together(columns)])

    def batches(self) -> Iterator[pa.RecordBatch] | None:
        """Decode all columns together, page by page; None if that needs too much memory and spilling is allowed."""
        groups, names = range(len(self._bytes)), list(self.schema.names)
        if self.spill is not None and len(self._together(names)) > MAX_DIRECT_GROUPS:
            return None
        return self._batches(names, groups)

    def write_groups(self, columns: Sequence[str], out: SpillWriter, groups: range) -> None:
        """Write the rows of some row groups as sections of a spill file."""
        rows = int(self._starts[groups.stop] - self._starts[groups.start])
        together = self._together(columns)
        with contextlib.closing(self._sections(together, groups, out.in_flight)) as sections:
            for names, batches in zip(together, sections, strict=True):
                schema = pick(self.schema, names).remove_metadata()  # the metadata may describe all columns
                write_plain(out, schema, batches, rows)

    def _together(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are decoded together."""
        counts = np.diff(self._starts)
        if not counts.size:
            return [list(columns)]
        chunk_of = self._metadata.row_group(int(counts.argmax())).column
        in_pages = {name: sum(self._page_bytes(chunk_of(i)) for i in self._chunks[name]) for name in columns}
        batches = {name: int(min(counts.max(), self._batch_rows([name])) * self._width(name)) for name in columns}
        return group_columns({name: in_pages[name] + batches[name] for name in columns})

    def _head(self, group: int, name: str) -> pa.RecordBatch | None:
        """Decode the first rows of a column of a row group; recent ones are cached."""
        rows = max(MIN_HEAD_ROWS, min(SAMPLE_ROWS, int(SAMPLE_BYTES / max(self._stored_width(group, name), 1.0))))

        def decode() -> pa.RecordBatch | None:
            with frugal():
                return next(self._batches([name], range(group, group + 1), rows), None)

        return _sampled.of(self, (group, name), decode)

    def head(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Yield a column from its first row, page by page, at most ``rows`` rows at a time."""
        filled = np.flatnonzero(np.diff(self._starts))
        if not len(filled):
            return
        step = max(MIN_HEAD_ROWS, min(rows, int(SAMPLE_BYTES / max(self._width(name), 1.0))))
        for batch in self._batches([name], range(int(filled[0]), len(self._starts) - 1), step):
            yield batch.column(0)

    def _batch_rows(self, names: Sequence[str], limit: int = 0) -> int:
        width = sum(map(self._width, names))
        size = max(BATCH_BYTES, limit // BATCH_PARTS, min(len(names) * BATCH_RUN, MAX_BATCH_BYTES))
        return max(1, min(BATCH_ROWS, int(size / max(width, 1e-9))))

    def _batches(
        self, names: list[str], groups: range, rows: int | None = None, limit: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns of row groups page by page, ``rows`` at a time if only the first rows are needed.

        ``limit``: bytes that may be in flight.
        """
        step = rows or self._batch_rows(names, limit)
        if isinstance(self._file, RemoteFile) and rows is None:
            source = Arriving(self._file, [self._ranges(i, names) for i in groups], this_scan().in_flight).source()
        else:
            source = self._file.source() if isinstance(self._file, RemoteFile) else None
        yield from self._decoded_batches(names, groups, step, source, max(TIDY_BYTES, limit // TIDY_PARTS))

    def _sections(self, together: list[list[str]], groups: range, limit: int) -> Generator[Iterable[pa.RecordBatch]]:
        """Decode columns of row groups, one set of columns after another; remote ones decode while they arrive."""
        if not isinstance(self._file, RemoteFile):
            with ThreadPoolExecutor(DECODERS, "corgipile-decoder") as pool:
                yield from (self._in_threads(pool, names, groups, limit) for names in together)
            return
        parts = [(names, group) for names in together for group in groups]
        file = Arriving(self._file, [self._ranges(group, names) for names, group in parts], limit)

        def decode(names: list[str], group: int) -> Iterator[pa.RecordBatch]:
            return self._decoded_batches(names, range(group, group + 1), self._batch_rows(names), file.source())

        makes = (partial(decode, *part) for part in parts)
        threads = max(1, min(DECODERS, limit // GROUP_BYTES))  # each thread may take this many bytes
        max_queued = int(limit * QUEUE_SHARE) // threads
        with contextlib.closing(side_by_side(makes, threads, lambda batch: int(batch.nbytes), max_queued)) as runs:
            for _ in together:
                yield itertools.chain.from_iterable(itertools.islice(runs, len(groups)))

    def _in_threads(
        self, pool: ThreadPoolExecutor, names: list[str], groups: range, limit: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns of a local file, numbers by a thread for each part of the columns."""
        threads = min(DECODERS, len(names), limit // GROUP_BYTES)
        if threads < 2 or not all(self._bits[name] for name in names):  # long values shorten the batches of a column
            yield from self._batches(names, groups, limit=limit)
            return
        rows, schema = self._batch_rows(names, limit), pick(self.schema, names)
        makes = [partial(self._batches, names[part::threads], groups, rows, limit) for part in range(threads)]
        most = int(limit * QUEUE_SHARE) // threads
        with decoding(self._file.path):
            for parts in in_step(pool, makes, lambda batch: int(batch.nbytes), most):
                columns = {name: batch.column(name) for batch in parts for name in batch.schema.names}
                yield pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)

    def _ranges(self, group: int, names: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Return the offsets and lengths of the column chunks of a row group."""
        return pages.chunk_ranges(self._file, [chunk for name in names for chunk in self._chunks_of(group, name)])

    def _decoded_batches(
        self, names: list[str], groups: range, rows: int, source: Any, tidy: int = TIDY_BYTES
    ) -> Iterator[pa.RecordBatch]:
        schema = pick(self.schema, names)
        with decoding(self._file.path):
            untyped = lambda: _footers.of(self, "untyped", lambda: coding.without_types(self._metadata))  # noqa: E731
            metadata = coding.metadata_for(schema, self._metadata, untyped)
            file = coding.columns_reader(self, self._file.path, metadata, self._buffer_bytes, source)
            decoded, lengths = 0, [(group, self._row_lengths(group, names)) for group in groups]
            for batch in coding.in_batches(file, names, lengths, rows):
                batch.validate(full=True)
                if (decoded := decoded + batch.nbytes) > tidy:
                    give_back()
                    decoded = 0
                columns = [restore_type(batch.column(field.name), field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _piece(self, i: int, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        if stop - start == self._starts[i + 1] - self._starts[i]:
            return self._decode(i, names)
        if self.spill is not None and self._is_large(i, names):
            preview = self._preview(i, stop, names)
            if preview is not None:
                return preview.slice(start)
            return self._unpacked_group(i, names, self.spill).read(start, stop, names)
        return self._group(i, names).slice(start, stop - start)

    def _preview(self, i: int, stop: int, names: list[str]) -> pa.RecordBatch | None:
        """Return the first rows of a remote row group if only these are requested, as for a preview."""
        if stop > MIN_HEAD_ROWS or not isinstance(self._file, RemoteFile):
            return None
        columns = [head.column(0)[:stop] for name in names if (head := self._head(i, name)) is not None]
        complete = [*map(len, columns)] == [stop] * len(names)
        return pa.RecordBatch.from_arrays(columns, schema=pick(self.schema, names)) if complete else None

    def _scattered(self, i: int, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        if self.spill is not None and self._is_large(i, names):
            return self._unpacked_group(i, names, self.spill).take(rows, names)
        return pick_rows(self._group(i, names), rows)

    def _unpacked_group(self, i: int, names: list[str], folder: Path) -> Table:
        """Return an unpacked row group; recent ones are cached."""
        part = Part(lambda columns, out: self.write_groups(columns, out, range(i, i + 1)), self.open_plain)
        with self._unpacking:
            return _unpacked.of(self, (i, *names), lambda: unpack(part, names, folder))

    def _group(self, i: int, names: list[str]) -> pa.RecordBatch:
        return _decoded.of(self, (i, *names), lambda: self._decode(i, names))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        with decoding(self._file.path):
            chunks = [chunk for name in names for chunk in self._chunks[name]]
            table = self._reader(i, names).reader.read_row_group(i, column_indices=chunks, use_threads=False)
            table.validate(full=True)
            rows = int(self._starts[i + 1] - self._starts[i])
            if table.num_rows != rows:
                raise CorruptFile(f"{self._file.path}: row group {i} must have {rows} rows, got {table.num_rows}")
            parts = (table := table.select(names)).to_batches()
            arrays = parts[0].columns if len(parts) == 1 else [pa.concat_arrays(col.chunks) for col in table.columns]
            return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))

    def _reader(self, i: int, names: Sequence[str]) -> Any:
        """Return the reader of this thread."""
        if isinstance(self._file, RemoteFile):
            return pages.NumberedFile(fetch(self._file, self._ranges(i, names)).source(), metadata=self._metadata)
        if getattr(_readers, "owner", None) != weakref.ref(self):
            _readers.last = pages.NumberedFile(self._file.source(), metadata=self._metadata)
            _readers.owner = weakref.ref(self)
        return _readers.last


FORMAT = Format(MAGIC, SUFFIXES, ParquetTable, frozenset({"spill"}))
