"""JSON lines: an object a line."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import pyarrow as pa
from pyarrow import json as arrow

from corgipile.errors import ParseError, UnknownFormat
from corgipile.nesting import check_text
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.remote import file_of
from corgipile.tables.text.lines import BOM, Lines
from corgipile.tables.text.table import TextTable, index_of, one_batch
from corgipile.tables.text.types import Types, exact

__all__ = ["ARRAY", "SUFFIXES", "JsonLinesTable", "index_file", "is_array", "is_lines", "look_lines", "parse_lines"]

SUFFIXES = (".jsonl", ".ndjson")
HEAD = 1 << 16
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_UNKNOWN = "a key that no surveyed row has; give its type with types=, or choose columns with columns="
ARRAY = "JSON lines are wanted, an object a line; this is an array: pandas.read_json reads it, its to_json writes lines"


class JsonLinesTable(TextTable):
    r"""Reads JSON lines, an object a line: any row from its place, parsed by pyarrow.

    The first opening reads the whole file, to find where rows begin; it keeps this in a file beside the text,
    ``NAME.corgipile-index.arrow``. Columns and their types are those of a survey: the whole of a text of up to 4 MB,
    else 16 stretches of it. A key that a line lacks is null there; a value that does not fit, or a key that the survey
    did not see, is an error when it is read.

    Args:
        path: The file, not compressed.
        types: Types of columns by name, Arrow's or their names; a survey finds those not said.

    Raises:
        UnknownFormat: It is JSON, but not a line for each row.
        ParseError: A line does not parse, or does not fit.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(f"{folder}/a.jsonl").write_text('{"x": 1, "tags": ["a"]}\n{"x": 2.5}\n')
        ...     JsonLinesTable(f"{folder}/a.jsonl").read(0, 2).to_pylist()
        [{'x': 1.0, 'tags': ['a']}, {'x': 2.5, 'tags': None}]
    """

    any_key = True

    def __init__(self, path: PathLike, *, types: Types | None = None) -> None:
        file = file_of(path)
        if file.read(0, min(HEAD, file.size)).removeprefix(BOM).lstrip()[:1] == b"[":
            raise UnknownFormat(f"{file.path}: {ARRAY}")
        super().__init__(Lines(file, ""), types)

    def _parse(self, text: memoryview, rows: int, names: Sequence[str]) -> pa.RecordBatch:
        # Keys that nobody asks for are passed over, but where all are asked for none may be.
        whole = len(set(names)) == len(self.schema)
        fields = pa.schema([self.schema.field(name) for name in dict.fromkeys(names)])
        if not whole and any("struct<" in str(kind) for kind in fields.types):
            return _all_keys(text, fields).select(list(names))
        return parse_lines(text, fields, "error" if whole else "ignore").select(list(names))

    def _look(self, text: memoryview, rows: int) -> pa.RecordBatch:
        return look_lines(text)


def look_lines(text: "bytes | memoryview") -> pa.RecordBatch:
    """Parse JSON lines whose columns and types are not known."""
    batch = parse_lines(text, None)
    kinds = exact(batch, lambda name, kind: parse_lines(text, pa.schema([(name, kind)]), "ignore"))
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in batch.schema]
    return parse_lines(text, pa.schema(fields)) if kinds else batch


def _all_keys(text: memoryview, fields: pa.Schema) -> pa.RecordBatch:
    """Parse some columns; raises for unknown keys within them, but ignores other columns."""
    with suppress(ParseError):  # columns not asked for may hold values of several kinds
        batch = parse_lines(text, fields, "infer")
        if batch.schema.types[: len(fields)] == fields.types:
            return batch
    batch = parse_lines(text, fields, "ignore")
    for line in filter(bytes.strip, bytes(text).split(b"\n")):
        row = json.loads(line)
        for field in fields:
            _check_keys(row.get(field.name), field.type)
    return batch


def _check_keys(value: Any, kind: pa.DataType) -> None:
    if isinstance(value, list):
        for one in value:
            _check_keys(one, kind.value_type)
    elif isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        for key, one in value.items():
            if key not in inner:
                raise ParseError(f"{_UNKNOWN} (key {key!r})")
            _check_keys(one, inner[key])


def parse_lines(
    text: "bytes | memoryview", schema: pa.Schema | None, others: Literal["error", "ignore", "infer"] = "infer"
) -> pa.RecordBatch:
    """Parse JSON lines.

    Args:
        text: The lines.
        schema: Columns; None for those there are.
        others: Handling of keys outside the schema: raise, ignore, or infer their types.

    Raises:
        ParseError: Something is wrong with them; a single line's error says what.
    """
    check_text(text, "a row", ParseError)
    try:
        table = arrow.read_json(
            pa.BufferReader(text),
            arrow.ReadOptions(use_threads=False, block_size=len(text) + 1),
            arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
        )
        table.validate(full=True)  # pyarrow does not look whether text is UTF-8 when it parses
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ParseError(_reason(str(error))) from None
    except UnicodeDecodeError as error:
        raise ParseError(f"a key is no UTF-8 text: {error.reason}") from None
    return one_batch(table)


def _reason(message: str) -> str:
    """Say what is wrong with a row in terms of the table."""
    found = _CHANGED.search(message)
    if found is not None:
        name = found[1].replace("/", ".").replace(".[]", "")
        return f"column {name!r} holds a {found[3]}; a {found[2]} is what other rows hold"
    if "unexpected field" in message.lower():
        return _UNKNOWN
    return message.splitlines()[0].removeprefix("JSON parse error: ")


def is_lines(head: bytes, *, whole: bool) -> bool:
    r"""Say whether text that begins so is JSON lines: its first line is an object.

    Example:
        >>> is_lines(b'{"x": 1}\n{"x": 2}', whole=False), is_lines(b'{\n"x": 1}', whole=True)
        (True, False)
    """
    line, end, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    line = line.strip()
    return line.startswith(b"{") and (line.endswith(b"}") if end or whole else True)


def is_array(head: bytes) -> bool:
    """Say whether text that begins so is one array of objects, as programs write JSON by default.

    Example:
        >>> is_array(b'[{"x": 1}, {"x": 2}]'), is_array(b'{"x": [1]}')
        (True, False)
    """
    text = head.removeprefix(BOM).lstrip()
    return text.startswith(b"[") and text[1:].lstrip().startswith(b"{")


def index_file(path: str, **options: Any) -> str:
    """Write the index of a text, unless there is one of its present state; return its path."""
    return index_of(JsonLinesTable(path, **options))
