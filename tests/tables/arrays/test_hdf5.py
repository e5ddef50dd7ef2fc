"""HDF5 tables of files written by h5py, in every layout and with every filter."""

import multiprocessing
import pickle
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.description import about
from corgipile.errors import (
    BadArgument,
    BadSchema,
    BadValue,
    CorgiPileError,
    CorruptFile,
    MissingColumn,
    MissingFile,
    UnknownFormat,
)
from corgipile.tables import open as open_table
from corgipile.testing import check_damaged, check_table

h5py = pytest.importorskip("h5py")
ROWS = 97
KINDS = ("f4", "f8", "f2", "i1", "i8", "u2", ">f4", ">i4", "?")
WAYS = [
    {},
    {"chunks": (7,)},
    {"chunks": (7,), "compression": "gzip"},
    {"chunks": (10,), "compression": "gzip", "shuffle": True},
    {"chunks": (5,), "compression": "lzf"},
    {"chunks": (200,), "compression": "gzip", "fletcher32": True},
]


def write(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


@given(
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from([(), (3,), (2, 2)]),
    way=st.sampled_from(WAYS),
    tile=st.booleans(),
    rows=st.integers(0, 40),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_agrees_with_what_was_written(folder, laws, kind, shape, way, tile, rows, seed):
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((rows, *shape)) * 50).astype(kind)
    way = {**way, "chunks": (*way["chunks"], *(max(1, size - tile) for size in shape))} if "chunks" in way else way
    way = {**way, "maxshape": (None, *shape)} if way else way
    with h5py.File(folder / "law.h5", "w", libver=["earliest", "latest"][seed % 2]) as file:
        file.create_dataset("x", data=values, **way)
        file.create_dataset("y", data=np.arange(rows))
    expected = pa.array(values.astype(values.dtype.newbyteorder("=")).reshape(-1))
    for size in reversed(shape):
        expected = pa.FixedSizeListArray.from_arrays(expected, size)
    laws(open_table(folder / "law.h5"), pa.table({"x": expected, "y": np.arange(rows)}), rng)


def everything(path):
    structures = np.array([(i, i / 2, b"t%d" % i) for i in range(ROWS)], [("p", "i4"), ("q", "f8"), ("r", "S5")])
    with h5py.File(path, "w") as file:
        file["b"] = np.arange(ROWS) % 3 == 0
        file.create_dataset("c", data=structures, chunks=(9,), compression="gzip")
        file["f"] = np.array([b"a%d" % i for i in range(ROWS)])
        lists = file.create_dataset("l", (ROWS,), h5py.vlen_dtype(np.int32))
        for i in range(ROWS):
            lists[i] = np.arange(i % 4)
        sparse = file.create_dataset("n", (ROWS,), "i4", chunks=(10,), fillvalue=-7)
        sparse[40:45] = 3  # one chunk of ten is written
        file["s"] = [f"né{i}" for i in range(ROWS)]
        file["scalar"] = 3
        file["x"] = np.arange(ROWS * 4, dtype="f4").reshape(ROWS, 4)
    return pa.table(
        {
            "b": [i % 3 == 0 for i in range(ROWS)],
            "c.p": pa.array(range(ROWS), pa.int32()),
            "c.q": [i / 2 for i in range(ROWS)],
            "c.r": [f"t{i}" for i in range(ROWS)],
            "f": [f"a{i}" for i in range(ROWS)],
            "l": pa.array([list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int32())),
            "n": pa.array([3 if 40 <= i < 45 else -7 for i in range(ROWS)], pa.int32()),
            "s": [f"né{i}" for i in range(ROWS)],
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4, dtype="f4")), 4),
        }
    )


def test_manners(tmp_path):
    expected = everything(tmp_path / "a.h5")
    table = open_table(tmp_path / "a.h5")
    check_table(table, expected)
    assert table.layout(["x"]) is not None
    assert cp.convert(tmp_path / "a.h5", tmp_path / "a.arrow") == ROWS
    assert open_table(tmp_path / "a.arrow").read(0, ROWS).to_pylist() == expected.to_pylist()
    whole = open_table([tmp_path / "a.h5", tmp_path / "a.h5"])
    assert whole.take([ROWS, 0]).to_pylist() == [expected.to_pylist()[0]] * 2


def test_every_order_gives_every_row_once(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(3000.0).reshape(300, 10), chunks=(16, 10), compression="gzip")
        file.create_dataset("label", data=np.arange(300), chunks=(100,), compression="gzip")
    for order in ("riffle", "full", "corgipile", "no_shuffle", cp.orders.Riffle(balance="label")):
        for spill in (None, "off"):
            table = open_table(tmp_path / "a.h5", spill=spill)
            with cp.Loader(table, batch_size=16, order=order, memory="64KB") as loader:
                batches = list(loader)
            assert sorted(np.concatenate([batch["label"] for batch in batches]).tolist()) == list(range(300))
            assert all((batch["x"][:, 0] == 10 * batch["label"]).all() for batch in batches)


def test_a_large_chunk_of_a_narrow_column_is_unpacked_once(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((100_000, 20), "i1"), chunks=(100, 20), compression="gzip")
        file.create_dataset("label", data=np.arange(100_000), chunks=(100_000,), compression="gzip")
    table = open_table(tmp_path / "a.h5")
    units = table.units(["x", "label"])
    assert (units.rows, units.pieces) == (100, 1000)
    for spill in (None, "off"):
        table = open_table(tmp_path / "a.h5", spill=spill)
        assert table.read(70_000, 70_003).column(0).to_pylist() == [70_000, 70_001, 70_002]
        assert table.take([99_999, 5]).column("label").to_pylist() == [99_999, 5]


def test_groups_and_names(tmp_path):
    arrays = {"train/x": np.eye(4), "train/y": np.arange(4), "test/x": np.eye(3), "test/y": np.arange(3)}
    path = write(tmp_path / "a.h5", **arrays)
    with pytest.raises(
        BadSchema,
        match=r"a.h5: the columns of a table must have equal lengths.*3 rows: 'test/x', 'test/y'; 4 rows.*columns=\['",
    ):
        open_table(path)
    assert open_table(path, group="train").schema.names == ["x", "y"]
    assert open_table(path, group="/train/x/").schema.names == ["x"]
    named = open_table(path, columns={"features": "train/x", "label": "train/y"})
    assert named.read(1, 2).to_pylist() == [{"features": [0, 1, 0, 0], "label": 1}]
    assert pickle.loads(pickle.dumps(named)).schema.names == ["features", "label"]  # noqa: S301
    assert len(open_table(path, columns=["test/x"])) == 3
    for wrong, error, match in (
        ({"group": "trian"}, MissingColumn, "no group 'trian'; it has 'test', 'train'"),
        ({"columns": ["train/z"]}, MissingColumn, "no array 'train/z' with rows; it has"),
        ({"columns": "train/x"}, BadArgument, "columns must be a list"),
        ({"columns": ["train/x", "train/x"]}, BadArgument, "must not have a name twice"),
        ({"paths": True}, BadArgument, "applies only to AnnData"),
        ({"delimiter": ";"}, BadArgument, "delimiter does not apply"),
    ):
        with pytest.raises(error, match=match):
            open_table(path, **wrong)


def test_what_is_no_table(tmp_path):
    with pytest.raises(BadSchema, match="must have an array with rows"):
        open_table(write(tmp_path / "a.h5", scalar=3))
    with pytest.raises(BadSchema, match=r"dataset '/z' must be .*, got complex128"):
        open_table(write(tmp_path / "b.h5", x=np.eye(2), z=np.ones(2, complex)))
    with pytest.raises(BadSchema, match="rows must not be empty"):
        open_table(write(tmp_path / "c.h5", x=np.ones((3, 0))))
    table = open_table(write(tmp_path / "d.h5", x=np.array([b"\xff", b"a"])))
    with pytest.raises(BadValue, match="must be UTF-8 text"):
        table.read(0, 2)
    (tmp_path / "e.h5").write_bytes(b"no HDF5 at all")
    with pytest.raises(UnknownFormat, match="begins with"):
        open_table(tmp_path / "e.h5")
    assert "compressed in chunks" not in (about(tmp_path / "d.h5").advice or "")


def test_the_user_block_and_views_of_other_files(tmp_path):
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file["x"] = np.arange(20)
    assert open_table(tmp_path / "a.mat", format="hdf5").take([7]).to_pydict() == {"x": [7]}
    write(tmp_path / "b.h5", x=np.arange(20))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        virtual = h5py.VirtualLayout((20,), "i8")
        virtual[:] = h5py.VirtualSource(tmp_path / "b.h5", "x", (20,))
        file.create_virtual_dataset("x", virtual)
    assert open_table(tmp_path / "v.h5").take([7]).to_pydict() == {"x": [7]}
    (tmp_path / "b.h5").unlink()
    with pytest.raises(MissingFile, match=r"dataset '/x' has rows in .*b\.h5, which does not exist"):
        open_table(tmp_path / "v.h5")


def test_links(tmp_path):
    write(tmp_path / "b.h5", x=np.arange(20))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"] = np.arange(20)
        file["soft"], file["gone"] = h5py.SoftLink("/y"), h5py.SoftLink("/z")
    assert open_table(tmp_path / "a.h5").schema.names == ["soft", "y"]
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["x"] = h5py.ExternalLink("b.h5", "/x")
    with pytest.raises(BadSchema, match=r"'x' links to '/x' in another file, 'b\.h5'"):
        open_table(tmp_path / "a.h5")
    assert open_table(tmp_path / "a.h5", columns=["y"]).schema.names == ["y"]


@pytest.mark.parametrize("soft", [False, True])
def test_a_link_to_a_group_above_is_refused(tmp_path, soft):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"], file["g/z"] = np.arange(3), np.arange(3)
        file["g/h/up"] = h5py.SoftLink("/g") if soft else file["g"]
    with pytest.raises(BadSchema, match="'g/h/up' links to a group that contains it"):
        open_table(tmp_path / "a.h5")
    assert open_table(tmp_path / "a.h5", columns=["y", "g/z"]).schema.names == ["y", "g/z"]


def test_links_that_double_the_groups_at_each_level_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.tables.arrays.tree.MAX_GROUPS", 500)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["0/x"] = np.arange(3)
        for level in range(1, 12):
            file[f"{level}/a"] = file[f"{level}/b"] = file[f"{level - 1}"]
    with pytest.raises(BadSchema, match="at most 500 groups"):
        open_table(tmp_path / "a.h5", group="11")


def test_compression_is_said(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((1000, 4)), chunks=(100, 4), compression="gzip")
    assert "chunks of up to 100 rows" in about(tmp_path / "a.h5").advice
    assert "`corgipile convert`" in about(tmp_path / "a.h5").advice
    assert open_table(tmp_path / "a.h5").cuts(150).tolist() == [0, 200, 400, 600, 800, 1000]


def test_a_thousand_files_need_few_descriptors(tmp_path):
    for i in range(100):
        write(tmp_path / f"{i:03}.h5", x=np.arange(2), s=["a", "b"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())  # other tests have files open
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, hard))
    try:
        table = open_table(tmp_path)
        assert table.read(0, 200).num_rows == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _in_a_fork(table, queue):
    queue.put(table.read(0, 5, ["s", "x"]).to_pylist())


def test_a_fork_reads_texts(tmp_path):
    everything(tmp_path / "a.h5")
    table = open_table(tmp_path / "a.h5")
    expected = table.read(0, 5, ["s", "x"]).to_pylist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    processes = [context.Process(target=_in_a_fork, args=(table, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [queue.get() for _ in processes] == [expected] * 2
    for process in processes:
        process.join()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_truncated_and_changed_files(tmp_path, libver):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(100,), compression="gzip")
        file["y"] = np.arange(1000)
    good = path.read_bytes()
    for size in (100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(CorruptFile, match=r"a\.h5"):
            open_table(path)
    path.write_bytes(good)
    table = open_table(path)
    path.write_bytes(good[:500])
    with pytest.raises(CorruptFile, match=r"it had [0-9]+ when opened"):
        table.read(0, 1000)


def test_texts_of_any_length(tmp_path, monkeypatch):
    texts = ["x" * (i * 37 % 5000) + "é" for i in range(300)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("plain", data=texts)
        file.create_dataset("packed", data=texts, chunks=(50,), compression="gzip")
        file.create_dataset("unset", (300,), h5py.string_dtype(), chunks=(50,))
    table = open_table(tmp_path / "a.h5")
    monkeypatch.setattr(h5py, "File", lambda *_, **__: pytest.fail("the library was asked"))
    empty = [""] * 300
    assert table.read(0, 300).to_pydict() == {"packed": texts, "plain": texts, "unset": empty}
    assert table.take([299, 7], ["plain"]).to_pydict() == {"plain": [texts[299], texts[7]]}


def test_damaged_texts(tmp_path):
    path = write(tmp_path / "a.h5", s=[f"text {i}" for i in range(50)])
    good = path.read_bytes()
    heap = good.index(b"GCOL")
    for place in range(heap, heap + 400, 9):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        check_damaged(path, lambda: open_table(path))


def _survive(path, data, results):
    """Read damaged copies in a child process; return how far it got."""
    for place in range(0, len(data), 173):
        broken = bytearray(data)
        broken[place] ^= 1 << place % 8
        path.write_bytes(broken)
        results.put(place)
        check_damaged(path, lambda: open_table(path))
    results.put("all")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_bits_of_metadata_flipped(tmp_path, libver):
    with h5py.File(tmp_path / "good.h5", "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(60), chunks=(20,), compression="gzip", shuffle=True)
        file.create_dataset("s", data=["a"] * 60)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=_survive, args=(tmp_path / "bad.h5", (tmp_path / "good.h5").read_bytes(), results))
    process.start()
    last = None
    while process.is_alive() or not results.empty():
        if results.empty():
            process.join(0.01)
        else:
            last = results.get()
    assert last == "all", f"it ended at byte {last}, {process.exitcode}"


def test_damaged_chunks(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "x", data=np.random.default_rng(0).integers(0, 9, 1000), chunks=(1000,), compression=4
        )
        place = data.id.get_chunk_info(0)
    broken = bytearray(path.read_bytes())
    broken[place.byte_offset : place.byte_offset + 8] = bytes(8)
    path.write_bytes(broken)
    with pytest.raises(CorruptFile, match=r"a.h5: chunk \(0,\) of /x does not decode"):
        open_table(path).read(0, 10)


def test_objects_of_the_library(tmp_path):
    path = write(tmp_path / "a.h5", **{"g/x": np.arange(5), "y": np.arange(3)})
    with h5py.File(path, "r") as file:
        assert open_table(file["g"]).read(0, 2).to_pydict() == {"x": [0, 1]}
        assert open_table(file["y"]).read(1, 2).to_pydict() == {"y": [1]}
        with pytest.raises(CorgiPileError, match="equal lengths"):
            open_table(file)
