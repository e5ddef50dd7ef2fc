"""JSON lines against Python's json module."""

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadSchema, ParseError, UnknownFormat
from corgipile.tables import CsvTable, JsonLinesTable
from corgipile.tables import open as open_table
from corgipile.testing import check_table

KINDS = {"x": "int64", "y": "float64", "t": "string", "l": pa.list_(pa.int64()), "s": pa.struct([("a", pa.bool_())])}
ROW = st.fixed_dictionaries(
    {"x": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "y": st.floats(allow_nan=False, allow_infinity=False),
        "t": st.text(st.characters(codec="utf-8"), max_size=9),
        "l": st.lists(st.integers(0, 9), max_size=3),
        "s": st.fixed_dictionaries({"a": st.booleans()}),
    },
)


@given(
    rows=st.lists(ROW, min_size=1, max_size=20),
    end=st.sampled_from(["\n", "\r\n", " \n\n \t\n"]),
    ascii_only=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_what_was_written(folder, laws, rows, end, ascii_only, seed):
    rows = [{**dict.fromkeys(KINDS), **row} for row in rows]
    path = folder / "law.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in rows).encode())
    os.utime(path, ns=(seed, seed))
    table = JsonLinesTable(path, types=KINDS)
    fields = [(name, pa.type_for_alias(k) if isinstance(k, str) else k) for name, k in KINDS.items()]
    laws(table, pa.Table.from_pylist(rows, pa.schema(fields)), np.random.default_rng(seed))


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_manners(tmp_path, manners):
    rows = [
        {"x": i if i % 7 else i + 0.5, "label": i % 2, "t": "2024-01-01" if i < 5 else "no date"} for i in range(99)
    ]
    table = open_table(written(tmp_path / "a.jsonl", rows))
    assert isinstance(table, JsonLinesTable)
    expected = pa.table({name: [row[name] for row in rows] for name in ("x", "label", "t")})
    assert expected.schema.types == [pa.float64(), pa.int64(), pa.string()]
    check_table(table, expected)
    manners(table)
    with cp.Loader(table, batch_size=16) as loader:
        batches = list(loader)
    assert sorted(x for batch in batches for x in batch["x"]) == [row["x"] for row in rows]
    for name in ("b.json", "b"):
        assert isinstance(open_table(written(tmp_path / name, rows)), JsonLinesTable)


@pytest.mark.parametrize("packed", [False, True])
def test_they_are_converted(tmp_path, packed):
    rows = [{"x": 1, "y": None}, {"x": 2.5}, {"y": [1, 2], "z": {"a": 1}}]
    path = written(tmp_path / "a.jsonl", rows)
    if packed:
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert cp.convert(path, tmp_path / "o.arrow") == 3
    assert open_table(tmp_path / "o.arrow").read(0, 3).to_pylist() == [
        {"x": 1.0, "y": None, "z": None},
        {"x": 2.5, "y": None, "z": None},
        {"x": None, "y": [1, 2], "z": {"a": 1}},
    ]


def test_files_that_are_one_table_have_the_keys_of_all(tmp_path):
    written(tmp_path / "0.jsonl", [{"x": 1, "y": "a"}])
    written(tmp_path / "1.jsonl", [])
    written(tmp_path / "2.jsonl", [{"z": [1.5], "x": 0.5}])
    table = open_table(tmp_path)
    assert table.read(0, 2).to_pylist() == [{"x": 1.0, "y": "a", "z": None}, {"x": 0.5, "y": None, "z": [1.5]}]
    check_table(table, pa.Table.from_batches([table.read(0, 2)]))
    with pytest.raises(BadSchema, match=r"1.jsonl must have at least one column"):
        open_table(tmp_path / "1.jsonl")


def survey_little(monkeypatch):
    monkeypatch.setattr("corgipile.tables.formats.text.types.STRETCH_BYTES", 64)
    monkeypatch.setattr("corgipile.tables.formats.text.types.MAX_STRETCHES", 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x": "a", "y": 1}', "column 'x' must be a number as in other rows, got a string"),
        ('{"x": 1, "y": 1, "new": 2}', "a key is in no sampled row; set its type with types="),
        ('{"x": 1.5, "y": 1}', "column 'x'|1.5"),
        ('{"x": 1', ""),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, monkeypatch, line, message):
    survey_little(monkeypatch)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": {i}, "y": {i}}}\n' if i != 500 else line + "\n" for i in range(800)))
    table = open_table(path)
    for ask in (lambda: table.read(0, 800), lambda: table.take([1, 500])):
        with pytest.raises(ParseError, match=rf"a.jsonl, line 501: .*({message})"):
            ask()
    assert table.read(0, 500, ["y"]).column(0).to_pylist() == list(range(500))


def test_what_is_no_json_lines(tmp_path):
    (tmp_path / "a.json").write_text('[\n{"x": 1}\n]\n')
    for options in ({}, {"format": "jsonl"}):
        with pytest.raises(UnknownFormat, match=r"got an array; rewrite it with pandas.read_json"):
            open_table(tmp_path / "a.json", **options)
    (tmp_path / "long.json").write_text(json.dumps([{"x": 1}] * 50_000))  # on one line, like pandas
    with pytest.raises(UnknownFormat, match=r"long.json: .* got an array; rewrite it with pandas.read_json"):
        open_table(tmp_path / "long.json")
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n[2]\n')
    with pytest.raises(ParseError, match=r"a.jsonl, line 2: each line must be an object in braces; .*'\[2\]'"):
        open_table(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text('x,y\n"{1}",2\n')
    assert isinstance(open_table(tmp_path / "a.csv"), CsvTable)
    (tmp_path / "b.jsonl").write_bytes(b'{"t": "\xff"}\n')
    with pytest.raises(ParseError, match=r"b.jsonl, line 1: .*Invalid UTF8"):
        open_table(tmp_path / "b.jsonl").read(0, 1)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_survived(folder, survives, damage, data):
    path = written(folder / "damaged.jsonl", [{"x": i, "t": "a" * i} for i in range(12)])
    broken = data.draw(damage(path.read_bytes()))
    path.with_name("damaged.jsonl.corgipile-index.arrow").unlink(missing_ok=True)
    survives(path, broken, "jsonl")


def test_whole_numbers_beyond_int64_are_kept(tmp_path):
    big = 12345678901234567890
    rows = [
        {"id": big, "l": [big + 1, None], "s": [{"d": -big, "e": big, "f": 1e20}], "m": -1},
        {"id": 1, "l": [], "s": [{"d": 1, "e": 1, "f": 0.5}], "m": big},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    table = open_table(tmp_path / "a.jsonl")
    inner = pa.struct([("d", pa.decimal128(38, 0)), ("e", pa.uint64()), ("f", pa.float64())])
    kinds = [pa.uint64(), pa.list_(pa.uint64()), pa.list_(inner), pa.decimal128(38, 0)]
    assert table.schema.types == kinds
    assert table.read(0, 2).to_pylist() == rows
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    cp.convert(tmp_path / "a.jsonl.gz", tmp_path / "a.arrow")
    assert open_table(tmp_path / "a.arrow").read(0, 2).to_pylist() == rows


@pytest.mark.parametrize("key", ['"y": 2', '"y": null', '"z": {}'])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_key_within_a_column_that_no_survey_met(tmp_path, monkeypatch, key, mixed):
    monkeypatch.setattr("corgipile.tables.formats.text.types.STRETCH_BYTES", 1)
    odd = ['{"s": {"x": 1}, "q": [1, "a"]}'] if mixed else []
    rows = ['{"s": {"x": 1}, "p": 1}'] * 50 + ['{"s": {"x": 1, %s}, "p": 2}' % key, *odd]  # noqa: UP031 - braces
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, *['{"s": {"x": 1}, "p": 1}'] * 40]) + "\n")
    table = open_table(tmp_path / "a.jsonl")
    assert table.schema.names == ["s", "p"]
    assert table.take([50], ["p"]).to_pylist() == [{"p": 2}]
    assert table.take([49], ["s"]).to_pylist() == [{"s": {"x": 1}}]
    for ask in (lambda: table.read(40, 60, ["s"]), lambda: table.take([50], ["s"])):
        with pytest.raises(ParseError, match=r"line 51: a key is in no sampled row"):
            ask()


def test_errors_quote_little_of_a_long_value(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": ' + "9" * 100_000 + '}\n{"a": 1}\n')
    with pytest.raises(ParseError) as caught:
        open_table(tmp_path / "a.jsonl", types={"a": "int64"}).read(0, 2)
    assert len(str(caught.value)) < 1000
