"""Reads one fixed-width column straight from its files, in many short runs."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import places_of
from corgipile.tables.io.remote import files_of_layout
from corgipile.tables.io.row_cache import RowCache
from corgipile.tables.layout import IntArray, Layout

MAX_REQUEST = 1 << 18  # bytes of one request


class PlacedColumn:
    """Reads rows of a fixed-width column.

    ``files`` are the layout's, if they are already open.

    Example:
        >>> import tempfile, pyarrow as pa
        >>> from corgipile.tables import open
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"label": [0, 1, 1]})
        ...     with pa.ipc.new_file(f"{folder}/a.arrow", rows.schema) as writer:
        ...         writer.write_table(rows)
        ...     layout = open(f"{folder}/a.arrow").layout(["label"])
        ...     PlacedColumn(layout, "label").read(0, 2)
        array([0, 1])
    """

    def __init__(self, layout: Layout, name: str, files: list[File] | None = None) -> None:
        self._column = column = layout.columns[name]
        self._files = files_of_layout(layout) if files is None else files
        self._cache = RowCache(int(column.starts[-1]), column.shape, column.dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows ``start`` to ``stop``, an array of the column's dtype, (rows, *shape of a row).

        Raises:
            CorruptFile: A file ends too early.
            ReadFailed: The system cannot read it.
        """
        column = self._column
        parts = [file.gather(offsets, lengths) for file, offsets, lengths in self._by_file(start, stop)]
        data = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
        return data.view(column.dtype).reshape(stop - start, *column.shape)

    def hint(self, start: int, stop: int) -> None:
        """Ask the operating system to read ahead rows that are needed next."""
        for file, offsets, lengths in self._by_file(start, stop):
            if type(file) is File:
                file.hint(offsets, lengths)

    def take(self, rows: IntArray) -> npt.NDArray[Any]:
        """Read scattered rows in the order requested."""
        return self._cache.take(rows, lambda some, _: self._read_rows(some))

    def _read_rows(self, rows: IntArray) -> npt.NDArray[Any]:
        column, width = self._column, self._column.width
        data = np.empty(len(rows) * width, np.uint8)
        pieces = np.searchsorted(column.starts, rows, side="right") - 1
        files, offsets = column.files[pieces], column.offsets[pieces] + (rows - column.starts[pieces]) * width
        for file, at in places_of(files) if len(self._files) > 1 else [(0, np.arange(len(rows)))]:
            self._files[file].gather(offsets[at], np.full(len(at), width), data, at * width)
        return data.view(column.dtype).reshape(len(rows), *column.shape)

    def _by_file(self, start: int, stop: int) -> Iterator[tuple[File, IntArray, IntArray]]:
        """Yield each file of a run of rows with the offsets and lengths of its requests."""
        files, offsets, lengths = self._requests(start, stop)
        ends = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
        for i, j in itertools.pairwise(ends):
            if i < j:
                yield self._files[files[i]], offsets[i:j], lengths[i:j]

    def _requests(self, start: int, stop: int) -> tuple[npt.NDArray[np.int32], IntArray, IntArray]:
        """Return file, offset and length of each request for a run of rows."""
        column, width = self._column, self._column.width
        first = int(np.searchsorted(column.starts, start, side="right")) - 1
        last = int(np.searchsorted(column.starts, stop, side="left"))
        begins = column.starts[first:last]
        low = np.maximum(begins, start)
        lengths = (np.minimum(column.starts[first + 1 : last + 1], stop) - low) * width
        offsets = column.offsets[first:last] + (low - begins) * width
        counts = -(-lengths // MAX_REQUEST)
        inside = MAX_REQUEST * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
        lengths = np.minimum(np.repeat(lengths, counts) - inside, MAX_REQUEST)
        return np.repeat(column.files[first:last], counts), np.repeat(offsets, counts) + inside, lengths
