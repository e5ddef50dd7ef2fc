"""Arrow IPC files in stores: copied to the local disk where their columns lie too far apart for requests by blocks."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.arrow.decompress import OVER, Decompressor
from corgipile.tables.arrow.file import ArrowFile
from corgipile.tables.arrow.flatbuffers import Batch
from corgipile.tables.arrow.slices import BatchSlices, spans, views_in
from corgipile.tables.encoded import SpilledTable, Units, units_of
from corgipile.tables.io.arriving import at_once
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.pieces import merge_cuts
from corgipile.tables.io.remote import RemoteFile, file_of, read_in_turn
from corgipile.tables.io.spill import Section, Spill, SpillWriter
from corgipile.tables.io.staged import copied, fetched
from corgipile.tables.location import Location, varlen_location
from corgipile.tables.materialized import find_spilled
from corgipile.tables.table import IntArray, Layout, Table

__all__ = ["RemoteArrowFile", "open_file"]

NEAR = 2  # columns of which a block is worth its requests, one for each


def open_file(path: PathLike | File, spill: Spill = None) -> ArrowFile:
    """Open an Arrow IPC file of this machine, or of a store."""
    file = file_of(path)
    return RemoteArrowFile(file, spill) if isinstance(file, RemoteFile) else ArrowFile(file, spill)


class RemoteArrowFile(ArrowFile):
    """Reads an Arrow IPC file in a store.

    Of a plain record batch each column lies by itself. A block of rows that is a small part of it costs a request a
    column, so where there are several, and the memory does not hold many record batches, the columns are copied to a
    spill file as they are, once and in order; where there shall be none, rows are read by blocks all the same.

    Args:
        path: The file.
        spill: Folder for spill files, or ``"off"``.
    """

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows, or at record batches where there are several columns."""
        apart = len(self.schema) > NEAR and self.spill is not None
        return merge_cuts(self._starts, rows) if apart else super().cuts(rows)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Say what record batches take, where several columns of them are read, or they are compressed."""
        names = [*dict.fromkeys(columns)]
        if self._places is None or len(names) <= NEAR or self.spill is None:
            return super().units(columns)
        return units_of(np.diff(self._starts), self._blocks["body"] * len(names) // len(self.schema))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Say where fixed-width columns lie by now."""
        there = find_spilled(self, columns)
        return super().layout(columns) if there is None else there.layout(columns)

    def varlen_location(self, columns: Sequence[str]) -> Location | None:
        """Say where columns lie of which some are of varying length, once they are on this machine."""
        there = find_spilled(self, columns)
        return None if there is None else varlen_location(there, columns)

    def _body_with(self, i: int, head: Batch, names: list[str]) -> BatchSlices:
        """Return what reads these columns of a record batch: fetched together, if its other rows are read next."""
        kept = read_in_turn()
        if kept is None or len(names) <= NEAR:
            return super()._body_with(i, head, names)
        self._check(i, head)
        buffers = self._buffers(i, head, names)
        if (buffers[:, 0] > buffers[:, 1]).any() or (buffers < 0).any() or (buffers > self._file.size).any():
            return super()._body_with(i, head, names)  # which says what is wrong
        ranges = buffers[:, 0], buffers[:, 1] - buffers[:, 0]
        if int(ranges[1].sum()) > at_once() // 2:
            return super()._body_with(i, head, names)
        file = kept.get((id(self), i, *names), lambda: fetched(self._remote, ranges, OVER))
        return BatchSlices(file, int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"]), head)

    def _load(self, i: int, names: list[str]) -> pa.RecordBatch:
        decompressor = self._decompressor(names)
        if decompressor is None or self._dictionaries:
            return super()._load(i, names)
        offsets, lengths = decompressor.ranges([i])
        block = self._blocks[i]
        ranges = np.append(offsets, block["offset"]), np.append(lengths + -lengths % 8, block["metadata"])
        return self._open_reader(names, fetched(self._remote, ranges, OVER)).get_batch(i)

    def _size(self, i: int, names: list[str], decompressor: Decompressor) -> int:
        sizes = self._sizes.get(tuple(names), lambda: decompressor.bytes_of(range(len(self._blocks))))
        return int(sizes[i])

    @property
    def _remote(self) -> RemoteFile:
        assert isinstance(self._file, RemoteFile)  # noqa: S101 - what it is for
        return self._file

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the rows as a section of a spill file."""
        if self._places is None:
            super().write_plain(columns, out)
            return
        with out.section():
            copied(self._remote, self._left_out(columns), out)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the section that `write_plain` wrote."""
        if self._places is None:
            return super().open_plain(columns, sections)
        return SpilledTable(self, [*dict.fromkeys(columns)], [ArrowFile(next(sections), "off")])

    def _left_out(self, columns: Sequence[str]) -> IntArray:
        """Return where the bytes of other columns lie, int64[n, 2]: first, and after the last; ascending."""
        assert self._places is not None  # noqa: S101 - asked before
        others = [name for name in self._places if name not in {*columns}]
        batches = np.arange(len(self._blocks) if others else 0)
        each = zip(batches.tolist(), self._metadata.many(batches), strict=True)
        gaps = np.concatenate([np.zeros((0, 2), np.int64), *(self._buffers(i, head, others) for i, head in each)])
        return gaps[np.argsort(gaps[:, 0], kind="stable")]

    def _buffers(self, i: int, head: Batch, names: Sequence[str]) -> IntArray:
        """Return where the buffers of columns lie in a record batch, int64[n, 2]: first byte, and after the last."""
        assert self._places is not None  # noqa: S101 - asked before
        body = int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"])
        found = [np.zeros((0, 2), np.int64)]
        for place in (self._places[name] for name in names):
            first = place.buffer + sum(head.views[: place.views])
            own = (spans(place.kind) or (0, 0))[1] + sum(head.views[place.views : place.views + views_in(place.kind)])
            if place.kind is not None and own:
                buffers = np.array(head.buffers[first : first + own], np.int64).reshape(-1, 2)
                found.append(np.stack([body + buffers[:, 0], body + buffers.sum(axis=1)], axis=1))
        return np.concatenate(found)
