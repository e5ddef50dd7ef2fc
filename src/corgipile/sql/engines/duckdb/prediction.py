"""Writes SQL that predicts: a call of one of our functions on the columns that a model was trained on."""

from typing import TYPE_CHECKING

from corgipile.errors import MissingColumn
from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.functions import PREFIX
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.statements import Fragment, Predict, Source
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["asked", "names_in", "predicting", "says_class"]

LASTING = {"VIEW", "MACRO", "FUNCTION"}  # what keeps SQL for later, when a model is found by its name


def predicting(engine: "DuckDB", statement: Predict, stored: Stored, bound: Bound) -> str:
    """Return the SQL of a prediction.

    Raises:
        MissingColumn: A column that the model was trained on is not among those of the rows.
    """
    source, before, after = statement.source, bound.text(statement.before), bound.text(statement.after)
    lasting = LASTING & set(before.upper().split())
    key = stored.name if lasting else engine.functions.pin(stored, engine.session)
    column = quoted(statement.column)
    named = source.columns is not None or source.items == Fragment(("*",))
    if source.foldable and source.table is not None and named:
        return f"{before}\n{_folded(engine, source, stored, bound, key, column)}\n{after}"
    rows = bound.text(source.sql)
    there = engine.session.schema(rows, bound.values).names
    names = names_in(stored, there)
    if names is None and source.foldable:
        return f"{before}\n{_folded(engine, source, stored, bound, key, column)}\n{after}"
    call = asked(says_class(stored), key, _all_of(names, stored, there))
    return f"{before}\nSELECT *, {call} AS {column} FROM ({rows}\n)\n{after}"


def _folded(engine: "DuckDB", source: Source, stored: Stored, bound: Bound, key: str, column: str) -> str:
    """Return a SELECT with the prediction as one more expression of its own."""
    items, rest = bound.text(source.items), bound.text(source.rest)
    there = engine.session.schema(f"SELECT * {rest}", bound.values).names
    call = asked(says_class(stored), key, _all_of(names_in(stored, there), stored, there))
    return f"SELECT {items}\n, {call} AS {column} {rest}"


def says_class(stored: Stored) -> str:
    """Return the function that says what a model predicts: the names of classes where they are text."""
    return "predict_label" if stored.model.classes.dtype.kind == "U" else "predict"


def asked(function: str, key: str, names: list[str]) -> str:
    """Return a call of a function for columns."""
    return f"{PREFIX}{function}({literal(key)}, {', '.join(map(quoted, names))})"


def names_in(stored: Stored, there: list[str]) -> list[str] | None:
    """Return what the rows call a model's features, whatever the case; None where one is missing."""
    same = {name.lower(): name for name in reversed(there)} | {name: name for name in there}
    found = [same.get(name) or same.get(name.lower()) for name in stored.model.features]
    return None if None in found else [name for name in found if name]


def _all_of(names: list[str] | None, stored: Stored, there: list[str]) -> list[str]:
    if names is not None:
        return names
    known = {name.lower() for name in there}
    missing = [name for name in stored.model.features if name.lower() not in known]
    raise MissingColumn(
        f"model {stored.name!r} was trained on {listed(stored.model.features)}; the rows have {listed(there)}, "
        f"without {listed(missing)}{did_you_mean(missing[0], there)}"
    )
