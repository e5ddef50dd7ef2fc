"""``CREATE MODEL`` as in BigQuery: text and NULL, TRANSFORM, splits, trials, and answers stored with the model."""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.features.encoders import family_of
from corgipile.linear.model import Model
from corgipile.linear.search import search
from corgipile.losses import loss_of
from corgipile.random import derive, randoms
from corgipile.sql.engines.duckdb.answers import inputs_of, means_of, parts_of
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.evaluation import ModelEvaluator
from corgipile.sql.engines.duckdb.expressions import check_expressions
from corgipile.sql.engines.duckdb.files import materialize, select_text
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import FACTS
from corgipile.sql.engines.duckdb.rows import Rows, read_rows
from corgipile.sql.engines.engine import Progress, Values
from corgipile.sql.engines.evaluation import EVALUATIONS
from corgipile.sql.engines.training import arguments, column_named, fit_model
from corgipile.sql.statements import Fragment, ModelCall, Source, Train
from corgipile.sql.transforms import CONSTANT, columns_of
from corgipile.tables.databases import quoted
from corgipile.tables.row_mask import RowMask
from corgipile.tables.scan import scan
from corgipile.tables.splitting import train_test_split
from corgipile.tables.table import Table
from corgipile.tables.views import mask_rows, select

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["create_model"]

ALL_TRAIN, MAX_HELD_OUT, HELD_OUT = 500, 10_000, 0.2  # rows, rows and share of AUTO_SPLIT
HPARAMS = {"l1": "l1_reg", "l2": "l2_reg", "learning_rate": "learn_rate"}
DEFAULT_RANGES = {"l1": (0.0, 10.0), "l2": (0.0, 10.0)}  # of trials without candidates
NOT_IN_TRIALS = ("test", "validation", "tolerance", "patience", "solver")
INFO = {"min": "min", "max": "max", "mean": "avg", "median": "median", "stddev": "stddev_pop"}  # of ML.FEATURE_INFO
Given = dict[str, Any]
Mask = npt.NDArray[np.bool_]
_numbers = itertools.count(1)


def create_model(
    engine: "DuckDB", statement: Train, values: Values, past: Model | None, progress: Progress | None
) -> tuple[Model, Rows]:
    """Train a model by a bound CREATE MODEL; return it and its rows, with notes."""
    options, rows, transform = statement.options or {}, *_read(engine, statement, engine.bound(values))
    given, table, notes = arguments(statement, rows.columns), rows.table, list(rows.notes)
    if (column := options.get("data_split_col")) is not None:
        column = column_named(column, rows.columns)
        given["features"] = [name for name in given["features"] if name != column or statement.features]
    plain = options["bigquery"] and "label" in given and "by" not in given
    if plain:
        table, given = _labelled(table, given, notes)
        given = given if past is not None else _encoded(table, given, options)
    table, held_out, given = _split(table, given, options, column)
    given, trials = _tuned(table, given, options)
    model = fit_model(table, given, past, progress, engine.session.check)
    if plain:
        explained = _global_explain(model, held_out) if options.get("enable_global_explain") else None
        facts = {"transform": transform, "trial_info": trials, "global_explain": explained}
        facts["feature_info"] = _feature_info(engine, select(table, list(model.features)))
        model.params[FACTS] = _plain(facts | _evaluations(engine, statement, model, table, held_out))
    return model, rows._replace(notes=notes)


def _read(engine: "DuckDB", statement: Train, bound: BoundSql) -> tuple[Rows, dict[str, str] | None]:
    """Read the rows of a training; with TRANSFORM its columns, which are also returned as SQL."""
    session, memory = engine.session, statement.settings.get("memory")
    transform = (statement.options or {}).get("transform")
    if transform is None:
        return read_rows(session, statement.source, bound, memory), None
    name = f"corgipile_transform_{next(_numbers)}"  # constants and columns must see the same rows
    session.rows(f"CREATE TEMP TABLE {name} AS {select_text(session, statement.source, bound).sql}", bound.values)
    try:
        found = [sql for text in transform.values() for sql in CONSTANT.findall(text)]
        row = session.rows(f"SELECT {', '.join(found)} FROM {name}")[0] if found else ()
        constants = {sql: _constant(value) for sql, value in zip(found, row, strict=True)}
        columns = columns_of(transform, session.schema(f"FROM {name}").names, constants)
        check_expressions(session, columns)
        listed = ", ".join(f"{sql} AS {quoted(one)}" for one, sql in columns.items())
        sql, star = Fragment((f"SELECT {listed} FROM {name}",)), Fragment(("*",))
        return read_rows(session, Source(sql=sql, items=star, rest=sql), BoundSql((), None), memory), columns
    finally:
        session.rows(f"DROP TABLE {name}")


def _constant(value: Any) -> str:
    """Write a constant as SQL."""
    if isinstance(value, list):
        return f"[{', '.join(map(_constant, value))}]"
    return "NULL" if value is None else f"CAST({literal(repr(float(value)))} AS DOUBLE)"


def _labelled(table: Table, given: Given, notes: list[str]) -> tuple[Table, Given]:
    """Return the rows with a label, and the settings; softmax for more than two classes."""
    valid, classes = [np.empty(0, bool)], set[Any]()
    for _, batch in scan(table, [given["label"]]):
        valid.append(np.asarray(batch.column(0).is_valid()))
        if len(classes) <= 2:
            classes.update(batch.column(0).drop_null().unique().to_pylist())
    if not loss_of(given["model"]).numbers and len(classes) > 2:
        given = {**given, "model": "softmax"}
    mask = np.concatenate(valid)
    if mask.all():
        return table, given
    notes.append(f"{int((~mask).sum())} rows are left out: their label {given['label']!r} is NULL")
    return mask_rows(table, RowMask.of(mask)), given


def _encoded(table: Table, given: Given, options: Mapping[str, Any]) -> Given:
    """Return settings that encode text as categories and replace NULL by the mean."""
    kinds = {name: family_of(table.schema.field(name).type) for name in given["features"]}
    text = {name: given.get("encode") or "onehot" for name, kind in kinds.items() if kind == "text"}
    if options.get("calculate_p_values") and "onehot" in text.values():
        raise BadArgument("calculate_p_values needs category_encoding_method = 'DUMMY_ENCODING' for columns of text")
    encode = given["encode"] if isinstance(given.get("encode"), Mapping) else text or None
    return {"missing": "mean", "standardize": True, **given, "encode": encode}


def _split(table: Table, given: Given, options: Mapping[str, Any], column: str | None) -> tuple[Table, Table, Given]:
    """Return rows to train on, rows to evaluate on, and settings that hold out the latter."""
    if column is not None:
        chosen = _held_out(table, column, options)
        train, test = mask_rows(table, RowMask.of(~chosen)), mask_rows(table, RowMask.of(chosen))
        return train, test, {**given, "test": test}
    if options.get("data_split_method") == "AUTO_SPLIT" and len(table) >= ALL_TRAIN:
        given = {**given, "validation": min(HELD_OUT, MAX_HELD_OUT / len(table))}
    share = given.get("validation")
    if not isinstance(share, float) or not 0 < share < 1:  # training raises if the share is wrong
        return table, table, given
    return table, train_test_split(table, share, given.get("seed", 0), given.get("group"))[1], given


def _held_out(table: Table, column: str, options: Mapping[str, Any]) -> Mask:
    """Return which rows are held out: where a column is true or NULL, or, for SEQ, those of the largest values."""
    kind, sequence = table.schema.field(column).type, options["data_split_method"] == "SEQ"
    if (family_of(kind) not in ("number", "time")) if sequence else str(kind) != "bool":
        raise BadArgument(f"data_split_col must be {'ordered' if sequence else 'bool'}, got {column!r} of type {kind}")
    parts = [batch.column(0) for _, batch in scan(table, [column])]
    if sequence:
        order = np.argsort(np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts]), kind="stable")
        chosen = np.zeros(len(order), bool)
        chosen[order[len(order) - round(len(order) * options.get("data_split_eval_fraction", HELD_OUT)) :]] = True
    else:
        chosen = np.concatenate([np.asarray(part.fill_null(True)) for part in parts])  # noqa: FBT003 - Arrow's name
    if chosen.all() or not chosen.any():
        raise BadArgument(f"data_split_col {column!r} must leave rows for training and hold out some")
    return chosen


def _tuned(table: Table, given: Given, options: Mapping[str, Any]) -> tuple[Given, list[Given] | None]:
    """Return the best settings of the trials, and the rows of ``ML.TRIAL_INFO``; without trials the settings."""
    if options.get("num_trials") is None:
        return given, None
    known = (options.get("candidates") or DEFAULT_RANGES).items()
    points = [
        {name: [_sample(values, derive(given.get("seed", 0), trial, i))] for i, (name, values) in enumerate(known)}
        for trial in range(options["num_trials"])
    ]
    shared = {name: value for name, value in given.items() if name not in (*NOT_IN_TRIALS, *points[0])}
    found = search(table, points, refit=False, **shared)
    metric, rows = {"r2": "r2_score"}.get(found.metric, found.metric), list[Given]()
    for place, result in enumerate(found.results):
        failed = math.isinf(result["loss"])
        row = {"trial_id": place + 1, "hyperparameters": {HPARAMS[name]: result[name] for name, _ in known}}
        row |= {"hparam_tuning_evaluation_metrics": {metric: result["score"]}, "training_loss": None}
        row |= {"eval_loss": result["loss"], "status": "FAILED" if failed else "SUCCEEDED"}
        rows.append({**row, "error_message": "training diverged" if failed else None, "is_optimal": place == 0})
    return {**given, **found.best}, rows


def _sample(values: list[float] | tuple[float, float], key: int) -> float:
    """Return a candidate, or a number of a range, at random."""
    share = float(randoms(key, 0, 1)[0]) / 2**64
    if isinstance(values, list):
        return values[int(share * len(values))]
    return values[0] + share * (values[1] - values[0])


def _feature_info(engine: "DuckDB", table: Table) -> list[Given]:
    """Return the rows of ``ML.FEATURE_INFO``."""
    rows, found = engine.session.lend(materialize(table)), list[Given]()
    for one in table.schema:
        column, family = quoted(one.name), family_of(one.type)
        listed = {
            name: f"system.main.{sql}({column}::DOUBLE)" if family == "number" else "NULL" for name, sql in INFO.items()
        }
        listed["category_count"] = f"system.main.count(DISTINCT {column})" if family == "text" else "NULL"
        (row,) = engine.session.rows(
            f"SELECT {', '.join(listed.values())}, count(*) - system.main.count({column}) FROM {rows}"
        )
        found.append({"input": one.name, **dict(zip([*listed, "null_count"], row, strict=True)), "dimension": None})
    engine.session.take_back(rows)
    return found


def _global_explain(model: Model, held_out: Table) -> list[Given]:
    """Return the rows of ``ML.GLOBAL_EXPLAIN``: the mean size of each column's attributions."""
    parts, means = parts_of(model), means_of(model)
    if parts is None or means is None:
        raise BadArgument("enable_global_explain needs numbers or two classes as labels, and features with names")
    center = [*means.values(), 0]
    sizes = sum(np.abs(part - center).sum(axis=0) for part in parts.stream(held_out, "decision")) / len(held_out)
    rows = [{"feature": name, "attribution": size} for name, size in zip(means, sizes, strict=False)]
    return sorted(rows, key=lambda row: -row["attribution"])


def _evaluations(engine: "DuckDB", statement: Train, model: Model, table: Table, held_out: Table) -> Given:
    """Return the answers of functions without rows: on the held-out rows, or those of training."""
    functions = {"evaluate": held_out}
    functions |= {} if model.loss.numbers else {"confusion_matrix": held_out}
    functions |= {"roc_curve": held_out} if len(model.classes) == 2 and model.loss.probability else {}
    functions |= {"advanced_weights": table} if (statement.options or {}).get("calculate_p_values") else {}
    found = {}
    for function, rows in functions.items():
        call, stored = ModelCall(function, str(statement.name), statement.source), Stored("", "", model)
        evaluator = ModelEvaluator(engine, call, stored, BoundSql((), None), rows)
        found[function] = EVALUATIONS[function](evaluator).to_pylist()
    for row, (name, category) in zip(found.get("advanced_weights", []), inputs_of(model), strict=False):
        row |= {"processed_input": name, "category": category}
    return found


def _plain(value: Any) -> Any:
    """Return values as JSON stores them; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
