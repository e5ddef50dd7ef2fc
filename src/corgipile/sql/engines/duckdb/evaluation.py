"""``ML.EVALUATE``, ``ML.CONFUSION_MATRIX`` and ``ML.ROC_CURVE`` in DuckDB, which predicts each row and counts.

``ML.CALIBRATION`` and ``ML.ADVANCED_WEIGHTS`` are computed in Python.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.linear.groups import Groups
from corgipile.sql.engines.duckdb.binding import BoundSql, literal
from corgipile.sql.engines.duckdb.files import arrow_rows, select_text
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import class_function, function_call, match_columns, model_key
from corgipile.sql.engines.duckdb.rows import read_rows
from corgipile.sql.engines.evaluation import (
    CALIBRATION_COLUMNS,
    CLASS_METRICS,
    LABEL_METRICS,
    REGRESSION_METRICS,
    WEIGHT_SUM,
    bin_count,
    class_counts,
    confusion_table,
    metrics_table,
    need_classes,
    need_one_label,
    need_two_classes,
    quantiles,
    roc_table,
    threshold_of,
    weight_of,
    weights_table,
)
from corgipile.sql.engines.results import epoch_row
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted
from corgipile.tables.table import Table
from corgipile.tables.views import select

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["calibration", "confusion", "errors", "evaluate", "roc"]

# ROC AUC: the weighted share of row pairs of the two classes in the right order; ties count a half.
# The weights of one class are divided by a power of two, so that products do not overflow.
AREA = """(SELECT CASE WHEN area > 1 THEN 1 ELSE area END FROM (
    SELECT sum(p / unit * (below + n / 2)) / nullif(sum(p / unit) * sum(n), 0) AS area FROM (
    SELECT p, n, pow(2, floor(log2(nullif(sum(p) OVER (), 0)))) AS unit, sum(n) OVER (ORDER BY score) - n AS below
    FROM (SELECT score, coalesce(sum(weight) FILTER (actual = 2), 0) AS p,
    coalesce(sum(weight) FILTER (actual = 1), 0) AS n
    FROM scored GROUP BY score))))"""


class _EvaluationRows:
    """Rows to evaluate, as SQL.

    Args:
        engine: The engine.
        stored: The model.
        call: The model call.
        sql: The query of the rows.
        bound: The query's parameter values.
    """

    def __init__(self, engine: "DuckDB", stored: Stored, call: ModelCall, sql: str, bound: BoundSql) -> None:
        self.engine, self.model, self.sql, self.bound = engine, stored.model, sql, bound
        self._key, self._class_function = model_key(engine, stored, bound), class_function(stored)
        schema = engine.session.schema(sql, bound.values)
        columns = schema.names
        self._names = match_columns(stored, columns)
        label = column_named(self.model.label_or(), columns)
        self.weight = weight_of(call, dict(zip(columns, schema.types, strict=True)), label)
        self._label, self._weight = quoted(label), "1" if self.weight is None else quoted(self.weight)
        self.weight_sums = "" if self.weight is None else f", {WEIGHT_SUM}"
        self._kind = "VARCHAR" if self.model.classes.dtype.kind == "U" else "DOUBLE"

    def function_call(self, function: str) -> str:
        """Return a call of one of our SQL functions."""
        return function_call(function, self._key, self._names)

    def place(self, value: str) -> str:
        """Return SQL for the number (from 1) of the class that an expression returns."""
        classes = [literal(one) if isinstance(one, str) else repr(float(one)) for one in self.model.classes.tolist()]
        return f"list_position([{', '.join(classes)}]::{self._kind}[], ({value})::{self._kind})"

    def scored(self, **columns: str) -> str:
        """Return a WITH clause of the rows ``scored``: actual class number, weight and some columns."""
        named = {"actual": self.place(self._label), "weight": f"({self._weight})::DOUBLE", **columns}
        listed = ", ".join(f"{text} AS {name}" for name, text in named.items())
        return f"WITH scored AS MATERIALIZED (SELECT {listed} FROM ({self.sql}\n))"

    def predicted(self, threshold: float | None) -> str:
        """Return SQL for the number of the predicted class."""
        if threshold is None:
            return self.place(self.function_call(self._class_function))
        share = f"{self.function_call('predict_proba')}[2]"
        return f"CASE WHEN {share} >= {threshold!r} THEN 2 WHEN {share} IS NOT NULL THEN 1 END"

    def errors(self) -> dict[str, float]:
        """Return the mean absolute and squared errors of a regression."""
        error = f"{self.function_call('predict')} - {self._label}::DOUBLE AS e, ({self._weight})::DOUBLE AS weight"
        means = (f"sum(weight * {each}) / sum(weight)" for each in ("abs(e)", "(e * e)"))
        values = self.rows(f"SELECT {', '.join(means)} FROM (SELECT {error} FROM ({self.sql}\n))")[0]
        return dict(zip(("mean_absolute_error", "mean_squared_error"), values, strict=True))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query with few result rows."""
        return self.engine.session.rows(sql, self.bound.values)


def evaluate(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> pa.Table:
    """Evaluate a model on rows; without rows, return the metrics of its validation or training set."""
    model, labels = stored.model, stored.model.params.get("labels")
    names = LABEL_METRICS if labels else REGRESSION_METRICS if model.loss.numbers else CLASS_METRICS
    if call.options.get("threshold") is not None:
        need_one_label(call, labels)
    threshold = threshold_of(call, model.classes.tolist(), probable=model.loss.probability)
    if call.source is None:
        record = epoch_row(model.history[-1]) if model.history else {}
        held_out = record.get("holdout_loss") is not None
        metrics: dict[str, Any] = {name: record.get(f"holdout_{name}" if held_out else name) for name in names}
        return metrics_table(names, metrics | {"rows": None if held_out else record.get("rows")})
    table, weight = _read(engine, call, stored, bound)
    metrics = {**model.measure(table, weight=weight), "rows": len(table)}
    if labels:
        return metrics_table(names, metrics)
    if call.source.plain:
        rows = _rows(engine, call, stored, bound)
    else:
        lent = engine.session.lend(arrow_rows(table))
        rows = _EvaluationRows(engine, stored, call, f"SELECT * FROM {lent}", BoundSql(bound.given, None))
    if model.loss.numbers:
        return metrics_table(names, metrics | rows.errors())
    two = len(model.classes) == 2
    score = {
        "score": f"{rows.function_call('decision')}[1]"
        if model.outputs == 1
        else rows.function_call("predict_proba") + "[2]"
    }
    sql = rows.scored(predicted=rows.predicted(threshold), **(score if two else {}))
    area = AREA if two else "NULL"
    each = f"SELECT {area}, actual, predicted, count(*){rows.weight_sums} FROM scored GROUP BY actual, predicted"
    cells = rows.rows(f"{sql} {each}")
    metrics |= class_counts([cell[1:] for cell in cells], model.classes.tolist(), stored.name, weight).figures()
    metrics["log_loss"] = metrics["loss"] if model.loss.probability and not model.loss.rest else None
    return metrics_table(names, metrics | {"roc_auc": cells[0][0]})


def _read(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> tuple[Table, str | None]:
    """Return the rows of a call and their weight column."""
    assert call.source is not None  # noqa: S101 - the grammar requires it
    rows = read_rows(engine.session, call.source, BoundSql(bound.given, None), None)
    table = rows.table if call.source.columns is None else select(rows.table, rows.columns)
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    return table, weight_of(call, kinds, stored.model.label_or())


def calibration(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> pa.Table:
    """Return predicted and observed probabilities of the second class by bin."""
    model = stored.model
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    need_two_classes(call, model.classes.tolist(), probable=model.loss.probability)
    bins = bin_count(call)
    table, weight = _read(engine, call, stored, bound)
    result = model.judge(table, weight=weight, bins=bins).calibration
    assert result is not None  # noqa: S101 - the model has two classes and probabilities
    return result.select(list(CALIBRATION_COLUMNS))


def errors(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> pa.Table:
    """Return the weights with their standard errors.

    Raises:
        BadArgument: The model is grouped or multi-label.
    """
    if isinstance(stored.model, Groups):
        raise BadArgument(
            f"standard errors need a single model; {stored.name!r} has one for each {stored.model.by!r}. Train one "
            "group's model with WHERE instead of GROUP BY"
        )
    need_one_label(call, stored.model.params.get("labels"))
    table, weight = _read(engine, call, stored, bound)
    summary = stored.model.summary(table, weight=weight)
    columns = (summary.coef, summary.standard_error, summary.z, summary.p, summary.low, summary.high, summary.gaps)
    return weights_table(summary.names[: stored.model.width], zip(*(one.tolist() for one in columns), strict=True))


def _rows(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> _EvaluationRows:
    assert call.source is not None  # noqa: S101 - the grammar requires it
    plain = BoundSql(bound.given, None)
    return _EvaluationRows(engine, stored, call, select_text(engine.session, call.source, plain).sql, plain)


def confusion(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> pa.Table:
    """Count rows by actual and predicted class."""
    model, classes = stored.model, stored.model.classes.tolist()
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    rows = _rows(engine, call, stored, bound)
    sql = rows.scored(predicted=rows.predicted(threshold_of(call, classes, probable=model.loss.probability)))
    cells = rows.rows(
        f"{sql} SELECT actual, predicted, count(*){rows.weight_sums} FROM scored GROUP BY actual, predicted"
    )
    return confusion_table(class_counts(cells, classes, stored.name, rows.weight))


def roc(engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql) -> pa.Table:
    """Return the ROC curve at the given thresholds, by default at percentiles of the probabilities."""
    model = stored.model
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    need_two_classes(call, model.classes.tolist(), probable=model.loss.probability)
    rows = _rows(engine, call, stored, bound)
    given = call.options.get("thresholds")
    points = (
        f"SELECT {given!r} AS cuts" if given else f"SELECT quantile_disc(share, {quantiles()!r}) AS cuts FROM scored"
    )
    reached = "CASE WHEN share IS NOT NULL THEN len(list_filter(cuts, lambda x: x <= share)) END"
    cells = rows.rows(
        f"{rows.scored(share=rows.function_call('predict_proba') + '[2]')}, points AS ({points}) "
        f"SELECT any_value(cuts), actual, {reached} AS reached, count(*){rows.weight_sums} FROM scored, points "
        "GROUP BY actual, reached"
    )
    return roc_table(given or (cells[0][0] if cells else []), [cell[1:] for cell in cells], stored.name, rows.weight)
