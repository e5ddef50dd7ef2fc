"""The visits of some rows equal those of the whole pass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.orders import (
    BlockOnly,
    Blocks,
    CorgiPile,
    FullShuffle,
    Key,
    NoShuffle,
    Reservoir,
    Riffle,
    SlidingWindow,
    turns_of,
    visited_rows,
)  # fmt: skip

ORDERS = [
    Riffle(block=5, buffer=40), CorgiPile(block=6, buffer=30), NoShuffle(block=9), FullShuffle(),
    SlidingWindow(buffer=20), Reservoir(buffer=20), BlockOnly(block=7),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@given(st.integers(1, 300), st.integers(1, 3), st.sets(st.integers(0, 299)), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_turns_are_those_of_the_pass(order, rows, world, wanted, seed):
    fitted = order.fit(rows, 8, None)
    blocks = Blocks(rows, even=1 if fitted.cuts_into == "row" else fitted.block_rows)
    for rank in range(world):
        key = Key(seed, 0, rank, world)
        some = np.array(sorted(row for row in wanted if row < rows), np.int64)
        found = turns_of(some, fitted, blocks, key)
        for visited, (at, turned, count) in zip(visited_rows(fitted, blocks, key), found, strict=True):
            assert count == len(visited)
            assert at.tolist() == np.flatnonzero(np.isin(visited, some)).tolist()
            assert turned.tolist() == visited[at].tolist()
