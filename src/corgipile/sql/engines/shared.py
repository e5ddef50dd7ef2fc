"""Base class of engines: transactions and statements about models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.results import EPOCHS, MODELS, PROPERTIES, result_of
from corgipile.sql.exceptions import IntegrityError
from corgipile.sql.statements import DescribeModel, DropModel, RenameModel, ShowModels, Train

__all__ = ["BaseEngine", "check_new_columns", "name_taken"]


def name_taken(name: str, way: str = "use CREATE OR REPLACE MODEL or IF NOT EXISTS") -> IntegrityError:
    """Return the error for a model name that exists."""
    return IntegrityError(f"model {name!r} already exists; {way}")


def check_new_columns(names: Sequence[str], columns: Sequence[str], *, hint: str, folded: bool) -> None:
    """Raise BadArgument if rows have a column that a prediction would add.

    Args:
        names: The added columns.
        columns: The columns of the rows.
        hint: What to do instead.
        folded: Whether to ignore case.
    """
    fold = str.lower if folded else str
    known = {fold(name) for name in columns}
    if clash := [name for name in names if fold(name) in known]:
        raise BadArgument(f"the rows already have a column {clash[0]!r}, the name of the prediction; {hint}")


class Session(Protocol):
    """Interface of an engine's session."""

    def rows(self, sql: str, /) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""

    def interrupt(self) -> None:
        """Stop the statement that runs in another thread."""


class Models(Protocol):
    """Interface of an engine's stored models."""

    def exists(self, name: str) -> bool:
        """Return whether the session sees a model of this name."""

    def summaries(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return a summary of each model whose name matches a pattern."""

    def drop(self, name: str) -> None:
        """Remove a model."""

    def rename(self, name: str, to: str) -> None:
        """Rename a model."""


S = TypeVar("S", bound=Session)
M = TypeVar("M", bound=Models)


class BaseEngine(ABC, Generic[S, M]):
    """Base class of engines, which differ in how they store models.

    Attributes:
        session: The session.
        models: The stored models.
    """

    session: S
    models: M

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

        Raises:
            IntegrityError: The model exists, and the statement has neither OR REPLACE nor IF NOT EXISTS.
        """
        if train.name is None or (train.replace and not train.if_not_exists) or not self.models.exists(train.name):
            return None
        if not train.if_not_exists:
            raise name_taken(train.name)
        note = f"model {train.name!r} already exists; nothing was trained"
        return result_of(EPOCHS, [], [*train.notes, note])

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self.session.in_transaction()

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
