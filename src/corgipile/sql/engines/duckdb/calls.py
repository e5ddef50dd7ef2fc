"""What stands for ``ML.PREDICT(MODEL m, ...)`` and its like in a query, and what is said of a model."""

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.linear.groups import Groups
from corgipile.linear.model import Model
from corgipile.linear.multilabel import LabelModels
from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.evaluation import calibration, confusion, errors, evaluated, roc
from corgipile.sql.engines.duckdb.files import text_of
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import answered, asked, key_of, names_in, typed
from corgipile.sql.engines.evaluation import INTERCEPT, need_one_label, threshold_of
from corgipile.sql.engines.results import EPOCHS, epoch_row
from corgipile.sql.engines.shared import check_added
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["described", "table_of"]

JUDGES = {
    "evaluate": evaluated,
    "confusion_matrix": confusion,
    "roc_curve": roc,
    "calibration": calibration,
    "advanced_weights": errors,
}


def table_of(engine: "DuckDB", call: ModelCall, bound: Bound) -> str:
    """Return what stands for a call: a query in brackets, or the name of rows."""
    stored = engine.models.find(call.model)
    if call.function == "predict":
        return _predicted(engine, call, stored, bound)
    if call.function in JUDGES:
        return engine.session.lend(JUDGES[call.function](engine, call, stored, bound))
    made = _weights(stored.model) if call.function == "weights" else _history(stored.model)
    return engine.session.lend(made)


def _predicted(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> str:
    assert call.source is not None  # noqa: S101 - the grammar says so
    model, rows = stored.model, text_of(engine.session, call.source, bound).sql
    there = engine.session.schema(rows, bound.values).names
    names, key = names_in(stored, there), key_of(engine, stored, bound)
    label, labels = f"predicted_{model.label_or()}", model.params.get("labels")
    if labels is not None:
        label = f"predicted_{'labels' if model.label is None else model.label}"
        if call.options.get("threshold") is not None:
            need_one_label(call, labels)
    check_added([label, f"{label}_probs"], there, hint="rename it in the rows, or leave it out", folded=True)
    shares = asked("predict_proba", key, names)
    answer = answered(stored, key, names)
    if (threshold := threshold_of(call, model.classes.tolist(), probable=model.loss.probability)) is not None:
        answer = typed(stored, _beyond(model, shares, threshold))
    also = f", {shares} AS {quoted(label + '_probs')}" if model.loss.probability else ""
    return f"(SELECT {answer} AS {quoted(label)}{also}, * FROM ({rows}\n))"


def _beyond(model: Model, shares: str, threshold: float) -> str:
    """Return what tells two classes by another share than a half."""
    first, second = (
        literal(value) if isinstance(value, str) else f"{float(value)!r}::DOUBLE" for value in model.classes.tolist()
    )
    return f"CASE WHEN {shares}[2] >= {float(threshold)!r} THEN {second} ELSE {first} END"


def _weights(model: Model) -> pa.Table:
    """Return the weights, a row a feature, and one for the constant; of each class and group where there are more."""
    if isinstance(model, Groups):
        each = [_weights(model.of(group)) for group in model.groups]
        values = [group for group, part in zip(model.groups, each, strict=True) for _ in range(len(part))]
        return pa.concat_tables(each).add_column(0, model.by, pa.array(values))
    if isinstance(model, LabelModels):
        each = [_weights(model.of(label)) for label in model.labels]
        values = [label for label, part in zip(model.labels, each, strict=True) for _ in range(len(part))]
        return pa.concat_tables(each).add_column(0, "label", pa.array(values))
    names = [*(model.names or [f"{_one(model)}[{i}]" for i in range(model.width)]), INTERCEPT]
    several = len(model.coef) > 1
    rows = [
        {"class": str(label), "processed_input": name, "weight": float(weight)}
        for label, coef, constant in zip(
            model.classes.tolist() if several else [""], model.coef.tolist(), model.intercept.tolist(), strict=True
        )
        for name, weight in zip(names, [*coef, constant], strict=True)
    ]
    kinds = {"processed_input": pa.string(), "weight": pa.float64()} | ({"class": pa.string()} if several else {})
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _one(model: Model) -> str:
    return model.features[0] if len(model.features) == 1 else "feature"


def _history(model: Model) -> pa.Table:
    return pa.Table.from_pylist([epoch_row(record) for record in model.history], EPOCHS)


def described(stored: Stored) -> list[dict[str, str]]:
    """Return what is known of a model, a property a row."""
    model = stored.model
    last = (
        {name: value for name, value in epoch_row(model.history[-1]).items() if value is not None}
        if model.history
        else {}
    )
    found: dict[str, Any] = {
        "name": stored.name,
        "model": model.kind,
        "label": model.label,
        "features": list(model.features),
        "inputs": model.width,
        "classes": model.classes.tolist(),
        "epochs": len(model.history),
        **{name: value for name, value in last.items() if name != "epoch"},
        **{
            name: value
            for name, value in model.params.items()
            if name not in ("features", "label", "encoding", "lists")
        },
        "version": stored.version,
    }
    shown = {name: value for name, value in found.items() if value is not None}
    return [
        {"property": name, "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
        for name, value in shown.items()
    ]
