"""Replacement of calls such as ``ML.PREDICT(MODEL m, ...)`` in queries, and descriptions of models."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.losses import loss_of
from corgipile.sql.engines.evaluation import EVALUATIONS, check_rows, need_one_label, threshold_of, weights
from corgipile.sql.engines.postgres.evaluation import FLOAT, ServerEvaluator, class_function, function_call
from corgipile.sql.engines.postgres.models import Stored
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.results import EPOCHS, property_rows
from corgipile.sql.engines.shared import check_new_columns
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.statements import ModelCall, Predict, Source

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.engine import PostgreSQL

__all__ = ["call_sql", "describe_model", "prediction_sql"]

KINDS = {"int64": "bigint", "double": FLOAT, "bool": "boolean"}  # PostgreSQL types of Arrow types; others are TEXT
TEXT = "pg_catalog.text"
HIDDEN = ("features", "label", "encoding", "class_type", "imported")  # parameters omitted from descriptions


def call_sql(engine: "PostgreSQL", call: ModelCall, writer: Writer) -> str:
    """Return the table expression that replaces a call, with or without an alias after it."""
    stored = engine.models.find(call.model)
    check_rows(call)
    if call.function == "explain_predict" or call.options.get("standardize"):
        raise NotSupportedError(f"ML.{call.function.upper()} with these options needs DuckDB")
    if call.function == "predict":
        query = _prediction_query(engine, call, stored, writer)
    elif call.function in EVALUATIONS:
        query = _values(EVALUATIONS[call.function](ServerEvaluator(engine, call, stored, writer)), writer)
    elif call.function == "weights":
        query = _values(_weights(engine, stored), writer)
    else:
        names, named = ", ".join(EPOCHS.names), f"model OPERATOR(pg_catalog.=) {writer.literal(stored.name)}"
        query = f"SELECT {names} FROM corgipile.history WHERE {named} ORDER BY epoch"
    return f"(({query}\n) AS corgipile_call CROSS JOIN (SELECT) AS corgipile_no_columns)"  # a join needs no alias


def _prediction_query(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> str:
    assert call.source is not None  # noqa: S101 - the grammar requires it
    rows = writer.text(call.source.sql)
    columns = engine.session.columns(rows)
    names = stored.match_columns(columns)
    if names is None:
        raise stored.missing(columns)
    label, of = f"predicted_{stored.label}", "corgipile_rows."
    check_new_columns([label, f"{label}_probs"], columns, hint="rename or drop it in the query", folded=False)
    shares = function_call("predict_proba", stored, names, writer, of)
    answer = function_call(class_function(stored), stored, names, writer, of)
    probable = loss_of(stored.kind, len(stored.classes)).probability
    if call.options.get("threshold") is not None:
        need_one_label(call, stored.labels)
    if (threshold := threshold_of(call, stored.classes, probable=probable)) is not None:
        answer = _threshold_case(stored, shares, threshold, writer)
    also = f", {shares} AS {writer.name(label + '_probs')}" if probable else ""
    return f"SELECT {answer} AS {writer.name(label)}{also}, corgipile_rows.* FROM ({rows}\n) AS corgipile_rows"


def _threshold_case(stored: Stored, shares: str, threshold: float, writer: Writer) -> str:
    """Return SQL that predicts one of two classes by a threshold."""
    classes: list[Any] = stored.class_names or [float(value) for value in stored.classes]
    first, second = (f"{writer.literal(value)}::{TEXT if stored.class_names else FLOAT}" for value in classes)
    reached = f"OPERATOR(pg_catalog.>=) {writer.literal(threshold)}::{FLOAT}"
    return f"CASE WHEN ({shares})[2] {reached} THEN {second} ELSE {first} END"


def _values(table: pa.Table, writer: Writer) -> str:
    """Return a VALUES query of a small table's rows."""
    kinds = [KINDS.get(str(kind), TEXT) for kind in table.schema.types]
    named = zip(kinds, table.column_names, strict=True)
    columns = ", ".join(f"NULL::{kind} AS {writer.name(name)}" for kind, name in named)
    rows = [
        f"({', '.join(f'{writer.literal(value)}::{kind}' for value, kind in zip(row, kinds, strict=True))})"
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]
    return f"SELECT {columns} WHERE false" + (f" UNION ALL VALUES {', '.join(rows)}" if rows else "")


def _weights(engine: "PostgreSQL", stored: Stored) -> pa.Table:
    """Return the weights, a row for each feature and the intercept, for each class, group or label."""
    coefficients, constants = engine.models.weights(stored.name)
    by, values = (stored.by, [None] if stored.by is None else stored.params["groups"])
    by, values = (by, values) if stored.labels is None else ("label", stored.labels)
    classes = (stored.class_names or stored.classes) if len(coefficients) > len(values) else []
    return weights(stored.numbers, coefficients, constants, classes, by, values)


def prediction_sql(engine: "PostgreSQL", statement: Predict, stored: Stored, writer: Writer) -> str:
    """Return the SQL of a prediction; raise MissingColumn if the rows lack a column of the model."""
    before = writer.text(statement.before)
    query = _with_prediction(engine, statement.source, statement.column, stored, writer)
    return before + query + writer.text(statement.after)


def _with_prediction(engine: "PostgreSQL", source: Source, column: str, stored: Stored, writer: Writer) -> str:
    """Return a query whose rows gain the prediction."""
    if source.file is not None:
        raise BadArgument(f"PostgreSQL reads tables, got file {source.file!r}; to read files, connect without a server")
    rows, named = writer.text(source.sql), writer.name(column)
    columns = engine.session.columns(rows)
    check_new_columns([column], columns, hint="PREDICT BY model AS name gives another name", folded=False)
    names = stored.match_columns(columns)
    if names is not None:
        call = function_call(class_function(stored), stored, names, writer, "corgipile_rows.")
        return f"SELECT corgipile_rows.*, {call} AS {named} FROM ({rows}\n) AS corgipile_rows"
    if not source.foldable:
        raise stored.missing(columns)
    rest = writer.text(source.rest)
    all_columns = engine.session.columns(f"SELECT * {rest}")
    if stored.match_columns(all_columns) is None:
        raise stored.missing(all_columns)
    call = function_call(class_function(stored), stored, stored.columns, writer)
    return f"SELECT {writer.text(source.items)}\n, {call} AS {named} {rest}"


def describe_model(stored: Stored, history: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return a model's properties, one a row."""
    last = history[-1] if history else {}
    properties: dict[str, Any] = {
        "name": stored.name,
        "model": stored.kind,
        "label": stored.label if stored.labels is None else stored.params.get("label"),
        "features": stored.features,
        "inputs": stored.width,
        "classes": stored.class_names or stored.classes,
        **{name: value for name, value in last.items() if name != "epoch"},
        **{name: value for name, value in stored.params.items() if name not in HIDDEN},
        "epochs": len(history),
        "source": stored.source,
        "owner": stored.owner,
    }
    return property_rows(properties)
