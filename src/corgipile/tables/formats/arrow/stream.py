"""Arrow IPC streams, the format of Hugging Face datasets: batches are located by walking over all messages."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.format import Format
from corgipile.tables.formats.arrow.dictionaries import stated_size
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.formats.arrow.flatbuffers import CONTINUATION, DICTIONARY, RECORD_BATCH, SCHEMA, FlatBuffer
from corgipile.tables.formats.arrow.footer import BLOCK, Footer
from corgipile.tables.io.files import File, decoding

MAGIC = b"\xff\xff\xff\xff"  # before each message; Arrow before 0.15 did not write it
SUFFIXES = (".arrows",)
COPIES = 3  # of a dictionary's values while rows of it are decoded
FIRST_READ = 1 << 10  # bytes read to get a message's metadata


class UnterminatedStream(CorruptFile):
    """The stream ends without an end mark."""


class ArrowStream(ArrowFile):
    """Reads an Arrow IPC stream in place, plain or with compressed record batches.

    A stream has no footer, so opening it reads the head of each record batch, but no rows.

    Args:
        path: The file.

    Raises:
        UnknownFormat: It has dictionary columns, whose values may be anywhere in the stream.

    Example:
        >>> import tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"label": [0, 1, 1]})
        ...     with pa.ipc.new_stream(f"{folder}/a.arrow", rows.schema) as writer:
        ...         writer.write_table(rows)
        ...     ArrowStream(f"{folder}/a.arrow").read(1, 3).to_pydict()
        {'label': [1, 1]}
    """

    def _find_batches(self) -> tuple[Footer, pa.Schema]:
        footer = walk(self._file.scanned())
        with decoding(self._file.path):
            return footer, pa.ipc.open_stream(self._file.source()).schema

    def _load(self, i: int, names: list[str]) -> pa.RecordBatch:
        offset, metadata, _, body = self._blocks[i].tolist()
        message = pa.ipc.read_message(pa.py_buffer(self._file.read(offset, metadata + body)))
        return pa.ipc.read_record_batch(message, self._stored).select(names)


def walk(file: File) -> Footer:
    """Return the positions of a stream's record batches.

    Raises:
        UnknownFormat: It is no stream, or has dictionary columns.
        CorruptFile: It is truncated, or lacks a message where it must have one.
    """
    blocks, counts, native, end = [], [], True, 0
    for at, message in _messages(file):
        end = at + message.metadata + message.body
        if message.kind == DICTIONARY:
            raise UnknownFormat(
                f"{file.path} is an Arrow IPC stream with dictionary columns, whose rows cannot be read in place; "
                "convert it to an Arrow IPC file with `corgipile convert`"
            )
        if message.kind == SCHEMA:
            native = message.number == 0
        else:
            blocks.append((at, message.metadata, 0, message.body))
            counts.append(message.number)
    return Footer(np.array(blocks, BLOCK), native, end, np.array(counts, np.int64))


def decoding_bytes(file: File) -> int:
    """Return the bytes that a sequential read takes: of the largest message, or the copies of a dictionary."""
    most = 0
    with suppress(UnterminatedStream):
        for at, message in _messages(file):
            if message.kind != SCHEMA:
                times = COPIES if message.kind == DICTIONARY else 1
                most = max(most, times * stated_size(file, at, message.metadata, message.body, message.kind)[0])
    return most


def _messages(file: File) -> Iterator[tuple[int, "_Message"]]:
    """Yield the messages of a stream and their positions; see `walk` for the errors."""
    head = file.read(0, min(16, file.size))
    prefix, at = 4 if is_early(head) else 8, 0
    if prefix == 8 and head[:4] != MAGIC:
        raise UnknownFormat(f"{file.path} is not an Arrow IPC stream: it does not begin with {MAGIC!r}")
    while True:
        try:
            message = _read_head(file, at, prefix)
        except CorruptFile as error:
            raise type(error)(f"{file.path}, message at byte {at}: {error}") from None
        if message is None:
            return
        yield at, message
        at += message.metadata + message.body


def is_early(head: bytes) -> bool:
    r"""Return whether a stream has the format before Arrow 0.15, which begins with the length of the schema.

    Example:
        >>> is_early(b"\xac\x00\x00\x00\x10\x00\x00\x00\x00\x00\n\x00\x0e\x00\x06\x00"), is_early(bytes(16))
        (True, False)
    """
    length, root = struct.unpack("<II", head[:8].ljust(8, b"\0"))
    table = head[8:12] == b"\0\0\n\0" or head[8:10] == b"\x0c\0"
    return bool(0 < length < 1 << 24 and length % 8 == 4 and root == 16 and table)


def _hides_message(metadata: bytes) -> bool:
    """Return whether another message begins within the stated metadata of a message."""
    at = metadata.find(MAGIC)
    while at >= 0:
        if at % 8 == 0 and struct.unpack("<i", metadata[at + 4 : at + 8].ljust(4, b"\0"))[0] > 0:
            return True
        at = metadata.find(MAGIC, at + 1)
    return False


class _Message(NamedTuple):
    """The head of a message: type, bytes of metadata with prefix, bytes of body, number.

    The number is the rows of a record batch, or the endianness of a schema.
    """

    kind: int
    metadata: int
    body: int
    number: int


def _read_head(file: File, at: int, prefix: int) -> _Message | None:
    """Read the head of a message; None at the end of the stream."""
    left = file.size - at
    head = file.read(at, min(FIRST_READ, left))
    if not left:
        raise UnterminatedStream(
            "the stream ends without an end mark: it is truncated or still being written; save its complete rows "
            "with `corgipile convert`"
        )
    mark, length = struct.unpack_from("<Ii", head.ljust(8, b"\0")) if left >= prefix else (1, 0)
    length = mark if prefix == 4 else length
    if (prefix == 8 and mark != CONTINUATION) or left < prefix:
        raise CorruptFile(f"a message cannot begin with {head[:8]!r}")
    if length == 0:
        if left > prefix:
            raise CorruptFile(f"{left - prefix} bytes follow the end of the stream")
        return None
    if not 0 < length <= left - prefix:
        raise CorruptFile(f"the stream is truncated: {length} bytes of metadata are stated, {left - prefix} are left")
    if len(head) < prefix + length:
        head = file.read(at, prefix + length)
    if prefix == 8 and _hides_message(head[8 : 8 + length]):
        raise CorruptFile(f"another message begins within the stated {length} bytes of metadata")
    return _parse(head[prefix : prefix + length], at, left, prefix)


def _parse(metadata: bytes, at: int, left: int, prefix: int) -> _Message:
    message = FlatBuffer(metadata)
    kind, header, body = message.scalar(1, "<B"), message.table(2), message.scalar(3, "<q")
    left -= prefix + len(metadata)
    if not 0 <= body <= left:
        raise CorruptFile(f"the stream is truncated: a body of {body} bytes is stated, {left} are left")
    if header is None or kind not in (SCHEMA, DICTIONARY, RECORD_BATCH) or (kind == SCHEMA) != (at == 0):
        raise CorruptFile(f"a message of type {kind} is not allowed here")
    number = header.scalar(0, "<h" if kind == SCHEMA else "<q")
    if number < 0:
        raise CorruptFile(f"the number of rows must be at least 0, got {number}")
    if kind == RECORD_BATCH and header.vector(1, 16)[:8] != struct.pack("<q", number):
        raise CorruptFile(f"{number} rows are stated, but the first column has another number")
    return _Message(kind, prefix + len(metadata), body, number)


FORMAT = Format(
    MAGIC,
    SUFFIXES,
    ArrowStream,
    frozenset({"spill"}),
    knows=is_early,
)
