"""Loaders over encoded tables: within the budget, in the same orders, with states that record the cuts."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BudgetTooSmall, StateMismatch, WriteFailed
from corgipile.loader import encoded as strategies
from corgipile.loader import materialize
from corgipile.loader.budget import columns_of, fit
from corgipile.orders import named
from corgipile.tables import encoded
from corgipile.tables.formats.arrow import file as arrow
from corgipile.tables.formats.parquet import sizes
from corgipile.tables.formats.parquet import table as parquet
from corgipile.testing import Counting

ORDERS = ["no_shuffle", "riffle", "corgipile", "block_only", "balanced", "full", "sliding_window", "reservoir"]
ROWS = 40_000


def order_of(name):
    return cp.orders.Riffle(balance="label") if name == "balanced" else name


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    numbers = {f"x{i}": rng.standard_normal(ROWS) for i in range(4)}
    return pa.table({**numbers, "id": np.arange(ROWS), "label": np.arange(ROWS) * 2 // ROWS})


@pytest.fixture(scope="module")
def files(rows, tmp_path_factory):
    """Write tables of one unit, larger than the memory given below."""
    folder = tmp_path_factory.mktemp("encoded")
    pq.write_table(rows, folder / "parquet")
    with pa.ipc.new_file(str(folder / "arrow"), rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        file.write_table(rows)
    with pa.ipc.new_file(str(folder / "plain"), rows.schema) as file:
        file.write_table(rows)
    return folder


def ids(loader):
    return np.concatenate([batch["id"] for batch in loader])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_orders_are_those_of_a_plain_file(files, rows, kind, order):
    """One unit, unpacked, is cut and read like a file with rows at known places."""
    found = cp.Loader(str(files / kind), batch_size=100, order=order_of(order), memory="300KB", seed=3)
    assert found.feeder._way.even
    alike = found.order if found.feeder._way.scanning_bytes else order_of(order)  # decoding takes a part of its window
    plain = cp.Loader(str(files / "plain"), batch_size=100, order=alike, memory="300KB", seed=3)
    mine, theirs = ids(found), ids(plain)
    assert np.array_equal(mine, theirs)
    batch = next(iter(found))
    assert np.array_equal(batch["x2"], rows["x2"].to_numpy()[batch["id"]])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_nothing_is_unpacked_before_the_first_batch_nor_for_small_units(files, kind, monkeypatch):
    asked = []
    shared = encoded.shared
    monkeypatch.setattr(encoded, "shared", lambda *a: asked.append(1) or shared(*a))
    with cp.Loader(str(files / kind), batch_size=100, order="riffle", memory="300KB") as loader:
        assert not asked
        next(iter(loader))
        assert asked == [1]
        ids(loader)
    assert not cp.Loader(str(files / kind), batch_size=100, order="riffle", memory="64MB").feeder._way.even
    assert asked == [1]


def test_few_large_units_are_read_whole_only_where_memory_holds_many(rows, tmp_path):
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=500)  # 80 units of 24 KB
    assert not cp.Loader(str(tmp_path / "a.parquet"), batch_size=100, order="riffle", memory="3MB").feeder._way.even
    assert cp.Loader(str(tmp_path / "a.parquet"), batch_size=100, order="riffle", memory="500KB").feeder._way.even
    counting = Counting(cp.open(tmp_path / "a.parquet"))
    assert sorted(ids(cp.Loader(counting, batch_size=100, order="riffle", memory="3MB")).tolist()) == list(range(ROWS))


def test_whole_units_where_spilling_is_off(files, monkeypatch):
    monkeypatch.setattr("corgipile.loader.encoded.SMALL", 0)
    with pytest.raises(BudgetTooSmall, match=r"give memory='.*units of 40000 rows \(1.83 MB\).*spill=FOLDER.*convert"):
        cp.Loader(cp.open(files / "parquet", spill="off"), batch_size=100, order="riffle", memory="300KB")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = cp.Loader(cp.open(files / "parquet", spill="off"), batch_size=100, order="full", memory="8MB")
        assert sorted(ids(loader).tolist()) == list(range(ROWS))


def test_few_units_in_memory_warn(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.loader.encoded.SMALL", 0)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=500)
    with pytest.warns(UserWarning, match=r"units of 500 rows, and the memory holds \d+: batches mix few of them"):
        cp.Loader(cp.open(tmp_path / "a.parquet", spill="off"), batch_size=100, order="corgipile", memory="1MB")


def test_no_room_is_said_at_once(files, monkeypatch):
    def full(*_):
        raise WriteFailed(28, "no room")

    monkeypatch.setattr("corgipile.tables.io.shared_spill.check_room", full)
    with pytest.raises(WriteFailed, match="no room"):
        cp.Loader(str(files / "parquet"), batch_size=100, order="riffle", memory="300KB", columns=["x1", "id"])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("order", ["riffle", "full", "no_shuffle"])
def test_states_go_on_where_rows_are_unpacked(files, kind, order):
    loader = cp.Loader(str(files / kind), batch_size=100, order=order, memory="300KB", seed=1)
    running = iter(loader)
    first = [next(running)["id"] for _ in range(150)]
    again = cp.Loader(str(files / kind), batch_size=100, order=order, memory="300KB", seed=1)
    again.load_state_dict(loader.state_dict())
    rest = ids(again)
    assert sorted([*np.concatenate(first).tolist(), *rest.tolist()]) == list(range(ROWS))
    with pytest.raises(StateMismatch):
        cp.Loader(str(files / kind), batch_size=100, order=order, memory="64MB", seed=1).load_state_dict(
            loader.state_dict()
        )


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_reads_are_bounded_and_the_same(files, rows, kind, monkeypatch):
    monkeypatch.setattr(sizes, "SMALL", 0)
    monkeypatch.setattr(arrow, "SMALL", 0)
    table = cp.open(files / kind)
    monkeypatch.setattr(parquet.ParquetTable, "_decode", None)
    monkeypatch.setattr(arrow.ArrowFile, "_decode", None)
    assert table.read(7, 30_000, ["x1"]).column(0).equals(rows["x1"].combine_chunks().slice(7, 29_993))
    assert table.take(np.array([9, 3]), ["id"]).column(0).to_pylist() == [9, 3]


def test_each_worker_decodes_a_chunk_of_its_own(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (256, 3 << 16), "u1", chunks=(64, 3 << 16), compression="gzip")
    table, order = cp.open(tmp_path / "a.h5"), named("no_shuffle")
    assert fit(table, order, "16MB", columns_of(table, ["x"])).order.name == "no_shuffle"
    with pytest.raises(BudgetTooSmall, match="give memory='48MB'"):
        fit(table, order, "16MB", columns_of(table, ["x"]), workers=2)


def test_stored_order_is_read_without_room_for_all_rows(rows, tmp_path, monkeypatch):
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=10_000)
    for module in (parquet, sizes, strategies, materialize):
        monkeypatch.setattr(module, "SMALL", 0, raising=False)
    asked = []

    def full(_, needed):
        asked.append(needed)
        raise WriteFailed(28, "the disk is full")

    monkeypatch.setattr(encoded, "check_room", full)
    with cp.Loader(tmp_path / "a.parquet", order="no_shuffle", memory="1MB") as loader:
        assert np.concatenate([batch["id"] for batch in loader]).tolist() == list(range(ROWS))
    assert asked == [rows.nbytes]
