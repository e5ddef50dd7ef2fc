"""Compressed shards of MDS, unpacked whole into a spill file before samples are read."""

import bz2
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.checked import FileTable
from corgipile.tables.encoded import Units, units_of
from corgipile.tables.formats.mds.shard import Column, MdsShard
from corgipile.tables.formats.mds.stored import Encoding
from corgipile.tables.io.files import File, PathLike, decoding
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.spill import Section, Spill, SpillFile, SpillWriter, spill_folder
from corgipile.tables.io.unpacking import snappy
from corgipile.tables.table import IntArray, Table, even_cuts

__all__ = ["PackedShard"]

PIECE_BYTES = 1 << 20
CODECS = ("zstd", "gz", "bz2", "br", "snappy")
ADVICE = "compressed shards are unpacked whole before a sample is read; store them unpacked, or use `corgipile convert`"
_recent: Recent[MdsShard] = Recent(2)  # for all tables, since each holds an open file


class PackedShard(FileTable):
    """Reads a compressed shard.

    Args:
        path: The compressed file.
        codec: Its codec: ``"zstd"``, ``"gz"``, ``"bz2"``, ``"br"`` or ``"snappy"``.
        size: Unpacked bytes of the shard.
        rows: Number of samples in the index.
        columns: The columns, in the order of their values in a sample.
        kinds: Encodings inferred from an earlier shard; None to infer them from this one.
        spill: Folder for spill files; ``"off"``: unpack shards in memory.
    """

    columnar = True
    advice = ADVICE

    def __init__(
        self,
        path: PathLike,
        codec: str,
        size: int,
        rows: int,
        columns: Sequence[Column],
        kinds: dict[str, Encoding] | None = None,
        spill: Spill = None,
    ) -> None:
        self._file, self._codec, self._size, self._rows = File(path), codec, size, rows
        self._columns, self._spill, self.spill = tuple(columns), spill, spill_folder(spill)
        if codec not in CODECS:
            raise UnknownFormat(f"{self._file.path} must be compressed by one of {', '.join(CODECS)}, got {codec!r}")
        self._initial_kinds = kinds
        self.kinds: dict[str, Encoding] = kinds or {}
        self.kinds = kinds or self._unpacked().kinds
        self.schema: pa.Schema = pa.schema([(column.name, self.kinds[column.name].kind) for column in columns])

    def __reduce__(self) -> tuple[type["PackedShard"], tuple[Any, ...]]:
        settings = (self._size, self._rows, self._columns, self._initial_kinds, self._spill)
        return PackedShard, (self._file.path, self._codec, *settings)

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Return the unpacked bytes of the shard."""
        return self._size

    @property
    def place(self) -> str:
        """Return an id of the file's current state that is unique on this machine."""
        return self._file.place

    def cuts(self, rows: int) -> IntArray:
        """Return the shard as one block."""
        even_cuts(len(self), rows)
        return even_cuts(len(self), max(1, len(self)))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._unpacked().take(rows, names)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the unit of decoding, the whole shard."""
        return units_of(np.array([self._rows]), np.array([self._size]))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the shard, unpacked step by step, as a section of a spill file."""
        with out.section():
            done = 0
            for data in self._unpacked_pieces():
                done += len(data)
                if done > self._size:
                    break
                out.write(data)
        if done != self._size:
            more = "or more " if done > self._size else ""
            raise CorruptFile(f"{self._file.path} must unpack to {self._size} bytes, got {done} {more}bytes")

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the section that `write_plain` wrote."""
        with decoding(self._file.path):
            return _UnpackedShard(next(sections), self)

    def _unpacked(self) -> MdsShard:
        """Return the unpacked shard; the last two are cached."""
        return _recent.get((self._file.path, self._file.identity, self._columns), self._unpack)

    def _unpack(self) -> MdsShard:
        writer = _MemoryWriter() if self.spill is None else SpillWriter(self.spill)
        with writer as out:
            self.write_plain([column.name for column in self._columns], out)
            return cast("MdsShard", self.open_plain([], out.finish().sections()))

    def _unpacked_pieces(self) -> Iterator[bytes]:
        with decoding(self._file.path):
            source = self._file.source()
            if self._codec == "snappy":
                yield snappy(source.read())
                return
            try:
                with self._open_stream(source) as file:
                    while data := file.read(min(PIECE_BYTES, self._size + 1)):
                        yield data
            except (EOFError, zlib.error) as error:
                raise CorruptFile(f"{self._file.path} does not decompress: {error}") from None

    def _open_stream(self, source: Any) -> Any:
        if self._codec in ("zstd", "br"):
            return pa.CompressedInputStream(source, {"br": "brotli"}.get(self._codec, self._codec))
        return gzip.GzipFile(fileobj=source) if self._codec == "gz" else bz2.BZ2File(source)


class _UnpackedShard(MdsShard):
    """A shard in a spill file."""

    def __init__(self, section: Section, packed: PackedShard) -> None:
        self._packed = packed
        section.path = packed._file.path  # noqa: SLF001 - the path for messages
        super().__init__(section, len(packed), packed._columns, packed.kinds or None)  # noqa: SLF001 - same module

    def __reduce__(self) -> Any:
        return _unpacked_of, (self._packed,)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the compressed shard."""
        return self._packed.fingerprint


def _unpacked_of(packed: PackedShard) -> MdsShard:
    return packed._unpacked()  # noqa: SLF001 - same module


class _MemoryWriter(SpillWriter):
    """Writes a spill file in memory."""

    def __init__(self) -> None:
        super().__init__(Path("/"), SpillFile(os.memfd_create("shard")))
