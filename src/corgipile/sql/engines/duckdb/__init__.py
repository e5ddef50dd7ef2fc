"""DuckDB engine: tables of a database, and files without a server."""

from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.duckdb.engine import DuckDB
from corgipile.sql.engines.duckdb.faults import library, translate_open_errors
from corgipile.suggestions import listed

__all__ = ["DuckDB", "open_engine"]


def open_engine(database: Any = ":memory:", *, read_only: bool = False, **config: Any) -> DuckDB:
    """Open a session on a database file, in memory, or on an open connection, which takes no settings (``config``)."""
    if hasattr(database, "execute"):
        if given := [*["read_only"] * read_only, *config]:
            raise BadArgument(f"{listed(given)} must be set when DuckDB's connection is opened, got an open connection")
        return DuckDB(database, owned=False)
    path = str(database)
    settings = {"python_enable_replacements": False, **config}
    with translate_open_errors(path):
        connection = library().connect(path, read_only=read_only, config=settings)
    return DuckDB(connection)
