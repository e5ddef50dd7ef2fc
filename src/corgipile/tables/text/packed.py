"""Compressed text: unpacked once into a spill file, and read there."""

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

PART = 1 << 20  # bytes of text at a time
OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}


class _Texts:
    """The texts of compressed files, one after another in one spill file that all processes of this machine share.

    Args:
        files: The compressed files, and how each is compressed.
        spill: Folder for spill files, or ``"off"``.
    """

    def __init__(self, files: Sequence[tuple[File, str]], spill: Spill) -> None:
        self.files, self._spill = files, spill
        folder = spill_folder(spill)
        if folder is None:
            raise UnknownFormat(
                f"{files[0][0].path} is compressed ({files[0][1]}), and spill files, into which it is unpacked, are off"
            )

        def make() -> SpillFile:
            with SpillWriter(folder) as out:
                for file, codec in files:
                    with out.section():
                        for part in _parts(file, codec):
                            out.write(part)
                return out.finish()

        key = digest(*(one for file, codec in files for one in (file.place, codec)), "unpacked")
        self.sections = list(shared(folder, key, make).sections())

    def __reduce__(self) -> tuple[Any, ...]:
        return _Texts, (self.files, self._spill)


class _Unpacked(Section):
    """The text of a compressed file, under the name of that file."""

    def __init__(self, texts: _Texts, number: int) -> None:
        section = texts.sections[number]
        super().__init__(section.spill, section.base, section.size)
        self._texts, self._number, self._packed = texts, number, texts.files[number][0]
        self.path, self.mtime_ns = self._packed.path, self._packed.mtime_ns

    @property
    def plain_name(self) -> str:
        """Return the name of the text, without the ending that says how it is compressed."""
        return str(self.path).rpartition(".")[0]

    @property
    def content(self) -> str:
        """Return what identifies the content: that of the compressed file."""
        return self._packed.content

    @property
    def place(self) -> str:
        """Return the place of the compressed file, which other processes know as well."""
        return self._packed.place

    def __reduce__(self) -> tuple[Any, ...]:
        return _Unpacked, (self._texts, self._number)


def unpacked(files: Sequence[tuple[File, str]], spill: Spill = None) -> list[File]:
    """Return the texts of compressed files, laid out once for all processes of this machine.

    Args:
        files: The compressed files, and how each is compressed: ``"gzip"``, ``"bzip2"``, ``"xz"`` or ``"zstd"``.
        spill: Folder for spill files, or ``"off"``.

    Raises:
        CorruptFile: A file does not decompress, or is cut short.
        UnknownFormat: Spill files are off.
    """
    texts = _Texts(files, spill)
    return [_Unpacked(texts, number) for number in range(len(files))]


def _parts(file: File, codec: str) -> Iterator[bytes]:
    packed = io.BufferedReader(Region(file.scanned(), 0, file.size), PART)
    try:
        with decoding(file.path):
            made = OPENERS[codec](packed) if codec in OPENERS else pa.CompressedInputStream(packed, codec)
            while part := cast("IO[bytes]", made).read(PART):
                yield part
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise CorruptFile(f"{file.path} does not decompress: {error}") from None
