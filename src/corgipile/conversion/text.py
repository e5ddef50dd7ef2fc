"""Text sources: decompression, CSV and JSON lines."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Literal, cast

import pyarrow as pa
from pyarrow import csv

from corgipile.conversion.columns import label_name
from corgipile.conversion.stream import Stream
from corgipile.errors import CorruptFile, ParseError
from corgipile.tables.formats.svmlight.text import pieces
from corgipile.tables.formats.text.csv import NULLS
from corgipile.tables.formats.text.guess import csv_columns, is_number
from corgipile.tables.formats.text.json import look_lines, parse_lines
from corgipile.tables.formats.text.types import Types, chosen, exact, known, wider
from corgipile.tables.io.files import readable
from corgipile.tables.io.pieces import check_names

_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_BLOCK = 1 << 20
NEWLINE = b"\n"


@contextmanager
def decompressed(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressing gzip, bzip2 or xz by its first bytes."""
    with readable(path), open(path, "rb") as raw:  # noqa: PTH123 - gzip and friends take the same call
        start = raw.read(6)
        raw.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
        try:
            if opener is None:
                yield raw
            else:
                with cast("IO[bytes]", opener(raw, "rb")) as file:
                    yield file
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise CorruptFile(f"{path}: does not decompress: {error}") from None


def csv_stream(
    path: str, label: str | int | None, header: bool | Literal["auto"], types: Types | None, *, pack: bool
) -> Stream:
    """Open CSV text; the delimiter is the first of tab, comma, semicolon and space in line 1."""
    with decompressed(path) as file:
        head = file.read(_BLOCK)
        mark, header = csv_columns(path, head, header, whole=not file.read(1))
    first, second, *_ = [*head.splitlines(), b"", b""]
    settings = {
        "read_options": csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=not header),
        "parse_options": csv.ParseOptions(delimiter=mark),
        "convert_options": csv.ConvertOptions(**NULLS),
    }
    schema, kinds = _survey(path, settings, types)
    if pack:
        target, cells = label_name(schema.names, label), _cells(second if header else first, mark)
        for at, field in enumerate(schema):
            # Integers may be followed by fractions; text after a number raises an error.
            text = pa.types.is_string(field.type) and len(cells) == len(schema) and is_number(cells[at])
            number = pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)
            if (text or number) and field.name != target:
                schema = schema.set(at, field.with_type(pa.float64()))
    schema = _apply_types(schema, types, path)
    if pack or types or kinds:
        settings["convert_options"] = csv.ConvertOptions(column_types=schema, **NULLS)
    return Stream(schema, _csv_batches(path, settings), paths=(path,), heeded=frozenset({"header"}))


def _survey(path: str, settings: dict[str, Any], types: Types | None) -> tuple[pa.Schema, dict[str, pa.DataType]]:
    """Return the schema inferred by pyarrow, corrected where it would change values, and the corrected types."""

    def read(kinds: Mapping[str, pa.DataType]) -> tuple[pa.Schema, pa.RecordBatch]:
        with decompressed(path) as file, _parsing(path):
            options = {**settings, "convert_options": csv.ConvertOptions(column_types=kinds, **NULLS)}
            reader = csv.open_csv(file, **options)
            return reader.schema, next(reader, None)

    schema, first = read({})
    check_names(schema, path)
    if first is None:
        return schema, {}
    try:
        kinds = exact(first, lambda name, kind: read({name: kind})[1].select([name]), types or ())
    except ParseError as error:
        raise ParseError(f"{path}: {error}") from None
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in schema]), kinds


def _apply_types(schema: pa.Schema, types: Types | None, path: str) -> pa.Schema:
    """Return a schema with the caller's types."""
    kinds = chosen(types, schema.names, path)
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in schema])


def _csv_batches(path: str, settings: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    with decompressed(path) as file, _parsing(path):
        yield from csv.open_csv(file, **settings)


@contextmanager
def _parsing(path: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise ParseError(f"{path}: the first line is not UTF-8: {error.reason} at byte {error.start}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        long = f"conversion requires lines of at most {_BLOCK} bytes, got a longer one; put a row on each"
        raise ParseError(f"{path}: {long if 'straddl' in str(error) else str(error).splitlines()[0]}") from None


def json_stream(path: str, types: Types | None = None) -> Stream:
    """Open JSON lines, in two passes: one for the columns, one for the rows."""
    kinds: dict[str, pa.DataType] = {}
    for batch in _json_batches(path, None):
        for field in batch.schema:
            kinds[field.name] = wider(kinds.get(field.name, pa.null()), field.type)
    schema = _apply_types(pa.schema([(name, known(kind)) for name, kind in kinds.items()]), types, path)
    check_names(schema, path)
    return Stream(schema, _json_batches(path, schema), paths=(path,))


def _json_batches(path: str, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    lines = 0
    for text in pieces(path):
        try:
            if text.strip():
                yield look_lines(text) if schema is None else parse_lines(text, schema, "error")
        except ParseError as error:
            raise ParseError(f"{path}, in lines {lines + 1} to {lines + text.count(NEWLINE)}: {error}") from None
        lines += text.count(NEWLINE)
        del text


def _cells(line: bytes, mark: str) -> list[str]:
    return line.decode("utf-8", "replace").strip().split(mark)
