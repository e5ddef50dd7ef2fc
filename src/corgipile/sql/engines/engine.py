"""Parameter values, results and progress of statements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["Progress", "Result", "Values"]

Values = Sequence[Any] | Mapping[str, Any]


@dataclass
class Result:
    """The result of a statement; its rows are fetched lazily.

    ``schema`` is None if it returns no rows, ``count`` the number of changed rows, or -1 if unknown.
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
