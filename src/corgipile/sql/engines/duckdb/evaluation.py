"""``ML.EVALUATE``, ``ML.CONFUSION_MATRIX`` and ``ML.ROC_CURVE``: DuckDB asks the model of each row, and counts.

``ML.CALIBRATION`` and ``ML.ADVANCED_WEIGHTS`` are those of Python.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.linear.groups import Groups
from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.files import lendable, text_of
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.sql.engines.duckdb.prediction import asked, key_of, names_in, says_class
from corgipile.sql.engines.duckdb.rows import read_rows
from corgipile.sql.engines.evaluation import (
    BINS,
    CLASSES,
    LABELS,
    MASS,
    NUMBERS,
    bins_of,
    confused,
    counted,
    curve,
    figures,
    need_classes,
    need_one_label,
    quantiles,
    threshold_of,
    two_probable,
    weight_of,
    with_errors,
)
from corgipile.sql.engines.results import epoch_row
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall
from corgipile.tables.databases import quoted
from corgipile.tables.table import Table
from corgipile.tables.views import select

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["calibration", "confusion", "errors", "evaluated", "roc"]

# The area under the curve: of pairs of rows of the two classes how many are in order, ties a half, each by the weights.
# Products of weights may be beyond what numbers hold; those of one class are divided by a power of two.
AREA = """(SELECT CASE WHEN area > 1 THEN 1 ELSE area END FROM (
    SELECT sum(p / unit * (below + n / 2)) / nullif(sum(p / unit) * sum(n), 0) AS area FROM (
    SELECT p, n, pow(2, floor(log2(nullif(sum(p) OVER (), 0)))) AS unit, sum(n) OVER (ORDER BY score) - n AS below
    FROM (SELECT score, coalesce(sum(weight) FILTER (actual = 2), 0) AS p,
    coalesce(sum(weight) FILTER (actual = 1), 0) AS n
    FROM scored GROUP BY score))))"""


class _Rows:
    """Rows to be judged, as SQL.

    Args:
        engine: The engine.
        stored: The model.
        call: The call that is answered.
        sql: The rows.
        bound: The values of their parameters.
    """

    def __init__(self, engine: "DuckDB", stored: Stored, call: ModelCall, sql: str, bound: Bound) -> None:
        self.engine, self.model, self.sql, self.bound = engine, stored.model, sql, bound
        self._key, self._says = key_of(engine, stored, bound), says_class(stored)
        schema = engine.session.schema(sql, bound.values)
        there = schema.names
        self._names = names_in(stored, there)
        label = column_named(self.model.label_or(), there)
        self.weight = weight_of(call, dict(zip(there, schema.types, strict=True)), label)
        self._label, self._weight = quoted(label), "1" if self.weight is None else quoted(self.weight)
        self.mass = "" if self.weight is None else f", {MASS}"
        self._kind = "VARCHAR" if self.model.classes.dtype.kind == "U" else "DOUBLE"

    def asked(self, function: str) -> str:
        """Return a call of one of our functions."""
        return asked(function, self._key, self._names)

    def place(self, value: str) -> str:
        """Return what numbers the class that an expression gives, from 1 on."""
        classes = [literal(one) if isinstance(one, str) else repr(float(one)) for one in self.model.classes.tolist()]
        return f"list_position([{', '.join(classes)}]::{self._kind}[], ({value})::{self._kind})"

    def scored(self, **columns: str) -> str:
        """Return the beginning of a query of rows ``scored``: the number of their class, and some columns."""
        named = {"actual": self.place(self._label), "weight": f"({self._weight})::DOUBLE", **columns}
        listed = ", ".join(f"{text} AS {name}" for name, text in named.items())
        return f"WITH scored AS MATERIALIZED (SELECT {listed} FROM ({self.sql}\n))"

    def predicted(self, threshold: float | None) -> str:
        """Return what numbers the class that is predicted."""
        if threshold is None:
            return self.place(self.asked(self._says))
        share = f"{self.asked('predict_proba')}[2]"
        return f"CASE WHEN {share} >= {threshold!r} THEN 2 WHEN {share} IS NOT NULL THEN 1 END"

    def errors(self) -> dict[str, float]:
        """Return how far predictions of numbers are off."""
        error = f"{self.asked('predict')} - {self._label}::DOUBLE AS e, ({self._weight})::DOUBLE AS weight"
        means = (f"sum(weight * {each}) / sum(weight)" for each in ("abs(e)", "(e * e)"))
        found = self.rows(f"SELECT {', '.join(means)} FROM (SELECT {error} FROM ({self.sql}\n))")[0]
        return dict(zip(("mean_absolute_error", "mean_squared_error"), found, strict=True))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query of them that has few rows."""
        return self.engine.session.rows(sql, self.bound.values)


def evaluated(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> pa.Table:
    """Return how well a model does on rows; on those of training, or held out of it, where none are named."""
    model, labels = stored.model, stored.model.params.get("labels")
    names = LABELS if labels else NUMBERS if model.loss.numbers else CLASSES
    if call.options.get("threshold") is not None:
        need_one_label(call, labels)
    threshold = threshold_of(call, model.classes.tolist(), probable=model.loss.probability)
    if call.source is None:
        record = epoch_row(model.history[-1]) if model.history else {}
        apart = record.get("holdout_loss") is not None
        found: dict[str, Any] = {name: record.get(f"holdout_{name}" if apart else name) for name in names}
        return figures(names, found | {"rows": None if apart else record.get("rows")})
    table, weight = _read(engine, call, stored, bound)
    found = {**model.measure(table, weight=weight), "rows": len(table)}
    if labels:
        return figures(names, found)
    if call.source.plain:
        rows = _rows(engine, call, stored, bound)
    else:
        lent = engine.session.lend(lendable(table))
        rows = _Rows(engine, stored, call, f"SELECT * FROM {lent}", Bound(bound.given, None))
    if model.loss.numbers:
        return figures(names, found | rows.errors())
    two = len(model.classes) == 2
    score = {"score": f"{rows.asked('decision')}[1]" if model.outputs == 1 else rows.asked("predict_proba") + "[2]"}
    sql = rows.scored(predicted=rows.predicted(threshold), **(score if two else {}))
    area = AREA if two else "NULL"
    each = f"SELECT {area}, actual, predicted, count(*){rows.mass} FROM scored GROUP BY actual, predicted"
    cells = rows.rows(f"{sql} {each}")
    found |= counted([cell[1:] for cell in cells], model.classes.tolist(), stored.name, weight).figures()
    found["log_loss"] = found["loss"] if model.loss.probability and not model.loss.rest else None
    return figures(names, found | {"roc_auc": cells[0][0]})


def _read(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> tuple[Table, str | None]:
    """Return the rows of a call, and the column of what they count for."""
    assert call.source is not None  # noqa: S101 - the grammar says so
    rows = read_rows(engine.session, call.source, Bound(bound.given, None), None)
    table = rows.table if call.source.columns is None else select(rows.table, rows.columns)
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    return table, weight_of(call, kinds, stored.model.label_or())


def calibration(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> pa.Table:
    """Return probabilities of the second class beside what came of them, by bin."""
    model = stored.model
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    two_probable(call, model.classes.tolist(), probable=model.loss.probability)
    bins = bins_of(call)
    table, weight = _read(engine, call, stored, bound)
    found = model.judge(table, weight=weight, bins=bins).calibration
    assert found is not None  # noqa: S101 - it has probabilities of two classes
    return found.select(list(BINS))


def errors(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> pa.Table:
    """Return the weights with what they may be off by.

    Raises:
        BadArgument: There is one model for each value of a column, or for each label.
    """
    if isinstance(stored.model, Groups):
        raise BadArgument(
            f"{stored.name!r} is a model for each {stored.model.by!r}, and standard errors are of one: train that of a "
            "group with WHERE in place of GROUP BY"
        )
    need_one_label(call, stored.model.params.get("labels"))
    table, weight = _read(engine, call, stored, bound)
    found = stored.model.summary(table, weight=weight)
    columns = (found.coef, found.standard_error, found.z, found.p, found.low, found.high, found.gaps)
    return with_errors(found.names[: stored.model.width], zip(*(one.tolist() for one in columns), strict=True))


def _rows(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> _Rows:
    assert call.source is not None  # noqa: S101 - the grammar says so
    plain = Bound(bound.given, None)
    return _Rows(engine, stored, call, text_of(engine.session, call.source, plain).sql, plain)


def confusion(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> pa.Table:
    """Return rows by their class and the one that is predicted."""
    model, classes = stored.model, stored.model.classes.tolist()
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    rows = _rows(engine, call, stored, bound)
    sql = rows.scored(predicted=rows.predicted(threshold_of(call, classes, probable=model.loss.probability)))
    cells = rows.rows(f"{sql} SELECT actual, predicted, count(*){rows.mass} FROM scored GROUP BY actual, predicted")
    return confused(counted(cells, classes, stored.name, rows.weight))


def roc(engine: "DuckDB", call: ModelCall, stored: Stored, bound: Bound) -> pa.Table:
    """Return how many rows reach thresholds: those that are named, or percentiles of the probabilities."""
    model = stored.model
    need_one_label(call, model.params.get("labels"))
    need_classes(call, model.kind, numbers=model.loss.numbers)
    two_probable(call, model.classes.tolist(), probable=model.loss.probability)
    rows = _rows(engine, call, stored, bound)
    given = call.options.get("thresholds")
    points = (
        f"SELECT {given!r} AS cuts" if given else f"SELECT quantile_disc(share, {quantiles()!r}) AS cuts FROM scored"
    )
    reached = "CASE WHEN share IS NOT NULL THEN len(list_filter(cuts, lambda x: x <= share)) END"
    cells = rows.rows(
        f"{rows.scored(share=rows.asked('predict_proba') + '[2]')}, points AS ({points}) "
        f"SELECT any_value(cuts), actual, {reached} AS reached, count(*){rows.mass} FROM scored, points "
        "GROUP BY actual, reached"
    )
    return curve(given or (cells[0][0] if cells else []), [cell[1:] for cell in cells], stored.name, rows.weight)
