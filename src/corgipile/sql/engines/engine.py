"""What an engine of SQL does: one contract, one file or folder an engine."""

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
    """What a statement answers: rows that are fetched as they are asked for.

    Attributes:
        schema: The columns, in Arrow's types; None where a statement has no rows to give.
        batches: The rows.
        count: How many rows were changed, or -1 where nobody knows.
        notes: What is said besides: columns left out, a query that was materialised, options that mean nothing here.
    """

    schema: pa.Schema | None = None
    batches: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    count: int = -1
    notes: list[str] = field(default_factory=list)


class Progress(Protocol):
    """Who is told how a training goes on."""

    def begin(self, rows: int, epochs: int) -> None:
        """Hear how many rows an epoch has, and how many epochs there are at most."""

    def rows(self, count: int) -> None:
        """Hear of rows that were learnt; a negative number takes back those of an epoch that is begun again."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Hear of an epoch that ended, as a row of the answer."""


class Engine(Protocol):
    """Runs statements in one session of a database.

    Columns of a training's answer, in every engine: ``epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy,
    holdout_r2, rows, seconds``, one row an epoch.
    """

    name: str  # as users write it: DuckDB, PostgreSQL

    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement as it is, but for calls of models."""

    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model, and store it if it has a name."""

    def predict(self, statement: Predict, values: Values) -> Result:
        """Answer rows with a prediction beside them, or do with them what the statement says."""

    def explain(self, statement: Explain, values: Values) -> Result:
        """Answer the operators of a training, a line each, in one column ``plan``."""

    def drop(self, statement: DropModel) -> Result:
        """Remove a model."""

    def rename(self, statement: RenameModel) -> Result:
        """Give a model another name."""

    def show(self, statement: ShowModels) -> Result:
        """Answer the models: ``name, model, features, epochs, loss, created``."""

    def describe(self, statement: DescribeModel) -> Result:
        """Answer what is known of a model: ``property, value``."""

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table that the session sees, for completion and the list of tables."""

    def in_transaction(self) -> bool:
        """Say whether a transaction is open."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Keep what was done; nothing happens where no transaction is open."""

    def rollback(self) -> None:
        """Take back what was done, models too; nothing happens where no transaction is open."""

    def interrupt(self) -> None:
        """Stop what another thread of this process runs; nothing happens where nothing runs."""

    def close(self) -> None:
        """End the session."""


def perform(  # noqa: PLR0911 - one of each
    engine: Engine, statement: Statement, values: Values = (), progress: Progress | None = None
) -> Result:
    """Have an engine run a statement."""
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
