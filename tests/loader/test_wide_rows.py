"""Wide rows are read at their turn; rows of uneven length stay within the budget; batches are unchanged."""

import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BudgetTooSmall, CorruptFile
from corgipile.loader import buffered_reader, wide_rows
from corgipile.loader.wide_rows import GROUP_BYTES
from corgipile.orders import FullShuffle, Reservoir
from corgipile.tables import unit_check
from corgipile.testing import Counting

ORDERS = ["no_shuffle", "block_only", "corgipile", "riffle", "balanced", "full", "sliding_window", "reservoir"]
ROWS, WIDTH = 90, 40_000


def blob(row, length):
    return row.to_bytes(4, "little") + bytes([row % 251]) * (length - 4)


def written(path, lengths, batch=7, **options):
    columns = {
        "image": pa.array([blob(row, length) for row, length in enumerate(lengths)], pa.binary()),
        "label": pa.array(np.arange(len(lengths)) % 3),
        "text": pa.array([f"row {row}" for row in range(len(lengths))]),
        "list": pa.array([[row] * (row % 4) for row in range(len(lengths))], pa.list_(pa.int32())),
        "row": pa.array(np.arange(len(lengths))),
    }
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch)
    return cp.open(path)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    return written(tmp_path_factory.mktemp("wide") / "blobs.arrow", [WIDTH + row for row in range(ROWS)])


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """Fixed-width rows in two files."""
    paths = [tmp_path_factory.mktemp("wide") / f"{i}.arrow" for i in range(2)]
    for i, path in enumerate(paths):
        rows = np.arange(i * 50, i * 50 + 50)
        x = np.repeat(rows.astype(np.float32), 9000)
        table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x), 9000), "label": rows % 3, "row": rows})
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=6)
    return cp.open(paths)


def plain(batches):
    return [{name: [np.asarray(row).tolist() for row in values] for name, values in batch.items()} for batch in batches]


def check(batch):
    columns = [batch[name] for name in ("row", "image", "label", "text", "list")]
    for row, image, label, text, numbers in zip(*columns, strict=True):
        assert image == blob(int(row), WIDTH + int(row))
        assert (label, text, list(numbers)) == (row % 3, f"row {row}", [row] * (row % 4))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("prefetch", "cached"), [(0, 0), (1, 0), (1, 1 << 60)])  # the last: a thread reads ahead
def test_wide_rows_come_as_they_do_from_a_buffer(blobs, order, prefetch, cached, monkeypatch):
    monkeypatch.setattr(wide_rows, "CACHED_RATE", cached)

    def loader():
        return cp.Loader(blobs, batch_size=8, order=order, memory="1MB", seed=3, prefetch=prefetch)

    with loader() as apart:
        assert apart.feeder.unbuffered
        found = list(apart)
        for batch in found:
            check(batch)
    monkeypatch.setattr(buffered_reader, "WIDE", 1 << 40)
    with loader() as held:
        assert not held.feeder.unbuffered
        assert plain(held) == plain(found)
    if order != "reservoir":
        assert sorted(int(row) for batch in found for row in batch["row"]) == list(range(ROWS))


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_a_fixed_width_too(fixed, order, monkeypatch):
    with cp.Loader(fixed, batch_size=8, order=order, memory="2MB", seed=3) as apart:
        assert apart.feeder.unbuffered
        found = list(apart)
    for batch in found:
        assert batch["x"].shape[1:] == (9000,)
        assert batch["x"].flags.writeable
        assert (batch["x"] == batch["row"][:, None]).all()
    monkeypatch.setattr(buffered_reader, "WIDE", 1 << 40)
    with cp.Loader(fixed, batch_size=8, order=order, memory="2MB", seed=3) as held:
        assert [batch["row"].tolist() for batch in held] == [batch["row"].tolist() for batch in found]


def test_what_is_cached_is_read_by_no_thread_what_comes_slowly_by_one(blobs, monkeypatch):
    def readers(batches):
        return [any(one.name == "corgipile-reader" for one in threading.enumerate()) for _ in batches]

    monkeypatch.setattr(wide_rows, "_device_blocks", lambda: 0)
    for cached, first in ((0, ROWS), (1 << 60, wide_rows.SLOW_GROUPS)):
        monkeypatch.setattr(wide_rows, "CACHED_RATE", cached)
        with cp.Loader(blobs, batch_size=8, order="no_shuffle", memory="1MB") as loader:
            found = readers(loader)
            assert loader.stats.rows == ROWS
        assert not any(found[:first])
        assert any(found[first:]) == (first < len(found))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cached", [0, 1 << 60])
def test_stop_anywhere_and_go_on(blobs, order, cached, monkeypatch):
    monkeypatch.setattr(wide_rows, "CACHED_RATE", cached)

    def fresh():
        return cp.Loader(blobs, batch_size=16, order=order, memory="1MB", seed=5)

    states, batches = [], []
    whole = fresh()
    for batch in whole:
        batches.append(batch["row"].tolist())
        states.append(whole.state_dict())
    for done, state in enumerate(states[:-1], 1):
        again = fresh()
        again.load_state_dict(json.loads(json.dumps(state)))
        assert [batch["row"].tolist() for batch in again] == batches[done:]


def _shards(folder, kind):
    """Write rows in two files of one format."""
    for part in range(2):
        rows = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        table = pa.table({"image": pa.array([blob(row, WIDTH + row) for row in rows], pa.binary()), "row": rows})
        if kind == "parquet":
            pq.write_table(table, folder / f"{part}.parquet")
        else:
            cp.convert(table, folder / f"{part}.{kind}", to=kind)
    return cp.open(folder)


@pytest.mark.parametrize("kind", ["parquet", "tfrecord"])
def test_shards_that_are_decoded(tmp_path, kind, monkeypatch):
    """Row groups are unpacked first, larger than the budget when decoded; records are located by an index."""
    table, batches, states = _shards(tmp_path, kind), [], []
    whole = cp.Loader(table, batch_size=8, memory="1MB", seed=3, order="riffle")
    for batch in whole:
        assert list(batch["image"]) == [blob(int(row), WIDTH + int(row)) for row in batch["row"]]
        batches.append(batch["row"].tolist())
        states.append(whole.state_dict())
    assert whole.feeder.unbuffered
    assert sorted(row for batch in batches for row in batch) == list(range(ROWS))
    for done in (1, 7):
        again = cp.Loader(table, batch_size=8, memory="1MB", seed=3, order="riffle")
        again.load_state_dict(json.loads(json.dumps(states[done - 1])))
        assert [batch["row"].tolist() for batch in again] == batches[done:]
    monkeypatch.setattr(buffered_reader, "WIDE", 1 << 40)
    held = cp.Loader(table, batch_size=8, memory="1MB", seed=3, order="riffle")
    assert [batch["row"].tolist() for batch in held] == batches
    assert not held.feeder.unbuffered


@pytest.mark.parametrize("form", ["numpy", "torch", "arrow"])
def test_formats(blobs, form):
    if form == "torch":
        pytest.importorskip("torch")
    batch = next(iter(cp.Loader(blobs, batch_size=8, format=form, memory="1MB")))
    rows = batch["row"].tolist() if form != "arrow" else batch["row"].to_pylist()
    images = batch["image"].to_pylist() if form == "arrow" else list(batch["image"])
    assert images == [blob(row, WIDTH + row) for row in rows]


def test_ranks_and_workers_share_the_rows(blobs):
    seen = []
    for rank in range(2):
        for worker in range(2):
            with cp.Loader(blobs, batch_size=4, memory="4MB", rank=rank, world=2, worker=worker, workers=2) as loader:
                seen += [int(row) for batch in loader for row in batch["row"]]
    assert sorted(seen) == list(range(ROWS))


def test_the_first_batch_waits_for_no_other(blobs):
    counting = Counting(blobs)
    with cp.Loader(counting, batch_size=4, memory="1MB", prefetch=0, columns=["image", "label"]) as loader:
        before = counting.rows  # read to measure row lengths
        next(iter(loader))
        assert counting.rows - before == 2 * 4  # images, and labels


@pytest.mark.parametrize("order", ["riffle", "corgipile", "full", "sliding_window"])
def test_held_rows_are_gathered_by_their_bytes(tmp_path, order, monkeypatch):
    """Also if the consumer keeps rows: 8,192 of them together took gigabytes."""
    monkeypatch.setattr(buffered_reader, "WIDE", 1 << 40)
    table = written(tmp_path / "t.arrow", [20_000] * 400, batch=50)
    with cp.Loader(table, batch_size=4, order=order, memory="2MB") as loader:
        sizes = [len(group.columns["image"]) for group in loader._source.groups(0, 0, 0, 400)]
    assert sizes[0] == 4
    assert max(sizes) <= GROUP_BYTES // 20_000 + 4


def uneven(path, **options):
    """Short rows at the beginning, the middle and the end; long rows between, unseen by any sample."""
    lengths = np.full(600, 1000)
    lengths[150:170] = lengths[430:450] = 600_000
    return written(path, lengths, batch=50, **options), lengths


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("prefetch", [0, 1])
def test_rows_longer_than_the_sample_stay_within_the_budget(tmp_path, order, prefetch):
    table, lengths = uneven(tmp_path / "t.arrow")
    seen, before = [], set(threading.enumerate())
    with cp.Loader(table, batch_size=4, order=order, memory="1MB", seed=2, prefetch=prefetch) as loader:
        for batch in loader:
            for row, image in zip(batch["row"], batch["image"], strict=True):
                assert image == blob(int(row), lengths[row])
            seen += batch["row"].tolist()
            if not loader.feeder.unbuffered:
                assert loader.feeder.buffer.nbytes <= (1 << 20) + (4 << 20)
        assert loader.feeder.unbuffered
        if order != "reservoir":
            assert sorted(seen) == list(range(600))
        seen_again = [row for batch in loader for row in batch["row"].tolist()]
    assert sorted(seen_again) == sorted(seen) or order == "reservoir"
    assert not set(threading.enumerate()) - before


def test_it_is_an_error_where_rows_are_not_found_one_by_one(tmp_path):
    table, _ = uneven(tmp_path / "t.arrow", compression="zstd")
    with pytest.raises(BudgetTooSmall, match="too few for corgipile: give memory="):
        cp.Loader(table, batch_size=4, order=cp.orders.CorgiPile(block=50), memory="1MB")
    with cp.Loader(table, batch_size=4, order=cp.orders.CorgiPile(block=50), memory="64MB") as loader:
        assert sum(len(batch["row"]) for batch in loader) == 600


@pytest.mark.parametrize("order", ["riffle", "full", "no_shuffle"])
def test_damaged_offsets_are_an_error(tmp_path, order, monkeypatch):
    """A row that no sample sees."""
    monkeypatch.setattr(unit_check, "STRETCH_ROWS", 5)
    path, rows = tmp_path / "t.arrow", 400
    written(path, [WIDTH] * rows, batch=rows)
    data = bytearray(path.read_bytes())
    at = data.index((np.arange(rows + 1, dtype=np.int32) * WIDTH).tobytes())
    data[at + 4 * 100 : at + 4 * 101] = (2**30).to_bytes(4, "little")
    path.write_bytes(data)
    with (
        cp.Loader(cp.open(path), batch_size=4, order=order, memory="4MB", columns=["image"]) as loader,
        pytest.raises(CorruptFile, match="items"),
    ):
        list(loader)


def test_a_full_shuffle_of_narrow_rows_takes_small_steps():
    order = FullShuffle().fit(40_000_000, 4.0, (64 << 20) // 4)
    assert order.slots(cp.orders.Blocks(40_000_000, even=1)) * 4 < 16 << 20
    assert FullShuffle().fit(10_000, 4096.0, 2000).visits_per_step == 1000


def test_states_of_larger_steps_still_load():
    """Once, a step of this shuffle had all rows of the buffer."""
    table = cp.open(pa.table({"row": np.arange(200_000, dtype=np.int32)}))
    order = FullShuffle(buffer=150_000)
    with cp.Loader(table, batch_size=1000, order=order, seed=4) as whole:
        rows = [batch["row"].tolist() for batch in whole]
    with cp.Loader(table, batch_size=1000, order=order, seed=4) as loader:
        assert loader.feeder.order.visits_per_step < 150_000
        state = loader.state_dict()
        state["segments"][0]["batches"] = [160]
        loader.load_state_dict({**state, "step": 1, "offset": 10_000})
        assert [batch["row"].tolist() for batch in loader] == rows[160:]


def test_reservoirs_keep_rows_they_visit_again(tmp_path, monkeypatch):
    monkeypatch.setattr(buffered_reader, "WIDE", 1 << 40)
    table = written(tmp_path / "t.arrow", [1000] * 400, batch=20)
    with cp.Loader(table, batch_size=10, order=Reservoir(block=20, buffer=60)) as loader:
        for batch in loader:
            assert list(batch["image"]) == [blob(int(row), 1000) for row in batch["row"]]
