"""PostgreSQL engine, which calls the extension in the server."""

from typing import Any

from corgipile.sql.engines.postgres.engine import PostgreSQL
from corgipile.sql.engines.postgres.faults import library, translate_open_errors

__all__ = ["PostgreSQL", "open_engine"]


def open_engine(url: str, **options: Any) -> PostgreSQL:
    """Open a session on a server: a URL or any other connection string of libpq, and libpq's options."""
    psycopg = library()

    def connect() -> Any:
        return psycopg.connect(url, autocommit=True, **options)

    with translate_open_errors(url):
        return PostgreSQL(connect(), connect)
