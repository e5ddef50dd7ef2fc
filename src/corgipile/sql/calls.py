"""Parser of BigQuery's table functions of models, such as ``ML.PREDICT(MODEL m, TABLE t)``."""

from typing import Any

from corgipile.sql.reader import Reader
from corgipile.sql.sources import source_of, table_source
from corgipile.sql.statements import ModelCall, Source
from corgipile.sql.values import value
from corgipile.suggestions import did_you_mean

__all__ = ["model_call", "model_name"]

# For each function: whether rows are required (None: optional), and its options with their types.
FUNCTIONS: dict[str, tuple[bool | None, dict[str, type]]] = {
    "predict": (True, {"threshold": float}),
    "explain_predict": (True, {"top_k_features": int, "threshold": float}),
    "evaluate": (None, {"threshold": float, "weight": str}),
    "confusion_matrix": (None, {"threshold": float, "weight": str}),
    "roc_curve": (None, {"weight": str}),
    "calibration": (True, {"bins": int, "weight": str}),
    "advanced_weights": (None, {"weight": str}),
    "weights": (False, {"standardize": bool}),
    "training_info": (False, {}),
    "global_explain": (False, {}),
    "feature_info": (False, {}),
    "trial_info": (False, {}),
}
MAX_THRESHOLDS = 10_000  # that GENERATE_ARRAY may produce
KINDS: dict[type, tuple[Any, str]] = {
    str: (str, "text"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    bool: (bool, "TRUE or FALSE"),
}


def model_name(reader: Reader, what: str = "the name of a model") -> str:
    """Read the name of a model, its parts joined by dots."""
    token = reader.next(what, "word", "name", "string")
    parts = [token.text]
    while token.kind != "string" and reader.accept("."):
        parts.append(reader.next("a name", "word", "name").text)
    name = ".".join(parts)
    if not name or "\0" in name:
        raise reader.error(f"a model's name must not be empty or contain a zero byte, got {name!r}", reader.at - 1)
    return name


def model_call(reader: Reader) -> tuple[ModelCall, int] | None:
    """Read the model call that begins here; return it and the index of the next token, or None if there is none."""
    if not reader.accept("ML", ".") or (name := reader.peek()) is None or name.kind != "word":
        return None
    reader.at += 1
    if not reader.next_is("(", "MODEL"):
        return None
    function = name.text.lower()
    if function not in FUNCTIONS:
        names = [f"ML.{name.upper()}" for name in FUNCTIONS]
        hint = did_you_mean(f"ML.{name.text}", names)
        raise reader.error(f"there is no ML.{name.text.upper()}; available: {', '.join(names)}{hint}", reader.at - 1)
    close = reader.closing_bracket(reader.at)
    inside = reader.part(reader.at + 2, close, deep=1)
    model = model_name(inside)
    rows, known = FUNCTIONS[function]
    source = _source(inside, function, rows)
    options, begin = {}, inside.at + 1
    if inside.accept(","):
        options = _thresholds(inside) if function == "roc_curve" and not inside.next_is("STRUCT") else {}
        if not options or inside.accept(","):
            options |= _options(inside, function, known)
    if source is None and rows is not False and options:
        what = next(iter(options))
        raise inside.error(f"a {what} needs rows: put TABLE name or (SELECT …) before it", begin)
    inside.end(f") after the arguments of ML.{function.upper()}")
    return ModelCall(function, model, source, options), close + 1


def _source(inside: Reader, function: str, rows: bool | None) -> Source | None:
    """Read the rows: ``TABLE t`` or a SELECT in brackets."""
    comma = inside.peek()
    following = inside.peek(1)
    given = following is not None and not following.matches("STRUCT")
    if comma is None or not given:
        if rows:
            raise inside.unexpected(f"the rows of ML.{function.upper()}: , TABLE name or , (SELECT …)")
        return None
    inside.expect(",", what=", or )")
    if rows is False:
        raise inside.error(f"ML.{function.upper()} takes no rows, only a model")
    if inside.accept("TABLE"):
        return table_source(inside, "the name of a table")
    if not inside.next_is("("):
        raise inside.unexpected("TABLE name or (SELECT …)")
    close = inside.closing_bracket(inside.at)
    query = inside.part(inside.at + 1, close)
    inside.at = close + 1
    return source_of(query)


def _options(inside: Reader, function: str, known: dict[str, type]) -> dict[str, Any]:
    """Read ``STRUCT(0.5 AS threshold, 'w' AS weight)``."""
    inside.expect("STRUCT", "(")
    options: dict[str, Any] = {}
    while not inside.accept(")"):
        begin = inside.at
        given = value(inside)
        inside.expect("AS")
        token = inside.next("the name of an option", "word", "name")
        name = token.text.lower()
        if name not in known:
            names = f"it has {', '.join(known)}" if known else "it has none"
            raise inside.error(f"ML.{function.upper()} has no option {name}; {names}", inside.at - 1)
        right, what = KINDS[known[name]]
        if isinstance(given, bool) != (right is bool) or not isinstance(given, right):
            raise inside.error(f"{name} must be {what}, got {given!r}", begin)
        options[name] = known[name](given)
        if not inside.next_is(")"):
            inside.expect(",", what=", or )")
    return options


def _thresholds(inside: Reader) -> dict[str, Any]:
    """Read ``[0.1, 0.5]`` or ``GENERATE_ARRAY(0.1, 0.9, 0.1)``."""
    begin = inside.at
    generated = inside.accept("GENERATE_ARRAY")
    given = value(inside)
    numbers = isinstance(given, list) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in given)
    if numbers and generated:
        given = _generate_array(*given) if len(given) in (2, 3) else []
    if not numbers or not given or not all(0 <= x <= 1 for x in given):
        raise inside.error(
            "thresholds must be numbers from 0 to 1, such as [0.25, 0.5, 0.75] or GENERATE_ARRAY(0.1, 0.9, 0.1)", begin
        )
    return {"thresholds": sorted(map(float, given))}


def _generate_array(first: float, last: float, step: float = 1) -> list[float]:
    """Return evenly spaced numbers, or an empty list if there would be more than `MAX_THRESHOLDS`."""
    steps = (last - first) / step if step > 0 else -1
    return [first + i * step for i in range(int(steps * (1 + 1e-12)) + 1)] if 0 <= steps <= MAX_THRESHOLDS else []
