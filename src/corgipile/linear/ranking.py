"""Exact area under the ROC curve of any number of scores: sorted in memory, or on disk above a limit."""

import math
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from corgipile.errors import WriteFailed
from corgipile.tables.io.spill import nameless, spill_folder, writing

__all__ = ["Ranking"]

FloatArray = npt.NDArray[np.float64]
RUN_SCORES = 1 << 17  # scores of a sorted run, and of all runs together while merged
RECORD_BYTES = 24  # a score and the weights of either side


class Ranking:
    """Scores of two classes, for the share of correctly ordered pairs.

    Example:
        >>> ranks = Ranking()
        >>> ranks.add(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]), np.ones(4))
        >>> ranks.area()
        0.875
    """

    def __init__(self) -> None:
        self._buffered: list[FloatArray] = []
        self._count, self._runs, self._file = 0, list[int](), -1

    def add(self, scores: npt.NDArray[np.floating], positive: npt.NDArray[np.bool_], weights: FloatArray) -> None:
        """Add rows: scores, whether they are of the positive class, and weights."""
        for start in range(0, len(scores), RUN_SCORES):
            part = slice(start, start + RUN_SCORES)
            own = np.where(positive[part], weights[part], 0.0)
            self._buffered.append(_sorted(np.column_stack([scores[part], own, weights[part] - own])))
            self._count += len(self._buffered[-1])
            if self._count > RUN_SCORES:
                self._buffered = [_sorted(np.concatenate(self._buffered))]
                self._count = len(self._buffered[0])
            if self._count > RUN_SCORES:
                self._spill()

    def area(self) -> float | None:
        """Return the share of pairs of both classes whose positive has the larger score; ties count half.

        None if a class has no weight. The scores are consumed.
        """
        positive = negative = 0.0
        parts = [_sorted(np.concatenate(self._buffered))] if self._buffered else []
        self._buffered = []
        for part in self._merged(parts):
            positive, negative = positive + float(part[:, 1].sum()), negative + float(part[:, 2].sum())
        if not (positive and negative):
            self.close()
            return None
        # Products of weights may overflow; a power of two does not round.
        unit, area, below = 2.0 ** (math.frexp(positive)[1] - 1), 0.0, 0.0
        for part in self._merged(parts):
            positive_weights, rest = part[:, 1] / unit, part[:, 2]
            above = below + np.cumsum(rest)
            area += float(positive_weights @ (above - rest / 2))
            below = float(above[-1])
        self.close()
        return min(1.0, area / (positive / unit * negative))

    def close(self) -> None:
        """Close the spill file."""
        if self._file >= 0:
            os.close(self._file)
        self._runs, self._file = [], -1

    def __del__(self) -> None:
        """Close the spill file."""
        self.close()

    def _spill(self) -> None:
        """Write the buffered scores as one more run."""
        folder = spill_folder(None)
        if folder is None:
            raise WriteFailed(0, "this many scores need a spill file, and CORGIPILE_SPILL is off: set it to a folder")
        with writing(folder):
            if self._file < 0:
                self._file = nameless(folder)
            rest, at = memoryview(self._buffered[0].tobytes()), RECORD_BYTES * sum(self._runs)
            while rest:
                done = os.pwrite(self._file, rest, at)
                rest, at = rest[done:], at + done
        self._runs.append(len(self._buffered[0]))
        self._buffered, self._count = [], 0

    def _merged(self, parts: list[FloatArray]) -> Iterator[FloatArray]:
        """Yield all records in score order, equal scores merged."""
        some = max(16, RUN_SCORES // max(1, len(self._runs)))
        runs = [_Run(self._file, RECORD_BYTES * sum(self._runs[:at]), rows, some) for at, rows in enumerate(self._runs)]
        runs += [_Run(-1, 0, 0, some, part) for part in parts]
        while runs := [run for run in runs if run.fill()]:
            # later records of a run have scores above those in memory
            bound = min((float(run.records[-1, 0]) for run in runs if run.remaining), default=np.inf)
            yield _sorted(np.concatenate([run.take(bound) for run in runs]))


class _Run:
    """Sorted records of a file, partly in memory."""

    def __init__(self, file: int, offset: int, rows: int, read_rows: int, records: FloatArray | None = None) -> None:
        self._file, self._offset, self.remaining, self._read_rows = file, offset, rows, read_rows
        self.records = np.empty((0, 3)) if records is None else records

    def fill(self) -> bool:
        """Fill an empty buffer; return whether records are left."""
        if not len(self.records) and self.remaining:
            rows = min(self.remaining, self._read_rows)
            content = os.pread(self._file, rows * RECORD_BYTES, self._offset)
            self.records = np.frombuffer(content).reshape(-1, 3)
            self._offset, self.remaining = self._offset + len(content), self.remaining - len(self.records)
        return len(self.records) > 0

    def take(self, bound: float) -> FloatArray:
        """Remove and return the records up to a score."""
        at = int(np.searchsorted(self.records[:, 0], bound, "right"))
        result, self.records = self.records[:at], self.records[at:]
        return result


def _sorted(records: FloatArray) -> FloatArray:
    """Return records in score order, equal scores merged."""
    scores, place = np.unique(records[:, 0], return_inverse=True)
    sums = [np.bincount(place, records[:, side], len(scores)) for side in (1, 2)]
    return np.column_stack([scores, *sums])
