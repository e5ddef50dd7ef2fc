"""One connection to PostgreSQL: runs statements, and hands rows over as they are asked for."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.postgres.faults import library, translated
from corgipile.sql.engines.postgres.types import batches, columns_of
from corgipile.sql.engines.uncommitted import Parked
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.tokens import tokenize

__all__ = ["Session"]

CHUNK = 1000  # rows that the driver takes at a time


class Session:
    """Runs statements in a connection, which can have only one answer under way.

    Args:
        connection: A connection of psycopg that keeps each statement at once.

    Attributes:
        connection: The connection.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._live: Callable[[], Parked | None] = lambda: None
        self._texts: set[int] = set()  # types that are text here
        self._size = {"size": CHUNK} if library().pq.version() >= 170000 else {}

    def rows(self, sql: Any, values: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement of our own and return its few rows; `values` stand where it has ``%s``."""
        self.park()
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def changed(self, sql: Any, values: Sequence[Any] | None = None) -> int:
        """Run a statement of our own and return how many rows it changed."""
        self.park()
        with translated(), self.connection.cursor() as cursor:
            return int(cursor.execute(sql, values).rowcount)

    def described(self, sql: str) -> Any:
        """Return what libpq says of the columns of a statement, which is not run."""
        self.park()
        psycopg, server = library(), self.connection.pgconn
        with translated():
            encoding = self.connection.info.encoding
            for result in (server.prepare(b"", sql.encode(encoding)), server.describe_prepared(b"")):
                if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                    raise psycopg.errors.error_from_result(result, encoding=encoding)
            return result

    def columns(self, sql: str) -> list[str]:
        """Return the names of the columns that a query would give."""
        return [column.name for column in columns_of(self.described(sql))]

    def run(self, sql: str) -> Result:
        """Run one statement of the user's."""
        columns = columns_of(self.described(sql), self._zone())
        tokens = [] if columns else tokenize(sql)
        if tokens and tokens[0].says("COPY") and any(token.says("STDIN", "STDOUT") for token in tokens):
            raise NotSupportedError(
                "COPY from STDIN and to STDOUT needs psql, or corgipile pg; here a query answers rows (the command has "
                "--csv), executemany inserts them, and corgipile.postgres.copy_table copies files"
            )
        with translated():
            if not columns:
                cursor = self.connection.execute(sql)
                return Result(count=cursor.rowcount)
            self._as_text({column.number for column in columns if pa.types.is_string(column.kind)})
            schema, parts = batches(columns, self.stream(sql))
        found = Parked(schema, parts, translated)
        self._live = weakref.ref(found)
        return Result(schema, found)

    def _zone(self) -> str:
        """Return the session's time zone, or UTC where it has a name of PostgreSQL's own."""
        name = self.connection.pgconn.parameter_status(b"TimeZone") or b"UTC"
        with suppress(KeyError, ValueError, OSError):
            return ZoneInfo(name.decode()).key
        return "UTC"

    def _as_text(self, numbers: set[int]) -> None:
        """Have values of these types come as the server writes them."""
        for number in numbers - self._texts:
            self.connection.adapters.register_loader(number, library().types.string.TextLoader)
            self._texts.add(number)

    def stream(self, sql: Any, values: Any = None, size: int = CHUNK) -> Iterator[tuple[Any, ...]]:
        """Run a query whose rows come as the server sends them."""
        with self.connection.cursor() as cursor:
            yield from cursor.stream(sql, values, **(self._size and {"size": size}))

    def park(self) -> None:
        """Read the rest of an answer that is under way, so that another statement can run."""
        live = self._live()
        if live is not None:
            live.park()
        self._live = lambda: None

    def in_transaction(self) -> bool:
        """Say whether a transaction is open, one that has failed too."""
        return bool(self.connection.info.transaction_status not in (0, 4))  # idle, or nobody knows

    def interrupt(self) -> None:
        """Stop what runs."""
        with suppress(library().Error):  # the connection is gone, and what ran with it
            self.connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """End the session."""
        live = self._live()
        if live is not None:
            live.close()
        self.connection.close()
