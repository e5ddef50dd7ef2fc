"""Who has which rows when ranks keep a part each and exchange a fraction of it every epoch (partial local shuffling).

After Nguyen et al., "Why Globally Re-shuffle? Revisiting Data Shuffling in Large Scale Deep Learning" (IPDPS 2022).
What its published code draws row by row behind a barrier is here a pure function of seed and epoch, so that every rank
knows all that is sent and received without asking.
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

PURPOSE = 0x65786368  # of its keys, so that no other draws the same numbers
SLOTS, OFFSETS, RANKS, SHIFTS = range(4)


@dataclass(frozen=True)
class Exchange:
    """Says who sends what to whom before each epoch; a unit is a row or a block of rows.

    Rank r of M begins with units ``r N / M`` to ``(r + 1) N / M``, one a slot. Between epochs e and e + 1 each rank
    sends as many units, ``Q N / M``; fractions of a unit are carried on. Its j-th is that of slot ``sent(...)[j]``: the
    j-th units of all ranks go along one cycle through all ranks, and what comes instead takes the slot that became
    free. So each rank sends and receives as much, nothing to itself, and of M - 1 units in a row one to each other.
    Slots and cycles are keyed bijections: nothing is as large as N, and only a rank's own part is looked at.

    Attributes:
        units: N, of all ranks.
        world: M, ranks.
        fraction: Q, of a rank's units that it sends an epoch. Above 1 - 1/M it mixes less again: at Q = 1 all leave, so
            that of two ranks each has the other's.
        seed: Of all epochs.

    Raises:
        BadArgument: There are fewer units than ranks, or the fraction is none.

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
            raise BadArgument(f"{self.units} blocks or rows for {self.world} ranks: each rank needs one at least")
        if self.units * self.world >= 1 << 62:
            raise BadArgument(f"{self.units} units on {self.world} ranks are too many to number: take larger blocks")

    @cached_property
    def least(self) -> int:
        """Return the units of a rank that has fewest; others have one more."""
        return self.units // self.world

    @cached_property
    def _each(self) -> Fraction:
        return Fraction(str(self.fraction)) * self.units / self.world

    def first(self, rank: int) -> int:
        """Return the first unit that a rank begins with."""
        return rank * self.units // self.world

    def size(self, rank: int) -> int:
        """Return the units of a rank, in every epoch."""
        return self.first(rank + 1) - self.first(rank)

    def moved(self, epoch: int) -> int:
        """Return the units that each rank sends, and receives, between an epoch and the next.

        Example:
            >>> [Exchange(30, 4, 0.1).moved(epoch) for epoch in range(5)]
            [0, 1, 1, 1, 0]
        """
        if self.world == 1:
            return 0
        return min(int(self._each * (epoch + 1)) - int(self._each * epoch), self.least)

    @property
    def most_moved(self) -> int:
        """Return the units that a rank sends at most between two epochs."""
        return 0 if self.world == 1 else min(-int(-self._each // 1), self.least)

    def sent(self, rank: int, epoch: int, start: int = 0, stop: int | None = None) -> IntArray:
        """Return the slots whose units a rank sends after an epoch, and into which it receives as many: int64[...].

        Args:
            rank: The rank.
            epoch: The epoch after which they move.
            start: The first of its `moved` units.
            stop: The one after the last; None for all.
        """
        turns = np.arange(start, self.moved(epoch) if stop is None else stop)
        return self._slots(epoch, np.full(len(turns), rank), turns)

    def peers(self, rank: int, epoch: int, start: int = 0, stop: int | None = None) -> tuple[IntArray, IntArray]:
        """Return whereto each of these units goes, and whence comes the one that takes its slot: ranks."""
        turns = np.arange(start, self.moved(epoch) if stop is None else stop)
        return self.along(epoch, rank, turns, 1), self.along(epoch, rank, turns, -1)

    def owned(self, rank: int, epoch: int) -> IntArray:
        """Return the units of a rank in an epoch, by slot: what is exchanged before it is traced back to the beginning.

        It takes time for ``epoch`` times the rank's units, and memory for the latter.
        """
        return self.origins(np.full(self.size(rank), rank), np.arange(self.size(rank)), epoch)

    def origins(self, ranks: IntArray, slots: IntArray, epoch: int) -> IntArray:
        """Return the units that lie in slots of ranks in an epoch."""
        ranks, slots = np.array(ranks, np.int64), np.array(slots, np.int64)
        for before in range(epoch - 1, -1, -1):
            self._step(before, ranks, slots, -1)
        return np.asarray(ranks * self.units // self.world + slots)

    def holders(self, units: IntArray, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the ranks that have units in an epoch, and their slots.

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
        """Return the share of units to be expected in an epoch on the ranks that they began on, exactly.

        Where M divides N and each rank sends Q of its units it is ``1/M + (1 - 1/M) (1 - Q M / (M - 1))^epoch``: units
        never stay where they are, which draws of any rank allow; those give ``(1 - Q)^epoch``.

        Example:
            >>> round(Exchange(1000, 10, 0.1).at_home(3), 6) == round(0.1 + 0.9 * (1 - 0.1 * 10 / 9) ** 3, 6)
            True
        """
        many = self.units % self.world  # ranks that have one more
        kinds = [(many, self.least + 1), (self.world - many, self.least)]
        found = 0.0
        for own, (ranks, units) in enumerate(kinds):
            if ranks:
                others = np.array([count - (kind == own) for kind, (count, _) in enumerate(kinds)], float)
                found += ranks * units * self._returned(epoch, units, others)
        return found / self.units

    def _returned(self, epoch: int, units: int, others: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        """Return how likely a unit is on its first rank, which has so many; others have one more than least, or not."""
        here, there = 1.0, np.zeros(2)
        for before in range(epoch):
            k = self.moved(before)
            if k:
                leaves, passes = here * k / units, there * k / [self.least + 1, self.least]
                here += passes.sum() / (self.world - 1) - leaves
                there = there - passes + ((leaves + passes.sum()) * others - passes) / (self.world - 1)
        return float(here)

    def _key(self, epoch: int, purpose: int, *more: int) -> int:
        return random.derive(self.seed, epoch, PURPOSE, purpose, *more)

    def _step(self, epoch: int, ranks: IntArray, slots: IntArray, way: int) -> None:
        """Move units, in place, to where they are after an epoch; backwards: whence they came."""
        moved = self.moved(epoch)
        if not moved:
            return
        turns = self._turns(epoch, ranks, slots)
        going = np.flatnonzero(turns < moved)
        turns = turns[going]
        ranks[going] = self.along(epoch, ranks[going], turns, way)
        slots[going] = self._slots(epoch, ranks[going], turns)

    def along(self, epoch: int, ranks: IntArray | int, turns: IntArray, way: int = 1) -> IntArray:
        """Return the ranks to which ranks send their units at turns, one each; backwards (-1): from which they come."""
        if not len(turns):
            return np.empty(0, np.int64)  # also of a world of one
        key, others = self._key(epoch, RANKS), self.world - 1
        places = random.unpermute(self.world, key, np.atleast_1d(ranks))
        shifts = 1 + random.permute_at(others, self._key(epoch, SHIFTS), turns % others)
        return random.permute_at(self.world, key, (places + way * shifts) % self.world)

    def _slots(self, epoch: int, ranks: IntArray, turns: IntArray) -> IntArray:
        """Return the slot of each rank at each turn."""
        found = np.empty(len(turns), np.int64)
        for size, own, offsets in self._alike(epoch, ranks):
            found[own] = random.permute_at(size, self._key(epoch, SLOTS, size), (turns[own] + offsets) % size)
        return found

    def _turns(self, epoch: int, ranks: IntArray, slots: IntArray) -> IntArray:
        """Return at which turn of each rank each slot is: it is sent if that is below `moved`."""
        found = np.empty(len(slots), np.int64)
        for size, own, offsets in self._alike(epoch, ranks):
            found[own] = (random.unpermute(size, self._key(epoch, SLOTS, size), slots[own]) - offsets) % size
        return found

    def _alike(self, epoch: int, ranks: IntArray) -> list[tuple[int, IntArray | slice, IntArray]]:
        """Return ranks of one size each: it, where they are, and where each begins in the permutation of its slots."""
        key = self._key(epoch, OFFSETS)
        if len(ranks) and (ranks == ranks[0]).all():
            size = self.size(int(ranks[0]))
            return [(size, slice(None), (random.randoms(key, int(ranks[0]), 1) % np.uint64(size)).astype(np.int64))]
        sizes = (ranks + 1) * self.units // self.world - ranks * self.units // self.world
        drawn = random.randoms(key, 0, self.world)
        found: list[tuple[int, IntArray | slice, IntArray]] = []
        for size in (self.least, self.least + 1):
            own = np.flatnonzero(sizes == size)
            if len(own):
                found.append((size, own, (drawn[ranks[own]] % np.uint64(size)).astype(np.int64)))
        return found
