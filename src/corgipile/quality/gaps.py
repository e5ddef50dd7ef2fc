"""The longest stretch of an epoch without a kind of row, beside that of a full shuffle."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from corgipile.quality.codes import Codes


@dataclass(frozen=True)
class Gap:
    """The longest gap of the kind that is spread worst.

    Attributes:
        kind: The class.
        rows: Its rows in the epoch.
        gap: Visits of others between two of its rows, or before the first or after the last.
        expected: What a full shuffle has on average.
        chance: How often a full shuffle has so long a gap, in any of the classes.
    """

    kind: Any
    rows: int
    gap: int
    expected: float
    chance: float

    @property
    def ratio(self) -> float:
        """Return how many times as long it is as a full shuffle's."""
        return self.gap / self.expected


class Gaps:
    """Keep the last visit and the longest gap of each class."""

    def __init__(self) -> None:
        self._parts: list[tuple[Codes, Codes, int]] = []
        self._last: Codes = np.zeros(0, np.int64)
        self._longest: Codes = np.zeros(0, np.int64)
        self._rows: Codes = np.zeros(0, np.int64)

    def room(self, kinds: int) -> tuple[Codes, Codes]:
        """Return the last visit and the longest gap of each of so many classes, for the kernel to go on with."""
        grown = kinds - len(self._last)
        if grown > 0:
            self._last = np.pad(self._last, (0, grown), constant_values=-1)
            self._longest, self._rows = np.pad(self._longest, (0, grown)), np.pad(self._rows, (0, grown))
        return self._last, self._longest

    def count(self, rows: Codes) -> None:
        """Add the rows of each class that came since."""
        self._rows += rows

    def merge(self, other: Self) -> None:
        """Take what another rank saw: its gaps are those of its own rows."""
        self._parts += other.parts()

    def place(self, codes: Codes, kinds: int) -> None:
        """Give classes other codes."""
        found = []
        for rows, longest, total in self.parts():
            placed = np.zeros((2, kinds), np.int64)
            placed[:, codes[: len(rows)]] = rows, longest
            found.append((placed[0], placed[1], total))
        self._parts = found
        self._last = self._longest = self._rows = np.zeros(0, np.int64)

    def parts(self) -> list[tuple[Codes, Codes, int]]:
        """Return rows and longest gaps of the classes, and visits, a rank."""
        rows = int(self._rows.sum())
        longest = np.maximum(self._longest, rows - 1 - self._last)
        return [(self._rows, longest, rows), *self._parts] if rows else self._parts

    def worst(self, names: list[Any]) -> Gap | None:
        """Return the class whose gap is the least likely one of a full shuffle."""
        found = [gap for part in self.parts() for gap in _gaps_of(part, names)]
        return min(found, key=lambda gap: (gap.chance, -gap.ratio), default=None)


def _gaps_of(part: tuple[Codes, Codes, int], names: list[Any]) -> list[Gap]:
    """Return the gaps of one rank.

    Of m rows among n the m + 1 gaps are spacings of uniform draws: the longest is n/(m + 1) times the harmonic number
    of m + 1 on average, and above g with a chance of at most (m + 1)(1 - g/n)^m.
    """
    rows, longest, total = part
    kinds = np.flatnonzero((rows > 0) & (rows < total))
    found = []
    for kind in kinds.tolist():
        count, gap = int(rows[kind]), int(longest[kind])
        harmonic = float(np.sum(1 / np.arange(1, count + 2))) if count < 1000 else float(np.log(count + 1) + 0.5772)
        chance = np.exp(min(0.0, np.log(count + 1) + count * np.log1p(-min(gap / total, 1 - 1e-12))))
        found.append(Gap(names[kind], count, gap, total / (count + 1) * harmonic, min(1.0, float(chance) * len(kinds))))
    return found
