"""PostgreSQL engine, which calls the extension in the server."""

from typing import Any

from corgipile.sql.engines.postgres.engine import PostgreSQL
from corgipile.sql.engines.postgres.faults import library, translate_open_errors

__all__ = ["PostgreSQL", "open_engine"]


def open_engine(url: str, **options: Any) -> PostgreSQL:
    """Open a session on a server.

    Args:
        url: ``postgresql://…`` or any other connection string of libpq.
        **options: libpq options, such as ``password`` and ``connect_timeout``.

    Raises:
        MissingExtra: psycopg is not installed.
        ServerError: The server cannot be reached or rejects the login.
    """
    psycopg = library()

    def connect() -> Any:
        return psycopg.connect(url, autocommit=True, **options)

    with translate_open_errors(url):
        return PostgreSQL(connect(), connect)
