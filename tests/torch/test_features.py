"""Pairs of features and label from ordinary columns, with workers and without."""

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from corgipile.errors import StateMismatch  # noqa: E402
from corgipile.torch import CorgiPileDataset  # noqa: E402


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "a.arrow"
    pick = np.random.default_rng(2)
    table = pa.table(
        {"x": np.arange(1000.0), "k": pick.choice(["a", "b"], 1000), "y": pick.choice(["no", "yes"], 1000)}
    )
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path, table


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 100])
def test_pairs(rows, workers, size):
    path, table = rows
    dataset = CorgiPileDataset(path, batch_size=size, features=["x", "k"], label="y", encode="onehot", as_tuple=True)
    seen = []
    for features, label in DataLoader(dataset, batch_size=50 if size is None else None, num_workers=workers):
        assert features.shape[1] == 3
        assert label.dtype == torch.int64
        for row, code in zip(features.tolist(), label.tolist(), strict=True):
            number = int(row[0])
            assert row[1:] == [float(table["k"][number].as_py() == name) for name in "ab"]
            assert dataset.classes[code] == table["y"][number].as_py()
            seen.append(number)
    assert sorted(seen) == list(range(1000))


def test_a_state_goes_on_with_other_workers(rows):
    how = {"batch_size": 100, "features": ["x"], "label": "y", "as_tuple": True, "seed": 5}
    dataset = CorgiPileDataset(rows[0], **how)
    first = iter(DataLoader(dataset, batch_size=None, num_workers=2))
    seen = [int(row) for _ in range(4) for row in next(first)[0][:, 0].tolist()]
    state = dataset.state_dict(batches=4)
    del first
    again = CorgiPileDataset(rows[0], **how)
    again.load_state_dict(state)
    seen += [int(row) for batch in DataLoader(again, batch_size=None) for row in batch[0][:, 0].tolist()]
    assert sorted(seen) == list(range(1000))


def test_a_state_is_of_its_features(rows):
    how = {"batch_size": 100, "label": "y", "seed": 5}
    state = CorgiPileDataset(rows[0], features=["x", "k"], encode="ordinal", **how).state_dict()
    for features in (["k", "x"], ["k"]):
        with pytest.raises(StateMismatch, match="other features"):
            CorgiPileDataset(rows[0], features=features, encode="ordinal", **how).load_state_dict(state)
    with pytest.raises(StateMismatch, match="other features"):
        CorgiPileDataset(rows[0], batch_size=100, seed=5).load_state_dict(state)
