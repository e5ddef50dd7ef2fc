"""Reads ``ML.PREDICT(MODEL m, TABLE t)`` and its like, BigQuery's calls of models in a query."""

from typing import Any

from corgipile.sql.reader import Reader
from corgipile.sql.statements import ModelCall, Source
from corgipile.suggestions import did_you_mean

__all__ = ["model_call", "model_name"]

# What each takes after the model: whether rows, and which options by their types.
FUNCTIONS: dict[str, tuple[bool | None, dict[str, type]]] = {
    "predict": (True, {"threshold": float}),
    "evaluate": (None, {"threshold": float, "weight": str}),
    "confusion_matrix": (True, {"threshold": float, "weight": str}),
    "roc_curve": (True, {"weight": str}),
    "calibration": (True, {"bins": int, "weight": str}),
    "advanced_weights": (True, {"weight": str}),
    "weights": (False, {}),
    "training_info": (False, {}),
}


MOST_THRESHOLDS = 10_000
KINDS: dict[type, tuple[Any, str]] = {
    str: (str, "text"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
}


def model_name(reader: Reader, what: str = "the name of a model") -> str:
    """Read the name of a model: as it is written, its parts joined by points.

    Raises:
        BadStatement: Something else comes next.
    """
    token = reader.next(what, "word", "name", "string")
    parts = [token.text]
    while token.kind != "string" and reader.takes("."):
        parts.append(reader.next("a name", "word", "name").text)
    name = ".".join(parts)
    if not name or "\0" in name:
        raise reader.wrong(f"{name!r} is no name of a model", reader.at - 1)
    return name


def model_call(reader: Reader) -> tuple[ModelCall, int] | None:
    """Read a call that begins here; return it and the token after it, or None where this is no call of a model.

    Raises:
        BadStatement: It is one, but there is no such function or its arguments are wrong.
    """
    if not reader.takes("ML", ".") or (name := reader.peek()) is None or name.kind != "word":
        return None
    reader.at += 1
    if not reader.sees("(", "MODEL"):
        return None
    function = name.text.lower()
    if function not in FUNCTIONS:
        names = [f"ML.{one.upper()}" for one in FUNCTIONS]
        hint = did_you_mean(f"ML.{name.text}", names)
        raise reader.wrong(f"there is no ML.{name.text.upper()}; there is {', '.join(names)}{hint}", reader.at - 1)
    close = reader.closing(reader.at)
    inside = reader.part(reader.at + 2, close, deep=1)
    model = model_name(inside)
    rows, known = FUNCTIONS[function]
    source = _source(inside, function, rows)
    options, begin = {}, inside.at + 1
    if inside.takes(","):
        options = _thresholds(inside) if function == "roc_curve" and not inside.sees("STRUCT") else {}
        if not options or inside.takes(","):
            options |= _options(inside, function, known)
    if source is None and options:
        what = next(iter(options))
        raise inside.wrong(f"a {what} needs rows before it, TABLE name or (SELECT …): training counted none", begin)
    inside.end(f") after the arguments of ML.{function.upper()}")
    return ModelCall(function, model, source, options), close + 1


def _source(inside: Reader, function: str, rows: bool | None) -> Source | None:
    """Read the rows, ``TABLE t`` or a SELECT in brackets."""
    from corgipile.sql.sources import source_of, table_source  # noqa: PLC0415 - whose SELECT may call models again

    comma = inside.peek()
    following = inside.peek(1)
    given = following is not None and not following.says("STRUCT")
    if comma is None or not given:
        if rows:
            raise inside.expected(f"the rows of ML.{function.upper()}: , TABLE name or , (SELECT …)")
        return None
    inside.needs(",", what=", or )")
    if rows is False:
        raise inside.wrong(f"ML.{function.upper()} takes no rows, only a model")
    if inside.takes("TABLE"):
        return table_source(inside, "the name of a table")
    if not inside.sees("("):
        raise inside.expected("TABLE name or (SELECT …)")
    close = inside.closing(inside.at)
    query = inside.part(inside.at + 1, close)
    inside.at = close + 1
    return source_of(query)


def _options(inside: Reader, function: str, known: dict[str, type]) -> dict[str, Any]:
    """Read ``STRUCT(0.5 AS threshold, 'w' AS weight)``."""
    from corgipile.sql.values import value  # noqa: PLC0415 - which reads names of models here

    inside.needs("STRUCT", "(")
    found: dict[str, Any] = {}
    while not inside.takes(")"):
        begin = inside.at
        given = value(inside)
        inside.needs("AS")
        token = inside.next("the name of an option", "word", "name")
        name = token.text.lower()
        if name not in known:
            names = f"it takes {', '.join(known)}" if known else "it takes none"
            raise inside.wrong(f"ML.{function.upper()} has no option {name}; {names}", inside.at - 1)
        right, what = KINDS[known[name]]
        if isinstance(given, bool) or not isinstance(given, right):
            raise inside.wrong(f"{name} must be {what}, got {given!r}", begin)
        found[name] = known[name](given)
        if not inside.sees(")"):
            inside.needs(",", what=", or )")
    return found


def _thresholds(inside: Reader) -> dict[str, Any]:
    """Read ``[0.1, 0.5]`` or ``GENERATE_ARRAY(0.1, 0.9, 0.1)``."""
    from corgipile.sql.values import value  # noqa: PLC0415 - as above

    begin = inside.at
    generated = inside.takes("GENERATE_ARRAY")
    given = value(inside)
    numbers = isinstance(given, list) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in given)
    if numbers and generated:
        given = _generated(*given) if len(given) in (2, 3) else []
    if not numbers or not given or not all(0 <= x <= 1 for x in given):
        raise inside.wrong(
            "thresholds are numbers from 0 to 1, as [0.25, 0.5, 0.75] or GENERATE_ARRAY(0.1, 0.9, 0.1)", begin
        )
    return {"thresholds": sorted(map(float, given))}


def _generated(first: float, last: float, step: float = 1) -> list[float]:
    """Return numbers from one to another; none where they would be too many."""
    most = (last - first) / step if step > 0 else -1
    return [first + i * step for i in range(int(most * (1 + 1e-12)) + 1)] if 0 <= most <= MOST_THRESHOLDS else []
