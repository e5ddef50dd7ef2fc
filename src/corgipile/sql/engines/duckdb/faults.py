"""Conversion of DuckDB's errors to corgipile's."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from corgipile.errors import CorgiPileError, MissingExtra, ReadFailed, UnknownFormat
from corgipile.sql import exceptions
from corgipile.urls import redacted_in

__all__ = ["library", "translate_errors", "translate_open_errors"]

KINDS = ("IntegrityError", "ProgrammingError", "DataError", "NotSupportedError", "InternalError", "OperationalError")
INTERRUPTED = "Query interrupted"  # DuckDB's message for Ctrl-C


def library() -> Any:
    """Return the module duckdb; raise MissingExtra if it is not installed."""
    try:
        import duckdb  # noqa: PLC0415 - only for this engine
    except ImportError:
        raise MissingExtra("SQL on files and DuckDB needs duckdb: pip install 'corgipile[duckdb]'") from None
    return duckdb


@contextmanager
def translate_errors(cause: Any = None, plain: Callable[[str], str] = str) -> Iterator[None]:
    """Convert DuckDB's errors to corgipile's, with internal names rewritten by ``plain``.

    ``cause`` returns the error that one of our functions raised in a query; DuckDB only quotes its text.
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
    except (RuntimeError, OSError, pa.ArrowException) as error:  # the last two while rows are fetched
        raise _translate_row_error(error, cause, plain) from None


def _translate_row_error(error: Exception, cause: Any, plain: Callable[[str], str]) -> BaseException:
    """Convert an error that arrives through Python or Arrow."""
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
def translate_open_errors(path: str) -> Iterator[None]:
    """Convert DuckDB's errors about a database file to errors with a hint."""
    duckdb = library()
    try:
        yield
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if "set lock" in reason:
            way = "another process has it open; close it there"
            raise ReadFailed(errno.EBUSY, f"{path} is in use ({reason}); {way}") from None
        if "different configuration" in reason:
            way = "this process has it open with other settings; close that connection or pass it to connect"
            raise ReadFailed(errno.EBUSY, f"{path} is in use ({reason}); {way}") from None
        if "not a valid DuckDB database" in reason:
            raise UnknownFormat(f"{path} is not a DuckDB database; read a data file with FROM '{path}'") from None
        raise exceptions.OperationalError(f"cannot open {path}: {reason}") from None
