"""What kind of text a file is: columns only where that is sure, since a guess that fails loses rows in silence."""

import csv
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from corgipile.errors import ParseError, UnknownFormat
from corgipile.tables.svmlight.table import is_binary

__all__ = ["Columns", "csv_columns", "is_csv_name", "text_kind"]

MARKS = "\t,; "
SAMPLE = 200  # lines looked at
_SUFFIXES = (".csv", ".tsv")
_PAIR = re.compile(r"(\d+|qid):[^\s,;]+")
_VALUE = re.compile(r"\d.*|true|false|[-+.]\d.*", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines would also split at U+2028, form feeds and others within cells
_ELSE = "; rows are wanted one a line, with tabs, commas or semicolons between fields"
_JSON = "pyarrow.json.read_json or pandas.read_json(lines=True) read it, and their to_parquet writes what is read here"


class Columns(NamedTuple):
    """How text is divided: what parts fields, and whether the first line has names."""

    mark: str
    header: bool


def is_csv_name(path: str) -> bool:
    """Say whether a name is one of CSV or TSV text, compressed or not.

    Example:
        >>> is_csv_name("a.csv.gz"), is_csv_name("a.txt")
        (True, False)
    """
    return any(suffix in _SUFFIXES for suffix in Path(path.lower()).suffixes[-2:])


def text_kind(head: bytes) -> Literal["svmlight", "json", "markup", "columns"] | None:
    """Tell kinds of text by the first bytes of a file; None if it is no text.

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
    path: str, head: bytes, header: bool | Literal["auto"], *, whole: bool, mark: str | None = None, said: bool = False
) -> Columns:
    """Find out how text is divided.

    Args:
        path: The file, for messages; its name may say that it is CSV.
        head: Its first bytes.
        header: Whether the first line has names, or ``"auto"``.
        whole: Whether ``head`` is all of the file.
        mark: What parts fields, where the caller knows; else the first of tab, comma, semicolon and space in line 1.
        said: Whether the caller asked for CSV, which then may have one column.

    Raises:
        UnknownFormat: It may be something else.
        ParseError: Lines have different numbers of fields.
    """
    _refuse_others(path, text_kind(head))
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = [line for line in _LINE_END.split(text) if line.strip()][: None if whole else -1]
    cut = not whole or len(lines) > SAMPLE
    lines = lines[:SAMPLE]
    if not text.strip():
        raise UnknownFormat(f"{path} is empty: CSV text has a line of names, or of values")
    if not lines:
        raise UnknownFormat(f"{path}: its first line is longer than {len(head)} bytes{_ELSE}")
    if re.fullmatch("sep=.", lines[0]):
        raise UnknownFormat(f"{path} begins with {lines[0]!r}, as Excel writes; remove this line with `tail -n +2`")
    told, mark = mark is not None, mark or next((mark for mark in MARKS if mark in lines[0].strip(" ")), "")
    if said and mark == " " and not all(is_number(word) for line in lines[1:] for word in line.split()):
        mark = ""  # words of one column
    if not told and "|" in lines[0] and mark in ("", " "):
        raise UnknownFormat(
            f"{path} has | in its first line, as Vowpal Wabbit text: such text is not read{_ELSE}, or SVMlight text"
        )
    rows = [row for row in islice(csv.reader(lines, delimiter=mark or ","), SAMPLE) if row]
    if cut and len(rows) > 1:
        rows.pop()  # the sample may end within its quotes
    _check_fields(path, rows, mark)
    names = _has_names(path, rows) if header == "auto" else header
    if not (told or said) and not _sure(rows[names:], mark, named=is_csv_name(path)):
        raise UnknownFormat(
            f"{path} is not surely CSV text: it begins with {lines[0][:40]!r}{_ELSE}, and a name that ends in .csv; "
            "pass format='csv' to open it as one column"
        )
    return Columns(mark or ",", names)


def _refuse_others(path: str, kind: str | None) -> None:
    """Raise UnknownFormat for text that is known to be no CSV, whatever its name."""
    if kind == "json":
        raise UnknownFormat(f"{path} is JSON, of which an object a line is read, named .jsonl: {_JSON}")
    if kind == "markup":
        raise UnknownFormat(f"{path} begins with <, as HTML and XML do, and is no CSV text")
    if kind == "svmlight":
        raise UnknownFormat(f"{path} is SVMlight text (label index:value ...) in spite of its name; name it .svm")


def _check_fields(path: str, rows: Sequence[Sequence[str]], mark: str) -> None:
    fields = len(rows[0])
    for at, row in enumerate(rows):
        if len(row) != fields:
            shown = (mark or ",").join(row)[:40]
            raise ParseError(f"{path}: Expected {fields} columns, got {len(row)} in row {at + 1}: {shown!r}{_ELSE}")


def _has_names(path: str, rows: Sequence[Sequence[str]]) -> bool:
    """Say whether the first line has names: not if all its fields are numbers; some of them are a riddle."""
    first = rows[0]
    if all(map(is_number, first)):
        return False
    values = [field for field in first if is_number(field) or _VALUE.fullmatch(field.strip())]
    if values:
        raise UnknownFormat(
            f"{path}: whether its first line has names is not sure: {values[0][:40]!r} looks like a value; "
            "say --header or --no-header (in Python header=True or False)"
        )
    return True


def _sure(rows: Sequence[Sequence[str]], mark: str, *, named: bool) -> bool:
    """Say whether rows below the names are surely columns: some column is of numbers, or the file's name says so."""
    fields = [[field for field in column if field.strip()] for column in zip(*rows, strict=True)]
    numbers = [bool(column) and all(map(is_number, column)) for column in fields]
    if mark == " " or not mark:
        return bool(numbers) and all(numbers) and (named or bool(mark))
    return named or any(numbers)


def is_number(field: str) -> bool:
    """Say whether a field is a number.

    Example:
        >>> is_number(" 1e3"), is_number("1e"), is_number("")
        (True, False, False)
    """
    try:
        float(field)
    except ValueError:
        return False
    return True
