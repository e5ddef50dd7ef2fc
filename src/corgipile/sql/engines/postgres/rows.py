"""The rows of a training, as a relation of the server: the table itself, or a temporary one of what is computed."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from corgipile.errors import BadArgument, MissingColumn
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.exceptions import Error, OperationalError, ProgrammingError
from corgipile.sql.statements import Source
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Relation", "relation_of"]

TABLES = ("r", "p", "m")  # what the extension reads itself: tables, partitioned ones, materialized views
NUMBERS = itertools.count(1)
# So that the rows lie as the query gives them, each time alike.
STEADY = {"max_parallel_workers_per_gather": "0", "synchronize_seqscans": "off"}


@dataclass
class Relation:
    """Rows that the extension can read.

    Attributes:
        name: What SQL calls them, quoted.
        columns: Their columns, those that are chosen, in the order of the choice.
        kinds: The types of these, as PostgreSQL calls them; of arrays with ``[]`` behind.
        notes: What is to be said of it.
    """

    name: str
    columns: list[str]
    kinds: dict[str, str]
    notes: list[str] = field(default_factory=list)


@contextmanager
def relation_of(session: Session, source: Source, writer: Writer, *, empty: bool = False) -> Iterator[Relation]:
    """Give the rows of a source as a relation; a temporary table goes with the block.

    Args:
        session: The session.
        source: The rows.
        writer: Writes SQL.
        empty: Whether a temporary table is to have no rows, for a look at plans.

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
    if source.plain and source.table is not None and (oid := _table(session, writer.name(*source.table))):
        yield _relation(session, oid, list(source.columns) if source.columns is not None else None)
        return
    with _materialized(session, writer.text(source.sql), empty=empty) as made:
        yield made


def _table(session: Session, name: str) -> int | None:
    """Return the number of a table that the extension can read; None where it is a view, or nothing that is there."""
    found = session.rows(
        "SELECT oid, relkind::text FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass(%s)", [name]
    )
    return int(found[0][0]) if found and found[0][1] in TABLES else None


def _relation(session: Session, oid: int, chosen: list[str] | None) -> Relation:
    found = session.rows(
        "SELECT attname, pg_catalog.format_type(atttypid, NULL) FROM pg_catalog.pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [oid],
    )
    kinds = dict(found)
    for name in chosen or ():
        if name not in kinds:
            hint = did_you_mean(name, kinds)
            raise MissingColumn(f"there is no column {name!r}; the rows have {listed(kinds)}{hint}")
    named = session.rows(
        "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname) FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
        [oid],
    )
    return Relation(named[0][0], chosen or list(kinds), kinds)


@contextmanager
def _materialized(session: Session, sql: str, *, empty: bool) -> Iterator[Relation]:
    """Keep the rows of a query in a temporary table, in the order in which it gives them."""
    name = f"pg_temp.corgipile_rows_{next(NUMBERS)}"
    own = not session.in_transaction()
    if own:
        session.rows("BEGIN")
    try:
        session.described(sql)  # whose errors show the query as it was written
        with _steady(session):
            _create(session, f"CREATE TEMPORARY TABLE {name} AS {sql}\nWITH {'NO ' * empty}DATA")
        oid = session.rows("SELECT %s::regclass::oid", [name])[0][0]
        made = _relation(session, oid, None)
        if not empty:
            made.notes.append(_kept(session, name))
        yield made
        session.rows(f"DROP TABLE {name}")
    except BaseException:
        if own:
            with suppress(Error):  # the connection is gone
                session.rows("ROLLBACK")
        raise
    if own:
        session.rows("COMMIT")


def _kept(session: Session, name: str) -> str:
    sql = f"SELECT count(*), pg_catalog.pg_size_pretty(pg_catalog.pg_total_relation_size('{name}')) FROM {name}"
    rows, size = session.rows(sql)[0]
    return f"the query was run once; its {rows} rows ({size}) were kept in a temporary table for the training"


@contextmanager
def _steady(session: Session) -> Iterator[None]:
    """Have rows come in one order each time."""
    before = {name: session.rows("SELECT pg_catalog.current_setting(%s)", [name])[0][0] for name in STEADY}
    for name, value in STEADY.items():
        session.rows("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])
    yield
    for name, value in before.items():
        session.rows("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])


def _create(session: Session, sql: str) -> None:
    try:
        session.changed(sql)
    except ProgrammingError as error:
        if "temporary tables" not in str(error):
            raise
        raise OperationalError(
            "a WHERE, a join or a view is trained from by way of a temporary table, which this role may not make: "
            f"GRANT TEMPORARY ON DATABASE, or train from a table as it is ({str(error).splitlines()[0]})"
        ) from None
    except Error as error:
        if "read-only" not in str(error) and "recovery" not in str(error):
            raise
        raise OperationalError(
            "a WHERE, a join or a view is trained from by way of a temporary table, which cannot be made in a "
            f"read-only transaction or on a replica; train from a table as it is ({str(error).splitlines()[0]})"
        ) from None
