"""Ownership of rows when ranks keep a part each and exchange a fraction per epoch (partial local shuffling).

After Nguyen et al., "Why Globally Re-shuffle? Revisiting Data Shuffling in Large Scale Deep Learning" (IPDPS 2022).
The published code draws rows behind a barrier. Here the exchange is a pure function of seed and epoch: every rank
computes all transfers without communication.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from corgipile import random
from corgipile.errors import BadArgument
from corgipile.orders.order import IntArray
from corgipile.sizes import real, whole

__all__ = ["Exchange"]

PURPOSE = 0x65786368  # makes keys of this module unique
SLOTS, OFFSETS, RANKS, SHIFTS = range(4)


@dataclass(frozen=True)
class Exchange:
    """The transfers before each epoch; a unit is a row or a block of rows.

    Rank r of M begins with units ``r N / M`` to ``(r + 1) N / M``, one per slot. Between epochs e and e + 1 each rank
    sends ``Q N / M`` units; fractions of a unit carry over. Its j-th unit is that of slot ``sent(...)[j]``: the j-th
    units of all ranks move along one cycle through all ranks, and the received unit takes the free slot. So each rank
    sends and receives equally many, none to itself, and of M - 1 consecutive units one to each other rank. Slots and
    cycles are keyed bijections: memory does not grow with N, and a rank computes its own part only.

    Attributes:
        units: N, units of all ranks.
        world: M, number of ranks.
        fraction: Q, the share of its units that a rank sends per epoch. Mixing decreases above 1 - 1/M: at Q = 1 all
            units leave, and two ranks swap their parts.
        seed: Seed of all epochs.

    Raises:
        BadArgument: There are fewer units than ranks, or the fraction is not between 0 and 1.

    Example:
        >>> plan = Exchange(units=12, world=3, fraction=0.5, seed=1)
        >>> plan.moved(0), sorted(plan.owned(0, epoch=0).tolist())
        (2, [0, 1, 2, 3])
        >>> sorted(np.concatenate([plan.owned(rank, epoch=5) for rank in range(3)]).tolist()) == list(range(12))
        True
    """

    units: int
    world: int
    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.world, "world", 1)
        whole(self.units, "units", 0)
        real(self.fraction, "fraction", 0, 1)
        if self.units < self.world:
            raise BadArgument(f"each rank needs at least one block or row, got {self.units} for {self.world} ranks")
        if self.units * self.world >= 1 << 62:
            raise BadArgument(f"{self.units} units on {self.world} ranks are too many: use larger blocks")

    @cached_property
    def least(self) -> int:
        """Return the smallest number of units of a rank; others have one more."""
        return self.units // self.world

    @cached_property
    def _exact_moved(self) -> Fraction:
        return Fraction(str(self.fraction)) * self.units / self.world

    def first(self, rank: int) -> int:
        """Return a rank's first unit at the beginning."""
        return rank * self.units // self.world

    def size(self, rank: int) -> int:
        """Return the number of a rank's units, the same in every epoch."""
        return self.first(rank + 1) - self.first(rank)

    def moved(self, epoch: int) -> int:
        """Return the units that each rank sends and receives between an epoch and the next.

        Example:
            >>> [Exchange(30, 4, 0.1).moved(epoch) for epoch in range(5)]
            [0, 1, 1, 1, 0]
        """
        if self.world == 1:
            return 0
        return min(int(self._exact_moved * (epoch + 1)) - int(self._exact_moved * epoch), self.least)

    @property
    def max_moved(self) -> int:
        """Return the largest number of units that a rank sends between two epochs."""
        return 0 if self.world == 1 else min(-int(-self._exact_moved // 1), self.least)

    def sent(self, rank: int, epoch: int, start: int = 0, stop: int | None = None) -> IntArray:
        """Return the slots whose units a rank sends after an epoch; received units take them: int64[...].

        ``start`` and ``stop`` select among the rank's `moved` units; ``epoch`` is the one before the exchange.
        """
        turns = np.arange(start, self.moved(epoch) if stop is None else stop)
        return self._slots(epoch, np.full(len(turns), rank), turns)

    def peers(self, rank: int, epoch: int, start: int = 0, stop: int | None = None) -> tuple[IntArray, IntArray]:
        """Return for each of these units the rank that it goes to, and the rank that its replacement comes from."""
        turns = np.arange(start, self.moved(epoch) if stop is None else stop)
        return self.along(epoch, rank, turns, 1), self.along(epoch, rank, turns, -1)

    def owned(self, rank: int, epoch: int) -> IntArray:
        """Return a rank's units in an epoch, by slot, by tracing them back to the beginning.

        Takes time proportional to ``epoch`` times the rank's units, and memory proportional to its units.
        """
        return self.origins(np.full(self.size(rank), rank), np.arange(self.size(rank)), epoch)

    def origins(self, ranks: IntArray, slots: IntArray, epoch: int) -> IntArray:
        """Return the units in slots of ranks in an epoch."""
        ranks, slots = np.array(ranks, np.int64), np.array(slots, np.int64)
        for before in range(epoch - 1, -1, -1):
            self._step(before, ranks, slots, -1)
        return np.asarray(ranks * self.units // self.world + slots)

    def holders(self, units: IntArray, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the ranks that own units in an epoch, and their slots.

        Example:
            >>> plan = Exchange(10, 3, 0.4)
            >>> plan.origins(*plan.holders(np.arange(10), 4), 4).tolist() == list(range(10))
            True
        """
        units = np.asarray(units, np.int64)
        ranks = ((units + 1) * self.world - 1) // self.units
        slots = units - ranks * self.units // self.world
        for before in range(epoch):
            self._step(before, ranks, slots, 1)
        return ranks, slots

    def at_home(self, epoch: int) -> float:
        """Return the exact expected share of units that are on their first rank in an epoch.

        If M divides N and each rank sends Q of its units, it is ``1/M + (1 - 1/M) (1 - Q M / (M - 1))^epoch``: no unit
        is sent to its own rank. Drawing any rank would give ``(1 - Q)^epoch``.

        Example:
            >>> round(Exchange(1000, 10, 0.1).at_home(3), 6) == round(0.1 + 0.9 * (1 - 0.1 * 10 / 9) ** 3, 6)
            True
        """
        larger = self.units % self.world  # ranks with one more unit
        kinds = [(larger, self.least + 1), (self.world - larger, self.least)]
        total = 0.0
        for own, (ranks, units) in enumerate(kinds):
            if ranks:
                others = np.array([count - (kind == own) for kind, (count, _) in enumerate(kinds)], float)
                total += ranks * units * self._stay_probability(epoch, units, others)
        return total / self.units

    def _stay_probability(self, epoch: int, units: int, others: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        """Return the probability that a unit is on its first rank, which has ``units``; ``others``: ranks by size."""
        home, away = 1.0, np.zeros(2)
        for before in range(epoch):
            k = self.moved(before)
            if k:
                leaves, passes = home * k / units, away * k / [self.least + 1, self.least]
                home += passes.sum() / (self.world - 1) - leaves
                away = away - passes + ((leaves + passes.sum()) * others - passes) / (self.world - 1)
        return float(home)

    def _key(self, epoch: int, purpose: int, *more: int) -> int:
        return random.derive(self.seed, epoch, PURPOSE, purpose, *more)

    def _step(self, epoch: int, ranks: IntArray, slots: IntArray, way: int) -> None:
        """Move units in place to their ranks and slots after an epoch; ``way`` -1: back to those before."""
        moved = self.moved(epoch)
        if not moved:
            return
        turns = self._turns(epoch, ranks, slots)
        going = np.flatnonzero(turns < moved)
        turns = turns[going]
        ranks[going] = self.along(epoch, ranks[going], turns, way)
        slots[going] = self._slots(epoch, ranks[going], turns)

    def along(self, epoch: int, ranks: IntArray | int, turns: IntArray, way: int = 1) -> IntArray:
        """Return the target ranks of ranks' units at turns; ``way`` -1: their source ranks."""
        if not len(turns):
            return np.empty(0, np.int64)  # also for a world of one
        key, others = self._key(epoch, RANKS), self.world - 1
        places = random.unpermute(self.world, key, np.atleast_1d(ranks))
        shifts = 1 + random.permute_at(others, self._key(epoch, SHIFTS), turns % others)
        return random.permute_at(self.world, key, (places + way * shifts) % self.world)

    def _slots(self, epoch: int, ranks: IntArray, turns: IntArray) -> IntArray:
        total = np.empty(len(turns), np.int64)
        for size, own, offsets in self._by_size(epoch, ranks):
            total[own] = random.permute_at(size, self._key(epoch, SLOTS, size), (turns[own] + offsets) % size)
        return total

    def _turns(self, epoch: int, ranks: IntArray, slots: IntArray) -> IntArray:
        """Return the turn of each rank's slot; it is sent if its turn is below `moved`."""
        total = np.empty(len(slots), np.int64)
        for size, own, offsets in self._by_size(epoch, ranks):
            total[own] = (random.unpermute(size, self._key(epoch, SLOTS, size), slots[own]) - offsets) % size
        return total

    def _by_size(self, epoch: int, ranks: IntArray) -> list[tuple[int, IntArray | slice, IntArray]]:
        """Return ranks grouped by size: the size, the ranks' indices, and their offsets in the slot permutation."""
        key = self._key(epoch, OFFSETS)
        if len(ranks) and (ranks == ranks[0]).all():
            size = self.size(int(ranks[0]))
            return [(size, slice(None), (random.randoms(key, int(ranks[0]), 1) % np.uint64(size)).astype(np.int64))]
        sizes = (ranks + 1) * self.units // self.world - ranks * self.units // self.world
        drawn = random.randoms(key, 0, self.world)
        total: list[tuple[int, IntArray | slice, IntArray]] = []
        for size in (self.least, self.least + 1):
            own = np.flatnonzero(sizes == size)
            if len(own):
                total.append((size, own, (drawn[ranks[own]] % np.uint64(size)).astype(np.int64)))
        return total
