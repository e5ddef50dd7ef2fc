"""Datasets over encoded tables: one spill file for all workers and epochs, and states across ways of reading."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from corgipile.tables import encoded
from corgipile.torch import CorgiPileDataset

ROWS = 30_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoded") / "a.parquet"
    pq.write_table(pa.table({"id": np.arange(ROWS), **{f"x{i}": np.zeros(ROWS) for i in range(4)}}), path)
    return path


def ids(loader):
    return [row for batch in loader for row in batch["id"].tolist()]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_share_one_spill_file(path, context, monkeypatch):
    made = []
    written = encoded._write_spill
    monkeypatch.setattr(encoded, "_write_spill", lambda *a: made.append(1) or written(*a))
    dataset = CorgiPileDataset(path, memory="400KB", batch_size=100)
    assert made == [1]
    monkeypatch.setattr(encoded, "_write_spill", None)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    for _ in range(2 if context == "fork" else 1):  # epochs
        assert sorted(ids(loader)) == list(range(ROWS))


@pytest.mark.parametrize(("before", "after"), [("400KB", "64MB"), ("64MB", "400KB"), ("400KB", "800KB")])
def test_an_epoch_goes_on_when_rows_are_read_another_way(path, before, after):
    """Blocks are cut evenly where rows are unpacked, and at row groups elsewhere: the state knows which."""
    dataset = CorgiPileDataset(path, memory=before, batch_size=100, seed=2)
    running = iter(dataset)
    first = [row for _ in range(120) for row in next(running)["id"].tolist()]
    again = CorgiPileDataset(path, memory=after, batch_size=100, seed=2)
    again.load_state_dict(dataset.state_dict())
    assert sorted([*first, *ids(again)]) == list(range(ROWS))
