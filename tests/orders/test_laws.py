"""The laws of every order: each row exactly once, seeds repeat, epochs differ, any step can be the first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSize, BudgetTooSmall
from corgipile.orders import (
    BlockOnly,
    Blocks,
    CorgiPile,
    FullShuffle,
    Key,
    NoShuffle,
    Partial,
    Reservoir,
    Riffle,
    SlidingWindow,
    named,
    visited_rows,
)
from corgipile.testing import check_order, check_pass, check_seeds, check_slots, check_start, check_world, measure_order

SHUFFLED = [
    BlockOnly(),
    CorgiPile(),
    Riffle(),
    Riffle(balance="label"),
    Riffle(whole=True),
    SlidingWindow(),
    Reservoir(),
    FullShuffle(),
    FullShuffle(unit="page"),
    FullShuffle(unit="block"),
    Partial(fraction=0.3),
    Partial(within=Riffle(balance="label"), fraction=1),
    Partial(within=FullShuffle(), unit=7),
]
ORDERS = [NoShuffle(), *SHUFFLED]


def names(order):
    within = f"-{order.within.name}-{order.fraction}" if order.name == "partial" else ""
    return f"{order.name}{within}-{getattr(order, 'unit', getattr(order, 'balance', ''))}-{getattr(order, 'whole', '')}"


def cut(draw, rows, block):
    """Even cuts, or uneven ones with blocks of up to ``block`` rows."""
    if draw(st.booleans()):
        return Blocks(rows, even=block)
    lengths = draw(st.lists(st.integers(1, block), min_size=1, max_size=60))
    cuts = np.minimum(np.cumsum([0, *lengths, *[block] * (rows // block + 1)]), rows)
    return Blocks.of(np.unique(np.append(cuts, rows)) if rows else [0])


@st.composite
def cases(draw):
    order = draw(st.sampled_from(ORDERS))
    rows, block = draw(st.integers(0, 400)), draw(st.integers(1, 40))
    blocks = cut(draw, rows, block)
    order = replace(order, block=block, buffer=draw(st.integers(1, 200)), ahead=draw(st.integers(0, 3)))
    if isinstance(order, Riffle):
        order = replace(order, group=draw(st.integers(0, 5) | st.sampled_from([1 << 31, 1 << 62])))
    fitted = order.fit(rows, 2000.0, None, whole=getattr(order, "whole", False))
    if order.sketch_column:
        blocks = replace(blocks, sketch=np.arange(blocks.count) % 3 + 0.5)
    key = Key(draw(st.integers(0, 2**63)), draw(st.integers(0, 99)))
    return fitted, blocks, key


def passes(order, blocks, key, start=0):
    return list(visited_rows(order, blocks, key, start))


def flat(steps):
    return np.concatenate([np.empty(0, np.int64), *steps])


def assert_visits(order, rows, visited):
    if order.name == "reservoir":
        counts = np.bincount(visited, minlength=rows)
        assert (counts >= 1).all()
        assert len(visited) == rows + max(0, rows - order.window)
    else:
        assert np.array_equal(np.sort(visited), np.arange(rows))


@settings(max_examples=400)
@given(cases())
def test_each_row_once_as_documented(case):
    order, blocks, key = case
    check_pass(order, blocks, key)
    assert_visits(order, blocks.rows, flat(passes(order, blocks, key)))


@settings(max_examples=200)
@given(cases(), st.integers(1, 5))
def test_ranks_share_the_epoch_evenly(case, world):
    order, blocks, key = case
    check_world(order, blocks, key, world)


@settings(max_examples=200)
@given(cases(), st.integers(1, 5), st.integers(1, 50))
def test_workers_share_the_epoch_in_whole_batches(case, workers, batch):
    order, blocks, key = case
    keys = [key._replace(worker=worker, workers=workers, batch=batch) for worker in range(workers)]
    parts = [flat(passes(order, blocks, one)) for one in keys]
    assert [order.visits(blocks, one) for one in keys] == list(map(len, parts))
    assert sum(len(part) % batch > 0 for part in parts) <= 1
    assert set(flat(parts)) == set(range(blocks.rows))


@settings(max_examples=200)
@given(cases(), st.data())
def test_any_step_can_be_the_first(case, data):
    order, blocks, key = case
    check_start(order, blocks, key, data.draw(st.integers(0, len(passes(order, blocks, key)))))


@settings(max_examples=300, deadline=None)  # checks each slot of each step
@given(cases())
def test_slots_are_a_bound_and_reused_only_after_their_visit(case):
    check_slots(*case)


@pytest.mark.parametrize("order", ORDERS, ids=names)
def test_every_law_at_once(order):
    check_order(order, random=order.name != "no_shuffle")


@pytest.mark.parametrize("order", [BlockOnly(), CorgiPile(), Riffle(), Riffle(balance="content")], ids=names)
@pytest.mark.parametrize("blocks", [8, 16])
def test_few_blocks_obey_the_laws(order, blocks):
    broken = [law for law in measure_order(order, 4 * blocks, block=4, buffer=16) if not law.holds]
    assert not broken


@pytest.mark.parametrize("order", SHUFFLED, ids=names)
def test_seeds_repeat_and_epochs_differ(order):
    fitted = replace(order, block=10, buffer=60).fit(600, 6000.0, None)
    blocks = Blocks(600, even=10, sketch=np.arange(60) % 5.0)
    check_seeds(fitted, blocks)


@pytest.mark.parametrize("order", ORDERS, ids=names)
@pytest.mark.parametrize("budget", [60, 200, 1000, 10**6])
def test_fit_keeps_within_its_budget(order, budget):
    try:
        fitted = order.fit(10_000, 40.0, budget)
    except BudgetTooSmall:
        assert budget < 2000 * (getattr(order, "unit", "") == "page") + 100 * (order.name == "full")
        return
    blocks = Blocks(10_000, even=fitted.block_rows)
    assert fitted.resident(blocks) <= budget
    assert_visits(fitted, 10_000, flat(passes(fitted, blocks, Key(1))))


@pytest.mark.parametrize("order", [CorgiPile(), Riffle(), Riffle(whole=True), Riffle(whole=False)], ids=repr)
@pytest.mark.parametrize("row_bytes", [1.0, 5.0, 40.0, 4000.0])
def test_what_a_plan_takes_counts_too(order, row_bytes):
    rows, memory = 10**9, 1 << 28
    fitted = order.fit(rows, row_bytes, int(memory / row_bytes))
    blocks = Blocks(rows, even=fitted.block_rows)
    planned = _kernel.plan_bytes(fitted.kind, blocks.count, blocks.widest, *fitted.shape(), fitted.ahead)
    taken = fitted.slots(blocks) * row_bytes + planned
    assert memory / 2 < taken <= memory + _kernel.PLAN_BYTES
    with pytest.raises(BudgetTooSmall, match="needs at least"):
        replace(order, buffer=int(memory / 1.9)).fit(rows, 1.0, memory)


@pytest.mark.parametrize("order", ORDERS, ids=names)
def test_a_budget_too_small_says_what_would_do(order):
    wanted = replace(order, block=100, **({"buffer": 1000} if order.name != "full" else {"buffer": 5000}))
    with pytest.raises(BudgetTooSmall, match=r"give memory='[\d.]+(K|M)?B'"):
        wanted.fit(100_000, 400.0, 50)


def test_names_and_bad_arguments():
    assert [named(name).name for name in ("riffle", "balanced", "full")] == ["riffle", "riffle", "full"]
    with pytest.raises(BadArgument, match="no order is named 'rifle'; the names are"):
        named("rifle")
    with pytest.raises(BadSize, match=r"block must be rows .*got '2 apples'"):
        Riffle(block="2 apples")
    with pytest.raises(BadArgument, match="ahead must be from 0 to 64 steps, got -1"):
        CorgiPile(ahead=-1)
    with pytest.raises(BadArgument, match='unit must be "row", "page" or "block"'):
        FullShuffle(unit="pages")
    with pytest.raises(BadArgument, match="cuts must ascend"):
        Blocks.of([0, 5, 3])
    with pytest.raises(BadArgument, match="at least 1 row"):
        Blocks(10)


@pytest.mark.parametrize("order", [SlidingWindow(), Reservoir()], ids=names)
def test_what_a_window_notes_of_narrow_rows_counts(order):
    """Rows of 4 bytes: their places in the plan take more memory than the rows."""
    row, budget = 4, 16 << 20
    fitted = order.fit(10**8, row, budget // row)
    blocks = Blocks(10**8, even=fitted.block_rows)
    places = 4 * (2 * fitted.window + fitted.slots(blocks))  # for the window's rows, their slots, and the last visits
    assert fitted.slots(blocks) * row + places <= budget
    assert fitted.slots(blocks) * row + places > 0.9 * budget


def test_steps_grow_with_buffers_above_256_mb():
    """Small buffers keep the steps, and so the orders, that they had."""
    row = 1028
    orders = [Riffle(block=63).fit(40_000_000, row, (mb << 20) // row) for mb in (16, 64, 256, 1024, 8192)]
    assert [round(order.group * 63 * row / (1 << 20)) for order in orders] == [2, 2, 2, 8, 14]
