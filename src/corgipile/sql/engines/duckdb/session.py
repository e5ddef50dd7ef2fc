"""A DuckDB connection that runs statements and streams their rows."""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.sql.engines.duckdb.faults import translate_errors
from corgipile.sql.engines.duckdb.pins import Pins
from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.uncommitted import PendingRows
from corgipile.sql.exceptions import DatabaseError, Interrupted, OperationalError
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.errors import CorgiPileError

__all__ = ["Session"]

_numbers = itertools.count(1)
BATCH_ROWS = 1 << 16  # of a result


class Session:
    """Runs statements in a connection, which has at most one unfetched result.

    ``lent`` are Python rows that SQL can read until the next statement, ``before`` those of the last file-reading
    statement, for reuse; ``pinned`` are the models of the current statement.
    """

    def __init__(self, connection: Any) -> None:
        self.connection, self.database = connection, ""
        self.stopped = threading.Event()
        self.cause: Callable[[str], CorgiPileError | None] | None = None
        self.pinned = Pins()
        self.lent, self.before = dict[str, Any](), dict[str, Any]()
        self._live: Callable[[], PendingRows | None] = lambda: None

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run an internal statement and return its rows."""
        self.park()
        with self._translate_errors():
            return list(self.connection.sql(sql, params=dict(values or {})).fetchall())

    def schema(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Schema:
        """Return the columns of a query without reading rows."""
        self.park()
        with self._translate_errors():
            relation = self.connection.sql(f"SELECT * FROM ({sql}\n) LIMIT 0", params=dict(values or {}))
            return pa.RecordBatchReader.from_stream(relation).schema

    def reader(self, sql: str, values: Mapping[str, Any] | None = None, rows: int = BATCH_ROWS) -> PendingRows:
        """Run a query and stream its rows in batches of about `rows`."""
        self.park()
        with self._translate_errors():
            relation = self.connection.sql(sql, params=dict(values or {}))
            return self._pending(relation.to_arrow_reader(rows))

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> Result:
        """Run one user statement."""
        self.park()
        with self._translate_errors():
            (statement,) = self.connection.extract_statements(sql)
            expected = {str(kind).rpartition(".")[2] for kind in statement.expected_result_type}
            relation = self.connection.sql(statement, params=dict(values or {}))
            if "QUERY_RESULT" not in expected:
                return Result()
            changed = "CHANGED_ROWS" in expected and relation.columns == ["Count"] and "returning" not in sql.lower()
            if changed:
                counts = relation.fetchall()
                return Result(count=int(counts[0][0]) if counts else -1)
            reader = self._pending(relation.to_arrow_reader(BATCH_ROWS))
        return Result(reader.schema, reader)

    def _pending(self, reader: pa.RecordBatchReader) -> PendingRows:
        schema, parts = self.pinned.answer(reader.schema, iter(reader))
        pending = PendingRows(schema, parts, self._translate_errors, reader.close)
        self._live = weakref.ref(pending)
        return pending

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.cause, self.pinned.plain)

    def park(self) -> None:
        """Buffer the rows of an unfetched result, so that another statement can run."""
        live = self._live()
        if live is not None:
            live.park()
        self._live = lambda: None

    def restore_column_names(self) -> None:
        """Replace internal model names in the column names of created tables."""
        sql = (
            "SELECT database_name, schema_name, table_name, column_name FROM system.main.duckdb_columns() "
            "WHERE system.main.contains(column_name, system.main.chr(1)) AND NOT internal"
        )
        for *place, column in self.rows(sql):
            if (name := self.pinned.plain(column)) != column:
                table = ".".join(map(quoted, place))
                self.rows(f"ALTER TABLE {table} RENAME COLUMN {quoted(column)} TO {quoted(name)}")

    def lend(self, rows: Any, name: str | None = None) -> str:
        """Let SQL read Arrow rows until the next statement; return their name."""
        name = name or f"corgipile_rows_{next(_numbers)}"
        self.park()
        with self._translate_errors():
            self.connection.register(name, rows)
        self.lent[name] = rows
        return name

    def take_back(self, name: str) -> None:
        """Stop lending rows."""
        del self.lent[name]
        with contextlib.suppress(DatabaseError), translate_errors():
            self.connection.unregister(name)

    def begin(self) -> None:
        """Prepare for a statement: buffer unfetched rows and stop lending."""
        self.park()
        self.stopped.clear()
        self.before = {name: rows for name, rows in self.lent.items() if hasattr(rows, "fingerprint")} or self.before
        for name in list(self.lent):
            self.take_back(name)

    def close(self, *, owned: bool) -> None:
        """Close the session, and the connection if owned; unfetched rows are lost."""
        if (live := self._live()) is not None:
            live.close()
        self.begin()
        if owned:
            self.connection.close()

    def in_transaction(self) -> bool:
        """Return whether a transaction is open; otherwise every statement gets a new transaction number."""
        try:
            return self.transaction() == self.transaction()
        except OperationalError:  # a failed transaction accepts only ROLLBACK
            return True

    def transaction(self) -> int:
        """Return the number of the current transaction."""
        return int(self.rows("SELECT system.main.txid_current()")[0][0])

    def check(self) -> None:
        """Raise Interrupted if the statement was interrupted."""
        if self.stopped.is_set():
            raise Interrupted("the statement was interrupted")

    def interrupt(self) -> None:
        """Stop the running statement."""
        self.stopped.set()
        self.connection.interrupt()
