"""Full shuffle by units: rows of a unit stay together and in place for any number of ranks."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, StateMismatch
from corgipile.orders import Blocks, FullShuffle, Key, described, instead, restored, visited_rows


@st.composite
def cases(draw):
    """Units of uneven lengths, like runs of pages, or even ones; steps hold one or many of them."""
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=80))
    cuts = np.cumsum([0, *lengths])
    even = draw(st.integers(0, 9))
    blocks = Blocks(int(cuts[-1]), even=even) if even else Blocks.of(cuts)
    unit = draw(st.sampled_from(["page", "block"]))
    order = FullShuffle(unit=unit, block=max(1, blocks.widest), buffer=draw(st.integers(1, 60)))
    return order.fit(blocks.rows, 100.0, None), blocks, Key(draw(st.integers(0, 2**40)), draw(st.integers(0, 9)))


def visited(order, blocks, key, start=0):
    return [part.tolist() for part in visited_rows(order, blocks, key, start)]


def flat(parts):
    return list(chain.from_iterable(parts))


def unit_of(blocks):
    cuts = blocks.cuts if blocks.cuts is not None else np.arange(0, blocks.rows + blocks.even, blocks.even)
    return np.searchsorted(cuts, np.arange(blocks.rows), side="right") - 1


@settings(max_examples=300)
@given(cases())
def test_rows_of_a_unit_are_visited_together_as_they_lie(case):
    order, blocks, key = case
    rows = np.array(flat(visited(order, blocks, key)), np.int64)
    assert np.array_equal(np.sort(rows), np.arange(blocks.rows))
    units = unit_of(blocks)[rows]
    assert (np.diff(rows)[units[1:] == units[:-1]] == 1).all()
    assert (units[1:] != units[:-1]).sum() == max(0, len(np.unique(units)) - 1)


@settings(max_examples=300)
@given(cases(), st.integers(1, 6), st.booleans(), st.data())
def test_ranks_cut_one_order_of_visits_at_rows(case, world, disjoint, data):
    """A rank's share is exactly a stretch of a single rank's visits, from any step on."""
    order, blocks, key = case
    alone = flat(visited(order, blocks, key))
    for rank in range(world):
        mine = key._replace(rank=rank, world=world, disjoint=disjoint)
        first, stop = mine.share(blocks.rows)
        steps = visited(order, blocks, mine)
        assert flat(steps) == alone[first:stop]
        assert order.visits(blocks, mine) == stop - first
        start = data.draw(st.integers(0, len(steps)))
        assert visited(order, blocks, mine, start) == steps[start:]


@settings(max_examples=100)
@given(cases(), st.integers(0, 3))
def test_memory_is_as_stated(case, ahead):
    order, blocks, key = case
    order = replace(order, ahead=ahead).fit(blocks.rows, 8.0, None)
    for step in order.steps(blocks, key):
        assert len(np.unique(step.into)) == len(step.into) == len(step.visit)
        assert step.into.max(initial=-1) < order.slots(blocks)
        assert (np.diff(step.extents.ravel()) >= 0).all()  # read from first to last


def test_long_searches_go_by_parts(monkeypatch):
    monkeypatch.setattr("corgipile.orders.full.SUMMED_UNITS", 3)
    blocks = Blocks.of(np.cumsum([0, *range(1, 40)]))
    order = FullShuffle(unit="page", block=blocks.widest).fit(blocks.rows, 8.0, 100)
    alone = flat(visited(order, blocks, Key(1)))
    parts = [flat(visited(order, blocks, Key(1, 0, rank, 7))) for rank in range(7)]
    assert all(part == alone[slice(*Key(1, 0, rank, 7).share(blocks.rows))] for rank, part in enumerate(parts))


def test_sizes():
    order = FullShuffle(unit="page").fit(10**6, 100.0, 10**5)
    assert (order.run_bytes, order.block_rows) == (65536, 655)
    assert FullShuffle(unit="page", pages=4).fit(10**6, 100.0, None).block_rows == 163
    assert FullShuffle(unit="page").fit(10**6, 10.0**6, None).block_rows == 1
    assert FullShuffle(unit="row", block=7).fit(100, 8.0, None).block_rows == 1
    with pytest.raises(BadArgument, match="pages must be at least 1, got 0"):
        FullShuffle(pages=0)


def test_states_of_other_permutations_are_refused():
    """States without a version date from even permutations only: their rows came in another order."""
    order = FullShuffle().fit(100, 8.0, None)
    old = {name: value for name, value in described(order).items() if name != "version"}
    assert restored(described(order)) == replace(order, row_bytes=0.0)
    with pytest.raises(StateMismatch, match="version 1 of order full, this is version 3"):
        restored(old)
    assert "finish the epoch with the corgipile that saved it" in str(instead(old, described(order)))
