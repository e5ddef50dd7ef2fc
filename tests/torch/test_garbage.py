"""Nothing of an iteration waits for the garbage collector: no batch, and no frame of the loop that had it.

The collector may run in a forked worker, where what is left of a device cannot be freed.
"""

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.errors import CorgiPileError, ReadFailed
from corgipile.testing import Failing
from corgipile.torch import BatchSampler, Concurrent, CorgiPileDataset, DeviceLoader

ROWS = 400
ORDER = cp.orders.Riffle(block=20, buffer=80)


class Marker:
    """A local of the loop, which lives as long as its frame."""


class Items:
    def __init__(self, last=ROWS):
        self.last = last

    def __len__(self):
        return ROWS

    def __getitems__(self, rows):
        if max(rows) >= self.last:
            raise ReadFailed(5, "on purpose")
        return [torch.full((8,), float(row)) for row in rows]

    def __getitem__(self, row):
        return self.__getitems__([row])[0]


def table(kind):
    """Return a table whose rows are read by the kernel, by a Python thread, or one by one."""
    rows = pa.table({"x": np.arange(ROWS, dtype=np.float32), "label": np.arange(ROWS) % 2})
    if kind == "varlen":
        return rows.append_column("tokens", pa.array([[row] * (row % 5) for row in range(ROWS)]))
    if kind == "wide":
        return rows.append_column("image", pa.array([bytes(40_000)] * ROWS))
    return rows


def dataset(source, **settings):
    return CorgiPileDataset(source, batch_size=32, order=ORDER, **settings)


def twice(batch):
    if 300 in batch["x"].tolist():
        raise ValueError("on purpose")
    return {"x": batch["x"] * 2}


def concurrent(items):
    items = Concurrent(items, threads=2)
    return DataLoader(items, batch_sampler=BatchSampler(ROWS, block=20, buffer=80, batch_size=32))


WAYS = {
    "loader": lambda kind: cp.Loader(table(kind), batch_size=32, format="torch"),
    "unread": lambda kind: cp.Loader(table(kind), batch_size=32, format="torch", prefetch=0),
    "dataset": lambda kind: dataset(table(kind)),
    "device": lambda kind: DeviceLoader(dataset(table(kind)), "cpu"),
    "buffer": lambda kind: DeviceLoader(dataset(table(kind)), "cpu", device_memory="1MB" if kind == "fixed" else 0),
    "over": lambda kind: DeviceLoader(DataLoader(dataset(table(kind)), batch_size=None), "cpu"),
}
FAILING = {
    "loader": lambda rows: cp.Loader(rows, batch_size=32, format="torch", order=ORDER),
    "unread": lambda rows: cp.Loader(rows, batch_size=32, format="torch", order=ORDER, prefetch=0),
    "dataset": dataset,
    "device": lambda rows: DeviceLoader(dataset(rows), "cpu"),
    "buffer": lambda rows: DeviceLoader(dataset(rows), "cpu", device_memory="1MB" if len(rows.schema) == 2 else 0),
    "transform": lambda rows: dataset(rows, transform=twice),
    "after": lambda rows: DeviceLoader(dataset(rows, transform=twice), "cpu"),
    "concurrent": lambda _: concurrent(Items(300)),
    "over": lambda _: DeviceLoader(concurrent(Items(300)), "cpu"),
}


@pytest.fixture(autouse=True)
def no_collector():
    gc.disable()
    yield
    gc.enable()


def tensors(batch):
    return [one for one in (batch.values() if isinstance(batch, dict) else [batch]) if isinstance(one, torch.Tensor)]


def use(batches, until=None, error=None):
    """Iterate to the end, to a batch after which the loop is left, or to one in which it is interrupted."""
    marker, seen = Marker(), []
    references = [weakref.ref(marker)]
    try:
        for batch in batches:
            references += map(weakref.ref, tensors(batch))
            seen.append(1)
            if len(seen) == until:
                if error:
                    raise error
                break
    except (CorgiPileError, ValueError, KeyboardInterrupt):
        assert error or until is None
        references.append(weakref.ref(marker))
    return references


@pytest.mark.parametrize("kind", ["fixed", "varlen", "wide"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", [{}, {"until": 3}, {"until": 3, "error": KeyboardInterrupt}])
def test_nothing_is_left(kind, way, end):
    batches = WAYS[way](kind)
    for _ in range(2):
        references = use(batches, **end)
        assert len(references) > 3
        assert [one() for one in references if one() is not None] == []


@pytest.mark.parametrize("kind", ["fixed", "varlen", "wide"])
@pytest.mark.parametrize("way", FAILING)
def test_nothing_is_left_of_what_fails(kind, way):
    rows = Failing(cp.open(table(kind)), 1 << 30)
    batches = FAILING[way](rows)
    if way not in ("transform", "after"):
        rows.after = rows.calls + 3  # what a loader finds out before is over
    references = use(batches)
    assert references[0] is references[-1]  # it failed
    assert [one() for one in references if one() is not None] == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("transform", [None, twice])
def test_nothing_is_left_of_workers(transform):
    batches = DataLoader(dataset(table("fixed"), transform=transform), batch_size=None, num_workers=1)
    references = use(DeviceLoader(batches, "cpu"))
    assert (references[0] is references[-1]) == (transform is not None)
    assert [one() for one in references if one() is not None] == []


def test_a_loader_that_is_dropped_leaves_nothing():
    loader = DeviceLoader(dataset(table("fixed")), "cpu")
    batches = iter(loader)
    references = [weakref.ref(loader), *map(weakref.ref, tensors(next(batches)))]
    del loader, batches
    assert [one() for one in references if one() is not None] == []
