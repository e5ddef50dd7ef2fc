"""What DuckDB raises, as errors of ours."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from corgipile.errors import CorgiPileError, MissingExtra, ReadFailed, UnknownFormat
from corgipile.sql import exceptions
from corgipile.stores.urls import redacted_in

__all__ = ["library", "opening", "translated"]

KINDS = ("IntegrityError", "ProgrammingError", "DataError", "NotSupportedError", "InternalError", "OperationalError")
INTERRUPTED = "Query interrupted"  # what the library raises for Ctrl-C


def library() -> Any:
    """Return DuckDB's own module.

    Raises:
        MissingExtra: It is not installed, or too old.
    """
    try:
        import duckdb  # noqa: PLC0415 - only for this engine
    except ImportError:
        raise MissingExtra("SQL on files and DuckDB needs duckdb: pip install 'corgipile[duckdb]'") from None
    return duckdb


@contextmanager
def translated(cause: Any = None, plain: Callable[[str], str] = str) -> Iterator[None]:
    """Turn the library's errors into ours.

    Args:
        cause: Returns the error that a function of ours raised within a query, which the library only quotes.
        plain: Writes what the library says as users would.
    """
    duckdb = library()
    try:
        yield
    except duckdb.InterruptException:
        raise exceptions.Interrupted("the statement was interrupted") from None
    except duckdb.Error as error:
        inner: CorgiPileError | None = None if cause is None else cause(str(error))
        if inner is not None:
            raise inner from None
        kind = next((name for name in KINDS if isinstance(error, getattr(duckdb, name))), "DatabaseError")
        raise getattr(exceptions, kind)(redacted_in(plain(str(error)))) from None
    except (RuntimeError, OSError, pa.ArrowException) as error:  # the last two of rows on their way
        raise _of_rows(error, cause, plain) from None


def _of_rows(error: Exception, cause: Any, plain: Callable[[str], str]) -> BaseException:
    """Return the error that one is which reaches us by way of Python or of Arrow."""
    text = str(error)
    if text == INTERRUPTED:
        return KeyboardInterrupt()
    if isinstance(error, RuntimeError):
        return error
    if "INTERRUPT Error" in text:
        return exceptions.Interrupted("the statement was interrupted")
    inner: CorgiPileError | None = None if cause is None else cause(text)
    return inner or exceptions.DatabaseError(plain(text))


@contextmanager
def opening(path: str) -> Iterator[None]:
    """Turn what the library says of a file that it cannot open into errors that say what would help."""
    duckdb = library()
    try:
        yield
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if "set lock" in reason:
            way = "another process has it open for writing, or this one would write what another reads: close it there"
            raise ReadFailed(errno.EBUSY, f"{path} is in use ({reason}); {way}") from None
        if "different configuration" in reason:
            way = "this process has it open already, with other settings: close that, or give the open connection"
            raise ReadFailed(errno.EBUSY, f"{path} is in use ({reason}); {way}") from None
        if "not a valid DuckDB database" in reason:
            raise UnknownFormat(f"{path} is no database of DuckDB; FROM '{path}' reads a file of rows") from None
        raise exceptions.OperationalError(f"cannot open {path}: {reason}") from None
