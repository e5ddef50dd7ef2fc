"""Global batches have the same rows in every world, each row once, within the slots and parts of their ranks."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.orders import (
    BlockOnly,
    Blocks,
    CorgiPile,
    FullShuffle,
    GlobalBatches,
    Key,
    NoShuffle,
    Reservoir,
    Riffle,
    SlidingWindow,
    described,
    restored,
    visited_rows,
)
from corgipile.testing import check_slots, check_start

WITHIN = [
    NoShuffle(),
    BlockOnly(),
    CorgiPile(),
    Riffle(),
    Riffle(balance="label"),
    Riffle(whole=True),
    SlidingWindow(),
    FullShuffle(),
    FullShuffle(unit="block"),
]


@st.composite
def cases(draw):
    rows, batch, block = draw(st.integers(0, 900)), draw(st.sampled_from([1, 2, 6, 7, 12, 24, 48, 60])), 7
    within = replace(draw(st.sampled_from(WITHIN)), block=block, buffer=draw(st.integers(1, 600)))
    order = replace(GlobalBatches.of(within, batch), ahead=draw(st.integers(0, 2))).fit(rows, 8.0, None)
    edges = np.cumsum([0, *draw(st.lists(st.integers(1, block), max_size=30)), *[block] * (rows // block + 1)])
    blocks = Blocks.of(np.unique(np.append(np.minimum(edges, rows), rows))) if rows else Blocks(0, even=1)
    if order.sketch_column:
        blocks = replace(blocks, sketch=np.arange(blocks.count) % 3 + 0.5)
    worlds = st.sampled_from([world for world in range(1, 13) if batch % world == 0])
    return order, blocks, [(1, 1), *draw(st.lists(st.tuples(worlds, st.integers(1, 8)), min_size=1, max_size=2))]


def keys(order, world, workers, **more):
    batch = order.rows // world
    return [
        Key(5, 1, rank, world, worker=worker, workers=workers, batch=batch, **more)
        for rank in range(world)
        for worker in range(workers)
    ]


def rows_of(order, blocks, key):
    return np.concatenate([np.empty(0, np.int64), *visited_rows(order, blocks, key)])


def batches_of(order, blocks, world, workers, **more):
    """Return the rows of each global batch, of all ranks together."""
    found = {}
    for key in keys(order, world, workers, **more):
        rows = rows_of(order, blocks, key)
        assert len(rows) == order.visits(blocks, key)
        for turn in range(-(-len(rows) // key.batch)):
            part = rows[turn * key.batch : (turn + 1) * key.batch]
            found.setdefault(key.worker + workers * turn, []).append(part.tolist())
    assert sorted(found) == list(range(len(found)))
    assert all(len(found[at]) == world for at in found)
    return [list(chain(*found[at])) for at in range(len(found))]


@settings(max_examples=120, deadline=None)
@given(cases(), st.booleans())
def test_batches_are_the_same_in_every_world(case, drop_last):
    order, blocks, places = case
    whole = blocks.rows // order.rows * order.rows
    (world, workers), *others = places
    first = batches_of(order, blocks, world, workers, disjoint=drop_last)
    assert all(len(batch) == order.rows for batch in first[: whole // order.rows])
    seen = sorted(chain(*first))
    assert len(seen) == len(set(seen)) == (whole if drop_last else blocks.rows)
    for world, workers in others:
        found = batches_of(order, blocks, world, workers, disjoint=drop_last)
        assert list(map(set, found)) == list(map(set, first))
        assert sum(map(len, found)) < len(seen) + world


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_slots_are_a_bound_and_any_step_can_be_the_first(case, data):
    order, blocks, places = case
    world, workers = data.draw(st.sampled_from(places))
    order = replace(order, parts=(world, workers))
    key = data.draw(st.sampled_from(keys(order, world, workers)))
    check_slots(order, blocks, key)
    check_start(order, blocks, key, data.draw(st.integers(0, len(list(order.steps(blocks, key))))))


class Followed(Riffle):
    """Riffle whose lanes run in Python."""

    def steps(self, *args):
        return super().steps(*args)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 900), st.sampled_from([1, 12, 48]), st.sampled_from([1, 3]), st.integers(1, 300), st.data())
def test_the_kernel_follows_lanes_as_python_does(rows, batch, workers, buffer, data):
    order = GlobalBatches.of(Riffle(block=5, buffer=buffer, whole=data.draw(st.booleans())), batch).fit(rows, 8.0, None)
    slow = replace(order, within=Followed(**vars(order.within)))
    blocks = Blocks(rows, even=5)
    key = data.draw(st.sampled_from(keys(order, data.draw(st.sampled_from([1, batch])), workers)))
    steps = len(list(order.steps(blocks, key)))
    start = data.draw(st.integers(0, steps))
    ours, theirs = (list(visited_rows(one, blocks, key, start)) for one in (order, slow))
    assert [one.tolist() for one in ours] == [one.tolist() for one in theirs]


def loaded(order, blocks, key):
    return sum(int((step.extents[:, 1] - step.extents[:, 0]).sum()) for step in order.steps(blocks, key))


def test_a_rank_reads_its_part_and_little_more():
    rows, blocks = 96_000, Blocks(96_000, even=20)
    order = GlobalBatches.of(Riffle(block=20, buffer=48_000), 96).fit(rows, 100.0, None)
    for world, workers, most in ((4, 1, 1.1), (4, 3, 1.1), (8, 4, 1.1), (32, 1, 2.7), (1, 8, 2.1)):
        order = replace(order, parts=(world, workers))
        key = keys(order, world, workers)[world * workers // 2]
        assert loaded(order, blocks, key) <= most * rows / world / workers, (world, workers)
    alone = replace(order, parts=(1, 1)).slots(blocks)
    assert replace(order, parts=(8, 1)).slots(blocks) < alone / 4


@pytest.mark.parametrize("within", WITHIN, ids=lambda order: f"{order.name}-{getattr(order, 'balance', '')}")
@pytest.mark.parametrize("budget", [3000, 10_000, 60_000])
def test_the_budget_holds_all_lanes(within, budget):
    order = GlobalBatches.of(within, 48).fit(100_000, 100.0, budget)
    blocks = Blocks(100_000, even=order.block_rows)
    assert order.slots(blocks) <= budget
    assert described(restored(described(order))) == described(order)


def test_epochs_and_seeds_differ():
    order, blocks = GlobalBatches.of(Riffle(block=4, buffer=200), 12).fit(600, 8.0, None), Blocks(600, even=4)
    passes = [rows_of(order, blocks, Key(*key, batch=12)).tolist() for key in ((7, 1), (7, 2), (8, 1), (7, 1))]
    assert passes[0] == passes[3]
    assert len({tuple(one) for one in passes}) == 3


def test_what_cannot_be_is_said():
    with pytest.raises(BadArgument, match="visits single rows or blocks once"):
        GlobalBatches.of(Reservoir(), 12)
    with pytest.raises(BadArgument, match=r"12 rows do not divide among 5 ranks; give batch_size=10 or 15"):
        GlobalBatches.of(Riffle(), 12).batch_rows(5)
    with pytest.raises(BudgetTooSmall, match="needs at least"):
        GlobalBatches.of(Riffle(block=40), 12).fit(1000, 8.0, 100)
    with pytest.raises(BadArgument, match="call fit"):
        GlobalBatches.of(Riffle(), 12).slots(Blocks(10, even=1))
    order = GlobalBatches().fit(100, 8.0, None)
    with pytest.raises(BadArgument, match='use global_batches="fixed"'):
        order.visits(Blocks(100, even=1), Key(1, batch=5))
