"""Rows of a step and visits of a row equal what loaders deliver, for all orders, ranks and workers."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader import Loader, Rewind
from corgipile.loader.rewind import place_of
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Reservoir, Riffle, SlidingWindow
from corgipile.tables.row_place import row_place

ORDERS = [
    Riffle(block=5, buffer=40), Riffle(block=7, buffer=50, balance="label"), CorgiPile(block=6, buffer=30),
    NoShuffle(block=9), FullShuffle(), SlidingWindow(buffer=20), Reservoir(buffer=20),
]  # fmt: skip


def rows_table(rows):
    return cp.open(pa.table({"row": np.arange(rows), "label": np.arange(rows) * 3 // max(1, rows)}))


@given(
    st.integers(1, 300), st.integers(1, 40), st.sampled_from(ORDERS), st.integers(1, 3), st.integers(1, 3),
    st.booleans(), st.integers(0, 3), st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_steps_have_the_rows_that_are_delivered(rows, batch, order, world, workers, drop_last, epoch, seed):
    table = rows_table(rows)
    loaders = {
        (rank, worker): Loader(
            table, batch_size=batch, order=order, rank=rank, world=world, worker=worker, workers=workers,
            drop_last=drop_last, seed=seed,
        )
        for rank in range(world) for worker in range(workers)
    }  # fmt: skip
    for loader in loaders.values():
        loader.set_epoch(epoch)
    steps = sum(len(loaders[0, worker]) for worker in range(workers))
    first = loaders[0, 0]
    delivered = {key: [made["row"].tolist() for made in loader] for key, loader in loaders.items()}
    first.set_epoch(epoch)
    turns = []
    for rank in range(world):
        waiting = [list(delivered[rank, worker]) for worker in range(workers)]
        step = 0
        while any(waiting):
            for one in waiting:
                if one:
                    made = one.pop(0)
                    assert first.rows_of(step, rank=rank).tolist() == made
                    turns += [(row, epoch, step, rank, place) for place, row in enumerate(made)]
                    step += 1
        assert step == steps
    assert sorted(first.visits_of(np.arange(rows))) == sorted(turns)
    with pytest.raises(BadArgument, match=f"below {steps}, the steps of epoch"):
        first.rows_of(steps)


@given(
    st.integers(2, 200), st.sampled_from(ORDERS[:5]), st.data(),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), min_size=2, max_size=4),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_an_epoch_that_was_continued_otherwise_is_followed(rows, order, data, changes):
    torch = pytest.importorskip("corgipile.torch")
    table, state, log = rows_table(rows), None, []
    for world, batch in changes:
        ranks = [
            torch.CorgiPileDataset(table, order=order, batch_size=batch, rank=r, world=world) for r in range(world)
        ]
        runs = []
        for dataset in ranks:
            if state is not None:
                dataset.load_state_dict(json.loads(json.dumps(state)))
            runs.append(iter(dataset))
        left = len(list(iter(_copy(ranks[0], state, table, order, batch, world))))
        taken = data.draw(st.integers(0, left - 1)) if left > 1 else 0
        log += [[next(run)["row"].tolist() for run in runs] for _ in range(taken)]
        state = ranks[0].state_dict()
    rewind = Rewind.of(table, state)
    for step, made in enumerate(log):
        assert [rewind.rows_of(step, rank=rank).tolist() for rank in range(len(made))] == made
    for run in runs:  # including later epochs
        for step, made in enumerate(run, len(log)):
            assert rewind.rows_of(step, rank=runs.index(run)).tolist() == made["row"].tolist()


def _copy(dataset, state, table, order, batch, world):
    other = type(dataset)(table, order=order, batch_size=batch, rank=0, world=world)
    if state is not None:
        other.load_state_dict(state)
    return other


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning", "ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_dataset_under_a_data_loader(workers):
    torch = pytest.importorskip("torch")
    dataset = pytest.importorskip("corgipile.torch").CorgiPileDataset(
        rows_table(500), order=ORDERS[0], batch_size=16, rank=1, world=2
    )
    told = [dataset.rows_of(step, workers=workers).tolist() for step in range(len(dataset))]
    batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    assert [batch["row"].tolist() for batch in batches] == told
    assert [dataset.rows_of(step).tolist() for step in range(len(told))] == told
    visit = dataset.visit_of(told[2][5])
    assert visit[1:] == (0, 2, 1, 5)
    assert dataset.rows_of(0, epoch=1).tolist() != told[0]


def test_features_and_files(tmp_path):
    table = pa.table({"row": np.arange(900), "x": np.arange(900) / 3, "label": [f"k{i % 3}" for i in range(900)]})
    cp.convert(table, tmp_path / "t.parquet")
    loader = Loader(tmp_path / "t.parquet", batch_size=50, features=["x"], label="label", columns=["row"], memory="8KB")
    told = [loader.rows_of(step).tolist() for step in range(len(loader))]
    state = loader.state_dict()
    assert [batch["row"].tolist() for batch in loader] == told
    assert [Rewind.of(cp.open(tmp_path / "t.parquet"), state).rows_of(step).tolist() for step in range(18)] == told


def test_rows_of_any_table_have_a_place(tmp_path):
    cp.convert(pa.table({"x": np.arange(10.0)}), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", x=np.arange(10.0))
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{row}.5\n" for row in range(10)))
    for name in ("t.npz", "t.csv", "t.parquet"):
        opened = cp.open(tmp_path / name)
        assert place_of(opened, 3)[0] == place_of(opened.slice(2), 1)[0] == 3
        assert row_place(cp.mix([(opened.select(["x"]), 1.0)] * 2, rows=20), 7) == row_place(opened, 3)
        assert place_of(opened, 3)[1] in {"", str(tmp_path / name)}


def test_bad_input():
    table = rows_table(100)
    loader = Loader(table, batch_size=10)
    rewind, state = Rewind.of(table, loader.state_dict()), loader.state_dict()
    for wrong in (-1, 10, "x", 0.5):
        with pytest.raises(BadArgument, match="step"):
            rewind.rows_of(wrong)
    with pytest.raises(BadArgument, match="rank must be below 1, the ranks of step 0"):
        rewind.rows_of(0, rank=1)
    for row in (-1, 100, 0.5, "x"):
        with pytest.raises(BadArgument, match="row must be"):
            rewind.visits_of(row)
    with pytest.raises(StateMismatch, match="table"):
        Rewind.of(rows_table(99), state)
    with pytest.raises(StateMismatch, match="not begun"):
        Rewind.of(table, {**state, "segments": []})
    for wrong in ([], {}, {**state, "seed": "x"}, {**state, "epoch": -1}):
        with pytest.raises(StateMismatch):
            Rewind.of(table, wrong)
