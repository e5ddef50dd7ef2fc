"""Runs statements in a session of PostgreSQL, by our extension: no row that is learnt from leaves the server."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.postgres import calls
from corgipile.sql.engines.postgres.faults import as_settings, training
from corgipile.sql.engines.postgres.models import Models
from corgipile.sql.engines.postgres.rows import Relation, relation_of
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.postgres.training import following, has_shares, train_call
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.results import EPOCHS, lines, result_of
from corgipile.sql.engines.shared import Shared
from corgipile.sql.options import settled
from corgipile.sql.statements import Explain, Predict, Query, Train

__all__ = ["PostgreSQL"]

TOLD = ("NOTICE", "WARNING")


class PostgreSQL(Shared[Session, Models]):
    """One session of PostgreSQL; see `corgipile.sql.engines.engine.Engine`.

    Args:
        connection: A connection of psycopg that keeps each statement at once.
        connect: Opens another connection to the same database.
    """

    name = "PostgreSQL"

    def __init__(self, connection: Any, connect: Callable[[], Any]) -> None:
        self.session, self._connect = Session(connection), connect
        self.models = Models(self.session)
        self._said: list[str] = []
        connection.add_notice_handler(self._hear)

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement as it is, but for calls of models."""
        return self._answered(statement, lambda: self.session.run(self._writer(values).text(statement.sql)))

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model, and store it if it has a name."""
        train, known = settled(statement, values), self.models.known()
        if (kept := self._kept(train)) is not None:
            return kept
        past = 0 if train.warm_start is None else len(self.models.history(train.warm_start))
        writer = self._writer(values)
        with relation_of(self.session, train.source, writer, queries=not has_shares(train)) as relation:
            call = train_call(train, relation, known, writer, lambda: self._bytes(relation))
            rows = self._trained(call, progress, past, int(train.settings.get("epochs", 5)))
        notes = [*train.notes, *relation.notes, *train.label_notes(relation.columns)]
        return result_of(EPOCHS, rows, [*notes, *map(as_settings, self._heard())])

    def _trained(self, call: str, progress: Progress | None, past: int, epochs: int) -> list[dict[str, Any]]:
        """Run a training; tell of each epoch as it ends."""
        self.session.park()
        self._said.clear()
        rows: list[dict[str, Any]] = []
        pid = self.session.connection.info.backend_pid
        sql = f"SELECT {', '.join(EPOCHS.names)} FROM {call}"
        with training(), following(progress, self._connect, pid, past) as watch:
            for row in self.session.stream(sql, size=1):
                rows.append(dict(zip(EPOCHS.names, row, strict=True)))
                if watch is not None:
                    watch.epoch(rows[-1], epochs)
        return rows

    def predict(self, statement: Predict, values: Values) -> Result:
        """Answer rows with a prediction beside them, or do with them what the statement says."""
        stored, writer = self.models.find(statement.model), self._writer(values)
        return self._answered(statement, lambda: self.session.run(calls.predicting(self, statement, stored, writer)))

    def explain(self, statement: Explain, values: Values) -> Result:
        """Answer the operators of a training, a line each."""
        train, known = settled(statement.train, values), self.models.known()
        writer, analyze = self._writer(values), "ANALYZE, " * statement.analyze
        queries, empty = not has_shares(train), not statement.analyze
        with relation_of(self.session, train.source, writer, queries=queries, empty=empty) as relation:
            call = train_call(replace(train, name=None), relation, known, writer, lambda: self._bytes(relation))
            self.session.park()
            self._said.clear()
            with training():
                plan = [row[0] for row in self.session.stream(f"EXPLAIN ({analyze}COSTS OFF) SELECT * FROM {call}")]
        return lines(
            "plan", plan, [*statement.notes, *(() if empty else relation.notes), *map(as_settings, self._heard())]
        )

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table that the session sees."""
        found: dict[str, list[str]] = {}
        for table, column in self.session.rows(
            "SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::pg_catalog.text "
            "ELSE pg_catalog.concat_ws('.', n.nspname, c.relname) END, a.attname "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace "
            "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid "
            "AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped "
            "WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}') "
            "AND NOT n.nspname OPERATOR(pg_catalog.=) ANY ('{pg_catalog,information_schema}') ORDER BY 1, a.attnum"
        ):
            found.setdefault(table, []).extend([] if column is None else [column])
        return found

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def _described(self, name: str) -> list[dict[str, str]]:
        stored = self.models.find(name)
        return calls.described(stored, self.models.history(stored.name))

    def _begin(self) -> None:
        """Nothing has to be made ready."""

    def _bytes(self, relation: Relation) -> int:
        sql = (
            "SELECT COALESCE(pg_catalog.sum(pg_catalog.pg_table_size(t.relid)), 0)::bigint FROM (SELECT relid FROM "
            "pg_catalog.pg_partition_tree(%s::pg_catalog.regclass) WHERE isleaf UNION SELECT %s::pg_catalog.regclass) t"
        )
        return max(1, int(self.session.rows(sql, [relation.name] * 2)[0][0]))

    def _answered(self, statement: Query | Predict, run: Callable[[], Result]) -> Result:
        self._said.clear()
        result = run()
        result.notes.extend([*statement.notes, *self._heard()])
        return result

    def _hear(self, diagnostic: Any) -> None:
        """Keep what the server says; epochs are told of in the answer."""
        severity, text = diagnostic.severity_nonlocalized or "", diagnostic.message_primary or ""
        if severity in TOLD and not text.startswith("epoch "):
            self._said.append(text if severity == "NOTICE" else f"{severity}: {text}")

    def _heard(self) -> list[str]:
        said, self._said = self._said, []
        return said

    def _writer(self, values: Values) -> Writer:
        return Writer(self.session, values, lambda call, writer: calls.table_of(self, call, writer))
