"""Which rows an epoch visits, in what order: counts, and where some rows stood."""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.codes import Codes
from corgipile.quality.points import Points

MOST_SAMPLED = 8192
FARTHEST = 4096  # rows between two visits of a rank that takes every M-th
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """Rows of an epoch that a hash chose, the same in every epoch: their hashes, row numbers, visits and batches."""

    hashes: Hashes
    ids: Codes
    at: Codes
    batches: Codes


class VisitWatch:
    """Follow the rows that one rank visits in one epoch.

    One byte a row of the table where ``rows`` is known, eight a visit where it is not or rows are known by text.

    Args:
        rows: Rows of the table, numbered from 0; None if that is not known.
    """

    def __init__(self, rows: int | None) -> None:
        self.rows, self.named = rows, False
        self.visits = self.batches = self.foreign = 0
        self.hash_sum = 0
        self.sizes: dict[int, int] = {}
        self.by_rank: list[int] = []
        self._seen: npt.NDArray[Any] = np.zeros(rows or 0, np.bool_)
        self._hashes: list[Hashes] = []
        self._bound = np.uint64(2**64 - 1)
        self._sample: list[Sample] = []
        self._last: Codes = np.zeros(0, np.int64)
        self.runs = Points(2)

    def add(self, values: npt.NDArray[Any], sizes: Codes) -> None:
        """Take the rows of some batches, one after the other, and how many each has."""
        ids = self._numbers(values)
        hashes = mixed(ids)
        self._cover(ids, hashes)
        self._follow(ids, hashes, np.repeat(np.arange(len(sizes)) + self.batches, sizes))
        self._add_runs(ids, sizes)
        self.visits += len(ids)
        self.batches += len(sizes)
        for size, times in zip(*np.unique(sizes, return_counts=True), strict=True):
            self.sizes[int(size)] = self.sizes.get(int(size), 0) + int(times)

    def merge(self, other: Self) -> None:
        """Add what another rank visited."""
        self.by_rank = [*(self.by_rank or [self.visits]), *(other.by_rank or [other.visits])]
        self.named |= other.named
        self.foreign += other.foreign
        self.visits += other.visits
        self.hash_sum = (self.hash_sum + other.hash_sum) % 2**64
        self._seen = self._seen | other._seen
        self._hashes += other._hashes
        self.runs.merge(other.runs)
        for size, times in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0) + times
        self._bound = min(self._bound, other._bound)
        moved = [Sample(s.hashes, s.ids, s.at, s.batches + self.batches) for s in other._sample]
        self._sample += moved
        self.batches += other.batches

    def close(self) -> None:
        """Keep what is needed after the epoch: a bit a row."""
        self._seen = np.packbits(self._seen)

    @property
    def distinct(self) -> int:
        """Return how many of the table's rows were visited; after `close`."""
        if self._hashes:
            self._hashes = [np.unique(np.concatenate(self._hashes))]
        return int(np.unpackbits(self._seen).sum(dtype=np.int64)) + sum(map(len, self._hashes))

    def each(self, rows: int) -> int:
        """Return how often each row was visited, if all were equally often; else 0."""
        times, rest = divmod(self.visits, rows)
        if self.foreign or rest or self.distinct != rows:
            return 0
        once = sum(int(h) for h in self._hashes[0]) if self._hashes else hash_of_all(rows)
        return times if times * once % 2**64 == self.hash_sum else 0

    def sample(self) -> Sample:
        """Return the rows that are followed, each where it was visited first."""
        names = ("hashes", "ids", "at", "batches")
        joined = [np.concatenate([getattr(part, name) for part in self._sample]) for name in names]
        chosen = joined[0] <= self._bound
        hashes, first = np.unique(joined[0][chosen], return_index=True)
        return Sample(hashes, *(values[chosen][first] for values in joined[1:]))

    def _numbers(self, values: npt.NDArray[Any]) -> Codes:
        if values.ndim != 1 or values.dtype.kind not in "iuSU":
            raise BadArgument(f"id holds {values.dtype} of shape {values.shape}; one row number or name a row is right")
        if values.dtype.kind in "iu":
            return values.astype(np.int64)
        self.named = True
        names = [name if isinstance(name, bytes) else name.encode() for name in values.tolist()]
        digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
        return np.frombuffer(digests, np.int64)

    def _add_runs(self, ids: Codes, sizes: Codes) -> None:
        """Count the visits that go on where the two before led: next row of the table, or of a rank's every M-th."""
        steps = np.diff(np.concatenate([self._last, ids]))
        goes_on = np.zeros(len(ids))
        along = (steps[1:] == steps[:-1]) & (steps[1:] != 0) & (np.abs(steps[1:]) <= FARTHEST)
        goes_on[len(ids) - len(along) :] = along[-len(ids) :]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.runs.add(np.column_stack([sizes, np.add.reduceat(goes_on, starts)]))
        self._last = np.concatenate([self._last, ids])[-2:]

    def _cover(self, ids: Codes, hashes: Hashes) -> None:
        self.hash_sum = (self.hash_sum + int(hashes.sum(dtype=np.uint64))) % 2**64
        if self.rows is None or self.named:
            self._hashes.append(hashes)
            if len(self._hashes) > 64:
                self._hashes = [np.unique(np.concatenate(self._hashes))]
            return
        inside = (ids >= 0) & (ids < self.rows)
        if not inside.all():
            self.foreign += int((~inside).sum())
            ids = ids[inside]
        self._seen[ids] = True

    def _follow(self, ids: Codes, hashes: Hashes, batches: Codes) -> None:
        chosen = np.flatnonzero(hashes <= self._bound)
        self._sample.append(Sample(hashes[chosen], ids[chosen], chosen + self.visits, batches[chosen]))
        if sum(len(part.hashes) for part in self._sample) > 2 * MOST_SAMPLED:
            whole = self.sample()
            if len(whole.hashes) > MOST_SAMPLED:
                self._bound = whole.hashes[MOST_SAMPLED]
            self._sample = [whole]


def mixed(ids: Codes) -> Hashes:
    """Hash row numbers (the finaliser of splitmix64).

    Example:
        >>> len(set(mixed(np.arange(1000)).tolist()))
        1000
    """
    value = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


def hash_of_all(rows: int) -> int:
    """Return the sum of the hashes of rows 0 to ``rows``, modulo 2^64."""
    step = 1 << 20
    parts = (mixed(np.arange(start, min(start + step, rows))) for start in range(0, rows, step))
    return sum(int(part.sum(dtype=np.uint64)) for part in parts) % 2**64
