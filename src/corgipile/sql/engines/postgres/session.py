"""A PostgreSQL connection that runs statements and streams their rows."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.postgres.faults import library, translate_errors
from corgipile.sql.engines.postgres.types import batches, columns_of
from corgipile.sql.engines.uncommitted import PendingRows
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.tokens import tokenize

__all__ = ["Session"]

CHUNK_ROWS = 1000  # fetched at once by the driver


class Session:
    """Runs statements in an autocommit connection, which has at most one unfetched result."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._live: Callable[[], PendingRows | None] = lambda: None
        self._texts: set[int] = set()  # OIDs of types read as text
        self._size = {"size": CHUNK_ROWS} if library().pq.version() >= 170000 else {}

    def rows(self, sql: Any, values: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run an internal statement and return its rows; `values` replace ``%s``."""
        self.park()
        with translate_errors(), self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def update_count(self, sql: Any, values: Sequence[Any] | None = None) -> int:
        """Run an internal statement and return the number of changed rows."""
        self.park()
        with translate_errors(), self.connection.cursor() as cursor:
            return int(cursor.execute(sql, values).rowcount)

    def describe(self, sql: str) -> Any:
        """Return libpq's description of a statement's columns without running it."""
        self.park()
        psycopg, server = library(), self.connection.pgconn
        with translate_errors():
            encoding = self.connection.info.encoding
            for result in (server.prepare(b"", sql.encode(encoding)), server.describe_prepared(b"")):
                if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                    raise psycopg.errors.error_from_result(result, encoding=encoding)
            return result

    def columns(self, sql: str) -> list[str]:
        """Return the column names of a query without running it."""
        return [column.name for column in columns_of(self.describe(sql))]

    def run(self, sql: str) -> Result:
        """Run one user statement."""
        columns = columns_of(self.describe(sql), self._zone())
        tokens = [] if columns else tokenize(sql)
        if tokens and tokens[0].matches("COPY") and any(token.matches("STDIN", "STDOUT") for token in tokens):
            raise NotSupportedError(
                "COPY from STDIN or to STDOUT needs psql or corgipile pg; use a query (the command has --csv), "
                "executemany or corgipile.postgres.copy_table"
            )
        with translate_errors():
            if not columns:
                cursor = self.connection.execute(sql)
                return Result(count=cursor.rowcount)
            self._as_text({column.number for column in columns if pa.types.is_string(column.kind)})
            schema, parts = batches(columns, self.stream(sql))
        pending = PendingRows(schema, parts, translate_errors)
        self._live = weakref.ref(pending)
        return Result(schema, pending)

    def _zone(self) -> str:
        """Return the session's time zone, or UTC if Python does not know its name."""
        name = self.connection.pgconn.parameter_status(b"TimeZone") or b"UTC"
        with suppress(KeyError, ValueError, OSError):
            return ZoneInfo(name.decode()).key
        return "UTC"

    def _as_text(self, numbers: set[int]) -> None:
        """Read values of these types as the server's text."""
        for number in numbers - self._texts:
            self.connection.adapters.register_loader(number, library().types.string.TextLoader)
            self._texts.add(number)

    def stream(self, sql: Any, values: Any = None, size: int = CHUNK_ROWS) -> Iterator[tuple[Any, ...]]:
        """Run a query and stream its rows."""
        with self.connection.cursor() as cursor:
            yield from cursor.stream(sql, values, **(self._size and {"size": size}))

    def park(self) -> None:
        """Buffer the rows of an unfetched result, so that another statement can run."""
        live = self._live()
        if live is not None:
            live.park()
        self._live = lambda: None

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, including a failed one."""
        return bool(self.connection.info.transaction_status not in (0, 4))  # idle or unknown

    def interrupt(self) -> None:
        """Stop the running statement."""
        with suppress(library().Error):  # a lost connection has stopped it already
            self.connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Close the session."""
        live = self._live()
        if live is not None:
            live.close()
        self.connection.close()
