"""Columns encoded once lie where the kernel reads them, also under a row mask."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BudgetTooSmall
from corgipile.features import fit_encoding
from corgipile.features.table import EncodedColumns
from corgipile.linear import train
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.selection import Selection
from corgipile.tables.splitting import train_test_split

ROWS = 6000


def rows():
    rng = np.random.default_rng(3)
    label = np.sort(rng.integers(0, 3, ROWS))
    colour = pa.array(np.array(["red", "green", "blue"])[rng.integers(0, 3, ROWS)]).dictionary_encode()
    names = pa.array(np.array(["oak", "fir", "elm"])[label])
    number = rng.normal(label, 1, ROWS).round(1)
    return pa.table({"number": number, "colour": colour, "row": np.arange(ROWS, dtype=float), "label": names})


@pytest.fixture(params=["parquet", "arrow", "memory"])
def source(request, tmp_path):
    table, path = rows(), tmp_path / f"t.{request.param}"
    if request.param == "memory":
        return table
    if request.param == "parquet":
        pq.write_table(table, path, row_group_size=2500)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    return str(path)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_both_parts_of_a_table_are_read_in_place_once_encoded(source, share):
    names = ["number", "colour", "row"]
    parts = train_test_split(cp.open(source), share, seed=1)
    encoding = fit_encoding(parts[0], names, "label", encode={"colour": "ordinal"})
    for part in parts:
        rows, columns = encoding.table(part, once=True), Selection([*names, "label"])
        with BufferedReader(rows, columns, order="riffle", memory="60KB", seed=2) as feeder:
            assert (feeder.open_source().location([*names, "label"]) is not None) == (len(part) * 32 >= ROWS)
            visits = [
                {name: feeder.buffer.dense(name)[visit] for name in feeder.columns.sources} for visit in feeder.epoch(0)
            ]
        found = {name: np.concatenate([visit[name] for visit in visits]) for name in visits[0]}
        order = np.argsort(found["row"])
        wanted = encoding.table(part).read(0, len(part))
        for name in found:
            column = wanted.column(name)
            column = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
            assert (found[name][order].ravel() == column.to_numpy(zero_copy_only=False)).all()


def test_validation_gives_the_same_model_wherever_rows_are_picked(source, monkeypatch):
    settings = {
        "model": "softmax",
        "epochs": 2,
        "learning_rate": 0.05,
        "validation": 0.2,
        "encode": "ordinal",
        "seed": 5,
    }
    fast = train(source, **settings)
    monkeypatch.setattr(EncodedColumns, "location", lambda *_: None)
    slow = train(source, **settings)
    assert (np.asarray(fast.coef) == np.asarray(slow.coef)).all()
    assert [one["test_loss"] for one in fast.history] == [one["test_loss"] for one in slow.history]


def test_categories_count_against_the_budget(tmp_path):
    values = np.char.zfill(np.arange(60_000).astype(str), 200)
    many = pa.table({"name": values, "x": np.arange(60_000.0), "label": np.arange(60_000) % 2})
    pq.write_table(many, path := str(tmp_path / "many.parquet"), row_group_size=5000)
    how = {"encode": {"name": "ordinal"}, "label": "label"}
    for memory in ("8MB", "16MB"):
        with pytest.raises(BudgetTooSmall, match=f"categories of column 'name' take more than memory='{memory}'"):
            train(path, memory=memory, **how)
        with pytest.raises(BudgetTooSmall, match=r"use encode=.'name': 'hash:1024'"):
            cp.Loader(path, batch_size=64, memory=memory, features=["x", "name"], **how)
    with cp.Loader(path, batch_size=64, memory="24MB", features=["x", "name"], **how) as loader:
        taken = loader.encoding.features[1].nbytes
        assert 15 << 20 < taken < 20 << 20
        assert loader.feeder.table.shared_bytes(["x", "name"]) == taken
        assert sum(len(batch["label"]) for batch in loader) == 60_000
    with pytest.raises(BudgetTooSmall, match="give memory="):
        cp.Loader(path, batch_size=64, memory=taken, features=["x", "name"], **how)
