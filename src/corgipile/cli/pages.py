"""What commands that write a page share."""

import re
import shlex
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from corgipile.stores.urls import is_url, redacted, redacted_in, secret

__all__ = ["Html", "check_page", "shown", "typed"]

Html = Annotated[str | None, typer.Option("--html", help="Write a page of it, too, to show to others.")]
_URL_SEPARATOR = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]+://)")  # between two URLs
_PASSWORD = re.compile(r"\bpassword\s*=", re.IGNORECASE)  # a connection string


def check_page(path: str, inputs: Iterable[Any], *, overwrite: bool) -> None:
    """Raise, before any work is done, unless a page may be written there."""
    from corgipile.outputs import check_target  # noqa: PLC0415
    from corgipile.proof import PAGE  # noqa: PLC0415

    check_target(path, PAGE, inputs=[one for one in inputs if one is not None], overwrite=overwrite)


def typed(words: Iterable[str] | None = None) -> str:
    """Return the command as it was typed, less passwords and the like.

    Example:
        >>> typed(["info", "https://me:pw@host/a b.csv?sig=x", "--open", "token=abc"])
        "corgipile info 'https://host/a b.csv' --open 'token=***'"
    """
    given = sys.argv[1:] if words is None else words
    return shlex.join(["corgipile", *(shown(word) for word in given)])


def shown(word: str) -> str:
    """Return a word of a command, less passwords and the like."""
    parts = _URL_SEPARATOR.split(word)
    if _PASSWORD.search(word) and not is_url(word):
        return redacted(word)
    if all(map(is_url, parts)):
        return ",".join(map(redacted, parts))
    name = word.partition("=")[0]
    if name != word and secret(name) and not name.startswith("--"):
        return f"{name}=***"
    return redacted_in(word)
