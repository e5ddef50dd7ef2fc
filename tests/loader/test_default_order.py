"""The default order: balanced if the label is cheap to read, the same for all readers of tables."""

import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadValue, StateMismatch
from corgipile.linear import train
from corgipile.linear.estimators import CorgiClassifier
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.default_order import chosen
from corgipile.loader.selection import Selection
from corgipile.orders import Auto, CorgiPile, Riffle, restored
from corgipile.quality import audit
from corgipile.sizes import parse_bytes
from corgipile.tables import MemoryTable, Subset
from corgipile.tables.formats.arrow.writer import Writer
from corgipile.testing import Counting

ROWS = 4000


def rows(labels=None, name="label"):
    labels = np.repeat([0, 1], ROWS // 2) if labels is None else labels
    return pa.table({"x": np.arange(ROWS, dtype=np.float32), name: labels})


@pytest.fixture
def path(tmp_path):
    with Writer(tmp_path / "t.arrow", rows().schema) as writer:
        for batch in rows().to_batches(max_chunksize=500):
            writer.write(batch)
    return str(tmp_path / "t.arrow")


def test_files_memory_parquet_and_parts_of_them_are_balanced(path, tmp_path):
    pq.write_table(rows(), tmp_path / "t.parquet", row_group_size=500)
    for table in [
        cp.open(path),
        cp.open(rows()),
        cp.open(tmp_path / "t.parquet"),
        cp.open([path, path]),
        Subset(cp.open(path), [[0, 10], [20, 4000]]),
        Counting(cp.open(path)),
    ]:
        assert chosen("auto", table) == Riffle(balance="label")
        assert chosen("auto", table, "x") == Riffle(balance="x")


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.timestamp("s")])
def test_labels_that_are_text_or_times_balance_as_well_as_numbers(tmp_path, kind):
    codes = np.repeat([0, 1, 2, 3], ROWS // 4)
    labels = pa.array(codes if pa.types.is_timestamp(kind) else [f"class {one}" for one in codes]).cast(kind)
    pq.write_table(rows(labels), tmp_path / "t.parquet")  # one row group, as pandas writes it
    settings = {"batch_size": 64, "memory": "16KB", "seed": 3}
    with cp.Loader(tmp_path / "t.parquet", **settings) as loader:
        assert loader.order.balance == "label"
        report = audit(loader, id=lambda batch: batch["x"].astype(np.int64), key="label", rows=ROWS)
        assert report.epochs[0].spreads[0].deff[0] < 1.1


def test_long_text_that_is_named_label_is_no_reason_to_read_it(tmp_path):
    texts = [f"{one} " + "words " * 20_000 for one in range(ROWS // 4)]
    with Writer(tmp_path / "t.arrow", pa.schema({"x": pa.int64(), "label": pa.string()})) as writer:
        writer.write(pa.record_batch({"x": range(len(texts)), "label": texts}))
    assert chosen("auto", cp.open(tmp_path / "t.arrow")) == Riffle()


def test_labels_that_cost_a_read_of_the_rows_are_left_alone(tmp_path):
    (tmp_path / "t.svm").write_text("1 1:0.5\n0 1:0.25\n" * 50)
    for table, label in [
        (
            cp.open(
                rows(),
            ),
            "y",
        ),
        (cp.open(rows(pa.array([["a"], ["b"]] * (ROWS // 2)))), None),
        (cp.open(str(tmp_path / "t.svm")), None),
        (cp.open(rows().slice(0, 0)), None),
    ]:
        assert chosen("auto", table, label) == Riffle()


def test_a_label_that_is_most_of_a_large_table_is_left_alone(monkeypatch):
    monkeypatch.setattr("corgipile.loader.default_order.MAX_LABEL_BYTES", 100)
    assert chosen("auto", MemoryTable(rows())) == Riffle()
    wide = rows().append_column("wide", pa.array(np.zeros((ROWS, 64)).tolist(), pa.list_(pa.float32(), 64)))
    assert chosen("auto", MemoryTable(wide)) == Riffle(balance="label")


def test_sizes_and_columns_that_were_given_are_kept():
    table = MemoryTable(rows())
    assert chosen(Auto(block=10, buffer="5%", ahead=3), table) == Riffle(
        block=10, buffer="5%", ahead=3, balance="label"
    )
    assert chosen(Auto(balance="x"), table) == Riffle(balance="x")
    assert chosen("balanced", table, "x") == Riffle(balance="x")
    for order in (CorgiPile(block=7), Riffle(), Riffle(balance="x")):
        assert chosen(order, table, "label") is order


def test_all_who_read_tables_choose_alike(path, caplog):
    with caplog.at_level(logging.INFO, "corgipile"):
        loader = cp.Loader(path, batch_size=64)
    assert [record.getMessage().endswith(": balanced by 'label'") for record in caplog.records] == [True]
    assert "order=balanced by 'label'" in repr(loader)
    assert loader.order.balance == "label" == BufferedReader(path).order.balance
    assert "order=riffle" in repr(cp.Loader(rows(name="y"), batch_size=64))
    assert "order=corgipile" in repr(cp.Loader(path, order="corgipile"))
    same = {"model": "logistic", "epochs": 1, "seed": 3}
    assert (train(path, **same).coef == train(path, order="balanced", **same).coef).all()
    other = rows(name="y")
    assert (train(other, label="y", **same).coef == train(other, label="y", order="balanced", **same).coef).all()
    fitted = CorgiClassifier(epochs=1, l2=0.0, seed=3).fit(path)
    assert (fitted.model_.coef == train(path, order="balanced", **same).coef).all()


@pytest.mark.parametrize("parts", [{"rank": 1, "world": 3}, {"worker": 1, "workers": 2}])
def test_parts_of_an_epoch_are_those_of_the_balanced_order(path, parts):
    mine = [batch["x"].tolist() for batch in cp.Loader(path, batch_size=64, seed=1, **parts)]
    assert mine == [batch["x"].tolist() for batch in cp.Loader(path, batch_size=64, order="balanced", seed=1, **parts)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.int32(), pa.bool_()])
def test_nulls_and_nan_among_labels_are_no_hindrance_to_reading_on(kind):
    labels = pa.array([0, 1, None, 1] * (ROWS // 4)).cast(kind)
    table = rows(labels)
    with BufferedReader(table, Selection(["x"])) as feeder:
        assert feeder.order.balance == "label"
        assert sum(map(len, feeder.epoch(0))) == ROWS
    holes = rows(np.where(np.arange(ROWS) % 4 == 2, np.nan, np.arange(ROWS) % 2))
    assert sum(len(batch["x"]) for batch in cp.Loader(holes, batch_size=64)) == ROWS
    assert train(holes, epochs=1, on_bad="skip").history[0]["rows"] == ROWS * 3 // 4
    with pytest.raises(BadValue, match="row 2 of label column"):
        train(holes, epochs=1)


def test_a_state_of_the_plain_order_says_how_to_go_on_with_it(path):
    loader = cp.Loader(path, batch_size=64, order="riffle", memory="20KB", seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["x"].tolist() for batch in batches]
    with pytest.raises(StateMismatch, match=r"than riffle: give order=Riffle\(block=") as caught:
        cp.Loader(path, batch_size=64, seed=1).load_state_dict(state)
    wanted = restored(state["segments"][0]["order"])
    assert repr(wanted) in str(caught.value)
    again = cp.Loader(path, batch_size=64, order=wanted, seed=1)
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == rest
    assert replace(again.order) == loader.order


def test_memory_buys_as_many_blocks_as_mix_a_batch_and_then_larger_ones():
    for batch, enough in (1, 128), (64, 128), (256, 341), (1024, 1365):
        before = (0, 0)
        for megabytes in 1, 4, 16, 64, 256, 1024:
            fitted = Auto(batch=batch).settled("label").fit(4_000_000, 116.0, (megabytes << 20) // 116)
            blocks, block = fitted.buffer // fitted.block, fitted.block * 116
            assert block <= 64 << 10
            assert blocks >= enough or block <= 32 << 10
            assert (min(blocks, enough), block) >= before
            before = min(blocks, enough), block
        assert blocks >= enough


@pytest.mark.parametrize(("batch", "memory"), [(1, "16MB"), (256, "64MB")])
def test_where_memory_holds_enough_of_them_blocks_are_such_as_disks_read_at_full_rate(batch, memory):
    def block(rows):
        budget = parse_bytes(memory) // 116
        return Auto(batch=batch).settled("label").fit(rows, 116.0, budget).block * 116

    assert 63 << 10 < block(4_000_000) <= 64 << 10
    assert block(40_000) < 4 << 10  # a small table would have too few blocks
