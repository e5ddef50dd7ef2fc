"""What goes to which pile, and how a pile is ordered: a uniform shuffle, or a split into blocks."""

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import random
from corgipile.tables.arrow.spans import flat

Ints = npt.NDArray[np.int64]

BLOCK_COLUMN = "corgipile.block"
MOST_PILES = 256
_DEAL, _ORDER = 1, 2


class Plan(Protocol):
    """Say where rows go."""

    @property
    def most(self) -> int:
        """Return the most piles that can be told apart."""

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Return the pile of each row; ``start`` rows were dealt before."""

    def within(self, pile: int, count: int) -> Self:
        """Return the plan of one pile's rows."""

    def order(self, batch: pa.RecordBatch) -> Ints:
        """Return the final order of a pile's rows."""


class Shuffle:
    """Give every permutation the same chance.

    Each row draws its pile, each pile is shuffled, and piles follow one another: by symmetry all permutations
    are equally likely (Rao 1961).
    """

    most = MOST_PILES

    def __init__(self, key: int) -> None:
        self._key = key

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Draw the pile of each row."""
        draws = random.randoms(random.derive(self._key, _DEAL), start, batch.num_rows)
        return (draws % np.uint64(count)).astype(np.int64)

    def within(self, pile: int, count: int) -> "Shuffle":
        """Return a shuffle with a key of its own."""
        return Shuffle(random.derive(self._key, count, pile))

    def order(self, batch: pa.RecordBatch) -> Ints:
        """Draw the order of a pile."""
        rows = np.arange(batch.num_rows, dtype=np.int64)
        random.shuffle(rows, random.derive(self._key, _ORDER))
        return rows


class Split:
    """Gather the rows of each block; rows keep their order within a block.

    The block of each row stands in column ``corgipile.block``.
    """

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    @property
    def most(self) -> int:
        """Return the number of blocks, up to the most piles that files allow."""
        return min(MOST_PILES, self._high - self._low)

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Return the pile of each row: runs of blocks."""
        found: Ints = (_blocks(batch) - self._low) * count // (self._high - self._low)
        return found

    def within(self, pile: int, count: int) -> "Split":
        """Return the split of one pile's run of blocks."""
        span = self._high - self._low
        low, high = (self._low - (-edge * span // count) for edge in (pile, pile + 1))
        return Split(low, high)

    def order(self, batch: pa.RecordBatch) -> Ints:
        """Sort rows by block."""
        return np.argsort(_blocks(batch), kind="stable")


def _blocks(batch: pa.RecordBatch) -> Ints:
    blocks: Ints = flat(batch.column(BLOCK_COLUMN))
    return blocks
