"""Answers in BigQuery's shapes for models of CREATE MODEL, and the attributions behind them."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.features.encoders import Categories
from corgipile.linear.model import Model
from corgipile.linear.scaling import Scaling
from corgipile.sizes import whole
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import class_call, facts_of, function_call, scored_rows
from corgipile.sql.engines.evaluation import INTERCEPT
from corgipile.sql.engines.results import EPOCHS, epoch_row
from corgipile.sql.engines.shared import check_new_columns
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

CATEGORY = pa.struct([("category", pa.string()), ("weight", pa.float64())])
SYSTEM = "system.main"  # a schema, whose functions no macro replaces
WEIGHTS = pa.schema(
    [("processed_input", pa.string()), ("weight", pa.float64()), ("category_weights", pa.list_(CATEGORY))]
)


def inputs_of(model: Model) -> list[tuple[str, str | None]]:
    """Return the column of each coefficient, and its category; empty if coefficients have no names."""
    found: list[tuple[str, str | None]] = [(name, None) for name in model.names]
    if model.encoding is not None:
        found = []
        for one in model.encoding.features:
            onehot = isinstance(one, Categories) and one.way == "onehot"
            values = [str(value or "NULL") for value in one.values] if onehot else [None] * len(one.names)  # type: ignore[attr-defined]
            found += [(one.column, value) for value in values]
    return found if len(found) == model.width and type(model) is Model else []


def parts_of(model: Model) -> Model | None:
    """Return a model whose scores are each column's part of a score; None if there are several outputs."""
    inputs, names = np.array([name for name, _ in inputs_of(model)]), [*model.features, ""]
    if not len(inputs) or model.outputs != 1:
        return None
    coef = np.where(inputs == np.array(names)[:, None], model.coef, 0).astype(model.coef.dtype)
    params = {name: value for name, value in model.params.items() if name in ("features", "encoding", "label", "lists")}
    return Model("softmax", coef, np.zeros(len(names), coef.dtype), np.arange(len(names)), params)


def means_of(model: Model) -> dict[str, float] | None:
    """Return each column's part of the score of the mean row; None unless training standardised named columns."""
    scaling, inputs = None if model.learnt is None else model.learnt.scaling, inputs_of(model)
    if scaling is None or not inputs or model.outputs != 1:
        return None
    means = dict.fromkeys(model.features, 0.0)
    for (name, _), weight, center in zip(inputs, model.coef[0].tolist(), scaling.center.tolist(), strict=True):
        means[name] += weight * center
    return means


def probabilities(model: Model, shares: str) -> str:
    """Return SQL of the probabilities; for a model of BigQuery's an array of structs with the classes."""
    if not facts_of(model):
        return shares
    classes = [literal(one) if isinstance(one, str) else repr(one) for one in model.classes.tolist()]
    pairs = f"{SYSTEM}.list_zip([{', '.join(classes)}], {shares})"
    return f"{SYSTEM}.list_transform({pairs}, lambda pair: {SYSTEM}.struct_pack(label := pair[1], prob := pair[2]))"


def explanation_query(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> str:
    """Return the SQL of ``ML.EXPLAIN_PREDICT``."""
    model, means, parts = stored.model, means_of(stored.model), parts_of(stored.model)
    if parts is None or means is None:
        raise BadArgument(
            f"ML.EXPLAIN_PREDICT needs a LINEAR_REG or binary LOGISTIC_REG of CREATE MODEL, not {stored.name!r}"
        )
    if bound.persistent:
        raise NotSupportedError("a view cannot store ML.EXPLAIN_PREDICT; use CREATE TABLE ... AS")
    scored, key = scored_rows(engine, stored, call.source, bound), engine.functions.pin(stored, engine.session)
    parts_key = engine.functions.pin(Stored(stored.name, f"{stored.version} parts", parts), engine.session)
    named = f"[{', '.join(map(literal, means))}], {list(means.values())!r}::DOUBLE[]"
    moved = f"{SYSTEM}.list_zip({named}, {function_call('decision', parts_key, scored.names)}[:{len(means)}])"
    sized = f"{SYSTEM}.list_transform({moved}, lambda x: ({SYSTEM}.abs(x[3] - x[2]), x[1], x[3] - x[2]))"
    top = f"{SYSTEM}.list_reverse_sort({sized})[:{whole(call.options.get('top_k_features', 5), 'top_k_features', 1)}]"
    attributions = (
        f"{SYSTEM}.list_transform({top}, lambda x: {SYSTEM}.struct_pack(feature := x[2], attribution := x[3]))"
    )
    probability = f"{SYSTEM}.list_max({function_call('predict_proba', key, scored.names)})"
    added = {
        f"predicted_{model.label_or()}": class_call(stored, key, scored.names),
        **({"probability": probability} if model.loss.probability else {}),
        "top_feature_attributions": attributions,
        "baseline_prediction_value": f"{float(model.intercept[0]) + sum(means.values())!r}::DOUBLE",
        "prediction_value": f"{function_call('decision', key, scored.names)}[1]",
        "approximation_error": "0.0::DOUBLE",
    }
    check_new_columns(list(added), scored.columns, hint="rename or drop it in the query", folded=True)
    listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in added.items())
    return f"(SELECT {listed}, {scored.shown} FROM ({scored.sql}\n))"


def category_weights(model: Model, *, standardize: bool) -> pa.Table | None:
    """Return ``ML.WEIGHTS`` with the weights of categories in lists, or None for coefficients without names."""
    inputs, rows = inputs_of(model), list[dict[str, Any]]()
    scaling = Scaling.none(model.width) if model.learnt is None or not standardize else model.learnt.scaling
    if scaling is None or (standardize and means_of(model) is None):
        raise BadArgument("standardize needs a LINEAR_REG or binary LOGISTIC_REG of CREATE MODEL")
    for coef, constant in zip(model.coef.tolist(), model.intercept.tolist(), strict=True):
        found, shift = dict[str, dict[str, Any]](), 0.0
        parts = zip(inputs, coef, scaling.center.tolist(), scaling.scale.tolist(), strict=False)
        for (name, category), weight, center, scale in parts:
            row = found.setdefault(name, {"processed_input": name, "category_weights": []})
            if category is None:
                row["weight"], shift = weight * scale, shift + weight * center
            else:
                row["category_weights"].append({"category": category, "weight": weight})
        rows += [*found.values(), {"processed_input": INTERCEPT, "weight": constant + shift, "category_weights": []}]
    table, several = pa.Table.from_pylist(rows, WEIGHTS), model.outputs > 1
    labels = [str(one) for one in model.classes.tolist() for _ in range(len(rows) // model.outputs)]
    return None if not inputs else table.append_column("class_label", pa.array(labels)) if several else table


def training_info(model: Model) -> pa.Table:
    """Return ``ML.TRAINING_INFO``, with BigQuery's columns first for a model of BigQuery's."""
    table = pa.Table.from_pylist([epoch_row(record) for record in model.history], EPOCHS)
    if not facts_of(model):
        return table
    rates = [record.get("learning_rate", model.params.get("learning_rate")) for record in model.history]
    milliseconds = [round(record["seconds"] * 1000) for record in model.history]
    named = {"training_run": pa.array([0] * len(table)), "iteration": table["epoch"], "loss": table["loss"]}
    named |= {"eval_loss": table["holdout_loss"], "learning_rate": pa.array(rates, pa.float64())}
    return pa.table(
        {**named, "duration_ms": pa.array(milliseconds, pa.int64()), **{one: table[one] for one in table.column_names}}
    )
