"""Size checks of Zarr chunks before unpacking, since the library trusts the size that a chunk states."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.unpacking import STEP, open_decompressed

__all__ = ["chunk_check"]

STREAMS = {"zstd": "zstandard", "gzip": "gzip", "zlib": "zlib", "bz2": "bzip2", "lzma": "xz"}
STATED = {"blosc": slice(4, 8), "lz4": slice(0, 4)}  # bytes of the stated size, which decoders never exceed
SLACK = 1 << 16  # bytes that filters may add
MAX_TEXT = 32 << 20  # bytes of a chunk of values of varying length


def chunk_check(array: Any, folder: Path) -> Callable[[int, int], None]:
    """Return a function that checks the chunks of a run of rows, each chunk once."""
    shards, kind = getattr(array, "shards", None), np.dtype(array.dtype)
    [sharding] = array.metadata.codecs if shards else (None,)
    codec, seen = _codec(sharding or array.metadata), set[tuple[int, ...]]()
    if codec is None:
        return lambda _start, _stop: None
    inner = int(np.prod(array.chunks))
    stored, max_bytes = shards or array.chunks, MAX_TEXT if kind.kind in "OT" else inner * kind.itemsize + SLACK
    others = [range(-(-size // chunk)) for size, chunk in zip(array.shape[1:], stored[1:], strict=True)]

    def check(start: int, stop: int) -> None:
        for place in itertools.product(range(start // stored[0], -(-stop // stored[0])), *others):
            path = folder / array.path / array.metadata.encode_chunk_key(place)
            if place not in seen and path.is_file():
                file = File(path)
                for at, size in _parts(file, sharding, int(np.prod(stored)) // inner) if sharding else [(0, file.size)]:
                    _check(file, at, size, codec, max_bytes)
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


def _codec(metadata: Any) -> str | None:
    """Return the codec of stored chunks, None if it is unknown or none."""
    if (compressor := getattr(metadata, "compressor", None)) is not None:
        name = "" if getattr(compressor, "format", 1) != 1 else str(getattr(compressor, "codec_id", ""))  # of LZMA: xz
    else:
        names = [type(codec).__name__.lower() for codec in getattr(metadata, "codecs", ())]
        name = next((name.removesuffix("codec") for name in reversed(names) if not name.startswith("crc32c")), "")
    return name if name in STREAMS or name in STATED else None


def _check(file: File, at: int, size: int, codec: str, max_bytes: int) -> None:
    """Raise CorruptFile if a chunk unpacks to more than the bytes of a chunk."""
    if codec in STATED:
        stated = int.from_bytes(file.read(at, min(16, size))[STATED[codec]], "little")
        if stated > max_bytes:
            raise CorruptFile(
                f"{file.path} must unpack to at most {max_bytes} bytes, but states {stated}; it is damaged"
            )
        return
    with decoding(file.path), open_decompressed(file, at, size, STREAMS[codec], max_bytes) as stream:
        while stream.read(STEP):
            pass
