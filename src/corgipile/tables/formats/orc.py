"""ORC files: small stripes are decoded whole, large ones unpacked in batches to a spill file."""

import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import orc

from corgipile.errors import BadSchema, CorruptFile, UnknownFormat
from corgipile.lazy import lazy
from corgipile.nesting import check_depth
from corgipile.tables.encoded import Units
from corgipile.tables.format import Format
from corgipile.tables.io.files import File, PathLike, decoding
from corgipile.tables.io.pieces import check_names, pick
from corgipile.tables.io.spill import Spill, spill_folder
from corgipile.tables.io.unpacking import snappy
from corgipile.tables.library import UnitTable
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "MAGIC", "SUFFIXES", "OrcTable"]

ds = lazy("pyarrow.dataset")
MAGIC, SUFFIXES = b"ORC", (".orc",)
CODECS = {0: "none", 1: "zlib", 2: "snappy", 4: "lz4_raw", 5: "zstd"}
TAIL = 1 << 14
ZONE = re.compile(rb"(\w[\w+:-]*(/\w[\w+:-]*)*)?")
Fields = dict[int, list[int | bytes]]  # the fields of a protobuf message
MAX_CHUNK, MAX_FOOTER = 1 << 24, 1 << 24  # unpacked bytes
TEXT_SUMS = (4, 3), (8, 1)  # statistics of text and of bytes, and the sum of lengths in each
TYPE_BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 5: 4, 7: 4, 8: 4, 10: 4, 11: 4, 12: 0, 14: 16, 15: 4, 16: 4, 17: 4}  # of a value
FEW_ROWS, MAX_RATIO, COPIES = 2048, 32, 3  # decoded bytes of a stored byte; memory of a row per decoded byte
ADVICE = "a stripe is decoded whole before a row is read; `corgipile convert` writes a file that is read in place"


class OrcTable(UnitTable):
    """Reads an ORC file; its natural unit is the stripe.

    Args:
        path: The file.
        spill: Folder for spill files, ``"off"`` for none: stripes are then decoded whole in memory.

    Example:
        >>> import tempfile
        >>> from pyarrow import orc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     orc.write_table(pa.table({"label": [0, 1, 1]}), f"{folder}/a.orc")
        ...     OrcTable(f"{folder}/a.orc").take([2, 0]).to_pydict()
        {'label': [1, 0]}
    """

    advice = ADVICE

    def __init__(self, path: PathLike, spill: Spill = None) -> None:
        self._file, self._spill = File(path), spill
        if self._file.read(0, min(3, self._file.size)) != MAGIC:
            raise UnknownFormat(f"{self._file.path} is not an ORC file: it does not begin with {MAGIC!r}")
        self._local = threading.local()
        counts, self._bytes, self._sizes = _stripes(self._file)
        with decoding(self._file.path):
            reader = self._reader()
            schema: pa.Schema = reader.schema
            check_names(schema, self._file.path)
            if (reader.nstripes, reader.nrows) != (len(counts), counts.sum()):
                raise CorruptFile(f"{self._file.path} states {reader.nrows} rows, but its stripes have {counts.sum()}")
        file = self._file
        super().__init__(file.path, file.identity, schema, counts, spill_folder(spill), file.place)

    def __reduce__(self) -> tuple[type["OrcTable"], tuple[str, Spill]]:
        return OrcTable, (self.path, self._spill)

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return self._bytes

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the stripes as units; few rows that unpack to much may all lie in one of them."""
        found = super().units(columns)
        if found is None or len(self) > FEW_ROWS or found.total < MAX_RATIO * self._bytes:
            return found
        return found._replace(dictionary=COPIES * found.total)

    def _estimate_width(self, name: str) -> float:
        if len(self._sizes) != len(self.schema) or fixed_row_bytes(pa.schema([self.schema.field(name)])):
            return super()._estimate_width(name)
        return float(self._sizes[self.schema.names.index(name)] / max(1, len(self)))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        with decoding(self.path):
            batch = self._reader().read_stripe(i, columns=names)
            batch.validate(full=True)
            rows = int(self._starts[i + 1] - self._starts[i])
            return self._whole(pa.Table.from_batches([batch]).select(names), rows, names)

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with decoding(self.path):
            dataset = ds.dataset(self.path, schema=self.schema, format="orc")
            scanner = dataset.scanner(
                columns=names, batch_size=rows, use_threads=False, batch_readahead=1, fragment_readahead=1
            )
            for batch in scanner.to_batches():
                batch.validate(full=True)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=pick(self.schema, names))

    def _reader(self) -> Any:
        """Return the reader of this thread."""
        if not hasattr(self._local, "reader"):
            self._local.reader = orc.ORCFile(self._file.source())
        return self._local.reader


def _stripes(file: File) -> tuple[IntArray, int, list[int]]:
    """Return the rows of each stripe, which pyarrow does not expose, the bytes of all, and the sizes of columns."""
    tail = file.read(max(0, file.size - TAIL), min(TAIL, file.size))
    size = tail[-1] if len(tail) > 4 else 0
    script = _fields(tail[-1 - size : -1], file)
    length, codec = _number(script, 1), CODECS.get(_number(script, 2))
    if codec is None:
        raise UnknownFormat(f"{file.path} is compressed by LZO or an unknown codec, which cannot be read")
    begin = file.size - 1 - size - length
    if begin < 0:
        raise CorruptFile(f"{file.path} is damaged or truncated: its footer claims {length} bytes")
    data = file.read(begin, length)
    with decoding(file.path):
        footer = _fields(data if codec == "none" else _unpacked(data, codec, _number(script, 3)), file)
    with decoding(file.path):
        _check_types(footer.get(4, []), file)
        sizes = _column_sizes(footer.get(4, []), footer.get(7, []), file)
    stripes = [_fields(stripe, file) for stripe in footer.get(3, []) if isinstance(stripe, bytes)]
    counts = np.array([_number(stripe, 5) for stripe in stripes], np.int64)
    if (counts < 0).any() or (counts > 1 << 40).any():
        raise CorruptFile(f"{file.path} is damaged: a stripe claims {counts.max()} rows")
    _check_zones(file, stripes, codec, _number(script, 3))
    return counts, sum(_number(stripe, 3) for stripe in stripes), sizes


def _check_zones(file: File, stripes: list[Fields], codec: str, block: int) -> None:
    """Check the time zones of stripes, since the library opens a file of that name."""
    begins = [sum(_number(stripe, part) for part in (1, 2, 3)) for stripe in stripes]
    sizes = [_number(stripe, 4) for stripe in stripes]
    if any(begin + size > file.size for begin, size in zip(begins, sizes, strict=True)):
        raise CorruptFile(f"{file.path} is damaged or truncated: a stripe lies beyond its end")
    for data in file.gather_bytes(np.array(begins, np.int64), np.array(sizes, np.int64)):
        with decoding(file.path):
            footer = _fields(data if codec == "none" else _unpacked(data, codec, block), file)
        for zone in footer.get(3, []):
            if not isinstance(zone, bytes) or not ZONE.fullmatch(zone):
                raise CorruptFile(f"{file.path}: the time zone of a stripe must be a name, got {zone!r:.99}")


def _check_types(types: list[int | bytes], file: File) -> None:
    """Raise BadSchema if types nest too deep for the recursive library; inner types follow outer ones."""
    depths = [0] * len(types)
    for at, message in enumerate(types):
        check_depth(depths[at] - 1, f"{file.path}: a column", BadSchema)
        for number in _inner_types(message, file):
            if at < number < len(types):
                depths[number] = depths[at] + 1


def _inner_types(message: int | bytes, file: File) -> list[int]:
    """Return the numbers of the types directly within a type."""
    numbers = list[int]()
    for inner in _fields(message, file).get(2, []) if isinstance(message, bytes) else []:
        packed, place = (inner, 0) if isinstance(inner, bytes) else (b"", 0)
        numbers += [] if isinstance(inner, bytes) else [inner]
        while place < len(packed):
            number, place = _varint(packed, place)
            numbers.append(number)
    return numbers


def _column_sizes(types: list[int | bytes], statistics: list[int | bytes], file: File) -> list[int]:
    """Return the decoded bytes of each column, inner types included; nothing if the file has no statistics."""
    if not types or len(statistics) != len(types):
        return []
    sizes = list[int]()
    for kind, counts in zip(types, statistics, strict=True):
        found = _fields(counts, file) if isinstance(counts, bytes) else {}
        sizes.append(
            _number(found, 1) * TYPE_BYTES.get(_number(_fields(kind, file), 1) if isinstance(kind, bytes) else 0, 8)
        )
        for field, total in TEXT_SUMS:
            for text in found.get(field, []):
                sizes[-1] += _number(_fields(text, file), total) >> 1 if isinstance(text, bytes) else 0  # zigzag
    columns = _inner_types(types[0], file)
    return [sum(sizes[first:after]) for first, after in pairwise([*columns, len(types)])]


def _unpacked(data: bytes, codec: str, block: int) -> bytes:
    """Decompress a footer: chunks, each after its length and a flag for uncompressed data."""
    parts, at = list[bytes](), 0
    block = min(block, MAX_CHUNK)
    while at + 3 <= len(data):
        if sum(map(len, parts)) > MAX_FOOTER:
            raise ValueError(f"its footer must unpack to at most {MAX_FOOTER} bytes")
        head = int.from_bytes(data[at : at + 3], "little")
        chunk = data[at + 3 : at + 3 + (head >> 1)]
        at += 3 + (head >> 1)
        if head & 1:
            parts.append(chunk)
        elif codec == "zlib":
            try:
                parts.append(zlib.decompressobj(-15).decompress(chunk, block))
            except zlib.error as error:
                raise ValueError(str(error)) from None
        else:
            parts.append(_decompressed(chunk, codec, block))
    return b"".join(parts)


def _decompressed(chunk: bytes, codec: str, block: int) -> bytes:
    if codec == "zstd":
        return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), codec).read(block + 1))
    return snappy(chunk) if codec == "snappy" else bytes(pa.Codec(codec).decompress(chunk, block, asbytes=True))


def _fields(data: bytes, file: File) -> Fields:
    """Read the fields of a protobuf message."""
    fields: Fields = {}
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at, 32)
            kind, value = tag & 7, 0
            if kind == 0:
                value, at = _varint(data, at)
                fields.setdefault(tag >> 3, []).append(value)
            elif kind == 2:
                size, at = _varint(data, at)
                fields.setdefault(tag >> 3, []).append(data[at : at + size])
                at += size
            else:
                at += {1: 8, 5: 4}[kind]
    except (IndexError, KeyError):
        raise CorruptFile(f"{file.path} is damaged: its footer cannot be read") from None
    return fields


def _varint(data: bytes, at: int, bits: int = 64) -> tuple[int, int]:
    """Return a number and the offset after it; more bits raise IndexError, since the library would drop them."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if value >> bits:
            raise IndexError(at)
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError(at)


def _number(fields: Fields, name: int) -> int:
    return next((value for value in reversed(fields.get(name, [])) if isinstance(value, int)), 0)


FORMAT = Format(MAGIC, SUFFIXES, OrcTable, frozenset({"spill"}), local=True)
