"""Who takes answers: one contract, for tables on a terminal, CSV and JSON."""

from typing import Protocol

from corgipile.sql.engines.engine import Result

__all__ = ["Answers"]


class Answers(Protocol):
    """Shows what statements answer, one after the other."""

    def show(self, result: Result) -> None:
        """Show an answer; its rows are fetched meanwhile."""

    def fail(self, kind: str, message: str, code: int) -> bool:
        """Take note of the error that ended it all; say whether the reader has been told by that."""

    def close(self) -> None:
        """Show what is still to be shown."""
