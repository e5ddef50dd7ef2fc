"""Numeric columns that the kernel parses have exactly pyarrow's bits, or are left to pyarrow."""

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import corgipile as cp
from corgipile.errors import BadValue, ParseError
from corgipile.loader import text
from corgipile.orders import Riffle
from corgipile.tables.formats.text.csv import NULLS
from corgipile.tables.formats.text.fields import number_code, read_numbers

KINDS = [pa.float64(), pa.float32(), pa.int64(), pa.uint64(), pa.int32(), pa.uint16(), pa.int8(), pa.bool_()]
PLAIN = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.tuples(st.integers(0, 10**30), st.integers(-400, 400)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
)
WORDS = ["", "NA", "null", "nan", "NAN", "-nan", "inf", "-Infinity", "true", "False", "0", "1", "0x1F", "1.", ".5", "-"]
WORDS += ["1e", "1e+", "+1", "- 1", "1.#IND", "1_0", "1.5.2", "1,5", "-0", "007", "1e5", "1E-5", "x", "é"]
FIELD = st.one_of(PLAIN, st.sampled_from(WORDS), st.text(" \t+-.eE0129", max_size=9))
CELL = st.tuples(st.sampled_from(["", "", " ", "\t"]), FIELD, st.sampled_from(["", "", " "]), st.booleans()).map(
    lambda parts: f'"{"".join(parts[:3])}"' if parts[3] or "," in parts[1] else "".join(parts[:3])
)


def by_pyarrow(text, kind, mark):
    options = csv.ReadOptions(column_names=["x", "y"])
    parse = csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    try:
        table = csv.read_csv(
            pa.BufferReader(text), options, parse, csv.ConvertOptions(column_types={"x": kind, "y": "string"}, **NULLS)
        )
    except pa.ArrowInvalid:
        return None
    return table["x"].combine_chunks()


def bits(array):
    """Return the exact bits of numbers, which distinguish NaN from null and -0 from 0."""
    form = {"double": "<d", "float": "<f"}.get(str(array.type))
    return [struct.pack(form, x) if form and x is not None else x for x in array.to_pylist()]


@given(
    cells=st.lists(CELL, min_size=1, max_size=12),
    kind=st.sampled_from(KINDS),
    mark=st.sampled_from(",;\t "),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    last=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_the_same_bits_as_pyarrow_or_none(cells, kind, mark, end, last):
    lines = [f"{cell}{mark}y" for cell in cells]
    data = (end.join(lines) + end * last).encode()
    found = read_numbers(data, len(cells), mark, [kind, None])[0]
    expected = by_pyarrow(data, kind, mark)
    assert found is None or bits(found) == bits(expected)


@given(st.lists(PLAIN.filter(lambda text: "nan" not in text), min_size=1, max_size=40), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=100, deadline=None)
def test_no_plain_number_is_left_to_others(numbers, end):
    data = "".join(f'{one},"{one}", {one}{end}' for one in numbers).encode()
    wide, quoted, narrow = read_numbers(data, len(numbers), ",", [pa.float64(), pa.float64(), pa.float32()])
    expected = [struct.pack("<d", float(one)) for one in numbers]
    assert bits(wide) == bits(quoted) == expected
    assert bits(narrow) == bits(by_pyarrow("".join(f"{one},\n" for one in numbers).encode(), pa.float32(), ","))


def test_all_that_is_said_of_integers_nulls_and_truth():
    data = b"-128,255,NA,1\n127,0,-9223372036854775808,False\n,#N/A,9223372036854775807,true\n"
    columns = read_numbers(data, 3, ",", [pa.int8(), pa.uint8(), pa.int64(), pa.bool_()])
    assert [column.to_pylist() for column in columns] == [
        [-128, 127, None],
        [255, 0, None],
        [None, -(2**63), 2**63 - 1],
        [True, False, True],
    ]
    for wrong, kind in ((b"128", pa.int8()), (b"256", pa.uint8()), (b"-1", pa.uint8()), (b"2", pa.bool_())):
        assert read_numbers(b"1\n" + wrong, 2, ",", [kind]) == [None]
    assert read_numbers(b"1,2\n3\n", 2, ",", [pa.int8(), pa.int8()]) == [None, None]
    assert read_numbers(b"1\n3\n", 3, ",", [pa.int8()]) == [None]
    assert [number_code(kind) for kind in (pa.float16(), pa.string(), pa.list_(pa.int8(), 2))] == [-1, -1, -1]


def numbered(path, odd=None, at=700, rows=1000, end="\n"):
    lines = [f"{i},{i / 8},{i % 2},{'true' if i % 3 else 'false'}" for i in range(rows)]
    if odd is not None:
        lines[at] = odd
    path.write_text("a,b,c,d\n" + end.join(lines), newline="")
    return path


@pytest.mark.parametrize("odd", [None, "0x2BC,87.5,0,true", '"700"," 87.5 ",0 ,"true"'])
@pytest.mark.parametrize("order", ["riffle", "no_shuffle", "full"])
def test_every_row_comes_once_into_slots(tmp_path, monkeypatch, order, odd):
    monkeypatch.setattr(text, "PART_BYTES", 1500)
    table = cp.open(numbered(tmp_path / "a.csv", odd, end="\r\n"), types={"a": "int32"})
    with cp.Loader(table, batch_size=64, memory="64KB", order=order) as loader:
        for _ in range(2):
            batches = list(loader)
            found = {name: np.concatenate([batch[name] for batch in batches]) for name in "abcd"}
            rows = np.argsort(found["a"])
            assert found["a"][rows].tolist() == list(range(1000))
            assert (found["b"] == found["a"] / 8).all()
            assert (found["d"] == (found["a"] % 3 != 0)).all()
            assert (found["a"].dtype, found["b"].dtype, found["d"].dtype) == (np.int32, np.float64, np.bool_)
    with cp.Loader(table, features=["a", "b"], label="c", batch_size=64, memory="64KB", order=order) as loader:
        for batch in loader:
            assert batch["features"].dtype == np.float32
            assert (batch["features"][:, 1] == batch["features"][:, 0] / 8).all()
            assert (batch["label"] == batch["features"][:, 0] % 2).all()


@pytest.mark.parametrize("options", [{}, {"columns": ["d", "a"]}])
def test_numbers_go_straight_into_slots(tmp_path, monkeypatch, options):
    """The kernel is really used: without it the tests above would pass too."""
    table = cp.open(numbered(tmp_path / "a.csv"), types={"a": "int32"})
    with cp.Loader(table, batch_size=100, memory="64KB", **options) as loader:
        monkeypatch.setattr(cp.tables.CsvTable, "_parse", lambda *_: pytest.fail("an Arrow array was asked for"))
        assert sum(len(batch["a"]) for batch in loader) == 1000


def test_short_runs_are_parsed_together(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{i},town {i}\n" for i in range(6000)))
    table, calls, parse = cp.open(path), [], cp.tables.CsvTable._parse
    with cp.Loader(table, batch_size=100, memory="1MB", order=Riffle(block=300)) as loader:
        monkeypatch.setattr(cp.tables.CsvTable, "_parse", lambda *given: calls.append(given[2]) or parse(*given))
        assert sorted(a for batch in loader for a in batch["a"].tolist()) == list(range(6000))
    assert sum(calls) == 6000
    assert max(calls) > 300


@pytest.mark.parametrize(
    ("odd", "kind", "message"),
    [
        ("700,,0,true", BadValue, "row 700 of column 'b' is null"),
        ("700,x,0,true", ParseError, "a.csv, line 702: column 'b' must be double"),
        ("700,1e,0,true", ParseError, "line 702: column 'b' must be double"),
    ],
)
def test_what_is_no_number_is_told_as_before(tmp_path, odd, kind, message):
    kinds = {"a": "int64", "b": "float64", "c": "int64", "d": "bool"}
    table = cp.open(numbered(tmp_path / "a.csv", odd), types=kinds)
    with cp.Loader(table, batch_size=100, memory="64KB") as loader, pytest.raises(kind, match=message):
        list(loader)


def test_marks_that_numbers_have_are_left_to_pyarrow(tmp_path):
    (tmp_path / "a.csv").write_text("a-b\n1-2\n3-4\n")
    table = cp.open(tmp_path / "a.csv", delimiter="-", header=True)
    assert table.read(0, 2).to_pydict() == {"a": [1, 3], "b": [2, 4]}
    with cp.Loader(table, batch_size=2, order="no_shuffle") as loader:
        assert [batch["b"].tolist() for batch in loader] == [[2, 4]]
    assert math.isinf(cp.open(numbered(tmp_path / "b.csv", "1,-inf,1,true")).read(700, 701)["b"][0].as_py())
