"""Datasets of fixed global batches, in DataLoaders with workers, over changing worlds."""

import json
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument
from corgipile.torch import BatchSampler, CorgiPileDataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
ROWS = 700
TABLE = pa.table({"row": np.arange(ROWS)})


def dataset(rank, world, **more):
    made = {"batch_size": 24, "memory": "64KB", "seed": 2, "order": "riffle", "global_batches": "fixed", **more}
    return CorgiPileDataset(TABLE, rank=rank, world=world, **made)


def run(world, workers=0, state=None, steps=None):
    """Return the rows of each global batch, and the state after so many steps."""
    ranks = [dataset(rank, world) for rank in range(world)]
    states, batches = [], []
    for one in ranks:
        if state is not None:
            one.load_state_dict(json.loads(json.dumps(state)))
        found = []
        for batch in DataLoader(one, batch_size=None, num_workers=workers):
            found.append(batch["row"].tolist())
            if len(found) == steps:
                break
        batches.append(found)
        states.append(one.state_dict(batches=len(found)))
    assert all(one == states[0] for one in states)
    return [sorted(set(chain(*parts))) for parts in zip(*batches, strict=True)], states[0]


def test_workers_see_the_same_batches():
    alone, _ = run(1)
    assert sorted(chain(*alone)) == list(range(ROWS))
    assert run(2, workers=2)[0] == run(1, workers=3)[0] == alone


def test_eight_ranks_then_six_then_three_with_workers():
    alone, _ = run(1)
    first, state = run(8, steps=9)
    second, state = run(6, state=state, steps=7)
    third, state = run(3, workers=2, state=state, steps=5)
    rest, state = run(4, state=state)
    assert first + second + third + rest == alone
    assert (state["epoch"], state["segments"]) == (1, [])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(1, 9)), min_size=1, max_size=4))
def test_any_worlds_one_after_the_other(worlds):
    alone, _ = run(1)
    found, state = [], None
    for world, steps in worlds:
        some, state = run(world, state=state, steps=steps)
        found += some
    if state["epoch"] == 0:
        found += run(2, state=state)[0]
    assert found[: len(alone)] == alone


def test_samplers_too():
    def sampler(rank, world):
        return BatchSampler(
            ROWS, block=5, buffer=200, batch_size=24, rank=rank, world=world, global_batches="fixed", seed=3
        )

    alone = [sorted(batch) for batch in sampler(0, 1)]
    ranks = [sampler(rank, 3) for rank in range(3)]
    found = [sorted(set(chain(*parts))) for parts in zip(*ranks, strict=True)]
    assert found == alone
    first = iter(one := sampler(0, 3))
    for _ in range(4):
        next(first)
    state = one.state_dict()
    four = [sampler(rank, 4) for rank in range(4)]
    for one in four:
        one.load_state_dict(json.loads(json.dumps(state)))
    rest = [sorted(set(chain(*parts))) for parts in zip(*four, strict=True)]
    assert rest == alone[4:]


def test_what_is_wrong_is_said():
    with pytest.raises(BadArgument, match="needs batch_size"):
        dataset(0, 1, batch_size=None)
    with pytest.raises(BadArgument, match="do not divide among 5 ranks"):
        len(dataset(0, 5))
