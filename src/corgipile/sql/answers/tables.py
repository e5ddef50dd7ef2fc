"""Text tables that fit a terminal: numbers align right, long text is cut, columns without room are omitted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from corgipile.sql.answers.cells import NULL, clean, is_number, texts

__all__ = ["Drawn", "cut", "draw", "width_of"]

_GAP = 2  # blanks between columns
_MIN_TEXT_WIDTH = 8  # terminal columns of a cut text column
_ELLIPSIS = "…"


@dataclass
class Drawn:
    """A formatted table: header, rule and rows, and the names of omitted columns."""

    lines: list[str]
    left_out: list[str]


@dataclass
class _Column:
    name: str
    cells: list[str]
    kind: pa.DataType
    head: list[str] = field(default_factory=list)
    width: int = 0

    def __post_init__(self) -> None:
        self.head = [self.name]
        self.content = max(map(width_of, self.cells), default=0)
        self.number = is_number(self.kind)

    @property
    def natural(self) -> int:
        """The width without cuts."""
        return max(self.content, *map(width_of, self.head))

    @property
    def least(self) -> int:
        """The smallest width; numbers and times are never cut."""
        rigid = self.number or pa.types.is_temporal(self.kind)
        return self.natural if rigid else min(self.natural, max(_MIN_TEXT_WIDTH, *map(width_of, self.head)))


def draw(rows: pa.Table, wide: int) -> Drawn:
    """Format all rows as a table no wider than a terminal; 0: unlimited.

    Example:
        >>> for line in draw(pa.table({"city": ["Oslo", "Zürich"], "loss": [0.25, None]}), 80).lines:
        ...     print(line)
        city    loss
        ------  ----
        Oslo    0.25
        Zürich  NULL
    """
    most = max(wide, 1000)
    columns = [
        _Column(clean(name), list(chain.from_iterable(texts(chunk, most=most) for chunk in column.chunks)), column.type)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    shown = _fit(columns, wide) if wide and columns else columns
    for column in shown:
        column.width = column.width or column.natural
    left_out = [column.name for column in columns if not any(column is chunk for chunk in shown)]
    return Drawn(list(_lines(shown)) if shown else [], left_out)


def _lines(columns: Sequence[_Column]) -> Iterator[str]:
    tall = max(len(column.head) for column in columns)
    for column in columns:
        column.head = [""] * (tall - len(column.head)) + column.head
    titles = zip(*(column.head for column in columns), strict=True)
    for line in titles:
        yield _line(columns, line)
    yield _line(columns, ["-" * column.width for column in columns])
    for cells in zip(*(column.cells for column in columns), strict=True):
        yield _line(columns, cells)


def _line(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    aligned = (_align(cell, column) for cell, column in zip(cells, columns, strict=True))
    return (" " * _GAP).join(aligned).rstrip()


def _align(cell: str, column: _Column) -> str:
    text = cut(cell, column.width)
    blanks = " " * (column.width - width_of(text))
    return blanks + text if column.number else text + blanks


def cut(text: str, wide: int) -> str:
    """Cut a text to a width and mark the cut with an ellipsis.

    Example:
        >>> cut("a long sentence", 8), cut("日本語", 4)
        ('a long…', '日…')
    """
    if width_of(text) <= wide:
        return text
    from rich.cells import set_cell_size  # noqa: PLC0415 - an optional dependency

    return set_cell_size(text, max(wide - 1, 0)).rstrip() + _ELLIPSIS if wide else ""


def width_of(text: str) -> int:
    """Return the width of a text in terminal columns.

    Example:
        >>> width_of("Zürich"), width_of("日本")
        (6, 4)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - an optional dependency

    return cell_len(text)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fit(columns: list[_Column], wide: int) -> list[_Column]:
    """Wrap headers, cut text, then omit columns until the table fits; set the widths."""
    if _total([column.natural for column in columns]) <= wide:
        return columns
    for column in columns:
        column.head = _wrap(column)
    columns = _omit_columns(columns, wide)
    _widen(columns, wide)
    return columns


def _wrap(column: _Column) -> list[str]:
    """Wrap a column name at spaces and underscores, no wider than its cells or longest word."""
    words = [word for part in column.name.split(" ") for word in _split(part)]
    room = max(column.content, *map(width_of, words))
    lines = [""]
    for word in words:
        blank = " " if lines[-1] and not lines[-1].endswith("_") else ""
        if lines[-1] and width_of(lines[-1] + blank + word) > room:
            lines.append(word)
        else:
            lines[-1] += blank + word
    return lines


def _split(word: str) -> list[str]:
    parts = [f"{part}_" for part in word.split("_")]
    parts[-1] = parts[-1][:-1]
    return [part for part in parts if part] or [""]


def _omit_columns(columns: list[_Column], wide: int) -> list[_Column]:
    """Omit columns, empty ones first, then from the middle, until the others fit at their smallest width."""
    shown, least = list(columns), [column.least for column in columns]
    empty = [all(cell == NULL for cell in column.cells) for column in columns]
    while len(shown) > 1 and _total(least) > wide:
        at = max((at for at in range(1, len(shown) - 1) if empty[at]), default=len(shown) // 2)
        for values in (shown, least, empty):
            del values[at]
    return shown


def _widen(columns: list[_Column], wide: int) -> None:
    """Distribute the width: text columns are cut to one common width, the largest that fits."""
    low, high = 1, max(wide, 1)
    while low < high:
        cap = (low + high + 1) // 2
        if _total([_capped(column, cap) for column in columns]) <= wide:
            low = cap
        else:
            high = cap - 1
    for column in columns:
        column.width = min(_capped(column, low), wide)


def _capped(column: _Column, cap: int) -> int:
    return max(column.least, min(column.natural, cap))
