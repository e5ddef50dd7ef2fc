"""PostgreSQL implementation of the engine interface: training rows never leave the server."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.postgres import calls
from corgipile.sql.engines.postgres.faults import as_settings, translate_training_errors
from corgipile.sql.engines.postgres.models import Models
from corgipile.sql.engines.postgres.rows import Relation, relation_of
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.postgres.training import has_percentages, train_call, watch_training
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.results import EPOCHS, lines, result_of
from corgipile.sql.engines.shared import Engine
from corgipile.sql.exceptions import NotSupportedError
from corgipile.sql.options import bind_settings
from corgipile.sql.statements import Explain, Predict, Query, Train

__all__ = ["PostgreSQL"]

NOTICE_LEVELS = ("NOTICE", "WARNING")


class PostgreSQL(Engine):
    """A PostgreSQL session; see `corgipile.sql.engines.shared.Engine`.

    ``connect`` opens another connection to the same database.
    """

    name = "PostgreSQL"
    session: Session
    models: Models

    def __init__(self, connection: Any, connect: Callable[[], Any]) -> None:
        self.session, self._connect = Session(connection), connect
        self.models = Models(self.session)
        self._notices: list[str] = []
        connection.add_notice_handler(self._on_notice)

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement of PostgreSQL's own SQL; model calls in it are replaced."""
        return self._with_notices(statement, lambda: self.session.run(self._writer(values).text(statement.sql)))

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model and store it if it has a name."""
        _check_options(statement)
        train, known = bind_settings(statement, values), self.models.known()
        if (skipped := self._skip_existing(train)) is not None:
            return skipped
        past = 0 if train.warm_start is None else len(self.models.history(train.warm_start))
        writer = self._writer(values)
        with relation_of(self.session, train.source, writer, queries=not has_percentages(train)) as relation:
            call = train_call(train, relation, known, writer, lambda: self._bytes(relation))
            rows = self._run_training(call, progress, past, int(train.settings.get("epochs", 5)))
        notes = [*train.notes, *relation.notes, *train.label_notes(relation.columns)]
        return result_of(EPOCHS, rows, [*notes, *map(as_settings, self._take_notices())])

    def _run_training(self, call: str, progress: Progress | None, past: int, epochs: int) -> list[dict[str, Any]]:
        """Run a training and report each epoch as it ends."""
        self.session.park()
        self._notices.clear()
        rows: list[dict[str, Any]] = []
        pid = self.session.connection.info.backend_pid
        sql = f"SELECT {', '.join(EPOCHS.names)} FROM {call}"
        with translate_training_errors(), watch_training(progress, self._connect, pid, past) as watch:
            for row in self.session.stream(sql, size=1):
                rows.append(dict(zip(EPOCHS.names, row, strict=True)))
                if watch is not None:
                    watch.epoch(rows[-1], epochs)
        return rows

    def predict(self, statement: Predict, values: Values) -> Result:
        """Run a query whose rows gain a prediction column."""
        stored, writer = self.models.find(statement.model), self._writer(values)
        return self._with_notices(
            statement, lambda: self.session.run(calls.prediction_sql(self, statement, stored, writer))
        )

    def explain(self, statement: Explain, values: Values) -> Result:
        """Return the operators of a training, one per line."""
        train, known = bind_settings(statement.train, values), self.models.known()
        writer, analyze = self._writer(values), "ANALYZE, " * statement.analyze
        queries, empty = not has_percentages(train), not statement.analyze
        with relation_of(self.session, train.source, writer, queries=queries, empty=empty) as relation:
            call = train_call(replace(train, name=None), relation, known, writer, lambda: self._bytes(relation))
            self.session.park()
            self._notices.clear()
            with translate_training_errors():
                plan = [row[0] for row in self.session.stream(f"EXPLAIN ({analyze}COSTS OFF) SELECT * FROM {call}")]
        notes = [*statement.notes, *(() if empty else relation.notes)]
        return lines("plan", plan, [*notes, *map(as_settings, self._take_notices())])

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each visible table."""
        tables: dict[str, list[str]] = {}
        for table, column in self.session.rows(
            "SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::pg_catalog.text "
            "ELSE pg_catalog.concat_ws('.', n.nspname, c.relname) END, a.attname "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace "
            "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid "
            "AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped "
            "WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}') "
            "AND NOT n.nspname OPERATOR(pg_catalog.=) ANY ('{pg_catalog,information_schema}') ORDER BY 1, a.attnum"
        ):
            tables.setdefault(table, []).extend([] if column is None else [column])
        return tables

    def close(self) -> None:
        """Close the session."""
        self.session.close()

    def _properties(self, name: str) -> list[dict[str, str]]:
        stored = self.models.find(name)
        return calls.describe_model(stored, self.models.history(stored.name))

    def _begin(self) -> None:
        """Do nothing; PostgreSQL needs no preparation."""

    def _bytes(self, relation: Relation) -> int:
        sql = (
            "SELECT COALESCE(pg_catalog.sum(pg_catalog.pg_table_size(t.relid)), 0)::bigint FROM (SELECT relid FROM "
            "pg_catalog.pg_partition_tree(%s::pg_catalog.regclass) WHERE isleaf UNION SELECT %s::pg_catalog.regclass) t"
        )
        return max(1, int(self.session.rows(sql, [relation.name] * 2)[0][0]))

    def _with_notices(self, statement: Query | Predict, run: Callable[[], Result]) -> Result:
        self._notices.clear()
        result = run()
        result.notes.extend([*statement.notes, *self._take_notices()])
        return result

    def _on_notice(self, diagnostic: Any) -> None:
        """Record a notice of the server; notices of epochs repeat the result."""
        severity, text = diagnostic.severity_nonlocalized or "", diagnostic.message_primary or ""
        if severity in NOTICE_LEVELS and not text.startswith("epoch "):
            self._notices.append(text if severity == "NOTICE" else f"{severity}: {text}")

    def _take_notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def _writer(self, values: Values) -> Writer:
        return Writer(self.session, values, lambda call, writer: calls.call_sql(self, call, writer))


def _check_options(train: Train) -> None:
    """Raise NotSupportedError for options of CREATE MODEL that only DuckDB has."""
    given = train.options or {}
    words = (given.get("category_encoding_method"), given.get("data_split_method"))
    found = [word for word in words if word in ("DUMMY_ENCODING", "AUTO_SPLIT", "SEQ", "CUSTOM")]
    if found := [*found, *(name for name in ("transform", "num_trials", "enable_global_explain") if given.get(name))]:
        raise NotSupportedError(f"{found[0]} is not supported on PostgreSQL; train on DuckDB")
