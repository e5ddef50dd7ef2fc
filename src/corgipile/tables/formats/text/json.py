"""JSON lines: one object per line."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow

from corgipile.errors import ParseError, UnknownFormat
from corgipile.nesting import check_text
from corgipile.tables.formats.text.lines import BOM, Lines
from corgipile.tables.formats.text.table import TextTable, one_batch, text_format
from corgipile.tables.formats.text.types import Types, exact
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.remote import file_of

__all__ = [
    "ARRAY",
    "FORMAT",
    "SUFFIXES",
    "JsonLinesTable",
    "is_array",
    "is_lines",
    "look_lines",
    "parse_lines",
]

SUFFIXES = (".jsonl", ".ndjson")
HEAD_BYTES = 1 << 16
LONG_BYTES, MAX_VALUES = 4 << 20, 1 << 20  # bytes of text that is a single row; values of a row, 32 bytes each or more
MAX_REASON = 300  # characters of an error, which may quote a long value
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_UNKNOWN = "a key is in no sampled row; set its type with types=, or choose columns with columns="
ARRAY = "JSON must be lines of objects, got an array; rewrite it with pandas.read_json and to_json(lines=True)"


class JsonLinesTable(TextTable):
    r"""Reads JSON lines, one object per line, with random access to rows.

    The first opening scans the whole file and stores an index next to it, ``NAME.corgipile-index.arrow``. Columns and
    types are inferred from a sample: all of a text of up to 4 MB, else 16 stretches. A missing key is null; a value of
    another type, or a key that is not in the sample, raises an error when it is read.

    Args:
        path: The file, not compressed.
        types: Arrow types, or their names, by column; the others are inferred.

    Raises:
        UnknownFormat: The file is a JSON array, not JSON lines.
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
        if file.read(0, min(HEAD_BYTES, file.size)).removeprefix(BOM).lstrip()[:1] == b"[":
            raise UnknownFormat(f"{file.path}: {ARRAY}")
        super().__init__(Lines(file, ""), types)

    def _parse(self, text: memoryview, rows: int, names: Sequence[str]) -> pa.RecordBatch:
        # Unknown keys are errors only if all columns are read.
        whole = len(set(names)) == len(self.schema)
        fields = pa.schema([self.schema.field(name) for name in dict.fromkeys(names)])
        if not whole and any("struct<" in str(kind) for kind in fields.types):
            return _parse_strict_nested(text, fields).select(list(names))
        return parse_lines(text, fields, "error" if whole else "ignore").select(list(names))

    def _look(self, text: memoryview, rows: int) -> pa.RecordBatch:
        return look_lines(text)


def look_lines(text: "bytes | memoryview") -> pa.RecordBatch:
    """Parse JSON lines and infer their columns and types."""
    batch = parse_lines(text, None)
    kinds = exact(batch, lambda name, kind: parse_lines(text, pa.schema([(name, kind)]), "ignore"))
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in batch.schema]
    return parse_lines(text, pa.schema(fields)) if kinds else batch


def _parse_strict_nested(text: memoryview, fields: pa.Schema) -> pa.RecordBatch:
    """Parse some columns; raise for unknown keys within them, but ignore other columns."""
    with suppress(ParseError):  # other columns may mix types
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
        for item in value:
            _check_keys(item, kind.value_type)
    elif isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        for key, item in value.items():
            if key not in inner:
                raise ParseError(f"{_UNKNOWN} (key {key!r})")
            _check_keys(item, inner[key])


def parse_lines(
    text: "bytes | memoryview", schema: pa.Schema | None, others: Literal["error", "ignore", "infer"] = "infer"
) -> pa.RecordBatch:
    """Parse JSON lines.

    Args:
        text: The lines.
        schema: Columns; None to infer them.
        others: Handling of keys outside the schema: raise, ignore, or infer their types.

    Raises:
        ParseError: A line is malformed; the error for a single line describes how.
    """
    check_text(text, "a row", ParseError)
    if len(text) > LONG_BYTES and (values := 1 + int((np.frombuffer(text, np.uint8) == ord(",")).sum())) > MAX_VALUES:
        raise ParseError(f"a row must have at most {MAX_VALUES} values, got {values}; keep long lists in other formats")
    try:
        table = arrow.read_json(
            pa.BufferReader(text),
            arrow.ReadOptions(use_threads=False, block_size=len(text) + 1),
            arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
        )
        table.validate(full=True)  # pyarrow does not check UTF-8 while it parses
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ParseError(f"{_reason(str(error)):.{MAX_REASON}}") from None
    except UnicodeDecodeError as error:
        raise ParseError(f"a key must be UTF-8 text: {error.reason}") from None
    return one_batch(table)


def _reason(message: str) -> str:
    """Return a pyarrow error in terms of the table."""
    found = _CHANGED.search(message)
    if found is not None:
        name = found[1].replace("/", ".").replace(".[]", "")
        return f"column {name!r} must be a {found[2]} as in other rows, got a {found[3]}"
    if "unexpected field" in message.lower():
        return _UNKNOWN
    return message.splitlines()[0].removeprefix("JSON parse error: ")


def is_lines(head: bytes, *, whole: bool) -> bool:
    r"""Return whether text is JSON lines by its first bytes: the first line is an object.

    Example:
        >>> is_lines(b'{"x": 1}\n{"x": 2}', whole=False), is_lines(b'{\n"x": 1}', whole=True)
        (True, False)
    """
    line, end, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    line = line.strip()
    return line.startswith(b"{") and (line.endswith(b"}") if end or whole else True)


def is_array(head: bytes) -> bool:
    """Return whether text is a JSON array of objects by its first bytes.

    Example:
        >>> is_array(b'[{"x": 1}, {"x": 2}]'), is_array(b'{"x": [1]}')
        (True, False)
    """
    text = head.removeprefix(BOM).lstrip()
    return text.startswith(b"[") and text[1:].lstrip().startswith(b"{")


FORMAT = text_format(SUFFIXES, JsonLinesTable, "types")
