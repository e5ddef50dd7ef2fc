"""Analysis of a SELECT: its columns, its table, and whether it computes anything else."""

from collections.abc import Sequence
from typing import NamedTuple

from corgipile.sql.dialect import is_path
from corgipile.sql.reader import Reader
from corgipile.sql.statements import Fragment, Source
from corgipile.sql.tokens import RESERVED, Token

__all__ = ["source_of", "table_source"]

AFTER = ("WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH", "FOR")
SETS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
AGGREGATES = frozenset(
    """ANY_VALUE ARRAY_AGG AVG BIT_AND BIT_OR BOOL_AND BOOL_OR CORR COUNT COVAR_POP COVAR_SAMP EVERY FIRST JSONB_AGG
    JSON_AGG LAST LIST MAX MEAN MEDIAN MIN MODE PERCENTILE_CONT PERCENTILE_DISC REGR_SLOPE STDDEV STDDEV_POP STDDEV_SAMP
    STRING_AGG SUM VARIANCE VAR_POP VAR_SAMP""".split()  # noqa: SIM905
)


def source_of(part: Reader) -> Source:
    """Analyze the tokens of a SELECT; raise BadStatement if there are none."""
    if part.peek() is None:
        raise part.unexpected("a SELECT")
    if part.next_is("SELECT") and _names_a_table(part.tokens[part.at + 1 : part.stop]):
        return table_source(part.part(part.at + 1, part.stop), "a table or a file")
    level = list(part.top_level())
    first = "SELECT" if part.next_is("SELECT") else "FROM" if part.next_is("FROM") else ""
    begin = next((i for i in level if part.tokens[i].matches("FROM")), part.stop)
    sql = part.fragment()
    words = [i for i in level if part.tokens[i].matches("FROM", *AFTER, *SETS, "SELECT", "VALUES")]
    if not first or any(part.tokens[i].matches(*SETS, "SELECT") for i in words if i > part.at):
        return Source(sql=sql, items=Fragment(("*",)), rest=Fragment(()))
    items = Fragment(("*",)) if first == "FROM" else part.part(part.at + 1, begin).fragment()
    rest = part.part(begin, part.stop).fragment()
    stop = next((i for i in words if i > begin), part.stop)
    named = _from(part.part(begin + 1, stop)) if begin < part.stop else _NOTHING
    columns = None if first == "FROM" else _columns(part.part(part.at + 1, begin))
    star = first == "FROM" or [part.tokens[i].text for i in range(part.at + 1, begin)] == ["*"]
    chosen = named.bare and (star or columns is not None)
    last = not any(part.tokens[i].matches(*AFTER) for i in words if i > stop)
    where = stop < part.stop and part.tokens[stop].matches("WHERE") and last
    return Source(
        sql=Fragment(("SELECT * ", *sql.pieces)) if first == "FROM" else sql,
        items=items,
        rest=rest,
        columns=columns,
        table=named.table,
        alias=named.alias,
        file=named.file,
        plain=chosen and stop == part.stop,
        where=part.part(stop + 1, part.stop).fragment() if chosen and where else None,
        foldable=begin < part.stop and _foldable(part, level, begin),
    )


def _names_a_table(tokens: Sequence[Token]) -> bool:
    """Return whether only a name follows SELECT: the paper writes ``SELECT t PREDICT BY m`` for all rows of t."""
    names, points = tokens[::2], tokens[1::2]
    if len(tokens) == 1 and tokens[0].kind == "string":
        return True
    return len(tokens) % 2 == 1 and all(map(_is_column, names)) and all(point.text == "." for point in points)


def table_source(part: Reader, what: str) -> Source:
    """Read the name of a table or file; return the source of all its rows."""
    begin = part.at
    token = part.next(what, "word", "name", "string")
    if token.kind != "string":
        while part.accept("."):
            part.next("a name", "word", "name")
    named = part.part(begin, part.at)
    text = named.fragment().pieces
    name = _from(named)
    sql, rest = Fragment(("SELECT * FROM ", *text)), Fragment(("FROM ", *text))
    return Source(
        sql=sql, items=Fragment(("*",)), rest=rest, table=name.table, file=name.file, plain=True, foldable=True
    )


class _Named(NamedTuple):
    """The one table or file that a FROM names, if any, and whether at most an alias follows."""

    table: tuple[str, ...] | None = None
    file: str | None = None
    alias: str | None = None
    bare: bool = False


_NOTHING = _Named()


def _from(part: Reader) -> _Named:
    """Return the single table or file that a FROM names."""
    begin = part.peek()
    if begin is None or (begin.kind not in ("word", "name", "string") or begin.matches(*RESERVED)):
        return _NOTHING
    part.at += 1
    names = [begin]
    while begin.kind != "string" and part.next_is(".") and (after := part.peek(1)) and after.kind in ("word", "name"):
        names.append(after)
        part.at += 2
    alias = _alias(part)
    bare = part.peek() is None
    if not (bare or part.next_is("TABLESAMPLE") or part.next_is("USING", "SAMPLE")):
        return _NOTHING
    if begin.kind == "string":
        return _Named(file=begin.text, alias=alias, bare=bare)
    path = is_path(begin, part.script.text)
    parts = begin.text.split(".")[-2:] if path else [part.script.column(name) for name in names]
    return _Named(tuple(parts), alias=alias, bare=bare)


def _alias(part: Reader) -> str | None:
    """Read the alias of a table."""
    written = part.accept("AS")
    token = part.peek()
    if token is None or token.kind not in ("word", "name") or token.matches("TABLESAMPLE"):
        return None
    if token.kind == "word" and not written and token.matches(*RESERVED):
        return None
    part.at += 1
    return part.script.column(token)


def _columns(part: Reader) -> tuple[str, ...] | None:
    """Return the column names of a SELECT list, or None if it holds anything else."""
    names: list[str] = []
    while token := part.peek():
        if not _is_column(token):
            return None
        part.at += 1
        while part.next_is(".") and (after := part.peek(1)) and _is_column(after):
            token = after
            part.at += 2
        names.append(part.script.column(token))
        if part.peek() is not None and not part.accept(","):
            return None
    return tuple(names) if names and len(set(names)) == len(names) else None


def _is_column(token: Token) -> bool:
    return token.kind == "name" or (token.kind == "word" and token.text.upper() not in RESERVED)


def _foldable(part: Reader, level: list[int], begin: int) -> bool:
    """Return whether an expression can be added to the SELECT list: each result row is one row of FROM."""
    if any(part.tokens[i].matches("GROUP", "HAVING") for i in level if i > begin):
        return False
    items = range(part.at + 1, begin)
    if items and part.tokens[items[0]].matches("DISTINCT"):
        return False
    return not any(part.tokens[i].text.upper() in AGGREGATES and part.tokens[i + 1].matches("(") for i in items)
