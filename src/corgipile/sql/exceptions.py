"""DB-API 2.0 exceptions in corgipile's hierarchy: ``except Error`` catches everything raised on purpose."""

from corgipile.errors import CorgiPileError

__all__ = [
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
    "Warning",
]

Error = CorgiPileError
Warning = Warning  # noqa: A001, PLW0127 - DB-API requires this name


class InterfaceError(Error):
    """A connection or cursor is misused, such as after it was closed."""


class DatabaseError(Error):
    """A database rejected a statement."""


class DataError(DatabaseError):
    """A value is out of range or does not convert."""


class OperationalError(DatabaseError):
    """A database failed to run a statement: no memory, no disk, a lock, a lost connection."""


class IntegrityError(DatabaseError):
    """A constraint would be violated."""


class InternalError(DatabaseError):
    """A database is in an inconsistent state."""


class ProgrammingError(DatabaseError):
    """A statement has an error in its syntax, a name or its number of parameters."""


class NotSupportedError(DatabaseError):
    """A database lacks a feature."""


class Interrupted(OperationalError):
    """A statement was stopped by `Connection.interrupt`."""
