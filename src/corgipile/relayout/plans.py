"""Plans of a re-layout: the pile of each row, and each pile's order. A uniform shuffle, or a split into blocks."""

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import random
from corgipile.tables.spans import flat

Ints = npt.NDArray[np.int64]

BLOCK_COLUMN = "corgipile.block"
MAX_PILES = 256
_DEAL, _ORDER = 1, 2


class Plan(Protocol):
    """Assigns rows to piles and orders each pile."""

    @property
    def most(self) -> int:
        """Return the maximum number of piles."""

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Return each row's pile, after ``start`` rows dealt before."""

    def within(self, pile: int, count: int) -> Self:
        """Return the plan of one pile's rows."""

    def order(self, batch: pa.RecordBatch) -> Ints:
        """Return the final order of a pile's rows."""


class Shuffle:
    """Makes all permutations equally likely.

    Each row draws its pile, each pile is shuffled, and piles are concatenated; by symmetry all permutations are equally
    likely (Rao 1961).
    """

    most = MAX_PILES

    def __init__(self, key: int) -> None:
        self._key = key

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Draw each row's pile."""
        draws = random.randoms(random.derive(self._key, _DEAL), start, batch.num_rows)
        return (draws % np.uint64(count)).astype(np.int64)

    def within(self, pile: int, count: int) -> "Shuffle":
        """Return a shuffle with a derived key."""
        return Shuffle(random.derive(self._key, count, pile))

    def order(self, batch: pa.RecordBatch) -> Ints:
        """Draw the order of a pile."""
        rows = np.arange(batch.num_rows, dtype=np.int64)
        random.shuffle(rows, random.derive(self._key, _ORDER))
        return rows


class Split:
    """Gathers the rows of each block, in order.

    Column ``corgipile.block`` holds each row's block.
    """

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    @property
    def most(self) -> int:
        """Return the number of blocks, limited by the number of pile files."""
        return min(MAX_PILES, self._high - self._low)

    def piles(self, batch: pa.RecordBatch, start: int, count: int) -> Ints:
        """Return each row's pile, a run of blocks."""
        piles: Ints = (_blocks(batch) - self._low) * count // (self._high - self._low)
        return piles

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
