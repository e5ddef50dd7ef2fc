"""Avro container files: rows in blocks, each followed by a sync marker."""

import contextlib
import io
from array import array
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue, CorruptFile, UnknownFormat
from corgipile.extras import extra
from corgipile.nesting import parse_json
from corgipile.tables.format import Format
from corgipile.tables.formats.avro.types import column_type, least_bytes, swelling
from corgipile.tables.io.files import File, PathLike, decoding
from corgipile.tables.io.pieces import check_names, join, pick
from corgipile.tables.io.spill import Spill, spill_folder
from corgipile.tables.io.unpacking import Unpacking, open_decompressed
from corgipile.tables.io.varints import zigzag
from corgipile.tables.library import UnitTable
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "MAGIC", "SUFFIXES", "AvroTable", "check_file"]

MAGIC, SUFFIXES = b"Obj\x01", (".avro",)
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
MARK = 16  # bytes of a sync marker
HEAD, MAX_HEAD = 1 << 16, 1 << 26  # bytes of the header, read first and at most
LOOK = 20  # bytes that hold a block's number of rows and bytes
PART, PART_ROWS = 1 << 16, 1 << 13  # bytes, and rows, decoded to Python objects at once
MAX_EMPTY_ROWS = 1 << 20  # rows of a block whose values take no bytes
MAX_ROW_BYTES, MAX_SWELLING = 8 << 20, 160  # bytes of a row's objects, or times its block's bytes if more
ADVICE = "a block is decoded whole before a row is read; `corgipile convert` writes a file that is read in place"


class AvroTable(UnitTable):
    """Reads an Avro file; its natural unit is the block. Rows are decoded by ``fastavro``.

    Args:
        path: The file.
        spill: Folder for spill files, ``"off"`` for none.
    """

    columnar = False  # a row is decoded whole
    advice = ADVICE

    def __init__(self, path: PathLike, spill: Spill = None) -> None:
        self._file, self._spill = File(path), spill
        if self._file.read(0, min(4, self._file.size)) != MAGIC:
            raise UnknownFormat(f"{self._file.path} is not an Avro file: it does not begin with {MAGIC!r}")
        fastavro = extra("fastavro", "reading Avro", "avro")
        header, self._mark, begin = _head(self._file)
        self._codec = header.get("avro.codec", b"null").decode("utf-8", "replace")
        if self._codec not in CODECS:
            raise UnknownFormat(f"{self._file.path} must be compressed by {', '.join(CODECS)}, got {self._codec!r}")
        written = header.get("avro.schema", b"")
        stated = parse_json(written, f"{self._file.path}: its schema")
        schema = _schema(stated, self._file.path)
        with decoding(self._file.path), self._decoding():
            self._written = fastavro.parse_schema(_without_logic(stated))
        self._swelling = swelling(schema)
        counts, self._places, self._sizes = _blocks(self._file, begin, self._mark)
        self._check_counts(counts, least_bytes(stated))
        file = self._file
        super().__init__(file.path, file.identity, schema, counts, spill_folder(spill), file.place)

    def __reduce__(self) -> tuple[type["AvroTable"], tuple[str, Spill]]:
        return AvroTable, (self.path, self._spill)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the file."""
        return self._file.size

    def _check_counts(self, counts: IntArray, least: int) -> None:
        """Raise CorruptFile if blocks state more rows than their bytes can hold."""
        room = self._sizes // least if least and self._codec == "null" else np.full(len(counts), MAX_EMPTY_ROWS)
        if (least == 0 or self._codec == "null") and len(counts) and (counts > room).any():
            at = int(np.argmax(counts > room))
            where = f"{self._file.path}: a block of {self._sizes[at]} bytes"
            raise CorruptFile(f"{where} must state at most {room[at]} rows, got {counts[at]}")

    def _together(self, columns: Any) -> list[list[str]]:
        return [list(dict.fromkeys(columns))]

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        return join(list(self._parts(i, names, PART_ROWS)))

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for i in range(len(self._sizes)):
            yield from self._parts(i, names, rows)

    def _parts(self, i: int, names: list[str], max_rows: int) -> Iterator[pa.RecordBatch]:
        """Decode a block in parts, since Python objects take many times more memory than columns."""
        done, stop = int(self._starts[i]), int(self._starts[i + 1])
        while done < stop:
            if done == self._starts[i]:
                place, size = int(self._places[i]), int(self._sizes[i])
                largest = max(size, max(MAX_ROW_BYTES, MAX_SWELLING * size) // self._swelling)  # bytes of a row
                with decoding(self.path):
                    stream = open_decompressed(self._file, place, size, self._codec, largest)
            with decoding(self.path), self._decoding():
                rows = self._some_rows(stream, largest, min(max_rows, PART_ROWS, stop - done))
                done += len(rows)
                if done == stop and stream.read(1):
                    raise CorruptFile(f"{self.path}: a block has data after its {stop - self._starts[i]} stated rows")
            yield self._columns(rows, done - len(rows), names)

    def _some_rows(self, stream: io.BufferedReader, largest: int, max_rows: int) -> list[dict[str, Any]]:
        """Decode the next rows: at least one, and at most about `PART` stored bytes."""
        read, rows = extra("fastavro", "reading Avro", "avro").schemaless_reader, list[dict[str, Any]]()
        raw = cast("Unpacking", stream.raw)
        begun = raw.done
        while len(rows) < max_rows and raw.done - begun <= PART:
            raw.most = raw.done + largest
            rows.append(read(stream, self._written, None))
        return rows

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        """Convert the library's error for bad bytes to one that `decoding` handles."""
        bad_schema = extra("fastavro.schema", "reading Avro", "avro").SchemaParseException
        try:
            yield
        except (
            EOFError,
            StopIteration,
            AttributeError,
            ArithmeticError,
            AssertionError,
            bad_schema,
        ) as error:
            raise ValueError(str(error) or type(error).__name__) from None

    def _columns(self, rows: list[dict[str, Any]], first: int, names: list[str]) -> pa.RecordBatch:
        arrays = []
        for field in pick(self.schema, names):
            try:
                arrays.append(pa.array([row[field.name] for row in rows], field.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError) as error:
                reason = str(error).splitlines()[0][:200]
                where = f"{self.path}, rows {first} to {first + len(rows)}"
                raise BadValue(f"{where}: column {field.name!r} must be {field.type}: {reason}") from None
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))


def _schema(stated: Any, path: str) -> pa.Schema:
    if not isinstance(stated, dict) or stated.get("type") != "record":
        raise BadSchema(f"{path}: its values must be records, whose fields become columns, got {stated!r:.80}")
    known: dict[str, Any] = {}
    with decoding(path):
        fields = [(field["name"], field["type"]) for field in stated["fields"]]
        space = stated.get("namespace")
    schema = pa.schema([(name, column_type(kind, f"{path}: column {name!r}", known, space)) for name, kind in fields])
    check_names(schema, path)
    return schema


def _without_logic(schema: Any) -> Any:
    """Return a schema without logical types, so that dates and times decode to numbers, which Arrow converts."""
    if isinstance(schema, list):
        return [_without_logic(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: one for key, one in schema.items() if key != "logicalType" or one == "decimal"}
    inner = ("type", "items", "values", "fields")
    return {key: _without_logic(one) if key in inner else one for key, one in plain.items()}


def _head(file: File) -> tuple[dict[str, bytes], bytes, int]:
    """Return the metadata of a file, its sync marker, and the offset of its first block."""
    size = HEAD
    while True:
        data = file.read(0, min(size, file.size))
        try:
            return _parsed_head(data)
        except IndexError:
            if size >= min(file.size, MAX_HEAD):
                raise CorruptFile(f"{file.path} is truncated: it ends within its header") from None
            size *= 4


def _parsed_head(data: bytes) -> tuple[dict[str, bytes], bytes, int]:
    metadata, at = {}, len(MAGIC)
    while True:
        count, at = zigzag(data, at)
        if count == 0:
            break
        if count < 0:
            _, at = zigzag(data, at)
        for _ in range(abs(count)):
            key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            metadata[key.decode("utf-8", "replace")] = value
    if at + MARK > len(data):
        raise IndexError(at)
    return metadata, data[at : at + MARK], at + MARK


def _blocks(file: File, begin: int, mark: bytes) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows, the offset and the bytes of each block."""
    counts, places, sizes = array("q"), array("q"), array("q")
    at, ahead, base = begin, b"", begin
    while at < file.size:
        if at - base + LOOK > len(ahead):  # many heads of small blocks at once
            base, ahead = at, file.read(at, min(HEAD if len(sizes) and sizes[-1] < HEAD // 4 else LOOK, file.size - at))
        try:
            count, place = zigzag(ahead, at - base)
            size, place = zigzag(ahead, place)
        except IndexError:
            raise CorruptFile(f"{file.path} is truncated: it ends within a block, at byte {at}") from None
        place += base
        if count < 0 or size < 0 or place + size + MARK > file.size or count > 1 << 40:
            raise CorruptFile(f"{file.path}: the block at byte {at} claims {count} rows in {size} bytes")
        end = place + size
        last = ahead[end - base : end - base + MARK] if end - base + MARK <= len(ahead) else file.read(end, MARK)
        if last != mark:
            raise CorruptFile(f"{file.path} is damaged: no sync marker ends the block at byte {at}")
        if count or size:
            counts.append(count)
            places.append(place)
            sizes.append(size)
        at = end + MARK
    return np.array(counts, np.int64), np.array(places, np.int64), np.array(sizes, np.int64)


def check_file(path: PathLike, most: int, most_block: int) -> None:
    """Check what a file unpacks to, for a library that unpacks whole blocks.

    Args:
        path: The file.
        most: Largest number of unpacked bytes of the file.
        most_block: Largest number of unpacked bytes of a block.

    Raises:
        CorruptFile: It unpacks to more, or a block states more rows than it has bytes.
        BadSchema: Arrays hold values of no bytes, of which a few bytes state any number.
    """
    file = File(path)
    header, mark, begin = _head(file)
    with decoding(file.path):
        least_bytes(parse_json(header.get("avro.schema", b""), f"{file.path}: its schema"))
    codec, room = header.get("avro.codec", b"null").decode("utf-8", "replace"), most - file.size
    for count, place, size in zip(*(column.tolist() for column in _blocks(file, begin, mark)), strict=True):
        unpacked = size
        if codec != "null":
            with decoding(file.path), open_decompressed(file, place, size, codec, most_block) as stream:
                unpacked = sum(map(len, iter(lambda: stream.read(HEAD), b"")))
        room -= unpacked if codec != "null" else 0
        if count > unpacked or unpacked > most_block or room < 0:
            where = (
                f"{file.path}: a block of {count} rows must have so many bytes, at most {most_block} of {most} bytes"
            )
            raise CorruptFile(f"{where} in all, got {unpacked}")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = zigzag(data, at)
    if size < 0 or at + size > len(data):
        raise IndexError(at)
    return data[at : at + size], at + size


FORMAT = Format(MAGIC, SUFFIXES, AvroTable, frozenset({"spill"}), local=True)
