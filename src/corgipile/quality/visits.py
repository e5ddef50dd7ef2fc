"""Which rows an epoch visits, in what order: counts, and where some rows stood."""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.quality.codes import Codes
from corgipile.quality.points import Points

MOST_SAMPLED = 8192
PARTS = 16  # of the table, which a row's number tells apart
COMPACTED = 1 << 21  # hashes of visits that are kept before those that are alike become one
ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # bits of a byte
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """Rows of an epoch that a hash chose, the same in every epoch: their hashes, row numbers, visits and batches."""

    hashes: Hashes
    ids: Codes
    at: Codes
    batches: Codes

    def chosen(self, which: npt.NDArray[np.intp]) -> "Sample":
        """Return some of them."""
        return Sample(self.hashes[which], self.ids[which], self.at[which], self.batches[which])

    def some(self, most: int) -> tuple[tuple[int, int], ...]:
        """Return numbers and places of some rows, those of the least hashes."""
        few = np.argsort(self.hashes)[:most]
        return tuple(zip(self.ids[few].tolist(), self.at[few].tolist(), strict=True))


class VisitWatch:
    """Follow the rows that one rank visits in one epoch.

    One bit a row of the table where ``rows`` is known, eight bytes a row where it is not or rows are known by text.

    Args:
        rows: Rows of the table, numbered from 0; None if that is not known.
    """

    def __init__(self, rows: int | None) -> None:
        self.rows, self.named = rows, False
        self.visits = self.batches = self.foreign = 0
        self.hash_sum = 0
        self.sizes: dict[int, int] = {}
        self.by_rank: list[int] = []
        self._seen: Hashes = np.zeros(-(-(rows or 0) // 64), np.uint64)
        self._hashes: list[Hashes] = []
        self._compacted = 0
        self._bound = np.uint64(2**64 - 1)
        self._sample: list[Sample] = []
        self._last: Codes = np.zeros(3, np.int64)  # visits before, the later one first, and how many of them there were
        self._room: Codes = np.zeros(0, np.int64)
        self.runs = Points(2)

    def add(self, values: npt.NDArray[Any], sizes: Codes) -> Codes | None:
        """Take the rows of some batches, one after the other, and how many each has.

        Returns:
            The part of the table that each row lies in, of `PARTS`, until the next call; None where that is not known.
        """
        ids = self._numbers(values)
        rows = 0 if self.named else self.rows or 0
        chosen, places = self._rooms(len(ids))
        along = np.empty(len(sizes))
        # Visits that go on where the two before led: the next row of the table, or of a rank's every M-th.
        total, foreign, count = _kernel.visits_add(
            ids, sizes, self._seen, rows, int(self._bound), chosen, along, self._last, places if rows else None, PARTS
        )
        self.hash_sum = (self.hash_sum + total) % 2**64
        if rows:
            self.foreign += foreign
        else:
            self._keep(mixed(ids))
        self.runs.add(np.column_stack([sizes, along]))
        self._follow(ids, chosen[:count], np.cumsum(sizes))
        self.visits += len(ids)
        self.batches += len(sizes)
        for size, times in zip(*np.unique(sizes, return_counts=True), strict=True):
            self.sizes[int(size)] = self.sizes.get(int(size), 0) + int(times)
        return places if rows else None

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

    def __getstate__(self) -> dict[str, Any]:
        """Leave out memory to write to."""
        return {**self.__dict__, "_room": self._room[:0]}

    @property
    def distinct(self) -> int:
        """Return how many of the table's rows were visited."""
        self._compact()
        return int(ONES[self._seen.view(np.uint8)].sum(dtype=np.int64)) + sum(map(len, self._hashes))

    def each(self, rows: int) -> int:
        """Return how often each row was visited, if all were equally often; else 0."""
        times, rest = divmod(self.visits, rows)
        if self.foreign or rest or self.distinct != rows:
            return 0
        once = sum(int(h) for h in self._hashes[0]) if self._hashes else hash_of_all(rows)
        return times if times * once % 2**64 == self.hash_sum else 0

    def sample(self) -> Sample:
        """Return the rows that are followed, each where it was visited first."""
        kept = self._kept()
        return kept.chosen(np.unique(kept.hashes, return_index=True)[1])

    def _numbers(self, values: npt.NDArray[Any]) -> Codes:
        if values.ndim != 1 or values.dtype.kind not in "iuSU":
            raise BadArgument(f"id holds {values.dtype} of shape {values.shape}; one row number or name a row is right")
        if values.dtype.kind in "iu":
            return np.ascontiguousarray(values, np.int64)
        self.named = True
        names = [name if isinstance(name, bytes) else name.encode() for name in values.tolist()]
        digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
        return np.frombuffer(digests, np.int64)

    def _rooms(self, rows: int) -> tuple[Codes, Codes]:
        """Return two arrays to write to, the same as before: memory that is fresh costs several times as much."""
        if len(self._room) < 2 * rows:
            self._room = np.empty(2 * rows, np.int64)
        return self._room[:rows], self._room[rows : 2 * rows]

    def _keep(self, hashes: Hashes) -> None:
        self._hashes.append(hashes)
        if sum(map(len, self._hashes)) > max(COMPACTED, 2 * self._compacted):
            self._compact()

    def _compact(self) -> None:
        if self._hashes:
            self._hashes = [np.unique(np.concatenate(self._hashes))]
            self._compacted = len(self._hashes[0])

    def _kept(self) -> Sample:
        names = ("hashes", "ids", "at", "batches")
        joined = Sample(*(np.concatenate([getattr(part, name) for part in self._sample]) for name in names))
        return joined.chosen(np.flatnonzero(joined.hashes <= self._bound))

    def _follow(self, ids: Codes, chosen: Codes, ends: Codes) -> None:
        """Take visits that a hash chose."""
        rows, batches = ids[chosen], np.searchsorted(ends, chosen, side="right") + self.batches
        self._sample.append(Sample(mixed(rows), rows, chosen + self.visits, batches))
        if sum(len(part.hashes) for part in self._sample) > 2 * MOST_SAMPLED:
            hashes = np.concatenate([part.hashes for part in self._sample])
            self._bound = min(self._bound, np.partition(hashes, MOST_SAMPLED)[MOST_SAMPLED])
            kept = self._kept()
            self._sample = [kept if len(kept.hashes) <= 2 * MOST_SAMPLED else self.sample()]


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
    step = 1 << 16  # in a cache, and hardly any memory
    parts = (mixed(np.arange(start, min(start + step, rows))) for start in range(0, rows, step))
    return sum(int(part.sum(dtype=np.uint64)) for part in parts) % 2**64
