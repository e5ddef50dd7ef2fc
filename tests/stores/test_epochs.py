"""Epochs over tables in stores: every row once, in few requests, within the budget, wherever they are read."""

import json
import logging
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import shards

import corgipile as cp
from corgipile import cli
from corgipile.errors import CorruptFile, ReadFailed, StateMismatch
from corgipile.loader.remote import RemoteLayoutReader, RemoteTableReader
from corgipile.stores import requests
from corgipile.tables.io import spill
from corgipile.tables.io.remote import RemoteFile

pytest.importorskip("obstore")
ROWS = 20_000
X = np.random.default_rng(0).random((ROWS, 24), np.float32)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORGIPILE_SPILL", str(tmp_path))  # where no other test has unpacked the same


@pytest.fixture
def bucket(objects):
    return objects.root / "bucket"


def packed(columns=2):
    flat = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    return pa.table({"x": flat, "id": np.arange(ROWS)} | ({"label": np.arange(ROWS) % 2} if columns > 2 else {}))


def scalars():
    return pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])} | {"id": np.arange(ROWS)})


def arrow(path, rows, chunk=2000):
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=chunk)


def check_epoch(loader):
    seen = []
    for batch in loader:
        seen.append(batch["id"])
        x = batch["x"] if "x" in batch else np.stack([batch[f"x{i}"] for i in range(X.shape[1])], axis=1)
        assert np.array_equal(x, X[batch["id"]])
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))
    return np.concatenate(seen)


def sent(objects):
    log = objects.log()
    return len(log), sum(line.sent for line in log)


@pytest.mark.parametrize("order", ["riffle", "corgipile", "no_shuffle", "full"])
def test_rows_in_place(objects, bucket, order):
    arrow(bucket / "a.arrow", packed())
    loader = cp.Loader("s3://bucket/a.arrow", batch_size=300, order=order, memory="1MB")
    objects.log()
    check_epoch(loader)
    assert isinstance(loader.feeder._reader(), RemoteLayoutReader)
    small = order in ("riffle", "corgipile")  # blocks of 10 KB, as the memory is
    assert order == "full" or sent(objects)[1] <= (1.5 if small else 1.1) * (bucket / "a.arrow").stat().st_size
    check_epoch(loader)


def test_no_more_is_on_its_way_than_there_is_room_for(bucket, monkeypatch):
    arrow(bucket / "a.arrow", packed())
    under_way, most, gather = [0], [0], RemoteFile.gather

    def watched(self, offsets, lengths, out=None, to=None):
        under_way[0] += int(lengths.sum())
        most[0] = max(most[0], under_way[0])
        try:
            return gather(self, offsets, lengths, out, to)
        finally:
            under_way[0] -= int(lengths.sum())

    loader = cp.Loader("s3://bucket/a.arrow", batch_size=300, order="riffle", memory="1MB")
    monkeypatch.setattr(RemoteFile, "gather", watched)
    check_epoch(loader)  # its first step is half of the buffer
    assert 0 < most[0] <= loader.feeder._way.ahead


def test_single_rows_are_copied_first(objects, bucket, caplog):
    arrow(bucket / "a.arrow", packed())
    loader = cp.Loader("s3://bucket/a.arrow", batch_size=300, order="full", memory="1MB")
    objects.log()
    with caplog.at_level(logging.WARNING, "corgipile"):
        check_epoch(loader)
    assert "20000 requests per epoch" in caplog.text
    requests, nbytes = sent(objects)
    assert requests <= 4
    assert nbytes == (bucket / "a.arrow").stat().st_size
    check_epoch(loader)
    assert sent(objects)[0] == 0


def test_single_rows_that_are_requests_are_warned_of(objects, bucket, monkeypatch):
    arrow(bucket / "a.arrow", packed())
    loader = cp.Loader(cp.open("s3://bucket/a.arrow", spill="off"), order="full", memory="1MB")
    with pytest.warns(UserWarning, match=r"20,000 per epoch.*riffle.*cache=FOLDER.*off"):
        check_epoch(loader)
    monkeypatch.setattr(spill, "MIN_FREE", 1 << 60)
    loader = cp.Loader("s3://bucket/a.arrow", order="full", memory="1MB")
    with pytest.warns(UserWarning, match="each a request to the store.*must have .* free"):
        check_epoch(loader)


def test_many_columns_are_copied_in_order(objects, bucket):
    arrow(bucket / "a.arrow", scalars())
    loader = cp.Loader("s3://bucket/a.arrow", batch_size=300, memory="500KB", order="riffle")
    objects.log()
    check_epoch(loader)
    requests, nbytes = sent(objects)
    assert requests <= 3
    assert nbytes <= 1.02 * (bucket / "a.arrow").stat().st_size
    check_epoch(loader)
    assert sent(objects)[0] == 0
    some = cp.Loader("s3://bucket/a.arrow", columns=["x1", "x3", "id"], memory="100KB", order="riffle")
    assert sum(len(batch["id"]) for batch in some) == ROWS


def test_many_columns_without_a_spill_file_are_read_by_blocks(objects, bucket):
    arrow(bucket / "a.arrow", scalars())
    check_epoch(cp.Loader(cp.open("s3://bucket/a.arrow", spill="off"), memory="1MB", order="riffle"))


@pytest.mark.parametrize(("group", "memory"), [(500, "4MB"), (ROWS, "1MB"), (500, "300KB")])
@pytest.mark.parametrize("rows", [packed, scalars])
def test_parquet(objects, bucket, rows, group, memory):
    pq.write_table(rows(), bucket / "a.parquet", row_group_size=group)
    loader = cp.Loader("s3://bucket/a.parquet", batch_size=300, memory=memory, order="riffle")
    objects.log()
    check_epoch(loader)
    requests, nbytes = sent(objects)
    assert nbytes <= 1.05 * (bucket / "a.parquet").stat().st_size + 70_000
    assert requests <= 3 * (ROWS // group) + 10


def test_parquet_within_memory_is_read_each_epoch(objects, bucket):
    pq.write_table(packed(), bucket / "a.parquet", row_group_size=200)
    table = cp.open("s3://bucket/a.parquet", spill="off")
    loader = cp.Loader(table, batch_size=300, memory="8MB", order="riffle")
    check_epoch(loader)
    assert isinstance(loader.feeder._reader(), RemoteTableReader)
    check_epoch(loader)


def test_rows_of_varying_length(objects, bucket):
    shards.write(bucket / "a.tar", shards.numbered(400))
    expected = shards.table_of(400)
    here = {key: row for row in expected.to_pylist() for key in [row.pop("__key__")]}
    loader = cp.Loader(cp.open("s3://bucket/a.tar", paths=True), batch_size=30, memory="1MB", order="riffle")
    seen = {}
    for batch in loader:
        for i, key in enumerate(batch["__key__"]):
            seen[key] = {name: batch[name][i] for name in ("cls", "jpg", "txt")}
    assert seen == here


def test_mixed_with_what_is_here(bucket):
    arrow(bucket / "a.arrow", packed())
    there = cp.open("s3://bucket/a.arrow")
    check_epoch(cp.Loader([there.slice(0, 5000), pa.table(packed()).slice(5000)], memory="1MB"))
    mixed = cp.mix([(there, 1), (cp.open(packed()), 1)])
    assert len(np.concatenate([batch["id"] for batch in cp.Loader(mixed, memory="1MB")])) == len(mixed)
    train, test = cp.train_test_split(there, 0.2, seed=1)
    ids = [np.concatenate([batch["id"] for batch in cp.Loader(part, memory="1MB")]) for part in (train, test)]
    assert np.array_equal(np.sort(np.concatenate(ids)), np.arange(ROWS))


def test_resumed(bucket):
    arrow(bucket / "a.arrow", packed())
    whole = check_epoch(cp.Loader("s3://bucket/a.arrow", memory="1MB", seed=4))
    first = cp.Loader("s3://bucket/a.arrow", memory="1MB", seed=4)
    batches = iter(first)
    begun = [next(batches)["id"] for _ in range(7)]
    state = json.loads(json.dumps(first.state_dict()))
    assert "secret" not in json.dumps(state)
    shutil.copy(bucket / "a.arrow", bucket / "moved.arrow")
    second = cp.Loader("s3://bucket/moved.arrow", memory="1MB", seed=4)
    second.load_state_dict(state)
    assert np.array_equal(np.concatenate(begun + [batch["id"] for batch in second]), whole)
    arrow(bucket / "a.arrow", packed().set_column(1, "id", pa.array(np.arange(ROWS) + 1)))
    with pytest.raises(StateMismatch, match="another table"):
        cp.Loader("s3://bucket/a.arrow", memory="1MB", seed=4).load_state_dict(state)


def test_faults_are_not_seen(objects, bucket, hedging):
    arrow(bucket / "a.arrow", packed())
    loader = cp.Loader("s3://bucket/a.arrow", batch_size=300, order="riffle", memory="1MB")
    check_epoch(loader)
    objects.set(errors=0.05, stalls=0.03, stall=20.0, truncated=0.02, seed=1)
    check_epoch(loader)


def test_a_change_midway_ends_the_epoch(objects, bucket):
    arrow(bucket / "a.arrow", packed())
    batches = iter(cp.Loader("s3://bucket/a.arrow", batch_size=100, order="riffle", memory="400KB"))
    next(batches)
    (bucket / "a.arrow").write_bytes((bucket / "a.arrow").read_bytes()[::-1])
    with pytest.raises(CorruptFile, match="changed or replaced"):
        list(batches)


WRITERS = {
    "a.parquet": lambda path, rows: pq.write_table(rows, path, row_group_size=ROWS),
    "a.feather": lambda path, rows: pa.feather.write_feather(rows, path, compression="zstd", chunksize=6000),
    "a.arrow": arrow,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_unpacked_is_of_one_state(objects, bucket, name):
    WRITERS[name](bucket / name, scalars())
    changed, was = cp.open(f"s3://bucket/{name}"), (bucket / name).read_bytes()
    (bucket / name).write_bytes(was[::-1])
    with pytest.raises(CorruptFile, match="changed or replaced"):
        list(cp.Loader(changed, batch_size=300, memory="700KB", order="riffle"))
    (bucket / name).write_bytes(was)
    table = cp.open(f"s3://bucket/{name}")
    check_epoch(cp.Loader(table, batch_size=300, memory="700KB", order="riffle"))
    (bucket / name).unlink()
    check_epoch(cp.Loader(table, batch_size=300, memory="700KB", order="riffle", seed=1))  # it was read before


@pytest.mark.parametrize("lie", [{"less": 7}, {"shift": 5}, {"whole": True}, {"grown": 9}])
@pytest.mark.parametrize("name", WRITERS)
def test_a_server_that_lies_gives_no_rows(objects, bucket, name, lie, monkeypatch):
    monkeypatch.setattr(requests, "PATIENCE", 0.2)
    WRITERS[name](bucket / name, scalars())
    loader = cp.Loader(f"s3://bucket/{name}", batch_size=300, memory="700KB", order="riffle")
    objects.set(**lie)
    with pytest.raises((CorruptFile, ReadFailed), match=name):
        list(loader)


def test_credentials_that_expire_midway(objects, bucket, monkeypatch):
    arrow(bucket / "a.arrow", packed())
    batches = iter(cp.Loader("s3://bucket/a.arrow", batch_size=100, order="riffle", memory="400KB"))
    seen = [next(batches)["id"]]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    objects.set(token="second")  # the first are refused from now on
    seen += [batch["id"] for batch in batches]
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))
    batches = iter(cp.Loader("s3://bucket/a.arrow", batch_size=100, order="riffle", memory="400KB"))
    next(batches)
    objects.set(token="third")
    with pytest.raises(ReadFailed, match="AWS_ACCESS_KEY_ID") as caught:
        list(batches)
    assert "second" not in str(caught.value).replace("seconds", "")


def test_workers_that_are_forked(bucket):
    torch = pytest.importorskip("torch")
    from corgipile.torch import CorgiPileDataset  # noqa: PLC0415 - which needs it

    arrow(bucket / "a.arrow", packed())
    dataset = CorgiPileDataset("s3://bucket/a.arrow", batch_size=500, memory="2MB")
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
    seen = np.concatenate([batch["id"].numpy() for batch in loader])
    assert np.array_equal(np.sort(seen), np.arange(ROWS))


def test_training_and_commands(bucket, tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = (X @ rng.standard_normal(24) > 0).astype(np.int64)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 24)
    pq.write_table(pa.table({"features": flat, "label": y}), bucket / "a.parquet", row_group_size=1000)
    model = cp.train("s3://bucket/a.parquet", epochs=2, memory="1MB")
    assert (model.predict("s3://bucket/a.parquet") == y).mean() > 0.9
    for command in (["info", "s3://bucket/a.parquet"], ["convert", "s3://bucket/a.parquet", str(tmp_path / "b.arrow")]):
        assert cli.main(command) == 0
    assert "20,000" in capsys.readouterr().out


def test_said_once(bucket, caplog):
    arrow(bucket / "a.arrow", scalars())
    with caplog.at_level(logging.INFO, "corgipile"):
        list(cp.Loader("s3://bucket/a.arrow", memory="500KB", order="riffle"))
    assert "unpacking" in caplog.text
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in caplog.text
