"""Parser calls for tests of statements."""

import pytest

from corgipile.errors import BadStatement
from corgipile.sql.grammar import parse


def one(script, dialect="duckdb"):
    """Return the one statement of a script."""
    (found,) = parse(script, dialect)
    return found


def sql(fragment):
    """Write a fragment with the keys of its parameters."""
    return fragment.written(lambda place: f"<{place.key}>", lambda call: f"<{call.function} {call.model}>")


def error(script, dialect="duckdb"):
    """Return the error message of a script, and the text from its caret on."""
    with pytest.raises(BadStatement) as caught:
        parse(script, dialect)
    message, line, caret = str(caught.value).split("\n")
    return message, line[len(caret) - 1 :]
