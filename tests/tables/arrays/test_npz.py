"""NumPy archives written by NumPy and SciPy, compressed or not."""

import io
import os
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, CorruptFile, MissingColumn, UnknownFormat
from corgipile.tables import open as open_table
from corgipile.testing import check_layout, check_table


@given(
    kind=st.sampled_from(["f4", "f2", "i8", "u1", ">f8", "?"]),
    rows=st.integers(0, 30),
    packed=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=30, deadline=None)
def test_agrees_with_what_was_written(folder, laws, kind, rows, packed, seed):
    rng = np.random.default_rng(seed)
    values, label = (rng.standard_normal((rows, 3)) * 9).astype(kind), np.array([f"é{i}" for i in range(rows)], "U4")
    (np.savez_compressed if packed else np.savez)(folder / "law.npz", x=values, y=label, n=np.arange(rows))
    os.utime(folder / "law.npz", ns=(seed, seed))
    flat = pa.array(values.astype(values.dtype.newbyteorder("=")).reshape(-1))
    columns = {"x": pa.FixedSizeListArray.from_arrays(flat, 3), "y": pa.array(label.tolist(), pa.string())}
    laws(open_table(folder / "law.npz"), pa.table({**columns, "n": np.arange(rows)}), rng)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_manners(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, X=np.arange(60.0).reshape(20, 3), y=np.arange(20) % 2)
    table = open_table(path)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(60.0)), 3)
    check_table(table, pa.table({"X": flat, "y": np.arange(20) % 2}))
    check_layout(table, ["X", "y"])
    with cp.Loader(path, label="y", batch_size=8) as loader:
        batches = list(loader)
    assert sum(batch["features"].sum() for batch in batches) == np.arange(60).sum()
    assert cp.train(path, label="y", epochs=1).features == ("X",)
    assert cp.convert(path, tmp_path / "a.arrow") == 20
    assert open_table(tmp_path / "a.arrow").read(0, 20).to_pylist() == table.read(0, 20).to_pylist()


def test_arrays_of_different_lengths(tmp_path):
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=np.eye(4), y_train=np.arange(4), x_test=np.eye(3), y_test=np.arange(3), n=7)
    with pytest.raises(BadSchema, match="4 rows: 'x_train', 'y_train'; 3 rows: 'x_test'"):
        open_table(path)
    assert open_table(path, columns={"x": "x_test", "label": "y_test"}).read(2, 3).to_pydict()["label"] == [2]
    with pytest.raises(MissingColumn, match="no array 'x_tset'"):
        open_table(path, columns=["x_tset"])


def test_sparse_matrices(tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(40, 30, 0.2, "csr", np.float32, random_state=0)
    for packed in (True, False):
        sparse.save_npz(tmp_path / "a.npz", matrix, compressed=packed)
        table = open_table(tmp_path / "a.npz")
        assert table.schema.names == ["features_k", "features_v"]
        with cp.Loader(table, features="features", order="no_shuffle", batch_size=7) as loader:
            dense = np.concatenate([batch["features"] for batch in loader])
        assert np.array_equal(dense, matrix.toarray())
    sparse.save_npz(tmp_path / "b.npz", matrix.tocsc())
    with pytest.raises(BadSchema, match=r"must be stored as 'csr', got 'csc'.*tocsr\(\)"):
        open_table(tmp_path / "b.npz")


def test_what_is_no_archive_of_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(UnknownFormat, match=r"'a.txt' in it, which is not an array"):
        open_table(tmp_path / "a.zip")
    np.savez(tmp_path / "f.npz", x=np.asfortranarray(np.ones((3, 2))))
    with pytest.raises(BadSchema, match=r"f\.npz: array 'x' must be in C order"):
        open_table(tmp_path / "f.npz")
    np.savez(tmp_path / "o.npz", x=np.array([{}], object))
    with pytest.raises(BadSchema, match="got object"):
        open_table(tmp_path / "o.npz")
    np.savez_compressed(tmp_path / "c.npz", x=np.arange(9))
    with pytest.raises(BadArgument, match=r"spill files are off.*np.savez"):
        open_table(tmp_path / "c.npz", spill="off")


def test_damage(tmp_path):
    path = tmp_path / "a.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, x=np.arange(1000))
        good = path.read_bytes()
        path.write_bytes(good[:-30])
        with pytest.raises(CorruptFile, match=r"a\.npz"):
            open_table(path)
    broken = bytearray(good)
    broken[len(good) // 2] ^= 255
    path.write_bytes(broken)
    with pytest.raises(CorruptFile, match=r"a\.npz"):
        open_table(path).read(0, 1000)
    data = io.BytesIO()
    np.save(data, np.arange(1000))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data.getvalue()[:-8])
    with pytest.raises(CorruptFile, match="must have 8128 bytes, got 8120"):
        open_table(path)
