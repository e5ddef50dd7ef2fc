"""Compressed record batches of Arrow files, decompressed buffer by buffer into a spill file: no batch is ever whole."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.arrow.flatbuffers import Batch
from corgipile.tables.arrow.footer import BLOCK
from corgipile.tables.arrow.metadata import BatchMetadata
from corgipile.tables.arrow.slices import Place, spans, views_in
from corgipile.tables.io.files import File, Region, decoding
from corgipile.tables.io.spill import SpillWriter
from corgipile.tables.table import IntArray

__all__ = ["Decompressed", "Decompressor"]

STEP = 1 << 18  # bytes decompressed at a time
PREFIX = 8  # bytes before a compressed buffer, which say how long it is decompressed
MOST = 1 << 24  # times that a buffer may grow
AS_IT_IS = -1


class Decompressed:
    """Record batches in a section of a spill file: what `BatchMetadata` and the footer are for an Arrow file.

    Their metadata is kept as arrays: as tuples it takes five times as much, which counts where there are many files.
    """

    def __init__(self, blocks: npt.NDArray[np.void], batches: list[Batch]) -> None:
        self.blocks, self.rows = blocks, np.array([head.rows for head in batches], np.int64)
        self._kept = [
            (np.array(head.nodes, np.int64), np.array(head.buffers, np.int64), head.views) for head in batches
        ]

    def __getitem__(self, batch: int) -> Batch:
        """Return the metadata of one batch."""
        nodes, buffers, views = self._kept[batch]
        return Batch(int(self.rows[batch]), _pairs(nodes), _pairs(buffers), None, views)

    def many(self, batches: IntArray) -> Iterator[Batch]:
        """Give the metadata of batches."""
        return (self[i] for i in batches.tolist())


def _pairs(array: IntArray) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in array.tolist())


class Decompressor:
    """Finds the buffers of some columns, and decompresses them.

    Args:
        file: The file.
        blocks: Where the record batches lie.
        metadata: Their metadata.
        places: Where each column's parts are listed.
        names: The columns.
    """

    def __init__(
        self,
        file: File,
        blocks: npt.NDArray[np.void],
        metadata: BatchMetadata | Decompressed,
        places: Mapping[str, Place],
        names: Sequence[str],
    ) -> None:
        self._file, self._blocks, self._metadata = file, blocks, metadata
        spanned = [(places[name], spans(places[name].kind) or (0, 0)) for name in names]
        self._nodes = [place.node + k for place, (nodes, _) in spanned for k in range(nodes)]
        self._buffers = [(place.buffer, place.views, buffers, views_in(place.kind)) for place, (_, buffers) in spanned]

    def bytes_of(self, batches: Sequence[int]) -> IntArray:
        """Return the bytes of these columns in each of some batches, decompressed."""
        return np.array([sum(self._lengths(i)) for i in batches], np.int64)

    def write(self, batches: Sequence[int], out: SpillWriter) -> None:
        """Write batches as a section of a spill file."""
        with out.section():
            for i in batches:
                for (offset, length), raw in zip(self._found(i), self._lengths(i), strict=True):
                    out.align()
                    self._decompress(self._body(i) + offset, length, raw, self._metadata[i].codec, out)

    def located(self, batches: Sequence[int]) -> Decompressed:
        """Say where they lie then."""
        blocks, metadata, at = np.zeros(len(batches), BLOCK), [], 0
        for k, i in enumerate(batches):
            begin, buffers = at, []
            for raw in self._lengths(i):
                at += -at % 64
                buffers.append((at - begin, raw))
                at += raw
            blocks[k]["offset"], blocks[k]["body"] = begin, at - begin
            head = self._metadata[i]
            nodes = tuple(self._at(i, head.nodes, node) for node in self._nodes)
            views = tuple(count for _, at, _, own in self._buffers for count in head.views[at : at + own])
            metadata.append(Batch(head.rows, nodes, tuple(buffers), None, views))
        return Decompressed(blocks, metadata)

    def _body(self, i: int) -> int:
        return int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"])

    def _at(self, i: int, items: Sequence[tuple[int, int]], index: int) -> tuple[int, int]:
        if index >= len(items):
            raise CorruptFile(f"{self._file.path}: record batch {i} has fewer columns than the schema")
        return items[index]

    def _found(self, i: int) -> list[tuple[int, int]]:
        """Return offset and length of the buffers of a batch."""
        head, found = self._metadata[i], []
        for listed, views, count, own in self._buffers:
            first = listed + sum(head.views[:views])
            stop = first + count + sum(head.views[views : views + own])
            found += [self._at(i, head.buffers, index) for index in range(first, stop)]
        return found

    def _lengths(self, i: int) -> list[int]:
        """Return the bytes of the buffers of a batch, decompressed."""
        found = self._found(i)
        if self._metadata[i].codec is None:
            return [length for _, length in found]
        filled = [k for k, (_, length) in enumerate(found) if length >= PREFIX]
        order = sorted(filled, key=lambda k: found[k][0])
        offsets = np.array([self._body(i) + found[k][0] for k in order], np.int64)
        raw = self._file.gather(offsets, np.full(len(order), PREFIX)).view("<i8").tolist()
        lengths = [0] * len(found)
        for k, said in zip(order, raw, strict=True):
            stored = found[k][1] - PREFIX
            lengths[k] = stored if said == AS_IT_IS else said
            if not 0 <= lengths[k] <= max(stored, 1) * MOST:
                raise CorruptFile(
                    f"{self._file.path}: a buffer of {stored} bytes in record batch {i} claims {said} decompressed"
                )
        return lengths

    def _decompress(self, at: int, length: int, raw: int, codec: str | None, out: SpillWriter) -> None:
        """Copy a buffer, decompressed."""
        with decoding(self._file.path):
            if codec is not None:
                plain = length < PREFIX or self._file.read(at, PREFIX) == AS_IT_IS.to_bytes(
                    PREFIX, "little", signed=True
                )
                at, length, codec = at + PREFIX, max(0, length - PREFIX), None if plain else codec
            region = Region(self._file, at, length)
            source = pa.PythonFile(region, mode="r")
            if codec is not None and length:
                source = pa.CompressedInputStream(source, codec)
        done = 0
        while done < raw:
            with decoding(self._file.path):
                data = source.read(min(STEP, raw - done))
            if not data:
                raise CorruptFile(f"{self._file.path}: a buffer ends after {done} bytes; it claims {raw}")
            out.write(data)
            done += len(data)
