"""Columns of text that are numbers but for some cells: which cell it is, and what makes numbers of the column."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BudgetTooSmall
from corgipile.tables.concat import ConcatTable
from corgipile.tables.encoded import SMALL, is_encoded
from corgipile.tables.io.remote import is_remote
from corgipile.tables.parquet import ParquetTable
from corgipile.tables.partitions import Partition
from corgipile.tables.read_once import ReadOnce
from corgipile.tables.row_place import row_place
from corgipile.tables.table import Table, is_text, row_sizes
from corgipile.tables.text.guess import is_number
from corgipile.tables.text.table import TextTable
from corgipile.tables.unit_check import check_decoding
from corgipile.tables.values import as_type, value_type, values
from corgipile.tables.views import Columns

__all__ = ["nearly_numbers"]

FIRST, EACH, MOST = 16, 256, 4096  # rows looked at before text that may be long is given up, then at a time, and in all
SHARE = 0.9  # of the cells, from which on they are nearly all; half, where all others say the same
_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\s*")
_CODE = re.compile(r"\s*0\d+\s*")  # a number that is written so is none


@dataclass
class _Seen:
    """What the cells of a column are.

    Attributes:
        cells: How many are not empty.
        numbers: How many are numbers.
        commas: How many are numbers with a comma.
        thousands: How many of these may be numbers with commas between thousands.
        codes: Whether one begins with a 0 that numbers do not.
        points: How many numbers have a point.
        first: The row and the text of the first that is no number, and of the first with a comma.
        values: What cells say that are numbers; some of it.
        others: What cells say that are none; some of it.
    """

    cells: int = 0
    numbers: int = 0
    commas: int = 0
    thousands: int = 0
    codes: bool = False
    points: int = 0
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def add(self, row: int, cell: str) -> None:
        self.cells += 1
        if is_number(cell):
            self.numbers += 1
            self.points += "." in cell
            self.codes |= _CODE.fullmatch(cell) is not None
            if len(self.values) < 3:
                self.values.add(cell)
            return
        thousands = _THOUSANDS.fullmatch(cell) is not None
        if thousands or _COMMA.fullmatch(cell):
            self.commas += 1
            self.thousands += thousands
            self.first.setdefault("comma", (row, cell))
        self.first.setdefault("other", (row, cell))
        if len(self.others) < 2:
            self.others.add(cell)

    @property
    def hopeless(self) -> bool:
        return 2 * (self.numbers + self.commas) < self.cells

    @property
    def nearly(self) -> bool:
        alike = len(self.others) == 1 and len(self.values) > 2
        enough = self.cells / 2 if alike else SHARE * self.cells
        return not self.codes and 0 < enough <= self.numbers

    @property
    def measured(self) -> bool:
        """Say whether these are no numbers of things, but measures, which nobody writes as text on purpose."""
        return 2 * self.points >= self.cells

    @property
    def with_commas(self) -> bool:
        return self.commas > 0 and self.numbers + self.commas >= SHARE * self.cells


def nearly_numbers(table: Table, names: Sequence[str]) -> dict[str, str]:
    """Say of columns of text of which nearly all cells are numbers what is wrong with them, by their first rows.

    Nothing is said of columns that are text because the caller says so, nor of rows that would have to be sent, or of
    which much would have to be decoded, for this alone.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> found = nearly_numbers(open(pa.table({"x": ["1", "2.5", "3", "?"], "t": ["a", "b", "c", "d"]})), ["x", "t"])
        >>> found["x"].partition(";")[0]
        "3 of its first 4 cells are numbers, but '?' (row 3) is none"
    """
    parts = list(_texts(table))
    said = {name for text in parts for name in text.said}
    asked = [name for name in names if is_text(value_type(table.schema.field(name).type)) and name not in said]
    if not asked or is_remote(table):
        return {}
    asked = [name for name in asked if _is_short(table, name)]
    found = {}
    for name, seen in _looked(table, asked).items():
        if seen.nearly and (seen.first or parts):  # text that is all numbers is meant as text, but for a guess of ours
            found[name] = f"{_what(table, seen)}; {_cure(name, parsed=bool(parts))}"
        elif seen.nearly and seen.measured:
            found[name] = (
                f"its first {seen.cells:,} cells are numbers; corgipile convert OLD NEW --types {name}=double "
                "makes them so"
            )
        elif seen.with_commas:
            found[name] = _with_comma(table, seen)
    return found


def _is_short(table: Table, name: str) -> bool:
    """Return whether the first rows of a column take little memory."""
    first = row_sizes(table, np.arange(min(FIRST, len(table))), [name])
    if first is not None and int(first.sum()) > SMALL:
        return False
    try:
        check_decoding(table, [name], SMALL)
    except BudgetTooSmall:
        return False
    return True


def _with_comma(table: Table, seen: _Seen) -> str:
    row, cell = seen.first["comma"]
    such = f"such as {cell!r} ({row_place(table, row) or f'row {row}'})"
    if seen.thousands == seen.commas:
        how = "thousands=',' reads them, or decimal=',' where it is a decimal one"
        return f"its cells are numbers with a comma, {such}: of pandas.read_csv, {how}; corgipile.open takes the frame"
    how = "pandas.read_csv(..., decimal=',') reads them, and corgipile.open takes the frame"
    return f"its cells are numbers with a decimal comma, {such}; numbers have a point: {how}"


def _looked(table: Table, names: list[str]) -> dict[str, _Seen]:
    """Look at the first rows of columns: of encoded ones at one after another, which takes little memory."""
    plain = [name for name in names if not is_encoded(table, [name])]
    seen, stored = _read(table, plain), next(_parquet(table, names), None)
    for name in names:
        if name not in seen and stored is not None:
            seen[name] = _seen_of(stored, name)
        elif name not in seen and table.units([name]).nbytes <= SMALL:  # type: ignore[attr-defined]
            seen |= _read(table, [name])
    return {name: seen[name] for name in names if name in seen}


def _read(table: Table, names: list[str]) -> dict[str, _Seen]:
    seen, going, start = {name: _Seen() for name in names}, names, 0
    while going and start < min(len(table), MOST):
        stop = min(start + (EACH if start else FIRST), len(table), MOST)
        batch = values(table.read(start, stop, going))
        for name in going:
            _look(seen[name], batch.column(name), start)
        going, start = [name for name in going if not seen[name].hopeless], stop
    return seen


def _look(seen: _Seen, column: pa.Array, start: int) -> None:
    for row, cell in enumerate(column.to_pylist(), start):
        if cell is not None and cell.strip():
            seen.add(row, cell)


def _seen_of(table: ParquetTable, name: str) -> _Seen:
    """Look at a column of a file that is decoded page by page."""
    seen, start = _Seen(), 0
    for column in table.head(name, EACH):
        _look(seen, as_type(column, value_type(column.type)), start)
        start += len(column)
        if start >= MOST or seen.hopeless:
            break
    return seen


def _parquet(table: Any, names: list[str]) -> Iterator[ParquetTable]:
    """Yield the file that the first rows are in, if it is Parquet and has the columns as they are here."""
    while isinstance(table, ReadOnce | Partition | Columns | ConcatTable):
        parts = [part for part in table.tables if len(part)] if isinstance(table, ConcatTable) else [table.table]
        table = parts[0] if parts else None
    if isinstance(table, ParquetTable) and {*names} <= {*table.schema.names}:
        yield table


def _what(table: Table, seen: _Seen) -> str:
    if not seen.first:
        return f"its first {seen.cells:,} cells are numbers; one further on is none"
    row, cell = seen.first["other"]
    where = f"{cell[:40]!r} ({row_place(table, row) or f'row {row}'})"
    return f"{seen.numbers:,} of its first {seen.cells:,} cells are numbers, but {where} is none"


def _cure(name: str, *, parsed: bool) -> str:
    missing = "for which missing='mean' stands"
    if parsed:
        return (
            f"types={{{name!r}: 'float64'}} of corgipile.open and convert (--types) makes such a cell an error that "
            f"names it; an empty one is a missing value, {missing}"
        )
    return f"pandas.to_numeric(..., errors='coerce') makes missing values of such cells, {missing}"


def _texts(table: Any) -> Iterator[TextTable]:
    """Yield the texts that rows are parsed from, beneath whatever wraps them."""
    if isinstance(table, TextTable):
        yield table
    for inner in table.tables if isinstance(table, ConcatTable) else [getattr(table, "table", None)]:
        if inner is not None:
            yield from _texts(inner)
