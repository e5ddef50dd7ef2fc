"""Parquet files: rows in row groups, decoded whole where they are small, else little by little into a spill file."""

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corgipile.arrow_memory import frugal, give_back
from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables import parquet_categories as coding
from corgipile.tables.arrow.file import ArrowFile
from corgipile.tables.ascending import Span
from corgipile.tables.checked import Checked
from corgipile.tables.encoded import (
    SMALL,
    TOGETHER,
    Part,
    SpilledTable,
    Units,
    grouped,
    typed,
    units_of,
    unpack,
    write_plain,
)
from corgipile.tables.even_lists import even_length
from corgipile.tables.io.arriving import Arriving, at_once
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import PathLike, decoding, describe, digest
from corgipile.tables.io.pieces import (
    Recent,
    check_names,
    merge_cuts,
    pick,
    pick_rows,
    read_pieces,
    same_schema,
    take_pieces,
)
from corgipile.tables.io.remote import RemoteFile, file_of
from corgipile.tables.io.side_by_side import side_by_side
from corgipile.tables.io.spill import Section, Spill, SpillWriter, spill_folder
from corgipile.tables.io.staged import fetch
from corgipile.tables.parquet_pages import chunk_columns, chunk_range, chunk_span, page_bytes, row_bits
from corgipile.tables.table import IntArray, Table
from corgipile.tables.values import values

MAGIC = b"PAR1"
SUFFIXES = (".parquet", ".pq")
SAMPLE_ROWS, SAMPLE_BYTES = 64, 1 << 20
FIRST = 4  # rows of a row group that are decoded without the others
MOST_TOGETHER = 3  # groups of columns that are not worth a spill file to who reads rows once
BATCH_ROWS, BATCH_BYTES = 1 << 16, 1 << 17  # decoded at a time
DECODERS, WAITING = min(4, os.cpu_count() or 1), 1 / 3  # threads that decode what comes from stores; of its bytes
LEVELS, ROOM = 4, 16 << 20  # bytes a row to know which are null; of a row group in memory, were all values the longest
TIDY_BYTES = 1 << 20  # decoded before pages are given back that are read no more
PARSED = 11  # times as many bytes as the footer of a file has take what is made of it
_footers: Common[Any] = Common(8 << 20, lambda found: PARSED * int(found.serialized_size))
_decoded: Common[pa.RecordBatch] = Common(SMALL, lambda rows: int(rows.nbytes))
_sampled: Common[pa.RecordBatch | None] = Common(SMALL, lambda rows: int(rows.nbytes) if rows is not None else 0)
_unpacked: Common[Table] = Common(4, lambda _: 1)
_readers = threading.local()  # the last of each thread: one reader must not decode in two threads at once


class ParquetTable(Checked):
    """Reads a Parquet file.

    Its natural unit is the row group: a block is at least one of them. Of a large one few rows are never decoded alone:
    the columns asked for are unpacked to a spill file, a few at a time, and read there.

    Args:
        path: The file.
        spill: Folder for spill files, ``"off"`` for none: row groups are then decoded in memory, whole; see
            `corgipile.tables.io.spill.spill_folder`.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"label": [0, 1, 1]}), f"{folder}/a.parquet", row_group_size=2)
        ...     ParquetTable(f"{folder}/a.parquet").cuts(1).tolist()
        [0, 2, 3]
    """

    columnar = True  # a column is read without the others

    def __init__(self, path: PathLike, spill: Spill = None) -> None:
        self._file, self.spill, self._spill = file_of(path), spill_folder(spill), spill
        if self._file.read(0, min(4, self._file.size)) != MAGIC:
            raise UnknownFormat(f"{self._file.path} is no Parquet file: it does not begin with {MAGIC!r}")
        if self._file.size < 12 or self._file.read(self._file.size - 4, 4) != MAGIC:
            raise CorruptFile(f"{self._file.path} is truncated: it does not end with {MAGIC!r}")
        with decoding(self._file.path):
            opened = pq.ParquetFile(self._file.source())
            metadata = _footers.of(self, "footer", lambda: opened.metadata)
            self._kept = metadata if isinstance(self._file, RemoteFile) else None  # rather than asked for again
            self.schema: pa.Schema = same_schema(opened.schema_arrow)
            check_names(self.schema, self._file.path)
            counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._bytes = [metadata.row_group(i).total_byte_size for i in range(len(counts))]
        if any(count < 0 or count > 2**40 for count in counts):
            raise CorruptFile(f"{self._file.path}: a row group claims {max(counts, key=abs)} rows")
        if sum(counts) != metadata.num_rows:
            raise CorruptFile(
                f"{self._file.path}: its row groups have {sum(counts)} rows; {metadata.num_rows} are stated"
            )
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._widths, self._dictionaries = Recent[float](1 << 16), Recent[int](1 << 16)
        self._longests = Recent[int](1 << 12)
        self._unpacking = threading.Lock()

    def __reduce__(self) -> tuple[type["ParquetTable"], tuple[str, Spill]]:
        return ParquetTable, (self._file.path, self._spill)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"ParquetTable({self._file.path!r})"

    @property
    def _metadata(self) -> Any:
        """Return what the footer says; it is read again where other files' took its place."""
        if self._kept is not None:
            return self._kept
        with decoding(self._file.path):
            return _footers.of(self, "footer", lambda: pq.read_metadata(self._file.source()))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows, encoded but not compressed."""
        return sum(self._bytes)

    @property
    def fingerprint(self) -> str:
        """Return the identity: content, schema and rows."""
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
        """Return what tells the file, as it is now, from all others of this machine."""
        return self._file.place

    def units(self, columns: Sequence[str]) -> Units | None:
        """Say what row groups take, decoded; of columns of varying length by a sample and the metadata."""
        counts, names = np.diff(self._starts), list(dict.fromkeys(columns))
        found = units_of(counts, counts * sum(map(self._width, names)))
        return found and found._replace(dictionary=max((self._dictionary(name) for name in names), default=0))

    def part_rows(self) -> IntArray:
        """Return the rows of each row group."""
        return np.diff(self._starts)

    def spans(self, columns: Sequence[str], parts: Sequence[int]) -> dict[str, list[Span]]:
        """Return least and greatest value of columns in row groups, without those of which the footer says nothing."""
        groups = [self._metadata.row_group(part) for part in parts]
        flat = [name for name in columns if not pa.types.is_nested(self.schema.field(name).type)]
        found = {name: [chunk_span(group.column(self._chunks[name][0])) for group in groups] for name in flat}
        return {name: [span for span in spans if span] for name, spans in found.items() if all(spans)}

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows if the first agree, and the numbers in all row groups."""
        groups = [i for i, rows in enumerate(np.diff(self._starts)) if rows]
        first = self._first(groups[0], name) if groups else None
        width = None if first is None else even_length(first.column(0))
        counts = [self._metadata.row_group(i).column(self._chunks[name][0]).num_values for i in groups]
        even = width is not None and (np.array(counts) == np.diff(self._starts)[groups] * width).all()
        return width if even else None

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write all rows, decoded little by little, as sections of a spill file."""
        self.write_groups(columns, out, range(len(self._bytes)))

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the sections that `write_plain` wrote."""
        return SpilledTable(self, columns, [ArrowFile(next(sections)) for _ in self._together(columns)])

    def batches(self) -> Iterator[pa.RecordBatch] | None:
        """Decode all columns together, page by page; None where that takes much and a spill file may be used."""
        groups, names = range(len(self._bytes)), list(self.schema.names)
        if self.spill is not None and len(self._together(names)) > MOST_TOGETHER:
            return None
        return self._batches(names, groups)

    def write_groups(self, columns: Sequence[str], out: SpillWriter, groups: range) -> None:
        """Write the rows of some row groups as sections of a spill file."""
        rows = int(self._starts[groups.stop] - self._starts[groups.start])
        together = self._together(columns)
        with contextlib.closing(self._sections(together, groups)) as sections:
            for names, batches in zip(together, sections, strict=True):
                schema = pick(self.schema, names).remove_metadata()  # which may describe all columns
                write_plain(out, schema, batches, rows)

    def _together(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are decoded at the same time."""
        counts = np.diff(self._starts)
        if not counts.size:
            return [list(columns)]
        group = self._metadata.row_group(int(counts.argmax()))
        chunks = {name: [group.column(i) for i in self._chunks[name]] for name in columns}
        return grouped(
            {
                name: sum(page_bytes(self._file, chunk) for chunk in found)
                + int(self._batch_rows([name]) * self._width(name))
                for name, found in chunks.items()
            }
        )

    @cached_property
    def _chunks(self) -> dict[str, range]:
        return chunk_columns(self.schema)

    def _width(self, name: str) -> float:
        """Return the bytes of a row of a column, decoded."""
        bits = row_bits(self.schema.field(name).type)
        return bits / 8 if bits or not len(self) else self._widths.get(name, lambda: self._find_width(name))

    def _find_width(self, name: str) -> float:
        counts = np.diff(self._starts)
        group = int(counts.argmax())
        coded = coding.coded_width(self._file, self._largest(name), int(counts[group]))
        if self._dictionary(name) or coded > SAMPLE_BYTES:  # much would be decoded for a few rows
            return coded
        first = self._first(group, name)
        sampled: float = values(first).nbytes / max(first.num_rows, 1) if first is not None else 0.0
        return max(self._stored_width(group, name), sampled)

    def _dictionary(self, name: str) -> int:
        """Return the bytes that decoding takes at least, a dictionary or a page, 0 where they are as small as most."""
        if 0 < row_bits(self.schema.field(name).type) < 8 * SAMPLE_BYTES or not len(self):
            return 0
        return self._dictionaries.get(name, lambda: coding.decoding_bytes(self._file, self._largest(name), TOGETHER))

    def _largest(self, name: str) -> list[Any]:
        """Return the chunks of a column in the largest row group."""
        group = self._metadata.row_group(int(np.diff(self._starts).argmax()))
        return [group.column(i) for i in self._chunks[name]]

    def _stored_width(self, group: int, name: str) -> float:
        """Return the bytes of a row of a column in a row group, encoded but not compressed."""
        metadata, rows = self._metadata.row_group(group), int(np.diff(self._starts)[group])
        return sum(int(metadata.column(i).total_uncompressed_size) for i in self._chunks[name]) / rows

    def _first(self, group: int, name: str) -> pa.RecordBatch | None:
        """Decode the first rows of a column of a row group, without the others; they are kept a while."""
        width = max(self._stored_width(group, name), self._longest(group, name), 1.0)
        rows = max(FIRST, min(SAMPLE_ROWS, int(SAMPLE_BYTES / width)))

        def decode() -> pa.RecordBatch | None:
            with frugal():
                return next(self._batches([name], range(group, group + 1), rows), None)

        return _sampled.of(self, (group, name), decode)

    def head(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Decode a column from its first row on, page by page, so many rows at a time, of long ones fewer."""
        filled = np.flatnonzero(np.diff(self._starts))
        if not len(filled):
            return
        step = max(FIRST, min(rows, int(SAMPLE_BYTES / max(self._width(name), 1.0))))
        for batch in self._batches([name], range(int(filled[0]), len(self._starts) - 1), step):
            yield batch.column(0)

    def _longest(self, group: int, name: str) -> int:
        """Return the bytes of the longest value that a row group may repeat by few bytes, 0 where all are short."""
        columns = () if row_bits(self.schema.field(name).type) else self._chunks[name]
        return self._longests.get(
            (group, name), lambda: coding.longest_value(self._file, self._metadata, group, columns)
        )

    def _batch_rows(self, names: Sequence[str]) -> int:
        width = sum(map(self._width, names))
        return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(width, 1e-9))))

    def _batches(self, names: list[str], groups: range, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Decode the columns of some row groups, page by page; ``rows`` at a time where only the first are wanted."""
        step = rows or self._batch_rows(names)
        if isinstance(self._file, RemoteFile) and rows is None:
            source = Arriving(self._file, [self._ranges(group, names) for group in groups]).source()
        else:
            source = self._file.source() if isinstance(self._file, RemoteFile) else None
        yield from self._decoded_batches(names, groups, step, source)

    def _sections(self, together: list[list[str]], groups: range) -> Generator[Iterable[pa.RecordBatch]]:
        """Decode columns of some row groups, one set of columns after another; if they come from a store, meanwhile."""
        if not isinstance(self._file, RemoteFile):
            yield from (self._batches(names, groups) for names in together)
            return
        parts = [(names, group) for names in together for group in groups]
        file = Arriving(self._file, [self._ranges(group, names) for names, group in parts])

        def decode(names: list[str], group: int) -> Iterator[pa.RecordBatch]:
            return self._decoded_batches(names, range(group, group + 1), self._batch_rows(names), file.source())

        makes = (partial(decode, *part) for part in parts)
        threads = max(1, min(DECODERS, at_once() // TOGETHER))  # each of which may take so much
        waiting = int(at_once() * WAITING) // threads
        with contextlib.closing(side_by_side(makes, threads, lambda batch: int(batch.nbytes), waiting)) as runs:
            for _ in together:
                yield itertools.chain.from_iterable(itertools.islice(runs, len(groups)))

    def _ranges(self, group: int, names: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Return where the column chunks of a row group lie."""
        metadata = self._metadata.row_group(group)
        found = np.array([chunk_range(metadata.column(i)) for name in names for i in self._chunks[name]], np.int64)
        starts, lengths = found.reshape(-1, 2).T
        if (starts < 0).any() or (lengths < 0).any() or (starts > self._file.size - lengths).any():
            raise CorruptFile(f"{self._file.path}: row group {group} claims bytes that the file does not have")
        return starts, lengths

    def _decoded_batches(self, names: list[str], groups: range, rows: int, source: Any) -> Iterator[pa.RecordBatch]:
        schema = pick(self.schema, names)
        with decoding(self._file.path):
            decoded = 0
            untyped = lambda: _footers.of(self, "untyped", lambda: coding.without_types(self._metadata))  # noqa: E731
            metadata = coding.metadata_for(schema, self._metadata, untyped)
            file = coding.columns_reader(self, self._file.path, metadata, source)
            longest = [(group, sum(self._longest(group, name) for name in names)) for group in groups]
            for batch in coding.in_batches(file, names, longest, rows):
                batch.validate(full=True)
                decoded += batch.nbytes
                if decoded > TIDY_BYTES:
                    give_back()
                    decoded = 0
                columns = [typed(batch.column(field.name), field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _is_large(self, i: int, names: list[str]) -> bool:
        rows = int(self._starts[i + 1] - self._starts[i])
        large = sum(map(self._width, names)) * rows > SMALL or any(map(self._dictionary, names))
        return large or rows * (LEVELS + sum(self._longest(i, name) for name in names)) > ROOM

    def _piece(self, i: int, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        if stop - start == self._starts[i + 1] - self._starts[i]:
            return self._decode(i, names)
        if self.spill is not None and self._is_large(i, names):
            looked = self._looked_at(i, stop, names)
            if looked is not None:
                return looked.slice(start)
            return self._plain(i, names, self.spill).read(start, stop, names)
        return self._group(i, names).slice(start, stop - start)

    def _looked_at(self, i: int, stop: int, names: list[str]) -> pa.RecordBatch | None:
        """Return the first rows of a row group in a store, if only these are asked for, to see what rows are like."""
        if stop > FIRST or not isinstance(self._file, RemoteFile):
            return None
        found = [first.column(0)[:stop] for name in names if (first := self._first(i, name)) is not None]
        there = [len(column) for column in found] == [stop] * len(names)
        return pa.RecordBatch.from_arrays(found, schema=pick(self.schema, names)) if there else None

    def _scattered(self, i: int, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        if self.spill is not None and self._is_large(i, names):
            return self._plain(i, names, self.spill).take(rows, names)
        return pick_rows(self._group(i, names), rows)

    def _plain(self, i: int, names: list[str], folder: Path) -> Table:
        """Return a row group unpacked; the last ones stay so a while."""
        part = Part(lambda columns, out: self.write_groups(columns, out, range(i, i + 1)), self.open_plain)
        with self._unpacking:
            return _unpacked.of(self, (i, *names), lambda: unpack(part, names, folder))

    def _group(self, i: int, names: list[str]) -> pa.RecordBatch:
        return _decoded.of(self, (i, *names), lambda: self._decode(i, names))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        with decoding(self._file.path):
            table = self._reader(i, names).read_row_group(i, columns=names, use_threads=False)
            table.validate(full=True)
            rows = int(self._starts[i + 1] - self._starts[i])
            if table.num_rows != rows:
                raise CorruptFile(f"{self._file.path}: row group {i} decodes to {table.num_rows} rows, not {rows}")
            arrays = [pa.concat_arrays(table.column(name).chunks) for name in names]
            return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))

    def _reader(self, i: int, names: Sequence[str]) -> Any:
        """Return this thread's reader of this file."""
        if isinstance(self._file, RemoteFile):
            return pq.ParquetFile(fetch(self._file, self._ranges(i, names)).source(), metadata=self._metadata)
        if getattr(_readers, "owner", None) != weakref.ref(self):
            _readers.last = pq.ParquetFile(self._file.source(), metadata=self._metadata)
            _readers.owner = weakref.ref(self)
        return _readers.last
