"""SQL that trains and predicts: on files and DuckDB without a server, and on PostgreSQL."""

from typing import Any

from corgipile.lazy import lazy
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
    Warning,  # noqa: A004 - DB-API's
)
from corgipile.sql.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interrupted",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "load_ipython_extension",
    "paramstyle",
    "threadsafety",
]

magic = lazy("corgipile.sql.magic")  # needs IPython
apilevel = "2.0"
threadsafety = 1  # threads may share the module, not its connections
paramstyle = "qmark"


def load_ipython_extension(ipython: Any) -> None:
    """Register the magic ``%%corgipile`` in a notebook; ``%load_ext corgipile.sql`` calls this."""
    ipython.register_magics(magic.CorgiPileMagics(ipython))
