"""Opens any source of rows as a stream of record batches."""

import glob
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile import tables
from corgipile.conversion.idx import idx_stream
from corgipile.conversion.records import record_stream
from corgipile.conversion.stream import Stream
from corgipile.conversion.text import csv_stream, decompressed, json_stream
from corgipile.errors import BadArgument, MissingFile, UnknownFormat
from corgipile.tables import Table
from corgipile.tables.concat import DIMS_KEY, ConcatTable
from corgipile.tables.folders import expand_braces, format_named, refuse_others
from corgipile.tables.formats.arrow.stream import UnterminatedStream, decoding_bytes
from corgipile.tables.formats.arrow.writer import conform, plain
from corgipile.tables.formats.svmlight.text import stream_batches
from corgipile.tables.formats.text.guess import is_csv_name, text_kind
from corgipile.tables.formats.text.json import is_lines
from corgipile.tables.formats.text.table import TextTable
from corgipile.tables.formats.text.types import Types
from corgipile.tables.formats.tfrecord.index import is_head
from corgipile.tables.in_memory import is_pair
from corgipile.tables.io.arriving import DEFAULT_IN_FLIGHT
from corgipile.tables.io.files import File, check_regular, decoding, readable
from corgipile.tables.io.pieces import check_names
from corgipile.tables.io.remote import in_turn
from corgipile.tables.partitions import keys_of
from corgipile.tables.registry import formats
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import even_cuts, is_bytes
from corgipile.tables.table_logs import refuse_logged
from corgipile.tables.unit_check import DEFAULT_MEMORY, check_budget, check_decoding
from corgipile.tables.wrapper import Wrapper
from corgipile.urls import is_url, local_path

_READ = 1 << 20
log = logging.getLogger("corgipile")
_HEAD = 1 << 12
_JOINED = (b"PAR1", b"ARROW1")  # formats with a complete schema in each file
_BASE_KEY = b"corgipile.base"


class Options(NamedTuple):
    """Options of the source."""

    label: str | int | None = None
    header: bool | Literal["auto"] = "auto"
    pack: bool = False
    zero_based: bool | Literal["auto"] = "auto"
    types: Types | None = None  # text is parsed as these types, which keeps leading zeros
    memory: int | None = None  # bytes that a stored unit may take while it is decoded


def stream(source: Any, options: Options) -> Stream:
    """Open a path, a glob, another source of `corgipile.open`, or a list of these as one stream."""
    if is_url(source) and (local_path(str(source)) is None):
        return table_stream(table_of(source, options), memory=options.memory)
    if isinstance(source, str | os.PathLike):
        source = local_path(str(source)) or source if is_url(source) else source
        paths = [path for part in expand_braces(source) for path in _expand(part)]
        refuse_logged(paths)
        partitioned = any(keys_of(path, Path(path).parent) for path in paths)  # the keys are columns
        if partitioned or any(map(_shares_columns, paths)):
            return _opened(source, options)._replace(paths=tuple(paths))
        return _chain([_open_path(path, options) for path in paths], options)
    if isinstance(source, Sequence) and not is_pair(source):
        if not source:
            raise BadArgument("source must name at least one source, got an empty list")
        return _chain([stream(part, options) for part in source], options)
    return _opened(source, options)


def _opened(source: Any, options: Options) -> Stream:
    return table_stream(_typed(tables.open(source), options.types), memory=options.memory)


def table_of(source: Any, options: Options) -> Table:
    """Open a table with the caller's options."""
    arguments: dict[str, Any] = {"zero_based": options.zero_based, "header": options.header}
    table = tables.open(source, **{name: value for name, value in arguments.items() if value != "auto"})
    return _typed(table, options.types)


def _typed(table: Table, types: Types | None) -> Table:
    """Return a table whose text is parsed as these types."""
    if types and isinstance(table, TextTable):
        return table.with_said(types)
    if types and isinstance(table, ConcatTable):
        return ConcatTable([_typed(part, types) for part in table.tables])
    if types and isinstance(table, Wrapper):  # rebuild partitions and views over the typed table
        pieces: Any = table.__reduce__()
        make, arguments = pieces[:2]
        inner_types = {name: kind for name, kind in types.items() if name in table.table.schema.names}
        below = _typed(table.table, inner_types)
        if below is not table.table and arguments[0] is table.table:
            rebuilt: Table = make(below, *arguments[1:])
            return rebuilt
    return table


def table_stream(
    table: Table,
    run: int | None = None,
    start: int = 0,
    stop: int | None = None,
    memory: int | None = None,
    in_flight: int = DEFAULT_IN_FLIGHT,
) -> Stream:
    """Read a table or a span of it in order, ``run`` rows at a time, by default about 1 MB."""
    if memory is not None:
        check_decoding(table, table.schema.names, memory)
    rows = (len(table) if stop is None else stop) - start
    width = max(1.0, table.nbytes / max(1, len(table)))
    cuts = start + even_cuts(rows, run or max(1, int(_READ / max(width, row_bytes(table)))))
    batches = in_turn(table, table.read, itertools.pairwise(cuts.tolist()), in_flight=in_flight)
    return Stream(table.schema, batches, rows, first=start)


def _expand(path: str) -> list[str]:
    plain_path = Path(path).expanduser()
    if plain_path.is_dir() and (text := sorted(filter(_is_csv, plain_path.iterdir()))):
        refuse_others(plain_path, text)
        return list(map(str, text))
    if plain_path.exists() or not glob.has_magic(path):
        return [str(plain_path)]
    paths = sorted(glob.glob(str(plain_path), recursive=True))  # noqa: PTH207 - takes absolute patterns
    if not paths:
        raise MissingFile(f"no file matches {path!r}")
    return paths


def _shares_columns(path: str) -> bool:
    """Return whether files of this name agree in columns with their siblings."""
    return format_named(path) == "webdataset"


def _is_csv(path: Path) -> bool:
    return is_csv_name(path.name) and not path.name.startswith(".") and not path.is_dir()


def _open_path(path: str, options: Options) -> Stream:
    if Path(path).is_dir():
        return _opened(path, options)
    with readable(path):
        status = Path(path).stat()
    check_regular(status, path)  # before it is opened, which waits for a pipe
    with readable(path), Path(path).open("rb") as file:
        magic = file.read(16)
    if magic[:4] == b"\xff\xff\xff\xff":
        return _arrow_stream(path, options)
    if magic[:4] == b"PAR1":
        return _parquet_stream(path, options)
    if any((kind.magic and magic.startswith(kind.magic)) or kind.knows(magic) for kind in formats().values()):
        return _open_table(path, options)
    return _open_bytes(path, options)


def _open_bytes(path: str, options: Options) -> Stream:
    """Open text or images, compressed or not."""
    with decompressed(path) as file:
        head = file.read(_HEAD)
    if is_head(head[:16]):
        return _open_table(path, options) if is_head(File(path).read(0, 16)) else record_stream(path)
    if head[:2] == b"\0\0":
        return idx_stream(path, options.label)
    kind = text_kind(head)
    if kind == "json" and not is_csv_name(path) and is_lines(head, whole=len(head) < _HEAD):
        return json_stream(path, options.types)
    if is_csv_name(path) or kind in ("columns", "json", "markup"):
        return csv_stream(path, options.label, options.header, options.types, pack=options.pack)
    if kind == "svmlight":
        schema, batches = stream_batches(path, zero_based=options.zero_based)
        return Stream(schema, batches, paths=(path,), heeded=frozenset({"zero_based"}))
    return _open_table(path, options)


def _open_table(path: str, options: Options) -> Stream:
    """Open a file by its table reader; the labels of a ``.npy`` file may lie in another file."""
    labels = options.label if isinstance(options.label, str) and options.label.endswith(".npy") else None
    rows = table_stream(tables.open(path, label=labels), memory=options.memory)
    paths = (path,) if labels is None else (path, labels)
    return rows._replace(paths=paths, labelled=labels is None)


def _arrow_stream(path: str, options: Options) -> Stream:
    try:
        return _open_table(path, options)
    except UnknownFormat:  # dictionaries need sequential reads
        pass
    except UnterminatedStream as error:
        log.warning("%s", error)
    with decoding(path):
        taken = decoding_bytes(File(path))
    check_budget(path, taken, DEFAULT_MEMORY if options.memory is None else options.memory)
    with decoding(path), pa.OSFile(path) as file:
        schema = plain(pa.ipc.open_stream(file).schema)
        check_names(schema, path)
    return Stream(schema, _validate(path, _ipc_batches(path)), paths=(path,))


def _ipc_batches(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream, few at a time where each may hold a long value of a dictionary."""
    with pa.OSFile(path) as file:
        for batch in pa.ipc.open_stream(file):
            longest = max((_longest_value(column) for column in batch.columns), default=0)
            for start in range(0, batch.num_rows, step := max(1, _READ // max(1, longest))):
                yield batch.slice(start, step)


def _longest_value(column: pa.Array) -> int:
    """Return the bytes of the longest value of a column's dictionary, 0 if it has none."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        return int(pc.max(pc.binary_length(values)).as_py() or 0) if is_bytes(values.type) else int(values.nbytes)
    if pa.types.is_struct(column.type):
        return max(map(_longest_value, column.flatten()), default=0)
    return _longest_value(column.flatten()) if hasattr(column, "flatten") and column.type.num_fields else 0


def _parquet_stream(path: str, options: Options) -> Stream:
    table = tables.ParquetTable(path)
    check_decoding(table, table.schema.names, options.memory)
    batches = table.batches()
    if batches is None:
        return table_stream(table)._replace(paths=(path,))
    return Stream(plain(table.schema), batches, len(table), (path,))


def _validate(path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with decoding(path):
        for batch in batches:
            batch.validate(full=True)
            yield batch


def _chain(streams: Sequence[Stream], options: Options) -> Stream:
    first, paths = streams[0], [path for one in streams for path in one.paths]
    if len(streams) == 1:
        return first
    differ = not all(one.schema.equals(first.schema) for one in streams)
    if differ and all(one.paths and all(map(_is_joined, one.paths)) for one in streams):
        return _opened(paths, options)._replace(paths=tuple(paths))
    schema = first.schema.with_metadata(_metadata([one.schema.metadata or {} for one in streams]))
    counts = [one.rows for one in streams]
    return Stream(
        schema,
        (conform(batch, schema) for one in streams for batch in one.batches),
        None if None in counts else sum(count for count in counts if count is not None),
        tuple(paths),
        first.labelled,
        frozenset().union(*(one.heeded for one in streams)),
    )


def _is_joined(path: str) -> bool:
    """Return whether `corgipile.open` can join this file with others."""
    if not Path(path).is_file():
        return False
    with readable(path), Path(path).open("rb") as file:
        return file.read(6).startswith(_JOINED)


def _metadata(parts: Sequence[dict[bytes, bytes]]) -> dict[bytes, bytes]:
    """Join schema metadata of sparse rows: the largest dimension, and the common base of indices."""
    bases = {part[_BASE_KEY] for part in parts if _BASE_KEY in part}
    if len(bases) > 1:
        raise BadArgument("indices must begin at 0 or at 1 in all files, got both: give zero_based=True or False")
    dims = max((int(part[DIMS_KEY]) for part in parts if DIMS_KEY in part), default=None)
    return parts[0] | ({} if dims is None else {DIMS_KEY: str(dims).encode()})
