"""The plan of an exchange: balanced by construction, a permutation of all units, mixed as the formula predicts."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument
from corgipile.orders import Exchange

plans = st.integers(1, 64).flatmap(
    lambda world: st.builds(
        Exchange,
        st.integers(world, 12 * world + 30),
        st.just(world),
        st.sampled_from([0, 0.05, 0.1, 0.3, 0.5, 0.999, 1]) | st.floats(0, 1),
        st.integers(0, 2**62),
    )
)


def moves(plan, epoch):
    """Return a row (from, to, sent slot, taken slot) for each unit that moves, as the ranks compute it."""
    found = []
    for rank in range(plan.world):
        slots, (to, whence) = plan.sent(rank, epoch), plan.peers(rank, epoch)
        assert len(slots) == len(set(slots.tolist())) == len(to) == len(whence) == plan.moved(epoch)
        found.append(np.stack([np.full(len(slots), rank), to, whence, slots]))
    return np.array(found)  # [rank, quantity, turn]


@settings(max_examples=150, deadline=None)
@given(plans, st.integers(0, 5))
def test_each_rank_sends_and_receives_as_much_and_nothing_to_itself(plan, epoch):
    told = moves(plan, epoch)
    for turn in range(plan.moved(epoch)):
        ranks, to, whence, _ = told[:, :, turn].T
        assert sorted(to) == sorted(whence) == list(range(plan.world))
        assert (to != ranks).all()
        assert (whence[to] == ranks).all()  # the receiver expects the unit from its sender
    if plan.world > 1:
        several = told[:, 1, : plan.world - 1]
        assert all(len(set(row)) == len(row) for row in several.tolist())  # to each other rank in turn


@settings(max_examples=100, deadline=None)
@given(plans)
def test_what_ranks_send_one_by_one_is_what_the_plan_traces(plan):
    parts = [list(range(plan.first(rank), plan.first(rank) + plan.size(rank))) for rank in range(plan.world)]
    for epoch in range(5):
        assert all(plan.owned(rank, epoch).tolist() == part for rank, part in enumerate(parts))
        assert sorted(unit for part in parts for unit in part) == list(range(plan.units))
        told, after = moves(plan, epoch), [list(part) for part in parts]
        for rank, turn in np.ndindex(plan.world, plan.moved(epoch)):
            whence, slot = told[rank, 2, turn], told[rank, 3, turn]
            after[rank][slot] = parts[whence][told[whence, 3, turn]]
        parts = after
    ranks, slots = plan.holders(np.arange(plan.units), 5)
    assert all(parts[rank][slot] == unit for unit, (rank, slot) in enumerate(zip(ranks, slots, strict=True)))


@given(plans, st.integers(1, 60))
def test_fractions_of_units_are_carried_on(plan, epochs):
    each = plan.fraction * plan.units / plan.world
    total = sum(plan.moved(epoch) for epoch in range(epochs))
    if plan.world == 1:
        assert total == 0
    elif each <= plan.least:
        assert each * epochs - 1 - 1e-6 < total <= each * epochs + 1e-6
    assert max(plan.moved(epoch) for epoch in range(epochs)) <= plan.max_moved <= each + 1


@pytest.mark.parametrize(("units", "world", "fraction"), [(600, 6, 0.1), (605, 6, 0.3), (210, 20, 0.25), (8, 4, 0.5)])
def test_the_share_at_home_is_that_of_the_formula(units, world, fraction):
    """Counted over 300 seeds; the bound is five standard errors of the differences."""
    for epochs in (1, 2, 6):
        shares = []
        for seed in range(300):
            plan = Exchange(units, world, fraction, seed)
            ranks, _ = plan.holders(np.arange(units), epochs)
            shares.append((ranks == plan.holders(np.arange(units), 0)[0]).mean())
        expected = Exchange(units, world, fraction).at_home(epochs)
        assert abs(np.mean(shares) - expected) <= 5 * np.std(shares) / np.sqrt(300) + 1e-12


def test_the_share_at_home_tends_to_that_of_all_ranks():
    plan = Exchange(1 << 20, 8, 0.3)
    assert plan.at_home(0) == 1
    assert plan.at_home(100) == pytest.approx(1 / 8, rel=1e-6)
    assert Exchange(14, 4, 0.5).at_home(400) == pytest.approx((2 * 4 * 4 + 2 * 3 * 3) / 14**2, rel=1e-6)


def test_where_units_go_is_even_and_pairs_part():
    """Units of one rank at the beginning meet no more often later than units of different ranks."""
    units, world = 4000, 8
    together = []
    for seed in range(20):
        ranks, _ = Exchange(units, world, 0.9, seed).holders(np.arange(units), 8)
        counts = np.array([np.bincount(ranks[first : first + 500], minlength=world) for first in range(0, units, 500)])
        together.append(((counts * (counts - 1)).sum(axis=1) / (500 * 499)).mean())
    assert np.mean(together) == pytest.approx(1 / world, abs=0.003)


def test_seeds_and_epochs_differ():
    one, two = Exchange(1000, 4, 0.2, 7), Exchange(1000, 4, 0.2, 8)
    assert not np.array_equal(one.sent(0, 1), two.sent(0, 0))
    assert not np.array_equal(one.sent(0, 1), one.sent(0, 2))
    assert not np.array_equal(one.sent(0, 1), one.sent(1, 1))
    assert np.array_equal(one.sent(0, 1)[10:20], one.sent(0, 1, 10, 20))


def test_a_huge_plan_takes_no_room():
    plan = Exchange(10**12, 4096, 0.1, 3)
    tracemalloc.start()
    slots, (to, whence) = plan.sent(17, 5, 10**6, 10**6 + 4095), plan.peers(17, 5, 10**6, 10**6 + 4095)
    units = plan.origins(np.full(1000, 17), np.arange(1000) * 1000, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert plan.moved(0) == 10**11 // 4096
    assert slots.max() < plan.size(17)
    assert sorted({*to.tolist(), 17}) == sorted({*whence.tolist(), 17}) == list(range(4096))
    ranks, back = plan.holders(units, 20)
    assert (ranks == 17).all()
    assert back.tolist() == (np.arange(1000) * 1000).tolist()


def test_bad_plans_are_errors():
    with pytest.raises(BadArgument, match="at least one block or row, got 3 for 4 ranks"):
        Exchange(3, 4, 0.1)
    with pytest.raises(BadArgument, match=r"fraction must be 0 or more and at most 1, got 1\.5"):
        Exchange(30, 4, 1.5)
    with pytest.raises(BadArgument, match="are too many: use larger blocks"):
        Exchange(2**61, 4, 0.5)
