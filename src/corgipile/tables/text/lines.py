"""Rows that are lines of text, found by an index of where they begin, kept beside the file."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import CorruptFile, ParseError, TableError
from corgipile.tables.arrow.spans import array_of, flat
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import open_index
from corgipile.tables.io.unpacking import check_line
from corgipile.tables.table import IntArray

__all__ = ["Lines"]

CHUNK, ROOM = 1 << 20, 1 << 16  # bytes read at a time, and rows that they may have
FULL, FIELDS, SHAPE, OPEN = 1, 2, 3, 4  # codes of kernel/formats/lines.h
BOM = b"\xef\xbb\xbf"
Parse = Callable[[memoryview, int], pa.RecordBatch]  # of text, and how many rows it has


class _Scanned(NamedTuple):
    """What the kernel says of a piece of text; see ``cp_lines`` in kernel/formats/lines.h."""

    consumed: int
    rows: int
    fields: int
    code: int
    at: int
    got: int


class Lines:
    """Finds and reads rows of text by number.

    Args:
        file: The text.
        mark: What parts fields; empty for lines of JSON.
        header: Rows at the top that are none.

    Raises:
        ParseError: A row has another number of fields than those before, or is not JSON.
    """

    def __init__(self, file: File, mark: str, header: int = 0) -> None:
        self.file, self._header = file, header
        # Another mark finds other rows: the index says by its column which it was made for.
        schema = pa.schema([(f"start {ord(mark)}" if mark else "start", pa.int64())])
        self._index, _ = open_index(file, schema, (), lambda _: _scan(file.scanned(), mark, schema))

    def __len__(self) -> int:
        return max(0, len(self._index) - self._header)

    def top(self) -> bytes:
        """Return the first row of the file, whether it counts or not."""
        stop = self._places(0, 2)[1] if len(self._index) > 1 else self.file.size
        start = int(self._places(0, 1)[0])
        return self.file.read(start, int(stop) - start)

    def places(self, start: int, stop: int) -> IntArray:
        """Return where rows begin, and where the last ends."""
        first, last = start + self._header, stop + self._header
        ended = last == len(self._index)
        begins = self._places(first, last if ended else last + 1)
        return np.append(begins, self.file.size) if ended else begins

    def run(self, start: int, stop: int, parse: Parse) -> pa.RecordBatch:
        """Read and parse one run of rows, at least one."""
        places = self.places(start, stop)
        data = self.file.read(int(places[0]), int(places[-1] - places[0]))
        return self._parsed(memoryview(data), places - places[0], np.arange(start, stop), parse)

    def text(self, runs: IntArray) -> npt.NDArray[np.uint8]:
        """Return the text of runs of rows, one after the other: each ends with a line end, which the file may lack."""
        places = self._starts(runs.ravel() + self._header).reshape(runs.shape)
        lengths = places[:, 1] - places[:, 0]
        self._check(lengths)
        ends = np.cumsum(lengths + 1)
        text = np.empty(int(ends[-1]), np.uint8)
        text[ends - 1] = ord("\n")
        return self.file.gather(places[:, 0], lengths, text, ends - 1 - lengths)

    def pick(self, rows: IntArray, parse: Parse) -> pa.RecordBatch:
        """Read and parse scattered rows, ascending: neighbours are read together."""
        both = self._starts(np.append(rows, rows + 1) + self._header)
        begins, ends = both[: len(rows)], both[len(rows) :]
        lengths = ends - begins
        self._check(lengths)
        data = self.file.gather(begins, lengths)
        return self._parsed(data.data, np.append(0, np.cumsum(lengths)), rows, parse)

    def _places(self, start: int, stop: int) -> IntArray:
        return np.asarray(flat(self._index.read(start, stop).column(0)))

    def _starts(self, rows: IntArray) -> IntArray:
        """Return where scattered rows of the file begin; of the row after the last, where it ends."""
        known = np.minimum(rows, len(self._index) - 1)
        found = flat(self._index.take(known).column(0))
        return np.where(rows == len(self._index), self.file.size, found)

    def _check(self, lengths: npt.NDArray[np.int64]) -> None:
        if (lengths <= 0).any():
            raise self._changed()

    def _parsed(self, text: memoryview, places: IntArray, rows: IntArray, parse: Parse) -> pa.RecordBatch:
        self._check(np.diff(places))
        try:
            batch = parse(text, len(rows))
        except TableError as reason:
            at = _first_bad(text, places, parse)
            raise type(reason)(
                f"{self.file.path}, line {self.line(int(rows[at]))}: {_reason(text, places, at, parse)}"
            ) from None
        if batch.num_rows != len(rows):
            raise self._changed()
        return batch

    def line(self, row: int) -> int:
        """Return the number of the line with which a row begins, from 1."""
        return _line_of(self.file, int(self.places(row, row + 1)[0]))

    def _changed(self) -> CorruptFile:
        return CorruptFile(f"{self.file.path} or its index changed after it was opened; open it again")


def _first_bad(text: memoryview, places: IntArray, parse: Parse) -> int:
    """Find the first row that does not parse: those before a place do, one of those up to another does not."""
    low, high = 0, len(places) - 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(text[places[low] : places[middle]], middle - low)
            low = middle
        except TableError:
            high = middle
    return low


def _reason(text: memoryview, places: Sequence[int] | IntArray, at: int, parse: Parse) -> str:
    try:
        parse(text[places[at] : places[at + 1]], 1)
    except TableError as reason:
        return str(reason)
    return "does not parse"


def _line_of(file: File, at: int) -> int:
    parts = (file.read(start, min(CHUNK, at - start)) for start in range(0, at, CHUNK))
    return 1 + sum(part.count(b"\n") or part.count(b"\r") for part in parts)


def _scan(file: File, mark: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    starts, fields, text = np.empty(ROOM, np.int64), 0, np.empty(CHUNK, np.uint8)
    at = len(BOM) if file.size >= len(BOM) and file.read(0, len(BOM)) == BOM else 0
    while at < file.size:
        size = min(len(text), file.size - at)
        data = file.gather(np.array([at]), np.array([size]), text)[:size]  # into memory that is used again
        final = at + size == file.size
        found = _Scanned(*_kernel.lines_scan(data, final, ord(mark or "\0"), ord('"') if mark else 0, fields, starts))
        if found.rows:
            yield pa.record_batch([array_of(starts[: found.rows] + at)], schema=schema)
        if found.code > FULL:
            raise _error(file, found, at + found.at, mark)
        fields = found.fields
        if not found.consumed:  # a row longer than a chunk: reading ever more keeps the cost linear
            check_line(size, f"{file.path}, line {_line_of(file, at)}")
            text = np.empty(2 * len(text), np.uint8)
        at += found.consumed


def _error(file: File, found: _Scanned, at: int, mark: str) -> ParseError:
    shown = file.read(at, min(40, file.size - at)).partition(b"\n")[0].decode("utf-8", "replace")
    reason = {
        FIELDS: f"{found.got} fields, where the first has {found.fields} (parted by {mark!r})",
        SHAPE: "an object in braces is needed on each line",
        OPEN: "a quoted field begins here, or before, and does not end",
    }[found.code]
    return ParseError(f"{file.path}, line {_line_of(file, at)}: {reason}; it begins with {shown!r}")
