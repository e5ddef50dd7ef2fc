"""Loader statistics: rows delivered, bytes read, waiting times."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["LoaderStats", "Meter", "Progress", "joined"]


class Progress(NamedTuple):
    """Progress of a pass.

    Attributes:
        waited: Seconds that the consumer waited for rows.
        reader_waited: Seconds that the reader waited for free slots.
        ahead: Steps, or groups of batches, that are read but not visited.
    """

    waited: float = 0.0
    reader_waited: float = 0.0
    ahead: int = 0


@dataclass(frozen=True)
class LoaderStats:
    """Statistics of a loader's running or last iteration.

    Attributes:
        epoch: The epoch.
        seconds: Duration so far, or to the end.
        batches: Batches delivered or skipped; after a resume, those since then.
        rows: Rows of these batches.
        waited: Seconds that the consumer waited for rows: near ``seconds``, reading is the bottleneck.
        reader_waited: Seconds that the reader waited for free slots: near ``seconds``, the consumer is the bottleneck.
        bytes_read: Stored bytes read, or decoded bytes of encoded tables; gaps between short runs are included if
            reading them was faster than a second request.
        bytes_delivered: Bytes of the delivered rows; variable-length rows count with their mean.
        resident_bytes: Bytes of rows in memory now, read-ahead included.
        steps_ahead: Steps read but not visited; for wide rows, groups of batches.
    """

    epoch: int
    seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    waited: float = 0.0
    reader_waited: float = 0.0
    bytes_read: int = 0
    bytes_delivered: int = 0
    resident_bytes: int = 0
    steps_ahead: int = 0

    @property
    def rows_per_second(self) -> float:
        """Return rows per second, including the consumer's work; 0.0 before the first batch."""
        return self.rows / self.seconds if self.rows else 0.0


def joined(workers: Sequence[LoaderStats]) -> LoaderStats:
    """Combine the statistics of several workers: sums, the longest duration, mean waiting times.

    Example:
        >>> joined([LoaderStats(0, 2.0, 5, 50, waited=1.0), LoaderStats(0, 3.0, 4, 40)])
        LoaderStats(epoch=0, seconds=3.0, batches=9, rows=90, waited=0.5, reader_waited=0.0, ...)
    """
    values_of = {name: [getattr(worker, name) for worker in workers] for name in LoaderStats.__dataclass_fields__}
    totals: dict[str, Any] = {name: sum(values) for name, values in values_of.items()}
    totals |= {name: max(values_of[name]) for name in ("epoch", "seconds")}
    totals |= {name: totals[name] / len(workers) for name in ("waited", "reader_waited")}
    return LoaderStats(**totals)


class Meter:
    """Measures one iteration from its beginning, at no cost until it is read."""

    def __init__(self, epoch: int, batches: int, batch_size: int, rows: int, read: int) -> None:
        self.epoch, self._first, self._size, self._most, self._read = epoch, batches, batch_size, rows, read
        self._began = time.perf_counter()
        self._ended: LoaderStats | None = None

    def now(self, batches: int, read: int, row_bytes: float, resident: int, progress: Progress) -> LoaderStats:
        """Return the current statistics, or the final ones after the end."""
        if self._ended is not None:
            return self._ended
        rows = min(batches * self._size, self._most) - min(self._first * self._size, self._most)
        seconds = time.perf_counter() - self._began
        return LoaderStats(
            self.epoch, seconds, batches - self._first, rows, progress.waited, progress.reader_waited,
            read - self._read, round(rows * row_bytes), resident, progress.ahead,
        )  # fmt: skip

    def end(self, stats: LoaderStats) -> None:
        """Store the final statistics."""
        self._ended = self._ended or stats
