"""Results as text tables."""

from collections.abc import Callable, Iterator
from typing import TextIO

import pyarrow as pa

from corgipile.sql.answers.answers import Answers
from corgipile.sql.answers.tables import draw
from corgipile.sql.engines.engine import Result

__all__ = ["TextAnswers"]

_MAX_COUNTED = 100_000  # rows read after the shown ones, only to count them
_ROWS_PER_TABLE = 1000  # column widths are recomputed for the next rows
_VERBATIM = ("plan", "explain_value", "QUERY PLAN")  # columns of preformatted lines


class TextAnswers(Answers):
    """Writes results as text tables, of so many rows each, 0 for all, and as wide as the terminal, 0 for unlimited.

    ``quiet`` omits messages about statements without rows and complete row counts.

    Example:
        >>> import sys
        >>> rows = pa.table({"loss": [0.5, 0.25, 0.125]})
        >>> TextAnswers(sys.stdout, rows=2).show(Result(rows.schema, iter(rows.to_batches())))
        loss
        ----
         0.5
        0.25
        (2 of 3 rows shown)
    """

    def __init__(
        self, out: TextIO, wide: Callable[[], int] = lambda: 80, *, rows: int = 0, quiet: bool = False
    ) -> None:
        self._out, self._wide, self._rows, self._quiet = out, wide, rows, quiet

    def show(self, result: Result) -> None:
        """Write a result."""
        if result.schema is None:
            many = "" if result.count < 0 else f" ({_rows(result.count)})"
            self._print_note(f"done{many}")
        elif len(result.schema) and result.schema.names[-1] in _VERBATIM:
            self._lines(result)
        else:
            self._table(result, result.schema)
        self._out.flush()

    def _print_note(self, text: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            self._out.write(f"{text}\n")

    def _lines(self, result: Result) -> None:
        for batch in result.batches:
            for value in batch.columns[-1].to_pylist():
                self._out.write(f"{value}\n".replace("\n\n", "\n"))

    def _table(self, result: Result, schema: pa.Schema) -> None:
        seen, more, batches = 0, 0, iter(result.batches)
        left_out: list[str] = []
        for rows, left in _tables(schema, batches, self._rows):
            drawn = draw(rows, self._wide())
            self._out.writelines(f"{line}\n" for line in drawn.lines)
            seen, more, left_out = seen + len(rows), left, drawn.left_out
        self._print_note(f"({_shown(seen, more, batches)})", always=more > 0)
        if left_out:
            self._print_note(f"(no room for {', '.join(left_out)})", always=True)


def _tables(schema: pa.Schema, batches: Iterator[pa.RecordBatch], most: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield tables of at most `most` rows in total, each with the number of rows that were read but not shown."""
    pending, first = pa.Table.from_batches([], schema), True
    goal = most or _ROWS_PER_TABLE
    for batch in batches:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch], schema)])
        while len(pending) >= goal + bool(most):
            yield pending.slice(0, goal), len(pending) - goal
            if most:
                return
            pending, first = pending.slice(goal), False
    if first or len(pending):
        yield pending, 0


def _shown(seen: int, more: int, batches: Iterator[pa.RecordBatch]) -> str:
    """Return how many rows are shown and, if counting is cheap, how many there are."""
    if not more:
        return _rows(seen)
    for batch in batches:
        more += len(batch)
        if more >= _MAX_COUNTED:
            return f"{seen:,} of more than {seen + more:,} rows shown"
    return f"{seen:,} of {_rows(seen + more)} shown"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
