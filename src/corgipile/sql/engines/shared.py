"""What every engine does alike: transactions, and statements about models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Result
from corgipile.sql.engines.results import EPOCHS, MODELS, PROPERTIES, result_of
from corgipile.sql.exceptions import IntegrityError
from corgipile.sql.statements import DescribeModel, DropModel, RenameModel, ShowModels, Train

__all__ = ["Shared", "check_added", "taken"]


def taken(name: str, way: str = "CREATE OR REPLACE MODEL writes it anew, IF NOT EXISTS leaves it") -> IntegrityError:
    """Make the error of a model whose name another has."""
    return IntegrityError(f"there is a model {name!r} already; {way}")


def check_added(names: Sequence[str], there: Sequence[str], *, hint: str, folded: bool) -> None:
    """Raise BadArgument if rows have a column that a prediction would add.

    Args:
        names: The added columns.
        there: The columns of the rows.
        hint: What to do instead.
        folded: Whether to ignore case.
    """
    alike = str.lower if folded else str
    known = {alike(name) for name in there}
    if twice := [name for name in names if alike(name) in known]:
        raise BadArgument(f"the rows already have a column {twice[0]!r}, the name of the prediction; {hint}")


class Session(Protocol):
    """What sessions of all engines do."""

    def rows(self, sql: str, /) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    def in_transaction(self) -> bool:
        """Say whether a transaction is open."""

    def interrupt(self) -> None:
        """Stop what another thread of this process runs."""


class Models(Protocol):
    """What the models of all engines are asked."""

    def there(self, name: str) -> bool:
        """Say whether there is a model of this name that the session sees."""

    def listed(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return what is listed of models, of those whose name matches a pattern."""

    def drop(self, name: str) -> None:
        """Remove a model."""

    def rename(self, name: str, to: str) -> None:
        """Give a model another name."""


S = TypeVar("S", bound=Session)
M = TypeVar("M", bound=Models)


class Shared(ABC, Generic[S, M]):
    """What a session does whose statements about models differ in nothing but where these are.

    Attributes:
        session: The session.
        models: Its models.
    """

    session: S
    models: M

    def drop(self, statement: DropModel) -> Result:
        """Remove a model."""
        self._begin()
        if statement.if_exists and not self.models.there(statement.name):
            return Result(notes=[*statement.notes, f"there is no model {statement.name!r}"])
        self.models.drop(statement.name)
        return Result(notes=list(statement.notes))

    def rename(self, statement: RenameModel) -> Result:
        """Give a model another name."""
        self._begin()
        there = self.models.there(statement.name)
        if statement.if_exists and not there:
            return Result(notes=[*statement.notes, f"there is no model {statement.name!r}"])
        if there and statement.name != statement.to and self.models.there(statement.to):
            raise taken(statement.to, "drop it first")
        self.models.rename(statement.name, statement.to)
        return Result(notes=list(statement.notes))

    def show(self, statement: ShowModels) -> Result:
        """Answer the models."""
        self._begin()
        return result_of(MODELS, self.models.listed(statement.like), statement.notes)

    def describe(self, statement: DescribeModel) -> Result:
        """Answer what is known of a model."""
        self._begin()
        return result_of(PROPERTIES, self._described(statement.name), statement.notes)

    @abstractmethod
    def _described(self, name: str) -> list[dict[str, str]]:
        """Return what is known of a model, a property a row."""

    @abstractmethod
    def _begin(self) -> None:
        """Hear that a statement begins."""

    def _kept(self, train: Train) -> Result | None:
        """Return the answer of a training that is not to be, since its model is there; None where it is to be.

        Raises:
            IntegrityError: The statement says nothing of a model that is there.
        """
        if train.name is None or (train.replace and not train.if_not_exists) or not self.models.there(train.name):
            return None
        if not train.if_not_exists:
            raise taken(train.name)
        told = f"there is a model {train.name!r} already; nothing was trained"
        return result_of(EPOCHS, [], [*train.notes, told])

    def in_transaction(self) -> bool:
        """Say whether a transaction is open."""
        return self.session.in_transaction()

    def begin(self) -> None:
        """Begin a transaction."""
        self.session.rows("BEGIN")

    def commit(self) -> None:
        """Keep what was done; nothing happens where no transaction is open."""
        if self.session.in_transaction():
            self.session.rows("COMMIT")

    def rollback(self) -> None:
        """Take back what was done; nothing happens where no transaction is open."""
        if self.session.in_transaction():
            self.session.rows("ROLLBACK")

    def interrupt(self) -> None:
        """Stop what another thread of this process runs."""
        self.session.interrupt()
