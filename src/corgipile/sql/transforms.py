"""TRANSFORM of CREATE MODEL: expressions of a model's columns, with constants from the rows of training."""

import re
from collections.abc import Iterator, Mapping, Sequence

from corgipile.errors import BadArgument
from corgipile.sql.reader import Reader

__all__ = ["CONSTANT", "columns_of", "transform_of"]

ALL = "*"  # the name of an item of all columns; its expression lists the excluded ones
CONSTANT = re.compile("\0(.*?)\0", re.DOTALL)  # an aggregate over the rows of training; no script contains \0
BUCKET = "(CASE WHEN {{0}} IS NOT NULL THEN 'bin_' || (1 + len(list_filter({}, lambda p: p <= {{0}}))) END)"
QUANTILES = "\0quantile_cont({0}, list_transform(range(1, {1}), lambda i: i / {1}))\0"
FUNCTIONS = {  # SQL by function and number of arguments; constants are between zero bytes
    ("STANDARD_SCALER", 1): "(({0} - \0avg({0})\0) / nullif(\0stddev_pop({0})\0, 0))",
    ("MIN_MAX_SCALER", 1): "(({0} - \0min({0})\0) / nullif(\0max({0}) - min({0})\0, 0))",
    ("MAX_ABS_SCALER", 1): "({0} / nullif(\0max(abs({0}))\0, 0))",
    (
        "ROBUST_SCALER",
        1,
    ): "(({0} - \0median({0})\0) / nullif(\0quantile_cont({0}, 0.75) - quantile_cont({0}, 0.25)\0, 0))",
    ("IMPUTER", 2): "coalesce({0}, \0CASE {1} WHEN 'mean' THEN avg({0}) WHEN 'median' THEN median({0}) END\0)",
    ("BUCKETIZE", 2): BUCKET.format("{1}"),
    ("QUANTILE_BUCKETIZE", 2): BUCKET.format(QUANTILES),
    ("ONE_HOT_ENCODER", 1): "CAST({0} AS VARCHAR)",
    ("FEATURE_CROSS", 2): "(CAST({0} AS VARCHAR) || '_' || CAST({1} AS VARCHAR))",
}


def transform_of(reader: Reader) -> dict[str, str]:
    """Read the items of TRANSFORM: the SQL of each column; raise BadStatement for unknown functions."""
    items: dict[str, str] = {}
    for part in _split(reader):
        last = part.tokens[part.stop - 1]
        if part.accept(ALL):
            excluded = part.accept("EXCEPT")
            items[ALL] = ",".join(map(_sql, _split(part.part(part.at + 1, part.stop - 1)))) if excluded else ""
            continue
        named = part.stop - part.at > 2 and part.tokens[part.stop - 2].matches("AS")
        if last.kind not in ("word", "name") or not (named or part.stop - part.at == 1):
            raise part.error("an expression of TRANSFORM needs AS and a name", part.stop - 1)
        if (name := part.script.column(last)) in items:
            raise part.error(f"TRANSFORM names {name!r} twice", part.stop - 1)
        items[name] = _sql(part.part(part.at, part.stop - 2 if named else part.stop))
    return items


def _split(reader: Reader) -> Iterator[Reader]:
    """Yield the parts between commas."""
    commas = [at for at in reader.top_level() if reader.tokens[at].matches(",")]
    for begin, end in zip([reader.at, *(at + 1 for at in commas)], [*commas, reader.stop], strict=True):
        if begin >= end:
            raise reader.error("expected an expression", begin)
        yield reader.part(begin, end)


def _sql(part: Reader) -> str:
    """Return an expression, its ML functions written in SQL."""
    text, begin, at = "", part.at, part.at
    while at < part.stop:
        if not part.part(at, part.stop).next_is("ML", "."):
            at += 1
            continue
        written, stop = _function(part.part(at, part.stop))
        text, begin, at = text + _text(part.part(begin, at)) + written, stop, stop
    return text + _text(part.part(begin, part.stop))


def _text(part: Reader) -> str:
    pieces = part.fragment().pieces
    if not all(isinstance(piece, str) for piece in pieces):
        raise part.error("TRANSFORM takes no parameters, paths or model calls")
    return f" {''.join(map(str, pieces))} " if pieces else ""


def _function(part: Reader) -> tuple[str, int]:
    """Return the SQL of an ML function, and the index of the token after it."""
    at, name = part.at, part.tokens[part.at + 2].text.upper() if part.stop > part.at + 3 else ""
    stop = part.closing_bracket(at + 3) if part.tokens[at + 3 : at + 4] and part.tokens[at + 3].matches("(") else at
    inside = part.part(at + 4, stop)
    if name == "FEATURE_CROSS" and inside.accept("STRUCT", "("):
        inside.stop = part.closing_bracket(inside.at - 1)
    arguments = [_sql(one).strip() for one in _split(inside)] if stop > at else []
    sql = FUNCTIONS.get((name, len(arguments)))
    if sql is None or "\0" in "".join(arguments):
        known = ", ".join(f"ML.{name}" for name, _ in FUNCTIONS)
        raise part.error(f"TRANSFORM supports {known}, not nested, crosses of two columns", at + 2)
    part.at = stop + 1
    _ = part.accept("OVER", "(", ")")
    return sql.format(*(f"({one})" for one in arguments)), part.at


def columns_of(transform: Mapping[str, str], names: Sequence[str], constants: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL of each column: constants replace aggregates, and the columns of the rows replace a star."""
    columns: dict[str, str] = {}
    if ALL in transform:
        excluded = {one.strip().strip('"').lower() for one in transform[ALL].split(",")}
        columns = {one: '"' + one.replace('"', '""') + '"' for one in names if one.lower() not in excluded}
    for name in transform.keys() - {ALL}:
        if name in columns:
            raise BadArgument(f"TRANSFORM computes {name!r}, which * includes too; write * EXCEPT ({name})")
    computed = {name: CONSTANT.sub(lambda found: constants[found[1]], sql).strip() for name, sql in transform.items()}
    return columns | {name: sql for name, sql in computed.items() if name != ALL}
