"""DuckDB implementation of the engine interface."""

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from corgipile.lazy import lazy
from corgipile.sql.engines.duckdb.binding import BoundSql, is_persistent
from corgipile.sql.engines.duckdb.faults import translate_errors
from corgipile.sql.engines.duckdb.files import path_sql, with_files
from corgipile.sql.engines.duckdb.functions import Functions, functions_of
from corgipile.sql.engines.duckdb.models import Models
from corgipile.sql.engines.duckdb.prediction import check_persistent, pin_models, prediction_sql
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.results import EPOCHS, epoch_row, result_of
from corgipile.sql.engines.shared import Engine
from corgipile.sql.exceptions import DatabaseError
from corgipile.sql.statements import Explain, Fragment, ModelCall, Predict, Query, SetModel, Train
from corgipile.sql.tokens import tokenize

if TYPE_CHECKING:
    from corgipile.linear.model import Model
    from corgipile.sql import options
    from corgipile.sql.engines import training
    from corgipile.sql.engines.duckdb import calls, creation
    from corgipile.sql.engines.duckdb import explain as explaining
    from corgipile.sql.engines.duckdb import rows as reading
    from corgipile.sql.engines.duckdb.rows import Rows
    from corgipile.tables import inputs
else:  # these load the training code and all formats
    inputs = lazy("corgipile.tables.inputs")
    calls, explaining = lazy("corgipile.sql.engines.duckdb.calls"), lazy("corgipile.sql.engines.duckdb.explain")
    options, reading = lazy("corgipile.sql.options"), lazy("corgipile.sql.engines.duckdb.rows")
    training, creation = lazy("corgipile.sql.engines.training"), lazy("corgipile.sql.engines.duckdb.creation")

__all__ = ["DuckDB", "check_copy"]


def check_copy(sql: str, *files: str | None) -> None:
    """Raise WouldOverwrite if COPY would write a file that it reads, or one of `files`.

    Example:
        >>> check_copy("COPY (SELECT * FROM 'a.csv') TO 'b.csv'")
    """
    tokens = tokenize(sql)
    places = [at for at, token in enumerate(tokens) if at and token.kind == "string" and tokens[at - 1].matches("TO")]
    if places and tokens[0].matches("COPY"):
        named = [token.text for token in tokens[: places[-1]] if token.kind in ("string", "name")]
        inputs.check_apart(tokens[places[-1]].text, [*named, *filter(None, files)])


class DuckDB(Engine):
    """A DuckDB session; see `corgipile.sql.engines.shared.Engine`. Closing it closes an owned connection."""

    name = "DuckDB"
    session: Session
    models: Models

    def __init__(self, connection: Any, *, owned: bool = True) -> None:
        self.session, self._owned = Session(connection), owned
        self.functions: Functions = functions_of(connection)
        self.session.cause = self.functions.cause
        self.models = Models(self.session)

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement of DuckDB's own SQL; model calls in it are replaced."""
        self._begin()
        bound = self.bound(values, statement.sql)
        sql = with_files(self.session, bound.text(statement.sql))
        check_persistent(self, bound)
        if not bound.persistent:
            sql = pin_models(self, sql)
        check_copy(sql)
        result = self.session.run(sql, bound.values)
        if self.session.pinned and result.schema is None:
            self.session.restore_column_names()
        result.notes.extend(statement.notes)
        return result

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model and store it if it has a name."""
        self._begin()
        statement = options.bind_settings(statement, values)
        if statement.name is not None:
            self.models.check_writable(statement.name)
        if (skipped := self._skip_existing(statement)) is not None:
            return skipped
        model, rows, past = self.fit(statement, values, progress)
        if statement.name is not None:
            self.models.keep(statement.name, model, replace=statement.replace)
        notes = [*statement.notes, *rows.notes, *statement.label_notes(rows.columns), *model.notes]
        return result_of(EPOCHS, [epoch_row(record) for record in model.history[past:]], notes)

    def fit(self, statement: Train, values: Values, progress: Progress | None = None) -> "tuple[Model, Rows, int]":
        """Train a model by a bound statement; return it, its rows and the epochs of the warm start."""
        past = None if statement.warm_start is None else self.models.find(statement.warm_start).model
        if statement.options is not None:
            model, rows = creation.create_model(self, statement, values, past, progress)
            return model, rows, 0 if past is None else len(past.history)
        rows = reading.read_rows(self.session, statement.source, self.bound(values), statement.settings.get("memory"))
        given = training.arguments(statement, rows.columns)
        model = training.fit_model(rows.table, given, past, progress, self.session.check)
        return model, rows, 0 if past is None else len(past.history)

    def predict(self, statement: Predict, values: Values) -> Result:
        """Run a query whose rows gain a prediction column."""
        self._begin()
        bound = self.bound(values, statement.before)
        stored = self.models.find(statement.model)
        sql = prediction_sql(self, statement, stored, bound)
        check_copy(sql, statement.source.file)
        result = self.session.run(sql, bound.values)
        result.notes.extend(statement.notes)
        return result

    def explain(self, statement: Explain, values: Values) -> Result:
        """Return the operators of a training, one per line."""
        self._begin()
        return explaining.explain_training(self, statement, values)

    def set(self, statement: SetModel) -> Result:
        """Store a model's description among its parameters, or write the model to a file."""
        self._begin()
        if statement.if_exists and not self.models.exists(statement.name):
            return Result(notes=[*statement.notes, f"there is no model {statement.name!r}"])
        model = self.models.find(statement.name).model
        if (path := statement.options.get("uri")) is not None:
            model.save(path)
        else:
            self.models.keep(statement.name, replace(model, params={**model.params, **statement.options}), replace=True)
        return Result(notes=list(statement.notes))

    def lend(self, name: str, rows: Any) -> None:
        """Register a data frame or Arrow table as a view of this session."""
        self.session.park()
        with translate_errors():
            self.session.connection.register(name, rows)

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each visible table."""
        sql = (
            "SELECT schema_name, table_name, column_name FROM system.main.duckdb_columns() "
            "WHERE database_name = system.main.current_database() AND NOT internal "
            "ORDER BY schema_name, table_name, column_index"
        )
        tables: dict[str, list[str]] = {}
        for schema, table, column in self.session.rows(sql):
            tables.setdefault(table if schema == "main" else f"{schema}.{table}", []).append(column)
        return tables

    def close(self) -> None:
        """Close the session."""
        self.session.close(owned=self._owned)

    def _properties(self, name: str) -> list[dict[str, str]]:
        return calls.describe_model(self.models.find(name))

    def _begin(self) -> None:
        self.session.begin()
        self.functions.begin(self.session)
        with contextlib.suppress(DatabaseError):  # a failed transaction accepts no query
            self.session.database = self.session.rows("SELECT system.main.current_database()")[0][0]

    def bound(self, values: Values, sql: Fragment = Fragment(())) -> BoundSql:  # noqa: B008 - it is immutable
        """Return a writer of SQL with these parameter values; `sql` is its beginning."""
        return BoundSql(values, self._call, persistent=is_persistent(sql), path=partial(path_sql, self.session))

    def _call(self, call: ModelCall, bound: BoundSql) -> str:
        return calls.call_sql(self, call, bound)
