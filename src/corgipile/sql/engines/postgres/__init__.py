"""PostgreSQL, by our extension in the server."""

from typing import Any

from corgipile.sql.engines.postgres.engine import PostgreSQL
from corgipile.sql.engines.postgres.faults import library, opening

__all__ = ["PostgreSQL", "connected"]


def connected(url: str, **options: Any) -> PostgreSQL:
    """Return a session of a server.

    Args:
        url: ``postgresql://…``, or what else libpq takes.
        **options: Those of libpq, such as ``password`` and ``connect_timeout``.

    Raises:
        MissingExtra: psycopg is not installed.
        ServerError: The server cannot be reached, or lets nobody in.
    """
    psycopg = library()

    def connect() -> Any:
        return psycopg.connect(url, autocommit=True, **options)

    with opening(url):
        return PostgreSQL(connect(), connect)
