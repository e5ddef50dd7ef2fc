"""Decompression in steps, limited to a stated size."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, cast

import pyarrow as pa

from corgipile.errors import ParseError
from corgipile.tables.io.files import File, Region

__all__ = [
    "MAX_LINE_BYTES",
    "PACKED_TEXT",
    "TEXT",
    "Unpacking",
    "check_line",
    "inflate_reader",
    "open_decompressed",
    "snappy",
]

TEXT = (".csv", ".jsonl", ".ndjson", ".tsv")
PACKED_TEXT = tuple(text + packed for text in TEXT for packed in (".bz2", ".gz", ".xz", ".zst"))
MAX_LINE_BYTES = 8 << 20  # bytes of a line of text, which is one row
STEP = 1 << 16  # bytes unpacked at a time
MAX_SNAPPY_RATIO = 32  # an upper bound of Snappy's compression ratio


def check_line(size: int, where: str) -> None:
    """Raise ParseError if a partly read line is already too long."""
    if size >= MAX_LINE_BYTES:
        raise ParseError(f"{where} must have lines below {MAX_LINE_BYTES} bytes, got a longer one; put a row on each")


class Unpacking(io.RawIOBase):
    """A stream that is decompressed while it is read.

    ``more`` returns at most the given number of next bytes, none at the end. ``most``, the largest unpacked size, may
    change while the stream is read; ``done`` counts the bytes unpacked so far.

    Example:
        >>> Unpacking(io.BytesIO(b"abcdef").read, 3).read(6)
        Traceback (most recent call last):
        ...
        ValueError: a value must unpack to at most 3 bytes, got more
    """

    def __init__(self, more: Callable[[int], bytes], most: int) -> None:
        super().__init__()
        self._more, self.done, self.most = more, 0, most

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        """Return the bytes read into memory; raise ValueError if they exceed the limit or do not decompress."""
        try:
            data = self._more(min(len(into), self.most - self.done + 1))
        except (zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            raise ValueError(str(error)) from None
        self.done += len(data)
        if self.done > self.most:
            raise ValueError(f"a value must unpack to at most {self.most} bytes, got more")
        into[: len(data)] = data
        return len(data)


def open_decompressed(file: File, at: int, size: int, codec: str, most: int) -> io.BufferedReader:
    """Open a part of a file compressed by a codec of Avro or Zarr; its ``raw`` is an `Unpacking`."""
    source = Region(file, at, size)
    more: Callable[[int], bytes] = source.read
    if codec == "deflate":
        more = inflate_reader(source.read)
    elif codec == "zlib":
        more = inflate_reader(source.read, 15)
    elif codec == "gzip":
        more = gzip.GzipFile(fileobj=cast("IO[bytes]", source)).read
    elif codec == "bzip2":
        more = bz2.BZ2File(source).read
    elif codec == "xz":
        more = lzma.LZMAFile(cast("IO[bytes]", source)).read  # noqa: SIM115 - it closes with its source
    elif codec == "zstandard":
        more = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd").read
    elif codec == "snappy":
        data = source.read()
        raw = snappy(data[:-4])
        if zlib.crc32(raw) != int.from_bytes(data[-4:], "big"):
            raise ValueError("a block has a wrong checksum")
        more = io.BytesIO(raw).read
    return io.BufferedReader(Unpacking(more, most), STEP)


def inflate_reader(read: Callable[[int], bytes], wbits: int = -15) -> Callable[[int], bytes]:
    """Return a reader of a DEFLATE stream (raw by default) that unpacks at most a given number of bytes per call.

    Example:
        >>> packer = zlib.compressobj(wbits=-15)
        >>> packed = io.BytesIO(packer.compress(bytes(1000)) + packer.flush())
        >>> len(inflate_reader(packed.read)(300))
        300
    """
    unpacker = zlib.decompressobj(wbits)

    def more(most: int) -> bytes:
        while not unpacker.eof:
            data = unpacker.unconsumed_tail or read(STEP)
            raw = unpacker.decompress(data, most)
            if raw:
                return raw
            if not data:
                raise EOFError("the stream ends before its end mark")
        return b""

    return more


def snappy(data: bytes) -> bytes:
    """Decompress raw Snappy; raise ValueError if the unpacked size that it states is impossible."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > MAX_SNAPPY_RATIO * len(data):
        raise ValueError(f"{len(data)} bytes of Snappy state an impossible size, {size}")
    return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))
