"""The rows of a training: a file read in place, or a query's result materialised once."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.errors import BadArgument, UnknownFormat
from corgipile.features.choose import INDEX
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.sql.engines.duckdb.binding import BoundSql
from corgipile.sql.engines.duckdb.files import readable_by_duckdb, select_text
from corgipile.sql.engines.duckdb.matrices import as_durations
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import Source
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.in_memory.streams import SpilledTable, of_reader
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import Table

__all__ = ["Rows", "choose_columns", "open_source", "read_query", "read_rows"]

BATCH_BYTES = 5 << 18  # of rows fetched at once: enough to skip joining batches, little beside DuckDB's own memory
MAX_VARLEN_ROWS = 4096  # fetched at once if rows contain lists or text
DEFAULT: Size = declared(TrainArguments)["memory"].default


class Rows(NamedTuple):
    """Training rows, the selected columns in order, notes on how they were read, and the seconds that took."""

    table: Table
    columns: list[str]
    notes: list[str]
    seconds: float = 0.0


def read_rows(session: Session, source: Source, bound: BoundSql, memory: Size | None) -> Rows:
    """Open the source's file, or run its query once, in the session's transaction, as `read_query` does."""
    if (file := open_source(source)) is not None:
        return Rows(file, *choose_columns(file.schema.names, source))
    start = time.perf_counter()
    computed = source.table is None or not source.plain or _is_view(session, source)
    place = "a query" if computed else ".".join(source.table or ())
    sql = select_text(session, source, bound).sql
    columns, left_out = choose_columns(session.schema(sql, bound.values).names, source)
    table = read_query(session, sql, bound.values, place, memory)
    notes = [*_read_notes(table, place, computed=computed), *left_out]
    return Rows(table, columns, notes, time.perf_counter() - start)


def read_query(session: Session, sql: str, values: Mapping[str, Any] | None, place: str, memory: Size | None) -> Table:
    """Run a query once into memory or, if large, a spill file; buffered rows take at most half of ``memory``."""
    # the number of rows is unknown, so a percentage is 0
    budget = parse_bytes(DEFAULT if memory is None else memory, "memory", whole=0)
    schema = session.schema(sql, values)
    rows = max(1, int(BATCH_BYTES / (fixed_row_bytes(schema) or BATCH_BYTES / MAX_VARLEN_ROWS)))
    reader = session.reader(sql, values, min(rows, 1 << 17))
    kinds = pa.record_batch(
        [as_durations(pa.array([], kind)) for kind in reader.schema.types], reader.schema.names
    ).schema
    checked = pa.RecordBatchReader.from_batches(kinds, _checked(reader, session))
    try:
        return of_reader(checked, place, most=budget // 2)
    finally:
        reader.close()
        give_back()  # frees the transfer's memory


def open_source(source: Source) -> Table | None:
    """Open the file of a source; return None if DuckDB computes the rows or only DuckDB reads the format."""
    if source.file is None or not source.plain:
        return None
    try:
        return open_table(source.file)
    except UnknownFormat:
        if readable_by_duckdb(source.file):
            return None
        raise


def choose_columns(names: list[str], source: Source) -> tuple[list[str], list[str]]:
    """Return the columns to train on, without pandas' index, and notes on ignored columns.

    Raise BadArgument if two have the same name.
    """
    notes: list[str] = []
    if source.columns is None:
        index = [name for name in names if INDEX.fullmatch(name)]
        notes = [f"column {name!r} is left out: it is a pandas index" for name in index]
        names = [name for name in names if name not in index]
    elif source.file is not None and source.plain:
        names = [column_named(name, names) for name in source.columns]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise BadArgument(f"columns must have different names, got {listed(twice)} more than once; rename them with AS")
    return names, notes


def _checked(parts: Iterator[pa.RecordBatch], session: Session) -> Iterator[pa.RecordBatch]:
    for part in parts:
        session.check()
        yield pa.record_batch([as_durations(column) for column in part.columns], part.schema.names)


def _is_view(session: Session, source: Source) -> bool:
    """Return whether the source is a view, whose rows are computed when read."""
    *others, name = source.table or ("",)
    schema = others[-1] if others else session.rows("SELECT system.main.current_schema()")[0][0]
    views = session.rows("SELECT schema_name, view_name FROM system.main.duckdb_views()")
    return (schema.lower(), name.lower()) in {(place.lower(), view.lower()) for place, view in views}


def _read_notes(table: Table, place: str, *, computed: bool) -> list[str]:
    where = "a spill file" if isinstance(table, SpilledTable) else "memory"
    size = f"{len(table)} rows, {format_bytes(table.nbytes)}"
    if computed:
        return [f"the query ran once; training read its rows from {where} ({size})"]
    if isinstance(table, SpilledTable):
        return [f"{place} was read once into {where} ({size})"]
    return []
