"""Explains why almost-numeric text columns were not parsed as numbers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BudgetTooSmall
from corgipile.tables.concat import ConcatTable
from corgipile.tables.encoded import SMALL
from corgipile.tables.formats.parquet.table import ParquetTable
from corgipile.tables.formats.text.guess import is_number
from corgipile.tables.formats.text.table import TextTable
from corgipile.tables.io.remote import is_remote
from corgipile.tables.partitions import Partition
from corgipile.tables.read_once import ReadOnce
from corgipile.tables.row_place import row_place
from corgipile.tables.table import Table, is_text
from corgipile.tables.unit_check import check_decoding
from corgipile.tables.values import as_type, value_type, values
from corgipile.tables.views import Columns

__all__ = ["explain_text_columns"]

FIRST_ROWS, STEP_ROWS, MAX_ROWS = 16, 256, 4096  # rows read first, since text may be long; then at a time; in all
MIN_SHARE = 0.9  # of cells that are numbers; half if all others are equal
_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\s*")
_CODE = re.compile(r"\s*0\d+\s*")  # leading zeros mark a code, not a number


@dataclass
class _CellCounts:
    """Counts of a column's cells that are not empty; ``thousands`` are commas that may separate thousands.

    ``first`` is row and text of the first cell that is not a number ("other"), and of the first with a comma.
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
        enough = self.cells / 2 if alike else MIN_SHARE * self.cells
        return not self.codes and 0 < enough <= self.numbers

    @property
    def measured(self) -> bool:
        """Return whether these are measurements, which are not text on purpose, rather than identifiers."""
        return 2 * self.points >= self.cells

    @property
    def with_commas(self) -> bool:
        return self.commas > 0 and self.numbers + self.commas >= MIN_SHARE * self.cells


def explain_text_columns(table: Table, names: Sequence[str]) -> dict[str, str]:
    """Explain, by their first rows, why text columns whose cells are nearly all numbers are not numeric.

    Columns that the caller declared as text are ignored, and so are tables where this alone would need remote requests
    or much decoding.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"x": ["1", "2.5", "3", "?"], "t": ["a", "b", "c", "d"]}))
        >>> found = explain_text_columns(table, ["x", "t"])
        >>> found["x"].partition(";")[0]
        "3 of its first 4 cells are numbers, but '?' (row 3) is not"
    """
    parts = list(_text_tables(table))
    declared = {name for text in parts for name in text.declared}
    texts = [name for name in names if is_text(value_type(table.schema.field(name).type)) and name not in declared]
    if not texts or is_remote(table):
        return {}
    texts = [name for name in texts if _is_short(table, name)]
    found = {}
    for name, seen in _count_cells(table, texts).items():
        if seen.nearly and (seen.first or parts):  # all-numeric text is intended, unless corgipile guessed it
            found[name] = f"{_describe(table, seen)}; {_remedy(name, parsed=bool(parts))}"
        elif seen.nearly and seen.measured:
            how = f"corgipile convert OLD NEW --types {name}=double"
            found[name] = f"its first {seen.cells:,} cells are numbers; to convert them use {how}"
        elif seen.with_commas:
            found[name] = _with_comma(table, seen)
    return found


def _is_short(table: Table, name: str) -> bool:
    """Return whether the first rows of a column take little memory."""
    first = table.row_sizes(np.arange(min(FIRST_ROWS, len(table))), [name])
    if first is not None and int(first.sum()) > SMALL:
        return False
    try:
        check_decoding(table, [name], SMALL)
    except BudgetTooSmall:
        return False
    return True


def _with_comma(table: Table, seen: _CellCounts) -> str:
    row, cell = seen.first["comma"]
    example = f"such as {cell!r} ({row_place(table, row) or f'row {row}'})"
    if seen.thousands == seen.commas:
        remedy = "thousands=',' or, for decimal commas, decimal=','"
        return f"its cells are numbers with a comma, {example}: use pandas.read_csv({remedy}), then corgipile.open"
    remedy = "use pandas.read_csv(..., decimal=','), then corgipile.open"
    return f"its cells are numbers with a decimal comma, {example}, not a point: {remedy}"


def _count_cells(table: Table, names: list[str]) -> dict[str, _CellCounts]:
    """Count the cells of columns' first rows; encoded columns are read one after another to save memory."""
    units_of = {name: table.units([name]) for name in names}
    plain = [name for name, units in units_of.items() if units is None]
    seen, stored = _read(table, plain), next(_parquet(table, names), None)
    for name in names:
        if name not in seen and stored is not None:
            seen[name] = _count_parquet(stored, name)
        elif (units := units_of[name]) is not None and units.nbytes <= SMALL:
            seen |= _read(table, [name])
    return {name: seen[name] for name in names if name in seen}


def _read(table: Table, names: list[str]) -> dict[str, _CellCounts]:
    seen, active, start = {name: _CellCounts() for name in names}, names, 0
    while active and start < min(len(table), MAX_ROWS):
        stop = min(start + (STEP_ROWS if start else FIRST_ROWS), len(table), MAX_ROWS)
        batch = values(table.read(start, stop, active))
        for name in active:
            _add_cells(seen[name], batch.column(name), start)
        active, start = [name for name in active if not seen[name].hopeless], stop
    return seen


def _add_cells(seen: _CellCounts, column: pa.Array, start: int) -> None:
    for row, cell in enumerate(column.to_pylist(), start):
        if cell is not None and cell.strip():
            seen.add(row, cell)


def _count_parquet(table: ParquetTable, name: str) -> _CellCounts:
    """Count the cells of a Parquet column, decoded page by page."""
    seen, start = _CellCounts(), 0
    for column in table.head(name, STEP_ROWS):
        _add_cells(seen, as_type(column, value_type(column.type)), start)
        start += len(column)
        if start >= MAX_ROWS or seen.hopeless:
            break
    return seen


def _parquet(table: Any, names: list[str]) -> Iterator[ParquetTable]:
    """Yield the Parquet file of the first rows, if it has the columns unchanged."""
    while isinstance(table, ReadOnce | Partition | Columns | ConcatTable):
        parts = [part for part in table.tables if len(part)] if isinstance(table, ConcatTable) else [table.table]
        table = parts[0] if parts else None
    if isinstance(table, ParquetTable) and {*names} <= {*table.schema.names}:
        yield table


def _describe(table: Table, seen: _CellCounts) -> str:
    if not seen.first:
        return f"its first {seen.cells:,} cells are numbers; a later one is not"
    row, cell = seen.first["other"]
    where = f"{cell[:40]!r} ({row_place(table, row) or f'row {row}'})"
    return f"{seen.numbers:,} of its first {seen.cells:,} cells are numbers, but {where} is not"


def _remedy(name: str, *, parsed: bool) -> str:
    missing = "which missing='mean' replaces"
    if parsed:
        return (
            f"types={{{name!r}: 'float64'}} in corgipile.open and convert (--types) raises an error at such a cell; an "
            f"empty cell is a missing value, {missing}"
        )
    return f"pandas.to_numeric(..., errors='coerce') turns such cells into missing values, {missing}"


def _text_tables(table: Table) -> Iterator[TextTable]:
    """Yield the text tables beneath all wrappers."""
    if isinstance(table, TextTable):
        yield table
    for inner in table.tables:
        yield from _text_tables(inner)
