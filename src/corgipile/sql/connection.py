"""DB-API 2.0 connections and cursors over the SQL engines."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from corgipile.errors import BadArgument, MissingExtra
from corgipile.lazy import lazy
from corgipile.sql import exceptions
from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.shared import Engine
from corgipile.sql.exceptions import InterfaceError
from corgipile.sql.parameters import check_values
from corgipile.sql.statements import Statement
from corgipile.sql.types import type_code
from corgipile.tables.reach import Trust, trusting

if TYPE_CHECKING:
    from corgipile.sql import grammar
    from corgipile.sql.engines import duckdb, postgres
else:  # each engine needs its own library
    duckdb, postgres = lazy("corgipile.sql.engines.duckdb"), lazy("corgipile.sql.engines.postgres")
    grammar = lazy("corgipile.sql.grammar")

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
    """Open a database session whose SQL can train and predict.

    Args:
        database: The file of a DuckDB database, created if it does not exist; ``":memory:"``; the URL of a
            PostgreSQL server (``"postgresql://..."``); an open DuckDB connection.
        progress: Receives training progress.
        autocommit: Whether each statement outside a transaction is committed at once; False begins a transaction
            before the first statement, which `Connection.commit` ends.
        trust: ``"paths"`` lets files refer to files outside their folder, as in `corgipile.open`; None for PostgreSQL.
        **options: For DuckDB ``read_only`` and its settings, such as ``memory_limit="1GB"``; for PostgreSQL the
            driver's options.

    Raises:
        MissingExtra: The engine's library is not installed.
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
            raise BadArgument(f"trust must be None for PostgreSQL, which reads no files, got {trust!r}")
        return Connection(postgres.open_engine(database, **options), progress=progress, autocommit=autocommit)
    if not isinstance(database, str) and not hasattr(database, "execute"):
        raise BadArgument(
            f"database must be a path, ':memory:', a postgresql:// URL or an open DuckDB connection, got {database!r}"
        )
    engine = duckdb.open_engine(database, **options)
    return Connection(engine, progress=progress, autocommit=autocommit, trust=trust)


class Connection:
    """A database session; `connect` opens it.

    Args:
        engine: Runs statements.
        progress: Receives training progress.
        autocommit: As in `connect`.
        trust: As in `connect`.

    Attributes:
        engine: Runs statements.
        progress: Receives training progress.
        autocommit: As in `connect`.
        trust: As in `connect`.
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
        """Return a new cursor."""
        self.check()
        return Cursor(self)

    def execute(self, script: str, values: Values | None = (), *, progress: Progress | None = None) -> "Cursor":
        """Run statements in a new cursor and return it."""
        return self.cursor().execute(script, values, progress=progress)

    def executemany(self, script: str, rows: Iterable[Values]) -> "Cursor":
        """Run a statement once for each row of values, in a new cursor."""
        return self.cursor().executemany(script, rows)

    def parse(self, script: str) -> list[Statement]:
        """Parse a script into statements.

        Raises:
            BadStatement: The script does not parse.
        """
        return grammar.parse(script, self.engine.name.lower())

    def run(self, statement: Statement, values: Values = (), progress: Progress | None = None) -> Result:
        """Run one parsed statement."""
        self.check()
        if not self.autocommit and not self.engine.in_transaction():
            self.engine.begin()
        with trusting(self.trust):
            return self.engine.run(statement, values, progress or self.progress)

    def begin(self) -> None:
        """Begin a transaction unless one is open."""
        self.check()
        if not self.engine.in_transaction():
            self.engine.begin()

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        self.check()
        self.engine.commit()

    def rollback(self) -> None:
        """Roll back the open transaction, if any, models included."""
        self.check()
        self.engine.rollback()

    def interrupt(self) -> None:
        """Stop the statement that runs in another thread; its `execute` raises `Interrupted`."""
        if not self.closed:
            self.engine.interrupt()

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each visible table."""
        self.check()
        return self.engine.tables()

    def close(self) -> None:
        """Close the session; an open transaction is rolled back."""
        if not self.closed:
            self.closed = True
            self.engine.close()

    def check(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if self.closed:
            raise InterfaceError("the connection is closed; corgipile.sql.connect opens another")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, or roll back after an error, and close."""
        try:
            if not self.closed and kind is None:
                self.commit()
            elif not self.closed:
                with suppress(exceptions.Error):  # the original error explains more
                    self.rollback()
        finally:
            self.close()


class Cursor(Iterator[Row]):
    """Runs statements and fetches their rows; `Connection.cursor` creates it.

    Attributes:
        connection: The session.
        arraysize: Number of rows that `fetchmany` returns by default.
        description: The columns of the result; None without a result.
        rowcount: Number of changed rows, or -1 if unknown.
        notes: Notes on the statements, such as ignored options.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection, self.arraysize = connection, 1
        self.description: Description | None = None
        self.rowcount, self.lastrowid = -1, None
        self.notes: list[str] = []
        self._result, self._closed = Result(), False
        self._batch: pa.RecordBatch | None = None  # the current one
        self._part, self._at = list[Row](), 0  # its rows, and the number fetched

    def execute(self, script: str, values: Values | None = (), *, progress: Progress | None = None) -> Self:
        """Run the statements of a script; the rows are the last statement's.

        Args:
            script: The statements.
            values: The parameters' values: a list for ``?`` and ``$1``, a mapping for ``:name``.
            progress: Receives training progress; by default the connection's `progress` does.

        Raises:
            BadStatement: The script does not parse; nothing was run.
            BadArgument: There are more values than parameters; nothing was run.
        """
        self._check()
        self._set_result(Result())
        parsed, notes = self.connection.parse(script), list[str]()
        values = check_values(values, parsed)
        for statement in parsed:
            result = self.connection.run(statement, values, progress)
            self._set_result(result)
            notes += result.notes
        self.notes = notes
        return self

    def executemany(self, script: str, rows: Iterable[Values]) -> Self:
        """Run a script once for each row of values; results are discarded."""
        self._check()
        parsed, changed = self.connection.parse(script), 0
        for values in rows:
            row_values = check_values(values, parsed)
            for statement in parsed:
                count = self.connection.run(statement, row_values).count
                changed = -1 if count < 0 or changed < 0 else changed + count
        self._set_result(Result(count=changed))
        return self

    def _set_result(self, result: Result) -> None:
        self._result, self.rowcount, self.notes = result, result.count, result.notes
        self.description = None
        if (columns := result.schema) is not None:
            self.description = [(field.name, type_code(field.type), None, None, None, None, None) for field in columns]
        self._part, self._at = list[Row](), 0

    def fetchone(self) -> Row | None:
        """Return the next row, or None after the last."""
        self._check_rows()
        return self._next()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows, `arraysize` of them by default."""
        self._check_rows()
        count = self.arraysize if size is None else size
        if count < 0:
            raise BadArgument(f"size must be 0 rows or more, got {count}")
        return list(itertools.islice(self._remaining(), count))

    def fetchall(self) -> list[Row]:
        """Return the remaining rows."""
        self._check_rows()
        return list(self._remaining())

    def _remaining(self) -> Iterator[Row]:
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
        """Return the remaining rows as an Arrow table."""
        return self.reader().read_all()

    def reader(self) -> pa.RecordBatchReader:
        """Return the remaining rows as Arrow record batches, read lazily."""
        self._check_rows()
        assert self._result.schema is not None  # noqa: S101 - _check_rows raises
        buffered = [self._batch.slice(self._at)] if self._batch is not None and self._at < len(self._part) else []
        self._part, self._at = [], 0
        return pa.RecordBatchReader.from_batches(self._result.schema, itertools.chain(buffered, self._result.batches))

    def df(self) -> Any:
        """Return the remaining rows as a pandas data frame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import_module("pandas")
        except ImportError:
            raise MissingExtra("df() needs pandas: pip install pandas, or use arrow()") from None
        return self.arrow().to_pandas()

    def close(self) -> None:
        """Close the cursor and discard its rows."""
        self._set_result(Result())
        self._closed = True

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing; DB-API requires the method."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing; DB-API requires the method."""

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed; connection.cursor() opens another")
        self.connection.check()

    def _check_rows(self) -> None:
        self._check()
        if self._result.schema is None:
            raise InterfaceError("there are no rows to fetch: the last statement returned none, or none was run")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        self._check_rows()
        row = self._next()
        if row is None:
            raise StopIteration
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    if not batch.num_columns:
        return iter([()] * batch.num_rows)
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
