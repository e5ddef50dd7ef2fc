"""Lookup of the tables, files, views and macros that a statement reads."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from corgipile.sql.tokens import Token

__all__ = ["Named", "named"]

OPENING = ("JOIN", "USING", "DESCRIBE", "SUMMARIZE", "PIVOT", "UNPIVOT", "EXECUTE")  # precede tables, like FROM
TABLE_PREFIXES = ("LATERAL", "ONLY")
QUERY = ("SELECT", "FROM", "WITH", "VALUES", "TABLE")
ENDING = tuple("SELECT WHERE GROUP ORDER HAVING LIMIT SET VALUES QUALIFY WINDOW UNION EXCEPT INTERSECT".split())  # noqa: SIM905
DDL_WORDS = ("CREATE", "ALTER", "DROP", "REPLACE", "TEMP", "TEMPORARY", "TRUNCATE")
LOADING = ("COPY", "INSTALL", "IMPORT", "ATTACH", "LOAD")  # whose FROM reads no rows for SQL


class Named(NamedTuple):
    """A ``string``, ``call`` or ``name`` in the position of a table: its kind, text with dots, and offsets."""

    kind: str
    text: str
    start: int
    stop: int


def named(tokens: Sequence[Token]) -> Iterator[Named]:
    """Yield the strings, calls and names in the positions of tables, also in brackets.

    Example:
        >>> from corgipile.sql.tokens import tokenize
        >>> [one.text for one in named(tokenize("SELECT 'a' FROM 'b.csv', (FROM c.csv) JOIN v USING (d)"))]
        ['b.csv', 'c.csv', 'v']
    """
    levels: list[bool | None] = [False]  # whether a comma is followed by a table; None in a function's brackets
    opened, at = False, 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1] if at else None
        follows = token.kind in ("string", "name", "word") and not token.matches(
            "SELECT", "FROM", "VALUES", *TABLE_PREFIXES
        )
        if opened and follows:
            stop = _stop(tokens, at)
            called = stop < len(tokens) and tokens[stop].matches("(")
            kind = "string" if token.kind == "string" else "call" if called else "name"
            yield Named(kind, "".join(one.text for one in tokens[at:stop]), token.start, tokens[stop - 1].stop)
            opened, at = False, stop
            continue
        opened = _opens(tokens, at, before, opened, levels)
        at += 1


def _stop(tokens: Sequence[Token], at: int) -> int:
    """Return the end of a name whose parts are joined by dots."""
    stop = at + 1
    while tokens[at].kind != "string" and stop + 1 < len(tokens) and tokens[stop].text == ".":
        stop += 2
    return stop


def _opens(tokens: Sequence[Token], at: int, before: Token | None, opened: bool, levels: list[bool | None]) -> bool:
    """Return whether a table follows a token, and record the meaning of commas in its brackets."""
    token = tokens[at]
    if token.kind == "sign" and token.text in "([{":
        function = before is not None and before.kind in ("word", "name") and not opened
        levels.append(None if function else opened and token.text == "(")
        return levels[-1] is True
    if token.kind == "sign" and token.text in ")]}":
        levels[1:] = levels[1:-1]
        return False
    if token.matches(",", ":"):
        return levels[-1] is True
    if token.matches("FROM"):
        inside = levels[-1] is None and not (before is not None and before.matches("("))
        compared = before is not None and before.matches("DISTINCT") and at > 1 and tokens[at - 2].matches("IS", "NOT")
        loads = len(levels) == 1 and tokens[0].matches(*LOADING)
        levels[-1] = levels[-1] if inside or compared or loads else True
        return not (inside or compared or loads)
    if token.matches("TABLE"):
        return not (before is not None and before.matches(*DDL_WORDS))
    if token.matches(*ENDING):
        levels[-1] = False
    columns = token.matches("USING") and _lists_columns(tokens[at + 1 : at + 3])
    return (token.matches(*OPENING) and not columns) or (opened and token.matches(*TABLE_PREFIXES))


def _lists_columns(after: Sequence[Token]) -> bool:
    """Return whether brackets after USING hold the columns of a join, not a query or a table."""
    return (
        len(after) == 2 and after[0].matches("(") and after[1].kind in ("name", "word") and not after[1].matches(*QUERY)
    )
