"""Avro container files: rows in blocks, each between two marks."""

import bz2
import io
import json
import lzma
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue, CorruptFile, UnknownFormat
from corgipile.tables.avro_types import column_type
from corgipile.tables.io.files import File, PathLike, decoding
from corgipile.tables.io.pieces import check_names, pick
from corgipile.tables.io.spill import Spill, spill_folder
from corgipile.tables.library import UnitTable, needs
from corgipile.tables.table import IntArray

__all__ = ["MAGIC", "SUFFIXES", "AvroTable"]

MAGIC, SUFFIXES = b"Obj\x01", (".avro",)
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
MARK = 16  # bytes between blocks
HEAD, MOST_HEAD = 1 << 16, 1 << 26
LOOK = 20  # bytes that tell the rows and bytes of a block
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
            raise UnknownFormat(f"{self._file.path} is no Avro file: it does not begin with {MAGIC!r}")
        try:
            import fastavro  # noqa: F401, PLC0415 - only for this format
        except ImportError:
            raise needs("fastavro", "avro", "Avro") from None
        said, self._mark, begin = _head(self._file)
        self._codec = said.get("avro.codec", b"null").decode("utf-8", "replace")
        if self._codec not in CODECS:
            raise UnknownFormat(f"{self._file.path} is compressed by {self._codec!r}; {', '.join(CODECS)} can be read")
        written = said.get("avro.schema", b"")
        schema = _schema(written, self._file.path)
        self._written = json.dumps(_without_logic(json.loads(written))).encode()
        counts, self._places, self._sizes = _blocks(self._file, begin, self._mark)
        file = self._file
        super().__init__(file.path, file.identity, schema, counts, spill_folder(spill), file.place)

    def __reduce__(self) -> tuple[type["AvroTable"], tuple[str, Spill]]:
        return AvroTable, (self.path, self._spill)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the file."""
        return self._file.size

    def _together(self, columns: Any) -> list[list[str]]:
        return [list(dict.fromkeys(columns))]

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        with decoding(self.path):
            rows = self._records(i)
        return self._columns(rows, int(self._starts[i]), names)

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for i in range(len(self._sizes)):
            batch = self._decode(i, names)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    def _records(self, i: int) -> list[dict[str, Any]]:
        """Decode a block, as a file of one block that is not compressed."""
        import fastavro.schema  # noqa: PLC0415 - as above

        data = _unpacked(self._file.read(int(self._places[i]), int(self._sizes[i])), self._codec)
        count = int(self._starts[i + 1] - self._starts[i])
        whole = b"".join((_plain_head(self._written), bytes(MARK), _long(count), _long(len(data)), data, bytes(MARK)))
        try:
            found: list[dict[str, Any]] = list(fastavro.reader(io.BytesIO(whole)))  # type: ignore[arg-type]
        except (
            EOFError, StopIteration, AttributeError, RecursionError, ArithmeticError, AssertionError,
            fastavro.schema.SchemaParseException,
        ) as error:  # fmt: skip
            raise ValueError(str(error) or type(error).__name__) from None
        if len(found) != count:
            raise CorruptFile(f"{self.path}: a block decodes to {len(found)} rows; {count} are stated")
        return found

    def _columns(self, rows: list[dict[str, Any]], first: int, names: list[str]) -> pa.RecordBatch:
        arrays = []
        for field in pick(self.schema, names):
            try:
                arrays.append(pa.array([row[field.name] for row in rows], field.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError) as error:
                reason = str(error).splitlines()[0][:200]
                where = f"{self.path}, rows {first} to {first + len(rows)}"
                raise BadValue(f"{where}: column {field.name!r} is no {field.type}: {reason}") from None
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))


def _schema(written: bytes, path: str) -> pa.Schema:
    with decoding(path):
        said = json.loads(written)
    if not isinstance(said, dict) or said.get("type") != "record":
        raise BadSchema(f"{path}: its values are {said!r:.80}; records, whose fields are columns, are right")
    known: dict[str, Any] = {}
    with decoding(path):
        fields = [(field["name"], field["type"]) for field in said["fields"]]
        space = said.get("namespace")
    schema = pa.schema([(name, column_type(kind, f"{path}: column {name!r}", known, space)) for name, kind in fields])
    check_names(schema, path)
    return schema


def _without_logic(said: Any) -> Any:
    """Return a schema by which dates and times are the numbers they are stored as, which Arrow takes by the type."""
    if isinstance(said, list):
        return [_without_logic(one) for one in said]
    if not isinstance(said, dict):
        return said
    kept = {key: one for key, one in said.items() if key != "logicalType" or one == "decimal"}
    inner = ("type", "items", "values", "fields")
    return {key: _without_logic(one) if key in inner else one for key, one in kept.items()}


def _head(file: File) -> tuple[dict[str, bytes], bytes, int]:
    """Return what the file says of itself, its mark, and where its first block begins."""
    size = HEAD
    while True:
        data = file.read(0, min(size, file.size))
        try:
            return _parsed_head(data)
        except IndexError:
            if size >= min(file.size, MOST_HEAD):
                raise CorruptFile(f"{file.path}: ends within its header") from None
            size *= 4


def _parsed_head(data: bytes) -> tuple[dict[str, bytes], bytes, int]:
    said, at = {}, len(MAGIC)
    while True:
        count, at = _read_long(data, at)
        if count == 0:
            break
        if count < 0:
            _, at = _read_long(data, at)
        for _ in range(abs(count)):
            key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            said[key.decode("utf-8", "replace")] = value
    if at + MARK > len(data):
        raise IndexError(at)
    return said, data[at : at + MARK], at + MARK


def _blocks(file: File, begin: int, mark: bytes) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows of each block, where its data lie, and their bytes."""
    counts, places, sizes = array("q"), array("q"), array("q")
    at, ahead, base = begin, b"", begin
    while at < file.size:
        if at - base + LOOK > len(ahead):  # small blocks: many of their heads at once
            base, ahead = at, file.read(at, min(HEAD if len(sizes) and sizes[-1] < HEAD // 4 else LOOK, file.size - at))
        try:
            count, place = _read_long(ahead, at - base)
            size, place = _read_long(ahead, place)
        except IndexError:
            raise CorruptFile(f"{file.path}: ends within a block, at byte {at}") from None
        place += base
        if count < 0 or size < 0 or place + size + MARK > file.size or count > 1 << 40:
            raise CorruptFile(f"{file.path}: the block at byte {at} claims {count} rows in {size} bytes")
        end = place + size
        last = ahead[end - base : end - base + MARK] if end - base + MARK <= len(ahead) else file.read(end, MARK)
        if last != mark:
            raise CorruptFile(f"{file.path}: no mark ends the block at byte {at}; the file is damaged")
        if count:
            counts.append(count)
            places.append(place)
            sizes.append(size)
        at = end + MARK
    return np.array(counts, np.int64), np.array(places, np.int64), np.array(sizes, np.int64)


def _unpacked(data: bytes, codec: str) -> bytes:
    try:
        if codec == "deflate":
            return zlib.decompress(data, -15)
        if codec == "bzip2":
            return bz2.decompress(data)
        if codec == "xz":
            return lzma.decompress(data)
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise ValueError(str(error)) from None
    if codec == "zstandard":
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    if codec == "snappy":
        size, _ = _varint(data, 0)
        raw = bytes(pa.Codec("snappy").decompress(data[:-4], min(size, 1 << 30), asbytes=True))
        if zlib.crc32(raw) != int.from_bytes(data[-4:], "big"):
            raise ValueError("the checksum of a block is wrong")
        return raw
    return data


def _plain_head(written: bytes) -> bytes:
    entries = (b"avro.schema", written), (b"avro.codec", b"null")
    said = b"".join(_long(len(part)) + part for entry in entries for part in entry)
    return MAGIC + _long(2) + said + _long(0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise IndexError(at)


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if size < 0 or at + size > len(data):
        raise IndexError(at)
    return data[at : at + size], at + size


def _long(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
