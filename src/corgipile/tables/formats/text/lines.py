"""Random access to lines of text by a stored index of line starts."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import CorruptFile, ParseError, TableError
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import open_index
from corgipile.tables.io.unpacking import check_line
from corgipile.tables.spans import array_of, flat
from corgipile.tables.table import IntArray

__all__ = ["Lines"]

RUN_BYTES = 2 << 20  # bytes within which rows parsed at a time begin; a longer row is parsed alone
CHUNK_BYTES, MAX_CHUNK_ROWS = 1 << 20, 1 << 16  # bytes, and rows, scanned at a time
FULL, FIELDS, SHAPE, OPEN = 1, 2, 3, 4  # codes of kernel/formats/lines.h
BOM = b"\xef\xbb\xbf"
Parse = Callable[[memoryview, int], pa.RecordBatch]  # parses text with a number of rows


class _Scanned(NamedTuple):
    """The kernel's result of scanning a piece of text; see ``cp_lines`` in kernel/formats/lines.h."""

    consumed: int
    rows: int
    fields: int
    code: int
    at: int
    got: int


class Lines:
    """Reads rows of text by number.

    Args:
        file: The text.
        mark: Field delimiter; empty for JSON lines.
        header: Number of header rows.

    Raises:
        ParseError: A row has another number of fields than those before, or is not a JSON object.
    """

    def __init__(self, file: File, mark: str, header: int = 0) -> None:
        self.file, self._header = file, header
        # Rows depend on the delimiter, so the index's column is named after it.
        schema = pa.schema([(f"start {ord(mark)}" if mark else "start", pa.int64())])
        self._index, _ = open_index(file, schema, (), lambda _: _scan(file.scanned(), mark, schema))

    def __len__(self) -> int:
        return max(0, len(self._index) - self._header)

    def top(self) -> bytes:
        """Return the first row of the file, header or not."""
        stop = self._starts_of_run(0, 2)[1] if len(self._index) > 1 else self.file.size
        start = int(self._starts_of_run(0, 1)[0])
        return self.file.read(start, int(stop) - start)

    def places(self, start: int, stop: int) -> IntArray:
        """Return the starts of rows, then the end of the last."""
        first, last = start + self._header, stop + self._header
        at_end = last == len(self._index)
        begins = self._starts_of_run(first, last if at_end else last + 1)
        return np.append(begins, self.file.size) if at_end else begins

    def run(self, start: int, stop: int, parse: Parse) -> Iterator[pa.RecordBatch]:
        """Read and parse a run of rows, at least one; long rows are parsed one by one."""
        places = self.places(start, stop)
        for at, end in pairwise(_cuts(places - places[0])):
            part = places[at : end + 1]
            data = self.file.read(int(part[0]), int(part[-1] - part[0]))
            yield self._parse(memoryview(data), part - part[0], np.arange(start + at, start + end), parse)

    def text(self, runs: IntArray) -> npt.NDArray[np.uint8]:
        """Return the text of runs of rows, each ended by a newline even if the file lacks it."""
        places = self._starts(runs.ravel() + self._header).reshape(runs.shape)
        lengths = places[:, 1] - places[:, 0]
        self._check(lengths)
        ends = np.cumsum(lengths + 1)
        text = np.empty(int(ends[-1]), np.uint8)
        text[ends - 1] = ord("\n")
        return self.file.gather(places[:, 0], lengths, text, ends - 1 - lengths)

    def pick(self, rows: IntArray, parse: Parse) -> Iterator[pa.RecordBatch]:
        """Read and parse scattered ascending rows; neighbours are read together, long rows one by one."""
        both = self._starts(np.append(rows, rows + 1) + self._header)
        begins, lengths = both[: len(rows)], both[len(rows) :] - both[: len(rows)]
        self._check(lengths)
        for at, end in pairwise(_cuts(np.append(0, np.cumsum(lengths)))):
            data = self.file.gather(begins[at:end], lengths[at:end])
            yield self._parse(data.data, np.append(0, np.cumsum(lengths[at:end])), rows[at:end], parse)

    def _starts_of_run(self, start: int, stop: int) -> IntArray:
        return np.asarray(flat(self._index.read(start, stop).column(0)))

    def _starts(self, rows: IntArray) -> IntArray:
        """Return the starts of scattered rows; the row after the last starts at the end of the file."""
        known = np.minimum(rows, len(self._index) - 1)
        starts = flat(self._index.take(known).column(0))
        return np.where(rows == len(self._index), self.file.size, starts)

    def _check(self, lengths: npt.NDArray[np.int64]) -> None:
        if (lengths <= 0).any():
            raise self._changed_error()

    def _parse(self, text: memoryview, places: IntArray, rows: IntArray, parse: Parse) -> pa.RecordBatch:
        self._check(np.diff(places))
        try:
            batch = parse(text, len(rows))
        except TableError as reason:
            at = _first_bad(text, places, parse)
            raise type(reason)(
                f"{self.file.path}, line {self.line(int(rows[at]))}: {_reason(text, places, at, parse)}"
            ) from None
        if batch.num_rows != len(rows):
            raise self._changed_error()
        return batch

    def line(self, row: int) -> int:
        """Return the line number of a row's start, from 1."""
        return _line_of(self.file, int(self.places(row, row + 1)[0]))

    def _changed_error(self) -> CorruptFile:
        return CorruptFile(f"{self.file.path} or its index changed after it was opened; open it again")


def _cuts(places: IntArray) -> list[int]:
    """Cut rows at these bytes into groups that begin within `RUN_BYTES` bytes; a longer row stands alone."""
    long = np.diff(places) > RUN_BYTES
    cuts = (np.diff(places[:-1] // RUN_BYTES) > 0) | long[1:] | long[:-1]
    return [0, *(np.flatnonzero(cuts) + 1).tolist(), len(long)]


def _first_bad(text: memoryview, places: IntArray, parse: Parse) -> int:
    """Return the first row that does not parse, by bisection."""
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
    parts = (file.read(start, min(CHUNK_BYTES, at - start)) for start in range(0, at, CHUNK_BYTES))
    return 1 + sum(part.count(b"\n") or part.count(b"\r") for part in parts)


def _scan(file: File, mark: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    starts, fields, text = np.empty(MAX_CHUNK_ROWS, np.int64), 0, np.empty(CHUNK_BYTES, np.uint8)
    at = len(BOM) if file.size >= len(BOM) and file.read(0, len(BOM)) == BOM else 0
    while at < file.size:
        size = min(len(text), file.size - at)
        data = file.gather(np.array([at]), np.array([size]), text)[:size]  # reuses the buffer
        final = at + size == file.size
        found = _Scanned(*_kernel.lines_scan(data, final, ord(mark or "\0"), ord('"') if mark else 0, fields, starts))
        if found.rows:
            yield pa.record_batch([array_of(starts[: found.rows] + at)], schema=schema)
        if found.code > FULL:
            raise _error(file, found, at + found.at, mark)
        fields = found.fields
        if not found.consumed:  # a row longer than the chunk: doubling keeps the cost linear
            check_line(size, f"{file.path}, line {_line_of(file, at)}")
            text = np.empty(2 * len(text), np.uint8)
        at += found.consumed


def _error(file: File, found: _Scanned, at: int, mark: str) -> ParseError:
    shown = file.read(at, min(40, file.size - at)).partition(b"\n")[0].decode("utf-8", "replace")
    reason = {
        FIELDS: f"each row must have {found.fields} fields separated by {mark!r}, got {found.got}",
        SHAPE: "each line must be an object in braces",
        OPEN: "a quoted field that begins here or before does not end",
    }[found.code]
    return ParseError(f"{file.path}, line {_line_of(file, at)}: {reason}; it begins with {shown!r}")
