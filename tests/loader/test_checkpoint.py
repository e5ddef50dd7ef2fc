"""Ranks and workers share an epoch exactly, and an interrupted one resumes exactly, also in another world."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.loader import Loader
from corgipile.loader.budget import columns_of, fit
from corgipile.loader.checkpoint import go_on, segments_of
from corgipile.loader.segments import EpochSegment, dealt, next_worker
from corgipile.orders import BlockOnly, CorgiPile, FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow
from corgipile.tables import MemoryTable

ORDERS = [
    NoShuffle(block=7),
    BlockOnly(block=7),
    CorgiPile(block=5, buffer=40),
    Riffle(block=5, buffer=40),
    Riffle(block=5, buffer=40, balance="label"),
    SlidingWindow(block=5, buffer=40),
    Reservoir(block=5, buffer=40),
    FullShuffle(buffer=40),
]


def table_of(rows):
    return MemoryTable(pa.table({"row": np.arange(rows), "label": np.arange(rows) * 3 // max(rows, 1)}))


class Ranks:
    """All ranks and workers of one world, over the rows that some segments left of an epoch."""

    def __init__(self, table, order, batch_size, world, workers, drop_last=False, epoch=3, segments=()):
        def begin(some):
            fitted = fit(some, order, None, columns_of(some), workers)
            return EpochSegment.begin(fitted, batch_size, world, workers, drop_last=drop_last), fitted

        self.part = go_on(table, 9, epoch, segments, begin)
        settings = {"batch_size": batch_size, "order": order, "seed": 9, "drop_last": drop_last}
        shape = {"world": world, "workers": workers}
        self.loaders = [
            [Loader(self.part.table, **settings, rank=rank, worker=worker, **shape) for worker in range(workers)]
            for rank in range(world)
        ]
        self.epoch, self.workers = epoch, workers

    def batches(self, turns=None):
        """Return the batches of each rank, its workers taking turns, and the final segments."""
        begun = list(self.part.segment.batches)
        turns = sum(self.part.totals) - sum(begun) if turns is None else turns
        done, seen = self.part.after(turns), []
        for loaders in self.loaders:
            each = [self.some(loader, begun[k], done[k]) for k, loader in enumerate(loaders)]
            got, taken = [], list(begun)
            for _ in range(turns):
                k = next_worker(taken, self.part.totals)
                got.append(each[k].pop(0))
                taken[k] += 1
            seen.append(got)
            assert taken == done
        return seen, segments_of(json.loads(json.dumps(self.part.state(done)))["segments"])

    def some(self, loader, first, last):
        loader.set_epoch(self.epoch)
        loader.seek(first)
        batches = iter(loader)
        got = [next(batches)["row"].tolist() for _ in range(first, last)]
        batches.close()
        return got


def flat(seen):
    return [row for rank in seen for batch in rank for row in batch]


orders = st.sampled_from(ORDERS)


@settings(max_examples=60, deadline=None)
@given(orders, st.integers(1, 150), st.integers(1, 50), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_each_row_once_over_ranks_and_workers(order, rows, batch_size, world, workers, drop_last):
    ranks = Ranks(table_of(rows), order, batch_size, world, workers, drop_last)
    seen, _ = ranks.batches()
    assert len({len(rank) for rank in seen}) == 1
    visited = flat(seen)
    if order.name == "reservoir":
        assert set(visited) == set(range(rows)) or drop_last
        return
    sizes = [len(batch) for batch in seen[0]]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    if drop_last:
        assert len(set(visited)) == len(visited) > rows - world * (batch_size + 1)
        assert set(sizes) <= {batch_size}
    else:
        assert set(visited) == set(range(rows))
        assert len(visited) < rows + world


@settings(max_examples=60, deadline=None)
@given(orders, st.integers(1, 150), st.integers(1, 20), st.data())
def test_what_is_left_is_visited_once_by_others(order, rows, batch_size, data):
    table, segments, visited = table_of(rows), [], []
    for _ in range(data.draw(st.integers(1, 3))):
        world, workers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
        ranks = Ranks(table, order, batch_size, world, workers, segments=segments)
        most = sum(ranks.part.totals) - sum(ranks.part.segment.batches)
        seen, segments = ranks.batches(data.draw(st.integers(0, most)))
        visited += flat(seen)
    visited += flat(Ranks(table, order, batch_size, 1, 1, segments=segments).batches()[0])
    assert set(visited) == set(range(rows))
    if order.name != "reservoir":
        assert len(visited) <= rows + 2 * 3  # at most three worlds of three ranks, each repeats at most two rows


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.name}-{getattr(order, 'balance', None)}")
@pytest.mark.parametrize(("world", "workers"), [(1, 1), (1, 3), (2, 2)])
def test_the_tail_is_the_same_in_the_same_world(order, world, workers):
    table = table_of(101)
    whole, _ = Ranks(table, order, 8, world, workers).batches()
    for turns in range(len(whole[0])):
        _, segments = Ranks(table, order, 8, world, workers).batches(turns)
        again = Ranks(table, order, 8, world, workers, segments=segments)
        tail, end = again.batches()
        assert tail == [rank[turns:] for rank in whole]
        assert len(end) == 1


def test_a_change_of_memory_is_another_segment():
    order = Riffle(block=5, buffer=40)
    _, segments = Ranks(table_of(100), order, 8, 1, 1).batches(4)
    again = Ranks(table_of(100), replace(order, buffer=60), 8, 1, 1, segments=segments)
    seen, segments = again.batches()
    assert len(segments) == 2
    assert len(set(flat(seen))) == len(flat(seen)) == 100 - 4 * 8


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 50))
def test_workers_take_turns(left, turns):
    got, wanted = [0] * len(left), turns
    while wanted and got != left:
        for worker, most in enumerate(left):
            if wanted and got[worker] < most:
                got[worker] += 1
                wanted -= 1
    assert dealt(left, turns) == got
