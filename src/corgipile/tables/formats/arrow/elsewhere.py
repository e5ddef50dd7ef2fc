"""Arrow IPC files in stores, copied to the local disk if a block would take too many requests."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from corgipile.tables.encoded import SpilledTable, Units, units_of
from corgipile.tables.format import Format
from corgipile.tables.formats.arrow.decompress import MAX_GAP, Decompressor
from corgipile.tables.formats.arrow.file import SUFFIXES, ArrowFile
from corgipile.tables.formats.arrow.flatbuffers import Batch
from corgipile.tables.formats.arrow.footer import MAGIC
from corgipile.tables.formats.arrow.slices import BatchSlices, spans, views_in
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.pieces import merge_cuts
from corgipile.tables.io.remote import RemoteFile, file_of, this_scan
from corgipile.tables.io.spill import Section, Spill, SpillWriter
from corgipile.tables.io.staged import copy_object, fetch
from corgipile.tables.location import Location
from corgipile.tables.materialized import find_spilled
from corgipile.tables.table import IntArray, Layout, Table

__all__ = ["FORMAT", "RemoteArrowFile", "open_file"]

MAX_DIRECT_COLUMNS = 2  # columns whose blocks are read by one request each


def open_file(path: PathLike | File, spill: Spill = None) -> ArrowFile:
    """Open a local or remote Arrow IPC file."""
    file = file_of(path)
    return RemoteArrowFile(file, spill) if isinstance(file, RemoteFile) else ArrowFile(file, spill)


class RemoteArrowFile(ArrowFile):
    """Reads an Arrow IPC file in a store.

    In a plain record batch each column is stored separately, so a small block costs a request per column. If several
    columns are read, and memory holds few record batches, they are copied once, sequentially, to a spill file. Without
    spill files rows are still read by blocks.

    Args:
        path: The file.
        spill: Folder for spill files, or ``"off"``.
    """

    def cuts(self, rows: int) -> IntArray:
        """Cut every ``rows`` rows, or at record batches if there are several columns."""
        by_batch = len(self.schema) > MAX_DIRECT_COLUMNS and self.spill is not None
        return merge_cuts(self._starts, rows) if by_batch else super().cuts(rows)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the size of the record batches if they are compressed or several columns are read."""
        names = [*dict.fromkeys(columns)]
        if self._places is None or len(names) <= MAX_DIRECT_COLUMNS or self.spill is None:
            return super().units(columns)
        return units_of(np.diff(self._starts), self._blocks["body"] * len(names) // len(self.schema))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the positions of fixed-width columns, in the local copy if there is one."""
        local = find_spilled(self, columns)
        return super().layout(columns) if local is None else local.layout(columns)

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the positions of columns, of varying length only in the local copy."""
        local = find_spilled(self, columns)
        return Table.location(self, columns) if local is None else local.location(columns)

    def _body_with(self, i: int, head: Batch, names: list[str]) -> BatchSlices:
        """Return a reader of these columns; they are fetched together if the batch's other rows follow."""
        in_flight, cache = this_scan()
        if cache is None or len(names) <= MAX_DIRECT_COLUMNS:
            return super()._body_with(i, head, names)
        self._check(i, head)
        buffers = self._buffers(i, head, names)
        if (buffers[:, 0] > buffers[:, 1]).any() or (buffers < 0).any() or (buffers > self._file.size).any():
            return super()._body_with(i, head, names)  # it raises the error
        ranges = buffers[:, 0], buffers[:, 1] - buffers[:, 0]
        if int(ranges[1].sum()) > in_flight // 2:
            return super()._body_with(i, head, names)
        file = cache.get((id(self), i, *names), lambda: fetch(self._remote, ranges, MAX_GAP))
        return BatchSlices(file, int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"]), head)

    def _load(self, i: int, names: list[str]) -> pa.RecordBatch:
        decompressor = self._decompressor(names)
        if decompressor is None or self._dictionaries:
            return super()._load(i, names)
        offsets, lengths = decompressor.ranges([i])
        block = self._blocks[i]
        ranges = np.append(offsets, block["offset"]), np.append(lengths + -lengths % 8, block["metadata"])
        return self._open_reader(names, fetch(self._remote, ranges, MAX_GAP)).get_batch(i)

    def _size(self, i: int, names: list[str], decompressor: Decompressor) -> int:
        sizes = self._sizes.get(tuple(names), lambda: decompressor.bytes_of(range(len(self._blocks))))
        return int(sizes[i])

    @property
    def _remote(self) -> RemoteFile:
        assert isinstance(self._file, RemoteFile)  # noqa: S101 - for mypy
        return self._file

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the rows as a section of a spill file."""
        if self._places is None:
            super().write_plain(columns, out)
            return
        with out.section():
            copy_object(self._remote, self._gaps(columns), out)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the section that `write_plain` wrote."""
        if self._places is None:
            return super().open_plain(columns, sections)
        return SpilledTable(self, [*dict.fromkeys(columns)], [ArrowFile(next(sections), "off")])

    def _gaps(self, columns: Sequence[str]) -> IntArray:
        """Return the byte ranges of other columns, int64[n, 2], ascending."""
        assert self._places is not None  # noqa: S101 - the caller checks
        others = [name for name in self._places if name not in {*columns}]
        batches = np.arange(len(self._blocks) if others else 0)
        numbered = zip(batches.tolist(), self._metadata.many(batches), strict=True)
        gaps = np.concatenate([np.zeros((0, 2), np.int64), *(self._buffers(i, head, others) for i, head in numbered)])
        return gaps[np.argsort(gaps[:, 0], kind="stable")]

    def _buffers(self, i: int, head: Batch, names: Sequence[str]) -> IntArray:
        """Return the byte ranges of columns in a record batch, int64[n, 2]."""
        assert self._places is not None  # noqa: S101 - the caller checks
        body = int(self._blocks[i]["offset"]) + int(self._blocks[i]["metadata"])
        found = [np.zeros((0, 2), np.int64)]
        for place in (self._places[name] for name in names):
            first = place.buffer + sum(head.views[: place.views])
            own = (spans(place.kind) or (0, 0))[1] + sum(head.views[place.views : place.views + views_in(place.kind)])
            if place.kind is not None and own:
                buffers = head.buffers[first : first + own]
                found.append(np.stack([body + buffers[:, 0], body + buffers.sum(axis=1)], axis=1))
        return np.concatenate(found)


FORMAT = Format(MAGIC, SUFFIXES, open_file, frozenset({"spill"}))
