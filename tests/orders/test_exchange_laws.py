"""Statistical laws of the exchange between ranks, and faults planted in it that break them."""

import numpy as np
import pytest

from corgipile.orders import Exchange
from corgipile.testing.statistics import chi_sigmas

UNITS, WORLD, FRACTION, SEEDS, EPOCHS = 240, 6, 0.25, 24, 9
MAX_SIGMAS = 6.5  # exceeded by a correct plan with a probability of 4e-11


def owners(plan):
    """Return the rank of each unit in each epoch, [epochs, units]; -1 of a lost one."""
    ranks = np.full((EPOCHS, plan.units), -1)
    for epoch in range(EPOCHS):
        for rank in range(plan.world):
            ranks[epoch, plan.owned(rank, epoch)] = rank
    return ranks


def broken(make):
    """Return the laws that an exchange breaks."""
    ranks = np.stack([owners(make(UNITS, WORLD, FRACTION, seed)) for seed in range(SEEDS)])
    found = ["lost units"] if (ranks < 0).any() else []
    sizes = np.stack([(ranks == rank).sum(axis=-1) for rank in range(WORLD)])
    found += ["unequal ranks"] if (sizes != UNITS // WORLD).any() else []
    moved = ranks[:, 1:] != ranks[:, :-1]  # [seeds, epochs, units]
    found += ["moved fraction"] if abs(moved.mean() - FRACTION) > 1e-9 else []
    pairs = (ranks[:, :-1] * WORLD + ranks[:, 1:])[moved]
    table = np.bincount(pairs[pairs >= 0], minlength=WORLD**2).reshape(WORLD, WORLD)
    others = table[~np.eye(WORLD, dtype=bool)]
    found += ["destinations"] if chi_sigmas(others, others.mean()) > MAX_SIGMAS else []
    again = moved[:, 1:][moved[:, :-1]]
    share = moved.mean()
    sigmas = (again.mean() - share) / np.sqrt(share * (1 - share) / len(again))
    found += ["units that move again"] if abs(sigmas) > MAX_SIGMAS else []
    times = moved.sum(axis=(0, 1))
    found += ["equally frequent units"] if chi_sigmas(times, times.mean()) > MAX_SIGMAS else []
    steps = (ranks[:, 1:] - ranks[:, :-1]) % WORLD  # by how many ranks a unit moves, in two epochs
    both = moved[:, 1:] & moved[:, :-1]
    turns = np.bincount((steps[:, :-1] * WORLD + steps[:, 1:])[both], minlength=WORLD**2).reshape(WORLD, WORLD)[1:, 1:]
    expected = turns.sum(axis=1, keepdims=True) * turns.sum(axis=0) / turns.sum()
    found += ["destinations in two epochs"] if chi_sigmas(turns, np.maximum(expected, 1)) > MAX_SIGMAS else []
    return found


class Halved(Exchange):
    def moved(self, epoch):
        return super().moved(epoch) // 2


class SameRows(Exchange):
    def _key(self, epoch, purpose, *more):
        return super()._key(epoch if purpose >= 2 else 0, purpose, *more)  # purposes: slots, offsets, ranks, shifts


class FixedPartner(Exchange):
    def along(self, epoch, ranks, turns, way=1):
        return (np.broadcast_to(ranks, np.shape(turns)) + way) % self.world


class Losing(Exchange):
    def owned(self, rank, epoch):
        units = super().owned(rank, epoch)
        return np.append(units[:-1], units[:1]) if epoch else units


class FirstSlots(Exchange):
    def _slots(self, epoch, ranks, turns):
        return np.asarray(turns, np.int64)

    def _turns(self, epoch, ranks, slots):
        return np.asarray(slots, np.int64)


@pytest.mark.parametrize(
    ("make", "laws"),
    [
        (Exchange, set()),
        (Halved, {"moved fraction"}),
        (SameRows, {"units that move again"}),
        (FixedPartner, {"destinations"}),
        (Losing, {"lost units"}),
        (FirstSlots, {"equally frequent units"}),
    ],
)
def test_a_fault_of_the_exchange_breaks_a_law(make, laws):
    found = set(broken(make))
    assert laws <= found
    assert bool(found) == bool(laws)
