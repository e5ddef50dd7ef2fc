"""Columns converted to other types: every value stays the same number, or is refused."""

import decimal
import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadSchema, BadValue, MissingColumn, ParseError

NUMBERS = [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()]


def converted(tmp_path, rows, types, out="o.arrow", **how):
    path = tmp_path / out
    cp.convert(rows, path, types=types, overwrite=True, **how)
    return cp.open(path)


@given(data=some.data())
def test_a_number_stays_the_same_or_is_refused(tmp_path_factory, data):
    source, kind = data.draw(some.sampled_from(NUMBERS)), data.draw(some.sampled_from(NUMBERS))
    whole = some.integers(0, 3) | some.sampled_from([127, 255, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, -1, -(2**63)])
    floats = some.sampled_from([0.1, 0.5, -0.0, 1e300, float("inf"), float("nan"), 2.0**63, 16777217.0])
    drawn = data.draw(some.lists(some.none() | some.booleans() | whole | floats, min_size=1, max_size=6))
    column = []
    for value in drawn:
        try:
            column.append(pa.scalar(value, source).as_py())
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            column.append(None)
    expected = []
    for row, value in enumerate(column):
        made = None
        if value is not None:
            number = np.array(value, source.to_pandas_dtype())
            with np.errstate(all="ignore"):
                made = number.astype(kind.to_pandas_dtype())
            same = decimal.Decimal(made.item()).compare(decimal.Decimal(number.item())) == 0
            if not (same or (np.isnan(float(made)) and np.isnan(float(number)))):
                expected = row
                break
        expected.append(made)
    folder = tmp_path_factory.mktemp("cast")
    rows = pa.table({"x": pa.array(column, source), "y": np.arange(len(column))})
    if isinstance(expected, int) and source != kind:
        with pytest.raises(BadValue, match=f"column 'x', row {expected}: .* is not a"):
            converted(folder, rows, {"x": kind})
        return
    found = converted(folder, rows, {"x": kind}).read(0, len(column), ["x"]).column(0)
    assert found.type == kind
    if source != kind:
        made = [None if one is None else one.item() for one in expected]
        assert str(found.to_pylist()) == str(made)


def test_floats_are_rounded_when_said(tmp_path):
    rows = pa.table(
        {
            "x": [0.5, 0.1, 1e300],
            "y": [[0.5], [0.25, 0.1], []],
            "z": pa.array([[0.1, 1]] * 3, pa.list_(pa.float64(), 2)),
        }
    )
    with pytest.raises(BadValue, match=r"column 'x', row 1: 0\.1 is not a float: give inexact=True \(--inexact\)"):
        converted(tmp_path, rows, {"x": "float32"})
    with pytest.raises(BadValue, match=r"column 'x', row 2: 1e\+300 is not a float: choose another type"):
        converted(tmp_path, rows, {"x": "float32"}, inexact=True)
    with pytest.raises(BadValue, match=r"column 'y', row 1: \[0\.25, 0\.1\] is not a list<item: float>"):
        converted(tmp_path, rows, {"y": "float32"})
    made = converted(tmp_path, rows.slice(0, 2), {"x": pa.float32(), "y": "float32", "z": "float32"}, inexact=True)
    assert made.schema.types == [pa.float32(), pa.list_(pa.float32()), pa.list_(pa.float32(), 2)]
    assert made.read(0, 2).to_pydict() == {
        "x": [0.5, np.float32(0.1)], "y": [[0.5], [0.25, np.float32(0.1)]], "z": [[np.float32(0.1), 1]] * 2,
    }  # fmt: skip


def test_what_holds_no_other_numbers_takes_a_table(tmp_path):
    rows = pa.table(
        {"x": [0.5, 0.1], "l": [[0.1], [0.2]], "when": pa.array([1, 2], pa.timestamp("s")), "label": [0, 1]}
    )
    with pytest.raises(BadValue, match=r"types=\{'x': 'float32'\} and inexact=True to round it"):
        converted(tmp_path, rows.drop_columns("when"), None, "a.tfrecord")
    types = {"x": "float32", "l": "float32", "when": "int64"}
    records = converted(tmp_path, rows, types, "b.tfrecord", inexact=True)
    assert records.read(0, 2, ["x", "when"]).to_pydict() == {"x": [0.5, np.float32(0.1)], "when": [1, 2]}
    with pytest.raises(BadSchema, match=r"cast it \(types=\)"):
        converted(tmp_path, rows, None, "c.tar")
    shards = converted(tmp_path, rows, {"when": "string", "label": "int8"}, "c.tar")
    assert shards.read(0, 1, ["when.txt"]).column(0).to_pylist() == ["1970-01-01 00:00:01"]
    with pytest.raises(BadSchema, match=r"cast it \(types=\)"):
        converted(tmp_path, rows, None, "mds", to="mds")
    assert converted(tmp_path, rows, {"when": "int64"}, "mds", to="mds").read(0, 2, ["when"]).column(0).to_pylist() == [
        1,
        2,
    ]


def test_text_is_read_as_what_is_said(tmp_path):
    (tmp_path / "a.csv").write_text("zip,x\n00123,1\n4,2\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"zip,x\n00123,1\n4,2\n"))
    (tmp_path / "a.jsonl").write_text('{"zip": "07", "x": 1}\n')
    types = {"zip": "string", "x": "float32"}
    both = [cp.open(tmp_path / "a.csv"), cp.open(tmp_path / "a.csv")]
    for source in (tmp_path / "a.csv", tmp_path / "a.csv.gz", both[0], cp.concat(both)):
        made = converted(tmp_path, source, types)
        assert made.read(0, 2).to_pydict() == {"zip": ["00123", "4"], "x": [1.0, 2.0]}
    assert converted(tmp_path, tmp_path / "a.jsonl", types).read(0, 1).to_pydict() == {"zip": ["07"], "x": [1.0]}
    part = tmp_path / "parts" / "year=1" / "a.csv"
    part.parent.mkdir(parents=True)
    part.write_text("zip,x\n00123,1\n4,2\n")
    for source in (part, tmp_path / "parts", both[0].select(["x", "zip"]), both[0].slice(0, 1)):
        made = converted(tmp_path, source, types)
        assert made.read(0, 1, ["zip"]).to_pydict() == {"zip": ["00123"]}
    (tmp_path / "b.csv").write_text("x\n300\n")
    with pytest.raises(ParseError, match="CSV conversion error to int8"):
        converted(tmp_path, tmp_path / "b.csv", {"x": "int8"})
    with pytest.raises(BadValue, match="column 'x', row 1: 1e400 is not a double"):
        converted(tmp_path, pa.table({"x": ["inf", "1e400"]}), {"x": "float64"})


def test_bad_types(tmp_path, capsys):
    rows = pa.table({"x": [1.5], "s": [{"a": 1}]})
    for types, error, says in (
        ({"X": "float32"}, MissingColumn, "has no column 'X'.*did you mean x"),
        ({"x": "folat32"}, BadArgument, "must be an Arrow type or its name"),
        ({"s": "float32"}, BadSchema, "column 's' must be castable to float, got struct<a: int64>"),
        ({"x": "timestamp[s]"}, BadSchema, "column 'x' must be castable to timestamp"),
    ):
        with pytest.raises(error, match=says):
            converted(tmp_path, rows, types)
    with pytest.raises(BadArgument, match="inexact has no effect without types"):
        converted(tmp_path, rows, None, inexact=True)
    assert [path.name for path in tmp_path.iterdir()] == []
    (tmp_path / "a.csv").write_text("x,y\n0.1,3\n")
    words = ["convert", str(tmp_path / "a.csv"), str(tmp_path / "o.tfrecord")]
    assert cli.main([*words, "--types", "x,y"]) == 2
    assert "types must be different names with types, such as x=float32,y=int8, got 'x,y'" in capsys.readouterr().err
    assert cli.main([*words, "--types", "x=float32,y=int8"]) == 0
    parquet = cp.convert(pa.table({"x": [0.1]}), tmp_path / "a.parquet")
    assert parquet == 1
    words[1] = str(tmp_path / "a.parquet")
    assert cli.main([*words, "--types", "x=float32", "--overwrite"]) == 2
    assert cli.main([*words, "--types", "x=float32", "--inexact", "--overwrite"]) == 0
