"""Zarr groups written by the library: versions 2 and 3, shards, text."""

import multiprocessing
import pickle

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, CorruptFile, MissingColumn
from corgipile.tables import open as open_table
from corgipile.testing import check_damaged, check_table

zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
ROWS = 230


def write(path, version):
    group = zarr.open_group(path, mode="w", zarr_format=version)
    x = np.arange(ROWS * 6, dtype="f4").reshape(ROWS, 6)
    group.create_array("x", data=x, chunks=(20, 6), **({"shards": (60, 6)} if version == 3 else {}))
    group.create_array("tiles", data=x, chunks=(32, 4))
    group.create_array("label", data=np.arange(ROWS) % 3, chunks=(ROWS,))
    group.create_array("flag", data=np.arange(ROWS) > 9, chunks=(50,))
    text = group.create_array("text", shape=(ROWS,), dtype=str, chunks=(40,))
    text[:] = np.array([f"é{i}" for i in range(ROWS)], "T")
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 6)
    return pa.table(
        {
            "flag": [i > 9 for i in range(ROWS)],
            "label": [i % 3 for i in range(ROWS)],
            "text": [f"é{i}" for i in range(ROWS)],
            "tiles": flat,
            "x": flat,
        }
    )


@pytest.mark.parametrize("version", [2, 3])
def test_manners(tmp_path, version):
    expected = write(tmp_path / "a.zarr", version)
    table = open_table(tmp_path / "a.zarr")
    check_table(table, expected)
    assert table.units(["x"])[0] == 20
    assert cp.convert(tmp_path / "a.zarr", tmp_path / "a.arrow") == ROWS
    assert open_table(tmp_path / "a.arrow").read(0, ROWS).to_pylist() == expected.to_pylist()
    for order in ("riffle", "full"):
        with cp.Loader(table, label="label", features="x", order=order, memory="32KB", batch_size=16) as loader:
            batches = list(loader)
        assert sum(batch["features"].sum() for batch in batches) == np.arange(ROWS * 6).sum()
        assert all((batch["features"][:, 0] // 6 % 3 == batch["label"]).all() for batch in batches)


def test_one_array_and_groups(tmp_path):
    zarr.save_array(tmp_path / "x.zarr", np.eye(5))
    assert open_table(tmp_path / "x.zarr").schema.names == ["x"]
    write(tmp_path / "a.zarr", 3)
    assert open_table(tmp_path / "a.zarr", columns={"y": "label"}).read(0, 4).to_pydict() == {"y": [0, 1, 2, 0]}
    assert open_table(tmp_path / "a.zarr", group="x").schema.names == ["x"]
    with pytest.raises(MissingColumn, match="no group 'z'"):
        open_table(tmp_path / "a.zarr", group="z")
    with pytest.raises(BadArgument, match="AnnData"):
        open_table(tmp_path / "a.zarr", paths=True)


def test_objects_of_the_library(tmp_path):
    write(tmp_path / "a.zarr", 3)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert len(open_table(group)) == ROWS
    assert open_table(group["label"]).schema.names == ["label"]
    with pytest.raises(BadArgument, match="must be in a local folder"):
        open_table(zarr.array(np.eye(2)))


def test_damage_is_told(tmp_path):
    write(tmp_path / "a.zarr", 3)
    table = open_table(tmp_path / "a.zarr")
    chunk = tmp_path / "a.zarr" / "tiles" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:30])
    with pytest.raises(CorruptFile, match=r"a\.zarr"):
        table.read(30, 50, ["tiles"])
    metadata = tmp_path / "a.zarr" / "x" / "zarr.json"
    good = metadata.read_bytes()
    for place in range(0, len(good), 41):
        metadata.write_bytes(good[:place] + b"?" + good[place + 1 :])
        check_damaged(tmp_path / "a.zarr", lambda: open_table(tmp_path / "a.zarr"))


def _in_a_fork(table, queue):
    queue.put(table.read(0, 5).to_pylist())


def test_a_fork_reads_on(tmp_path):
    write(tmp_path / "a.zarr", 3)
    table = open_table(tmp_path / "a.zarr")
    expected = table.read(0, 5).to_pylist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_in_a_fork, args=(pickle.loads(pickle.dumps(table)), queue))  # noqa: S301
    process.start()
    other = context.Process(target=_in_a_fork, args=(table, queue))
    other.start()
    assert queue.get() == queue.get() == expected
    process.join()
    other.join()


@pytest.mark.parametrize("shards", [None, (4,)])
def test_long_texts(tmp_path, shards):
    texts = ["a" * 50_000, "b" * 50_000, "c", "d"]
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("x", shape=(4,), chunks=(2,), shards=shards, dtype=str)[...] = np.array(texts, object)
    assert open_table(tmp_path / "a.zarr").read(0, 4)["x"].to_pylist() == texts
