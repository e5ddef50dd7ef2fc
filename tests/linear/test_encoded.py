"""Row groups larger than the memory are unpacked first, beneath any wrapper."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.linear.estimators import CorgiClassifier
from corgipile.tables import encoded

ROWS = 300_000


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("encoded"), np.random.default_rng(0)
    x = draw.standard_normal((ROWS, 3))
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": np.arange(ROWS) % 3 // 2})
    pq.write_table(table, folder / "t.parquet")
    with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as file:
        file.write_table(table)
    return folder / "t.parquet", folder / "t.arrow", table


@pytest.mark.parametrize("order", ["riffle", "balanced", "full", "corgipile"])
def test_a_row_group_larger_than_the_memory_is_learnt_as_plain_rows_are(files, order):
    settings = {"epochs": 1, "learning_rate": 0.01, "order": order, "memory": "2MB", "standardize": False}
    packed, plain = (cp.train(path, **settings) for path in files[:2])
    assert packed.history[-1]["rows"] == ROWS
    assert (packed.coef == plain.coef).all()


@pytest.mark.parametrize("order", ["auto", "no_shuffle"])
def test_rows_are_unpacked_once_for_checks_and_epochs(files, tmp_path, order, monkeypatch):
    pq.write_table(files[2], tmp_path / "t.parquet", row_group_size=100_000)
    written, write = [], encoded._write_spill
    monkeypatch.setattr(
        encoded,
        "_write_spill",
        lambda table, columns, *rest: (written.append(columns), write(table, columns, *rest))[1],
    )
    cp.train(tmp_path / "t.parquet", epochs=2, order=order, memory="2MB")
    assert [sorted(columns) for columns in written] == [["a", "b", "c", "label"]]


def test_labels_given_beside_it(files):
    path, _, table = files
    y = 1 - table["label"].to_numpy()
    fitted = CorgiClassifier(memory="2MB", epochs=1).fit(path, y)
    assert fitted.classes_.tolist() == [0, 1]
