"""Small tables are read into memory at once and give the same model under the table's name."""

import copy

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import corgipile as cp
from corgipile.tables.read_once import ReadOnce, read_once
from corgipile.testing import check_table

LIMIT = 1 << 20


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)).astype(np.float32)
    keys = [sorted(rng.choice(40, 3, replace=False).tolist()) for _ in range(500)]
    return pa.table(
        {
            "features_k": pa.array(keys, pa.list_(pa.int32())),
            "features_v": pa.array(x.tolist(), pa.list_(pa.float32())),
            "label": (x.sum(axis=1) > 0).astype(np.int64),
        }
    )


@pytest.fixture
def path(rows, tmp_path):
    with pa.ipc.new_file(tmp_path / "rows.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=90)
    return tmp_path / "rows.arrow"


def test_it_is_the_other_table(path, rows):
    table = cp.open(path)
    found = read_once(table, LIMIT)
    assert isinstance(found, ReadOnce)
    assert (repr(found), found.fingerprint, found.nbytes) == (repr(table), table.fingerprint, table.nbytes)
    assert found.cuts(100).tolist() == table.cuts(100).tolist()
    assert copy.copy(found).read(3, 9).equals(table.read(3, 9))
    check_table(found, rows)


def test_large_and_encoded_tables_are_left_as_they_are(path, rows, tmp_path):
    assert not isinstance(read_once(cp.open(path), 1000), ReadOnce)
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet")
    assert not isinstance(read_once(cp.open(tmp_path / "rows.parquet"), LIMIT), ReadOnce)


def test_what_cannot_be_read_is_left_to_those_who_need_it(path):
    table = cp.open(path)
    path.write_bytes(path.read_bytes()[:2000])
    assert read_once(table, LIMIT) is table


@pytest.mark.parametrize("settings", [{}, {"validation": 0.2}, {"on_bad": "skip", "standardize": True}])
def test_training_finds_the_same_model(path, rows, settings, monkeypatch):
    made, init = [], ReadOnce.__init__
    monkeypatch.setattr(ReadOnce, "__init__", lambda self, table: made.append(init(self, table)))
    found = cp.train(path, epochs=2, **settings)
    assert len(made) == 1
    own = cp.train(cp.open(path), epochs=2, **settings)  # others may read it: it is not locked
    assert len(made) == 1
    assert (found.coef.tobytes(), found.history[-1]["loss"]) == (own.coef.tobytes(), own.history[-1]["loss"])


def test_the_file_of_a_model_never_replaces_the_table(path):
    with pytest.raises(cp.errors.BadArgument, match=r"rows\.arrow"):
        cp.train(path, save=path, overwrite=True)
