"""Arbitrary states: each is refused, or resumes exactly."""

import copy
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.errors import StateMismatch
from corgipile.orders import Riffle
from corgipile.torch import BatchSampler, CorgiPileDataset

TABLE = cp.open(pa.table({"x": np.arange(101), "label": np.arange(101) % 3}))
NUMBERS = st.integers(-3, 30) | st.sampled_from([2**31, 2**53, 2**62, 2**63, 2**64, 10**30, -(2**63)])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=3) | st.sampled_from(["riffle", "full", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "block", "a"]), inner),
    max_leaves=4,
)


def places(state, path=()):
    """List the paths of all values of a state."""
    yield path
    pairs = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, value in pairs:
        yield from places(value, (*path, key))


def put(state, path, value):
    """Return a state with another value at a path."""
    if not path:
        return value
    changed = copy.deepcopy(state)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def loader(order="riffle", **options):
    return cp.Loader(TABLE, batch_size=7, order=order, seed=5, **options)


def begun(made, batches):
    """Iterate so far, and return the state and the remaining batches."""
    it = iter(made)
    for _ in range(batches):
        next(it)
    state = json.loads(json.dumps(made.state_dict()))
    return state, [batch["x"].tolist() for batch in it]


@pytest.mark.parametrize("order", ["riffle", "corgipile", "full", "reservoir", "sliding_window", "balanced"])
@settings(max_examples=60)
@given(data=st.data())
def test_any_state_of_a_loader(order, data):
    made = loader(order)
    state, rest = begun(made, data.draw(st.integers(0, len(made))))
    path = data.draw(st.sampled_from(sorted(places(state), key=str)))
    changed = put(state, path, data.draw(VALUES))
    again = loader(order)
    try:
        again.load_state_dict(changed)
    except StateMismatch:
        assert changed != state or not alike(changed, state)
        return
    if path in ((), ("epoch",)) or changed == state:
        total = len(again)
    else:
        assert [batch["x"].tolist() for batch in again] == rest
        return
    assert len(list(again)) <= total


def alike(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def with_batches(state, batches):
    """Return a state with other numbers of finished batches."""
    return {**state, "segments": [{**state["segments"][0], "batches": [batches]}]}


@pytest.mark.parametrize("name", ["step", "offset", "batches", "epoch"])
@pytest.mark.parametrize("value", [-1, 10**9, 2**62, 10**30, 1.0, True, None, "1", [1]])
def test_positions_that_cannot_be(name, value):
    state, _ = begun(loader(), 3)
    again = loader()
    if name == "epoch" and value in (10**9, 2**62) and not isinstance(value, bool):
        again.load_state_dict({**loader().state_dict(), name: value})
        assert sorted(x for batch in again for x in batch["x"].tolist()) == list(range(101))
        return
    with pytest.raises(StateMismatch, match=name):
        again.load_state_dict(with_batches(state, value) if name == "batches" else {**state, name: value})


def test_a_position_without_segments_is_refused():
    state, _ = begun(loader("full"), 1)
    with pytest.raises(StateMismatch, match="but no segments"):
        loader("full").load_state_dict({**state, "segments": []})


@pytest.mark.parametrize("name", ["rank", "worker"])
def test_a_rank_or_worker_that_there_is_not_is_refused(name):
    state, _ = begun(loader(), 1)
    with pytest.raises(StateMismatch, match=f"{name} 1099511627776 of 1"):
        loader().load_state_dict({**state, name: 1 << 40})


def test_one_batch_more_or_less_is_refused():
    state, _ = begun(loader(), 3)
    for batches in (2, 4):
        with pytest.raises(StateMismatch, match=f"{batches} batches end elsewhere"):
            loader().load_state_dict(with_batches(state, batches))


def test_a_state_of_a_far_row_is_believed_until_the_epoch_ends(monkeypatch):
    monkeypatch.setattr("corgipile.loader.segments.MAX_FOLLOWED", 10)
    state, rest = begun(loader(), 3)
    again = loader()
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == rest
    for wrong in ({"step": state["step"] + 9}, {"step": 101}, {"offset": 101}):
        again.load_state_dict({**state, **wrong})
        with pytest.raises(StateMismatch, match="of 15 batches: the state is wrong"):
            list(again)


def old_form(state, made):
    """Write the state of a loader as earlier releases did, without segments."""
    (segment,), order = state["segments"], made.feeder.order
    whose = {name: segment[name] for name in ("batch_size", "drop_last", "world")}
    place = {name: state[name] for name in ("table", "seed", "rank", "worker", "epoch", "step", "offset")}
    done = {"workers": len(segment["batches"]), "batches": segment["batches"][state["worker"]]}
    return {"version": 1, "order": cp.orders.described(order), **whose, **place, **done}


@pytest.mark.parametrize("order", ["riffle", "full", "reservoir"])
def test_a_state_in_the_old_form_goes_on(order):
    for worker in range(2):
        state, rest = begun(made := loader(order, worker=worker, workers=2), 3)
        again = loader(order, worker=worker, workers=2)
        again.load_state_dict(old := old_form(state, made))
        assert [batch["x"].tolist() for batch in again] == rest
        for wrong in ({"workers": 3}, {"workers": worker}, {"batches": 9}, {"batches": None}, {"batch_size": 8}):
            with pytest.raises(StateMismatch):
                again.load_state_dict({**old, **wrong})


def test_loaders_and_datasets_have_one_kind_of_state():
    order = Riffle(block=4, buffer=20)
    state, rest = begun(loader(order), 3)
    dataset = CorgiPileDataset(TABLE, order=order, memory=None, batch_size=7, seed=5)
    dataset.load_state_dict(state)
    assert rows_of(dataset) == rest
    dataset.load_state_dict(state)
    next(iter(dataset))
    again = loader(order)
    again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
    assert [batch["x"].tolist() for batch in again] == rest[1:]
    dataset.load_state_dict(state)
    assert rows_of(dataset) == rest
    again.load_state_dict(dataset.state_dict())  # the whole next epoch
    assert again.epoch == 1
    assert len(list(again)) == 15


def test_a_state_of_one_rank_serves_the_others():
    state, _ = begun(loader(rank=0, world=2), 3)
    whole = [batch["x"].tolist() for batch in loader(rank=1, world=2)]
    again = loader(rank=1, world=2)
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == whole[3:]


def test_a_state_of_fewer_workers_is_refused():
    def dealt(workers):
        return cp.Loader(TABLE, batch_size=7, order=Riffle(block=4, buffer="20%"), seed=5, workers=workers)

    one, two = dealt(1).state_dict(), dealt(2).state_dict()
    one["segments"][0]["order"] = two["segments"][0]["order"]
    with pytest.raises(StateMismatch, match="another number of workers: it has 1, here it is 2"):
        dealt(2).load_state_dict(one)


def test_an_epoch_in_parts_is_for_a_dataset():
    state, _ = begun(loader(), 3)
    other = CorgiPileDataset(TABLE, order="riffle", memory=None, batch_size=5, seed=5)
    other.load_state_dict(state)
    next(iter(other))
    with pytest.raises(StateMismatch, match="an epoch in 2 segments: load it into a CorgiPileDataset"):
        loader().load_state_dict(other.state_dict())


def sampled(made):
    return [list(batch) for batch in made]


def rows_of(dataset):
    return [batch["x"].tolist() for batch in DataLoader(dataset, batch_size=None)]


MAKERS = {
    "sampler": (lambda: BatchSampler(101, block=4, buffer=20, batch_size=7, seed=5), sampled),
    "dataset": (
        lambda: CorgiPileDataset(TABLE, order=Riffle(block=4, buffer=20), memory=None, batch_size=7, seed=5),
        rows_of,
    ),
    "pages": (lambda: CorgiPileDataset(TABLE, order="full", batch_size=7, seed=5), rows_of),
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "other", [cp.orders.described(cp.orders.FullShuffle()), {"name": "riffle", "version": 2}, None, 3]
)
def test_a_state_that_names_another_order_is_refused(other, whole):
    state = loader().state_dict()
    with pytest.raises(StateMismatch, match="another order"):
        loader().load_state_dict({**state, "order": other, "segments": [] if whole else state["segments"]})


def test_sizes_of_an_order_may_be_said_in_other_words_where_a_segment_has_them_in_rows():
    state, rest = begun(loader(Riffle(block=4, buffer=20)), 3)
    state["order"] |= {"block": "16B", "buffer": "20%"}
    again = loader(Riffle(block=4, buffer=20))
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == rest
    with pytest.raises(StateMismatch, match="another order"):
        again.load_state_dict({**state, "segments": []})


def test_a_full_shuffle_without_a_block_is_no_state():
    dataset = MAKERS["pages"][0]()
    next(iter(dataset))
    state = dataset.state_dict()
    state["segments"][0]["order"]["block"] = None
    dataset.load_state_dict(state)
    with pytest.raises(StateMismatch, match="block must be in rows, got None"):
        next(iter(dataset))


@pytest.mark.parametrize("kind", sorted(MAKERS))
@settings(max_examples=60)
@given(data=st.data())
def test_any_state_of_a_dataset_or_sampler(kind, data):
    make, read = MAKERS[kind]
    made = make()
    whole = read(made)
    made.set_epoch(0)
    it = iter(made)
    batches = data.draw(st.integers(0, len(whole) - 1))
    for _ in range(batches):
        next(it)
    state = json.loads(json.dumps(made.state_dict(batches)))
    path = data.draw(st.sampled_from(sorted(places(state), key=str)))
    changed = put(state, path, data.draw(VALUES))
    again = make()
    try:
        again.load_state_dict(changed)
        got = read(again)
    except StateMismatch:
        return
    if len(path) and path[0] == "epoch":
        return  # another epoch, which is valid
    seen = sorted(row for batch in got for row in batch)
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(range(101))
    if alike(changed, state):
        assert got == whole[batches:]
