"""``ML.EVALUATE`` and related functions on the server: metrics of the extension, and counts of predicted rows."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadLabel, BadValue
from corgipile.sql.engines.evaluation import (
    CALIBRATION_COLUMNS,
    LABEL_METRICS,
    PERCENT,
    Counts,
    Curve,
    Evaluator,
    Number,
    Row,
    weight_of,
)
from corgipile.sql.engines.postgres.models import Stored
from corgipile.sql.engines.postgres.rows import Relation, relation_of
from corgipile.sql.engines.postgres.training import source_arguments
from corgipile.sql.engines.postgres.types import columns_of
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall, Source
from corgipile.sql.tokens import tokenize
from corgipile.suggestions import listed

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.engine import PostgreSQL

__all__ = ["ServerEvaluator", "class_function", "function_call"]

FLOAT = "double precision"  # a keyword, which no type in the search path can shadow
# Number and weight of rows, and the number of invalid weights.
SUMS = (
    "pg_catalog.count(*), pg_catalog.sum(weight), pg_catalog.count(*) FILTER (WHERE (weight OPERATOR(pg_catalog.>=) 0 "
    f"AND weight OPERATOR(pg_catalog.<) 'Infinity'::{FLOAT}) IS NOT TRUE)"
)
MAX_ARGUMENTS = 99  # of a function call; more features are passed as one row
METRICS = ("loss", "accuracy", "r2", "rows", "auc", "log_loss", "rmse", "mae")  # columns of corgipile.evaluate
SUMMARY = ("coefficient", "standard_error", "z", "p", "low", "high", "gap")  # columns of corgipile.summary
PERCENTILES = [i / PERCENT for i in range(PERCENT + 1)]


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


class ServerEvaluator(Evaluator):
    """Evaluates a model of a server."""

    def __init__(self, engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> None:
        last = (engine.models.history(stored.name) or [{}])[-1] if call.source is None else {}
        super().__init__(call, stored.kind, stored.class_names or stored.classes, stored.labels, last)
        self._engine, self._stored, self._writer = engine, stored, writer

    def figures(self, threshold: float | None) -> Mapping[str, Any]:
        """Return the metrics of ``ML.EVALUATE`` on the rows of the call."""
        if self.labels is not None:
            (row,) = self._metric("evaluate_labels", LABEL_METRICS)
            return dict(zip(LABEL_METRICS, row, strict=True))
        source = self._source
        if not self.loss.numbers and _is_volatile(self._engine, source, self._writer):
            source = replace(source, where=None)  # forces a temporary table, since the rows are read twice
        with relation_of(self._engine.session, source, self._writer, queries=self.loss.numbers) as relation:
            figures = dict(zip(METRICS, self._metric_of(relation, "evaluate", METRICS)[0], strict=True))
            if self.loss.numbers:
                square = None if figures["rmse"] is None else figures["rmse"] ** 2
                known = {"mean_absolute_error": figures["mae"], "mean_squared_error": square}
                return figures | known | {"r2_score": figures["r2"]}
            where = "" if relation.where is None else f" WHERE {relation.where}"
            counts = self._counts(f"SELECT * FROM {relation.name}{where}", threshold)
        return figures | {"roc_auc": figures["auc"]} | counts.figures()

    def counts(self, threshold: float | None) -> Counts:
        """Count rows by actual and predicted class."""
        return self._counts(self._writer.text(self._source.sql), threshold)

    def curve(self, thresholds: list[float] | None) -> Curve:
        """Count rows by class and reached thresholds, by default percentiles of the probabilities."""
        percentiles = f"pg_catalog.percentile_disc(ARRAY{PERCENTILES!r}::{FLOAT}[]) WITHIN GROUP (ORDER BY share)"
        points = f"ARRAY{thresholds!r}::{FLOAT}[] AS cuts" if thresholds else f"{percentiles} AS cuts FROM scored"
        scored, weight = self._scored(self._writer.text(self._source.sql), "predict_proba")
        rows = self._engine.session.rows(
            f"{scored}, points AS MATERIALIZED (SELECT {points}) SELECT pg_catalog.min(cuts), actual, "
            f"pg_catalog.width_bucket(share, cuts) OPERATOR(pg_catalog.+) 1, {SUMS} FROM scored, points GROUP BY 2, 3"
        )
        cuts = thresholds or (rows[0][0] if rows else [])
        cells = self._cells([row[1:] for row in rows], weight)
        return Curve(cuts, [[cells[k, at] for at in range(len(cuts) + 1)] for k in (0, 1)], weight is not None)

    def bins(self, count: int) -> Iterable[Row]:
        """Return rows of `CALIBRATION_COLUMNS`, one for each filled bin of probabilities."""
        rows = self._metric("calibration", CALIBRATION_COLUMNS, bins=f"{count}::int")
        return [dict(zip(CALIBRATION_COLUMNS, row, strict=True)) for row in rows]

    def errors(self) -> tuple[Sequence[str], Iterable[Sequence[float | None]]]:
        """Return the names of the inputs, and the `COEFFICIENT_COLUMNS` of each weight."""
        return self._stored.numbers, self._metric("summary", SUMMARY)

    @property
    def _source(self) -> Source:
        assert self.call.source is not None  # noqa: S101 - the caller checks
        return self.call.source

    def _metric(self, function: str, columns: Sequence[str], **more: str) -> list[tuple[Any, ...]]:
        """Return the result of a function of the extension on the rows of the call."""
        with relation_of(self._engine.session, self._source, self._writer) as relation:
            return self._metric_of(relation, function, columns, **more)

    def _metric_of(
        self, relation: Relation, function: str, columns: Sequence[str], **more: str
    ) -> list[tuple[Any, ...]]:
        stored, writer = self._stored, self._writer
        if stored.match_columns(relation.columns) is None:
            raise stored.missing(relation.columns)
        source = source_arguments(relation, self._engine.models.known(), writer)
        given = {"model": f"{writer.literal(stored.name)}::pg_catalog.text", **source, **more}
        if "weight" in self.call.options:
            weight = column_named(self.call.options["weight"], relation.columns)
            given["weight"] = f"{writer.literal(weight)}::pg_catalog.text"
        arguments = ", ".join(f"{writer.name(name)} => {text}" for name, text in given.items())
        return self._engine.session.rows(f"SELECT {', '.join(columns)} FROM corgipile.{function}({arguments})")

    def _counts(self, sql: str, threshold: float | None) -> Counts:
        if threshold is None:
            function, place = class_function(self._stored), self._place("share")
        else:
            reached = f"share OPERATOR(pg_catalog.>=) {threshold!r}::{FLOAT}"
            function, place = "predict_proba", f"CASE WHEN {reached} THEN 2 WHEN share IS NOT NULL THEN 1 END"
        scored, weight = self._scored(sql, function)
        rows = self._engine.session.rows(f"{scored} SELECT actual, {place}, {SUMS} FROM scored GROUP BY 1, 2")
        return Counts(self.classes, self._cells(rows, weight), weight is not None)

    def _scored(self, sql: str, function: str) -> tuple[str, str | None]:
        """Return a WITH clause of the rows ``scored``, and the weight column.

        They have ``actual``, the number of the class, from 1, ``weight``, and ``share``, the function's result.
        """
        stored, writer = self._stored, self._writer
        columns = columns_of(self._engine.session.describe(sql))
        kinds, available = {column.name: column.kind for column in columns}, [column.name for column in columns]
        names = stored.match_columns(available)
        if names is None or stored.label not in kinds:
            raise stored.missing(available, also=stored.label)
        weight, share = weight_of(self.call, kinds, stored.label), function_call(function, stored, names, writer)
        actual, counts = (
            "1" if name is None else writer.name(name) + "::int" * pa.types.is_boolean(kinds[name])
            for name in (stored.label, weight)
        )
        share = f"({share})[2]" if function == "predict_proba" else share
        listed = f"{self._place(actual)} AS actual, ({counts})::{FLOAT} AS weight, {share} AS share"
        return f"WITH scored AS MATERIALIZED (SELECT {listed} FROM ({sql}\n) AS corgipile_rows)", weight

    def _place(self, value: str) -> str:
        """Return SQL for the number (from 1) of the class that an expression returns."""
        names = self._stored.class_names
        kind = FLOAT if names is None else "pg_catalog.text"
        listed = ", ".join(map(self._writer.literal, names or map(float, self._stored.classes)))
        return f"pg_catalog.array_position(ARRAY[{listed}]::{kind}[], ({value})::{kind})"

    def _cells(self, rows: Iterable[Sequence[Any]], weight: str | None) -> dict[tuple[int, int], Number]:
        """Return rows, or their weights, by class and place, from SQL's: both numbered from 1, and `SUMS`."""
        cells = defaultdict[tuple[int, int], Number](int)
        for actual, place, count, total, wrong in rows:
            if not actual:
                raise BadLabel(
                    f"labels must be classes of model {self.call.model!r} ({listed(self.classes)}); {count} rows have "
                    "another label"
                )
            if not place:
                raise BadValue(f"model {self.call.model!r} has no prediction for {count} rows: a feature is null")
            if wrong:
                raise BadValue(
                    f"weights must be finite and 0 or more; {wrong} rows have a null, negative or infinite {weight!r}"
                )
            cells[actual - 1, place - 1] += count if weight is None else float(total)
        if cells and not any(cells.values()):
            raise BadValue("at least one weight of the evaluated rows must be above 0, got only zeros")
        return cells


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
