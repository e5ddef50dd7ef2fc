"""Reads and checks the footer of an Arrow IPC file, which locates its record batches."""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.formats.arrow.flatbuffers import CONTINUATION, DICTIONARY, RECORD_BATCH, FlatBuffer
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile

MAGIC = b"ARROW1"
TAIL, MAX_EAGER_FOOTER = 10, 1 << 26  # bytes after a footer (length and mark); bytes of a footer read at once
MIN_MESSAGE, FIRST_READ = 32, 1 << 10  # bytes of a message; bytes read of one
BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("pad", "<i4"), ("body", "<i8")])


class Footer(NamedTuple):
    """The positions of record batches.

    Attributes:
        blocks: Structured array: offset, bytes of metadata, bytes of body.
        native: Whether numbers have this machine's byte order, little-endian.
        end: Start of the footer.
        rows: int64[batches], rows of each, if known.
        like: int64[batches], for each batch one with equal metadata, if known.
        dictionaries: Positions of the dictionaries, as in ``blocks``.
    """

    blocks: npt.NDArray[np.void]
    native: bool
    end: int
    rows: npt.NDArray[np.int64] | None = None
    like: npt.NDArray[np.int64] | None = None
    dictionaries: npt.NDArray[np.void] = np.zeros(0, BLOCK)


def read_footer(file: File) -> Footer:
    """Read the footer and check every position in it.

    Raises:
        UnknownFormat: The file is not an Arrow IPC file, or is a stream.
        CorruptFile: It is truncated, or a position lies outside of it.
    """
    head = file.read(0, min(8, file.size))
    if head[:6] != MAGIC:
        begins = f"begins with {head[:6]!r}" if head else "is empty"
        raise UnknownFormat(f"{file.path} must begin with {MAGIC!r} to be an Arrow IPC file, but it {begins}")
    tail = file.read(max(file.size - 10, 0), min(10, file.size))
    if len(tail) < 10 or tail[4:] != MAGIC:
        raise CorruptFile(f"{file.path} is truncated: an Arrow IPC file must end with {MAGIC!r}, got {tail[-6:]!r}")
    (length,) = struct.unpack("<i", tail[:4])
    if not 8 <= length <= file.size - 18:
        raise CorruptFile(f"{file.path}: the footer states {length} bytes, the file has {file.size}")
    end = file.size - 10 - length
    try:
        blocks, dictionaries, native = _parse(file.read(end, length), end)
        _check_whole(file, np.concatenate([blocks, dictionaries]), end)
    except CorruptFile as error:
        raise CorruptFile(f"{file.path}: {error}") from None
    return Footer(blocks, native, end, dictionaries=dictionaries)


def _parse(data: bytes, end: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void], bool]:
    root = FlatBuffer(data)
    schema = root.table(1)
    if schema is None:
        raise CorruptFile("the footer has no schema")
    blocks, dictionaries = (np.frombuffer(root.vector(slot, BLOCK.itemsize), BLOCK).copy() for slot in (3, 2))
    _check_inside(blocks, end)
    _check_inside(dictionaries, end)
    return blocks, dictionaries, schema.scalar(0, "<h") == 0


def _check_inside(blocks: npt.NDArray[np.void], end: int) -> None:
    offset, metadata, body = (blocks[name].astype(np.int64) for name in ("offset", "metadata", "body"))
    # Each term is first compared with the file's end, so that the sum cannot overflow.
    inside = (offset >= 8) & (offset <= end) & (metadata >= 8) & (body >= 0) & (body <= end)
    inside &= offset + metadata + np.where(inside, body, 0) <= end
    if not inside.all():
        bad = int(np.argmin(inside))
        raise CorruptFile(f"record batch {bad} has bytes outside the file: {blocks[bad]} of {end}")


def _check_whole(file: File, blocks: npt.NDArray[np.void], end: int) -> None:
    """Raise CorruptFile if messages overlap, or the footer, which has no checksum, misses a record batch."""
    blocks = blocks[np.argsort(blocks["offset"], kind="stable")]
    starts = np.append(blocks["offset"], end)
    ends = np.append(schema_end(file), blocks["offset"] + blocks["metadata"] + blocks["body"])
    if (ends > starts).any():
        at = int(starts[np.argmax(ends > starts)])
        raise CorruptFile(f"the footer names two messages that overlap at byte {at}")
    for gap in np.flatnonzero(starts - ends >= MIN_MESSAGE).tolist():
        at = -(-int(ends[gap]) // 8) * 8
        head = file.read(at, min(FIRST_READ, int(starts[gap]) - at))
        if is_message(head):
            raise CorruptFile(f"the footer misses the record batch at byte {at}")


def schema_end(file: File) -> int:
    """Return the end of the schema at the beginning of the file."""
    mark, length = struct.unpack("<Ii", file.read(8, 8))
    size = 8 + length if mark == CONTINUATION else 0
    if not 0 <= size <= file.size - 18:
        raise CorruptFile(f"the schema states {length} bytes, the file has {file.size}")
    return 8 + size


def is_message(head: bytes) -> bool:
    """Return whether bytes begin a record batch or dictionary message."""
    mark, length = struct.unpack_from("<Ii", head) if len(head) >= 8 else (0, 0)
    try:
        return (
            mark == CONTINUATION and length > 0 and FlatBuffer(head[8:]).scalar(1, "<B") in (DICTIONARY, RECORD_BATCH)
        )
    except CorruptFile:
        return False


def end_of(file: File) -> Any:
    """Return the end of a file, from which pyarrow reads the schema.

    From the whole file pyarrow would read in its own thread, which frees memory late and aborts an exiting process.
    """
    length = int.from_bytes(file.read(file.size - TAIL, 4), "little") if file.size > 2 * TAIL else 0
    if isinstance(file, RemoteFile) or not 0 < length < min(file.size - 2 * TAIL, MAX_EAGER_FOOTER):
        return file.source()
    return pa.BufferReader(
        file.read(file.size - 2 * TAIL - length, 2 * TAIL + length)
    )  # pyarrow expects a mark before the footer
