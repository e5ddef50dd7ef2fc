"""Compressed text, decompressed once into a spill file."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.io.files import File, Region, decoding, digest
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, Spill, SpillFile, SpillWriter, spill_folder

__all__ = ["unpacked"]

PART_BYTES = 1 << 20  # bytes decompressed at a time
OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}


class _Texts:
    """The texts of compressed files in one spill file that the processes of this machine share.

    Args:
        files: The compressed files and their codecs.
        spill: Folder for spill files, or ``"off"``.
    """

    def __init__(self, files: Sequence[tuple[File, str]], spill: Spill) -> None:
        self.files, self._spill = files, spill
        folder = spill_folder(spill)
        if folder is None:
            raise UnknownFormat(
                f"{files[0][0].path} is compressed ({files[0][1]}) and needs a spill file, but spill files are off"
            )

        def make() -> SpillFile:
            with SpillWriter(folder) as out:
                for file, codec in files:
                    with out.section():
                        for part in _decompressed_parts(file, codec):
                            out.write(part)
                return out.finish()

        key = digest(*(part for file, codec in files for part in (file.place, codec)), "unpacked")
        self.sections = list(shared(folder, key, make).sections())

    def __reduce__(self) -> tuple[Any, ...]:
        return _Texts, (self.files, self._spill)


class _Unpacked(Section):
    """The text of a compressed file, under that file's name."""

    def __init__(self, texts: _Texts, number: int) -> None:
        section = texts.sections[number]
        super().__init__(section.spill, section.base, section.size)
        self._texts, self._number, self._packed = texts, number, texts.files[number][0]
        self.path, self.mtime_ns = self._packed.path, self._packed.mtime_ns

    @property
    def plain_name(self) -> str:
        """Return the file name without the compression suffix."""
        return str(self.path).rpartition(".")[0]

    @property
    def content(self) -> str:
        """Return the content digest of the compressed file."""
        return self._packed.content

    @property
    def place(self) -> str:
        """Return the place of the compressed file, which all processes share."""
        return self._packed.place

    def __reduce__(self) -> tuple[Any, ...]:
        return _Unpacked, (self._texts, self._number)


def unpacked(files: Sequence[tuple[File, str]], spill: Spill = None) -> list[File]:
    """Return the texts of compressed files, decompressed once for all processes of this machine.

    Args:
        files: The compressed files and their codecs: ``"gzip"``, ``"bzip2"``, ``"xz"`` or ``"zstd"``.
        spill: Folder for spill files, or ``"off"``.

    Raises:
        CorruptFile: A file does not decompress, or is truncated.
        UnknownFormat: Spill files are off.
    """
    texts = _Texts(files, spill)
    return [_Unpacked(texts, number) for number in range(len(files))]


def _decompressed_parts(file: File, codec: str) -> Iterator[bytes]:
    packed = io.BufferedReader(Region(file.scanned(), 0, file.size), PART_BYTES)
    try:
        with decoding(file.path):
            stream = OPENERS[codec](packed) if codec in OPENERS else pa.CompressedInputStream(packed, codec)
            while part := cast("IO[bytes]", stream).read(PART_BYTES):
                yield part
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise CorruptFile(f"{file.path} does not decompress: {error}") from None
