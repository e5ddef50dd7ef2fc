"""Longest gaps between visits of a class, compared with a full shuffle."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from corgipile.quality.codes import Codes


@dataclass(frozen=True)
class Gap:
    """The longest gap of the most unevenly spread class.

    Attributes:
        kind: The class.
        rows: Rows of the class in the epoch.
        gap: Visits of other classes between two of its rows, before the first or after the last.
        expected: The mean longest gap in a full shuffle.
        chance: Probability that a full shuffle has such a gap in any class.
    """

    kind: Any
    rows: int
    gap: int
    expected: float
    chance: float

    @property
    def ratio(self) -> float:
        """Return the gap as a multiple of a full shuffle's."""
        return self.gap / self.expected


class Gaps:
    """Tracks the last visit and the longest gap of each class."""

    def __init__(self) -> None:
        self._parts: list[tuple[Codes, Codes, int]] = []
        self._last: Codes = np.zeros(0, np.int64)
        self._longest: Codes = np.zeros(0, np.int64)
        self._rows: Codes = np.zeros(0, np.int64)

    def room(self, kinds: int) -> tuple[Codes, Codes]:
        """Return the last visit and longest gap of each class, for the kernel to update."""
        grown = kinds - len(self._last)
        if grown > 0:
            self._last = np.pad(self._last, (0, grown), constant_values=-1)
            self._longest, self._rows = np.pad(self._longest, (0, grown)), np.pad(self._rows, (0, grown))
        return self._last, self._longest

    def count(self, rows: Codes) -> None:
        """Add the new rows of each class."""
        self._rows += rows

    def merge(self, other: Self) -> None:
        """Add another rank, whose gaps are within its own rows."""
        self._parts += other.parts()

    def renumber(self, codes: Codes, kinds: int) -> None:
        """Renumber the classes."""
        parts = []
        for rows, longest, total in self.parts():
            renumbered = np.zeros((2, kinds), np.int64)
            renumbered[:, codes[: len(rows)]] = rows, longest
            parts.append((renumbered[0], renumbered[1], total))
        self._parts = parts
        self._last = self._longest = self._rows = np.zeros(0, np.int64)

    def parts(self) -> list[tuple[Codes, Codes, int]]:
        """Return rows and longest gaps per class, and visits, for each rank."""
        rows = int(self._rows.sum())
        longest = np.maximum(self._longest, rows - 1 - self._last)
        return [(self._rows, longest, rows), *self._parts] if rows else self._parts

    def worst(self, names: list[Any]) -> Gap | None:
        """Return the gap least likely in a full shuffle."""
        gaps = [gap for part in self.parts() for gap in _gaps_of(part, names)]
        return min(gaps, key=lambda gap: (gap.chance, -gap.ratio), default=None)


def _gaps_of(part: tuple[Codes, Codes, int], names: list[Any]) -> list[Gap]:
    """Return the gaps of one rank.

    The m + 1 gaps of m rows among n are spacings of uniform draws. The longest is n/(m + 1) times the harmonic number
    of m + 1 on average, and exceeds g with probability at most (m + 1)(1 - g/n)^m.
    """
    rows, longest, total = part
    kinds = np.flatnonzero((rows > 0) & (rows < total))
    gaps = []
    for kind in kinds.tolist():
        count, gap = int(rows[kind]), int(longest[kind])
        harmonic = float(np.sum(1 / np.arange(1, count + 2))) if count < 1000 else float(np.log(count + 1) + 0.5772)
        chance = np.exp(min(0.0, np.log(count + 1) + count * np.log1p(-min(gap / total, 1 - 1e-12))))
        gaps.append(Gap(names[kind], count, gap, total / (count + 1) * harmonic, min(1.0, float(chance) * len(kinds))))
    return gaps
