"""SQL that trains and predicts: on files and DuckDB without a server, and on PostgreSQL."""

from corgipile.sql.connection import Connection, Cursor, connect
from corgipile.sql.exceptions import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    Interrupted,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)

__all__ = [
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interrupted",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 1  # threads may share the module, each with connections of its own
paramstyle = "qmark"
