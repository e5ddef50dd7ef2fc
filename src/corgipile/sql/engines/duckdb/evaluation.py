"""``ML.EVALUATE`` and related functions in DuckDB: the rows are read once, and the model evaluates them in Python."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.linear.classes import codes_of
from corgipile.linear.evaluation import figures_on, judge
from corgipile.linear.groups import Groups
from corgipile.linear.passes import Watch
from corgipile.sql.engines.duckdb.binding import BoundSql
from corgipile.sql.engines.duckdb.expressions import HIDDEN
from corgipile.sql.engines.duckdb.files import select_text
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import computed_sql, facts_of, match_columns
from corgipile.sql.engines.duckdb.rows import choose_columns, open_source, read_query
from corgipile.sql.engines.evaluation import (
    PERCENT,
    Counts,
    Curve,
    Evaluator,
    Number,
    Row,
    regression_figures,
    weight_of,
)
from corgipile.sql.engines.results import epoch_row
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted
from corgipile.tables.table import Table
from corgipile.tables.views import select

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["ModelEvaluator"]

Scores = npt.NDArray[Any]
Places = npt.NDArray[np.intp]


class ModelEvaluator(Evaluator):
    """Evaluates a model of DuckDB."""

    def __init__(
        self, engine: "DuckDB", call: ModelCall, stored: Stored, bound: BoundSql, rows: Table | None = None
    ) -> None:
        model = stored.model
        last = epoch_row(model.history[-1]) if model.history else {}
        super().__init__(call, model.kind, model.classes.tolist(), model.params.get("labels"), last)
        self._engine, self._stored, self._model, self._bound = engine, stored, model, bound
        self._known = rows

    def figures(self, threshold: float | None) -> Mapping[str, Any]:
        """Return the metrics of ``ML.EVALUATE`` on the rows of the call."""
        table, weight = self._rows
        if self.labels:
            return {**self._model.measure(table, weight=weight), "rows": len(table)}
        found = judge(self._model, table, None, weight)
        figures: dict[str, Any] = {**found.figures, "rows": found.rows}
        if self.loss.numbers:
            return figures | self._error_figures()
        if threshold is None and found.confusion is not None:
            counts = Counts(self.classes, dict(np.ndenumerate(found.confusion)), weight is not None)
        else:
            counts = self.counts(threshold)
        return figures | {"roc_auc": figures["auc"]} | counts.figures()

    def counts(self, threshold: float | None) -> Counts:
        """Count rows by actual and predicted class."""
        cells, weighted = self._cells(self._predicted if threshold is None else self._reached([threshold]))
        return Counts(self.classes, cells, weighted)

    def curve(self, thresholds: list[float] | None) -> Curve:
        """Count rows by class and reached thresholds, by default percentiles of the probabilities."""
        if thresholds is None:
            found = [np.empty(0)]
            self._watch(lambda scores, *_: found.append(self._shares(scores)))
            shares = np.sort(np.concatenate(found))
            ranks = [max(-(-i * len(shares) // PERCENT), 1) for i in range(PERCENT + 1)] if len(shares) else []
            thresholds = [float(shares[rank - 1]) for rank in ranks]
        cells, weighted = self._cells(self._reached(thresholds))
        reached = [[cells.get((k, at), 0) for at in range(len(thresholds) + 1)] for k in (0, 1)]
        return Curve(thresholds, reached, weighted)

    def bins(self, count: int) -> Iterable[Row]:
        """Return rows of `CALIBRATION_COLUMNS`, one for each filled bin of probabilities."""
        table, weight = self._rows
        calibration = judge(self._model, table, None, weight, bins=count).calibration
        assert calibration is not None  # noqa: S101 - the model has two classes and probabilities
        return list(calibration.to_pylist())

    def errors(self) -> tuple[Sequence[str], Iterable[Sequence[float | None]]]:
        """Return the names of the inputs, and the `COEFFICIENT_COLUMNS` of each weight."""
        if isinstance(self._model, Groups):
            raise BadArgument(
                f"standard errors need a single model; {self._stored.name!r} has one for each {self._model.by!r}. "
                "Train one group's model with WHERE instead of GROUP BY"
            )
        table, weight = self._rows
        found = self._model.summary(table, weight=weight)
        columns = (found.coef, found.standard_error, found.z, found.p, found.low, found.high, found.gaps)
        return found.names[: self._model.width], list(zip(*(one.tolist() for one in columns), strict=True))

    @cached_property
    def _rows(self) -> tuple[Table, str | None]:
        """The rows of the call, under the model's names of columns, and the weight column."""
        if self._known is not None:
            return self._known, None
        source, session = self.call.source, self._engine.session
        bound = BoundSql(self._bound.given, None, path=self._bound.path)
        assert source is not None  # noqa: S101 - the caller checks
        table = None if facts_of(self._model).get("transform") else open_source(source)
        sql = "" if table is not None else select_text(session, source, bound).sql
        wanted = [*self._model.columns, self._model.label_or()]
        if (computed := computed_sql(session, self._model, wanted, sql)) is not None:
            named = ", ".join(f"{HIDDEN}{i} AS {quoted(name)}" for i, name in enumerate(wanted))
            sql = f"SELECT {named} FROM ({computed}\n)"
        schema = session.schema(sql, bound.values) if table is None else table.schema
        columns, kinds = choose_columns(schema.names, source)[0], dict(zip(schema.names, schema.types, strict=True))
        names = {}
        if not self.labels:
            names = dict(zip(self._model.columns, match_columns(self._stored, columns), strict=True))
            names[self._model.label_or()] = column_named(self._model.label_or(), columns)
        weight = weight_of(self.call, kinds, names.get(self._model.label_or(), self._model.label_or()))
        names |= {} if weight is None or weight in names.values() else {weight: weight}
        names = {name: name for name in columns} if self.labels else names
        if table is None or any(name != column for name, column in names.items()):
            sql = sql or select_text(session, source, bound).sql
            listed = ", ".join(f"{quoted(column)} AS {quoted(name)}" for name, column in names.items())
            table = read_query(session, f"SELECT {listed} FROM ({sql}\n)", bound.values, "the rows", None)
        return select(table, list(names)), next((name for name, column in names.items() if column == weight), None)

    def _error_figures(self) -> Row:
        """Return BigQuery's metrics of predicted numbers; the median reads all errors at once."""
        found: list[Scores] = []

        def watch(scores: Scores, labels: npt.NDArray[Any], weights: npt.NDArray[np.float64]) -> None:
            predicted = self._model.finish(scores, "predict").astype(np.float64)
            found.append(np.stack([predicted, np.asarray(labels, np.float64), weights]))

        self._watch(watch)
        return regression_figures(*np.concatenate(found, axis=1))

    def _watch(self, watch: Watch) -> None:
        table, weight = self._rows
        if len(table):
            figures_on(self._model, table, None, weight, watch)

    def _cells(self, places: Callable[[Scores], Places]) -> tuple[dict[tuple[int, int], Number], bool]:
        """Sum rows, or their weights, by class and by their place; also return whether they have weights."""
        codes, weighted = codes_of(self._model.classes), self._rows[1] is not None
        cells = defaultdict[tuple[int, int], Number](int)

        def watch(scores: Scores, labels: npt.NDArray[Any], weights: npt.NDArray[np.float64]) -> None:
            pairs = np.searchsorted(codes, labels) << 32 | places(scores)
            found, at = np.unique(pairs, return_inverse=True)
            for pair, number in zip(found.tolist(), np.bincount(at, weights).tolist(), strict=True):
                cells[pair >> 32, pair & 0xFFFFFFFF] += number if weighted else int(number)

        self._watch(watch)
        return cells, weighted

    def _predicted(self, scores: Scores) -> Places:
        return scores.argmax(axis=1) if self.loss.per_class else (scores[:, 0] > 0).astype(np.intp)

    def _reached(self, thresholds: Sequence[float]) -> Callable[[Scores], Places]:
        """Return a function that counts the thresholds that a row's probability reaches."""
        return lambda scores: np.searchsorted(thresholds, self._shares(scores), side="right")

    def _shares(self, scores: Scores) -> npt.NDArray[np.float64]:
        """Return probabilities of the second class."""
        return np.asarray(self._model.finish(scores, "predict_proba")[:, 1], np.float64)
