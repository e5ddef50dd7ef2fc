"""SQL of predictions: a call of one of our functions with the model's columns."""

from typing import TYPE_CHECKING, Any, NamedTuple

from corgipile.errors import BadModelFile, MissingColumn
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.expressions import HIDDEN, check_expressions
from corgipile.sql.engines.duckdb.files import Text, readable_by_duckdb, select_text, with_files
from corgipile.sql.engines.duckdb.functions import KINDS, PREFIX
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.shared import check_new_columns
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.statements import Fragment, Predict, Source
from corgipile.sql.tokens import tokenize
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.linear.model import Model
    from corgipile.sql.engines.duckdb.engine import DuckDB

FACTS = "bigquery"  # the parameter of a model of CREATE MODEL with the answers that training stored
HINT = "PREDICT BY model AS name gives another name"

__all__ = [
    "FACTS",
    "cast_classes",
    "check_persistent",
    "class_call",
    "class_function",
    "computed_sql",
    "facts_of",
    "function_call",
    "match_columns",
    "model_key",
    "pin_models",
    "prediction_sql",
    "scored_rows",
]


def prediction_sql(engine: "DuckDB", statement: Predict, stored: Stored, bound: BoundSql) -> str:
    """Return the SQL of a prediction; raise MissingColumn if the rows lack a column of the model."""
    before, after = (with_files(engine.session, bound.text(one)) for one in (statement.before, statement.after))
    source = statement.source
    key, column = model_key(engine, stored, bound), quoted(statement.column)
    if facts_of(stored.model).get("transform") is not None:
        scored = scored_rows(engine, stored, source, bound)
        check_new_columns([statement.column], scored.columns, hint=HINT, folded=True)
        call = class_call(stored, key, scored.names)
        return f"{before}\nSELECT {scored.shown}, {call} AS {column} FROM ({scored.sql}\n)\n{after}"
    text = select_text(engine.session, source, bound)
    check_persistent(engine, bound)
    columns = engine.session.schema(text.sql, bound.values).names
    check_new_columns([statement.column], columns, hint=HINT, folded=True)
    named = source.columns is not None or source.items == Fragment(("*",))
    if source.foldable and (((source.table or source.file) and named) or _missing(stored, columns)):
        return f"{before}\n{_add_to_select(engine, text, stored, bound, key, column)}\n{after}"
    call = class_call(stored, key, match_columns(stored, columns))
    return f"{before}\nSELECT *, {call} AS {column} FROM ({text.sql}\n)\n{after}"


def _add_to_select(engine: "DuckDB", text: Text, stored: Stored, bound: BoundSql, key: str, column: str) -> str:
    """Add the prediction to the SELECT list of a query."""
    columns = engine.session.schema(f"SELECT * {text.rest}", bound.values).names
    call = class_call(stored, key, match_columns(stored, columns))
    return f"SELECT {text.items}\n, {call} AS {column} {text.rest}"


def facts_of(model: "Model") -> dict[str, Any]:
    """Return the answers stored with a model; empty unless CREATE MODEL trained it with BigQuery's model type."""
    return dict(model.params.get(FACTS) or {})


class Scored(NamedTuple):
    """SQL of rows with a model's columns, the names of these, what to show of the rows, and their own columns."""

    sql: str
    names: list[str]
    shown: str
    columns: list[str]


def computed_sql(session: Session, model: "Model", wanted: list[str], rows: str) -> str | None:
    """Return rows with columns of TRANSFORM under hidden names, before their own; None without TRANSFORM."""
    if (transform := facts_of(model).get("transform")) is None:
        return None
    if not (isinstance(transform, dict) and all(isinstance(transform.get(name), str) for name in wanted)):
        raise BadModelFile(f"TRANSFORM of the model must compute {listed(wanted)}; train it again")
    check_expressions(session, {name: transform[name] for name in wanted})
    computed = ", ".join(f"({transform[name]}\n) AS {HIDDEN}{i}" for i, name in enumerate(wanted))
    return f"SELECT {computed}, * FROM ({rows}\n)"


def scored_rows(engine: "DuckDB", stored: Stored, source: Source | None, bound: BoundSql) -> Scored:
    """Return rows with the columns that a model needs; those of TRANSFORM are computed."""
    assert source is not None  # noqa: S101 - the grammar requires it
    rows = select_text(engine.session, source, bound).sql
    columns, wanted = engine.session.schema(rows, bound.values).names, list(stored.model.columns)
    if (sql := computed_sql(engine.session, stored.model, wanted, rows)) is None:
        return Scored(rows, match_columns(stored, columns), "*", columns)
    hidden = [f"{HIDDEN}{i}" for i in range(len(wanted))]
    return Scored(sql, hidden, f"* EXCLUDE ({', '.join(hidden)})", columns)


def pin_models(engine: "DuckDB", sql: str) -> str:
    """Pin models that only the running transaction sees; return SQL with their internal names."""
    names = engine.models.uncommitted()
    if not names:
        return sql
    tokens, result = tokenize(sql), sql
    for call, bracket, name in reversed(list(zip(tokens, tokens[1:], tokens[2:], strict=False))):
        if call.text.lower() in KINDS and bracket.text == "(" and name.kind == "string" and name.text in names:
            key = engine.functions.pin(engine.models.find(name.text), engine.session)
            result = result[: name.start] + literal(key) + result[name.stop :]
    return result


def class_function(stored: Stored) -> str:
    """Return the SQL function of a model's predictions, by the type of its labels."""
    if "labels" in stored.model.params:
        return "predict_labels"
    return "predict_label" if stored.model.classes.dtype.kind == "U" else "predict"


def function_call(function: str, key: str, names: list[str]) -> str:
    """Return the SQL call of a function for a model and columns."""
    return f"system.main.{PREFIX}{function}({literal(key)}, {', '.join(map(quoted, names))})"


def class_call(stored: Stored, key: str, names: list[str]) -> str:
    """Return SQL for predictions in the type of the labels."""
    return cast_classes(stored, function_call(class_function(stored), key, names))


def cast_classes(stored: Stored, answer: str) -> str:
    """Cast classes to the type of the labels, such as integers or booleans."""
    kind = {"i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}.get(stored.model.classes.dtype.kind)
    plain = kind is None or stored.model.loss.numbers or "labels" in stored.model.params
    return answer if plain else f"({answer})::{kind}"


def model_key(engine: "DuckDB", stored: Stored, bound: BoundSql) -> str:
    """Return the name of a model for functions: pinned to its current version unless the SQL is stored."""
    return stored.name if bound.persistent else engine.functions.pin(stored, engine.session)


def check_persistent(engine: "DuckDB", bound: BoundSql) -> None:
    """Raise NotSupportedError if stored SQL reads rows that exist only during this statement."""
    if bound.persistent and not all(map(readable_by_duckdb, engine.session.lent)):
        raise NotSupportedError("a view cannot store these rows; use CREATE TABLE ... AS")


def match_columns(stored: Stored, columns: list[str]) -> list[str]:
    """Return the model's columns in the rows' spelling, ignoring case; raise MissingColumn if one is missing."""
    if missing := _missing(stored, columns):
        raise MissingColumn(
            f"model {stored.name!r} was trained on {listed(stored.model.columns)}; the rows have {listed(columns)}, "
            f"without {listed(missing)}{did_you_mean(missing[0], columns)}"
        )
    same = {name.lower(): name for name in reversed(columns)} | {name: name for name in columns}
    return [same.get(name) or same[name.lower()] for name in stored.model.columns]


def _missing(stored: Stored, columns: list[str]) -> list[str]:
    known = {name.lower() for name in columns}
    return [name for name in stored.model.columns if name.lower() not in known]
