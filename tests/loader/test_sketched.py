"""The sketch of balanced blocks is computed once per table."""

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.loader import budget
from corgipile.testing import Counting
from corgipile.torch import CorgiPileDataset

ROWS = pa.table({"x": np.arange(4000.0), "label": np.arange(4000) // 40 % 2})


def read_by(table):
    return sum(stop - start for start, stop in table.runs)


@pytest.mark.parametrize("memory", ["16KB", "5%"])
def test_once_for_the_same_blocks(memory):
    table = Counting(cp.open(ROWS))
    orders = []
    for _ in range(3):
        with cp.Loader(table, batch_size=64, order="balanced", memory=memory, seed=1) as loader:
            orders.append(loader.feeder.blocks.sketch.tolist())
    assert read_by(table) == len(ROWS)
    assert orders[0] == orders[1] == orders[2]
    with cp.Loader(table, batch_size=64, order=cp.orders.Riffle(block=100, balance="label"), memory="1MB") as loader:
        assert len(loader.feeder.blocks.sketch) == 40
    with cp.Loader(table, batch_size=64, order=cp.orders.Riffle(block=100, balance="x"), memory="1MB") as loader:
        assert loader.feeder.blocks.sketch.tolist() != orders[0][:40]
    assert read_by(table) == 3 * len(ROWS)


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning", "ignore:.*fork.*:DeprecationWarning")
def test_before_workers_are_forked(monkeypatch):
    dataset = CorgiPileDataset(ROWS, order="balanced", memory="64KB", batch_size=64)
    monkeypatch.setattr(budget, "sketch", None)  # fails in a worker that reads labels again
    for _ in range(2):
        loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
        assert sum(len(batch["x"]) for batch in loader) == len(ROWS)
