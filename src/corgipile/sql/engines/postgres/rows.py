"""The rows of a training: a table of the server as it lies, those of it that a condition holds of, or a query's."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from corgipile.errors import BadArgument, MissingColumn
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.postgres.types import Column, columns_of
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.exceptions import Error, OperationalError
from corgipile.sql.reader import Script
from corgipile.sql.statements import Source
from corgipile.sql.tokens import Token, tokenize
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Relation", "relation_of"]

TABLES = ("r", "p", "m")  # what the extension reads itself: tables, partitioned ones, materialized views
NUMBERS = itertools.count(1)
# So that the rows lie as the query gives them, each time alike.
STEADY = {"max_parallel_workers_per_gather": "0", "synchronize_seqscans": "off"}
QUERIES = ("SELECT", "VALUES", "TABLE")
SCRIPT = Script("", "postgres")
# What the server says where no temporary table can be made, and what that means.
BARRED = {
    "create temporary tables": "which this role may not make: GRANT TEMPORARY ON DATABASE, or",
    "corgipile.train with a query": "which cannot be made on a replica;",
    "CREATE TABLE AS": "which cannot be made in a read-only transaction or on a replica;",
}


@dataclass
class Relation:
    """Rows that the extension can read.

    Attributes:
        columns: Their columns, those that are chosen, in the order of the choice.
        kinds: The types of these, as PostgreSQL calls them; of arrays with ``[]`` behind.
        name: What SQL calls the table, quoted; empty where they are a query's.
        where: The condition that holds of the table's rows that are meant.
        query: The query whose rows they are.
        notes: What is to be said of it.
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
    virtual: set[str]  # columns that are computed as they are read, which the extension cannot


@contextmanager
def relation_of(
    session: Session,
    source: Source,
    writer: Writer,
    *,
    queries: bool = True,
    empty: bool = False,
) -> Iterator[Relation]:
    """Give the rows of a source; a temporary table goes with the block.

    Args:
        session: The session.
        source: The rows.
        writer: Writes SQL.
        queries: Whether those of a query will do; if not, they are put into a table.
        empty: Whether such a table is to have no rows, for a look at plans.

    Raises:
        BadArgument: It is a file.
        MissingColumn: The table has no such column.
        OperationalError: A temporary table is needed, and the role or the server lets none be made.
    """
    if source.file is not None:
        raise BadArgument(
            f"{source.file!r} is a file, and PostgreSQL reads tables; corgipile.sql without a server, or its command "
            "without --dsn, reads files"
        )
    found = _plain(session, source, writer)
    if found is not None:
        yield found
        return
    sql = writer.text(source.sql)
    columns = columns_of(session.described(sql))  # whose errors show the query as it was written
    with _transaction(session), _explained(), _steady(session):
        if queries:
            yield _of_query(session, sql, columns)
        else:
            made = _materialized(session, sql, empty=empty)
            yield made
            session.rows(f"DROP TABLE {made.name}")


def _plain(session: Session, source: Source, writer: Writer) -> Relation | None:
    """Return the rows as those of a table that the extension reads where it lies; None where it cannot."""
    if source.table is None or not (source.plain or source.where is not None):
        return None
    table = _table(session, writer.name(*source.table))
    columns = [] if table is None else _chosen(table, source)
    if table is None or table.virtual.intersection(columns):
        return None
    if source.where is None:
        return Relation(columns, table.kinds, table.name)
    session.described(writer.text(source.sql))  # whose errors show the condition as it was written
    condition = _condition(writer.text(source.where), source, table)
    note = f"{table.name} was read where it lies, without the rows that WHERE leaves out; nothing was copied"
    return None if condition is None else Relation(columns, table.kinds, table.name, condition, notes=[note])


def _table(session: Session, name: str) -> _Table | None:
    """Return a table that the extension can read: no view, and none of which rows are hidden from the role."""
    found = session.rows(
        "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), c.relkind::pg_catalog.text, "
        "pg_catalog.row_security_active(c.oid) FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace "
        "WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(%s)",
        [name],
    )
    if not found or found[0][1] not in TABLES or found[0][2]:
        return None
    named = found[0][0]
    computed = (
        "SELECT attname FROM pg_catalog.pg_attribute "
        "WHERE attrelid OPERATOR(pg_catalog.=) %s::pg_catalog.regclass AND attgenerated OPERATOR(pg_catalog.=) 'v'"
    )
    columns = columns_of(session.described(f"SELECT * FROM {named}"))
    return _Table(named, _kinds(session, columns), {name for (name,) in session.rows(computed, [named])})


def _kinds(session: Session, columns: list[Column]) -> dict[str, str]:
    """Return the types of columns, of domains those that they are made of."""
    said = "SELECT pg_catalog.format_type(one, NULL) FROM pg_catalog.unnest(%s::pg_catalog.oid[]) one"
    kinds = session.rows(said, [[column.number for column in columns]])
    return {column.name: kind for column, (kind,) in zip(columns, kinds, strict=True)}


def _chosen(table: _Table, source: Source) -> list[str]:
    for name in source.columns or ():
        if name not in table.kinds:
            hint = did_you_mean(name, table.kinds)
            raise MissingColumn(f"there is no column {name!r}; the rows have {listed(table.kinds)}{hint}")
    return list(table.kinds if source.columns is None else source.columns)


def _condition(where: str, source: Source, table: _Table) -> str | None:
    """Return a condition as the extension takes it, which knows the table by its own name alone.

    None where it is more than a condition of columns: it asks other tables, or the row as a whole.
    """
    assert source.table is not None  # noqa: S101 - whoever asks knows
    known, tokens, kept, done = source.alias or source.table[-1], tokenize(where), "", 0
    for at, token in enumerate(tokens):
        if token.says(*QUERIES) or _name(token) in table.virtual:
            return None
        if _name(token) != known or _is_point(tokens, at - 1):
            continue
        if _is_point(tokens, at + 1) and _name(tokens[at + 2]) in table.kinds:
            kept, done = kept + where[done : token.start], tokens[at + 2 if source.alias else at].start
        elif known not in table.kinds:
            return None
    return kept + where[done:]


def _name(token: Token) -> str | None:
    return SCRIPT.column(token) if token.kind in ("word", "name") else None


def _is_point(tokens: list[Token], at: int) -> bool:
    return 0 <= at < len(tokens) - 1 and tokens[at].says(".")


def _of_query(session: Session, sql: str, columns: list[Column]) -> Relation:
    kinds = _kinds(session, columns)
    note = "the query was run once; the server kept its rows in a temporary table while it trained"
    return Relation(list(kinds), kinds, query=sql, notes=[note])


def _materialized(session: Session, sql: str, *, empty: bool) -> Relation:
    """Keep the rows of a query in a temporary table, in the order in which it gives them."""
    name = f"pg_temp.corgipile_kept_{next(NUMBERS)}"
    session.changed(f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS {sql}\nWITH {'NO ' * empty}DATA")
    made = _table(session, name)
    assert made is not None  # noqa: S101 - it was made just now
    notes = []
    if not empty:
        size = f"pg_catalog.pg_size_pretty(pg_catalog.pg_total_relation_size('{name}'))"
        rows, shown = session.rows(f"SELECT pg_catalog.count(*), {size} FROM {name}")[0]
        notes.append(f"the query was run once; its {rows} rows ({shown}) were kept in a temporary table of the server")
    return Relation(list(made.kinds), made.kinds, made.name, notes=notes)


@contextmanager
def _transaction(session: Session) -> Iterator[None]:
    """Begin a transaction where none is open, and keep what is done in it, or take it back."""
    own = not session.in_transaction()
    if own:
        session.rows("BEGIN")
    try:
        yield
    except BaseException:
        if own:
            with suppress(Error):  # the connection is gone
                session.rows("ROLLBACK")
        raise
    if own:
        session.rows("COMMIT")


@contextmanager
def _steady(session: Session) -> Iterator[None]:
    """Have rows come in one order each time, up to the end of the block."""
    before = {name: session.rows("SELECT pg_catalog.current_setting(%s)", [name])[0][0] for name in STEADY}

    def put(values: dict[str, str]) -> None:
        for name, value in values.items():
            session.rows("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])

    put(STEADY)
    try:
        yield
    finally:
        with suppress(Error):  # of a transaction that has failed, which takes them back itself
            put(before)


@contextmanager
def _explained() -> Iterator[None]:
    """Say of a temporary table that cannot be made what would help."""
    try:
        yield
    except Error as error:
        why = next((why for said, why in BARRED.items() if said in str(error)), None)
        if why is None:
            raise
        raise OperationalError(
            f"a join, a view or a subquery is read by way of a temporary table, {why} take a table as it is, "
            f"or a table with a WHERE of its columns ({str(error).splitlines()[0]})"
        ) from None
