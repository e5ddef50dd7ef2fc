"""Size checks of Zarr chunks before unpacking, since the library trusts the size that a chunk states."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from corgipile.errors import CorruptFile
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.unpacking import STEP, open_decompressed

__all__ = ["chunk_check"]

STREAMS = {"zstd": "zstandard", "gzip": "gzip", "zlib": "zlib", "bz2": "bzip2", "lzma": "xz"}
STATED = {"blosc": slice(4, 8), "lz4": slice(0, 4)}  # bytes of the stated size, which decoders never exceed
SLACK = 1 << 16  # bytes that filters may add


def chunk_check(array: Any, folder: Path) -> Callable[[int, int], None]:
    """Return a function that checks the chunks of a run of rows, each chunk once.

    Sharded chunks and values of varying length state no size and are not checked.
    """
    codec, seen = _codec(array.metadata), set[tuple[int, ...]]()
    if codec is None or np.dtype(array.dtype).kind == "O" or getattr(array, "shards", None) is not None:
        return lambda _start, _stop: None
    chunks, max_bytes = array.chunks, int(np.prod(array.chunks)) * int(np.dtype(array.dtype).itemsize) + SLACK
    others = [range(-(-size // chunk)) for size, chunk in zip(array.shape[1:], chunks[1:], strict=True)]

    def check(start: int, stop: int) -> None:
        for place in itertools.product(range(start // chunks[0], -(-stop // chunks[0])), *others):
            path = folder / array.path / array.metadata.encode_chunk_key(place)
            if place not in seen and path.is_file():
                _check(File(path), codec, max_bytes)
            seen.add(place)

    return check


def _codec(metadata: Any) -> str | None:
    """Return the codec of stored chunks, None if it is unknown or none."""
    if (compressor := getattr(metadata, "compressor", None)) is not None:
        name = "" if getattr(compressor, "format", 1) != 1 else str(getattr(compressor, "codec_id", ""))  # of LZMA: xz
    else:
        names = [type(codec).__name__.lower() for codec in getattr(metadata, "codecs", ())]
        name = next((name.removesuffix("codec") for name in reversed(names) if not name.startswith("crc32c")), "")
    return name if name in STREAMS or name in STATED else None


def _check(file: File, codec: str, max_bytes: int) -> None:
    """Raise CorruptFile if a chunk unpacks to more than the bytes of a chunk."""
    if codec in STATED:
        size = int.from_bytes(file.read(0, min(16, file.size))[STATED[codec]], "little")
        if size > max_bytes:
            raise CorruptFile(f"{file.path} must unpack to at most {max_bytes} bytes, but states {size}; it is damaged")
        return
    with decoding(file.path), open_decompressed(file, 0, file.size, STREAMS[codec], max_bytes) as stream:
        while stream.read(STEP):
            pass
