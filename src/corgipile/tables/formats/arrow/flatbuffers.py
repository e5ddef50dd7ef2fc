"""A checked reader of FlatBuffers and of the Arrow messages encoded in them."""

import functools
import struct
from typing import NamedTuple

import numpy as np

from corgipile.errors import CorruptFile
from corgipile.tables.layout import IntArray

FREE_ROWS, FREE_ITEMS = 1 << 20, 1 << 8  # rows, and items per row, that may take no bytes (nulls)
MAX_COMPRESSION_RATIO = 1 << 16  # bytes that a stored byte may decompress to
SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3
CONTINUATION = 0xFFFFFFFF
CODECS = {0: "lz4", 1: "zstd"}


class FlatBuffer:
    """A view of a FlatBuffers table; every access is bounds-checked.

    Args:
        data: All bytes of the FlatBuffer.
        at: Start of the table; None for the root table.
    """

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self.data = data
        self.at = self._get("<I", 0) if at is None else at
        self._vtable = self.at - self._get("<i", self.at)
        self._slots = (self._get("<H", self._vtable) - 4) // 2

    def _get(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self.data):
            raise CorruptFile(f"metadata of {len(self.data)} bytes points to byte {at}")
        value: int = struct.unpack_from(form, self.data, at)[0]
        return value

    def _field(self, slot: int) -> int:
        offset = self._get("<H", self._vtable + 4 + 2 * slot) if slot < self._slots else 0
        return self.at + offset if offset else 0

    def scalar(self, slot: int, form: str, default: int = 0) -> int:
        """Return the number in a slot."""
        at = self._field(slot)
        return self._get(form, at) if at else default

    def table(self, slot: int) -> "FlatBuffer | None":
        """Return the table in a slot, None if it is absent."""
        at = self._field(slot)
        return FlatBuffer(self.data, at + self._get("<I", at)) if at else None

    def vector(self, slot: int, item: int) -> memoryview:
        """Return the bytes of a vector of structs of ``item`` bytes."""
        at = self._field(slot)
        if not at:
            return memoryview(b"")
        start = at + self._get("<I", at)
        count = self._get("<I", start)
        if start + 4 + count * item > len(self.data):
            raise CorruptFile(f"a list of {count} entries in metadata ends beyond its {len(self.data)} bytes")
        return memoryview(self.data)[start + 4 : start + 4 + count * item]


class Batch(NamedTuple):
    """The metadata of a record batch.

    Attributes:
        rows: Rows of the batch.
        nodes: int64[fields, 2], rows and nulls of each field, in pre-order.
        buffers: int64[buffers, 2], offset in the body and length of each buffer.
        codec: Codec of the buffers, ``"lz4"`` or ``"zstd"``; None if they are not compressed.
        views: Data buffers of each view array, beyond its first two buffers.
    """

    rows: int
    nodes: IntArray
    buffers: IntArray
    codec: str | None
    views: tuple[int, ...] = ()

    @property
    def compressed(self) -> bool:
        """Return whether the buffers are compressed."""
        return self.codec is not None


@functools.lru_cache(maxsize=64)
def read_batch(data: bytes, body: int, kind: int = RECORD_BATCH) -> Batch:
    """Read the metadata of a record batch.

    Batches of one writer with equal row counts mostly have equal metadata, so results are cached by content.

    Args:
        data: The metadata with its length prefix, as stored.
        body: Bytes of the body, which must contain all buffers.
        kind: Type of the message; the values of a dictionary are a record batch too.
    """
    prefix = 8 if len(data) >= 8 and struct.unpack_from("<I", data)[0] == CONTINUATION else 4
    message = FlatBuffer(data[prefix:])
    header = message.table(2)
    if header is None or message.scalar(1, "<B") != kind:
        raise CorruptFile(f"a message must have type {kind} here, got type {message.scalar(1, '<B')}")
    if kind == DICTIONARY and (header := header.table(1)) is None:
        raise CorruptFile("a dictionary has no values")
    rows = header.scalar(0, "<q")
    nodes, buffers = (np.frombuffer(header.vector(slot, 16), "<i8").reshape(-1, 2) for slot in (1, 2))
    if rows < 0 or (nodes < 0).any() or (nodes[:, 1] > nodes[:, 0]).any():
        raise CorruptFile("a record batch has an impossible number of rows or nulls")
    if len(nodes) and nodes[0, 0] != rows:
        raise CorruptFile(f"a record batch of {rows} rows has a column of {nodes[0, 0]}")
    if (buffers < 0).any() or (buffers[:, 1] > body - buffers[:, 0]).any():
        raise CorruptFile(f"a buffer lies outside its record batch of {body} bytes")
    body_compression = header.table(3)
    codec = None if body_compression is None else body_compression.scalar(0, "<b")
    if codec is not None and codec not in CODECS:
        raise CorruptFile(f"a record batch must be compressed by LZ4 or ZSTD, got codec {codec}")
    most = max(FREE_ROWS, FREE_ITEMS * rows, 8 * body * (1 if codec is None else MAX_COMPRESSION_RATIO))
    if (length := int(nodes[:, 0].max(initial=0))) > most:
        raise CorruptFile(f"a record batch of {body} bytes must have at most {most} items, got {length}")
    views = tuple(count for (count,) in struct.iter_unpack("<q", header.vector(4, 8)))
    if any(not 0 <= count <= len(buffers) for count in views):
        raise CorruptFile(f"a record batch of {len(buffers)} buffers states {max(views, key=abs)} for one column")
    return Batch(rows, nodes, buffers, None if codec is None else CODECS[codec], views)
