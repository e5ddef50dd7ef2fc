"""Results as in-memory tables that notebooks show."""

from collections.abc import Iterator
from html import escape
from itertools import chain
from typing import Any

import pyarrow as pa

from corgipile.errors import MissingExtra
from corgipile.sql.answers.answers import Answers
from corgipile.sql.answers.cells import is_number, texts
from corgipile.sql.answers.tables import draw
from corgipile.sql.engines.engine import Result

__all__ = ["Frame", "FrameAnswers"]

_MAX_ROWS = 40  # shown
_MAX_CELL = 200  # characters shown of a cell


class Frame:
    """The rows of a result, in memory.

    Data frame libraries read it through Arrow's C stream interface.

    Example:
        >>> frame = Frame(pa.table({"epoch": [0, 1], "loss": [0.5, 0.25]}))
        >>> frame
        epoch  loss
        -----  ----
            0   0.5
            1  0.25
        (2 rows)
        >>> frame.columns, len(frame), frame["loss"].to_pylist()
        (['epoch', 'loss'], 2, [0.5, 0.25])
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        """The column names."""
        return list(self._table.column_names)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self._table.num_rows, self._table.num_columns

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table

    def df(self) -> Any:
        """Return the rows as a pandas data frame."""
        try:
            return self._table.to_pandas()
        except ImportError:
            raise MissingExtra("df() needs pandas: pip install pandas, or use arrow()") from None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._table.column(name)

    def __repr__(self) -> str:
        return "\n".join([*draw(self._table.slice(0, _MAX_ROWS), 0).lines, self._row_count()])

    def _row_count(self) -> str:
        rows = f"{len(self):,} row{'s' * (len(self) != 1)}"
        return f"({rows})" if len(self) <= _MAX_ROWS else f"({_MAX_ROWS} of {rows} shown)"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        shown = self._table.slice(0, _MAX_ROWS)
        cells = [list(_html(column)) for column in shown.columns]
        rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
        return (
            f'<table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
            f"<p>{self._row_count()[1:-1]}</p>"
        )


def _html(column: pa.ChunkedArray) -> Iterator[str]:
    side = "right" if is_number(column.type) else "left"
    for text in chain.from_iterable(texts(chunk, most=_MAX_CELL) for chunk in column.chunks):
        shown = text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
        yield f'<td style="text-align: {side}">{escape(shown)}</td>'


class FrameAnswers(Answers):
    """Collects results as frames; None for statements without rows."""

    def __init__(self) -> None:
        self.frames: list[Frame | None] = []

    def show(self, result: Result) -> None:
        """Collect a result."""
        rows = None if result.schema is None else pa.Table.from_batches(list(result.batches), result.schema)
        self.frames.append(None if rows is None else Frame(rows))
