"""Decompresses record batches of Arrow files buffer by buffer into a spill file, so that no batch is in memory."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow.flatbuffers import MAX_COMPRESSION_RATIO, Batch
from corgipile.tables.formats.arrow.footer import BLOCK
from corgipile.tables.formats.arrow.metadata import BatchMetadata
from corgipile.tables.formats.arrow.slices import Place, spans, views_in
from corgipile.tables.io.arriving import Arriving, Ranges
from corgipile.tables.io.files import File, Region, decoding
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.spill import SpillWriter
from corgipile.tables.table import IntArray

__all__ = ["Decompressed", "Decompressor"]

STEP = 1 << 18  # bytes decompressed at a time
PREFIX = 8  # bytes before a compressed buffer that state its decompressed size
STORED_RAW = -1
MAX_GAP = 1 << 14  # bytes between two buffers of one request, such as metadata of the next batch


class Decompressed:
    """Metadata of record batches in a section of a spill file, with the interface of `BatchMetadata`."""

    def __init__(self, blocks: npt.NDArray[np.void], batches: list[Batch]) -> None:
        self.blocks, self.rows = blocks, np.array([head.rows for head in batches], np.int64)
        self._batches = batches

    def __getitem__(self, batch: int) -> Batch:
        """Return the metadata of one batch."""
        return self._batches[batch]

    def many(self, batches: IntArray) -> Iterator[Batch]:
        """Yield the metadata of batches."""
        return (self[i] for i in batches.tolist())


class Decompressor:
    """Locates and decompresses the buffers of columns.

    Args:
        file: The file.
        blocks: Positions of the record batches.
        metadata: Their metadata.
        places: Nodes and buffers of each column.
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
        """Return the decompressed bytes of these columns in each batch.

        For a remote file they are extrapolated from the largest batch, because exact sizes take a request per buffer.
        """
        if not isinstance(self._file, RemoteFile) or not len(batches):
            return np.array([sum(self._lengths(i)) for i in batches], np.int64)
        rows = np.array([head.rows for head in self._metadata.many(np.array(batches))], np.int64)
        largest = int(rows.argmax())
        return rows * sum(self._lengths(batches[largest])) // max(1, int(rows[largest]))

    def write(self, batches: Sequence[int], out: SpillWriter) -> None:
        """Write batches as a section of a spill file and their buffer lengths as another."""
        file, raw = self._sequential_file(batches, out.in_flight), []
        with out.section():
            for i in batches:
                for offset, length in self._buffers_of(i):
                    out.align()
                    raw.append(self._decompress(file, i, (offset, length), out))
        with out.section():
            out.write(np.array(raw, "<i8").tobytes())

    def ranges(self, batches: Sequence[int]) -> Ranges:
        """Return the ranges of the buffers of batches, in the order of decompression."""
        found = [(self._body(i) + offset, length) for i in batches for offset, length in self._buffers_of(i) if length]
        offsets, lengths = np.array(found, np.int64).reshape(-1, 2).T
        if (offsets < 0).any() or (lengths < 0).any() or (offsets > self._file.size - lengths).any():
            raise CorruptFile(f"{self._file.path}: a record batch has bytes outside the file")
        return offsets, lengths

    def _sequential_file(self, batches: Sequence[int], in_flight: int) -> File:
        """Return the file for one sequential read; a remote file is prefetched."""
        if not isinstance(self._file, RemoteFile):
            return self._file
        offsets, lengths = self.ranges(batches)
        ends = (offsets + lengths)[:-1]
        runs = np.flatnonzero((offsets[1:] < ends) | (offsets[1:] > ends + MAX_GAP)) + 1
        groups = zip(np.split(offsets, runs), np.split(lengths, runs), strict=True)
        return Arriving(self._file, [*groups] if len(offsets) else [], in_flight, MAX_GAP)

    def located(self, batches: Sequence[int], lengths: IntArray) -> Decompressed:
        """Return the metadata of the written batches, from the written buffer lengths."""
        blocks, metadata, at, left = np.zeros(len(batches), BLOCK), [], 0, iter(lengths.tolist())
        for k, i in enumerate(batches):
            begin, buffers = at, []
            for _, raw in zip(self._buffers_of(i), left, strict=False):
                at += -at % 64
                buffers.append((at - begin, raw))
                at += raw
            blocks[k]["offset"], blocks[k]["body"] = begin, at - begin
            head = self._metadata[i]
            nodes = np.array([self._at(i, head.nodes, node) for node in self._nodes], np.int64).reshape(-1, 2)
            views = tuple(count for _, at, _, own in self._buffers for count in head.views[at : at + own])
            metadata.append(Batch(head.rows, nodes, np.array(buffers, np.int64).reshape(-1, 2), None, views))
        return Decompressed(blocks, metadata)

    def _body(self, i: int) -> int:
        return int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"])

    def _at(self, i: int, items: IntArray, index: int) -> tuple[int, int]:
        if index >= len(items):
            raise CorruptFile(f"{self._file.path}: record batch {i} has fewer columns than the schema")
        return int(items[index, 0]), int(items[index, 1])

    def _buffers_of(self, i: int) -> list[tuple[int, int]]:
        """Return offset and length of each buffer of a batch."""
        head, found = self._metadata[i], []
        for listed, views, count, own in self._buffers:
            first = listed + sum(head.views[:views])
            stop = first + count + sum(head.views[views : views + own])
            found += [self._at(i, head.buffers, index) for index in range(first, stop)]
        return found

    def _lengths(self, i: int) -> list[int]:
        """Return the decompressed bytes of each buffer of a batch."""
        found = self._buffers_of(i)
        if self._metadata[i].codec is None:
            return [length for _, length in found]
        filled = [k for k, (_, length) in enumerate(found) if length >= PREFIX]
        order = sorted(filled, key=lambda k: found[k][0])
        offsets = np.array([self._body(i) + found[k][0] for k in order], np.int64)
        raw = self._file.gather(offsets, np.full(len(order), PREFIX)).view("<i8").tolist()
        lengths = [0] * len(found)
        for k, stated in zip(order, raw, strict=True):
            lengths[k] = self._checked_size(i, stated, found[k][1] - PREFIX)
        return lengths

    def _checked_size(self, i: int, stated: int, stored: int) -> int:
        """Return a buffer's decompressed size from its prefix; raise CorruptFile if it is impossible."""
        length = stored if stated == STORED_RAW else stated
        if not 0 <= length <= max(stored, 1) * MAX_COMPRESSION_RATIO:
            raise CorruptFile(
                f"{self._file.path}: a buffer of {stored} bytes in record batch {i} states an impossible size, {stated}"
            )
        return length

    def _decompress(self, file: File, i: int, found: tuple[int, int], out: SpillWriter) -> int:
        """Decompress a buffer into the spill file; return its decompressed bytes."""
        at, length, codec = self._body(i) + found[0], found[1], self._metadata[i].codec
        raw = length if codec is None else 0
        with decoding(self._file.path):
            if codec is not None and length >= PREFIX:
                stated = int.from_bytes(file.read(at, PREFIX), "little", signed=True)
                at, length, codec = at + PREFIX, length - PREFIX, None if stated == STORED_RAW else codec
                raw = self._checked_size(i, stated, length)
            region = Region(file, at, length)
            source = pa.PythonFile(region, mode="r")
            if codec is not None and raw:
                source = pa.CompressedInputStream(source, codec)
        done = 0
        while done < raw:
            with decoding(self._file.path):
                data = source.read(min(STEP, raw - done))
            if not data:
                raise CorruptFile(f"{self._file.path}: a buffer must have {raw} bytes, got {done}")
            out.write(data)
            done += len(data)
        region.read()  # consume the end mark, so that its window counts as read
        return raw
