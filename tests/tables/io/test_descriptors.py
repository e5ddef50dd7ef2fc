"""Many files share few descriptors, and no file is mistaken for another."""

import gc
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import tfrecords

import corgipile as cp
from corgipile.errors import CorruptFile
from corgipile.loader.in_place import few_files
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.descriptors import POOL, Descriptor
from corgipile.tables.io.files import File


def arrow(path, rows):
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows)
    return path


def stream(path, rows):
    with pa.ipc.new_stream(path, rows.schema) as writer:
        writer.write_table(rows)


def open_here():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts


WRITERS = {
    "arrow": arrow,
    "arrows": stream,
    "npy": lambda path, rows: np.save(path, np.stack([rows["n"], rows["label"]], axis=1)),
    "parquet": lambda path, rows: pq.write_table(rows, path),
    "svm": lambda path, rows: path.write_text("".join(f"{n % 2} 1:{n}\n" for n in rows["n"].to_pylist())),
    "tfrecord": lambda path, rows: tfrecords.write(
        path, [tfrecords.example({"n": (3, [n]), "label": (3, [n % 2])}) for n in rows["n"].to_pylist()]
    ),
    "lz4.arrow": lambda path, rows: pa.feather.write_feather(rows, path, compression="lz4"),
}

SCRIPT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
import numpy as np, corgipile as cp
from corgipile.torch import CorgiPileDataset
from torch.utils.data import DataLoader
import torch.multiprocessing
folder, rows = sys.argv[1], int(sys.argv[3])
table = cp.open(folder)
assert len(table) == rows, len(table)

def numbers(batch):
    for name in ("n", "features", "features_v"):
        if name in batch:
            column = batch[name]
            if isinstance(column, np.ndarray) and column.dtype == object or isinstance(column, list):
                return [int(row[0]) for row in column]
            return (column[:, 0] if column.ndim == 2 else column).tolist()

for order in ("riffle", "corgipile", "full", "no_shuffle", "reservoir", "balanced"):
    if order == "balanced" and "label" not in table.schema.names:
        continue
    loader = cp.Loader(table, batch_size=64, order=order)
    for _ in range(2):
        seen = sorted(n for batch in loader for n in numbers(batch))
        assert seen == list(range(rows)), (order, len(seen), seen[:5])
one = next(iter(cp.Loader(table, batch_size=64)))
dataset = CorgiPileDataset(folder, batch_size=64)
for workers in (0, 2):
    seen = sorted(int(n) for batch in DataLoader(dataset, batch_size=None, num_workers=workers) for n in numbers(batch))
    assert seen == list(range(rows)), (workers, len(seen))
cp.convert(folder, folder + ".out.arrow")
assert len(cp.open(folder + ".out.arrow")) == rows
cp.reshuffle(folder, folder + ".mixed.arrow", memory="8MB")
assert len(cp.open(folder + ".mixed.arrow")) == rows
if "label" in table.schema.names:
    cp.train(table, label="label", epochs=1)
print("fine", len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize(("kind", "limit", "files"), [("arrow", 96, 100), ("parquet", 96, 100)])
def test_more_files_than_descriptors(tmp_path, kind, limit, files):
    folder = tmp_path / "t"
    folder.mkdir()
    for i in range(files):
        n = np.arange(5) + 5 * i
        WRITERS[kind](folder / f"{i:04}.{kind}", pa.table({"n": n, "label": n % 2}))
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(folder), str(limit), str(5 * files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.startswith("fine"), done.stderr


def few(monkeypatch, most):
    monkeypatch.setattr(type(POOL), "room", property(lambda pool: most))
    for slot in list(POOL._idle.values()):
        POOL.close(slot)


@pytest.mark.parametrize("order", ["riffle", "full", "no_shuffle", "reservoir"])
def test_a_pass_over_more_files_than_may_be_open_is_the_same(tmp_path, monkeypatch, order):
    for i in range(40):
        n = np.arange(i % 7) + 10 * i
        np.save(tmp_path / f"x{i:02}.npy", n)
        np.save(tmp_path / f"y{i:02}.npy", -n)
    table = cp.open(f"{tmp_path}/x*.npy", label=sorted(tmp_path.glob("y*.npy")))
    expected = list(cp.Loader(table, batch_size=16, order=order, memory="4KB", seed=3))
    few(monkeypatch, 8)
    before = open_here()
    loader = cp.Loader(table, batch_size=16, order=order, memory="4KB", seed=3)
    for mine, theirs in zip(loader, expected, strict=True):
        assert open_here() <= before + 8
        assert (mine["features"] == theirs["features"]).all()
        assert (mine["label"] == -mine["features"]).all()


def test_loaders_leave_nothing_open(tmp_path):
    path = arrow(tmp_path / "a.arrow", pa.table({"n": np.arange(100)}))
    before = open_here()
    for _ in range(20):
        assert len(list(cp.Loader(path, batch_size=10))) == 10
        next(iter(cp.Loader(path, batch_size=10, prefetch=0)))
    gc.collect()
    assert open_here() <= before
    kept = [cp.Loader(cp.open(path), batch_size=10) for _ in range(20)]
    assert open_here() <= before + 20  # of the tables; loaders open no file before they read
    assert all(len(list(loader)) == 10 for loader in kept)
    del kept
    gc.collect()
    assert open_here() <= before


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_a_file_that_was_replaced_is_an_error(tmp_path, monkeypatch, kind):
    n = np.arange(50)
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in paths:
        WRITERS[kind](path, pa.table({"n": n, "label": n % 2}))
    table = cp.open(paths)
    first = cp.open(paths[0]).read(0, 50).to_pylist()  # `table` itself would cache what it decoded
    few(monkeypatch, 1)
    WRITERS[kind](tmp_path / f"new.{kind}", pa.table({"n": n + 100, "label": n % 2}))
    status = paths[0].stat()
    os.utime(tmp_path / f"new.{kind}", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / f"new.{kind}").replace(paths[0])
    few(monkeypatch, 1)
    with pytest.raises(CorruptFile, match="was changed or replaced since it was opened"):
        list(cp.Loader(table, batch_size=10, order="no_shuffle"))
    with pytest.raises(CorruptFile, match="was changed or replaced since it was opened"):
        table.read(0, 40)
    assert cp.open(paths[0]).read(0, 50).to_pylist() != first  # reopened, it is the new file


def test_a_descriptor_is_reopened_where_it_was_closed(tmp_path, monkeypatch):
    paths = [tmp_path / str(i) for i in range(20)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 10)
    few(monkeypatch, 3)
    files = [File(path) for path in paths]
    before = POOL.opened
    for _ in range(3):
        assert [file.read(2, 1)[0] for file in files] == list(range(20))
        assert POOL.opened <= max(3, before)
    with files[0]._descriptor.open() as fd:
        for file in files[1:]:
            file.read(0, 1)
        assert os.pread(fd, 1, 0) == b"\0"  # files being read stay open
    again = Descriptor(str(paths[5]), files[5].which)
    paths[5].unlink()
    few(monkeypatch, 3)
    with pytest.raises(FileNotFoundError):
        again.pin()


def test_descriptors_that_others_hold_are_no_reason_to_fail(tmp_path):
    """If the user's files reach the limit, pooled files are closed."""
    paths = [tmp_path / str(i) for i in range(30)]
    for path in paths:
        path.write_bytes(b"x")
    script = (
        "import resource, sys, os; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from corgipile.tables.io.files import File\n"
        "files = [File(path) for path in sys.argv[1:21]]\n"
        "mine = []\n"
        "try:\n"
        "    while True: mine.append(open(sys.argv[1]))\n"
        "except OSError: pass\n"
        "print(len([File(path) for path in sys.argv[21:]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "10\n", done.stderr


def test_runs_are_divided_by_files(tmp_path):
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.arange(i, dtype=np.int32) + 100 * i)
    table = cp.open(tmp_path)
    layout = table.layout(["features"])
    expected = PlacedColumn(layout, "features").read(0, len(table))
    rng = np.random.default_rng(0)
    for _ in range(50):
        starts = rng.integers(0, len(table), 6)
        extents = np.stack([starts, np.minimum(starts + rng.integers(1, 40, 6), len(table))], axis=1)
        total = int((extents[:, 1] - extents[:, 0]).sum())
        into = rng.permutation(total).astype(np.int32)
        most = int(rng.integers(1, 6))
        got = np.full(total, -1)
        for files, runs, slots in few_files(layout, extents, into, most):
            assert len(files) <= most
            rows = np.concatenate([np.arange(*run) for run in runs.tolist()])
            got[slots] = expected[rows]
        assert (got[into] == np.concatenate([expected[start:stop] for start, stop in extents.tolist()])).all()


def test_descriptors_survive_a_fork(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    descriptor = Descriptor(str(path))
    child = os.fork()
    if not child:
        with descriptor.open() as fd:
            os._exit(0 if os.pread(fd, 3, 0) == b"abc" else 1)
    assert os.waitpid(child, 0)[1] == 0
