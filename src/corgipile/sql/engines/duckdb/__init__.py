"""DuckDB: its tables, and files without a server."""

from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.duckdb.engine import DuckDB
from corgipile.sql.engines.duckdb.faults import library, opening
from corgipile.suggestions import listed

__all__ = ["DuckDB", "connected"]


def connected(database: Any = ":memory:", *, read_only: bool = False, **config: Any) -> DuckDB:
    """Return a session of a database: of a file, in memory, or of a connection that is open already.

    Args:
        database: A path, ``":memory:"``, or a connection of DuckDB.
        read_only: Open the file for reading only.
        **config: Settings of DuckDB, such as ``memory_limit="1GB"`` and ``threads=2``.

    Raises:
        BadArgument: A connection that is open comes with settings.
    """
    if hasattr(database, "execute"):
        if given := [*["read_only"] * read_only, *config]:
            raise BadArgument(f"{listed(given)} must be said when DuckDB's connection is opened; this one is open")
        return DuckDB(database, owned=False)
    path = str(database)
    settings = {"python_enable_replacements": False, **config}
    with opening(path):
        connection = library().connect(path, read_only=read_only, config=settings)
    return DuckDB(connection)
