"""Connections and cursors as DB-API 2.0 has them, over the engines."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from corgipile.errors import BadArgument, MissingExtra
from corgipile.sql import exceptions
from corgipile.sql.engines.engine import Engine, Progress, Result, Values, perform
from corgipile.sql.exceptions import InterfaceError
from corgipile.sql.parameters import fitting
from corgipile.sql.statements import Statement
from corgipile.sql.types import type_code
from corgipile.tables.reach import Trust, trusting

__all__ = ["Connection", "Cursor", "connect"]

POSTGRES = ("postgresql://", "postgres://")
Row = tuple[Any, ...]
Description = list[tuple[str, Any, None, None, None, None, None]]


def connect(
    database: Any = ":memory:",
    *,
    progress: Progress | None = None,
    autocommit: bool = True,
    trust: Trust = None,
    **options: Any,
) -> "Connection":
    """Open a session in which SQL trains and predicts.

    Args:
        database: The file of a DuckDB database, which is made if there is none; ``":memory:"``; the URL of a
            PostgreSQL server (``"postgresql://..."``); an open connection of DuckDB.
        progress: Who is told how trainings go on.
        autocommit: Whether each statement is kept at once, unless a transaction was begun; False begins one before
            the first statement, for `Connection.commit` to keep.
        trust: ``"paths"`` lets files refer to files outside their folder, as in `corgipile.open`; None for PostgreSQL.
        **options: For DuckDB ``read_only`` and its settings, such as ``memory_limit="1GB"``; for PostgreSQL those of
            the driver.

    Raises:
        MissingExtra: The library of the engine is not installed.
        ReadFailed: Another process has the database open.

    Example:
        >>> with connect() as connection:
        ...     connection.execute("SELECT 6 * 7 AS answer").fetchone()
        (42,)
    """
    if isinstance(database, os.PathLike):
        database = os.fspath(database)
    if isinstance(database, str) and database.startswith(POSTGRES):
        if trust is not None:
            raise BadArgument(f"trust must be None for a server, which reads no files, got {trust!r}")
        from corgipile.sql.engines import postgres  # noqa: PLC0415 - each engine needs a library of its own

        return Connection(postgres.connected(database, **options), progress=progress, autocommit=autocommit)
    if not isinstance(database, str) and not hasattr(database, "execute"):
        raise BadArgument(
            "database must be a path, ':memory:', a postgresql:// URL or an open connection of DuckDB, "
            f"got {database!r}"
        )
    from corgipile.sql.engines import duckdb  # noqa: PLC0415 - as above

    found = duckdb.connected(database, **options)
    return Connection(found, progress=progress, autocommit=autocommit, trust=trust)


class Connection:
    """A session of a database, as `connect` opens it.

    Args:
        engine: What runs statements.
        progress: Who is told how trainings go on.
        autocommit: Whether each statement is kept at once.
        trust: As of `connect`.

    Attributes:
        engine: What runs statements.
        progress: Who is told how trainings go on.
        autocommit: Whether each statement is kept at once.
        trust: As of `connect`.
    """

    Error = exceptions.Error
    Warning = exceptions.Warning
    InterfaceError = exceptions.InterfaceError
    DatabaseError = exceptions.DatabaseError
    DataError = exceptions.DataError
    OperationalError = exceptions.OperationalError
    IntegrityError = exceptions.IntegrityError
    InternalError = exceptions.InternalError
    ProgrammingError = exceptions.ProgrammingError
    NotSupportedError = exceptions.NotSupportedError

    def __init__(
        self, engine: Engine, *, progress: Progress | None = None, autocommit: bool = True, trust: Trust = None
    ) -> None:
        self.engine, self.progress, self.autocommit, self.trust = engine, progress, autocommit, trust
        self.closed = False

    def cursor(self) -> "Cursor":
        """Return a cursor of this session."""
        self.check()
        return Cursor(self)

    def execute(self, script: str, values: Values | None = (), *, progress: Progress | None = None) -> "Cursor":
        """Run statements in a cursor of their own, which is returned."""
        return self.cursor().execute(script, values, progress=progress)

    def executemany(self, script: str, rows: Iterable[Values]) -> "Cursor":
        """Run a statement for each of many rows of values."""
        return self.cursor().executemany(script, rows)

    def parse(self, script: str) -> list[Statement]:
        """Return the statements of a script.

        Raises:
            BadStatement: It does not parse.
        """
        from corgipile.sql.grammar import parse  # noqa: PLC0415 - of an extra

        return parse(script, self.engine.name.lower())

    def run(self, statement: Statement, values: Values = (), progress: Progress | None = None) -> Result:
        """Run one statement that was parsed."""
        self.check()
        if not self.autocommit and not self.engine.in_transaction():
            self.engine.begin()
        with trusting(self.trust):
            return perform(self.engine, statement, values, progress or self.progress)

    def begin(self) -> None:
        """Begin a transaction; nothing happens where one is open."""
        self.check()
        if not self.engine.in_transaction():
            self.engine.begin()

    def commit(self) -> None:
        """Keep what was done; nothing happens where no transaction is open."""
        self.check()
        self.engine.commit()

    def rollback(self) -> None:
        """Take back what was done, models too; nothing happens where no transaction is open."""
        self.check()
        self.engine.rollback()

    def interrupt(self) -> None:
        """Stop the statement that another thread runs; its `execute` raises `Interrupted`."""
        if not self.closed:
            self.engine.interrupt()

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table that the session sees."""
        self.check()
        return self.engine.tables()

    def close(self) -> None:
        """End the session; what a transaction that is open did is taken back."""
        if not self.closed:
            self.closed = True
            self.engine.close()

    def check(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if self.closed:
            raise InterfaceError("the connection is closed; corgipile.sql.connect opens another")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep what was done, or take it back after an error, and close."""
        try:
            if not self.closed and kind is None:
                self.commit()
            elif not self.closed:
                with suppress(exceptions.Error):  # the error that ends it says more
                    self.rollback()
        finally:
            self.close()


class Cursor(Iterator[Row]):
    """Runs statements and hands over their rows; `Connection.cursor` makes it.

    Attributes:
        connection: The session.
        arraysize: Rows that `fetchmany` returns unless it is told how many.
        description: The columns of the answer; None where there are none.
        rowcount: How many rows were changed, or -1 where nobody knows.
        notes: What is said of the statements besides.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection, self.arraysize = connection, 1
        self.description: Description | None = None
        self.rowcount, self.lastrowid = -1, None
        self.notes: list[str] = []
        self._result, self._closed = Result(), False
        self._batch: pa.RecordBatch | None = None  # that rows are fetched from
        self._part, self._at = list[Row](), 0  # its rows, and how many of them were fetched

    def execute(self, script: str, values: Values | None = (), *, progress: Progress | None = None) -> Self:
        """Run the statements of a script; the rows are those of the last one.

        Args:
            script: The statements.
            values: For their parameters: a list for ``?`` and ``$1``, a mapping for ``:name``.
            progress: Who is told how trainings go on; by default whom the connection tells.

        Raises:
            BadStatement: It does not parse; nothing was run.
            BadArgument: There are more values than places; nothing was run.
        """
        self._check()
        self._took(Result())
        parsed, notes = self.connection.parse(script), list[str]()
        values = fitting(values, parsed)
        for statement in parsed:
            result = self.connection.run(statement, values, progress)
            self._took(result)
            notes += result.notes
        self.notes = notes
        return self

    def executemany(self, script: str, rows: Iterable[Values]) -> Self:
        """Run a script for each of many rows of values; answers are not kept."""
        self._check()
        parsed, changed = self.connection.parse(script), 0
        for values in rows:
            given = fitting(values, parsed)
            for statement in parsed:
                count = self.connection.run(statement, given).count
                changed = -1 if count < 0 or changed < 0 else changed + count
        self._took(Result(count=changed))
        return self

    def _took(self, result: Result) -> None:
        self._result, self.rowcount, self.notes = result, result.count, result.notes
        columns = result.schema
        self.description = (
            None
            if columns is None
            else [(one.name, type_code(one.type), None, None, None, None, None) for one in columns]
        )
        self._part, self._at = list[Row](), 0

    def fetchone(self) -> Row | None:
        """Return the next row, None after the last."""
        self._check_rows()
        return self._next()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows, `arraysize` of them unless it is said how many."""
        self._check_rows()
        wanted = self.arraysize if size is None else size
        if wanted < 0:
            raise BadArgument(f"size must be 0 rows or more, got {wanted}")
        return list(itertools.islice(self._left(), wanted))

    def fetchall(self) -> list[Row]:
        """Return all rows that are left."""
        self._check_rows()
        return list(self._left())

    def _left(self) -> Iterator[Row]:
        return iter(self._next, None)

    def _next(self) -> Row | None:
        while self._at == len(self._part):
            self._batch = next(self._result.batches, None)
            if self._batch is None:
                self._part, self._at = [], 0
                return None
            self._part, self._at = list(_rows_of(self._batch)), 0
        self._at += 1
        return self._part[self._at - 1]

    def arrow(self) -> pa.Table:
        """Return the rows that are left as a table of Arrow."""
        return self.reader().read_all()

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows that are left as record batches of Arrow, which come as they are asked for."""
        self._check_rows()
        assert self._result.schema is not None  # noqa: S101 - asked before
        rest = [self._batch.slice(self._at)] if self._batch is not None and self._at < len(self._part) else []
        self._part, self._at = [], 0
        return pa.RecordBatchReader.from_batches(self._result.schema, itertools.chain(rest, self._result.batches))

    def df(self) -> Any:
        """Return the rows that are left as a data frame of pandas.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import_module("pandas")
        except ImportError:
            raise MissingExtra("df() needs pandas: pip install pandas; arrow() needs nothing more") from None
        return self.arrow().to_pandas()

    def close(self) -> None:
        """Let go of the rows."""
        self._took(Result())
        self._closed = True

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing: DB-API wants it."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: DB-API wants it."""

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed; connection.cursor() makes another")
        self.connection.check()

    def _check_rows(self) -> None:
        self._check()
        if self._result.schema is None:
            raise InterfaceError("there are no rows to fetch: the last statement gave none, or none was run")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        self._check_rows()
        found = self._next()
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    if not batch.num_columns:
        return iter([()] * batch.num_rows)
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
