"""``ML.EVALUATE``, ``ML.CONFUSION_MATRIX`` and ``ML.ROC_CURVE`` on the server, which predicts each row and counts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.losses import loss_of
from corgipile.sql.engines.evaluation import (
    CALIBRATION_COLUMNS,
    CLASS_METRICS,
    LABEL_METRICS,
    REGRESSION_METRICS,
    Counts,
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
from corgipile.sql.engines.postgres.models import Stored
from corgipile.sql.engines.postgres.rows import Relation, relation_of
from corgipile.sql.engines.postgres.training import source_arguments
from corgipile.sql.engines.postgres.types import columns_of
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall, Source
from corgipile.sql.tokens import tokenize

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.engine import PostgreSQL

__all__ = ["calibration", "class_function", "confusion", "errors", "evaluate", "function_call", "roc"]

FLOAT = "double precision"  # a keyword, which no type in the search path can shadow
WEIGHT_SUM = (
    "pg_catalog.sum(weight), pg_catalog.count(*) FILTER (WHERE (weight OPERATOR(pg_catalog.>=) 0 "
    f"AND weight OPERATOR(pg_catalog.<) 'Infinity'::{FLOAT}) IS NOT TRUE)"
)
MAX_ARGUMENTS = 99  # of a function call; more features are passed as one row
METRICS = ("loss", "accuracy", "r2", "rows", "auc", "log_loss", "rmse", "mae")  # columns of corgipile.evaluate
SUMMARY = ("coefficient", "standard_error", "z", "p", "low", "high", "gap")  # columns of corgipile.summary


def function_call(function: str, stored: Stored, names: list[str], writer: Writer, of: str = "") -> str:
    """Return the SQL call of an extension function for a model and columns."""
    columns = ", ".join(of + writer.name(name) for name in names)
    given = f"ROW({columns})" if len(names) > MAX_ARGUMENTS else columns
    if given != columns and all(re.fullmatch(r"f\d+", name) for name in names):  # ROW's own field names, in any order
        given = f"(SELECT corgipile_row FROM (SELECT {columns}) AS corgipile_row)"
    return f"corgipile.{function}({writer.literal(stored.name)}, {given})"


def class_function(stored: Stored) -> str:
    """Return the extension function of a model's predictions, by the type of its labels."""
    if stored.labels is not None:
        return "predict_labels"
    return "predict_text" if stored.class_names else "predict"


class _EvaluationRows:
    """Rows to evaluate, as SQL.

    Args:
        engine: The engine.
        stored: The model.
        call: The model call.
        sql: The query of the rows.
        writer: Writes SQL.

    Raises:
        MissingColumn: The rows lack a column of the model or the weight column.
        BadSchema: The weight column is not numeric.
    """

    def __init__(self, engine: "PostgreSQL", stored: Stored, call: ModelCall, sql: str, writer: Writer) -> None:
        self.engine, self.stored, self.sql, self.writer = engine, stored, sql, writer
        columns = columns_of(engine.session.describe(sql))
        kinds, available = {column.name: column.kind for column in columns}, [column.name for column in columns]
        names = stored.match_columns(available)
        if names is None or stored.label not in kinds:
            raise stored.missing(available, also=stored.label)
        self._names = names
        self._label = writer.name(stored.label) + "::int" * pa.types.is_boolean(kinds[stored.label])
        self.weight, self._weight, self.weight_sums = weight_of(call, kinds, stored.label), "1", ""
        if self.weight is not None:
            self._weight = writer.name(self.weight) + "::int" * pa.types.is_boolean(kinds[self.weight])
            self.weight_sums = f", {WEIGHT_SUM}"

    def function_call(self, function: str) -> str:
        """Return the SQL call of an extension function."""
        return function_call(function, self.stored, self._names, self.writer)

    def place(self, value: str) -> str:
        """Return SQL for the number (from 1) of the class that an expression returns."""
        names = self.stored.class_names
        kind = FLOAT if names is None else "pg_catalog.text"
        listed = ", ".join(map(self.writer.literal, names or map(float, self.stored.classes)))
        return f"pg_catalog.array_position(ARRAY[{listed}]::{kind}[], ({value})::{kind})"

    def scored(self, **columns: str) -> str:
        """Return a WITH clause of the rows ``scored``: actual class number, weight and some columns."""
        named = {"actual": self.place(self._label), "weight": f"({self._weight})::{FLOAT}", **columns}
        listed = ", ".join(f"{text} AS {name}" for name, text in named.items())
        return f"WITH scored AS MATERIALIZED (SELECT {listed} FROM ({self.sql}\n) AS corgipile_rows)"

    def counts(self, threshold: float | None) -> Counts:
        """Count rows by actual and predicted class."""
        share = f"({self.function_call('predict_proba')})[2]"
        reached = f"{share} OPERATOR(pg_catalog.>=) {threshold!r}::{FLOAT}"
        beyond = f"CASE WHEN {reached} THEN 2 WHEN {share} IS NOT NULL THEN 1 END"
        predicted = self.place(self.function_call(class_function(self.stored))) if threshold is None else beyond
        each = f"SELECT actual, predicted, pg_catalog.count(*){self.weight_sums} FROM scored GROUP BY 1, 2"
        classes = self.stored.class_names or self.stored.classes
        rows = self.engine.session.rows(f"{self.scored(predicted=predicted)} {each}")
        return class_counts(rows, classes, self.stored.name, self.weight)


def evaluate(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Evaluate a model on rows; without rows, return the metrics of its validation or training set."""
    loss = loss_of(stored.kind, len(stored.classes))
    names = LABEL_METRICS if stored.labels else REGRESSION_METRICS if loss.numbers else CLASS_METRICS
    if call.options.get("threshold") is not None:
        need_one_label(call, stored.labels)
    threshold = threshold_of(call, stored.classes, probable=loss.probability)
    if call.source is None:
        last = (engine.models.history(stored.name) or [{}])[-1]
        held_out = last.get("holdout_loss") is not None
        metrics = {name: last.get(f"holdout_{name}" if held_out else name) for name in names}
        return metrics_table(names, metrics | {"rows": None if held_out else last.get("rows")})
    source = call.source
    if stored.labels is not None:
        with relation_of(engine.session, source, writer) as relation:
            (row,) = _extension_rows(engine, call, stored, relation, writer, "evaluate_labels", LABEL_METRICS)
            return metrics_table(names, dict(zip(LABEL_METRICS, row, strict=True)))
    if not loss.numbers and _is_volatile(engine, source, writer):
        source = replace(source, where=None)  # forces a temporary table, since the rows are read twice
    with relation_of(engine.session, source, writer, queries=loss.numbers) as relation:
        row = _extension_rows(engine, call, stored, relation, writer, "evaluate", METRICS)[0]
        metrics = dict(zip(METRICS, row, strict=True))
        if loss.numbers:
            square = None if metrics["rmse"] is None else metrics["rmse"] ** 2
            return metrics_table(names, metrics | {"mean_absolute_error": metrics["mae"], "mean_squared_error": square})
        where = "" if relation.where is None else f" WHERE {relation.where}"
        rows = _EvaluationRows(engine, stored, call, f"SELECT * FROM {relation.name}{where}", writer)
        return metrics_table(names, metrics | rows.counts(threshold).figures() | {"roc_auc": metrics["auc"]})


def _extension_rows(
    engine: "PostgreSQL",
    call: ModelCall,
    stored: Stored,
    relation: Relation,
    writer: Writer,
    function: str,
    columns: Sequence[str],
    **more: str,
) -> list[tuple[Any, ...]]:
    """Return the rows of an extension function for a model and rows."""
    if stored.match_columns(relation.columns) is None:
        raise stored.missing(relation.columns)
    source = source_arguments(relation, engine.models.known(), writer)
    given = {"model": f"{writer.literal(stored.name)}::pg_catalog.text", **source, **more}
    if "weight" in call.options:
        weight = column_named(call.options["weight"], relation.columns)
        given["weight"] = f"{writer.literal(weight)}::pg_catalog.text"
    arguments = ", ".join(f"{writer.name(name)} => {text}" for name, text in given.items())
    return engine.session.rows(f"SELECT {', '.join(columns)} FROM corgipile.{function}({arguments})")


def calibration(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return predicted and observed probabilities of the second class by bin."""
    assert call.source is not None  # noqa: S101 - the grammar requires it
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    need_two_classes(call, stored.classes, probable=loss.probability)
    bins = f"{bin_count(call)}::int"
    with relation_of(engine.session, call.source, writer) as relation:
        rows = _extension_rows(engine, call, stored, relation, writer, "calibration", CALIBRATION_COLUMNS, bins=bins)
    kinds = pa.schema([(name, pa.int64() if name == "rows" else pa.float64()) for name in CALIBRATION_COLUMNS])
    return pa.Table.from_pylist([dict(zip(CALIBRATION_COLUMNS, row, strict=True)) for row in rows], kinds)


def errors(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return the weights with their standard errors."""
    assert call.source is not None  # noqa: S101 - the grammar requires it
    need_one_label(call, stored.labels)
    with relation_of(engine.session, call.source, writer) as relation:
        return weights_table(
            stored.numbers, _extension_rows(engine, call, stored, relation, writer, "summary", SUMMARY)
        )


def _is_volatile(engine: "PostgreSQL", source: Source, writer: Writer) -> bool:
    """Return whether a condition calls a volatile function such as random()."""
    if source.where is None:
        return False
    words = [token.text.lower() for token in tokenize(writer.text(source.where)) if token.kind in ("word", "name")]
    volatile = (
        "SELECT 1 FROM pg_catalog.pg_proc WHERE provolatile OPERATOR(pg_catalog.=) 'v' "
        "AND pg_catalog.lower(proname::pg_catalog.text) OPERATOR(pg_catalog.=) ANY (%s) LIMIT 1"
    )
    return bool(engine.session.rows(volatile, [words]))


def confusion(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Count rows by actual and predicted class."""
    assert call.source is not None  # noqa: S101 - the grammar requires it
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    threshold = threshold_of(call, stored.classes, probable=loss.probability)
    return confusion_table(
        _EvaluationRows(engine, stored, call, writer.text(call.source.sql), writer).counts(threshold)
    )


def roc(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return the ROC curve at the given thresholds, by default at percentiles of the probabilities."""
    assert call.source is not None  # noqa: S101 - the grammar requires it
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    need_two_classes(call, stored.classes, probable=loss.probability)
    rows = _EvaluationRows(engine, stored, call, writer.text(call.source.sql), writer)
    share, given = f"({rows.function_call('predict_proba')})[2]", call.options.get("thresholds")
    percentiles = f"pg_catalog.percentile_disc(ARRAY{quantiles()!r}::{FLOAT}[]) WITHIN GROUP (ORDER BY share)"
    points = f"SELECT ARRAY{given!r}::{FLOAT}[] AS cuts" if given else f"SELECT {percentiles} AS cuts FROM scored"
    cells = engine.session.rows(
        f"{rows.scored(share=share)}, points AS MATERIALIZED ({points}) "
        f"SELECT pg_catalog.min(cuts), actual, pg_catalog.width_bucket(share, cuts) AS reached, "
        f"pg_catalog.count(*){rows.weight_sums} "
        "FROM scored, points GROUP BY 2, 3"
    )
    return roc_table(given or (cells[0][0] if cells else []), [cell[1:] for cell in cells], stored.name, rows.weight)
