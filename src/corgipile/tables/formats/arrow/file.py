"""Arrow IPC files: record batches located by the footer and read by pread."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.checked import Checked
from corgipile.tables.encoded import SMALL, Part, Units, units_of, unpack
from corgipile.tables.fingerprints import sampled_rows
from corgipile.tables.formats.arrow.decompress import Decompressed, Decompressor
from corgipile.tables.formats.arrow.dictionaries import Dictionaries, index_schema
from corgipile.tables.formats.arrow.flatbuffers import FREE_ROWS, MAX_COMPRESSION_RATIO, Batch
from corgipile.tables.formats.arrow.footer import Footer, end_of, read_footer, schema_end
from corgipile.tables.formats.arrow.located import lay_out, placeable
from corgipile.tables.formats.arrow.metadata import BatchMetadata
from corgipile.tables.formats.arrow.note import apply_note
from corgipile.tables.formats.arrow.slices import BatchSlices, all_sliceable, places, sliceable, without_views
from corgipile.tables.formats.arrow.take import Take
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import CachedTail, File, InMemory, PathLike, decoding, describe, digest
from corgipile.tables.io.pieces import (
    Recent,
    check_names,
    merge_cuts,
    pick,
    read_pieces,
    same_schema,
    take_pieces,
    take_runs,
)
from corgipile.tables.io.remote import RemoteFile, file_of
from corgipile.tables.io.spill import Section, Spill, SpillWriter, spill_folder
from corgipile.tables.location import Location
from corgipile.tables.table import IntArray, Layout, Table, check_columns, even_cuts

SUFFIXES = (".arrow", ".feather", ".ipc")
MAX_CACHED_PLACES = 1 << 17  # columns times record batches whose positions are cached
DENSE_STEP = 8  # rows per wanted row, below which whole runs are read
MANY_COLUMNS = 16  # columns from which a small record batch is read at once
WIDE_ROW = 1 << 12  # bytes of a row from which on single reads beat copying runs
MAX_GAP, MAX_RUN = 1 << 15, 1 << 20  # bytes between two taken rows in one read; bytes of a read
_decoded: Common[pa.RecordBatch] = Common(SMALL, lambda rows: int(rows.nbytes))
_unpacked: Common[Table] = Common(4, lambda _: 1)
_readers: Common[Any] = Common(16, lambda _: 1)


class ArrowFile(Checked):
    """Reads an Arrow IPC file, plain or with LZ4 or ZSTD compressed record batches.

    Plain record batches are read row by row. Compressed ones are decoded whole if they are small; of large ones the
    requested columns are decompressed step by step into a spill file and read there.

    Args:
        path: The file.
        spill: Folder for spill files, or ``"off"``; see `corgipile.tables.io.spill.spill_folder`.

    Example:
        >>> import tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"label": [0, 1, 1]})
        ...     with pa.ipc.new_file(f"{folder}/a.arrow", rows.schema) as writer:
        ...         writer.write_table(rows)
        ...     ArrowFile(f"{folder}/a.arrow").read(1, 3).to_pydict()
        {'label': [1, 1]}
    """

    columnar = True  # a column is read without the others

    def __init__(self, path: PathLike | File, spill: Spill = None) -> None:
        self._file = file_of(path)
        self.spill, self._spill = spill_folder(spill), spill
        footer, stored = self._find_batches()
        self._blocks = footer.blocks
        self._metadata: BatchMetadata | Decompressed = BatchMetadata(self._file, footer.blocks, footer.like)
        self._stored = stored = same_schema(stored)
        check_names(stored, self._file.path)
        self._dictionaries = Dictionaries(self._file, footer.dictionaries, stored)
        self._raw = index_schema(stored)
        self._sizes: Recent[IntArray] = Recent(64)  # by columns
        self._layouts: Recent[Layout | None] = Recent(2)
        self._unpacking = threading.Lock()
        # A writer compresses all its batches or none, so the first decides where blocks may be cut.
        packed = len(self._blocks) > 0 and self._metadata[0].compressed
        self._starts = self._find_starts(footer.rows, packed)
        self.schema: pa.Schema = without_views(stored)
        column_places = places(stored) if footer.native else None
        self._packed, self._places = column_places if packed else None, None if packed else column_places
        self._whole = self._places is None or not all_sliceable(stored)
        self._scatter = None if self._places is None else Take(self._file, self._places, self._starts)

    def __reduce__(self) -> tuple[type["ArrowFile"], tuple[str, Spill]]:
        return type(self), (self._file.path, self._spill)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._file.path!r})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return int(self._blocks["body"].sum())

    @property
    def fingerprint(self) -> str:
        """Return a digest of content, schema and rows."""
        return digest(self._file.identity, describe(self._stored), str(len(self)), *sampled_rows(self, self._file))

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows, or at record batches if these are decoded whole."""
        return merge_cuts(self._starts, rows) if self._whole else even_cuts(len(self), rows)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._dictionaries.look_up(self.read_stored(start, stop, names), self.schema)

    def read_stored(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a run of rows as stored: dictionary columns as their indices."""
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._read(i, a, b, names))

    def read_whole(self) -> pa.Table:
        """Read all rows in one request if they are plain and most of the file."""
        if self._whole or self._places is None or self._file.size > 2 * self.nbytes + MAX_RUN:
            return pa.Table.from_batches([self.read(0, len(self))])
        file, batches = InMemory(self._file), []
        for i, head in ((i, self._metadata[i]) for i in np.flatnonzero(np.diff(self._starts)).tolist()):
            body, places = self._body(i, head, file), self._places.values()
            rows = pa.RecordBatch.from_arrays([body.column(place, 0, head.rows) for place in places], schema=self._raw)
            batches.append(self._dictionaries.look_up(rows, self.schema))
        return pa.Table.from_batches(batches, self.schema)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._dictionaries.look_up(self.take_stored(rows, names), self.schema)

    def take_stored(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read scattered rows as they are stored."""
        batch = self._take_scattered(rows, names)
        if batch is None:
            return take_pieces(self._starts, rows, lambda i, local: self._take(i, local, names))
        return batch

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes of the dictionaries of these columns."""
        return self._dictionaries.nbytes(columns)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of each row from its offsets; None if record batches must be decoded."""
        if self._scatter is None or not self._dictionaries.names.isdisjoint(columns):
            return None
        with decoding(self._file.path):
            return self._scatter.sizes(pick(self.schema, columns), rows, self._slices)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into a bytes object."""
        if self._scatter is None:
            return list(self.take(rows, [column]).column(0).to_pylist())
        return self._scatter.take_bytes(self.schema.field(column), rows, self._slices)

    def _take_scattered(self, rows: IntArray, names: list[str]) -> pa.RecordBatch | None:
        """Take rows in few calls; None if runs must be read, or are cheaper because narrow rows lie densely."""
        dense = self.nbytes < WIDE_ROW * len(self) and int(rows.max() - rows.min()) < DENSE_STEP * len(rows)
        if self._scatter is None or dense:
            return None
        return self._scatter.take(pick(self._raw, names), rows, self._slices)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the positions of fixed-width columns; None if compressed, null, or of varying width."""
        return self._layout(check_columns(self.schema, columns), varlen=False)

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the positions of fixed- and variable-length columns; None if compressed, null, or of other types."""
        layout = self._layout(check_columns(self.schema, columns), varlen=True)
        return None if layout is None else Location(layout)

    def _layout(self, names: list[str], *, varlen: bool) -> Layout | None:
        fields = [self.schema.field(name) for name in names]
        if self._places is None or not all(placeable(field.type, varlen=varlen) for field in fields):
            return None
        places, filled = [self._places[name] for name in names], np.flatnonzero(np.diff(self._starts))

        def compute() -> Layout | None:
            begins = self._blocks["offset"][filled] + self._blocks["metadata"][filled]
            starts = np.append(self._starts[filled], self._starts[-1])
            return lay_out(self._file, fields, places, self._checked_metadata(filled), begins, starts)

        if len(filled) <= 1 or len(names) * len(filled) > MAX_CACHED_PLACES:  # caching would save little, or take much
            return compute()
        return self._layouts.get(tuple(names), compute)

    def _checked_metadata(self, batches: IntArray) -> Iterator[Batch]:
        """Yield the checked metadata of record batches."""
        for i, head in zip(batches.tolist(), self._metadata.many(batches), strict=True):
            self._check(i, head)
            yield head

    def _find_batches(self) -> tuple[Footer, pa.Schema]:
        """Return the footer and the stored schema."""
        file = self._file if isinstance(self._file, RemoteFile) else CachedTail(self._file)
        footer = apply_note(file, read_footer(file))
        with decoding(file.path):
            stored, end = pa.ipc.open_file(end_of(file)).schema, schema_end(file)
            first = pa.ipc.read_schema(pa.py_buffer(file.read(8, end - 8))) if end > 8 else stored
        if not stored.equals(first):
            raise CorruptFile(f"{file.path}: the schema in the footer must equal the one at the beginning")
        return footer, stored

    def _find_starts(self, counts: IntArray | None, packed: bool) -> IntArray:
        if counts is None:
            metadata = enumerate(self._metadata.many(np.arange(len(self._blocks))))
            counts = np.array([self._rows(i, head) for i, head in metadata], np.int64)
        # A row takes at least one uncompressed bit, but for null columns: FREE_ROWS allows those.
        max_rows = self._blocks["body"].astype(np.float64) * (8 * MAX_COMPRESSION_RATIO if packed else 8)
        if (counts > np.maximum(max_rows, FREE_ROWS)).any():
            bad = int(np.argmax(counts > np.maximum(max_rows, FREE_ROWS)))
            raise CorruptFile(
                f"{self._file.path}: record batch {bad} claims {counts[bad]} rows in {self._blocks['body'][bad]} bytes"
            )
        return np.append(np.int64(0), np.cumsum(counts))

    def _rows(self, i: int, head: Batch) -> int:
        if not len(head.nodes):
            raise CorruptFile(f"{self._file.path}: record batch {i} must have {len(self._stored)} columns, got none")
        return head.rows

    def _check(self, i: int, head: Batch) -> None:
        rows = int(self._starts[i + 1] - self._starts[i])
        if head.rows != rows:
            raise CorruptFile(f"{self._file.path}: record batch {i} must have {rows} rows, got {head.rows}")

    def _body(self, i: int, head: Batch, file: File | None = None) -> BatchSlices:
        self._check(i, head)
        return BatchSlices(file or self._file, int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"]), head)

    def _body_with(self, i: int, head: Batch, names: list[str]) -> BatchSlices:
        """Return a reader of these columns of a record batch."""
        return self._body(i, head)

    def _slices(self, batches: IntArray) -> Iterator[BatchSlices]:
        return (self._body(i, head) for i, head in zip(batches.tolist(), self._checked_metadata(batches), strict=True))

    @property
    def place(self) -> str:
        """Return an id of the file's current state that is unique on this machine."""
        return self._file.place

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the decompressed size of the record batches; None if they are not compressed."""
        names = tuple(dict.fromkeys(columns))
        decompressor = self._decompressor(names)
        if decompressor is None:
            return None
        sizes = self._sizes.get(names, lambda: decompressor.bytes_of(range(len(self._blocks))))
        rows = np.diff(self._starts)
        return units_of(rows, sizes + rows * self._dictionaries.mean_bytes(names))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write all rows, decompressed step by step, as sections of a spill file."""
        self.decompressing(columns).write(range(len(self._blocks)), out)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the sections that `write_plain` wrote."""
        return _DecompressedFile(self, columns, range(len(self._blocks)), sections)

    def _decompressor(self, names: Sequence[str]) -> Decompressor | None:
        """Return a decompressor of columns; None if they are not compressed, or not sliceable afterwards."""
        if self._packed is None or not all(sliceable(self._packed[name].kind) for name in names):
            return None
        return Decompressor(self._file, self._blocks, self._metadata, self._packed, names)

    def decompressing(self, names: Sequence[str]) -> Decompressor:
        """Return a decompressor of columns; raise BadArgument if they are not compressed."""
        decompressor = self._decompressor(names)
        if decompressor is None:
            raise BadArgument(f"{self!r} must be compressed")
        return decompressor

    def _read(self, i: int, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        batch = self._metadata[i]
        if (
            batch.compressed
            or self._places is None
            or self._is_short(i, names)
            or not all(sliceable(self._places[name].kind) for name in names)
        ):
            plain = self._plain(i, names) if stop - start < batch.rows else None
            if plain is not None:
                return plain.read_stored(start, stop, names)
            return self._decode(i, names).slice(start, stop - start)
        body = self._body_with(i, batch, names)
        arrays = [body.column(self._places[name], start, stop) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self._raw, names))

    def _is_short(self, i: int, names: list[str]) -> bool:
        """Return whether a plain record batch of many columns is read faster at once than column by column."""
        if len(names) < MANY_COLUMNS or 2 * len(names) < len(self._raw) or isinstance(self._file, RemoteFile):
            return False
        return int(self._blocks[i]["body"]) <= SMALL and not self._dictionaries

    def _plain(self, i: int, names: list[str]) -> "ArrowFile | None":
        """Return a large record batch decompressed in a spill file; recent ones are cached."""
        decompressor = self._decompressor(names)
        if self.spill is None or decompressor is None:
            return None
        if self._size(i, names, decompressor) <= SMALL and not self._dictionaries.large:  # small enough for pyarrow
            return None
        folder, batches = self.spill, range(i, i + 1)
        part = Part(
            lambda columns, out: self.decompressing(columns).write(batches, out),
            lambda columns, sections: _DecompressedFile(self, columns, batches, sections),
        )
        with self._unpacking:
            table = _unpacked.of(self, (i, *names), lambda: unpack(part, names, folder))
        return cast("ArrowFile", table)

    def _size(self, i: int, names: list[str], decompressor: Decompressor) -> int:
        """Return the bytes of columns of a record batch, decompressed."""
        return int(decompressor.bytes_of([i])[0])

    def _take(self, i: int, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        plain = self._plain(i, names) if self._metadata[i].compressed else None
        if plain is not None:
            return plain.take_stored(rows, names)
        width = int(self._blocks[i]["body"]) // max(self._metadata[i].rows, 1)
        gap, max_rows = (size // max(width, 1) for size in (MAX_GAP, MAX_RUN))
        return take_runs(rows, gap, lambda start, stop: self._read(i, start, stop, names), max(1, max_rows))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        return _decoded.of(self, (i, *names), lambda: self._decode_now(i, names))

    def _decode_now(self, i: int, names: list[str]) -> pa.RecordBatch:
        batch = self._metadata[i]
        self._body(i, batch)
        with decoding(self._file.path):
            decoded = self._load(i, names)
            decoded.validate(full=True)
            if decoded.num_rows != batch.rows:
                raise CorruptFile(f"{self._file.path}: record batch {i} decodes to {decoded.num_rows} rows")
            return self._dictionaries.numbers(decoded, pick(self._raw, names))

    def _load(self, i: int, names: list[str]) -> pa.RecordBatch:
        if self._places is not None and self._is_short(i, names):
            block = self._blocks[i]
            data = self._file.read(int(block["offset"]), int(block["metadata"]) + int(block["body"]))
            return pa.ipc.read_record_batch(pa.py_buffer(data), self._stored)
        return _readers.of(self, tuple(names), lambda: self._open_reader(names, self._file)).get_batch(i)

    def _open_reader(self, names: list[str], file: File) -> Any:
        options = pa.ipc.IpcReadOptions(included_fields=sorted(self._stored.get_field_index(name) for name in names))
        reader = pa.ipc.open_file(file.source(), options=options)
        if self._dictionaries:  # the first read loads them and is not thread-safe
            reader.get_batch(int(self._blocks["body"].argmin()))
        return reader


class _DecompressedFile(ArrowFile):
    """Record batches of a file, decompressed in a section of a spill file.

    Args:
        source: The compressed file.
        columns: The decompressed columns.
        batches: The decompressed record batches.
        sections: The section of the batches, then that of their buffer lengths.
    """

    def __init__(self, source: ArrowFile, columns: Sequence[str], batches: range, sections: Iterator[Section]) -> None:
        self._name, self._identity = f"{source!r}, unpacked", source.fingerprint
        self._file = section = next(sections)
        self.spill, lengths = None, next(sections)
        decompressed = source.decompressing(columns).located(
            batches, np.frombuffer(lengths.read(0, lengths.size), "<i8")
        )
        self._blocks, self._metadata = decompressed.blocks, decompressed
        self.schema = same_schema(pick(source.schema, columns))
        self._raw, self._dictionaries = pick(source._raw, columns), source._dictionaries  # noqa: SLF001 - same class
        self._starts = np.append(np.int64(0), np.cumsum(decompressed.rows))
        stored = same_schema(pick(source._stored, columns))  # noqa: SLF001
        self._places, self._packed, self._whole = places(stored), None, False
        self._layouts = Recent(2)
        self._scatter = Take(section, self._places or {}, self._starts)

    def __repr__(self) -> str:
        return self._name

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the compressed file."""
        return self._identity
