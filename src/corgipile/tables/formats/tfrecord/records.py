"""Random access to the checked records of a TFRecord file."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.formats.tfrecord.index import FRAME, REASONS, check_places, open_records, place
from corgipile.tables.io.entries import Entries
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.remote import file_of
from corgipile.tables.memory import MemoryTable
from corgipile.tables.spans import flat
from corgipile.tables.table import LIMIT, IntArray


class Records(NamedTuple):
    """The data of records.

    Attributes:
        data: uint8, all records back to back.
        ends: int64[rows + 1], record i is ``data[ends[i]:ends[i + 1]]``.
    """

    data: npt.NDArray[np.uint8]
    ends: IntArray

    def array(self) -> pa.Array:
        """Return the records as a binary array without a copy."""
        return binary_array(self.data, self.ends)


class RecordFile:
    """Reads records by number; thread-safe, and not rescanned when unpickled.

    Args:
        path: The file.
        index: The text index, None to search for one.
        on_bad: "raise" or "skip".

    Attributes:
        file: The file.
        skipped: Number of bad records, which are not rows.
    """

    def __init__(self, path: PathLike, index: PathLike | None, on_bad: str) -> None:
        self.file = file_of(path)
        self._index, self.skipped = open_records(self.file, index, on_bad)
        self._entries = Entries(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def run(self, start: int, stop: int) -> Records:
        """Read a run of records, at least one, in one call."""
        starts, sizes = self._checked_places(*map(flat, self._index.read(start, stop).columns))
        data = self.file.read(int(starts[0]), int(starts[-1] + sizes[-1] - starts[0]))
        return self._checked_records(data, starts - starts[0], sizes, np.arange(start, stop))

    def pick(self, rows: IntArray) -> Records:
        """Read scattered ascending records, concurrently where the device is slow."""
        starts, sizes = self._checked_places(*self._entries.take(rows, self._index.schema.names))
        return self._checked_records(self.file.gather(starts, sizes), np.cumsum(sizes) - sizes, sizes, rows)

    def place(self, row: int) -> str:
        """Return a record's file, number and position for an error message."""
        return place(self.file, row, self._index.read(row, row + 1).column(0)[0].as_py())

    def remove_records(self, rows: IntArray) -> None:
        """Remove records; the numbers of later ones decrease."""
        if len(rows):
            good = np.delete(np.arange(len(self)), rows)
            self._index = MemoryTable(pa.Table.from_batches([self._index.take(good)]))
            self._entries = Entries(self._index)
            self.skipped += len(rows)

    def sizes(self, rows: IntArray) -> IntArray:
        """Return the bytes of records, in any order."""
        return self._entries.take(rows, self._index.schema.names[1:])[0] - FRAME

    def _checked_places(self, starts: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
        check_places(self.file, starts, sizes)
        return starts, sizes

    def _checked_records(
        self, data: "bytes | npt.NDArray[np.uint8]", at: IntArray, sizes: IntArray, rows: IntArray
    ) -> Records:
        """Check and pack records at positions ``at`` of the bytes."""
        records, bad = pack(data, at, sizes)
        if bad is not None:
            raise CorruptFile(f"{self.place(int(rows[bad[0]]))}: {REASONS[bad[1]]}")
        return records


def pack(
    data: "bytes | npt.NDArray[np.uint8]", starts: IntArray, sizes: IntArray
) -> tuple[Records, tuple[int, int] | None]:
    """Pack the data of records at these positions; return also number and reason of the first bad one."""
    total = int(sizes.sum()) - FRAME * len(sizes)
    if total >= LIMIT:
        raise BadArgument(f"{len(sizes)} rows do not fit one record batch: {total} bytes; read fewer rows")
    records = Records(np.empty(total, np.uint8), np.empty(len(sizes) + 1, np.int64))
    return records, _kernel.tfrecord_pack(data, starts, sizes, *records)


def binary_array(data: npt.NDArray[np.uint8], ends: IntArray) -> pa.Array:
    """Return contiguous values as a binary array without a copy."""
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)], 0)
