"""A state after any batch: the same tail in the same world, each row left once in another."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument, StateMismatch
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow
from corgipile.torch import CorgiPileDataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*set_vital.*:UserWarning"),  # torchdata calls it
]
ORDER = Riffle(block=20, buffer=160)
ORDERS = [
    NoShuffle(block=20),
    CorgiPile(block=20, buffer=160),
    ORDER,
    Riffle(block=20, buffer=160, balance="label"),
    SlidingWindow(block=20, buffer=160),
    Reservoir(block=20, buffer=160),
    FullShuffle(buffer=160),
]


def make(table, **settings):
    return CorgiPileDataset(table, **{"order": ORDER, "batch_size": 128, "seed": 1, **settings})


def plain(dataset, workers=0, **settings):
    return DataLoader(dataset, batch_size=None, num_workers=workers, **settings)


def stateful(dataset, workers=0, **settings):
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(
        dataset, batch_size=None, num_workers=workers, **settings
    )


def rows_of(batches):
    return [batch["row"].tolist() for batch in batches]


def flat(batches):
    return [row for batch in batches for row in batch]


def loaded(table, state, **settings):
    dataset = make(table, **settings)
    dataset.load_state_dict(json.loads(json.dumps(state)))
    return dataset


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.name}-{getattr(order, 'balance', None)}")
def test_every_batch_can_be_the_last_before_a_restart(path, order):
    dataset = make(path, order=order)
    first, following = rows_of(plain(dataset)), rows_of(plain(dataset))
    dataset.set_epoch(0)
    batches, states = iter(plain(dataset)), [dataset.state_dict()]
    for _ in first:
        next(batches)
        states.append(dataset.state_dict())
    for done, state in enumerate(states):
        again = loaded(path, state, order=order)
        assert rows_of(plain(again)) == (first[done:] or following)
        if done < len(first):
            assert rows_of(plain(again)) == following


@pytest.mark.parametrize("done", [1, 4, 8])
def test_workers_go_on_where_the_loop_was(path, done):
    dataset = make(path)
    whole, following = rows_of(plain(dataset, 2)), rows_of(plain(dataset, 2))
    dataset.set_epoch(0)
    batches = iter(plain(dataset, 2))
    assert [next(batches)["row"].tolist() for _ in range(done)] == whole[:done]
    with pytest.raises(BadArgument, match="workers run ahead"):
        dataset.state_dict()
    with pytest.raises(BadArgument, match="this iteration has 8 batches, got a request for 9"):
        dataset.state_dict(batches=9)
    for settings in ({"batches": -1}, {"batches": 1.5}, {"batches": 1, "batch_size": 0}):
        with pytest.raises(BadArgument, match="must be a whole number of at least"):
            dataset.state_dict(**settings)
    state = dataset.state_dict(batches=done)
    again = loaded(path, state)
    again.set_epoch(again.epoch)  # as a training loop does, which knows nothing of the state
    batches = plain(again, 2, persistent_workers=True)
    assert rows_of(batches) == (whole[done:] or following)
    if done < len(whole):
        assert rows_of(batches) == following


def test_persistent_workers_learn_of_a_state(path):
    dataset = make(path)
    batches = plain(dataset, 2, persistent_workers=True)
    whole = rows_of(batches)
    dataset.set_epoch(0)
    next(iter(batches))
    dataset.load_state_dict(dataset.state_dict(batches=3))
    assert rows_of(batches) == whole[3:]


def test_another_world_and_another_after_that(path):
    """Two ranks of one worker each, then one rank of two workers, then three ranks of another batch size."""
    ranks = [make(path, rank=rank, world=2) for rank in range(2)]
    seen, states = [], []
    for dataset in ranks:
        batches = iter(dataset)
        seen += flat(next(batches)["row"].tolist() for _ in range(2))
        states.append(dataset.state_dict())
    assert states[0] == states[1]
    one = loaded(path, states[0])
    batches = iter(plain(one, 2))
    seen += flat(next(batches)["row"].tolist() for _ in range(3))
    state = one.state_dict(batches=3)
    assert len(json.dumps(state)) < 1500
    three = [loaded(path, state, rank=rank, world=3, batch_size=20) for rank in range(3)]
    rest = [rows_of(dataset) for dataset in three]
    assert len({len(batches) for batches in rest}) == 1
    seen += flat(flat(rest))
    assert set(seen) == set(range(1000))
    assert len(seen) <= 1002
    assert sorted(flat(rows_of(make(path)))) == list(range(1000))
    assert set(flat(flat(rows_of(dataset) for dataset in three))) == set(range(1000))


def test_rows_that_a_loader_batches(path):
    dataset = CorgiPileDataset(path, order=ORDER, seed=1)
    whole = rows_of(DataLoader(dataset, batch_size=30, num_workers=2))
    dataset.set_epoch(0)
    batches = iter(DataLoader(dataset, batch_size=30, num_workers=2))
    seen = [next(batches)["row"].tolist() for _ in range(5)]
    again = CorgiPileDataset(path, order=ORDER, seed=1)
    again.load_state_dict(dataset.state_dict(batches=5, batch_size=30))
    assert seen + rows_of(DataLoader(again, batch_size=30, num_workers=2)) == whole


def test_a_state_crosses_processes(path):
    dataset = make(path)
    batches = iter(dataset)
    for _ in range(3):
        next(batches)
    state, tail = dataset.state_dict(), rows_of(batches)
    script = (
        "import json, sys\n"
        "from corgipile.orders import Riffle\n"
        "from corgipile.torch import CorgiPileDataset\n"
        "path, state = json.load(sys.stdin)\n"
        "dataset = CorgiPileDataset(path, order=Riffle(block=20, buffer=160), batch_size=128, seed=1)\n"
        "dataset.load_state_dict(state)\n"
        "print(json.dumps([batch['row'].tolist() for batch in dataset]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps([path, state]), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == tail


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (2, True)])
def test_stateful_data_loader(path, workers, persistent):
    settings = {"workers": workers, "persistent_workers": persistent}
    dataset = make(path)
    batches = stateful(dataset, **settings)
    whole, following = rows_of(batches), rows_of(batches)
    dataset.set_epoch(0)
    running, states = iter(batches), []
    for _ in whole:
        next(running)
        states.append(batches.state_dict())
    assert not list(running)
    states.append(batches.state_dict())
    for done in (1, 3, 7, 9):
        again = stateful(make(path), **settings)
        again.load_state_dict(states[done - 1])
        if done == 9:
            assert rows_of(again) == following
            continue
        assert rows_of(again) == whole[done:]
        assert rows_of(again) == following


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_that_seldom_takes_snapshots(path, workers):
    whole = rows_of(plain(make(path), workers))
    for done in (1, 4, 7):
        batches = stateful(make(path), workers, snapshot_every_n_steps=3)
        running = iter(batches)
        assert [next(running)["row"].tolist() for _ in range(done)] == whole[:done]
        again = stateful(make(path), workers, snapshot_every_n_steps=3)
        again.load_state_dict(batches.state_dict())
        assert rows_of(again) == whole[done:]


def test_a_state_of_nodes(path):
    nodes = pytest.importorskip("torchdata.nodes")

    def loader():
        return nodes.Loader(nodes.Prefetcher(nodes.IterableWrapper(make(path)), prefetch_factor=2))

    batches = loader()
    whole, following = rows_of(batches), rows_of(batches)
    batches = loader()
    running = iter(batches)
    assert [next(running)["row"].tolist() for _ in range(3)] == whole[:3]
    again = loader()
    again.load_state_dict(batches.state_dict())
    assert rows_of(again) == whole[3:]
    assert rows_of(again) == following


@pytest.mark.parametrize("before", [0, 2])
def test_a_stateful_state_with_other_workers(path, before):
    batches = stateful(make(path), before)
    running = iter(batches)
    seen = [next(running)["row"].tolist() for _ in range(3)]
    state = batches.state_dict()
    rest = rows_of(plain(loaded(path, state), 2 - before))
    assert sorted(flat(seen + rest)) == list(range(1000))
    same = make(path)
    same.load_state_dict(state)
    assert rows_of(plain(same, before)) == rows_of(running)
    over = loaded(path, batches.state_dict())
    assert over.epoch == 1
    assert len(rows_of(plain(over))) == 8


@pytest.mark.parametrize("order", [ORDER, FullShuffle(unit="page")], ids=["riffle", "page"])
def test_many_columns(order):
    table = pa.table({"row": np.arange(50), **{f"feature_number_{i:05}": np.zeros(50) for i in range(3000)}})
    dataset = make(table, order=order, batch_size=8)
    batches = iter(dataset)
    seen = [next(batches)["row"].tolist() for _ in range(2)]
    state = dataset.state_dict()
    if order is ORDER:
        assert len(json.dumps(state)) < 1000
        assert sorted(flat(seen + rows_of(loaded(table, state, order=order, batch_size=8)))) == list(range(50))
    else:
        with pytest.raises(BadArgument, match="read fewer columns"):
            loaded(table, state, order=order, batch_size=8)


def test_pages_keep_their_columns(path):
    """Blocks of pages are cut by the widest column read: a state is good for other columns all the same."""
    settings = {"order": FullShuffle(unit="page", pages=1), "memory": "64KB"}
    dataset = make(path, columns=["row"], **settings)
    batches = iter(dataset)
    seen = [next(batches)["row"].tolist() for _ in range(5)]
    rest = rows_of(loaded(path, dataset.state_dict(), **settings))
    assert sorted(flat(seen + rest)) == list(range(1000))


def test_states_of_others_are_refused(path):
    state = make(path).state_dict()
    other = pa.table({"row": np.arange(10)})
    for dataset, what in [
        (make(path, seed=2), "seed"),
        (make(path, order="full"), "order"),
        (CorgiPileDataset(other, order=ORDER, seed=1), "table"),
    ]:
        with pytest.raises(StateMismatch, match=f"state belongs to another {what}"):
            dataset.load_state_dict(state)
    for broken in ({**state, "epoch": -1}, {**state, "segments": [{}]}, {**state, "segments": 3}):
        with pytest.raises(StateMismatch, match=r"no valid position|a segment must have|list of segments"):
            make(path).load_state_dict(broken)
    with pytest.raises(StateMismatch, match="a state must have 'version'"):
        make(path).load_state_dict({})
