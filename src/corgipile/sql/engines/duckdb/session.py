"""One connection of DuckDB: runs statements, and hands rows over as they are asked for."""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.sql.engines.duckdb.faults import translated
from corgipile.sql.engines.duckdb.pins import Pins
from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.uncommitted import Parked
from corgipile.sql.exceptions import DatabaseError, Interrupted, OperationalError
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.errors import CorgiPileError

__all__ = ["Session"]

_numbers = itertools.count(1)
PART = 1 << 16  # rows of an answer that waits


class Session:
    """Runs statements in a connection, which can have only one answer under way.

    Args:
        connection: An open connection of DuckDB.

    Attributes:
        database: The name of the database that it uses, as far as is known.
        pinned: The models that functions keep for the statement under way.
        lent: Rows that SQL reads until the next statement, by name.
        before: Those of the last statement that read files, which the next one may read again.
    """

    def __init__(self, connection: Any) -> None:
        self.connection, self.database = connection, ""
        self.stopped = threading.Event()
        self.cause: Callable[[str], CorgiPileError | None] | None = None
        self.pinned = Pins()
        self.lent, self.before = dict[str, Any](), dict[str, Any]()
        self._live: Callable[[], Parked | None] = lambda: None

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement of our own and return its few rows."""
        self.park()
        with self._translated():
            return list(self.connection.sql(sql, params=dict(values or {})).fetchall())

    def schema(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Schema:
        """Return the columns that a query would give; no row is read."""
        self.park()
        with self._translated():
            relation = self.connection.sql(f"SELECT * FROM ({sql}\n) LIMIT 0", params=dict(values or {}))
            return pa.RecordBatchReader.from_stream(relation).schema

    def reader(self, sql: str, values: Mapping[str, Any] | None = None, rows: int = PART) -> Parked:
        """Run a query; its rows come as they are asked for, about so many at a time."""
        self.park()
        with self._translated():
            relation = self.connection.sql(sql, params=dict(values or {}))
            return self._begun(relation.to_arrow_reader(rows))

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> Result:
        """Run one statement of the user's."""
        self.park()
        with self._translated():
            (statement,) = self.connection.extract_statements(sql)
            expected = {str(kind).rpartition(".")[2] for kind in statement.expected_result_type}
            relation = self.connection.sql(statement, params=dict(values or {}))
            if "QUERY_RESULT" not in expected:
                return Result()
            changed = "CHANGED_ROWS" in expected and relation.columns == ["Count"] and "returning" not in sql.lower()
            if changed:
                counts = relation.fetchall()
                return Result(count=int(counts[0][0]) if counts else -1)
            reader = self._begun(relation.to_arrow_reader(PART))
        return Result(reader.schema, reader)

    def _begun(self, reader: pa.RecordBatchReader) -> Parked:
        schema, parts = self.pinned.answer(reader.schema, iter(reader))
        found = Parked(schema, parts, self._translated, reader.close)
        self._live = weakref.ref(found)
        return found

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.cause, self.pinned.plain)

    def park(self) -> None:
        """Put aside the rest of an answer that is under way, so that another statement can run."""
        live = self._live()
        if live is not None:
            live.park()
        self._live = lambda: None

    def name_plainly(self) -> None:
        """Name columns of a table that was made after calls as users wrote them."""
        sql = (
            "SELECT database_name, schema_name, table_name, column_name FROM duckdb_columns() "
            "WHERE contains(column_name, chr(1)) AND NOT internal"
        )
        for *place, column in self.rows(sql):
            if (name := self.pinned.plain(column)) != column:
                table = ".".join(map(quoted, place))
                self.rows(f"ALTER TABLE {table} RENAME COLUMN {quoted(column)} TO {quoted(name)}")

    def lend(self, rows: Any, name: str | None = None) -> str:
        """Let SQL read Arrow's rows until the next statement; return what it calls them."""
        name = name or f"corgipile_rows_{next(_numbers)}"
        self.park()
        with self._translated():
            self.connection.register(name, rows)
        self.lent[name] = rows
        return name

    def take_back(self, name: str) -> None:
        """Take back the rows lent to SQL."""
        del self.lent[name]
        with contextlib.suppress(DatabaseError), translated():
            self.connection.unregister(name)

    def begin(self) -> None:
        """Hear that a statement begins: rows of an earlier one are put aside, what was lent to it is taken back."""
        self.park()
        self.stopped.clear()
        self.before = {name: rows for name, rows in self.lent.items() if hasattr(rows, "fingerprint")} or self.before
        for name in list(self.lent):
            self.take_back(name)

    def close(self, *, owned: bool) -> None:
        """End the session, and the connection if it is its own; rows that nobody has fetched are gone."""
        if (live := self._live()) is not None:
            live.close()
        self.begin()
        if owned:
            self.connection.close()

    def in_transaction(self) -> bool:
        """Say whether a transaction is open: else each statement has one of its own."""
        try:
            return self.transaction() == self.transaction()
        except OperationalError:  # it is one that an error has ended for all but ROLLBACK
            return True

    def transaction(self) -> int:
        """Return the number of the transaction that a statement runs in."""
        return int(self.rows("SELECT txid_current()")[0][0])

    def check(self) -> None:
        """Raise Interrupted if the statement is to stop."""
        if self.stopped.is_set():
            raise Interrupted("the statement was interrupted")

    def interrupt(self) -> None:
        """Stop what runs."""
        self.stopped.set()
        self.connection.interrupt()
