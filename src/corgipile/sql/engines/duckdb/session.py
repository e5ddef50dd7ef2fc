"""One connection of DuckDB: runs statements, and hands rows over as they are asked for."""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from corgipile.sql.engines.duckdb.faults import translated
from corgipile.sql.engines.engine import Result
from corgipile.sql.exceptions import DatabaseError, Interrupted
from corgipile.tables.in_memory.streams import IN_MEMORY
from corgipile.tables.io.spill import SpillFile, SpillWriter, spill_folder

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
        pinned: Names of models that functions keep for the statement under way.
    """

    def __init__(self, connection: Any) -> None:
        self.connection, self.database = connection, ""
        self.stopped = threading.Event()
        self.cause: Callable[[str], CorgiPileError | None] | None = None
        self.pinned: list[str] = []
        self._lent: list[str] = []
        self._live: Callable[[], _Rows | None] = lambda: None

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement of our own and return its few rows."""
        self.park()
        with translated(self.cause):
            return list(self.connection.sql(sql, params=dict(values or {})).fetchall())

    def schema(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Schema:
        """Return the columns that a query would give; no row is read."""
        self.park()
        with translated(self.cause):
            relation = self.connection.sql(f"SELECT * FROM ({sql}\n) LIMIT 0", params=dict(values or {}))
            return pa.RecordBatchReader.from_stream(relation).schema

    def reader(self, sql: str, values: Mapping[str, Any] | None = None, rows: int = PART) -> "_Rows":
        """Run a query; its rows come as they are asked for, about so many at a time."""
        self.park()
        with translated(self.cause):
            relation = self.connection.sql(sql, params=dict(values or {}))
            return self._begun(relation.to_arrow_reader(rows))

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> Result:
        """Run one statement of the user's."""
        self.park()
        with translated(self.cause):
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

    def _begun(self, reader: pa.RecordBatchReader) -> "_Rows":
        found = _Rows(reader, self)
        self._live = weakref.ref(found)
        return found

    def park(self) -> None:
        """Put aside the rest of an answer that is under way, so that another statement can run."""
        live = self._live()
        if live is not None:
            live.park()
        self._live = lambda: None

    def lend(self, rows: Any) -> str:
        """Let SQL read Arrow's rows until the next statement; return what it calls them."""
        name = f"corgipile_rows_{next(_numbers)}"
        self.park()
        with translated(self.cause):
            self.connection.register(name, rows)
        self._lent.append(name)
        return name

    def begin(self) -> None:
        """Hear that a statement begins: rows of an earlier one are put aside, what was lent to it is taken back."""
        self.park()
        self.stopped.clear()
        while self._lent:
            with contextlib.suppress(DatabaseError), translated():
                self.connection.unregister(self._lent.pop())

    def close(self, *, owned: bool) -> None:
        """End the session, and the connection if it is its own."""
        self.begin()
        if owned:
            self.connection.close()

    def in_transaction(self) -> bool:
        """Say whether a transaction is open: else each statement has one of its own."""
        return self.transaction() == self.transaction()

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


class _Rows(Iterator[pa.RecordBatch]):
    """Rows of an answer under way; parked, they wait in memory, or in a spill file if they are many."""

    def __init__(self, reader: pa.RecordBatchReader, session: Session) -> None:
        self.schema: pa.Schema = reader.schema
        self._session, self._reader = session, reader
        self._parts: Iterator[pa.RecordBatch] = iter(reader)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            with translated(self._session.cause):
                return next(self._parts)
        except BaseException:
            self.close()
            raise

    def park(self) -> None:
        """Read the rest, and keep it."""
        kept, size = list[pa.RecordBatch](), 0
        for part in self:
            kept.append(part)
            size += part.nbytes
            if size > IN_MEMORY:
                self._parts = _spilled(self.schema, itertools.chain(kept, self))
                return
        self._parts = iter(kept)

    def close(self) -> None:
        """Let go of the connection."""
        self._parts = iter(())
        self._reader.close()


def _spilled(schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    folder = spill_folder(None)
    if folder is None:
        return iter(list(parts))
    with SpillWriter(folder) as out:
        with out.section(), pa.ipc.new_stream(out, schema) as stream:
            for part in parts:
                stream.write_batch(part)
        file = out.finish()
    return _of_file(file)


def _of_file(file: SpillFile) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(file.path) as opened, pa.ipc.open_stream(opened) as stream:
        yield from stream
