"""Transactions of a session, alike in every engine."""

from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Transactions"]


class Session(Protocol):
    """What sessions of all engines do."""

    def rows(self, sql: str, /) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    def in_transaction(self) -> bool:
        """Say whether a transaction is open."""

    def interrupt(self) -> None:
        """Stop what another thread of this process runs."""


S = TypeVar("S", bound=Session)


class Transactions(Generic[S]):
    """Begins, keeps and takes back what a session does.

    Attributes:
        session: The session.
    """

    session: S

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
