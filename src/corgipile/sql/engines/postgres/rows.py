"""The rows of a training: a table read in place, with an optional condition, or a query."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from corgipile.errors import BadArgument
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.postgres.types import Column, columns_of
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.shared import transaction
from corgipile.sql.engines.training import missing_column
from corgipile.sql.exceptions import Error, OperationalError
from corgipile.sql.reader import Script
from corgipile.sql.statements import Source
from corgipile.sql.tokens import Token, tokenize

__all__ = ["Relation", "relation_of"]

TABLES = ("r", "p", "m")  # read by the extension: tables, partitioned tables, materialized views
NUMBERS = itertools.count(1)
# Make a query return its rows in the same order each time.
FIXED_ORDER = {"max_parallel_workers_per_gather": "0", "synchronize_seqscans": "off"}
QUERIES = ("SELECT", "VALUES", "TABLE")
SCRIPT = Script("", "postgres")
# The server's errors when a temporary table cannot be created, and their meaning.
TEMP_TABLE_ERRORS = {
    "create temporary tables": "which this role may not create; GRANT TEMPORARY ON DATABASE, or",
    "corgipile.train with a query": "which a replica cannot create;",
    "CREATE TABLE AS": "which a read-only transaction or a replica cannot create;",
}


@dataclass
class Relation:
    """Rows as the extension can read them: columns of a table by its quoted name, or of a query.

    Types are PostgreSQL's; arrays end with ``[]``.
    """

    columns: list[str]
    kinds: dict[str, str]
    name: str = ""
    where: str | None = None
    query: str | None = None
    notes: list[str] = field(default_factory=list)


class _Table(NamedTuple):
    """A table that the extension can read."""

    name: str
    kinds: dict[str, str]
    virtual: set[str]  # generated columns, which the extension cannot read


@contextmanager
def relation_of(
    session: Session, source: Source, writer: Writer, *, queries: bool = True, empty: bool = False
) -> Iterator[Relation]:
    """Provide the rows of a source; a temporary table is dropped after the block.

    Without ``queries`` the rows of a query go to one, which stays ``empty`` to explain a plan.
    """
    if source.file is not None:
        raise BadArgument(
            f"PostgreSQL reads tables, got file {source.file!r}; to read files, connect without a server (omit --dsn)"
        )
    relation = _table_relation(session, source, writer)
    if relation is not None:
        yield relation
        return
    sql = writer.text(source.sql)
    columns = columns_of(session.describe(sql))  # its errors show the query as written
    with transaction(session), _explain_temp_table_errors(), _fixed_row_order(session):
        if queries:
            kinds = _kinds(session, columns)
            note = "the query ran once, into a temporary table of the server for the training"
            yield Relation(list(kinds), kinds, query=sql, notes=[note])
        else:
            relation = _materialized(session, sql, empty=empty)
            yield relation
            session.rows(f"DROP TABLE {relation.name}")


def _table_relation(session: Session, source: Source, writer: Writer) -> Relation | None:
    """Return the rows as a table that the extension reads in place, or None if it cannot."""
    if source.table is None or not (source.plain or source.where is not None):
        return None
    table = _table(session, writer.name(*source.table))
    columns = [] if table is None else _selected_columns(table, source)
    if table is None or table.virtual.intersection(columns):
        return None
    if source.where is None:
        return Relation(columns, table.kinds, table.name)
    session.describe(writer.text(source.sql))  # its errors show the condition as written
    condition = _condition(writer.text(source.where), source, table)
    note = f"{table.name} was read in place without copying; WHERE selected its rows"
    return None if condition is None else Relation(columns, table.kinds, table.name, condition, notes=[note])


def _table(session: Session, name: str) -> _Table | None:
    """Return a table that the extension can read; None for views and tables with row security."""
    rows = session.rows(
        "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), c.relkind::pg_catalog.text, "
        "pg_catalog.row_security_active(c.oid) FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace "
        "WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(%s)",
        [name],
    )
    if not rows or rows[0][1] not in TABLES or rows[0][2]:
        return None
    named = rows[0][0]
    computed = (
        "SELECT attname FROM pg_catalog.pg_attribute "
        "WHERE attrelid OPERATOR(pg_catalog.=) %s::pg_catalog.regclass AND attgenerated OPERATOR(pg_catalog.=) 'v'"
    )
    columns = columns_of(session.describe(f"SELECT * FROM {named}"))
    return _Table(named, _kinds(session, columns), {name for (name,) in session.rows(computed, [named])})


def _kinds(session: Session, columns: list[Column]) -> dict[str, str]:
    """Return the types of columns; domains become their base types."""
    types_query = "SELECT pg_catalog.format_type(one, NULL) FROM pg_catalog.unnest(%s::pg_catalog.oid[]) one"
    kinds = session.rows(types_query, [[column.number for column in columns]])
    return {column.name: kind for column, (kind,) in zip(columns, kinds, strict=True)}


def _selected_columns(table: _Table, source: Source) -> list[str]:
    for name in source.columns or ():
        if name not in table.kinds:
            raise missing_column(name, table.kinds)
    return list(table.kinds if source.columns is None else source.columns)


def _condition(where: str, source: Source, table: _Table) -> str | None:
    """Rewrite a condition for the extension, which knows the table only by its own name.

    Return None if the condition reads other tables or the row as a whole.
    """
    assert source.table is not None  # noqa: S101 - the caller checks
    table_name, tokens, rewritten, copied = source.alias or source.table[-1], tokenize(where), "", 0
    for at, token in enumerate(tokens):
        if token.matches(*QUERIES) or _name(token) in table.virtual:
            return None
        if _name(token) != table_name or _is_point(tokens, at - 1):
            continue
        if _is_point(tokens, at + 1) and _name(tokens[at + 2]) in table.kinds:
            rewritten, copied = rewritten + where[copied : token.start], tokens[at + 2 if source.alias else at].start
        elif table_name not in table.kinds:
            return None
    return rewritten + where[copied:]


def _name(token: Token) -> str | None:
    return SCRIPT.column(token) if token.kind in ("word", "name") else None


def _is_point(tokens: list[Token], at: int) -> bool:
    return 0 <= at < len(tokens) - 1 and tokens[at].matches(".")


def _materialized(session: Session, sql: str, *, empty: bool) -> Relation:
    """Store the rows of a query in a temporary table, in the query's order."""
    name = f"pg_temp.corgipile_kept_{next(NUMBERS)}"
    session.update_count(f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS {sql}\nWITH {'NO ' * empty}DATA")
    table = _table(session, name)
    assert table is not None  # noqa: S101 - it was just created
    notes = []
    if not empty:
        size = f"pg_catalog.pg_size_pretty(pg_catalog.pg_total_relation_size('{name}'))"
        rows, shown = session.rows(f"SELECT pg_catalog.count(*), {size} FROM {name}")[0]
        notes.append(f"the query ran once, into a temporary table of the server: {rows} rows ({shown})")
    return Relation(list(table.kinds), table.kinds, table.name, notes=notes)


@contextmanager
def _fixed_row_order(session: Session) -> Iterator[None]:
    """Make queries return rows in the same order each time, within the block."""
    before = {name: session.rows("SELECT pg_catalog.current_setting(%s)", [name])[0][0] for name in FIXED_ORDER}

    def put(values: dict[str, str]) -> None:
        for name, value in values.items():
            session.rows("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])

    put(FIXED_ORDER)
    try:
        yield
    finally:
        with suppress(Error):  # a failed transaction resets them itself
            put(before)


@contextmanager
def _explain_temp_table_errors() -> Iterator[None]:
    """Convert errors about temporary tables to errors with a hint."""
    try:
        yield
    except Error as error:
        why = next((why for text, why in TEMP_TABLE_ERRORS.items() if text in str(error)), None)
        if why is None:
            raise
        raise OperationalError(
            f"a join, view or subquery needs a temporary table, {why} train on a table, "
            f"optionally with a WHERE on its columns ({str(error).splitlines()[0]})"
        ) from None
