"""``ML.EVALUATE``, ``ML.CONFUSION_MATRIX`` and ``ML.ROC_CURVE``: the server asks the model of each row, and counts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.losses import loss_of
from corgipile.sql.engines.evaluation import (
    BINS,
    CLASSES,
    LABELS,
    NUMBERS,
    Counts,
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

__all__ = ["asked", "calibration", "confusion", "errors", "evaluated", "roc", "says_class"]

FLOAT = "double precision"  # a keyword, which no type in the search path can shadow
MASS = (
    "pg_catalog.sum(weight), pg_catalog.count(*) FILTER (WHERE (weight OPERATOR(pg_catalog.>=) 0 "
    f"AND weight OPERATOR(pg_catalog.<) 'Infinity'::{FLOAT}) IS NOT TRUE)"
)
MOST_ARGUMENTS = 99  # that a function takes one by one
GIVEN = ("loss", "accuracy", "r2", "rows", "auc", "log_loss", "rmse", "mae")  # by corgipile.evaluate
SUMMED = ("coefficient", "standard_error", "z", "p", "low", "high", "gap")  # by corgipile.summary


def asked(function: str, stored: Stored, names: list[str], writer: Writer, of: str = "") -> str:
    """Return a call of one of the extension's functions for columns."""
    columns = ", ".join(of + writer.name(name) for name in names)
    given = f"ROW({columns})" if len(names) > MOST_ARGUMENTS else columns
    if given != columns and all(re.fullmatch(r"f\d+", name) for name in names):  # as ROW calls its fields, in any order
        given = f"(SELECT corgipile_row FROM (SELECT {columns}) AS corgipile_row)"
    return f"corgipile.{function}({writer.literal(stored.name)}, {given})"


def says_class(stored: Stored) -> str:
    """Return the function that says what a model predicts: the names of classes where they are text, or of labels."""
    if stored.labels is not None:
        return "predict_labels"
    return "predict_text" if stored.class_names else "predict"


class _Rows:
    """Rows to be judged, as SQL.

    Args:
        engine: The engine.
        stored: The model.
        call: The call that is answered.
        sql: The rows.
        writer: Writes SQL.

    Raises:
        MissingColumn: They lack a column that the model was trained on, or that of weights.
        BadSchema: Weights are no numbers.
    """

    def __init__(self, engine: "PostgreSQL", stored: Stored, call: ModelCall, sql: str, writer: Writer) -> None:
        self.engine, self.stored, self.sql, self.writer = engine, stored, sql, writer
        columns = columns_of(engine.session.described(sql))
        kinds, there = {column.name: column.kind for column in columns}, [column.name for column in columns]
        names = stored.names_in(there)
        if names is None or stored.label not in kinds:
            raise stored.missing(there, also=stored.label)
        self._names = names
        self._label = writer.name(stored.label) + "::int" * pa.types.is_boolean(kinds[stored.label])
        self.weight, self._weight, self.mass = weight_of(call, kinds, stored.label), "1", ""
        if self.weight is not None:
            self._weight = writer.name(self.weight) + "::int" * pa.types.is_boolean(kinds[self.weight])
            self.mass = f", {MASS}"

    def asked(self, function: str) -> str:
        """Return a call of one of the extension's functions."""
        return asked(function, self.stored, self._names, self.writer)

    def place(self, value: str) -> str:
        """Return what numbers the class that an expression gives, from 1 on."""
        names = self.stored.class_names
        kind = FLOAT if names is None else "pg_catalog.text"
        listed = ", ".join(map(self.writer.literal, names or map(float, self.stored.classes)))
        return f"pg_catalog.array_position(ARRAY[{listed}]::{kind}[], ({value})::{kind})"

    def scored(self, **columns: str) -> str:
        """Return the beginning of a query of rows ``scored``: the number of their class, and some columns."""
        named = {"actual": self.place(self._label), "weight": f"({self._weight})::{FLOAT}", **columns}
        listed = ", ".join(f"{text} AS {name}" for name, text in named.items())
        return f"WITH scored AS MATERIALIZED (SELECT {listed} FROM ({self.sql}\n) AS corgipile_rows)"

    def counts(self, threshold: float | None) -> Counts:
        """Return rows by their class and the one that is predicted."""
        share = f"({self.asked('predict_proba')})[2]"
        reached = f"{share} OPERATOR(pg_catalog.>=) {threshold!r}::{FLOAT}"
        beyond = f"CASE WHEN {reached} THEN 2 WHEN {share} IS NOT NULL THEN 1 END"
        predicted = self.place(self.asked(says_class(self.stored))) if threshold is None else beyond
        each = f"SELECT actual, predicted, pg_catalog.count(*){self.mass} FROM scored GROUP BY 1, 2"
        classes = self.stored.class_names or self.stored.classes
        found = self.engine.session.rows(f"{self.scored(predicted=predicted)} {each}")
        return counted(found, classes, self.stored.name, self.weight)


def evaluated(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return how well a model does on rows; on those of training, or held out of it, where none are named."""
    loss = loss_of(stored.kind, len(stored.classes))
    names = LABELS if stored.labels else NUMBERS if loss.numbers else CLASSES
    if call.options.get("threshold") is not None:
        need_one_label(call, stored.labels)
    threshold = threshold_of(call, stored.classes, probable=loss.probability)
    if call.source is None:
        last = (engine.models.history(stored.name) or [{}])[-1]
        apart = last.get("holdout_loss") is not None
        found = {name: last.get(f"holdout_{name}" if apart else name) for name in names}
        return figures(names, found | {"rows": None if apart else last.get("rows")})
    source = call.source
    if stored.labels is not None:
        with relation_of(engine.session, source, writer) as relation:
            (row,) = _told(engine, call, stored, relation, writer, "evaluate_labels", LABELS)
            return figures(names, dict(zip(LABELS, row, strict=True)))
    if not loss.numbers and _varies(engine, source, writer):
        source = replace(source, where=None)  # so that they are kept, since they are read twice
    with relation_of(engine.session, source, writer, queries=loss.numbers) as relation:
        row = _told(engine, call, stored, relation, writer, "evaluate", GIVEN)[0]
        found = dict(zip(GIVEN, row, strict=True))
        if loss.numbers:
            square = None if found["rmse"] is None else found["rmse"] ** 2
            return figures(names, found | {"mean_absolute_error": found["mae"], "mean_squared_error": square})
        where = "" if relation.where is None else f" WHERE {relation.where}"
        rows = _Rows(engine, stored, call, f"SELECT * FROM {relation.name}{where}", writer)
        return figures(names, found | rows.counts(threshold).figures() | {"roc_auc": found["auc"]})


def _told(
    engine: "PostgreSQL",
    call: ModelCall,
    stored: Stored,
    relation: Relation,
    writer: Writer,
    function: str,
    columns: Sequence[str],
    **more: str,
) -> list[tuple[Any, ...]]:
    """Return what one of the extension's functions says of a model and rows."""
    if stored.names_in(relation.columns) is None:
        raise stored.missing(relation.columns)
    source = source_arguments(relation, engine.models.known(), writer)
    given = {"model": f"{writer.literal(stored.name)}::pg_catalog.text", **source, **more}
    if "weight" in call.options:
        weight = column_named(call.options["weight"], relation.columns)
        given["weight"] = f"{writer.literal(weight)}::pg_catalog.text"
    arguments = ", ".join(f"{writer.name(name)} => {text}" for name, text in given.items())
    return engine.session.rows(f"SELECT {', '.join(columns)} FROM corgipile.{function}({arguments})")


def calibration(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return probabilities of the second class beside what came of them, by bin."""
    assert call.source is not None  # noqa: S101 - the grammar says so
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    two_probable(call, stored.classes, probable=loss.probability)
    bins = f"{bins_of(call)}::int"
    with relation_of(engine.session, call.source, writer) as relation:
        rows = _told(engine, call, stored, relation, writer, "calibration", BINS, bins=bins)
    kinds = pa.schema([(name, pa.int64() if name == "rows" else pa.float64()) for name in BINS])
    return pa.Table.from_pylist([dict(zip(BINS, row, strict=True)) for row in rows], kinds)


def errors(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return the weights with what they may be off by."""
    assert call.source is not None  # noqa: S101 - the grammar says so
    need_one_label(call, stored.labels)
    with relation_of(engine.session, call.source, writer) as relation:
        return with_errors(stored.numbers, _told(engine, call, stored, relation, writer, "summary", SUMMED))


def _varies(engine: "PostgreSQL", source: Source, writer: Writer) -> bool:
    """Say whether a condition may hold of other rows each time, since it calls a function such as random()."""
    if source.where is None:
        return False
    words = [token.text.lower() for token in tokenize(writer.text(source.where)) if token.kind in ("word", "name")]
    named = (
        "SELECT 1 FROM pg_catalog.pg_proc WHERE provolatile OPERATOR(pg_catalog.=) 'v' "
        "AND pg_catalog.lower(proname::pg_catalog.text) OPERATOR(pg_catalog.=) ANY (%s) LIMIT 1"
    )
    return bool(engine.session.rows(named, [words]))


def confusion(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return rows by their class and the one that is predicted."""
    assert call.source is not None  # noqa: S101 - the grammar says so
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    threshold = threshold_of(call, stored.classes, probable=loss.probability)
    return confused(_Rows(engine, stored, call, writer.text(call.source.sql), writer).counts(threshold))


def roc(engine: "PostgreSQL", call: ModelCall, stored: Stored, writer: Writer) -> pa.Table:
    """Return how many rows reach thresholds: those that are named, or percentiles of the probabilities."""
    assert call.source is not None  # noqa: S101 - the grammar says so
    loss = loss_of(stored.kind, len(stored.classes))
    need_one_label(call, stored.labels)
    need_classes(call, stored.kind, numbers=loss.numbers)
    two_probable(call, stored.classes, probable=loss.probability)
    rows = _Rows(engine, stored, call, writer.text(call.source.sql), writer)
    share, given = f"({rows.asked('predict_proba')})[2]", call.options.get("thresholds")
    percentiles = f"pg_catalog.percentile_disc(ARRAY{quantiles()!r}::{FLOAT}[]) WITHIN GROUP (ORDER BY share)"
    points = f"SELECT ARRAY{given!r}::{FLOAT}[] AS cuts" if given else f"SELECT {percentiles} AS cuts FROM scored"
    cells = engine.session.rows(
        f"{rows.scored(share=share)}, points AS MATERIALIZED ({points}) "
        f"SELECT pg_catalog.min(cuts), actual, pg_catalog.width_bucket(share, cuts) AS reached, "
        f"pg_catalog.count(*){rows.mass} "
        "FROM scored, points GROUP BY 2, 3"
    )
    return curve(given or (cells[0][0] if cells else []), [cell[1:] for cell in cells], stored.name, rows.weight)
