"""Row visits of an epoch: counts, and the places of sampled rows."""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.quality.codes import Codes
from corgipile.quality.points import Points

MAX_SAMPLED = 8192
PARTS = 16  # equal parts of the table, by row number
MAX_DUPLICATED = 1 << 21  # hashes of visits that are stored before duplicates are removed
ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # bits of a byte
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """Rows of an epoch sampled by hash, the same in every epoch: hashes, row numbers, visits and batches."""

    hashes: Hashes
    ids: Codes
    at: Codes
    batches: Codes

    def select(self, which: npt.NDArray[np.intp]) -> "Sample":
        """Return a subset."""
        return Sample(self.hashes[which], self.ids[which], self.at[which], self.batches[which])

    def some(self, most: int) -> tuple[tuple[int, int], ...]:
        """Return numbers and places of at most ``most`` rows, those of the least hashes."""
        least = np.argsort(self.hashes)[:most]
        return tuple(zip(self.ids[least].tolist(), self.at[least].tolist(), strict=True))


class VisitWatch:
    """Records the rows that one rank visits in one epoch.

    Takes one bit per row of the table if ``rows`` is known, else, and for rows with text names, eight bytes per row.
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
        self._last: Codes = np.zeros(3, np.int64)  # the last two visits, latest first, and their number
        self._buffer: Codes = np.zeros(0, np.int64)
        self.runs = Points(2)

    def add(self, values: npt.NDArray[Any], sizes: Codes) -> Codes | None:
        """Record the rows of consecutive batches, and the rows per batch.

        Return the part of the table, of `PARTS`, that each row lies in, valid until the next call; None if unknown.
        """
        ids = self._numbers(values)
        rows = 0 if self.named else self.rows or 0
        select, places = self._buffers(len(ids))
        along = np.empty(len(sizes))
        # Visits that continue the step of the two before: the next row of the table, or a rank's next every M-th row.
        total, foreign, count = _kernel.visits_add(
            ids, sizes, self._seen, rows, int(self._bound), select, along, self._last, places if rows else None, PARTS
        )
        self.hash_sum = (self.hash_sum + total) % 2**64
        if rows:
            self.foreign += foreign
        else:
            self._keep(mixed(ids))
        self.runs.add(np.column_stack([sizes, along]))
        self._sample_visits(ids, select[:count], np.cumsum(sizes))
        self.visits += len(ids)
        self.batches += len(sizes)
        for size, times in zip(*np.unique(sizes, return_counts=True), strict=True):
            self.sizes[int(size)] = self.sizes.get(int(size), 0) + int(times)
        return places if rows else None

    def merge(self, other: Self) -> None:
        """Add the visits of another rank."""
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
        self._sample += [Sample(s.hashes, s.ids, s.at, s.batches + self.batches) for s in other._sample]
        self.batches += other.batches

    def __getstate__(self) -> dict[str, Any]:
        """Leave out buffers."""
        return {**self.__dict__, "_buffer": self._buffer[:0]}

    @property
    def distinct(self) -> int:
        """Return the number of distinct rows visited."""
        self._compact()
        return int(ONES[self._seen.view(np.uint8)].sum(dtype=np.int64)) + sum(map(len, self._hashes))

    def each(self, rows: int) -> int:
        """Return the visits per row if all rows have equally many, else 0."""
        times, rest = divmod(self.visits, rows)
        if self.foreign or rest or self.distinct != rows:
            return 0
        once = sum(int(h) for h in self._hashes[0]) if self._hashes else hash_of_all(rows)
        return times if times * once % 2**64 == self.hash_sum else 0

    def sample(self) -> Sample:
        """Return the sampled rows, each at its first visit."""
        sampled = self._joined_sample()
        return sampled.select(np.unique(sampled.hashes, return_index=True)[1])

    def _numbers(self, values: npt.NDArray[Any]) -> Codes:
        if values.ndim != 1 or values.dtype.kind not in "iuSU":
            raise BadArgument(f"id must be one row number or name per row, got {values.dtype} of shape {values.shape}")
        if values.dtype.kind in "iu":
            return np.ascontiguousarray(values, np.int64)
        self.named = True
        names = [name if isinstance(name, bytes) else name.encode() for name in values.tolist()]
        digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
        return np.frombuffer(digests, np.int64)

    def _buffers(self, rows: int) -> tuple[Codes, Codes]:
        """Return two reused arrays to write to; new memory costs several times as much."""
        if len(self._buffer) < 2 * rows:
            self._buffer = np.empty(2 * rows, np.int64)
        return self._buffer[:rows], self._buffer[rows : 2 * rows]

    def _keep(self, hashes: Hashes) -> None:
        self._hashes.append(hashes)
        if sum(map(len, self._hashes)) > max(MAX_DUPLICATED, 2 * self._compacted):
            self._compact()

    def _compact(self) -> None:
        if self._hashes:
            self._hashes = [np.unique(np.concatenate(self._hashes))]
            self._compacted = len(self._hashes[0])

    def _joined_sample(self) -> Sample:
        names = ("hashes", "ids", "at", "batches")
        joined = Sample(*(np.concatenate([getattr(part, name) for part in self._sample]) for name in names))
        return joined.select(np.flatnonzero(joined.hashes <= self._bound))

    def _sample_visits(self, ids: Codes, select: Codes, ends: Codes) -> None:
        """Record visits that the hash selects."""
        rows, batches = ids[select], np.searchsorted(ends, select, side="right") + self.batches
        self._sample.append(Sample(mixed(rows), rows, select + self.visits, batches))
        if sum(len(part.hashes) for part in self._sample) > 2 * MAX_SAMPLED:
            hashes = np.concatenate([part.hashes for part in self._sample])
            self._bound = min(self._bound, np.partition(hashes, MAX_SAMPLED)[MAX_SAMPLED])
            sampled = self._joined_sample()
            self._sample = [sampled if len(sampled.hashes) <= 2 * MAX_SAMPLED else self.sample()]


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
    step = 1 << 16  # fits the CPU cache
    parts = (mixed(np.arange(start, min(start + step, rows))) for start in range(0, rows, step))
    return sum(int(part.sum(dtype=np.uint64)) for part in parts) % 2**64
