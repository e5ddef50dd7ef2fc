"""Shared code of commands that write an HTML page."""

import re
import shlex
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from corgipile.lazy import lazy
from corgipile.urls import is_url, redacted, redacted_in, secret

writing = lazy("corgipile.tables.inputs")
proof = lazy("corgipile.proof")

__all__ = ["Html", "check_page", "command_text", "without_secrets"]

Html = Annotated[str | None, typer.Option("--html", help="Also write an HTML page to share.")]
_URL_SEPARATOR = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]+://)")  # between two URLs
_PASSWORD = re.compile(r"\bpassword\s*=", re.IGNORECASE)  # in a connection string


def check_page(path: str, inputs: Iterable[Any], *, overwrite: bool) -> None:
    """Raise early unless the page can be written."""
    writing.check_target(path, proof.PAGE, inputs=[one for one in inputs if one is not None], overwrite=overwrite)


def command_text(words: Iterable[str] | None = None) -> str:
    """Return the typed command without secrets.

    Example:
        >>> command_text(["info", "https://me:pw@host/a b.csv?sig=x", "--open", "token=abc"])
        "corgipile info 'https://host/a b.csv' --open 'token=***'"
    """
    given = sys.argv[1:] if words is None else words
    return shlex.join(["corgipile", *(without_secrets(word) for word in given)])


def without_secrets(word: str) -> str:
    """Return a word of a command without secrets."""
    parts = _URL_SEPARATOR.split(word)
    if _PASSWORD.search(word) and not is_url(word):
        return redacted(word)
    if all(map(is_url, parts)):
        return ",".join(map(redacted, parts))
    name = word.partition("=")[0]
    if name != word and secret(name) and not name.startswith("--"):
        return f"{name}=***"
    return redacted_in(word)
