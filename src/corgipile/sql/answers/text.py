"""Answers as tables of text."""

from collections.abc import Callable, Iterator
from typing import TextIO

import pyarrow as pa

from corgipile.sql.answers.tables import draw
from corgipile.sql.engines.engine import Result

__all__ = ["TextAnswers"]

_COUNTED = 100_000  # rows that are read on, after those that are shown, to say how many there are
_AT_ONCE = 1000  # rows of one table
_VERBATIM = ("plan", "explain_value", "QUERY PLAN")  # columns of lines that are laid out already


class TextAnswers:
    """Writes tables, so many rows of each.

    Args:
        out: Where to.
        wide: Tells the columns of the terminal; 0: as many as it takes.
        rows: The most rows that are shown of an answer; 0: all.
        quiet: Say nothing of statements that have no rows, nor that all rows are shown.

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
        """Write an answer."""
        if result.schema is None:
            many = "" if result.count < 0 else f" ({_rows(result.count)})"
            self._say(f"done{many}")
        elif len(result.schema) and result.schema.names[-1] in _VERBATIM:
            self._lines(result)
        else:
            self._table(result, result.schema)
        self._out.flush()

    def fail(self, kind: str, message: str, code: int) -> bool:
        """Leave it to others."""
        return False

    def close(self) -> None:
        """Do nothing: all is shown."""

    def _say(self, text: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            self._out.write(f"{text}\n")

    def _lines(self, result: Result) -> None:
        for batch in result.batches:
            for value in batch.columns[-1].to_pylist():
                self._out.write(f"{value}\n".replace("\n\n", "\n"))

    def _table(self, result: Result, schema: pa.Schema) -> None:
        seen, more, batches = 0, 0, iter(result.batches)
        left_out: list[str] = []
        for rows, rest in _tables(schema, batches, self._rows):
            drawn = draw(rows, self._wide())
            self._out.writelines(f"{line}\n" for line in drawn.lines)
            seen, more, left_out = seen + len(rows), rest, drawn.left_out
        self._say(f"({_shown(seen, more, batches)})", always=more > 0)
        if left_out:
            self._say(f"(no room for {', '.join(left_out)})", always=True)


def _tables(schema: pa.Schema, batches: Iterator[pa.RecordBatch], most: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows, at most so many at once and in all, and how many of those that were read are left."""
    waiting, first = pa.Table.from_batches([], schema), True
    goal = most or _AT_ONCE
    for batch in batches:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch], schema)])
        while len(waiting) >= goal + bool(most):
            yield waiting.slice(0, goal), len(waiting) - goal
            if most:
                return
            waiting, first = waiting.slice(goal), False
    if first or len(waiting):
        yield waiting, 0


def _shown(seen: int, more: int, batches: Iterator[pa.RecordBatch]) -> str:
    """Say how many rows there are, if that is soon known."""
    if not more:
        return _rows(seen)
    for batch in batches:
        more += len(batch)
        if more >= _COUNTED:
            return f"{seen:,} of more than {seen + more:,} rows shown"
    return f"{seen:,} of {_rows(seen + more)} shown"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
