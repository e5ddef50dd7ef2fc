"""Reads one column from where its rows lie in files, many short runs at a time."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.tables.io.files import File
from corgipile.tables.io.kept import Kept
from corgipile.tables.io.pieces import places_of
from corgipile.tables.io.remote import files_of_layout
from corgipile.tables.table import IntArray, Layout

REQUEST = 1 << 18  # bytes asked for at a time


class PlacedColumn:
    """Reads rows of a column of fixed width.

    Args:
        layout: Where columns lie.
        name: The column.
        files: Those of the layout where they are open already, as for another of its columns.

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
        self._kept = Kept(int(column.starts[-1]), column.shape, column.dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows ``start`` to ``stop``, an array of the column's dtype, (rows, *shape of a row).

        Raises:
            CorruptFile: A file ends before.
            ReadFailed: The system cannot read it.
        """
        column = self._column
        parts = [file.gather(offsets, lengths) for file, offsets, lengths in self._by_file(start, stop)]
        data = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
        return data.view(column.dtype).reshape(stop - start, *column.shape)

    def hint(self, start: int, stop: int) -> None:
        """Have the device of this machine begin with rows that are read next."""
        for file, offsets, lengths in self._by_file(start, stop):
            if type(file) is File:
                file.hint(offsets, lengths)

    def take(self, rows: IntArray) -> npt.NDArray[Any]:
        """Read scattered rows in the order asked for, each straight to its place."""
        return self._kept.take(rows, lambda some, _: self._read_rows(some))

    def _read_rows(self, rows: IntArray) -> npt.NDArray[Any]:
        column, width = self._column, self._column.width
        data = np.empty(len(rows) * width, np.uint8)
        pieces = np.searchsorted(column.starts, rows, side="right") - 1
        files, offsets = column.files[pieces], column.offsets[pieces] + (rows - column.starts[pieces]) * width
        for file, at in places_of(files) if len(self._files) > 1 else [(0, np.arange(len(rows)))]:
            self._files[file].gather(offsets[at], np.full(len(at), width), data, at * width)
        return data.view(column.dtype).reshape(len(rows), *column.shape)

    def _by_file(self, start: int, stop: int) -> Iterator[tuple[File, IntArray, IntArray]]:
        """Yield the files of a run of rows, each with offset and length of its requests."""
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
        counts = -(-lengths // REQUEST)
        inside = REQUEST * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
        lengths = np.minimum(np.repeat(lengths, counts) - inside, REQUEST)
        return np.repeat(column.files[first:last], counts), np.repeat(offsets, counts) + inside, lengths
