"""Recognises kinds of text; only sure matches count as CSV, because a wrong guess would lose rows silently."""

import csv
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from corgipile.errors import ParseError, UnknownFormat
from corgipile.tables.formats.svmlight.table import is_binary

__all__ = ["Columns", "csv_columns", "is_csv_name", "text_kind"]

DELIMITERS = "\t,; "
MAX_SAMPLED_LINES = 200  # lines that decide
_SUFFIXES = (".csv", ".tsv")
_PAIR = re.compile(r"(\d+|qid):[^\s,;]+")
_VALUE = re.compile(r"\d.*|true|false|[-+.]\d.*", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines also splits at U+2028 or form feeds within cells
_HINT = "; write one row per line, with tabs, commas or semicolons between fields"
_JSON = "read it with pyarrow.json.read_json or pandas.read_json(lines=True) and write it with to_parquet"


class Columns(NamedTuple):
    """The format of delimited text: the delimiter, and whether the first line is a header."""

    mark: str
    header: bool


def is_csv_name(path: str) -> bool:
    """Return whether a file name is that of CSV or TSV text, compressed or not.

    Example:
        >>> is_csv_name("a.csv.gz"), is_csv_name("a.txt")
        (True, False)
    """
    return any(suffix in _SUFFIXES for suffix in Path(path.lower()).suffixes[-2:])


def text_kind(head: bytes) -> Literal["svmlight", "json", "markup", "columns"] | None:
    """Return the kind of text by the first bytes of a file; None if it is not text.

    Example:
        >>> text_kind(b"+1 3:0.5 7:1"), text_kind(b"1,2,3"), text_kind(bytes(8)), text_kind(b'{"x": 1}')
        ('svmlight', 'columns', None, 'json')
    """
    if not head.strip() or is_binary(head):
        return None
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in (b"{", b"["):
        return "json"
    if start == b"<":
        return "markup"
    for line in _LINE_END.split(head.decode("utf-8", "replace")):
        tokens = line.split("#")[0].split()
        if len(tokens) > 1:
            labelled = all(map(is_number, tokens[0].split(",")))
            return "svmlight" if labelled and _PAIR.fullmatch(tokens[1]) else "columns"
    return "columns"


def csv_columns(
    path: str, head: bytes, header: bool | Literal["auto"], *, whole: bool, mark: str | None = None, sure: bool = False
) -> Columns:
    """Return the delimiter and whether there is a header.

    Args:
        path: The file, for messages; its suffix may be that of CSV.
        head: Its first bytes.
        header: Whether the first line has names, or ``"auto"``.
        whole: Whether ``head`` is all of the file.
        mark: The delimiter, if known; else the first of tab, comma, semicolon and space in line 1.
        sure: Whether the caller requested CSV, which then may have one column.

    Raises:
        UnknownFormat: The file may not be CSV.
        ParseError: Lines have different numbers of fields.
    """
    _refuse_other_kinds(path, text_kind(head))
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = [line for line in _LINE_END.split(text) if line.strip()][: None if whole else -1]
    incomplete = not whole or len(lines) > MAX_SAMPLED_LINES
    lines = lines[:MAX_SAMPLED_LINES]
    if not text.strip():
        raise UnknownFormat(f"{path} must have at least one line to be CSV, but it is empty")
    if not lines:
        raise UnknownFormat(f"{path}: the first line must have at most {len(head)} bytes{_HINT}")
    if re.fullmatch("sep=.", lines[0]):
        raise UnknownFormat(f"{path} begins with {lines[0]!r}, as Excel writes; remove that line with `tail -n +2`")
    explicit, mark = mark is not None, mark or next((mark for mark in DELIMITERS if mark in lines[0].strip(" ")), "")
    if sure and mark == " " and not all(is_number(word) for line in lines[1:] for word in line.split()):
        mark = ""  # one column of words
    if not explicit and "|" in lines[0] and mark in ("", " "):
        raise UnknownFormat(
            f"{path} has | in its first line, like Vowpal Wabbit text, which is not read{_HINT}, or use SVMlight text"
        )
    rows = [row for row in islice(csv.reader(lines, delimiter=mark or ","), MAX_SAMPLED_LINES) if row]
    if incomplete and len(rows) > 1:
        rows.pop()  # the sample may end within quotes
    _check_fields(path, rows, mark)
    names = _has_names(path, rows) if header == "auto" else header
    if not (explicit or sure) and not _is_surely_csv(rows[names:], mark, named=is_csv_name(path)):
        raise UnknownFormat(
            f"{path} may not be CSV text: it begins with {lines[0][:40]!r}{_HINT}, and name it .csv; "
            "or pass format='csv' to open it as one column"
        )
    return Columns(mark or ",", names)


def _refuse_other_kinds(path: str, kind: str | None) -> None:
    """Raise UnknownFormat for text that is recognised as another kind, whatever its name."""
    if kind == "json":
        raise UnknownFormat(f"{path} is JSON, of which only JSON lines named .jsonl are supported; {_JSON}")
    if kind == "markup":
        raise UnknownFormat(f"{path} must be CSV text, but it begins with < like HTML or XML")
    if kind == "svmlight":
        raise UnknownFormat(f"{path} is SVMlight text (label index:value ...); name it .svm")


def _check_fields(path: str, rows: Sequence[Sequence[str]], mark: str) -> None:
    fields = len(rows[0])
    for at, row in enumerate(rows):
        if len(row) != fields:
            shown = (mark or ",").join(row)[:40]
            raise ParseError(f"{path}, row {at + 1} must have {fields} columns, got {len(row)}: {shown!r}{_HINT}")


def _has_names(path: str, rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line has names; raise UnknownFormat if only some of its fields look like values."""
    first = rows[0]
    if all(map(is_number, first)):
        return False
    values = [field for field in first if is_number(field) or _VALUE.fullmatch(field.strip())]
    if values:
        raise UnknownFormat(
            f"{path}: the first line may be a header, but {values[0][:40]!r} looks like a value; "
            "pass --header or --no-header (in Python header=True or False)"
        )
    return True


def _is_surely_csv(rows: Sequence[Sequence[str]], mark: str, *, named: bool) -> bool:
    """Return whether rows below the header are surely CSV: a column is numeric, or the file name is that of CSV."""
    if named and mark not in ("", " "):
        return True
    fields = [[field for field in column if field.strip()] for column in zip(*rows, strict=True)]
    numbers = [bool(column) and all(map(is_number, column)) for column in fields]
    if mark == " " or not mark:
        return bool(numbers) and all(numbers) and (named or bool(mark))
    return any(numbers)


def is_number(field: str) -> bool:
    """Return whether a field is a number.

    Example:
        >>> is_number(" 1e3"), is_number("1e"), is_number("")
        (True, False, False)
    """
    try:
        float(field)
    except ValueError:
        return False
    return True
