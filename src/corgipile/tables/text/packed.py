"""Compressed text: unpacked once into a spill file, and read there."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, Any, cast

import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.io.files import File, Region, decoding, digest
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, Spill, SpillFile, SpillWriter, spill_folder

__all__ = ["unpacked"]

PART = 1 << 20  # bytes of text at a time
OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}


class _Unpacked(Section):
    """The text of a compressed file, under the name of that file."""

    def __init__(self, file: File, codec: str, section: Section) -> None:
        super().__init__(section.spill, section.base, section.size)
        self._packed, self._codec = file, codec
        self.path, self.mtime_ns = file.path, file.mtime_ns

    @property
    def content(self) -> str:
        """Return what identifies the content: that of the compressed file."""
        return self._packed.content

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked, (self._packed, self._codec)


def unpacked(file: File, codec: str, spill: Spill = None) -> File:
    """Return the text of a compressed file, laid out once for all processes of this machine.

    Args:
        file: The compressed file.
        codec: ``"gzip"``, ``"bzip2"``, ``"xz"`` or ``"zstd"``.
        spill: Folder for spill files, or ``"off"``.

    Raises:
        CorruptFile: It does not decompress, or is cut short.
        UnknownFormat: Spill files are off.
    """
    folder = spill_folder(spill)
    if folder is None:
        raise UnknownFormat(f"{file.path} is compressed ({codec}), and spill files, into which it is unpacked, are off")

    def make() -> SpillFile:
        with SpillWriter(folder) as out:
            with out.section():
                for part in _parts(file, codec):
                    out.write(part)
            return out.finish()

    made = shared(folder, digest(file.place, codec, "unpacked"), make)
    return _Unpacked(file, codec, next(made.sections()))


def _parts(file: File, codec: str) -> Iterator[bytes]:
    packed = io.BufferedReader(Region(file.scanned(), 0, file.size), PART)
    try:
        with decoding(file.path):
            made = OPENERS[codec](packed) if codec in OPENERS else pa.CompressedInputStream(packed, codec)
            while part := cast("IO[bytes]", made).read(PART):
                yield part
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise CorruptFile(f"{file.path} does not decompress: {error}") from None
