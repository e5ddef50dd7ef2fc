"""Interface of engines, with what they share: transactions and statements about models."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.engines.results import EPOCHS, MODELS, PROPERTIES, result_of
from corgipile.sql.exceptions import Error, IntegrityError, NotSupportedError
from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Explain,
    Predict,
    Query,
    RenameModel,
    SetModel,
    ShowModels,
    Statement,
    Train,
)
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Engine", "check_new_columns", "missing_model", "name_taken", "transaction"]


def name_taken(name: str, way: str = "use CREATE OR REPLACE MODEL or IF NOT EXISTS") -> IntegrityError:
    """Return the error for a model name that exists."""
    return IntegrityError(f"model {name!r} already exists; {way}")


def missing_model(name: str, names: Sequence[str], readable: str = "") -> BadArgument:
    """Return the error for a model that does not exist."""
    known = f"; stored models: {listed(names)}" if names else "; no models are stored"
    return BadArgument(f"there is no model {name!r}{readable}{known}{did_you_mean(name, names)}")


@contextmanager
def transaction(session: Any) -> Iterator[None]:
    """Run the block in the open transaction, or in a new one that is committed or rolled back."""
    own = not session.in_transaction()
    if own:
        session.rows("BEGIN")
    try:
        yield
    except BaseException:
        if own:
            with suppress(Error):  # the original error explains more
                session.rows("ROLLBACK")
        raise
    if own:
        session.rows("COMMIT")


def check_new_columns(names: Sequence[str], columns: Sequence[str], *, hint: str, folded: bool) -> None:
    """Raise BadArgument if rows have a column that a prediction would add; ``folded`` ignores case."""
    fold = str.lower if folded else str
    known = {fold(name) for name in columns}
    if clash := [name for name in names if fold(name) in known]:
        raise BadArgument(f"the rows already have a column {clash[0]!r}, the name of the prediction; {hint}")


class Engine(ABC):
    """Runs statements in one session of a database; engines differ in how they read rows and store models.

    A training returns one row an epoch in every engine: ``epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy,
    holdout_r2, rows, seconds``.
    """

    name: str  # DuckDB or PostgreSQL
    session: Any
    models: Any

    def run(  # noqa: PLR0911 - one branch a statement type
        self, statement: Statement, values: Values = (), progress: Progress | None = None
    ) -> Result:
        """Run a statement."""
        match statement:
            case Train():
                return self.train(statement, values, progress)
            case Predict():
                return self.predict(statement, values)
            case Explain():
                return self.explain(statement, values)
            case DropModel():
                return self.drop(statement)
            case RenameModel():
                return self.rename(statement)
            case SetModel():
                return self.set(statement)
            case ShowModels():
                return self.show(statement)
            case DescribeModel():
                return self.describe(statement)
            case Query():
                return self.query(statement, values)
        raise AssertionError(statement)

    @abstractmethod
    def query(self, statement: Query, values: Values) -> Result:
        """Run a statement of the engine's own SQL; model calls in it are replaced."""

    @abstractmethod
    def train(self, statement: Train, values: Values, progress: Progress | None = None) -> Result:
        """Train a model and store it if it has a name."""

    @abstractmethod
    def predict(self, statement: Predict, values: Values) -> Result:
        """Run a query whose rows gain a prediction column."""

    @abstractmethod
    def explain(self, statement: Explain, values: Values) -> Result:
        """Return the operators of a training, one per line, in the column ``plan``."""

    @abstractmethod
    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each visible table."""

    @abstractmethod
    def close(self) -> None:
        """Close the session."""

    def drop(self, statement: DropModel) -> Result:
        """Remove a model."""
        self._begin()
        if statement.if_exists and not self.models.exists(statement.name):
            return Result(notes=[*statement.notes, f"there is no model {statement.name!r}"])
        self.models.drop(statement.name)
        return Result(notes=list(statement.notes))

    def rename(self, statement: RenameModel) -> Result:
        """Rename a model."""
        self._begin()
        exists = self.models.exists(statement.name)
        if statement.if_exists and not exists:
            return Result(notes=[*statement.notes, f"there is no model {statement.name!r}"])
        if exists and statement.name != statement.to and self.models.exists(statement.to):
            raise name_taken(statement.to, "drop it first")
        self.models.rename(statement.name, statement.to)
        return Result(notes=list(statement.notes))

    def set(self, statement: SetModel) -> Result:
        """Store a model's description, or write the model to a file."""
        raise NotSupportedError(f"EXPORT MODEL and ALTER MODEL … SET OPTIONS are not supported on {self.name}")

    def show(self, statement: ShowModels) -> Result:
        """Return the models."""
        self._begin()
        return result_of(MODELS, self.models.summaries(statement.like), statement.notes)

    def describe(self, statement: DescribeModel) -> Result:
        """Return a model's properties."""
        self._begin()
        return result_of(PROPERTIES, self._properties(statement.name), statement.notes)

    @abstractmethod
    def _properties(self, name: str) -> list[dict[str, str]]:
        """Return a model's properties, one a row."""

    @abstractmethod
    def _begin(self) -> None:
        """Prepare for a statement."""

    def _skip_existing(self, train: Train) -> Result | None:
        """Return the result of a training to skip because its model exists, or None to train.

        Raise if it must not exist.
        """
        if train.name is None or (train.replace and not train.if_not_exists) or not self.models.exists(train.name):
            return None
        if not train.if_not_exists:
            raise name_taken(train.name)
        note = f"model {train.name!r} already exists; nothing was trained"
        return result_of(EPOCHS, [], [*train.notes, note])

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return bool(self.session.in_transaction())

    def begin(self) -> None:
        """Begin a transaction."""
        self.session.rows("BEGIN")

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        if self.session.in_transaction():
            self.session.rows("COMMIT")

    def rollback(self) -> None:
        """Roll back the open transaction, if any."""
        if self.session.in_transaction():
            self.session.rows("ROLLBACK")

    def interrupt(self) -> None:
        """Stop the statement that runs in another thread."""
        self.session.interrupt()
