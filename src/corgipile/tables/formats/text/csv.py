"""CSV and TSV text."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow

from corgipile import _kernel
from corgipile.errors import BadArgument, ParseError, UnknownFormat
from corgipile.tables.formats.text.fields import Slots, number_code, parts_numbers, read_numbers
from corgipile.tables.formats.text.guess import csv_columns
from corgipile.tables.formats.text.lines import Lines
from corgipile.tables.formats.text.table import TextTable, one_batch, text_format
from corgipile.tables.formats.text.types import Types, exact, not_utf8
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.pieces import check_names
from corgipile.tables.io.remote import file_of
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "NULLS", "SUFFIXES", "CsvTable"]

SUFFIXES = (".csv", ".tsv")
HEAD_BYTES = 1 << 20  # bytes that decide delimiter and header
MIN_THREADED_BYTES = 1 << 20  # bytes of text from which on pyarrow parses columns in threads
NULLS = {"strings_can_be_null": True, "quoted_strings_can_be_null": False}  # pyarrow: an empty unquoted cell is null
_COLUMN = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (\S+): invalid value '(.*)'", re.DOTALL
)


class CsvTable(TextTable):
    r"""Reads CSV or TSV text, quoted as in RFC 4180, with random access to rows.

    The first opening scans the whole file, checks that all rows have the same number of fields, and stores an index
    next to it, ``NAME.corgipile-index.arrow``. Types are inferred from a sample: all of a text of up to 4 MB, else 16
    stretches. A value that does not fit its column's type raises an error when it is read.

    Args:
        path: The file, not compressed.
        header: Whether the first line has names; ``"auto"``: unless all its fields are numbers.
        delimiter: Field delimiter; None: the first of tab, comma, semicolon and space in the first line.
        types: Arrow types, or their names (``"float32"``), by column; the others are inferred.
        sure: Whether the caller requested CSV, which then may have one column.

    Raises:
        UnknownFormat: The file may not be CSV.
        ParseError: A line has another number of fields than the first, or a value does not fit.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(f"{folder}/a.csv").write_text('x;label\n0.5;"a; b"\n1;"two\nlines"\n')
        ...     CsvTable(f"{folder}/a.csv").read(1, 2).to_pylist()
        [{'x': 1.0, 'label': 'two\nlines'}]
    """

    def __init__(
        self,
        path: PathLike,
        *,
        header: bool | Literal["auto"] = "auto",
        delimiter: str | None = None,
        types: Types | None = None,
        sure: bool = False,
    ) -> None:
        if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n\0'):
            raise BadArgument(
                f"delimiter must be one character, such as ',', and no quote or line end, got {delimiter!r}"
            )
        if header not in (True, False, "auto"):
            raise BadArgument(f"header must be True, False or 'auto', got {header!r}")
        file = file_of(path)
        head = file.read(0, min(HEAD_BYTES, file.size))
        if b"\0" in head:
            raise UnknownFormat(f"{file.path} has zero bytes, which UTF-8 text must not have; convert UTF-16 to UTF-8")
        whole = len(head) == file.size
        self._mark, self._header = csv_columns(file.path, head, header, whole=whole, mark=delimiter, sure=sure)
        lines = Lines(file, self._mark, int(self._header))
        self._names = _names(file, lines.top(), self._mark, header=self._header)
        check_names(pa.schema([(name, pa.null()) for name in self._names]), file.path)
        super().__init__(lines, types, self._names)

    def _parse(self, text: memoryview, rows: int, names: Sequence[str]) -> pa.RecordBatch:
        found = self._numbers(text, rows, names)
        remaining = [name for name in dict.fromkeys(names) if name not in found]
        if remaining:
            batch = self._read(text, {name: self.schema.field(name).type for name in remaining}, remaining)
            if batch.num_rows != rows:
                return batch
            found |= zip(remaining, batch.columns, strict=True)
        return pa.RecordBatch.from_arrays([found[name] for name in names], list(names))

    def _numbers(self, text: memoryview, rows: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Read numeric columns by the kernel; skip those with doubtful values, which pyarrow parses or reports."""
        kinds = {name: kind for name in names if number_code(kind := self.schema.field(name).type) >= 0}
        if not kinds or not self.has_numbers:
            return {}
        found = read_numbers(text, rows, self._mark, [kinds.get(name) for name in self._names])
        return {name: array for name, array in zip(self._names, found, strict=True) if array is not None}

    @property
    def has_numbers(self) -> bool:
        """Return whether the kernel can read numbers with this delimiter."""
        return parts_numbers(self._mark)

    def put(self, runs: IntArray, into: npt.NDArray[np.int32], slots: list[Slots | None]) -> int | None:
        """Read numbers of runs of rows into slots.

        Args:
            runs: int64[k, 2], first row, and row after the last, of each run.
            into: The slot of each row, -1 for none.
            slots: Destination of each field, None to skip it.

        Returns:
            The bytes read; None if a value may not be a number, which `read` then reports.
        """
        text = self._lines.text(runs)
        nulls = _kernel.fields_read(text, len(into), ord(self._mark), into, slots)
        return len(text) if nulls is not None and min(nulls) >= 0 else None

    def _look(self, text: memoryview, rows: int) -> pa.RecordBatch:
        batch = self._read(text, {}, self._names)
        kinds = exact(batch, lambda name, kind: self._read(text, {name: kind}, [name]), self.declared)
        return self._read(text, kinds, self._names) if kinds else batch

    def _read(self, text: memoryview, types: Mapping[str, pa.DataType], names: Sequence[str]) -> pa.RecordBatch:
        threaded = len(text) >= MIN_THREADED_BYTES and bool(types)  # inference by threads takes more memory
        options = (
            arrow.ReadOptions(use_threads=threaded, block_size=len(text) + 1, column_names=self._names),
            arrow.ParseOptions(delimiter=self._mark, newlines_in_values=True),
            arrow.ConvertOptions(column_types=types, include_columns=list(names), **NULLS),
        )
        try:  # for little text another thread costs more than it saves
            data = pa.BufferReader(text)
            table = arrow.read_csv(data, *options) if threaded else arrow.open_csv(data, *options).read_all()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ParseError(self._reason(str(error))) from None
        return one_batch(table)

    def _reason(self, message: str) -> str:
        """Return a pyarrow error in terms of the table."""
        if bad := re.search(r"In CSV column #(\d+): .*invalid UTF8", message):
            return not_utf8(self._names[int(bad[1])], "text")
        found = _COLUMN.search(message)
        if found is None:
            return message.splitlines()[0]
        name = self._names[int(found[1])]
        return (
            f"column {name!r} must be {found[2]} as in the sampled rows, got {found[3][:40]!r}; "
            f"set another type, for example types={{{name!r}: 'string'}}"
        )


def _names(file: File, line: bytes, mark: str, *, header: bool) -> list[str]:
    """Return the column names from the header, else f0, f1, ... as in `convert`."""
    try:
        text = line.decode("utf-8" if header else "latin-1")
    except UnicodeDecodeError as error:
        raise ParseError(f"{file.path}, line 1 must be UTF-8, got {error.reason} at byte {error.start}") from None
    fields = next(csv.reader(io.StringIO(text, newline=""), delimiter=mark), [])
    return fields if header else [f"f{number}" for number in range(len(fields))]


FORMAT = text_format(SUFFIXES, CsvTable, "delimiter", "header", "types")
