"""Steps and rows that a dataset leaves out: with any workers, on ranks in step, after every resume."""

import json

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader import Loader
from corgipile.orders import Riffle
from corgipile.torch import CorgiPileDataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*set_vital.*:UserWarning"),  # torchdata calls it
]
TABLE = pa.table({"row": np.arange(203)})
SKIP = [(0, 0), (0, 5), (0, 6), (1, 2), 17, 101, 150]


def make(skip=SKIP, **settings):
    return CorgiPileDataset(
        TABLE, **{"order": Riffle(block=5, buffer=40), "batch_size": 10, "seed": 1, "skip": skip, **settings}
    )


def rows_of(batches):
    return [batch["row"].tolist() for batch in batches]


def run(dataset, workers):
    return DataLoader(dataset, batch_size=None, num_workers=workers)


def wanted(world, rank, workers, epoch=0):
    """Return the batches that are left, by plan."""
    plain = make((), world=world, rank=rank)
    steps = {one[1] for one in SKIP if not isinstance(one, int) and one[0] == epoch}
    rewind = plain.rewind(workers)
    return [
        [row for row in rewind.rows_of(step, epoch=epoch).tolist() if row not in SKIP]
        for step in range(rewind.steps(epoch))
        if step not in steps
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [1, 2])
def test_they_are_left_out(world, workers):
    for rank in range(world):
        dataset = make(world=world, rank=rank)
        assert len(dataset) == len(wanted(world, rank, 0))
        for epoch in range(2):
            batches = rows_of(run(dataset, workers))
            left = wanted(world, rank, workers, epoch)
            assert batches == left if not workers else sorted(batches) == sorted(left)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stopped", [0, 1, 3, 5, 9, 17, 18])
def test_a_state_after_any_batch_goes_on_with_the_rest(workers, stopped):
    whole = rows_of(run(make(), workers))
    assert len(whole) == 18
    dataset = make()
    batches = iter(run(dataset, workers))
    seen = [next(batches)["row"].tolist() for _ in range(stopped)]
    assert seen == whole[:stopped]
    state = json.loads(json.dumps(dataset.state_dict(batches=stopped)))
    other = make(())
    other.load_state_dict(state)
    rest = rows_of(run(other, workers))
    left = whole[stopped:] if stopped < 18 else wanted(1, 0, workers, 1)
    assert rest == left if stopped < 18 or not workers else sorted(rest) == sorted(left)
    assert other.state_dict(batches=0)["skip"] == make().state_dict()["skip"]
    with pytest.raises(BadArgument, match="got a request for"):
        dataset.state_dict(batches=19)


def test_what_is_left_on_other_ranks_has_no_row_of_them():
    dataset = make(skip=[17, 101, 150], world=2, rank=0)
    batches = iter(dataset)
    taken = rows_of(next(batches) for _ in range(4))
    both = [make((), world=2, rank=1).rows_of(step).tolist() for step in range(4)]
    state = dataset.state_dict()
    rest = []
    for rank in range(3):
        other = make((), batch_size=7, world=3, rank=rank)
        other.load_state_dict(state)
        rest += [row for batch in rows_of(other) for row in batch]
    seen = [row for batch in [*taken, *both] for row in batch]
    assert {*seen, *rest} - {17, 101, 150} == {*range(203)} - {17, 101, 150}
    assert not {*rest} & {17, 101, 150}
    assert not {*rest} & {*seen}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_keeps_them(workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    batches = stateful(make(), batch_size=None, num_workers=workers)
    whole = rows_of(batches)
    batches = stateful(make(), batch_size=None, num_workers=workers)
    run_of = iter(batches)
    seen = [next(run_of)["row"].tolist() for _ in range(5)]
    other = stateful(make(()), batch_size=None, num_workers=workers)
    other.load_state_dict(batches.state_dict())
    assert seen + rows_of(other) == whole


def test_a_state_of_a_loader_is_taken():
    loader = Loader(TABLE, batch_size=10, order=Riffle(block=5, buffer=40), seed=1, memory="64MB", skip=SKIP)
    batches = iter(loader)
    seen = [next(batches)["row"].tolist() for _ in range(4)]
    dataset = make(())
    dataset.load_state_dict(loader.state_dict())
    assert seen + rows_of(dataset) == wanted(1, 0, 0)


def test_bad_input():
    with pytest.raises(BadArgument, match="give batch_size"):
        make(batch_size=None)
    for wrong in ([203], [-1], 3, "x"):
        with pytest.raises(BadArgument, match="skip"):
            make(wrong)
    dataset = make(())
    list(run(dataset, 2))
    with pytest.raises(StateMismatch, match="give skip= to the dataset"):
        dataset.load_state_dict({**make().state_dict(), "segments": []})
    with pytest.raises(StateMismatch, match="skip"):
        make(()).load_state_dict({**make().state_dict(), "skip": [999]})
