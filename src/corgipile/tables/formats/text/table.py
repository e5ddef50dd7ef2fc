"""Base class of text tables: rows located by line, column types inferred from a sample."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Self

import pyarrow as pa

from corgipile.tables.checked import FileTable
from corgipile.tables.format import Format
from corgipile.tables.formats.text.lines import Lines
from corgipile.tables.formats.text.types import Types, chosen, known, stretches, wider
from corgipile.tables.io.index_cache import index_writer
from corgipile.tables.io.pieces import check_names, empty, join, take_once
from corgipile.tables.table import IntArray, Table

__all__ = ["TextTable", "one_batch", "same_types", "text_format"]

MAX_RUN_BYTES = 1 << 21  # bytes of text parsed at a time
ADVICE = "text is parsed at every read; `corgipile convert` writes a file that is read in place, many times faster"


class TextTable(FileTable):
    """Reads rows of text.

    Args:
        lines: The rows.
        types: Arrow types, or their names, by column; the others are inferred.
        names: Columns that exist whatever keys rows have.
    """

    advice = ADVICE
    any_key = False  # whether a row may lack columns
    taken_runs = 1024  # rows whose parsing costs as much as a call of the parser

    def __init__(self, lines: Lines, types: Types | None, names: Sequence[str] = ()) -> None:
        self._lines, self._file, self._types = lines, lines.file, types
        self.surveyed = self._survey(names)
        kinds = {name: known(kind) for name, kind in self.surveyed.items()}
        self.schema: pa.Schema = pa.schema(kinds | chosen(types, list(kinds), self.path))

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def declared(self) -> frozenset[str]:
        """Return the columns whose types the caller set."""
        return frozenset(self._types or ())

    def line(self, row: int) -> int:
        """Return the line number of a row's start, from 1."""
        return self._lines.line(row)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        runs = pairwise([*range(start, stop, self._run_rows()), stop])
        return join(
            [part for run in runs for part in self._lines.run(*run, lambda text, rows: self._parse(text, rows, names))]
        )

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_once(rows, lambda wanted: self._pick_rows(wanted, names))

    def _pick_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Parse ascending rows."""
        step = self._run_rows()
        runs = (rows[at : at + step] for at in range(0, len(rows), step))
        return join(
            [part for run in runs for part in self._lines.pick(run, lambda text, rows: self._parse(text, rows, names))]
        )

    def with_types(self, types: Mapping[str, pa.DataType]) -> Self:
        """Return the table with these column types, except those that the caller set."""
        mine = types if self.any_key else {name: types[name] for name in self.schema.names}
        copied = copy(self)
        copied.schema = pa.schema(dict(mine) | chosen(self._types, list(mine), self.path))
        return copied

    def with_said(self, types: Types) -> Self:
        """Return the table with column types that the caller sets."""
        copied = copy(self)
        kinds = chosen(types, self.schema.names, self.path)
        copied.schema = pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in self.schema])
        return copied

    def _parse(self, text: memoryview, rows: int, names: Sequence[str]) -> pa.RecordBatch:
        """Parse columns of rows; the error for a single row describes only what is wrong with it."""
        raise NotImplementedError

    def _look(self, text: memoryview, rows: int) -> pa.RecordBatch:
        """Parse rows and infer their types."""
        raise NotImplementedError

    def _survey(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        kinds_found: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
        for schema in stretches(self._lines, self._look):
            for field in schema:
                kinds_found[field.name] = wider(kinds_found.get(field.name, pa.null()), field.type)
        return kinds_found

    def _run_rows(self) -> int:
        return max(1, MAX_RUN_BYTES * len(self) // max(1, self.nbytes))


def same_types(tables: Sequence[Table]) -> list[Table]:
    """Give the texts of one table common column types that hold all their values.

    Raises:
        BadSchema: A text has no columns.
    """
    texts = [table for table in tables if isinstance(table, TextTable)]
    kinds_found: dict[str, pa.DataType] = {}
    for text in texts:
        for name, kind in text.surveyed.items():
            kinds_found[name] = wider(kinds_found.get(name, pa.null()), kind)
    kinds = {name: known(kind) for name, kind in kinds_found.items()}
    copied = [table.with_types(kinds) if isinstance(table, TextTable) and len(texts) > 1 else table for table in tables]
    for table in copied:
        if isinstance(table, TextTable):
            check_names(table.schema, table.path)
    return copied


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one record batch."""
    batches = table.to_batches()
    return batches[0] if len(batches) == 1 else join(batches) if batches else empty(table.schema, table.schema.names)


def text_format(suffixes: tuple[str, ...], table: Callable[..., TextTable], *options: str) -> Format:
    """Return the format of texts."""
    return Format(b"", suffixes, table, frozenset(options), agree=same_types, index_file=index_writer(table))
