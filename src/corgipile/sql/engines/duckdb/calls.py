"""Replacement of calls such as ``ML.PREDICT(MODEL m, ...)`` in queries, and descriptions of models."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadModelFile
from corgipile.linear.groups import Groups
from corgipile.linear.model import Model
from corgipile.linear.multilabel import LabelModels
from corgipile.sql.engines.duckdb import answers
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.evaluation import ModelEvaluator
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import (
    FACTS,
    cast_classes,
    class_call,
    facts_of,
    function_call,
    model_key,
    scored_rows,
)
from corgipile.sql.engines.evaluation import EVALUATIONS, check_rows, need_one_label, threshold_of, weights
from corgipile.sql.engines.results import epoch_row, property_rows
from corgipile.sql.engines.shared import check_new_columns
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["call_sql", "describe_model"]


def call_sql(engine: "DuckDB", call: ModelCall, bound: BoundSql) -> str:
    """Return the SQL that replaces a call: a query in brackets, or the name of lent rows."""
    stored = engine.models.find(call.model)
    if call.function == "predict":
        return _prediction_query(engine, call, stored, bound)
    if call.function == "explain_predict":
        return answers.explanation_query(engine, call, stored, bound)
    if call.source is None and (known := facts_of(stored.model).get(call.function)) is not None:
        try:
            return engine.session.lend(pa.Table.from_pylist(known))
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise BadModelFile(f"model {stored.name!r} has a damaged answer for {call.function}") from None
    check_rows(call)
    if call.function in EVALUATIONS:
        return engine.session.lend(EVALUATIONS[call.function](ModelEvaluator(engine, call, stored, bound)))
    if call.function == "weights":
        standardize, table = call.options.get("standardize", False), None
        if standardize or facts_of(stored.model):
            table = answers.category_weights(stored.model, standardize=standardize)
        return engine.session.lend(_weights(stored.model) if table is None else table)
    return engine.session.lend(answers.training_info(stored.model))


def _prediction_query(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> str:
    model, scored, key = stored.model, scored_rows(engine, stored, call.source, bound), model_key(engine, stored, bound)
    label, labels = f"predicted_{model.label_or()}", model.params.get("labels")
    if labels is not None:
        label = f"predicted_{'labels' if model.label is None else model.label}"
        if call.options.get("threshold") is not None:
            need_one_label(call, labels)
    check_new_columns([label, f"{label}_probs"], scored.columns, hint="rename or drop it in the query", folded=True)
    shares = function_call("predict_proba", key, scored.names)
    answer = class_call(stored, key, scored.names)
    if (threshold := threshold_of(call, model.classes.tolist(), probable=model.loss.probability)) is not None:
        answer = cast_classes(stored, _threshold_case(model, shares, threshold))
    also = f", {answers.probabilities(model, shares)} AS {quoted(label + '_probs')}" if model.loss.probability else ""
    return f"(SELECT {answer} AS {quoted(label)}{also}, {scored.shown} FROM ({scored.sql}\n))"


def _threshold_case(model: Model, shares: str, threshold: float) -> str:
    """Return SQL that predicts one of two classes by a threshold."""
    first, second = (
        literal(value) if isinstance(value, str) else f"{float(value)!r}::DOUBLE" for value in model.classes.tolist()
    )
    return f"CASE WHEN {shares}[2] >= {float(threshold)!r} THEN {second} ELSE {first} END"


def _weights(model: Model) -> pa.Table:
    """Return the weights, a row for each feature and the intercept, for each class, group or label."""
    by: str | None = None
    values: list[Any] = [None]
    if isinstance(model, Groups):
        by, values = model.by, model.groups
    elif isinstance(model, LabelModels):
        by, values = "label", model.labels
    prefix = model.features[0] if len(model.features) == 1 else "feature"
    names = model.names or [f"{prefix}[{i}]" for i in range(model.width)]
    classes = model.classes.tolist() if len(model.coef) > len(values) else []
    return weights(names, model.coef.tolist(), model.intercept.tolist(), classes, by, values)


def describe_model(stored: Stored) -> list[dict[str, str]]:
    """Return a model's properties, one a row."""
    model = stored.model
    last = epoch_row(model.history[-1]) if model.history else {}
    hidden = ("features", "label", "encoding", "lists", FACTS)
    properties: dict[str, Any] = {
        "name": stored.name,
        "model": model.kind,
        "label": model.label,
        "features": list(model.features),
        "inputs": model.width,
        "classes": model.classes.tolist(),
        "epochs": len(model.history),
        **{name: value for name, value in last.items() if name != "epoch"},
        **{name: value for name, value in model.params.items() if name not in hidden},
        "version": stored.version,
    }
    return property_rows(properties)
