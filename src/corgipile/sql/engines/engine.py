"""Interface of SQL engines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Explain,
    Predict,
    Query,
    RenameModel,
    ShowModels,
    Statement,
    Train,
)

__all__ = ["Engine", "Progress", "Result", "Values", "perform"]

Values = Sequence[Any] | Mapping[str, Any]


@dataclass
class Result:
    """The result of a statement; its rows are fetched lazily.

    Attributes:
        schema: The columns as Arrow types; None if the statement returns no rows.
        batches: The rows.
        count: Number of changed rows, or -1 if unknown.
        notes: Notes such as ignored columns, a materialised query or options without effect.
    """

    schema: pa.Schema | None = None
    batches: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    count: int = -1
    notes: list[str] = field(default_factory=list)


class Progress(Protocol):
    """Receives training progress."""

    def begin(self, rows: int, epochs: int) -> None:
        """Receive the rows of an epoch and the largest number of epochs."""

    def rows(self, count: int) -> None:
        """Receive the number of rows trained on since the last call; negative if an epoch restarts."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Receive a finished epoch as a row of the result."""


class Engine(Protocol):
    """Runs statements in one session of a database.

    A training returns one row an epoch in every engine: ``epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy,
    holdout_r2, rows, seconds``.
    """

    name: str  # DuckDB or PostgreSQL

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement of the engine's own SQL; model calls in it are replaced."""

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model and store it if it has a name."""

    def predict(self, statement: Predict, values: Values) -> Result:
        """Run a query whose rows gain a prediction column."""

    def explain(self, statement: Explain, values: Values) -> Result:
        """Return the operators of a training, one per line, in the column ``plan``."""

    def drop(self, statement: DropModel) -> Result:
        """Remove a model."""

    def rename(self, statement: RenameModel) -> Result:
        """Rename a model."""

    def show(self, statement: ShowModels) -> Result:
        """Return the models: ``name, model, features, epochs, loss, created``."""

    def describe(self, statement: DescribeModel) -> Result:
        """Return a model's properties: ``property, value``."""

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each visible table."""

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit the open transaction, if any."""

    def rollback(self) -> None:
        """Roll back the open transaction, if any, models included."""

    def interrupt(self) -> None:
        """Stop the statement that runs in another thread, if any."""

    def close(self) -> None:
        """Close the session."""


def perform(  # noqa: PLR0911 - one branch a statement type
    engine: Engine, statement: Statement, values: Values = (), progress: Progress | None = None
) -> Result:
    """Run a statement in an engine."""
    match statement:
        case Train():
            return engine.train(statement, values, progress)
        case Predict():
            return engine.predict(statement, values)
        case Explain():
            return engine.explain(statement, values)
        case DropModel():
            return engine.drop(statement)
        case RenameModel():
            return engine.rename(statement)
        case ShowModels():
            return engine.show(statement)
        case DescribeModel():
            return engine.describe(statement)
        case Query():
            return engine.query(statement, values)
    raise AssertionError(statement)
