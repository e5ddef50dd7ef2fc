"""Size checks of Zarr chunks before unpacking, since the library trusts the size that a chunk states."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.unpacking import STEP, open_decompressed

__all__ = ["chunk_check"]

STREAMS = {"zstd": "zstandard", "gzip": "gzip", "zlib": "zlib", "bz2": "bzip2", "lzma": "xz"}
STATED = {"blosc": slice(4, 8), "lz4": slice(0, 4)}  # bytes of the stated size, which decoders never exceed
SLACK = 1 << 16  # bytes that filters may add
MAX_TEXT = 32 << 20  # bytes of a chunk of values of varying length
OBJECTS = {"pickle", "json2", "msgpack2"}  # codecs that run code or state sizes of their own


def chunk_check(array: Any, folder: Path) -> Callable[[int, int], None]:
    """Return a function that checks the chunks of a run of rows, each chunk once."""
    shards, kind = getattr(array, "shards", None), np.dtype(array.dtype)
    [sharding] = array.metadata.codecs if shards else (None,)
    names, seen = _names(sharding or array.metadata), set[tuple[int, ...]]()
    codec = _codec(sharding or array.metadata, names, kind.itemsize, f"{folder}, array {array.name!r}")
    texts = any(name.startswith("vlen") for name in names)
    if codec is None and not texts:
        return lambda _start, _stop: None
    inner = math.prod(array.chunks)
    stored, max_bytes = shards or array.chunks, MAX_TEXT if texts else inner * kind.itemsize + SLACK
    others = [range(-(-size // chunk)) for size, chunk in zip(array.shape[1:], stored[1:], strict=True)]

    def check(start: int, stop: int) -> None:
        for place in itertools.product(range(start // stored[0], -(-stop // stored[0])), *others):
            path = folder / array.path / array.metadata.encode_chunk_key(place)
            if place not in seen and path.is_file():
                file = File(path)
                for at, size in _parts(file, sharding, math.prod(stored) // inner) if sharding else [(0, file.size)]:
                    first = _first_bytes(file, at, size, codec, max_bytes)
                    if texts and (count := int.from_bytes(first[:4], "little")) != inner:
                        raise CorruptFile(
                            f"{path} must state the {inner} values of a chunk, got {count}; it is damaged"
                        )
            seen.add(place)

    return check


def _parts(file: File, sharding: Any, count: int) -> list[tuple[int, int]]:
    """Return the offsets and sizes of the chunks of a shard that are stored."""
    if len(sharding.index_codecs) > 2:
        raise UnknownFormat(f"{file.path} must have an index of bytes and a checksum, got {sharding.index_codecs}")
    size = 16 * count + 4 * (len(sharding.index_codecs) - 1)
    at = max(0, file.size - size) if sharding.index_location.value == "end" else 0
    index = np.frombuffer(file.read(at, min(16 * count, file.size)), "<u8").reshape(-1, 2).tolist()
    parts = [(begin, length) for begin, length in index if length < 1 << 63]
    if len(index) < count or any(begin + length > file.size for begin, length in parts):
        raise CorruptFile(f"{file.path} is damaged: its index names bytes beyond its end")
    return parts


def _names(metadata: Any) -> list[str]:
    """Return the names of the codecs of chunks, in the order of encoding."""
    codecs = [*(getattr(metadata, "filters", None) or ()), *getattr(metadata, "codecs", ())]
    if (last := getattr(metadata, "compressor", None)) is not None:
        codecs.append(last)
    names = [getattr(one, "codec_id", type(one).__name__.lower().removesuffix("codec")) for one in codecs]
    return [name for name in names if name != "crc32c"]


def _codec(metadata: Any, names: list[str], itemsize: int, where: str) -> str | None:
    """Return the codec of stored chunks; None if it is unknown or none.

    Raises:
        UnknownFormat: Decoding may yield more bytes than are checked.
    """
    packers = [name for name in names if name in STREAMS or name in STATED]
    if objects := OBJECTS & set(names):
        raise UnknownFormat(f"{where} must be text, got values stored as {objects.pop()}; store it as text")
    if len(packers) > 1 or packers != names[len(names) - len(packers) :] or "sharding" in names:
        raise UnknownFormat(f"{where} must be compressed once, by its last codec, got {', '.join(names)}")
    for filtering in getattr(metadata, "filters", None) or ():
        if np.dtype(getattr(filtering, "dtype", "i1")).itemsize > itemsize:
            raise UnknownFormat(f"{where} must have filters of its type, got {filtering}")
    if getattr(getattr(metadata, "compressor", None), "format", 1) != 1:
        raise UnknownFormat(f"{where} must be compressed as xz, got another format of LZMA")
    return packers[0] if packers else None


def _first_bytes(file: File, at: int, size: int, codec: str | None, max_bytes: int) -> bytes:
    """Return the first bytes of an unpacked chunk; raise CorruptFile if it unpacks to more bytes than a chunk has."""
    if codec is None:
        return file.read(at, min(4, size))
    if codec in STATED:
        stated = int.from_bytes(file.read(at, min(16, size))[STATED[codec]], "little")
        if stated > max_bytes:
            raise CorruptFile(
                f"{file.path} must unpack to at most {max_bytes} bytes, but states {stated}; it is damaged"
            )
        return bytes(extra(f"numcodecs.{codec}", "reading Zarr", "zarr").decompress(file.read(at, size))[:4])
    with decoding(file.path), open_decompressed(file, at, size, STREAMS[codec], max_bytes) as stream:
        first = stream.read(STEP)
        while stream.read(STEP):
            pass
        return first
