import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadSchema, CorruptFile, MissingFile, UnknownFormat
from corgipile.tables import NumpyTable

DTYPES = ["?", "u1", "i1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8", ">f4", ">i8"]


def save(path, array):
    np.save(path, array)
    return path


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 40),
    shape=st.lists(st.integers(1, 4), max_size=3),
    dtype=st.sampled_from(DTYPES),
    label=st.sampled_from([*DTYPES, None]),
)
@settings(max_examples=80, deadline=None)
def test_agrees_with_numpy(folder, laws, layout_law, seed, rows, shape, dtype, label):
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 100, (rows, *shape)).astype(dtype)
    expected = {"features": expected_column(array)}
    path = save(folder / "x.npy", array)
    labels = None
    if label is not None:
        values = rng.integers(0, 2, rows).astype(label)
        expected["label"] = expected_column(values)
        labels = save(folder / "y.npy", values)
    table = NumpyTable(path, label=labels)
    laws(table, pa.table(expected), rng)
    if all(kind is None or (kind != "?" and not kind.startswith(">")) for kind in (dtype, label)):
        assert table.layout(["features"]).columns["features"].shape == tuple(shape)
        if rows:
            layout_law(table, table.schema.names)
    else:
        assert table.layout(table.schema.names) is None


def expected_column(array):
    kind = pa.from_numpy_dtype(array.dtype.newbyteorder("="))
    for size in reversed(array.shape[1:]):
        kind = pa.list_(kind, size)
    return pa.array(array.tolist(), kind)


def test_manners(tmp_path, manners):
    x = save(tmp_path / "x.npy", np.arange(600, dtype=np.float32).reshape(100, 2, 3))
    y = save(tmp_path / "y.npy", np.arange(100))
    manners(NumpyTable(x, label=y))


def test_later_header_versions(tmp_path):
    array = np.arange(12.0).reshape(4, 3)
    for version in [(1, 0), (2, 0), (3, 0)]:
        with (tmp_path / "x.npy").open("wb") as stream:
            np.lib.format.write_array(stream, array, version)
        assert NumpyTable(tmp_path / "x.npy").read(1, 2).to_pydict() == {"features": [[3.0, 4.0, 5.0]]}


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.asfortranarray(np.ones((3, 4))), BadSchema, r"must be in C order; save np.ascontiguousarray"),
        (
            np.array([{}, {}], dtype=object),
            BadSchema,
            r"must hold rows of bool, integers or floats .*, got object of shape \(2,\)",
        ),
        (np.array(["a"]), BadSchema, "got <U1"),
        (np.ones(3, dtype=complex), BadSchema, "got complex128"),
        (np.zeros(3, dtype=[("a", "i4")]), BadSchema, "must hold rows of bool"),
        (np.array(5.0), BadSchema, r"of shape \(\)"),
        (np.ones((3, 0)), BadSchema, r"rows must have at least one value, got shape \(0,\)"),
    ],
)
def test_arrays_that_do_not_serve(tmp_path, array, error, message):
    with pytest.raises(error, match=message):
        NumpyTable(save(tmp_path / "x.npy", array))


def test_bad_labels(tmp_path):
    x = save(tmp_path / "x.npy", np.ones((3, 4)))
    with pytest.raises(BadArgument, match=r"y.npy must have as many labels as .*x.npy has rows, 3, got 4"):
        NumpyTable(x, label=save(tmp_path / "y.npy", np.ones(4)))
    with pytest.raises(BadSchema, match=r"labels must have one axis, got shape \(3, 2\)"):
        NumpyTable(x, label=save(tmp_path / "y.npy", np.ones((3, 2))))
    with pytest.raises(MissingFile, match=r"no file at .*z.npy"):
        NumpyTable(x, label=tmp_path / "z.npy")


def test_bad_files(tmp_path):
    path = save(tmp_path / "x.npy", np.ones((30, 4)))
    data = path.read_bytes()
    for broken, error, message in [
        (b"", UnknownFormat, "is not a .npy file"),
        (
            data[:500],
            CorruptFile,
            "is truncated: 30 rows of 32 bytes from byte 128 do not fit its 500 bytes",
        ),
        (data[:20], CorruptFile, "does not decode"),
        (data.replace(b"(30, 4)", b"(-3, 4)"), CorruptFile, r"does not decode: shape \(-3, 4\)"),
        (data.replace(b"(30, 4)", b"((((((("), CorruptFile, "does not decode"),
    ]:
        path.write_bytes(broken)
        with pytest.raises(error, match=message):
            NumpyTable(path)


@pytest.mark.parametrize("shape", [(20, 3), (20,)])
def test_damaged_files_never_crash(folder, damage, survives, shape):
    sink = io.BytesIO()
    np.save(sink, np.ones(shape))

    @given(broken=damage(sink.getvalue()))
    @settings(max_examples=200, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / "broken.npy", broken, "numpy")

    check()


def test_one_axis_of_many_numbers_is_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("corgipile.tables.formats.numpy.MIN_TOKENS", 10)
    np.save(tmp_path / "few.npy", np.arange(9))
    np.save(tmp_path / "many.npy", np.arange(10))
    for name in ("few", "many"):
        assert NumpyTable(tmp_path / f"{name}.npy").schema.names == ["features"]
    NumpyTable(tmp_path / "many.npy", label=tmp_path / "many.npy")
    assert [record.message.partition(":")[0] for record in caplog.records] == [f"{tmp_path}/many.npy has one axis"]
