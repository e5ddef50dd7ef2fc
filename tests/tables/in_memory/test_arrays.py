"""Tables of arrays: not copied, copied correctly, or rejected by name."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema
from corgipile.testing import check_table


def address(table, name):
    return int(table.location([name]).layout.columns[name].offsets[0])


def rows_of(table, name):
    return table.read(0, len(table), [name]).column(0).to_pylist()


def test_a_matrix_is_features_where_it_lies():
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    table = cp.open(x)
    check_table(table, pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4)}))
    assert address(table, "features") == x.ctypes.data
    assert address(cp.open(x[2:]), "features") == x[2:].ctypes.data
    assert address(table.slice(3), "features") == x[3:].ctypes.data
    images = np.arange(48, dtype=np.uint8).reshape(2, 2, 3, 4)
    with cp.Loader(images, batch_size=2, order="no_shuffle") as loader:
        assert np.array_equal(next(iter(loader))["features"], images)


def test_labels_beside():
    x, y = np.arange(10.0).reshape(5, 2), np.array([0, 1, 0, 1, 1])
    table = cp.open((x, y))
    assert table.schema.names == ["features", "label"]
    assert (address(table, "features"), address(table, "label")) == (x.ctypes.data, y.ctypes.data)
    assert rows_of(cp.open((x, ["a", "b", "a", "b", "b"])), "label") == ["a", "b", "a", "b", "b"]
    assert cp.train((x, y), epochs=1).width == 2
    with pytest.raises(BadArgument, match="got 4 for 5 rows"):
        cp.open((x, y[:4]))
    pd = pytest.importorskip("pandas")
    with pytest.raises(BadArgument, match="labels must not be passed for rows with a column 'label'"):
        cp.open((pd.DataFrame({"label": [1]}), [1]))
    assert len(cp.open([x, x])) == len(cp.open((x, x))) == 10  # tables
    frame = pd.DataFrame({"x": y, "z": y})
    for labels in (y.reshape(5, 1), pd.DataFrame({"y": y}), pd.Series(y), y.tolist()):
        for rows in (x, frame):
            assert rows_of(cp.open((rows, labels)), "label") == y.tolist()
    with pytest.raises(BadSchema, match="column 'features' is"):
        cp.open((x, np.zeros((5, 3))))


def test_columns_of_a_dictionary():
    x, y = np.zeros((4, 2, 3), np.int16), np.arange(4)
    columns = {
        "x": x,
        "y": y,
        "t": ["a", None, "b", "c"],
        "arrow": pa.array([1.5, 2, 3, 4]),
        "ragged": [[1], [], [2, 3], [4]],
    }
    table = cp.open(columns)
    assert table.schema.names == list(columns)
    assert (address(table, "x"), address(table, "y")) == (x.ctypes.data, y.ctypes.data)
    assert rows_of(table, "t") == ["a", None, "b", "c"]
    assert rows_of(table, "ragged") == [[1], [], [2, 3], [4]]
    with pytest.raises(BadArgument, match="'x' has 2, 'y' has 3"):
        cp.open({"x": [1, 2], "y": [1, 2, 3]})
    with pytest.raises(BadArgument, match="must have at least one, got none"):
        cp.open({})
    with pytest.raises(BadArgument, match="names of columns must be text, got 1"):
        cp.open({1: [1]})
    for wrong in (5, "text", np.float32(3), np.array(3)):
        with pytest.raises(BadArgument, match="column 'x' must be an array or a list"):
            cp.open({"x": wrong})


def test_what_must_be_copied_is_copied_right():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = x.tolist()
    for odd in (
        np.asfortranarray(x),
        x.astype(">f4"),
        np.repeat(x, 2, axis=1)[:, ::2],
        x.view(np.ma.MaskedArray),
    ):
        assert rows_of(cp.open({"x": odd}), "x") == expected
    assert rows_of(cp.open({"x": x[::-1, 0]}), "x") == [8, 4, 0]
    assert rows_of(cp.open({"x": np.arange(4, dtype=">i8")}), "x") == [0, 1, 2, 3]
    assert rows_of(cp.open({"x": np.array([[True, False], [True, True]])}), "x") == [[True, False], [True, True]]
    assert rows_of(cp.open({"x": np.broadcast_to(np.float64(3), (2, 2))}), "x") == [[3, 3], [3, 3]]


def test_masks_are_nulls_and_nans_are_themselves():
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert rows_of(cp.open({"x": masked}), "x") == [[1, None], [3, 4]]
    assert rows_of(cp.open({"x": np.ma.array(["a", "b"], mask=[1, 0])}), "x") == [None, "b"]
    found = cp.open({"x": np.array([1.0, np.nan])})
    assert found.read(0, 2).column(0).null_count == 0
    assert np.isnan(rows_of(found, "x")[1])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array(["2020-01-02", "NaT"], "M8[D]"), [dt.date(2020, 1, 2), None]),
        (np.array(["2020-01-02T03:04"], "M8[m]"), [dt.datetime(2020, 1, 2, 3, 4)]),  # noqa: DTZ001
        (np.array(["2020-01"], "M8[M]"), [dt.date(2020, 1, 1)]),
        (np.array([90], "m8[m]"), [dt.timedelta(minutes=90)]),
        (np.array([2], "m8[D]"), [dt.timedelta(days=2)]),
        (np.array([1500], ">m8[ms]"), [dt.timedelta(milliseconds=1500)]),
        (np.array([["2020-01-02"], ["2020-01-03"]], "M8[D]"), [[dt.date(2020, 1, 2)], [dt.date(2020, 1, 3)]]),
        (np.array(["ä", "bcd"]), ["ä", "bcd"]),
        (np.array([b"a", b"bcd"]), [b"a", b"bcd"]),
        (np.array(["x", None, "yz"], object), ["x", None, "yz"]),
        (np.array([[1, 2], [3, 4]], object), [[1, 2], [3, 4]]),
        (np.array([1.5], np.float16), [1.5]),
        (
            np.array([(1, (2.5, 3))], [("a", "i4"), ("b", [("c", "f4"), ("d", ">i2")])]),
            [{"a": 1, "b": {"c": 2.5, "d": 3}}],
        ),
    ],
)
def test_kinds_of_values(values, expected):
    assert rows_of(cp.open({"x": values}), "x") == expected


def test_nan_among_objects_is_null():
    inner = np.empty(2, object)
    inner[:] = [np.array([1.0, np.nan]), np.nan]
    columns = {"t": np.array(["u", np.nan], object), "listed": [np.nan, b"v"], "inner": inner}
    table = cp.open(columns | {"numbers": [1.5, np.nan]})
    assert rows_of(table, "t") == ["u", None]
    assert rows_of(table, "listed") == [None, b"v"]
    assert str(rows_of(table, "inner")) == "[[1.0, nan], None]"
    assert np.isnan(rows_of(table, "numbers")[1])
    assert cp.open(np.array([[1.5, np.nan]], object)).read(0, 1).column(0).flatten().null_count == 0


def test_structured_arrays_are_columns():
    array = np.array([(1, [0.5, 1.5], b"a"), (2, [2.5, 3.5], b"b")], [("id", ">i4"), ("x", "f8", 2), ("tag", "S1")])
    table = cp.open(array)
    x = pa.array([[0.5, 1.5], [2.5, 3.5]], pa.list_(pa.float64(), 2))
    check_table(table, pa.table({"id": pa.array([1, 2], pa.int32()), "x": x, "tag": [b"a", b"b"]}))
    assert cp.open(array.view(np.recarray)).fingerprint == table.fingerprint
    with pytest.raises(BadSchema, match="must have one axis"):
        cp.open(array.reshape(1, 2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 2), complex), "column 'features' must be .*, got complex128"),
        (np.zeros((2, 2), np.longdouble), "column 'features' must be .*, got float128"),
        (np.zeros(3), r"an array of features must have two axes or more, got shape \(3,\)"),
        (np.array(3), r"got shape \(\)"),
        (np.zeros((3, 0)), r"rows must not be empty, got shape \(0,\)"),
        (np.zeros((2, 2), "V8"), "column 'features' must be numbers"),
        (np.array([[1], ["a"]], object), "the values of column 'features' must have one Arrow type"),
        (np.array([[None]], object), "column 'features' must have a value that is not null"),
        (np.array([[1]], "m8"), "must have a fixed unit of time"),
    ],
)
def test_what_is_no_column(values, message):
    with pytest.raises(BadSchema, match=message):
        cp.open(values)


def test_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(3, 2)
    table = cp.open((x, torch.tensor([0, 1, 1])))
    assert address(table, "features") == x.data_ptr()
    assert rows_of(table, "label") == [0, 1, 1]
    with pytest.raises(BadArgument, match="NumPy cannot convert this Tensor"):
        cp.open(x.requires_grad_())


def test_options_are_for_files():
    with pytest.raises(BadArgument, match="label applies only to files, not to ndarray"):
        cp.open(np.zeros((2, 2)), label="y.npy")


def test_no_rows():
    assert len(cp.open(np.zeros((0, 3)))) == 0
    assert len(cp.open({"x": np.zeros(0)})) == 0


def test_convert_takes_what_open_takes(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    assert cp.convert((x, [0, 1, 1]), tmp_path / "a.arrow") == 3
    assert rows_of(cp.open(tmp_path / "a.arrow"), "features") == x.tolist()
    with pytest.raises(BadArgument, match=r"source must be .*, got int"):
        cp.convert(5, tmp_path / "b.arrow")


@pytest.mark.parametrize("kind", [list, tuple])
def test_rows_that_are_dictionaries(kind):
    rows = kind([{"x": 1.0, "label": 0}, {"label": 1, "tags": ["a"], "s": {"u": 2}}])
    assert cp.open(rows).read(0, 2).to_pylist() == [
        {"x": 1.0, "label": 0, "tags": None, "s": None},
        {"x": None, "label": 1, "tags": ["a"], "s": {"u": 2}},
    ]
    assert len(cp.open([{"x": [1, 2]}, {"x": [3]}])) == 3  # tables
