"""Files in SQL statements, which corgipile's readers read for DuckDB."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from corgipile import tables
from corgipile.errors import BadArgument, CorgiPileError, MissingFile, UnknownFormat
from corgipile.lazy import lazy
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.naming import Named, named
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.exceptions import DatabaseError
from corgipile.sql.statements import Path as TablePath
from corgipile.sql.statements import Source
from corgipile.sql.tokens import tokenize
from corgipile.tables.databases import quoted
from corgipile.tables.io.spill import IN_MEMORY, SpillWriter, spill_folder
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.scan import scan
from corgipile.tables.table import Table
from corgipile.tables.unit_check import check_decoding
from corgipile.tables.values import as_type

__all__ = ["Text", "materialize", "path_sql", "readable_by_duckdb", "select_text", "with_files"]

writer = lazy("corgipile.tables.formats.arrow.writer")  # loads all formats
PACKED = (".gz", ".zst")
READABLE = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")  # by DuckDB without corgipile, as views need
SCHEMA = (
    "SELECT 1 FROM system.main.duckdb_schemas() WHERE system.main.lower(schema_name) = system.main.lower($name) LIMIT 1"
)
RELATIONS = (
    "SELECT DISTINCT name FROM (SELECT schema_name, table_name FROM system.main.duckdb_tables() "
    "UNION ALL SELECT schema_name, view_name FROM system.main.duckdb_views()) relations(place, name) "
    "WHERE ($place IS NULL OR system.main.lower(place) = system.main.lower($place)) "
    "AND system.main.starts_with(system.main.lower(name), system.main.lower($name)) ORDER BY name"
)
TAKEN = (
    "SELECT 1 FROM (SELECT table_name FROM system.main.duckdb_tables() UNION ALL SELECT view_name FROM "
    "system.main.duckdb_views()) t(name) WHERE system.main.lower(name) = system.main.lower($name)"
)
COMPUTED = {
    "name": "SELECT view_name, sql FROM system.main.duckdb_views() WHERE NOT internal "
    "UNION ALL SELECT name, statement FROM system.main.duckdb_prepared_statements()",
    "call": "SELECT function_name, macro_definition FROM system.main.duckdb_functions() "
    "WHERE macro_definition IS NOT NULL AND NOT internal",
}


class Text(NamedTuple):
    """A SELECT for DuckDB: the whole, its SELECT list, and the rest."""

    sql: str
    items: str
    rest: str


class _Stream:
    """Rows as a restartable Arrow stream.

    DuckDB reads it without running Python, since waiting for the interpreter lock could deadlock its threads.
    """

    def __init__(self, begin: Callable[[], pa.NativeFile], fingerprint: str = "") -> None:
        self._begin, self.fingerprint = begin, fingerprint

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.ipc.open_stream(self._begin()).__arrow_c_stream__(requested_schema)


def materialize(table: Table) -> _Stream:
    """Write rows to memory or, if large, to a spill file."""
    check_decoding(table, table.schema.names)
    folder = spill_folder(None)
    if max(table.nbytes, len(table) * row_bytes(table)) <= IN_MEMORY or folder is None:
        sink = pa.BufferOutputStream()
        _write(table, sink)
        buffer = sink.getvalue()
        return _Stream(lambda: pa.BufferReader(buffer), table.fingerprint)
    with SpillWriter(folder) as out:
        with out.section():
            _write(table, out)
        file = out.finish()
    return _Stream(lambda: pa.OSFile(file.path), table.fingerprint)


def _write(table: Table, sink: Any) -> None:
    schema = _schema(table)
    with pa.ipc.new_stream(sink, schema) as stream:
        for _, batch in scan(table, schema.names):
            columns = [as_type(one, kind) for one, kind in zip(batch.columns, schema.types, strict=True)]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _schema(table: Table) -> pa.Schema:
    """Return the columns as stored for DuckDB, which has no 16-bit floats."""
    halves = {pa.float16(): pa.float32()}
    return pa.schema([one.with_type(halves.get(one.type, one.type)) for one in writer.plain(table.schema)])


def select_text(session: Session, source: Source, bound: BoundSql) -> Text:
    """Write a SELECT and lend DuckDB the files that it reads."""
    return Text(*(with_files(session, bound.text(one)) for one in (source.sql, source.items, source.rest)))


def with_files(session: Session, sql: str) -> str:
    """Lend DuckDB each file that SQL reads, directly or by a view or macro, under its name; return the SQL.

    DuckDB looks up such a name among its tables first, and reads a file itself only if there is none. An unquoted
    path, as in ``FROM rows.csv``, is quoted.
    """
    result = sql
    for table_name in reversed(_files(session, sql, set())):
        if table_name.kind == "name" and sql[table_name.start] != '"':
            result = result[: table_name.start] + quoted(table_name.text) + result[table_name.stop :]
    return result


def _files(session: Session, sql: str, seen: set[str]) -> list[Named]:
    """Lend DuckDB the files that SQL reads, and return their positions."""
    positions, inner = list[Named](), dict[str, list[str]]()
    for one in named(tokenize(sql)):
        if one.kind != "call" and _lend_file(session, one.text, sure=one.kind == "string"):
            positions.append(one)
        elif one.kind in COMPUTED:
            inner.setdefault(one.kind, []).append(one.text.lower())
    for kind, names in inner.items():
        lookup = set(names) | {name.rpartition(".")[2] for name in names}
        for name, text in session.rows(COMPUTED[kind]) if not lookup <= seen else ():
            if name.lower() in lookup - seen:
                _files(session, text, seen | lookup)
        seen |= lookup
    return positions


def _lend_file(session: Session, name: str, *, sure: bool) -> bool:
    """Lend DuckDB the rows of a file, if a name denotes a file and no table.

    A string can only be a file, for ``sure``. Raise BadArgument for another file whose name differs only in case.
    """
    if name in session.lent:
        return True
    if not (sure or "." in name or "/" in name):
        return False
    try:
        table = tables.open(name)
    except (MissingFile, UnknownFormat):
        return False
    except CorgiPileError:
        if sure:
            raise
        return False
    if twin := [one for one in session.lent if one.lower() == name.lower()]:
        raise BadArgument(f"DuckDB takes {name!r} and {twin[0]!r} for one name; write one of them as an absolute path")
    if session.rows(TAKEN, {"name": name}):
        return False
    if not _same_types(session, name, table):
        before = session.before.get(name)
        known = before is not None and before.fingerprint == table.fingerprint
        session.lend(before if known else materialize(table), name)
    return True


def _same_types(session: Session, file: str, table: Table) -> bool:
    """Return whether DuckDB reads a Parquet file with the same types; its own threads read faster."""
    if not (file.lower().endswith(".parquet") and Path(file).is_file()):
        return False
    empty = session.lend(_schema(table).empty_table())
    try:
        return bool(session.schema(f"SELECT * FROM {literal(file)}") == session.schema(f"SELECT * FROM {empty}"))
    except DatabaseError:
        return False
    finally:
        session.take_back(empty)


def readable_by_duckdb(name: str) -> bool:
    """Return whether a later session can read this file without corgipile."""
    path = name.lower().partition("?")[0]
    for packed in PACKED:
        path = path.removesuffix(packed)
    return path.endswith(READABLE)


def path_sql(session: Session, path: TablePath) -> str:
    """Return the SQL of a table's path: dataset and table, or the table alone if there is no schema of that name.

    The project is dropped. A path that ends with ``*`` is the union of all tables of this prefix, with the rest of
    their names as ``_TABLE_SUFFIX``.
    """
    *places, name = path[-2:]
    place = next((one for one in places if session.rows(SCHEMA, {"name": one})), None)
    schema = "" if place is None else f"{quoted(place)}."
    if not name.endswith("*"):
        return schema + quoted(name)
    prefix = name[:-1]
    tables = [row[0] for row in session.rows(RELATIONS, {"place": place, "name": prefix})]
    if not tables:
        raise BadArgument(f"no table begins with {prefix!r}, the path {'.'.join(path)!r} needs one")
    parts = [f"SELECT {literal(one[len(prefix) :])} AS _TABLE_SUFFIX, * FROM {schema}{quoted(one)}" for one in tables]
    return f"({' UNION ALL BY NAME '.join(parts)})"
