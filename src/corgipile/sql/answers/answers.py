"""Interface of the result writers."""

from corgipile.sql.engines.engine import Result

__all__ = ["Answers"]


class Answers:
    """Writes the results of statements in turn; those that write at once need nothing to fail and close."""

    def show(self, result: Result) -> None:
        """Write a result while its rows are fetched."""
        raise NotImplementedError

    def fail(self, kind: str, message: str, code: int) -> bool:
        """Record the error that ended the script; return whether the output shows it."""
        return False

    def close(self) -> None:
        """Write what is left."""
