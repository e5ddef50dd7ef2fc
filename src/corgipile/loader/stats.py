"""How a loader is doing: what it delivered, what it read, who waited for whom."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["LoaderStats", "Meter", "Progress", "joined"]


class Progress(NamedTuple):
    """How far one pass is.

    Attributes:
        waited: Seconds that the consumer waited for rows.
        reader_waited: Seconds that the reader waited for room.
        ahead: Steps, or groups of batches, that were read and wait.
    """

    waited: float = 0.0
    reader_waited: float = 0.0
    ahead: int = 0


@dataclass(frozen=True)
class LoaderStats:
    """What a loader has done in the iteration under way, or in the last one that ended.

    Attributes:
        epoch: Its epoch.
        seconds: Since it began, until it ended.
        batches: Batches delivered, or skipped as asked; of an iteration that a state continued, since then.
        rows: Rows of these.
        waited: Seconds that the consumer waited for rows to be read: near ``seconds``, reading is what limits.
        reader_waited: Seconds that the reader had to wait for room: near ``seconds``, the consumer is what limits.
        bytes_read: Bytes of rows that were read: as they are stored, of encoded tables as they are decoded; what lies
            between short runs is read too, where that is faster than to ask twice.
        bytes_delivered: Bytes of the rows delivered, as batches have them; of varying length, by their mean.
        resident_bytes: Bytes of rows in memory now, those read ahead included.
        steps_ahead: Steps of the order that were read and wait for their visit; of wide rows, groups of batches.
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
        """Return rows by seconds, those of the consumer's own work included; 0.0 before the first."""
        return self.rows / self.seconds if self.rows else 0.0


def joined(found: Sequence[LoaderStats]) -> LoaderStats:
    """Return the stats of several workers as one: sums, the longest time, and waits of the mean worker.

    Example:
        >>> joined([LoaderStats(0, 2.0, 5, 50, waited=1.0), LoaderStats(0, 3.0, 4, 40)])
        LoaderStats(epoch=0, seconds=3.0, batches=9, rows=90, waited=0.5, reader_waited=0.0, ...)
    """
    of = {name: [getattr(one, name) for one in found] for name in LoaderStats.__dataclass_fields__}
    made: dict[str, Any] = {name: sum(values) for name, values in of.items()}
    made |= {name: max(of[name]) for name in ("epoch", "seconds")}
    made |= {name: made[name] / len(found) for name in ("waited", "reader_waited")}
    return LoaderStats(**made)


class Meter:
    """Says of one iteration what came since it began; asks when it is asked, so that it costs nothing else.

    Args:
        epoch: Its epoch.
        batches: Batches that were done when it began.
        batch_size: Rows of a batch.
        rows: Rows of the whole epoch.
        read: Bytes that had been read.
    """

    def __init__(self, epoch: int, batches: int, batch_size: int, rows: int, read: int) -> None:
        self.epoch, self._first, self._size, self._most, self._read = epoch, batches, batch_size, rows, read
        self._began = time.perf_counter()
        self._ended: LoaderStats | None = None

    def now(self, batches: int, read: int, row_bytes: float, resident: int, progress: Progress) -> LoaderStats:
        """Return how things stand, or stood at the end."""
        if self._ended is not None:
            return self._ended
        rows = min(batches * self._size, self._most) - min(self._first * self._size, self._most)
        seconds = time.perf_counter() - self._began
        return LoaderStats(
            self.epoch, seconds, batches - self._first, rows, progress.waited, progress.reader_waited,
            read - self._read, round(rows * row_bytes), resident, progress.ahead,
        )  # fmt: skip

    def end(self, stats: LoaderStats) -> None:
        """Keep how things stand for good."""
        self._ended = self._ended or stats
