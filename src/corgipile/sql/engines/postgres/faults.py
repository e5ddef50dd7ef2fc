"""Conversion of psycopg's errors to corgipile's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corgipile.errors import MissingExtra, ServerError
from corgipile.sql import exceptions
from corgipile.urls import scrubbed

__all__ = ["as_settings", "library", "translate_errors", "translate_open_errors", "translate_training_errors"]

KINDS = ("IntegrityError", "ProgrammingError", "DataError", "NotSupportedError", "InternalError", "OperationalError")
ARGUMENT = re.compile(r"\b(\w+) => ")  # of an extension function


def library() -> Any:
    """Return psycopg; raise MissingExtra if it is not installed."""
    try:
        import psycopg  # noqa: PLC0415 - only for this engine
    except ImportError:
        raise MissingExtra("SQL on PostgreSQL needs psycopg: pip install 'corgipile[pg]'") from None
    return psycopg


@contextmanager
def translate_open_errors(url: str) -> Iterator[None]:
    """Convert connection errors to ServerError, without passwords."""
    try:
        yield
    except library().Error as error:
        raise ServerError(f"cannot connect to PostgreSQL: {scrubbed(str(error).strip(), url)}") from None


@contextmanager
def translate_errors() -> Iterator[None]:
    """Convert the driver's errors to corgipile's."""
    psycopg = library()
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise exceptions.Interrupted(f"the statement was interrupted: {_message(error)}") from None
    except psycopg.Error as error:
        kind = next((name for name in KINDS if isinstance(error, getattr(psycopg, name))), "DatabaseError")
        raise getattr(exceptions, kind)(_message(error)) from None


def as_settings(text: str) -> str:
    """Rewrite arguments in the extension's messages as settings of SQL statements.

    Example:
        >>> as_settings("Try learning_rate => 0.1, or standardize => true.")
        'Try learning_rate = 0.1, or standardize = true.'
    """
    return ARGUMENT.sub(r"\1 = ", text)


@contextmanager
def translate_training_errors() -> Iterator[None]:
    """Convert the errors of a training; hints use the settings of SQL statements."""
    try:
        with translate_errors():
            yield
    except exceptions.Error as error:
        raise type(error)(as_settings(str(error))) from None


def _message(error: Any) -> str:
    """Return the message, detail and hint of an error."""
    lines = [str(error).strip()]
    if isinstance(error, library().DataError) and error.sqlstate is None:
        lines[0] += "; cast the column to text"  # a value that Python lacks, such as an infinite date
    for name, what in (("message_detail", "DETAIL"), ("message_hint", "HINT")):
        text = getattr(error.diag, name, None)
        if text and text not in lines[0]:
            lines.append(f"{what}: {text}")
    return "\n".join(lines)
