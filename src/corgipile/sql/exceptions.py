"""The exceptions of DB-API 2.0, all of corgipile's one tree: ``except Error`` gets everything raised on purpose."""

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
Warning = Warning  # noqa: A001, PLW0127 - DB-API's, of this name, is Python's


class InterfaceError(Error):
    """A connection or cursor is used as it cannot be, such as after it was closed."""


class DatabaseError(Error):
    """A database refused a statement."""


class DataError(DatabaseError):
    """A value is out of range or does not convert."""


class OperationalError(DatabaseError):
    """A database could not do what was asked: no memory, no disk, another's lock, a lost connection."""


class IntegrityError(DatabaseError):
    """A constraint would be violated."""


class InternalError(DatabaseError):
    """A database contradicts itself."""


class ProgrammingError(DatabaseError):
    """A statement is wrong: its syntax, a name, the number of its parameters."""


class NotSupportedError(DatabaseError):
    """A database has no such feature."""


class Interrupted(OperationalError):
    """A statement was stopped by `Connection.interrupt`."""
