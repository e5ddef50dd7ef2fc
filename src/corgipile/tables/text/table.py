"""What tables of text have in common: rows found by line, and columns of types that a survey found."""

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Self

import pyarrow as pa

from corgipile.tables.checked import Checked
from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.index_cache import kept_path
from corgipile.tables.io.pieces import check_names, empty, join, take_once
from corgipile.tables.table import IntArray, Table
from corgipile.tables.text.lines import Lines
from corgipile.tables.text.types import Types, chosen, known, stretches, wider

__all__ = ["TextTable", "index_of", "one_batch", "same_types"]

RUN = 1 << 21  # bytes of text parsed at a time
ADVICE = "text is parsed at every reading; `corgipile convert` writes a file that is read in place, many times faster"


class TextTable(Checked):
    """Reads rows of text.

    Args:
        lines: The rows.
        types: Types of columns by name, Arrow's or their names; those not said are found by a survey.
        names: Columns that there are, whatever rows have.
    """

    advice = ADVICE
    any_key = False  # whether a row may lack columns
    taken_runs = 1024  # rows: a call of a parser, which makes an array of each column, costs as much as these

    def __init__(self, lines: Lines, types: Types | None, names: Sequence[str] = ()) -> None:
        self._lines, self._types = lines, types
        self.surveyed = self._survey(names)
        kinds = {name: known(kind) for name, kind in self.surveyed.items()}
        self.schema: pa.Schema = pa.schema(kinds | chosen(types, list(kinds), self.path))

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return self._lines.file.path

    @property
    def said(self) -> frozenset[str]:
        """Return the columns whose types the caller says."""
        return frozenset(self._types or ())

    def line(self, row: int) -> int:
        """Return the number of the line with which a row begins, from 1."""
        return self._lines.line(row)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the text."""
        return self._lines.file.size

    @property
    def fingerprint(self) -> str:
        """Return the identity: content, schema and rows."""
        return digest(self._lines.file.identity, describe(self.schema), str(len(self)))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        parts = pairwise([*range(start, stop, self._run_rows()), stop])
        return join([self._lines.run(*part, lambda text, rows: self._parse(text, rows, names)) for part in parts])

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_once(rows, lambda wanted: self._picked(wanted, names))

    def _picked(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Parse rows, ascending."""
        step = self._run_rows()
        parts = [rows[at : at + step] for at in range(0, len(rows), step)]
        return join([self._lines.pick(part, lambda text, rows: self._parse(text, rows, names)) for part in parts])

    def with_types(self, types: Mapping[str, pa.DataType]) -> Self:
        """Return the same table with columns of these types, but those that the caller said."""
        mine = types if self.any_key else {name: types[name] for name in self.schema.names}
        made = copy(self)
        made.schema = pa.schema(dict(mine) | chosen(self._types, list(mine), self.path))
        return made

    def with_said(self, types: Types) -> Self:
        """Return the same table with columns of types that a caller says."""
        made = copy(self)
        kinds = chosen(types, self.schema.names, self.path)
        made.schema = pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in self.schema])
        return made

    def _parse(self, text: memoryview, rows: int, names: Sequence[str]) -> pa.RecordBatch:
        """Parse some columns of rows; the errors of a single row say what is wrong with it, and no more."""
        raise NotImplementedError

    def _look(self, text: memoryview, rows: int) -> pa.RecordBatch:
        """Parse rows whose types are not known."""
        raise NotImplementedError

    def _survey(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        found: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
        for schema in stretches(self._lines, lambda start, stop: self._lines.run(start, stop, self._look).schema):
            for field in schema:
                found[field.name] = wider(found.get(field.name, pa.null()), field.type)
        return found

    def _run_rows(self) -> int:
        return max(1, RUN * len(self) // max(1, self.nbytes))


def same_types(tables: Sequence[Table]) -> list[Table]:
    """Let texts that are one table have columns of the same types: those that the values of all of them fit.

    Raises:
        BadSchema: One has no columns.
    """
    texts = [table for table in tables if isinstance(table, TextTable)]
    found: dict[str, pa.DataType] = {}
    for text in texts:
        for name, kind in text.surveyed.items():
            found[name] = wider(found.get(name, pa.null()), kind)
    kinds = {name: known(kind) for name, kind in found.items()}
    made = [table.with_types(kinds) if isinstance(table, TextTable) and len(texts) > 1 else table for table in tables]
    for table in made:
        if isinstance(table, TextTable):
            check_names(table.schema, table.path)
    return made


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table that pyarrow parsed at once."""
    batches = table.to_batches()
    return batches[0] if len(batches) == 1 else join(batches) if batches else empty(table.schema, table.schema.names)


def index_of(table: TextTable) -> str:
    """Return the path of the index of a text that was opened."""
    return kept_path(table._lines.file)  # noqa: SLF001 - its own
