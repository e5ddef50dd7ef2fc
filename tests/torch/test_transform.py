"""A transform that fails: the error names the batch, its rows and their files, and the batch is still to come."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.errors import FetchFailed
from corgipile.torch import CorgiPileDataset

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
BAD = 217


@pytest.fixture
def folder(tmp_path):
    for part in range(3):
        pq.write_table(pa.table({"x": np.arange(100 * part, 100 * part + 100)}), tmp_path / f"{part}.parquet")
    return tmp_path


def fails(made):
    if BAD in np.atleast_1d(made["x"]):
        raise ValueError("on purpose")
    return made


def forgets(made):
    return None if BAD in np.atleast_1d(made["x"]) else made


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("transform", [fails, forgets])
def test_rows_file_and_batch_are_named(folder, transform, size, workers):
    dataset = CorgiPileDataset(folder, batch_size=size, transform=transform, seed=1)
    batches = DataLoader(dataset, batch_size=None if size else 4, num_workers=workers)
    with pytest.raises(FetchFailed) as failure:
        list(batches)
    said = str(failure.value)
    step = dataset.visit_of(BAD, workers=workers).step
    assert ("ValueError: on purpose" if transform is fails else "it returned None") in said
    assert f"batch {step} of epoch 0, row" in said
    assert ", ".join(map(str, dataset.rows_of(step, workers=workers).tolist())) in said
    assert str(folder / "2.parquet") in said
    assert size or f"row {BAD} (row 17 of {folder / '2.parquet'})" in said


def test_the_cause_is_kept_and_the_batch_comes_again(folder):
    dataset = CorgiPileDataset(cp.open(folder), batch_size=8, transform=fails, seed=1)
    with pytest.raises(FetchFailed) as failure:
        list(dataset)
    assert isinstance(failure.value.__cause__, ValueError)
    state = dataset.state_dict()
    seen = [row for batch in range(state["segments"][-1]["batches"][0]) for row in dataset.rows_of(batch).tolist()]
    again = CorgiPileDataset(cp.open(folder), batch_size=8, seed=1)
    again.load_state_dict(state)
    rest = [row for batch in again for row in batch["x"].tolist()]
    assert BAD in rest
    assert sorted(seen + rest) == list(range(300))
