"""What stands for ``ML.PREDICT(MODEL m, ...)`` and its like in a query, and what is said of a model."""

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.losses import loss_of
from corgipile.sql.engines.evaluation import INTERCEPT, need_one_label, threshold_of
from corgipile.sql.engines.postgres.evaluation import (
    FLOAT,
    asked,
    calibration,
    confusion,
    errors,
    evaluated,
    roc,
    says_class,
)
from corgipile.sql.engines.postgres.models import Stored
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.shared import check_added
from corgipile.sql.statements import ModelCall, Predict, Source

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.engine import PostgreSQL

__all__ = ["described", "predicting", "table_of"]

KINDS = {"int64": "bigint", "double": FLOAT, "bool": "boolean"}  # Arrow's types as the server's; others are TEXT
TEXT = "pg_catalog.text"
JUDGES = {
    "evaluate": evaluated,
    "confusion_matrix": confusion,
    "roc_curve": roc,
    "calibration": calibration,
    "advanced_weights": errors,
}
HIDDEN = ("features", "label", "encoding", "class_type", "imported")  # of params, in a description


def table_of(engine: "PostgreSQL", call: ModelCall, writer: Writer) -> str:
    """Return what stands for a call where a table does, with another name behind it or without."""
    stored = engine.models.find(call.model)
    if call.function == "predict":
        made = _predicted(engine, call, stored, writer)
    elif call.function in JUDGES:
        made = _values(JUDGES[call.function](engine, call, stored, writer), writer)
    elif call.function == "weights":
        made = _weights(engine, stored, writer)
    else:
        names = "epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2, rows, seconds"
        named = f"model OPERATOR(pg_catalog.=) {writer.literal(stored.name)}"
        made = f"SELECT {names} FROM corgipile.history WHERE {named} ORDER BY epoch"
    return f"(({made}\n) AS corgipile_call CROSS JOIN (SELECT) AS corgipile_no_columns)"  # so that it needs no name


def _predicted(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> str:
    assert call.source is not None  # noqa: S101 - the grammar says so
    rows = writer.text(call.source.sql)
    there = engine.session.columns(rows)
    names = stored.names_in(there)
    if names is None:
        raise stored.missing(there)
    label, of = f"predicted_{stored.label}", "corgipile_rows."
    check_added([label, f"{label}_probs"], there, hint="rename it in the rows, or leave it out", folded=False)
    shares = asked("predict_proba", stored, names, writer, of)
    answer = asked(says_class(stored), stored, names, writer, of)
    probable = loss_of(stored.kind, len(stored.classes)).probability
    if call.options.get("threshold") is not None:
        need_one_label(call, stored.labels)
    if (threshold := threshold_of(call, stored.classes, probable=probable)) is not None:
        answer = _beyond(stored, shares, threshold, writer)
    also = f", {shares} AS {writer.name(label + '_probs')}" if probable else ""
    return f"SELECT {answer} AS {writer.name(label)}{also}, corgipile_rows.* FROM ({rows}\n) AS corgipile_rows"


def _beyond(stored: Stored, shares: str, threshold: float, writer: Writer) -> str:
    """Return what tells two classes by another share than a half."""
    classes: list[Any] = stored.class_names or [float(value) for value in stored.classes]
    first, second = (f"{writer.literal(value)}::{TEXT if stored.class_names else FLOAT}" for value in classes)
    reached = f"OPERATOR(pg_catalog.>=) {writer.literal(threshold)}::{FLOAT}"
    return f"CASE WHEN ({shares})[2] {reached} THEN {second} ELSE {first} END"


def _values(table: pa.Table, writer: Writer) -> str:
    """Return a query that gives the rows of a table, which are few."""
    kinds = [KINDS.get(str(kind), TEXT) for kind in table.schema.types]
    named = zip(kinds, table.column_names, strict=True)
    columns = ", ".join(f"NULL::{kind} AS {writer.name(name)}" for kind, name in named)
    rows = [
        f"({', '.join(f'{writer.literal(value)}::{kind}' for value, kind in zip(row, kinds, strict=True))})"
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]
    return f"SELECT {columns} WHERE false" + (f" UNION ALL VALUES {', '.join(rows)}" if rows else "")


def _weights(engine: "PostgreSQL", stored: Stored, writer: Writer) -> str:
    """Return the weights, a row a feature, and one for the constant; of each class and group where there are more."""
    coefficients, constants = engine.models.weights(stored.name)
    groups = [None] if stored.by is None else stored.params["groups"]
    groups = groups if stored.labels is None else stored.labels
    names, several = [*stored.numbers, INTERCEPT], len(coefficients) > len(groups)
    classes = (stored.class_names or stored.classes) if several else [None]
    apart = stored.by if stored.labels is None else "label"
    of = [(group, label) for group in groups for label in classes]
    lines = [
        f"({_group(group, writer) if apart else ''}{writer.literal(name)}::{TEXT}, {writer.literal(weight)}::{FLOAT}"
        + (f", {writer.literal(str(label))}::{TEXT})" if several else ")")
        for (group, label), line, constant in zip(of, coefficients, constants, strict=True)
        for name, weight in zip(names, [*line, constant], strict=True)
    ]
    first, also = "" if apart is None else f"{writer.name(apart)}, ", ", class" if several else ""
    return f"SELECT * FROM (VALUES {', '.join(lines)}) AS corgipile_weights ({first}processed_input, weight{also})"


def _group(group: Any, writer: Writer) -> str:
    kind = "boolean" if isinstance(group, bool) else "bigint" if isinstance(group, int) else TEXT
    return "NULL, " if group is None else f"{writer.literal(group)}::{kind}, "


def predicting(engine: "PostgreSQL", statement: Predict, stored: Stored, writer: Writer) -> str:
    """Return the SQL of a prediction.

    Raises:
        MissingColumn: A column that the model was trained on is not among those of the rows.
    """
    source = statement.source
    return (
        writer.text(statement.before)
        + _beside(engine, source, statement.column, stored, writer)
        + writer.text(statement.after)
    )


def _beside(engine: "PostgreSQL", source: Source, column: str, stored: Stored, writer: Writer) -> str:
    """Return a query whose rows have the prediction besides."""
    if source.file is not None:
        raise BadArgument(f"{source.file!r} is a file, and PostgreSQL reads tables; SQL without a server reads files")
    rows, named = writer.text(source.sql), writer.name(column)
    there = engine.session.columns(rows)
    check_added([column], there, hint="PREDICT BY model AS name gives another name", folded=False)
    names = stored.names_in(there)
    if names is not None:
        call = asked(says_class(stored), stored, names, writer, "corgipile_rows.")
        return f"SELECT corgipile_rows.*, {call} AS {named} FROM ({rows}\n) AS corgipile_rows"
    if not source.foldable:
        raise stored.missing(there)
    rest = writer.text(source.rest)
    everything = engine.session.columns(f"SELECT * {rest}")
    if stored.names_in(everything) is None:
        raise stored.missing(everything)
    call = asked(says_class(stored), stored, stored.columns, writer)
    return f"SELECT {writer.text(source.items)}\n, {call} AS {named} {rest}"


def described(stored: Stored, history: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is known of a model, a property a row."""
    last = history[-1] if history else {}
    found: dict[str, Any] = {
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
    shown = {name: value for name, value in found.items() if value is not None}
    return [
        {"property": name, "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
        for name, value in shown.items()
    ]
