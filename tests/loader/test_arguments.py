"""A beginner's mistakes raise clear errors, and reasonable expectations work."""

import os
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.selection import Selection
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow

TEXT = pa.table({"id": np.arange(200), "text": [f"{i}" * 400 for i in range(200)]})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": cp.orders.Riffle}, "order must be a name or an order such as Riffle"),
        ({"order": None}, "order must be a name"),
        ({"columns": "id"}, "columns must be a list of names"),
        ({"columns": []}, "columns must be a list of names"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"prefetch": 100}, "prefetch must be a whole number of 0 to 64, got 100"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(BadArgument, match=message):
        cp.Loader(TEXT, **{"batch_size": 4, **settings})


def test_a_closed_loader_says_so():
    loader = cp.Loader(TEXT, batch_size=4)
    loader.close()
    with pytest.raises(BadArgument, match="this loader was closed"):
        next(iter(loader))


def test_paths_and_huge_batches_are_fine(tmp_path):
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(str(path), TEXT.schema) as writer:
        writer.write_table(TEXT)
    for source in (str(path), pathlib.Path(path), TEXT):
        assert [len(batch["id"]) for batch in cp.Loader(source, batch_size=10**12)] == [200]


def test_prefetch_may_change_between_runs():
    loader = cp.Loader(
        TEXT, batch_size=16, order=cp.orders.Riffle(block=10, buffer=40, group=1), seed=1, columns=["id"]
    )
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = np.concatenate([batch["id"] for batch in batches])
    again = cp.Loader(
        TEXT, batch_size=16, order=cp.orders.Riffle(block=10, buffer=40, group=1), seed=1, columns=["id"], prefetch=3
    )
    again.load_state_dict(state)
    assert np.array_equal(np.concatenate([batch["id"] for batch in again]), rest)


@pytest.mark.parametrize("order", ["sliding_window", "reservoir", "riffle", "corgipile", "no_shuffle", "full"])
def test_the_memory_an_error_asks_for_is_enough(order):
    with pytest.raises(BudgetTooSmall) as raised:
        cp.Loader(TEXT, batch_size=4, order=order, memory="500B")
    wanted = str(raised.value).split("give memory='")[1].split("'")[0]
    assert sum(len(batch["id"]) for batch in cp.Loader(TEXT, batch_size=4, order=order, memory=wanted)) >= 200


@pytest.mark.parametrize("order", [Riffle, CorgiPile, NoShuffle, SlidingWindow, Reservoir, FullShuffle])
@given(
    rows=st.sampled_from([10, 5000]), group=st.sampled_from([7, 1000]), memory=st.integers(1, 100_000), data=st.data()
)
@settings(deadline=None)
def test_a_budget_that_is_asked_for_is_enough_at_once(order, rows, group, memory, data, tmp_path_factory):
    """Covers files with wide blocks of their own, and blocks that grow with the budget."""
    path = tmp_path_factory.getbasetemp() / f"groups-{rows}-{group}.parquet"
    if not path.exists():
        pq.write_table(pa.table({"x": np.zeros(rows, np.float32)}), path, row_group_size=group)
    sizes = st.none() | st.sampled_from([1, 100, "1KB", "64KB", "2%"])
    chosen = order(block=data.draw(sizes), buffer=data.draw(sizes))
    try:
        cp.Loader(str(path), batch_size=4, order=chosen, memory=memory)
    except BudgetTooSmall as error:
        wanted = str(error).split("give memory='")[1].split("'")[0]
        cp.Loader(str(path), batch_size=4, order=chosen, memory=wanted).close()


def test_lists_of_strings_reach_torch():
    pytest.importorskip("torch")
    table = pa.table({"words": [["a", "b"], ["c"]]})
    assert sorted(map(tuple, next(iter(cp.Loader(table, batch_size=2, format="torch")))["words"])) == [
        ("a", "b"),
        ("c",),
    ]


def write(path, table, rows):
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return cp.open(str(path))


@pytest.mark.parametrize("seed", range(4))
def test_blocks_wider_than_a_stage_beside_narrow_ones(tmp_path, seed):
    """Rows of 1 KB: blocks of 512 KB are read in parts, the short last one is swept; one step holds both."""
    rows = 5 * 512 + 7
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(np.arange(rows, dtype=np.float32), 256)), 256)
    table = write(tmp_path / "wide.arrow", pa.table({"x": wide}), 1000)
    order = cp.orders.Riffle(block=512, buffer=1536, group=3, whole=False)
    seen = np.concatenate([np.array(batch["x"]) for batch in cp.Loader(table, batch_size=64, order=order, seed=seed)])
    assert (seen == seen[:, :1]).all()
    assert np.array_equal(np.sort(seen[:, 0]), np.arange(rows))


def test_half_floats_are_cast_by_value():
    table = cp.open(pa.table({"x": pa.array(np.arange(50, dtype=np.float16))}))
    with BufferedReader(table, Selection(casts={"x": np.float32}), order="no_shuffle") as feeder:
        seen = np.concatenate([feeder.buffer.dense("x")[visit] for visit in feeder.epoch(0)])
    assert np.array_equal(seen, np.arange(50))


@pytest.mark.parametrize("rows", [0, 256, 4096, 8192])
@pytest.mark.parametrize("form", ["numpy", "torch", "arrow"])
def test_epochs_end_where_nothing_is_left_over(rows, form):
    if form == "torch":
        pytest.importorskip("torch")
    loader = cp.Loader(pa.table({"x": np.arange(rows)}), batch_size=256, format=form)
    assert len(list(loader)) == rows // 256
    assert loader.epoch == 1


@pytest.mark.parametrize("seed", range(5))
def test_balance_knows_uneven_blocks(tmp_path, seed):
    import pyarrow.parquet as pq  # noqa: PLC0415

    rng, path = np.random.default_rng(seed), tmp_path / "uneven.parquet"
    schema = pa.schema([("row", pa.int64()), ("label", pa.int32())])
    with pq.ParquetWriter(path, schema) as writer:
        rows = 0
        for size in rng.integers(1, 400, 30).tolist():
            part = pa.table({"row": np.arange(rows, rows + size), "label": np.full(size, rows % 3, np.int32)}, schema)
            writer.write_table(part, row_group_size=size)
            rows += size
    loader = cp.Loader(str(path), batch_size=50, order=cp.orders.Riffle(block=100, balance="label"), seed=seed)
    assert np.array_equal(np.sort(np.concatenate([batch["row"] for batch in loader])), np.arange(rows))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_crashes_nor_hangs(tmp_path):
    table = write(tmp_path / "t.arrow", pa.table({"x": np.arange(200_000)}), 50_000)
    loader = cp.Loader(table, batch_size=64, order="riffle", memory="64KB")
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            try:
                list(batches)
            except BadArgument:
                os._exit(0 if sum(len(batch["x"]) for batch in loader) == 200_000 else 3)
            os._exit(4)
        except BaseException:  # noqa: BLE001
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(len(batch["x"]) for batch in batches) == 200_000 - 64
