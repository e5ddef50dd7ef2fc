"""The dataset under a DataLoader: every row once an epoch, in the epoch meant, with any workers; errors come out."""

import copy
import json
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument, BudgetTooSmall, MissingColumn, ReadFailed
from corgipile.orders import FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow
from corgipile.tables import MemoryTable
from corgipile.testing import Failing
from corgipile.torch import CorgiPileDataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on machines with one core
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
ORDER = Riffle(block=20, buffer=160)


def make(table, **settings):
    return CorgiPileDataset(table, **{"order": ORDER, "batch_size": 64, "seed": 1, **settings})


def loader(dataset, workers=0, **settings):
    return DataLoader(dataset, batch_size=None, num_workers=workers, **settings)


def rows_of(batches):
    return [batch["row"].tolist() for batch in batches]


def fail(dataset, workers):
    """Iterate in vain; end the workers here, since PyTorch waits long for those of an iterator that is garbage."""
    batches = iter(loader(dataset, workers))
    try:
        list(batches)
    finally:
        if workers:
            batches._shutdown_workers()


def everything(batches):
    return sorted(row for batch in batches for row in batch)


def double(batch):
    return batch["features"] * 2, batch["label"]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_every_row_once_with_its_own_values(path, rows_table, workers):
    features = torch.tensor(np.stack(rows_table["features"].to_numpy()))
    batches = list(loader(make(path), workers))
    assert [len(batch["row"]) for batch in batches] == [64] * 15 + [40]
    assert everything(rows_of(batches)) == list(range(1000))
    for batch in batches:
        assert torch.equal(batch["features"], features[batch["row"]])
        assert batch["label"].dtype == torch.int32


@pytest.mark.parametrize(
    "order",
    ["no_shuffle", SlidingWindow(block=20, buffer=160), Reservoir(block=20, buffer=160), FullShuffle(buffer=160)],
    ids=lambda order: getattr(order, "name", order),
)
def test_all_orders_run_in_workers(path, order):
    dataset = make(path, order=order, columns=["row"])
    rows = rows_of(loader(dataset, 2))
    assert set(everything(rows)) == set(range(1000))
    assert len(rows) == len(dataset)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_epochs_advance_and_can_be_set(path, workers, persistent):
    dataset = make(path)
    batches = loader(dataset, workers, persistent_workers=persistent)
    first, second = rows_of(batches), rows_of(batches)
    assert first != second
    assert dataset.epoch == 1
    next(iter(batches))
    assert dataset.epoch == 2
    dataset.set_epoch(1)
    assert rows_of(batches) == second
    torch.manual_seed(0)
    third = rows_of(batches)
    torch.manual_seed(0)
    assert rows_of(batches) != third


def test_workers_of_one_do_not_change_the_order(path):
    assert rows_of(loader(make(path), 1)) == rows_of(loader(make(path), 0))


def test_memory_and_buffer_are_shared_by_workers(path):
    dataset = make(path, order="corgipile", memory="8KB", columns=["row"])
    per_worker = dataset._settings.loader(dataset.table, 0, 1, 1, 2).feeder
    assert 2 << 10 < per_worker.buffer_bytes <= 4 << 10
    shared = make(path, order=Riffle(block=20, buffer="16%"))._settings.loader(dataset.table, 0, 1, 1, 2).feeder
    assert shared.order.buffer == 80


def test_rows_for_a_loader_that_batches(path):
    dataset = CorgiPileDataset(path, order=ORDER, seed=1)
    assert len(dataset) == 1000
    batches = list(DataLoader(dataset, batch_size=50))
    assert everything(rows_of(batches)) == list(range(1000))
    assert batches[0]["features"].shape == (50, 4)
    assert everything(rows_of(DataLoader(dataset, batch_size=50, num_workers=2))) == list(range(1000))


def test_transforms_run_in_the_worker(path):
    assert os.getpid() not in set(loader(make(path, transform=lambda batch: os.getpid()), 2))
    features, labels = next(iter(loader(make(path, transform=double))))
    assert features.shape == (64, 4)
    assert labels.shape == (64,)


def change(batch):
    batch["x"][0] = torch.full((7,), -1.0)
    return batch


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("transform", [None, change])
def test_lists_of_tensors_go_through_workers_as_the_transform_left_them(workers, transform):
    rows = [[float(i)] * (i % 5) for i in range(40)]
    dataset = CorgiPileDataset(pa.table({"x": rows}), order="no_shuffle", batch_size=20, transform=transform)
    got = [row.tolist() for batch in loader(dataset, workers) for row in batch["x"]]
    if transform is not None:
        rows[0] = rows[20] = [-1.0] * 7
    assert got == rows
    assert all(type(batch["x"]) is list for batch in loader(dataset, workers))


@pytest.mark.parametrize(("rows", "world"), [(1, 1), (1, 3), (2, 5), (7, 3)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_few_rows_on_many_ranks(rows, world, drop_last):
    table = pa.table({"row": np.arange(rows)})
    seen = [
        rows_of(CorgiPileDataset(table, batch_size=2, drop_last=drop_last, rank=rank, world=world))
        for rank in range(world)
    ]
    assert len({len(batches) for batches in seen}) == 1
    visited = everything(batch for batches in seen for batch in batches)
    assert len(set(visited)) == len(visited) if drop_last else set(visited) == set(range(rows))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("buffer", [150, 270, 400])
def test_only_the_last_batch_of_a_reservoir_can_be_short(path, workers, buffer):
    batches = rows_of(loader(make(path, order=Reservoir(block=20, buffer=buffer)), workers))
    assert all(len(batch) == 64 for batch in batches[:-1])
    assert set(everything(batches)) == set(range(1000))


def test_an_empty_table_and_more_workers_than_batches():
    assert list(loader(CorgiPileDataset(pa.table({"x": pa.array([], pa.float32())}), batch_size=4), 1)) == []
    assert everything(rows_of(loader(make(pa.table({"row": [0, 1, 2]})), 2))) == [0, 1, 2]


def test_spawned_workers_and_their_copy_of_the_epoch(path):
    dataset = make(path, transform=double, rank=0, world=2)
    batches = loader(dataset, 1, persistent_workers=True, multiprocessing_context="spawn")
    first = [labels.tolist() for _, labels in batches]
    dataset.set_epoch(0)
    assert [labels.tolist() for _, labels in batches] == first
    assert [labels.tolist() for _, labels in batches] != first


def test_copies_go_on_by_themselves(path):
    dataset = make(path)
    first = rows_of(dataset)
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):  # noqa: S301
        assert again.epoch == 0
        again.set_epoch(0)
        assert rows_of(again) == first
        assert everything(rows_of(loader(again, 2))) == list(range(1000))
    assert dataset.epoch == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_say_where(rows_table, workers):
    dataset = make(Failing(MemoryTable(rows_table), 3))
    with pytest.raises(ReadFailed, match=r"read \d+ of rows \d+ to \d+ failed on purpose"):
        fail(dataset, workers)


def test_a_killed_worker_is_an_error_not_a_hang(path):
    """In a process of its own, since the signal may interrupt whatever runs; killed while it waits, holding no lock."""
    script = (
        "import os, signal, sys, time\n"
        "from torch.utils.data import DataLoader\n"
        "from corgipile.torch import CorgiPileDataset\n"
        "batches = iter(DataLoader(CorgiPileDataset(sys.argv[1], batch_size=1), batch_size=None, num_workers=2))\n"
        "next(batches)\n"
        "time.sleep(0.5)\n"
        "os.kill(batches._workers[1].pid, signal.SIGKILL)\n"
        "print(len(list(batches)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=300, check=False
    )
    assert "DataLoader worker" in done.stderr
    assert done.returncode == 1
    assert not done.stdout


def test_mistakes_are_named_at_once(path):
    with pytest.raises(BadArgument, match="batch_size must be a whole number of at least 1, got 0"):
        make(path, batch_size=0)
    with pytest.raises(MissingColumn, match="no column 'colour'"):
        make(path, columns=["colour"])
    with pytest.raises(BudgetTooSmall, match="give memory="):
        make(path, memory="1KB")
    for epoch in (-1, 1.5, "1", 2**63):
        with pytest.raises(BadArgument, match="epoch must be a whole number of 0 to"):
            make(path).set_epoch(epoch)
    for seed in ("x", None, 1.5, True):
        with pytest.raises(BadArgument, match="seed must be a whole number, got"):
            make(path, seed=seed)
    for prefetch in (-1, "1", 100):
        with pytest.raises(BadArgument, match="prefetch must be a whole number of 0 to 64"):
            make(path, prefetch=prefetch)
    with pytest.raises(BadArgument, match="batch_size must be a whole number of at least 1, got True"):
        make(path, batch_size=True)
    dataset = make(path, order=NoShuffle(block=400), memory="8KB", columns=["row", "label"], prefetch=0)
    assert everything(rows_of(loader(dataset))) == list(range(1000))
    with pytest.raises(BudgetTooSmall, match="give memory="):
        fail(dataset, 2)


def seldom_slow(batch):
    time.sleep(0.01 * (batch["row"][0].item() % 3 == 0))
    return batch


@pytest.mark.parametrize(
    "settings",
    [
        {"multiprocessing_context": "forkserver", "persistent_workers": True},
        {"prefetch_factor": 7, "timeout": 60, "generator": torch.Generator().manual_seed(0)},
        {"in_order": False, "persistent_workers": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_a_loader(path, settings):
    dataset = make(path, transform=seldom_slow)
    batches, expected = loader(dataset, 2, **settings), loader(make(path), 2)
    for _ in range(2):
        rows, usual = rows_of(batches), rows_of(expected)
        assert (sorted(rows) == sorted(usual)) if "in_order" in settings else (rows == usual)


def slow_first(worker):
    time.sleep(0.3 * (worker == 0))


def test_loaders_of_one_seed(path):
    """More workers than before, then one whose first worker begins after it was left; all with the same seeds."""
    dataset = make(path)

    def seeded(workers):
        return loader(dataset, workers, generator=torch.Generator().manual_seed(0), worker_init_fn=slow_first)

    for epoch, workers in enumerate((1, 3)):
        assert everything(rows_of(seeded(workers))) == list(range(1000))
        assert dataset.epoch == epoch
    left = iter(seeded(2))
    while dataset.epoch == 1:
        time.sleep(0.01)
    for worker in left._workers:
        worker.terminate()
    dataset.set_epoch(7)
    assert everything(rows_of(seeded(2))) == list(range(1000))
    assert dataset.epoch == 7


def test_numbers_of_numpy_are_as_good(path):
    dataset = make(path, batch_size=np.int64(64), seed=np.int64(1), prefetch=np.int64(1), rank=np.int64(0), world=1)
    dataset.set_epoch(np.int64(2))
    next(iter(dataset))
    assert json.loads(json.dumps(dataset.state_dict()))["epoch"] == 2


def test_one_iteration_at_a_time(path):
    dataset = make(path)
    first = iter(dataset)
    next(first)
    next(iter(dataset))
    with pytest.raises(BadArgument, match="another one of the same loader or dataset began"):
        list(first)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU to pin memory for")
def test_pinned_batches_reach_the_device(path):
    for workers in (0, 2):
        for batch in loader(make(path), workers, pin_memory=True):
            assert batch["features"].is_pinned()
            assert batch["features"].to("cuda", non_blocking=True).device.type == "cuda"


def test_stats_are_those_of_the_iteration(path, rows_table):
    dataset = make(path)
    assert dataset.stats is None
    seen = 0
    for batch in loader(dataset):
        seen += len(batch["row"])
        assert (dataset.stats.epoch, dataset.stats.rows) == (0, seen)
    assert dataset.stats.rows == len(rows_table) == seen
    assert dataset.stats.bytes_read >= dataset.stats.bytes_delivered > 0
    alone = dataset.stats
    for epoch in (1, 2):
        for _ in loader(dataset, workers=2):
            told = dataset.stats
            assert told.epoch == epoch
            assert 0 < told.rows <= len(rows_table)
            assert 0 <= told.waited <= told.seconds
        assert (dataset.stats.rows, dataset.stats.batches) == (len(rows_table), alone.batches)
        assert dataset.stats.bytes_delivered == alone.bytes_delivered
