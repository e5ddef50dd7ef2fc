"""Batches of row numbers: each once, balanced where labels are known, resumable, shared among ranks."""

import json
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from corgipile.errors import BadArgument, BadSize, StateMismatch
from corgipile.torch import BatchSampler

NAMES = ["no_shuffle", "block_only", "corgipile", "riffle", "sliding_window", "full"]


def flat(batches):
    return [row for batch in batches for row in batch]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 200), st.integers(1, 40), st.integers(1, 4), st.booleans())
def test_each_row_once_over_ranks(order, n, batch_size, world, drop_last):
    samplers = [
        BatchSampler(
            n, block=5, buffer=40, batch_size=batch_size, rank=rank, world=world, order=order, drop_last=drop_last
        )
        for rank in range(world)
    ]
    seen = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in seen} == {len(samplers[0])}
    if drop_last:
        assert len(set(flat(flat(seen)))) == len(flat(flat(seen)))
        assert {len(batch) for batches in seen for batch in batches} <= {batch_size}
    else:
        assert set(flat(flat(seen))) == set(range(n))
        assert len(flat(flat(seen))) < n + world


def test_labels_balance_every_batch():
    labels = np.arange(4000) // 1000
    batches = list(BatchSampler(4000, block=20, buffer=1280, batch_size=100, labels=labels.tolist()))
    shares = np.array([np.bincount(labels[batch], minlength=4) for batch in batches])
    plain = np.array(
        [
            np.bincount(labels[b], minlength=4)
            for b in BatchSampler(4000, block=20, buffer=1280, batch_size=100, order="corgipile")
        ]
    )
    assert shares.std(axis=0).mean() < 0.7 * np.sqrt(100 * 0.25 * 0.75) < plain.std(axis=0).mean()
    named = BatchSampler(
        4000, block=20, buffer=1280, batch_size=100, labels=np.array(["ant", "bee", "cow", "dog"])[labels]
    )
    assert list(named) == batches


def test_epochs_advance_and_can_be_set():
    sampler = BatchSampler(100, block=5, buffer=20, batch_size=8, seed=3)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert sampler.epoch == 1
    sampler.set_epoch(1)
    assert list(sampler) == second
    assert list(BatchSampler(100, block=5, buffer=20, batch_size=8, seed=4)) != first


@pytest.mark.parametrize("order", NAMES)
def test_stop_anywhere_and_go_on(order):
    def fresh(world=1, rank=0):
        labels = np.arange(101) // 40 if order == "riffle" else None
        return BatchSampler(101, block=5, buffer=40, batch_size=8, order=order, labels=labels, world=world, rank=rank)

    sampler = fresh()
    whole, following = list(sampler), list(sampler)
    for done in range(len(whole) + 1):
        sampler.set_epoch(0)
        list(islice(sampler, done + 2))
        state = json.loads(json.dumps(sampler.state_dict(batches=done)))
        again = fresh()
        again.load_state_dict(state)
        assert list(again) == (whole[done:] or following)
        pair = [fresh(2, rank) for rank in range(2)]
        for one in pair:
            one.load_state_dict(state)
        left = [list(one) for one in pair]
        assert len(left[0]) == len(left[1])
        assert set(flat(flat(left))) == set(flat(whole[done:] or following))


def test_under_data_loaders():
    rows = TensorDataset(torch.arange(100))
    sampler = BatchSampler(100, block=5, buffer=40, batch_size=8)
    for _ in range(2):
        assert sorted(flat(batch.tolist() for (batch,) in DataLoader(rows, batch_sampler=sampler))) == list(range(100))
    assert sampler.epoch == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*set_vital.*:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_stateful_data_loader(workers):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    rows = TensorDataset(torch.arange(100))

    def fresh():
        return torchdata.StatefulDataLoader(
            rows, batch_sampler=BatchSampler(100, block=5, buffer=40, batch_size=8), num_workers=workers
        )

    def seen(batches):
        return [batch.tolist() for (batch,) in batches]

    loader = fresh()
    whole, following = seen(loader), seen(loader)
    for done in (1, 7, 13):
        loader = fresh()
        batches = iter(loader)
        for _ in range(done):
            next(batches)
        if done == len(whole):
            assert not list(batches)
        again = fresh()
        again.load_state_dict(loader.state_dict())
        if done < len(whole):
            assert seen(again) == whole[done:]
        assert seen(again) == following


def test_numbers_of_numpy_are_as_good():
    sampler = BatchSampler(
        np.int64(10),
        block=2,
        buffer=4,
        batch_size=np.int64(2),
        seed=np.int64(3),
        rank=np.int64(1),
        world=np.int64(2),
        labels=["a", "b"] * 5,
    )
    next(iter(sampler))
    json.dumps(sampler.state_dict())
    assert (
        BatchSampler(10, block="20%", buffer=4, batch_size=2, order="balanced", labels=np.arange(10.0)).batch_size == 2
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": -1}, "n must be a whole number of at least 0, got -1"),
        ({"n": "10"}, "n must be a whole number of at least 0, got '10'"),
        ({"n": 10.0}, "n must be a whole number of at least 0, got 10.0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"block": "1KB"}, "block must be rows .* got '1KB'"),
        ({"buffer": "64B"}, "buffer must be rows .* got '64B'"),
        ({"rank": 2, "world": 2}, "rank 2 of world 2"),
        ({"rank": "0", "world": 2}, "rank must be a whole number, got '0'"),
        ({"labels": [0, 1]}, "labels must have shape \\(10,\\)"),
        ({"labels": ["a", None] * 5}, "labels must be all numbers or all text.* got NoneType, str"),
        ({"labels": [None] * 10}, "labels must be all numbers or all text.* got NoneType"),
        ({"order": "balanced"}, "give labels="),
        ({"order": "full", "labels": [0, 1] * 5}, "full, which does not balance"),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(BadArgument, match=message):
        BatchSampler(**{"n": 10, "block": 2, "buffer": 4, "batch_size": 2, **settings})


def test_states_and_positions_that_do_not_fit():
    sampler = BatchSampler(10, block=2, buffer=4, batch_size=2)
    next(iter(sampler))
    for batches in (-1, 1.5, "1"):
        with pytest.raises(BadArgument, match="batches must be a whole number of at least 0"):
            sampler.state_dict(batches=batches)
    for epoch in (1.5, "1", 2**63, -1):
        with pytest.raises(BadArgument, match="epoch must be a whole number"):
            sampler.set_epoch(epoch)
    with pytest.raises(StateMismatch, match="state belongs to another seed"):
        BatchSampler(10, block=2, buffer=4, batch_size=2, seed=1).load_state_dict(
            BatchSampler(10, block=2, buffer=4, batch_size=2).state_dict()
        )


def test_a_dataset_stands_for_its_rows():
    for sampler in (BatchSampler(range(600), block=10, buffer=50, batch_size=8), BatchSampler(range(600))):
        assert sorted(row for batch in sampler for row in batch) == list(range(600))
    with pytest.raises(BadSize, match="buffer must hold a block of 100 rows, got 50"):
        BatchSampler(600, block=100, buffer=50, batch_size=8)
