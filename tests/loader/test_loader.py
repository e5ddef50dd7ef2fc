"""Batches have the right rows and shapes, each row once; a restart may follow any batch."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall, MissingColumn, ReadFailed, StateMismatch
from corgipile.orders import BlockOnly, CorgiPile, FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow
from corgipile.testing import Counting, Failing, Slow

ORDERS = [
    NoShuffle(block=37),
    BlockOnly(block=37),
    CorgiPile(block=20, buffer=110),
    Riffle(block=20, buffer=110),
    Riffle(block=20, buffer=110, balance="label"),
    SlidingWindow(block=20, buffer=110),
    Reservoir(block=20, buffer=110),
    FullShuffle(buffer=110),
    FullShuffle(unit="block", block=20, buffer=110),
]


def ids(order):
    return f"{order.name}-{getattr(order, 'unit', getattr(order, 'balance', None))}"


def rows_of(batches):
    return np.concatenate([np.empty(0, np.int64), *(batch["row"] for batch in batches)])


def plain(batches):
    return [{name: [np.asarray(v).tolist() for v in value] for name, value in batch.items()} for batch in batches]


@pytest.mark.parametrize("order", ORDERS, ids=ids)
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_every_row_once_with_its_own_values(table, rows_table, order, prefetch):
    loader = cp.Loader(table, batch_size=64, order=order, seed=3, prefetch=prefetch)
    features = np.stack(rows_table["features"].to_numpy())
    labels = rows_table["label"].to_numpy()
    for _ in range(2):
        batches = list(loader)
        rows = rows_of(batches)
        if order.name != "reservoir":
            assert np.array_equal(np.sort(rows), np.arange(len(table)))
        assert np.array_equal(np.concatenate([b["features"] for b in batches]), features[rows])
        assert np.array_equal(np.concatenate([b["label"] for b in batches]), labels[rows])
        assert batches[0]["features"].dtype == np.float32
        assert batches[0]["features"].shape == (64, 5)
    assert loader.epoch == 2


@pytest.mark.parametrize("order", ORDERS, ids=ids)
def test_lists_and_text_travel_with_their_rows(mixed, rows_table, order):
    tokens, text = rows_table["tokens"].to_pylist(), rows_table["text"].to_pylist()
    for batch in cp.Loader(mixed, batch_size=50, order=order, seed=1):
        assert [list(row) for row in batch["tokens"]] == [tokens[i] for i in batch["row"]]
        assert list(batch["text"]) == [text[i] for i in batch["row"]]


@pytest.mark.parametrize("order", ORDERS, ids=ids)
def test_stop_anywhere_and_go_on(table, order):
    assert_resumable(table, order)


@pytest.mark.parametrize("order", ORDERS, ids=ids)
def test_stop_anywhere_and_go_on_with_lists(mixed, order):
    assert_resumable(mixed, order)


def assert_resumable(table, order):
    """A state taken after any batch makes a fresh loader yield the rest, through JSON."""

    def fresh():
        return cp.Loader(table, batch_size=96, order=order, seed=5)

    whole = fresh()
    whole.set_epoch(2)
    states, batches = [whole.state_dict()], []
    for batch in whole:
        batches.append({name: np.array(value, copy=True) for name, value in batch.items()})
        states.append(whole.state_dict())
    states[-1] = None
    for done, state in enumerate(states[:-1]):
        again = fresh()
        again.load_state_dict(json.loads(json.dumps(state)))
        assert plain(again) == plain(batches[done:])
        assert again.epoch == 3


def test_a_state_crosses_processes(mixed, tmp_path):
    loader = cp.Loader(mixed, batch_size=64, order="riffle", seed=5, columns=["row"], memory="16KB")
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    tail = rows_of(batches).tolist()
    script = (
        "import json, sys, corgipile as cp\n"
        "path, state = json.load(sys.stdin)\n"
        "loader = cp.Loader(cp.open(path), batch_size=64, order='riffle', seed=5, columns=['row'], memory='16KB')\n"
        "loader.load_state_dict(state)\n"
        "print(json.dumps([int(row) for batch in loader for row in batch['row']]))\n"
    )
    path = mixed.layout(["row"]).paths[0]
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps([path, state]), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == tail


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(
    order=st.sampled_from(ORDERS),
    batch=st.integers(1, 700),
    world=st.integers(1, 7),
    drop_last=st.booleans(),
    rows=st.integers(1, 300),
)
def test_ranks_take_equal_numbers_of_batches(order, batch, world, drop_last, rows):
    table = cp.open(pa.table({"row": np.arange(rows), "label": np.arange(rows) % 2}))
    if getattr(order, "unit", "row") != "row":
        world = 1
    loaders = [
        cp.Loader(table, batch_size=batch, order=order, drop_last=drop_last, rank=r, world=world) for r in range(world)
    ]
    seen = [[b["row"] for b in loader] for loader in loaders]
    assert len({len(s) for s in seen}) == 1
    assert [len(s) for s in seen] == [len(rewound(loader)) for loader in loaders]
    visited = np.concatenate([np.empty(0, np.int64), *[row for s in seen for row in s]])
    if order.name == "reservoir":
        return
    if drop_last:
        assert len(set(visited.tolist())) == len(visited)
        assert all(len(row) == batch for s in seen for row in s)
    else:
        assert set(visited.tolist()) == set(range(rows))
        assert len(visited) - rows == loaders[0].repeated < world


@given(rows=st.integers(1, 300), world=st.integers(1, 40), order=st.sampled_from(["riffle", "full", "no_shuffle"]))
@settings(max_examples=30, deadline=None)
def test_no_row_is_visited_more_often_than_equal_shares_demand(rows, world, order):
    table = cp.open(pa.table({"row": np.arange(rows)}))
    seen = [
        [b["row"] for b in cp.Loader(table, batch_size=4, order=order, rank=rank, world=world)] for rank in range(world)
    ]
    assert {sum(map(len, batches)) for batches in seen} == {-(-rows // world)}
    times = np.bincount(np.concatenate([row for batches in seen for row in batches]), minlength=rows)
    assert times.min() == max(1, world // rows)
    assert times.max() == (-(-world // rows) if world > rows else 1 + bool(rows % world))


def rewound(loader):
    loader.set_epoch(0)
    return loader


def test_formats(mixed):
    torch = pytest.importorskip("torch")
    tensors = next(iter(cp.Loader(mixed, batch_size=10, format="torch")))
    assert tensors["features"].shape == (10, 5)
    assert tensors["features"].dtype == torch.float32
    assert tensors["tokens"][0].dtype == torch.int32
    assert isinstance(tensors["text"][0], str)
    batch = next(iter(cp.Loader(mixed, batch_size=10, format="arrow")))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.field("features").type == pa.list_(pa.float32(), 5)
    with pytest.raises(BadArgument, match='format must be "numpy"'):
        cp.Loader(mixed, batch_size=10, format="pandas")


def test_batches_kept_by_the_consumer_stay_as_they_were(table):
    """Arrays are reused only after their last reference is gone."""
    kept = list(cp.Loader(table, batch_size=7, order="riffle", seed=2))
    assert np.array_equal(np.sort(rows_of(kept)), np.arange(len(table)))


def test_arrow_batches_are_copies(table):
    kept = list(cp.Loader(table, batch_size=100, order="riffle", format="arrow"))
    assert sorted(pa.Table.from_batches(kept)["row"].to_pylist()) == list(range(len(table)))


def test_reads_each_row_once_and_in_blocks(rows_table):
    counting = Counting(cp.open(rows_table.select(["row"])))
    rows = rows_of(cp.Loader(counting, batch_size=50, order=Riffle(block=100, buffer=300)))
    assert len(rows) == len(rows_table)
    assert counting.rows == len(rows_table)
    assert counting.calls <= len(rows_table) // 100


OF_STORES = ("corgipile-request", "corgipile-fetch")


def threads():
    """Return the threads of loaders; threads of store clients belong to the process."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("corgipile") and not name.startswith(OF_STORES)]


def test_threads_end_with_the_iterator():
    table = Counting(cp.open(pa.table({"x": np.arange(100_000)})))
    loader = cp.Loader(table, batch_size=10, order="corgipile", memory="64KB")
    batches = iter(loader)
    next(batches)
    assert threads()
    batches.close()
    loader.close()
    assert not threads()


def test_a_new_iteration_ends_the_one_under_way(table):
    loader = cp.Loader(table, batch_size=10, order="riffle")
    first = iter(loader)
    next(first)
    assert len(rows_of(loader)) == len(table)
    with pytest.raises(BadArgument, match="this iteration has ended"):
        list(first)


def test_a_slow_table_is_read_ahead_and_an_abandoned_one_let_go(rows_table):
    slow = Slow(cp.open(rows_table.select(["row"])), 0.005)
    with cp.Loader(slow, batch_size=10, order=Riffle(block=50, buffer=200)) as loader:
        next(iter(loader))
    assert not threads()


def test_errors_of_reading_reach_the_consumer(rows_table):
    failing = Failing(cp.open(rows_table.select(["row"])), 3)
    with pytest.raises(ReadFailed):
        list(cp.Loader(failing, batch_size=10, order=Riffle(block=50, buffer=200)))
    assert not threads()


def test_a_file_cut_short_while_reading_is_named(rows_table, tmp_path):
    path = str(tmp_path / "t.arrow")
    with pa.ipc.new_file(path, rows_table.select(["features"]).schema) as writer:
        writer.write_table(rows_table.select(["features"]))
    loader, late = (cp.Loader(cp.open(path), batch_size=10, order="no_shuffle") for _ in range(2))
    visits = loader.feeder.epoch(0)
    os.truncate(path, 5000)
    with pytest.raises(cp.errors.CorruptFile, match=r"t\.arrow was changed or replaced .* now it has 5000"):
        list(late)
    with pytest.raises(cp.errors.CorruptFile, match=r"t\.arrow ended while row \d+ was read"):
        list(visits)


def test_states_of_others_are_refused(table):
    state = cp.Loader(table, batch_size=10, order="riffle", seed=1).state_dict()
    for other, what in [
        (cp.Loader(table, batch_size=10, order="riffle", seed=2), "seed"),
        (cp.Loader(table, batch_size=20, order="riffle", seed=1), "batch_size"),
        (cp.Loader(table, batch_size=10, order="corgipile", seed=1), "order"),
        (cp.Loader(table, batch_size=10, order="riffle", seed=1, rank=1, world=2), "world"),
        (cp.Loader(cp.open(pa.table({"x": [1, 2]})), batch_size=10, order="riffle", seed=1), "table"),
    ]:
        with pytest.raises(StateMismatch, match=f"state belongs to another {what}"):
            other.load_state_dict(state)
    with pytest.raises(StateMismatch, match="version"):
        cp.Loader(table, batch_size=10).load_state_dict({})
    with pytest.raises(StateMismatch, match="no valid position"):
        cp.Loader(table, batch_size=10, order="riffle", seed=1).load_state_dict({**state, "step": -1})


def test_bad_arguments(table):
    with pytest.raises(BadArgument, match="batch_size must be a whole number of at least 1, got 0"):
        cp.Loader(table, batch_size=0)
    with pytest.raises(BadArgument, match="rank 2 of world 2"):
        cp.Loader(table, batch_size=1, rank=2, world=2)
    with pytest.raises(MissingColumn, match="no column 'colour'; the table has"):
        cp.Loader(table, batch_size=1, columns=["colour"])
    with pytest.raises(BudgetTooSmall, match="give memory="):
        cp.Loader(table, batch_size=1, order=CorgiPile(block=100), memory="1KB")
    with pytest.raises(BadArgument, match="epoch must be a whole number of 0 to"):
        cp.Loader(table).set_epoch(-1)


@pytest.mark.parametrize("name", ["no_shuffle", "corgipile", "riffle", "balanced", "sliding_window", "full"])
def test_an_empty_table_has_no_batches(name):
    empty = cp.open(pa.table({"x": pa.array([], pa.float32()), "label": pa.array([], pa.int32())}))
    loader = cp.Loader(empty, batch_size=4, order=name)
    assert list(loader) == []
    assert len(loader) == 0


def test_ahead_changes_memory_not_the_rows(table):
    riffle = Riffle(block=20, buffer=110, group=2)
    one, three = (rows_of(cp.Loader(table, batch_size=64, order=riffle, seed=3, prefetch=p)) for p in (1, 3))
    assert np.array_equal(one, three)
    assert replace(riffle, ahead=3).fit(1000, 8, None).buffer == 110


@pytest.mark.parametrize("batches", [-1, 5, 1.5, "2"])
def test_there_are_only_so_many_batches_to_seek(batches):
    loader = cp.Loader(pa.table({"x": range(10)}), batch_size=3)
    with pytest.raises(BadArgument, match="batches"):
        loader.seek(batches)
    loader.seek(4)
    assert list(loader) == []
