"""Interface of the result writers."""

from typing import Protocol

from corgipile.sql.engines.engine import Result

__all__ = ["Answers"]


class Answers(Protocol):
    """Writes the results of statements in turn."""

    def show(self, result: Result) -> None:
        """Write a result while its rows are fetched."""

    def fail(self, kind: str, message: str, code: int) -> bool:
        """Record the error that ended the script; return whether the output shows it."""

    def close(self) -> None:
        """Write what is left."""
