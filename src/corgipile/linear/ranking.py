"""The area under a curve, exact, of any number of scores: sorted in memory, beyond some of them on disk."""

import math
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from corgipile.errors import WriteFailed
from corgipile.tables.io.spill import nameless, spill_folder, writing

__all__ = ["Ranking"]

FloatArray = npt.NDArray[np.float64]
AT_ONCE = 1 << 17  # scores of a run, and of all runs while they are merged
LINE = 24  # bytes: a score, and what the rows of either side count for that have it


class Ranking:
    """Scores of two sides, of which the share of pairs that stand in order is asked.

    Example:
        >>> ranks = Ranking()
        >>> ranks.add(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]), np.ones(4))
        >>> ranks.area()
        0.875
    """

    def __init__(self) -> None:
        self._waiting: list[FloatArray] = []
        self._count, self._runs, self._file = 0, list[int](), -1

    def add(self, scores: npt.NDArray[np.floating], mine: npt.NDArray[np.bool_], weights: FloatArray) -> None:
        """Take in rows: scores, whether they are of the side that should have larger ones, what they count for."""
        for start in range(0, len(scores), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            own = np.where(mine[some], weights[some], 0.0)
            self._waiting.append(_sorted(np.column_stack([scores[some], own, weights[some] - own])))
            self._count += len(self._waiting[-1])
            if self._count > AT_ONCE:
                self._waiting = [_sorted(np.concatenate(self._waiting))]
                self._count = len(self._waiting[0])
            if self._count > AT_ONCE:
                self._spill()

    def area(self) -> float | None:
        """Return the share of pairs, a row of each side, of which the first has the larger score, equal ones a half.

        None where a side has no rows, or none that count. What was taken in is used up.
        """
        mine = others = 0.0
        parts = [_sorted(np.concatenate(self._waiting))] if self._waiting else []
        self._waiting = []
        for part in self._merged(parts):
            mine, others = mine + float(part[:, 1].sum()), others + float(part[:, 2].sum())
        if not (mine and others):
            self.close()
            return None
        # Products of weights may be beyond what numbers hold; a power of two rounds none.
        unit, area, below = 2.0 ** (math.frexp(mine)[1] - 1), 0.0, 0.0
        for part in self._merged(parts):
            own, rest = part[:, 1] / unit, part[:, 2]
            above = below + np.cumsum(rest)
            area += float(own @ (above - rest / 2))
            below = float(above[-1])
        self.close()
        return min(1.0, area / (mine / unit * others))

    def close(self) -> None:
        """Let go of what is on disk."""
        if self._file >= 0:
            os.close(self._file)
        self._runs, self._file = [], -1

    def __del__(self) -> None:
        """Let go of it where nobody asked."""
        self.close()

    def _spill(self) -> None:
        """Write what waits as one more run."""
        folder = spill_folder(None)
        if folder is None:
            raise WriteFailed(0, "so many scores are sorted on disk, and CORGIPILE_SPILL is off: name a folder by it")
        with writing(folder):
            if self._file < 0:
                self._file = nameless(folder)
            rest, at = memoryview(self._waiting[0].tobytes()), LINE * sum(self._runs)
            while rest:
                done = os.pwrite(self._file, rest, at)
                rest, at = rest[done:], at + done
        self._runs.append(len(self._waiting[0]))
        self._waiting, self._count = [], 0

    def _merged(self, parts: list[FloatArray]) -> Iterator[FloatArray]:
        """Yield all lines by their scores, those of one score as one."""
        some = max(16, AT_ONCE // max(1, len(self._runs)))
        left = [_Run(self._file, LINE * sum(self._runs[:at]), rows, some) for at, rows in enumerate(self._runs)]
        left += [_Run(-1, 0, 0, some, part) for part in parts]
        while left := [run for run in left if run.look()]:
            # What is to come of a run lies above what it shows.
            bound = min((float(run.lines[-1, 0]) for run in left if run.more), default=np.inf)
            yield _sorted(np.concatenate([run.take(bound) for run in left]))


class _Run:
    """Sorted lines of a file, of which some are in memory."""

    def __init__(self, file: int, offset: int, rows: int, some: int, lines: FloatArray | None = None) -> None:
        self._file, self._offset, self.more, self._some = file, offset, rows, some
        self.lines = np.empty((0, 3)) if lines is None else lines

    def look(self) -> bool:
        """Have lines in memory; say whether there are any."""
        if not len(self.lines) and self.more:
            rows = min(self.more, self._some)
            content = os.pread(self._file, rows * LINE, self._offset)
            self.lines = np.frombuffer(content).reshape(-1, 3)
            self._offset, self.more = self._offset + len(content), self.more - len(self.lines)
        return len(self.lines) > 0

    def take(self, bound: float) -> FloatArray:
        """Return the lines up to a score, which are then gone."""
        at = int(np.searchsorted(self.lines[:, 0], bound, "right"))
        taken, self.lines = self.lines[:at], self.lines[at:]
        return taken


def _sorted(lines: FloatArray) -> FloatArray:
    """Return lines by their scores, those of one score as one."""
    scores, place = np.unique(lines[:, 0], return_inverse=True)
    sums = [np.bincount(place, lines[:, side], len(scores)) for side in (1, 2)]
    return np.column_stack([scores, *sums])
