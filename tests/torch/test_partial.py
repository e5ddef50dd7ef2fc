"""The dataset with ranks that own blocks: workers, states, and another world."""

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

from corgipile.orders import Partial
from corgipile.torch import CorgiPileDataset

ROWS = 2000
TABLE = pa.table({"row": np.arange(ROWS)})
ORDER = Partial(fraction=0.25, block=8, buffer=64)


def dataset(rank, world, **more):
    return CorgiPileDataset(TABLE, order=ORDER, memory="1MB", batch_size=20, rank=rank, world=world, **more)


def batches_of(one, workers=0):
    return [batch["row"].tolist() for batch in DataLoader(one, batch_size=None, num_workers=workers)]


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_with_workers_visit_each_row_once(workers):
    parts = [batches_of(dataset(rank, 2), workers) for rank in range(2)]
    assert [len(part) for part in parts] == [50, 50]
    assert sorted(row for part in parts for batch in part for row in batch) == list(range(ROWS))


def test_the_same_world_resumes_batch_for_batch_and_the_epochs_after():
    whole = dataset(1, 2)
    epochs = [batches_of(whole) for _ in range(3)]
    left = dataset(1, 2)
    left.set_epoch(1)
    running = iter(DataLoader(left, batch_size=None))
    for _ in range(13):
        next(running)
    again = dataset(1, 2)
    again.load_state_dict(left.state_dict())
    assert [batches_of(again), batches_of(again)] == [epochs[1][13:], epochs[2]]


def test_another_world_visits_what_was_left():
    seen, states = [], []
    for rank in range(2):
        one = dataset(rank, 2)
        one.set_epoch(4)
        running = iter(one)
        seen += [row for _ in range(11) for row in next(running)["row"].tolist()]
        states.append(one.state_dict(batches=11))
    assert states[0] == states[1]
    for rank in range(3):
        one = dataset(rank, 3)
        one.load_state_dict(states[0])
        seen += [row for batch in batches_of(one) for row in batch]
    counts = np.bincount(seen, minlength=ROWS)
    assert counts.min() == 1
    assert counts.sum() < ROWS + 3
