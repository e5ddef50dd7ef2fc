"""Blocks described by rows of the first epoch: visits of all epochs, and resumed states."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, StateMismatch
from corgipile.linear import train
from corgipile.loader import row_tap, sampled_runs
from corgipile.loader.rewind import Rewind
from corgipile.orders import Partial, Riffle, described, restored
from corgipile.quality import deff
from corgipile.torch import CorgiPileDataset

ROWS, UNIT = 12_000, 100
SIZES = {"block": UNIT, "buffer": 12 * UNIT, "group": 1}
LATER = Riffle(balance="content", first_epoch="label", **SIZES)


def rows(count=ROWS):
    """Rows sorted by one of five features, with mixed labels."""
    random = np.random.default_rng(1)
    x = random.normal(size=(count, 5)).astype(np.float32)
    x = x[np.argsort(x[:, 0])]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 5)
    return pa.table({"x": lists, "label": random.integers(0, 2, count), "id": np.arange(count, dtype=np.int32)})


def stored(folder, kind="parquet", unit=UNIT, count=ROWS):
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(rows(count), path, row_group_size=unit)
    else:
        packed = pa.ipc.IpcWriteOptions(compression="lz4" if kind == "lz4" else None)
        with pa.ipc.new_file(path, rows().schema, options=packed) as writer:
            writer.write_table(rows(count), max_chunksize=unit)
    return path


def opened(path):
    """Open a table that is decoded in units, however few of them fit."""
    return cp.open(path, spill="off") if str(path).endswith(("parquet", "lz4")) else cp.open(path)


def visits(path, order, epochs=3, **more):
    """Return the rows of some epochs, as delivered."""
    with cp.Loader(opened(path), batch_size=64, order=order, memory=None, seed=3, **more) as loader:
        return [np.concatenate([batch["id"] for batch in loader]) for _ in range(epochs)]


@pytest.fixture
def picked(monkeypatch):
    """Return how many captured rows each description of blocks used, and how many rows it read."""
    found, pick, whole = [], row_tap.RowTap.picked, sampled_runs._picked

    def counted(self, table):
        found.append((len(self._rows) - len(self.missing), len(self.missing)))
        return pick(self, table)

    def read(table, names, numbers):
        found.append((0, len(numbers)))
        return whole(table, names, numbers)

    monkeypatch.setattr(row_tap.RowTap, "picked", counted)
    monkeypatch.setattr(sampled_runs, "_picked", read)
    return found


@pytest.mark.parametrize("kind", ["parquet", "lz4", "arrow"])
@pytest.mark.parametrize("first", ["label", "random"])
def test_the_first_epoch_is_balanced_by_a_column_and_later_ones_by_content(kind, first, tmp_path, picked):
    path = stored(tmp_path, kind)
    found = visits(path, Riffle(balance="content", first_epoch=first, **SIZES))
    assert all(left == 0 for _, left in picked)  # the captured rows sufficed
    assert len(picked) == (kind != "arrow")
    assert picked == [] or picked[0][0] > 2000
    alone = Riffle(balance=None if first == "random" else first, whole=True, **SIZES)
    assert (found[0] == visits(path, alone, 1)[0]).all()
    by_content = visits(path, Riffle(balance="content", **SIZES))  # from vectors cached with the table
    assert all((one == other).all() for one, other in zip(found[1:], by_content[1:], strict=True))
    assert len(picked) == (kind != "arrow")
    (path.parent / f"{path.name}.sketch.corgipile-index.arrow").unlink()
    looked = visits(path, Riffle(balance="content", **SIZES))  # from a scan
    assert all((one == other).all() for one, other in zip(looked, by_content, strict=True))
    x = rows()["x"].combine_chunks().flatten().to_numpy().reshape(-1, 5)[:, 0]
    assert deff(x[found[0]], 64) > 1.4
    assert deff(x[found[1]], 64) < 1.2
    assert all((np.sort(one) == np.arange(ROWS)).all() for one in found)


@given(
    st.integers(1, 700),
    st.integers(1, 90),
    st.integers(1, 40),
    st.integers(0, 99),
    st.sampled_from([1, 2, 3]),
    st.data(),
)
@settings(max_examples=25, deadline=None)
def test_any_table_stopped_anywhere_goes_on_to_the_same_rows(tmp_path_factory, count, unit, batch, seed, world, data):
    folder = tmp_path_factory.mktemp("rows")
    path, beside = stored(folder, unit=unit, count=count), folder / "rows.parquet.sketch.corgipile-index.arrow"
    order = Riffle(
        block=unit, buffer=3 * unit, balance="content", first_epoch=data.draw(st.sampled_from(["label", "random"]))
    )

    def begun(rank):
        shares = {"rank": rank, "world": world, "seed": seed}
        return cp.Loader(opened(path), batch_size=batch, order=order, memory=None, **shares)

    with begun(0) as one:
        epochs = [[found["id"] for found in one] for _ in range(3)]
    others = [[[found["id"] for found in loader] for _ in range(3)] for loader in map(begun, range(1, world))]
    for epoch in range(3):  # all ranks use the same order
        seen = np.concatenate([one for rank in (epochs, *others) for one in rank[epoch]])
        assert (np.unique(seen) == np.arange(count)).all()
        assert len(seen) < count + world
    at = data.draw(st.integers(0, 2)), data.draw(st.integers(0, len(epochs[0]) - 1))
    beside.unlink(missing_ok=True)
    with begun(0) as one:
        for epoch in range(at[0]):
            assert all(map(np.array_equal, (found["id"] for found in one), epochs[epoch]))
        batches = iter(one)
        for _ in range(at[1]):
            next(batches)
        state = json.loads(json.dumps(one.state_dict()))
    if data.draw(st.booleans()):
        beside.unlink(missing_ok=True)
    elif data.draw(st.booleans()):
        visits(path, Riffle(balance="content", **SIZES), 1)  # another reader has cached the vectors meanwhile
    with begun(0) as again:
        again.load_state_dict(state)
        for epoch in range(at[0], 3):
            rest = epochs[epoch][at[1] if epoch == at[0] else 0 :]
            got = [found["id"] for found in again]
            assert len(got) == len(rest)
            assert all(map(np.array_equal, got, rest))


AGAIN = """
import json, sys
import numpy as np, corgipile as cp
from corgipile.orders import Riffle
order = Riffle(balance="content", first_epoch="label", block=100, buffer=1200, group=1)
with cp.Loader(cp.open(sys.argv[1], spill="off"), batch_size=64, order=order, memory=None, seed=3) as loader:
    loader.load_state_dict(json.loads(sys.argv[2]))
    print(json.dumps([np.concatenate([batch["id"] for batch in loader]).tolist() for _ in range(2)]))
"""


@pytest.mark.parametrize("epoch", [0, 1])
def test_another_process_goes_on(epoch, tmp_path):
    path = stored(tmp_path)
    whole = visits(path, LATER)
    (tmp_path / "rows.parquet.sketch.corgipile-index.arrow").unlink()
    with cp.Loader(opened(path), batch_size=64, order=LATER, memory=None, seed=3) as loader:
        loader.set_epoch(epoch)
        loader.seek(100)
        state = json.dumps(loader.state_dict())
    assert bool(json.loads(state)["segments"][0]["sketch"]) == bool(epoch)  # checksum of the epoch's sketch
    again = subprocess.run(
        [sys.executable, "-c", AGAIN, str(path), state], check=True, capture_output=True, text=True, timeout=300
    )
    found = json.loads(again.stdout)
    assert found[0] == whole[epoch][6400:].tolist()
    assert found[1] == (whole[epoch + 1]).tolist()


def test_rows_and_steps_are_found_in_all_epochs(tmp_path):
    path = stored(tmp_path)
    whole = visits(path, LATER)
    (tmp_path / "rows.parquet.sketch.corgipile-index.arrow").unlink()
    with cp.Loader(opened(path), batch_size=64, order=LATER, memory=None, seed=3, skip=[(1, 5), 17]) as loader:
        for epoch in (2, 0, 1):
            assert (loader.rows_of(9, epoch=epoch) == whole[epoch][9 * 64 : 10 * 64]).all()
            visit = loader.visit_of(4321, epoch=epoch)
            assert whole[epoch][visit.step * 64 + visit.place] == 4321
        first = loader.state_dict()
        for epoch in range(2):
            got = np.concatenate([batch["id"] for batch in loader])
            left = np.delete(whole[epoch], np.arange(5 * 64, 6 * 64) if epoch else [])
            assert (got == left[left != 17]).all()
        second = loader.state_dict()
    assert (Rewind.of(opened(path), first).rows_of(9) == whole[0][9 * 64 : 10 * 64]).all()
    with pytest.raises(StateMismatch, match="does not hold the balance of epoch 1"):
        Rewind.of(opened(path), first).rows_of(9, epoch=1)
    later = Rewind.of(opened(path), second)
    assert all((later.rows_of(9, epoch=epoch) == whole[epoch][9 * 64 : 10 * 64]).all() for epoch in (0, 1, 2))


def test_training_reads_no_row_for_it_and_goes_on_from_a_model(tmp_path, picked):
    path, given = stored(tmp_path), {"order": LATER, "memory": None, "features": "x", "seed": 2}
    whole = train(opened(path), epochs=3, **given)
    assert len(picked) == 1
    assert picked[0][1] == 0
    half = train(opened(path), epochs=1, **given)
    assert train(opened(path), epochs=2, warm_start=half, **given).coef.tolist() == whole.coef.tolist()
    assert whole.params["balance"] == "content"


def test_a_stopped_epoch_has_the_rest_read(tmp_path, picked):
    path = stored(tmp_path)
    with cp.Loader(opened(path), batch_size=64, order=LATER, memory=None, seed=3) as loader:
        for _, _ in zip(loader, range(40), strict=False):
            pass
        loader.set_epoch(1)
        again = np.concatenate([batch["id"] for batch in loader])
    kept, read = picked[0]
    assert kept > 100
    assert read > 100
    assert (again == visits(path, LATER)[1]).all()


def test_what_a_function_makes_of_rows_is_found_after_the_first_epoch(tmp_path):
    path, calls = stored(tmp_path), []

    def embed(batch):
        calls.append(batch.num_rows)
        return np.array(batch.column("x").to_pylist())[:, :2]

    one, other = visits(path, LATER, 2, sketch=embed), visits(path, Riffle(balance="content", **SIZES), 2, sketch=embed)
    assert calls[0] == 1
    assert (one[1] == other[1]).all()
    assert (one[0] != other[0]).any()
    with pytest.raises(BadArgument, match="sketch= must return"):
        cp.Loader(opened(path), order=LATER, memory=None, sketch=lambda _: "no")


def test_what_cannot_be_is_said_before_anything_is_read(tmp_path):
    for wrong in ({"first_epoch": "label"}, {"first_epoch": "label", "balance": "y"}):
        with pytest.raises(BadArgument, match="first_epoch must be a column or 'random'"):
            Riffle(**wrong)
    with pytest.raises(BadArgument, match="first_epoch='content'"):
        Riffle(balance="content", first_epoch="content")
    for wrong in ({"first_epoch": ["label"], "balance": "content"}, {"balance": ["label"]}):
        with pytest.raises(BadArgument, match=r"must be the name of a column, got \['label'\]"):
            Riffle(**wrong)
    path = stored(tmp_path)
    with pytest.raises(cp.errors.MissingColumn, match="'y'"):
        cp.Loader(path, order=Riffle(balance="content", first_epoch="y"))
    with pytest.raises(BadSchema, match="give sketch="):
        cp.Loader(pa.table({"text": ["a", "b"]}), order=Riffle(balance="content", first_epoch="random"))
    with pytest.raises(BadArgument, match="datasets, which sample blocks before"):
        CorgiPileDataset(path, batch_size=4, order=LATER)
    with pytest.raises(BadArgument, match="must have no first_epoch"):
        Partial(within=LATER)


def test_states_tell_it_from_other_orders(tmp_path):
    path = stored(tmp_path)
    by_content = Riffle(balance="content", **SIZES)
    assert "first_epoch" not in described(by_content)
    assert restored(json.loads(json.dumps(described(LATER)))) == LATER
    with cp.Loader(opened(path), batch_size=64, order=LATER, memory=None) as loader:
        state = loader.state_dict()
    for other in (by_content, Riffle(balance="label", **SIZES)):
        with cp.Loader(opened(path), batch_size=64, order=other, memory=None) as loader:
            with pytest.raises(StateMismatch, match="first_epoch='label'"):
                loader.load_state_dict(state)
            told = loader.state_dict()
        with (
            cp.Loader(opened(path), batch_size=64, order=LATER, memory=None) as loader,
            pytest.raises(StateMismatch, match="to another order"),
        ):
            loader.load_state_dict(told)
    state |= {"epoch": 1}
    state["segments"][0]["sketch"] = 5
    with (
        cp.Loader(opened(path), batch_size=64, order=LATER, memory=None) as loader,
        pytest.raises(StateMismatch, match="to another sketch"),
    ):
        loader.load_state_dict(state)


def test_the_budget_has_room_for_rows_that_are_kept(tmp_path):
    path = stored(tmp_path)
    beside = {}
    for order in (LATER, Riffle(balance="content", **SIZES)):
        with cp.Loader(opened(path), order=order, memory="4MB", columns=["x", "label"]) as loader:
            beside[order.first_epoch] = loader.feeder.fitted.way.decoding_bytes
    assert beside["label"] - beside[None] == 3 * ROWS * (5 * 4 + 8)
    assert sampled_runs.SAMPLE_BYTES > ROWS * (5 * 4 + 8)


def test_global_batches_have_it_too(tmp_path):
    path = stored(tmp_path)
    worlds = {}
    for world in (1, 2):
        loaders = [
            cp.Loader(
                opened(path), batch_size=48, order=LATER, memory=None, seed=1, rank=rank, world=world,
                global_batches="fixed",
            )
            for rank in range(world)
        ]  # fmt: skip
        worlds[world] = [
            [np.sort(np.concatenate([one["id"] for one in step])).tolist() for step in zip(*loaders, strict=True)]
            for _ in range(2)
        ]
    assert worlds[1] == worlds[2]
    assert worlds[1][0] != worlds[1][1]
