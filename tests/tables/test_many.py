"""Work is linear in the columns and files of a table, measured in calls, not seconds."""

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.tables.formats.arrow.metadata import BatchMetadata
from corgipile.tables.io import remote

ROWS, MOST = 60, 2.4  # the types of larger texts are sampled in more places


def calls(run):
    """Count the function calls in this thread, of Python and C."""
    count = Counter()

    def note(frame, event, argument):
        count[event] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count["call"] + count["c_call"]


def wide(folder, kind, columns):
    values = (lambda at: [f"{at} {row}" for row in range(ROWS)]) if "text" in kind else lambda at: np.arange(ROWS) / 7
    rows = {f"c{at}": values(at) for at in range(columns)} | {"label": np.arange(ROWS) % 2}
    path = folder / f"{columns}.{kind.split()[0]}"
    if path.suffix == ".parquet":
        pq.write_table(pa.table(rows), path, row_group_size=ROWS // 2)
    elif path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [rows, *zip(*rows.values(), strict=True)]))
    else:
        with pa.ipc.new_file(path, pa.table(rows).schema) as writer:
            writer.write_table(pa.table(rows), max_chunksize=ROWS // 2)
    return path


def many(folder, kind, files):
    where = folder / str(files)
    where.mkdir()
    for number in range(files):
        rows = {"x": np.arange(3) / 7, "label": np.arange(3) % 2}
        path = where / f"{number}.{kind}"
        if kind == "npy":
            np.save(path, np.ones((3, 2), np.float32))
        elif kind == "csv":
            path.write_text("x,label\n0.5,1\n1.5,0\n")
        elif kind == "parquet":
            pq.write_table(pa.table(rows), path)
        else:
            with pa.ipc.new_file(path, pa.table(rows).schema) as writer:
                writer.write_table(pa.table(rows))
    return where


def first(path, **how):
    for _ in cp.Loader(path, batch_size=16, memory="64MB", **how):
        return


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "parquet text", "arrow text"])
def test_work_grows_no_faster_than_columns(tmp_path, kind):
    few, twice = wide(tmp_path, kind, 200), wide(tmp_path, kind, 400)
    hows = [{}] if "text" in kind else [{}, {"features": "numeric", "label": "label"}]
    runs = [lambda path, how=how: first(path, **how) for how in hows]
    if "text" not in kind:
        runs.append(lambda path: cp.train(path, label="label", epochs=1, standardize=True, memory="16MB"))
    for run in runs:
        for path in (few, twice):
            run(path)  # warm up imports and caches
        assert calls(lambda run=run: run(twice)) < MOST * calls(lambda run=run: run(few))


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "npy"])
def test_work_grows_no_faster_than_files(tmp_path, kind):
    few, twice = many(tmp_path, kind, 20), many(tmp_path, kind, 40)
    for path in (few, twice):
        first(path)
    for run in (cp.open, first):
        assert calls(lambda run=run: run(twice)) < MOST * calls(lambda run=run: run(few))


def folder_of(where, kind, columns, files=10):
    folder = where / f"{kind}{columns}"
    folder.mkdir()
    for number in range(files):
        wide(folder, kind, columns).rename(folder / f"part-{number}.{kind}")
    return folder


@pytest.mark.parametrize(("kind", "most"), [("arrow", 60), ("parquet", 60)])
def test_work_per_file_and_column_is_small(tmp_path, kind, most):
    few, twice = folder_of(tmp_path, kind, 100), folder_of(tmp_path, kind, 200)
    for path in (few, twice):
        first(path, prefetch=0)
    counts = [calls(lambda path=path: first(path, prefetch=0)) for path in (few, twice)]
    assert counts[1] - counts[0] < most * 100 * 10


def mixed(rows, columns):
    kinds = [np.int8, np.float32, np.int64, np.float64]
    data = {f"c{at}": (np.arange(rows) * 7 + at).astype(kinds[at % 4]) for at in range(columns)}
    data["list"] = pa.FixedSizeListArray.from_arrays(np.arange(rows * 300, dtype=np.float32), 300)
    return pa.table({**data, "last": np.arange(rows)})


@pytest.mark.parametrize("batch", [7, 200, 3000])
def test_close_columns_are_read_by_one_call(tmp_path, batch):
    rows, columns = 3000 if batch == 3000 else 200, 300
    data = mixed(rows, columns)
    with pa.ipc.new_file(tmp_path / "x.arrow", data.schema) as writer:
        writer.write_table(data, max_chunksize=batch)
    for order in (cp.orders.Riffle(block=5, buffer=40), cp.orders.CorgiPile(block=64, buffer=128), "no_shuffle"):
        with cp.Loader(tmp_path / "x.arrow", batch_size=50, order=order) as loader:
            before = reads()
            batches = list(loader)
            made = reads() - before
        got = {name: np.concatenate([one[name] for one in batches]) for name in data.schema.names}
        by = np.argsort(got["last"])
        assert all((got[name][by] == expected).all() for name, expected in mixed_arrays(data).items())
        assert order != "no_shuffle" or batch != 200 or made < 4 * columns


def mixed_arrays(data):
    return {name: np.array(data[name].to_pylist()) for name in data.schema.names}


def reads():
    """Return the read calls of this process so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscr")).split()[1])


def test_a_record_batch_is_described_once_for_all_columns(tmp_path, monkeypatch):
    asked, many_of = [], BatchMetadata.many
    monkeypatch.setattr(BatchMetadata, "many", lambda self, of: asked.append(len(of)) or many_of(self, of))
    counts = []
    for columns in (50, 100):
        table = cp.open(wide(tmp_path, "arrow", columns))
        asked.clear()
        rows = np.array([59, 0, 31])
        taken = table._scatter.take(table.schema, rows, table._slices)
        assert taken.column(7).to_pylist() == (rows / 7).tolist()
        assert taken.column("label").to_pylist() == [1, 0, 1]
        counts.append(sum(asked))
    assert counts == [2, 2]


def written(folder, files):
    folder.mkdir()
    for number in range(files):
        rows = pa.table({"x": np.arange(4.0) + number, "label": [0, 1, 0, 1]})
        with pa.ipc.new_file(folder / f"{number:03}.arrow", rows.schema) as writer:
            writer.write_table(rows)
    return folder


def test_a_single_record_batch_is_described_by_one_read(tmp_path, monkeypatch):
    reads, real = [], BatchMetadata._fetch
    monkeypatch.setattr(BatchMetadata, "_fetch", lambda self, some: reads.append(len(some)) or real(self, some))
    table = cp.open(written(tmp_path / "a", 30))
    assert table.layout(["x"]) is not None
    assert table.layout(["x", "label"]) is not None
    assert reads == [1] * 30


def test_a_loader_looks_for_remote_files_once(tmp_path, monkeypatch):
    looks, real = [], remote.files_read
    monkeypatch.setattr(remote, "files_read", lambda table: looks.append(table) or real(table))
    rows = [row for batch in cp.Loader(cp.open(written(tmp_path / "a", 30))) for row in batch["x"].tolist()]
    assert sorted(rows) == sorted(start + x for start in range(30) for x in range(4))
    assert len(looks) == len({id(table) for table in looks}) <= 2


def test_indexes_of_many_files_are_not_flushed_one_by_one(tmp_path, monkeypatch):
    flushed, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(file) or real(file))
    for number in range(20):
        (tmp_path / f"{number:02}.csv").write_text(f"x,label\n{number},1\n{number},0\n")
    table = cp.open(tmp_path)
    rows = table.read(0, 40)
    assert rows.column("x").to_pylist() == [x for x in range(20) for _ in range(2)]
    assert not flushed
    assert len(list(tmp_path.glob("*.corgipile-index.arrow"))) == 20
    (broken := next(iter(tmp_path.glob("*.corgipile-index.arrow")))).write_bytes(b"\0" * 100)  # cut short by a crash
    assert cp.open(tmp_path).read(0, 40).equals(rows)
    assert broken.stat().st_size > 100
