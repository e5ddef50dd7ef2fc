"""The rows that a training reads: a file as it lies, or what a query gives, read from the database once."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.errors import BadArgument, UnknownFormat
from corgipile.features.choose import INDEX
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.sql.engines.duckdb.binding import Bound
from corgipile.sql.engines.duckdb.files import stands_alone, text_of
from corgipile.sql.engines.duckdb.matrices import spans
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import Source
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.in_memory.streams import SpilledTable, of_reader
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import Table

__all__ = ["Rows", "chosen", "opened", "read_rows"]

PART = 5 << 18  # bytes of rows that come together: more than are joined, and few beside what DuckDB keeps for itself
MANY = 4096  # rows of them where lists and text differ in length
DEFAULT: Size = declared(TrainArguments)["memory"].default


class Rows(NamedTuple):
    """Rows to learn from.

    Attributes:
        table: The rows.
        columns: Those that were chosen, in their order.
        notes: What is said of how they were read.
        place: What they are, in words.
        seconds: How long reading them took before training began.
    """

    table: Table
    columns: list[str]
    notes: list[str]
    place: str
    seconds: float = 0.0


def read_rows(session: Session, source: Source, bound: Bound, memory: Size | None) -> Rows:
    """Open the file that is meant, or read the rows of a query once: into memory, if they are few, else a spill file.

    Args:
        session: The connection, whose transaction sees the rows.
        source: What is read.
        bound: The statement's values.
        memory: The budget; rows in memory take half of it at most.
    """
    if (file := opened(source)) is not None:
        return Rows(file, *chosen(file.schema.names, source), str(source.file))
    start = time.perf_counter()
    computed = source.table is None or not source.plain or _is_view(session, source)
    place = "a query" if computed else ".".join(source.table or ())
    budget = parse_bytes(
        DEFAULT if memory is None else memory, "memory", whole=0
    )  # a share of rows not yet counted: none
    sql = text_of(session, source, bound).sql
    schema = session.schema(sql, bound.values)
    columns, left_out = chosen(schema.names, source)
    rows = max(1, int(PART / (fixed_row_bytes(schema) or PART / MANY)))
    reader = session.reader(sql, bound.values, min(rows, 1 << 17))
    kinds = pa.record_batch([spans(pa.array([], kind)) for kind in reader.schema.types], reader.schema.names).schema
    coming = pa.RecordBatchReader.from_batches(kinds, _checked(reader, session))
    try:
        table = of_reader(coming, place, most=budget // 2)
    finally:
        reader.close()
    give_back()  # what the rows took on their way is the training's now
    notes = [*_told(table, place, computed=computed), *left_out]
    return Rows(table, columns, notes, place, time.perf_counter() - start)


def opened(source: Source) -> Table | None:
    """Return the file of a source; None if DuckDB computes it, or only DuckDB reads its format."""
    if source.file is None or not source.plain:
        return None
    try:
        return open_table(source.file)
    except UnknownFormat:
        if stands_alone(source.file):
            return None
        raise


def chosen(names: list[str], source: Source) -> tuple[list[str], list[str]]:
    """Return the columns to learn from, and what is said of others: what pandas wrote of its index is left out.

    Args:
        names: The columns of the file, or those that the query gives.
        source: What is read.

    Raises:
        BadArgument: Two have one name.
        MissingColumn: There is no such column.
    """
    notes: list[str] = []
    if source.columns is None:
        index = [name for name in names if INDEX.fullmatch(name)]
        notes = [f"column {name!r} is left out: the index that pandas wrote" for name in index]
        names = [name for name in names if name not in index]
    elif source.file is not None and source.plain:
        names = [column_named(name, names) for name in source.columns]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise BadArgument(f"the query gives {listed(twice)} more than once; AS gives each column a name of its own")
    return names, notes


def _checked(parts: Iterator[pa.RecordBatch], session: Session) -> Iterator[pa.RecordBatch]:
    for part in parts:
        session.check()
        yield pa.record_batch([spans(column) for column in part.columns], part.schema.names)


def _is_view(session: Session, source: Source) -> bool:
    """Say whether what is named is computed when it is read."""
    *others, name = source.table or ("",)
    schema = others[-1] if others else session.rows("SELECT current_schema()")[0][0]
    sql = "SELECT 1 FROM duckdb_views() WHERE lower(view_name) = lower($name) AND lower(schema_name) = lower($schema)"
    return bool(session.rows(sql, {"name": name, "schema": schema}))


def _told(table: Table, place: str, *, computed: bool) -> list[str]:
    where = "a spill file" if isinstance(table, SpilledTable) else "memory"
    size = f"{len(table)} rows, {format_bytes(table.nbytes)}"
    if computed:
        return [f"the query ran once; its rows were learnt from in {where} ({size})"]
    if isinstance(table, SpilledTable):
        return [f"{place} was read once, into {where} ({size})"]
    return []
