"""What psycopg raises, as errors of ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corgipile.errors import MissingExtra, ServerError
from corgipile.sql import exceptions
from corgipile.stores.urls import scrubbed

__all__ = ["as_settings", "library", "opening", "training", "translated"]

KINDS = ("IntegrityError", "ProgrammingError", "DataError", "NotSupportedError", "InternalError", "OperationalError")
ARGUMENT = re.compile(r"\b(\w+) => ")  # of a function of the extension


def library() -> Any:
    """Return psycopg.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - only for this engine
    except ImportError:
        raise MissingExtra("SQL on PostgreSQL needs psycopg: pip install 'corgipile[pg]'") from None
    return psycopg


@contextmanager
def opening(url: str) -> Iterator[None]:
    """Turn what the driver says of a server that it cannot reach into an error of ours; no password is shown."""
    try:
        yield
    except library().Error as error:
        raise ServerError(f"cannot connect to PostgreSQL: {scrubbed(str(error).strip(), url)}") from None


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into ours."""
    psycopg = library()
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise exceptions.Interrupted(f"the statement was interrupted: {_said(error)}") from None
    except psycopg.Error as error:
        kind = next((name for name in KINDS if isinstance(error, getattr(psycopg, name))), "DatabaseError")
        raise getattr(exceptions, kind)(_said(error)) from None


def as_settings(text: str) -> str:
    """Write what the extension says of its arguments as settings of our statements.

    Example:
        >>> as_settings("Try learning_rate => 0.1, or standardize => true.")
        'Try learning_rate = 0.1, or standardize = true.'
    """
    return ARGUMENT.sub(r"\1 = ", text)


@contextmanager
def training() -> Iterator[None]:
    """Turn the errors of a training into ours, whose advice is in the words of our statements."""
    try:
        with translated():
            yield
    except exceptions.Error as error:
        raise type(error)(as_settings(str(error))) from None


def _said(error: Any) -> str:
    """Return what the server says, its detail and its hint, or the driver."""
    said = [str(error).strip()]
    if isinstance(error, library().DataError) and error.sqlstate is None:
        said[0] += "; cast the column to text"  # a value that Python has none for, such as a date of infinity
    for name, what in (("message_detail", "DETAIL"), ("message_hint", "HINT")):
        text = getattr(error.diag, name, None)
        if text and text not in said[0]:
            said.append(f"{what}: {text}")
    return "\n".join(said)
