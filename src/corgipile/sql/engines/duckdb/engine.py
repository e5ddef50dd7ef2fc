"""Runs statements in a session of DuckDB."""

import contextlib
from typing import TYPE_CHECKING, Any

from corgipile.outputs import check_apart
from corgipile.sql.engines.duckdb.binding import Bound, lasts
from corgipile.sql.engines.duckdb.faults import translated
from corgipile.sql.engines.duckdb.files import with_files
from corgipile.sql.engines.duckdb.functions import Functions, functions_of
from corgipile.sql.engines.duckdb.models import Models
from corgipile.sql.engines.duckdb.prediction import check_kept, pinned, predicting
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.results import EPOCHS, epoch_row, result_of
from corgipile.sql.engines.shared import Shared
from corgipile.sql.exceptions import DatabaseError
from corgipile.sql.statements import (
    Explain,
    Fragment,
    ModelCall,
    Predict,
    Query,
    Train,
)
from corgipile.sql.tokens import tokenize

if TYPE_CHECKING:
    from corgipile.linear.model import Model
    from corgipile.sql.engines.duckdb.rows import Rows

__all__ = ["DuckDB", "check_copy"]


def check_copy(sql: str, *files: str | None) -> None:
    """Raise WouldOverwrite if COPY would write a file that it names before, or one of these, from which rows come.

    Example:
        >>> check_copy("COPY (SELECT * FROM 'a.csv') TO 'b.csv'")
    """
    tokens = tokenize(sql)
    places = [at for at, token in enumerate(tokens) if at and token.kind == "string" and tokens[at - 1].says("TO")]
    if places and tokens[0].says("COPY"):
        named = [token.text for token in tokens[: places[-1]] if token.kind in ("string", "name")]
        check_apart(tokens[places[-1]].text, [*named, *filter(None, files)])


class DuckDB(Shared[Session, Models]):
    """One session of DuckDB; see `corgipile.sql.engines.engine.Engine`.

    Args:
        connection: An open connection.
        owned: Whether it is closed with the session.
    """

    name = "DuckDB"

    def __init__(self, connection: Any, *, owned: bool = True) -> None:
        self.session, self._owned = Session(connection), owned
        self.functions: Functions = functions_of(connection)
        self.session.cause = self.functions.cause
        self.models = Models(self.session)

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement as it is, but for calls of models."""
        self._begin()
        bound = self.bound(values, statement.sql)
        sql = with_files(self.session, bound.text(statement.sql))
        check_kept(self, bound)
        if not bound.lasting:
            sql = pinned(self, sql)
        check_copy(sql)
        result = self.session.run(sql, bound.values)
        if self.session.pinned and result.schema is None:
            self.session.name_plainly()
        result.notes.extend(statement.notes)
        return result

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model, and store it if it has a name."""
        from corgipile.sql.options import settled  # noqa: PLC0415 - most statements train nothing

        self._begin()
        statement = settled(statement, values)
        if statement.name is not None:
            self.models.check_writable(statement.name)
        if (kept := self._kept(statement)) is not None:
            return kept
        model, rows, past = self.fitted(statement, values, progress)
        if statement.name is not None:
            self.models.keep(statement.name, model, replace=statement.replace)
        notes = [*statement.notes, *rows.notes, *statement.label_notes(rows.columns), *model.notes]
        return result_of(EPOCHS, [epoch_row(record) for record in model.history[past:]], notes)

    def fitted(self, statement: Train, values: Values, progress: Progress | None = None) -> "tuple[Model, Rows, int]":
        """Return a model that was trained as a settled statement says, its rows, and the epochs before."""
        from corgipile.sql.engines.duckdb.rows import read_rows  # noqa: PLC0415 - as above
        from corgipile.sql.engines.training import arguments, fit_model  # noqa: PLC0415 - as above

        past = None if statement.warm_start is None else self.models.find(statement.warm_start).model
        rows = read_rows(self.session, statement.source, self.bound(values), statement.settings.get("memory"))
        given = arguments(statement, rows.columns)
        model = fit_model(rows.table, given, past, progress, self.session.check)
        return model, rows, 0 if past is None else len(past.history)

    def predict(self, statement: Predict, values: Values) -> Result:
        """Answer rows with a prediction beside them, or do with them what the statement says."""
        self._begin()
        bound = self.bound(values, statement.before)
        stored = self.models.find(statement.model)
        sql = predicting(self, statement, stored, bound)
        check_copy(sql, statement.source.file)
        result = self.session.run(sql, bound.values)
        result.notes.extend(statement.notes)
        return result

    def explain(self, statement: Explain, values: Values) -> Result:
        """Answer the operators of a training, a line each."""
        from corgipile.sql.engines.duckdb.explain import explained  # noqa: PLC0415 - as above

        self._begin()
        return explained(self, statement, values)

    def lend(self, name: str, rows: Any) -> None:
        """Let statements name what Python holds, a data frame or a table of Arrow, as a view of this session."""
        self.session.park()
        with translated():
            self.session.connection.register(name, rows)

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table that the session sees."""
        sql = (
            "SELECT schema_name, table_name, column_name FROM duckdb_columns() "
            "WHERE database_name = current_database() AND NOT internal ORDER BY schema_name, table_name, column_index"
        )
        found: dict[str, list[str]] = {}
        for schema, table, column in self.session.rows(sql):
            found.setdefault(table if schema == "main" else f"{schema}.{table}", []).append(column)
        return found

    def close(self) -> None:
        """End the session."""
        self.session.close(owned=self._owned)

    def _described(self, name: str) -> list[dict[str, str]]:
        from corgipile.sql.engines.duckdb.calls import described  # noqa: PLC0415 - as above

        return described(self.models.find(name))

    def _begin(self) -> None:
        self.session.begin()
        self.functions.begin(self.session)
        with contextlib.suppress(DatabaseError):  # a transaction that an error has ended answers nothing
            self.session.database = self.session.rows("SELECT current_database()")[0][0]

    def bound(self, values: Values, sql: Fragment = Fragment(())) -> Bound:  # noqa: B008 - it never changes
        """Return what writes SQL that begins so, with these values and with calls of models."""
        return Bound(values, self._call, lasting=lasts(sql))

    def _call(self, call: ModelCall, bound: Bound) -> str:
        from corgipile.sql.engines.duckdb.calls import table_of  # noqa: PLC0415 - as above

        return table_of(self, call, bound)
