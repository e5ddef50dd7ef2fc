"""Writes SQL that predicts: a call of one of our functions on the columns that a model was trained on."""

from typing import TYPE_CHECKING

from corgipile.errors import MissingColumn
from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.files import Text, stands_alone, text_of, with_files
from corgipile.sql.engines.duckdb.functions import KINDS, PREFIX
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.shared import check_added
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.statements import Fragment, Predict
from corgipile.sql.tokens import tokenize
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["answered", "asked", "check_kept", "key_of", "names_in", "pinned", "predicting", "says_class", "typed"]


def predicting(engine: "DuckDB", statement: Predict, stored: Stored, bound: Bound) -> str:
    """Return the SQL of a prediction.

    Raises:
        MissingColumn: A column that the model was trained on is not among those of the rows.
    """
    before, after = (with_files(engine.session, bound.text(one)) for one in (statement.before, statement.after))
    source = statement.source
    key, column = key_of(engine, stored, bound), quoted(statement.column)
    text = text_of(engine.session, source, bound)
    check_kept(engine, bound)
    there = engine.session.schema(text.sql, bound.values).names
    check_added([statement.column], there, hint="PREDICT BY model AS name gives another name", folded=True)
    named = source.columns is not None or source.items == Fragment(("*",))
    if source.foldable and (source.table or source.file) and named:
        return f"{before}\n{_folded(engine, text, stored, bound, key, column)}\n{after}"
    if source.foldable and _missing(stored, there):
        return f"{before}\n{_folded(engine, text, stored, bound, key, column)}\n{after}"
    call = answered(stored, key, names_in(stored, there))
    return f"{before}\nSELECT *, {call} AS {column} FROM ({text.sql}\n)\n{after}"


def _folded(engine: "DuckDB", text: Text, stored: Stored, bound: Bound, key: str, column: str) -> str:
    """Return a SELECT with the prediction as one more expression of its own."""
    there = engine.session.schema(f"SELECT * {text.rest}", bound.values).names
    call = answered(stored, key, names_in(stored, there))
    return f"SELECT {text.items}\n, {call} AS {column} {text.rest}"


def pinned(engine: "DuckDB", sql: str) -> str:
    """Return SQL in which functions ask for models as the transaction under way sees them, which nobody else does."""
    names = engine.models.uncommitted()
    if not names:
        return sql
    tokens, made = tokenize(sql), sql
    for call, bracket, name in reversed(list(zip(tokens, tokens[1:], tokens[2:], strict=False))):
        if call.text.lower() in KINDS and bracket.text == "(" and name.kind == "string" and name.text in names:
            key = engine.functions.pin(engine.models.find(name.text), engine.session)
            made = made[: name.start] + literal(key) + made[name.stop :]
    return made


def says_class(stored: Stored) -> str:
    """Return the function that says what a model predicts: the names of classes where they are text, or of labels."""
    if "labels" in stored.model.params:
        return "predict_labels"
    return "predict_label" if stored.model.classes.dtype.kind == "U" else "predict"


def asked(function: str, key: str, names: list[str]) -> str:
    """Return a call of a function for columns."""
    return f"{PREFIX}{function}({literal(key)}, {', '.join(map(quoted, names))})"


def answered(stored: Stored, key: str, names: list[str]) -> str:
    """Return a model's predictions in the type of its labels."""
    return typed(stored, asked(says_class(stored), key, names))


def typed(stored: Stored, answer: str) -> str:
    """Return an expression that casts classes to the type of the labels, such as integers or booleans."""
    kind = {"i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}.get(stored.model.classes.dtype.kind)
    return (
        answer
        if kind is None or stored.model.loss.numbers or "labels" in stored.model.params
        else f"({answer})::{kind}"
    )


def key_of(engine: "DuckDB", stored: Stored, bound: Bound) -> str:
    """Return what functions find a model by: as it is now, unless the SQL is kept for later."""
    return stored.name if bound.lasting else engine.functions.pin(stored, engine.session)


def check_kept(engine: "DuckDB", bound: Bound) -> None:
    """Check that SQL which is kept for later reads no rows that are lent to this statement alone.

    Raises:
        NotSupportedError: It does.
    """
    if bound.lasting and not all(map(stands_alone, engine.session.lent)):
        raise NotSupportedError("a view cannot keep these rows; CREATE TABLE ... AS keeps them")


def names_in(stored: Stored, there: list[str]) -> list[str]:
    """Return what the rows call a model's features, whatever the case.

    Raises:
        MissingColumn: They lack one.
    """
    if missing := _missing(stored, there):
        raise MissingColumn(
            f"model {stored.name!r} was trained on {listed(stored.model.columns)}; the rows have {listed(there)}, "
            f"without {listed(missing)}{did_you_mean(missing[0], there)}"
        )
    same = {name.lower(): name for name in reversed(there)} | {name: name for name in there}
    return [same.get(name) or same[name.lower()] for name in stored.model.columns]


def _missing(stored: Stored, there: list[str]) -> list[str]:
    known = {name.lower() for name in there}
    return [name for name in stored.model.columns if name.lower() not in known]
