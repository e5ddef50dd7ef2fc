"""CSV tables against Python's csv module and pyarrow's reader."""

import csv
import gzip
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import (
    BadArgument,
    BadSchema,
    BadValue,
    CorruptFile,
    MissingColumn,
    ParseError,
    TableError,
    UnknownFormat,
)
from corgipile.tables import CsvTable
from corgipile.tables import open as open_table
from corgipile.tables.formats.text import lines
from corgipile.tables.formats.text.csv import NULLS
from corgipile.testing import check_table

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)


def written(path, rows, mark=",", end="\r\n", names=("a", "b", "c")):
    """Write rows by Python's csv writer."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([names, *rows])
    path.write_bytes(out.getvalue().encode())
    return path


@given(
    rows=st.lists(st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1), TEXT), max_size=20),
    mark=st.sampled_from(",;\t"),
    end=st.sampled_from(["\r\n", "\n", "\r"]),
    chunk=st.sampled_from([1, 7, 64, 1 << 22]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_what_was_written(folder, laws, rows, mark, end, chunk, seed):
    path = written(folder / "law.csv", rows, mark, end)
    os.utime(path, ns=(seed, seed))
    kinds = {"a": "string", "b": "int64", "c": "string"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK_BYTES", chunk)
        path.with_name("law.csv.corgipile-index.arrow").unlink(missing_ok=True)
        table = CsvTable(path, header=True, delimiter=mark, types=kinds)
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    fields = [(name, pa.type_for_alias(kind)) for name, kind in kinds.items()]
    expected = {n: pa.array(list(c), k) for (n, k), c in zip(fields, columns, strict=True)}
    laws(table, pa.table(expected), np.random.default_rng(seed))


@given(st.lists(st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "a", "1", " ", "é", '",', ',"']), max_size=40))
@settings(max_examples=150, deadline=None)
def test_rows_are_those_of_pyarrow_whatever_the_quotes(folder, parts):
    """The index and the parser must agree on row starts, or reject the text."""
    path = folder / "any.csv"
    path.write_bytes(("x,y\n" + "".join(parts) + "\n").encode())
    os.utime(path, ns=(hash(tuple(parts)) % 2**32,) * 2)
    names = pa.csv.ConvertOptions(column_types={"x": pa.string(), "y": pa.string()}, **NULLS)
    try:
        parse = pa.csv.ParseOptions(newlines_in_values=True)
        theirs = pa.csv.read_csv(path, parse_options=parse, convert_options=names).to_pylist()
    except pa.ArrowInvalid:
        theirs = None
    try:
        table = CsvTable(path, header=True, delimiter=",", types={"x": "string", "y": "string"})
        ours = table.read(0, len(table)).to_pylist()
    except TableError:
        return
    assert ours == theirs
    assert [table.take([row]).to_pylist()[0] for row in range(len(table))] == ours


def test_an_empty_cell_is_null_for_all_who_read_it(tmp_path):
    (tmp_path / "a.csv").write_text("city,label\n" + "Bonn,0\n,1\nKiel,1\n" * 20)
    cities = ["Bonn", None, "Kiel"] * 20
    cp.convert(tmp_path / "a.csv", tmp_path / "a.arrow")
    for path in (tmp_path / "a.csv", tmp_path / "a.arrow"):
        table = cp.open(path)
        assert table.read(0, 60)["city"].to_pylist() == cities
        with cp.Loader(table, batch_size=60, order="no_shuffle") as loader:
            assert next(iter(loader))["city"].tolist() == cities
        with pytest.raises(BadValue, match="'city' is null; replace it with missing="):
            cp.train(table, features="city", encode="onehot", epochs=1)
        assert cp.train(table, features="city", encode="onehot", missing="mean", epochs=1).width == 3


def numbered(path, rows=200):
    return written(path, [(f'n "{i}",\nz', i, i / 2) for i in range(rows)])


def test_manners(tmp_path, manners):
    table = open_table(numbered(tmp_path / "a.csv"))
    assert isinstance(table, CsvTable)
    rows = {"a": [f'n "{i}",\nz' for i in range(200)], "b": range(200), "c": [i / 2 for i in range(200)]}
    check_table(table, pa.table(rows))
    manners(table)
    assert table.cuts(90).tolist() == [0, 90, 180, 200]
    with cp.Loader(table, batch_size=32, memory="64KB") as loader:
        batches = list(loader)
    assert sorted(b for batch in batches for b in batch["b"]) == list(range(200))
    assert all((batch["c"] == batch["b"] / 2).all() for batch in batches)
    assert cp.train(table, label="c", features=["b"], model="linear", epochs=1).history[-1]["rows"] == 200


def test_a_table_of_many_lines_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.tables.formats.text.table.MAX_RUN_BYTES", 300)
    table = open_table(numbered(tmp_path / "a.csv"))
    assert table.read(3, 150, ["b"]).column(0).to_pylist() == list(range(3, 150))
    assert table.take([199, 0, 7])["b"].to_pylist() == [199, 0, 7]


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("x,y\n1,2\n\n\n3,4", {}, [{"x": 1, "y": 2}, {"x": 3, "y": 4}]),
        ("\ufeffx;y\r\n1,5;a\r\n", {}, [{"x": "1,5", "y": "a"}]),
        ("1\t2\n3\t4\n", {}, [{"f0": 1, "f1": 2}, {"f0": 3, "f1": 4}]),
        ("a|b\n1|2\n", {"delimiter": "|"}, [{"a": 1, "b": 2}]),
        ("x,y\n1,2\n", {"header": False}, [{"f0": "x", "f1": "y"}, {"f0": "1", "f1": "2"}]),
        ("x,y\n1,\n", {}, [{"x": 1, "y": None}]),
        ('x,y\na,""\n,"NA"\nNA,b', {}, [{"x": "a", "y": ""}, {"x": None, "y": "NA"}, {"x": None, "y": "b"}]),
        ("x,y\n1,\n", {"types": {"y": pa.float32(), "x": "float64"}}, [{"x": 1.0, "y": None}]),
        ('"x\ny",z\n1,2\n', {}, [{"x\ny": 1, "z": 2}]),
        ("x,y\n", {}, []),
        ("x\n1\n\n2\n", {}, [{"x": 1}, {"x": 2}]),
    ],
)
def test_all_sorts_of_text(tmp_path, text, options, rows):
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    table = open_table(path, **options)
    assert table.read(0, len(table)).to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "options", "kind", "message"),
    [
        (
            "x,y\n" + "1,2\n" * 300 + "1,2,3\n",
            {},
            ParseError,
            "a.csv, line 302: each row must have 2 fields separated by ',', got 3",
        ),
        ('x,y\n1,"2\n3,4\n', {}, ParseError, "a.csv, line 2: a quoted field that begins here or before does not end"),
        ("x,x\n1,2\n", {}, BadSchema, "2 columns named 'x'"),
        ("", {}, UnknownFormat, "but it is empty"),
        ("x,y\n1,2\n", {"delimiter": ",,"}, BadArgument, "delimiter must be one character"),
        ("x,y\n1,2\n", {"header": "no"}, BadArgument, "header must be True, False or 'auto'"),
        ("x,y\n1,2\n", {"types": {"z": "int8"}}, MissingColumn, "no column 'z'"),
        ("x,y\n1,2\n", {"types": {"x": "int9"}}, BadArgument, r"types\['x'\] must be an Arrow type"),
        ('{"x": 1}\n', {}, UnknownFormat, "a.csv is JSON"),
        ("x,y\n1,2\0\n", {}, UnknownFormat, "zero bytes"),
    ],
)
def test_what_is_wrong_is_said_at_opening(tmp_path, text, options, kind, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(kind, match=message):
        open_table(tmp_path / "a.csv", **options)


def test_a_value_that_does_not_fit_is_told_by_line_and_column(tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.tables.formats.text.types.STRETCH_BYTES", 64)
    monkeypatch.setattr("corgipile.tables.formats.text.types.MAX_STRETCHES", 2)
    path = written(tmp_path / "a.csv", [('a\n"', i if i != 700 else "oops", 0) for i in range(1000)], end="\n")
    table = open_table(path)
    message = r"a.csv, line 1402: column 'b' must be int64 as in the sampled rows, got 'oops'; .*types={'b': 'string'}"
    for ask in (lambda: table.read(0, 1000), lambda: table.take([3, 700, 999]), lambda: table.read(600, 701, ["b"])):
        with pytest.raises(ParseError, match=message):
            ask()
    assert table.read(0, 1000, ["c"]).column(0).to_pylist() == [0] * 1000
    assert open_table(path, types={"b": "string"}).take([700])["b"].to_pylist() == ["oops"]


def test_files_that_are_one_table_agree_on_types(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,1,\n")
    (tmp_path / "b.csv").write_text("x,y,z\n1.5,b,2024-01-01\n")
    (tmp_path / "c.csv").write_text("x,y,z\n")
    table = open_table(tmp_path)
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "date32[day]"]
    assert table.read(0, 2)["x"].to_pylist() == [1.0, 1.5]
    assert table.read(0, 2)["y"].to_pylist() == ["1", "b"]
    check_table(table, pa.Table.from_batches([table.read(0, 2)]))
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    with pytest.raises(BadSchema, match="has no column"):
        open_table(tmp_path)


def test_partitions_and_other_names(tmp_path):
    (tmp_path / "year=2024").mkdir()
    (tmp_path / "year=2024" / "a.tsv").write_text("x\ty\n1\t2\n")
    assert open_table(tmp_path).read(0, 1).to_pylist() == [{"x": 1, "y": 2, "year": 2024}]
    assert cp.convert(tmp_path, tmp_path.parent / f"{tmp_path.name}.arrow") == 1
    (tmp_path / "b.txt").write_text("x,y\n1,2\n")
    assert isinstance(open_table(tmp_path / "b.txt"), CsvTable)


def test_text_beside_images_is_about_them(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"1")
    (tmp_path / "labels.csv").write_text("x,y\n1,2\n")
    assert open_table(tmp_path).schema.names == ["image", "label"]


def test_a_file_that_changed(tmp_path):
    path = numbered(tmp_path / "a.csv")
    table = open_table(path)
    before = table.fingerprint
    with path.open("r+b") as file:
        file.truncate(500)
    with pytest.raises(CorruptFile, match="has 500 bytes now"):
        table.read(0, 200)
    assert open_table(numbered(path, 10), delimiter=",").fingerprint != before
    assert len(open_table(path, delimiter=";", header=False, types={"f0": "string"})) > 10  # a separate index


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_survived(folder, survives, damage, data):
    path = numbered(folder / "damaged.csv", 12)
    broken = data.draw(damage(path.read_bytes()))
    path.with_name("damaged.csv.corgipile-index.arrow").unlink(missing_ok=True)
    survives(path, broken, "csv")


def test_a_blank_after_commas_is_shown(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x, label\n0.5, 1\n1.5, 0\n")
    with pytest.raises(
        MissingColumn, match=r"did you mean ' label', with the blank\? Text that has ', ' between fields"
    ):
        cp.train(path)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["12345678901234567890", "12345678901234567891", ""], pa.uint64()),
        (["18446744073709551615", "0"], pa.uint64()),
        (["9223372036854775808", "0"], pa.uint64()),
        (["12345678901234567890", "-1"], pa.decimal128(38, 0)),
        (["-12345678901234567890", "5"], pa.decimal128(38, 0)),
        (["1" * 50, "2"], pa.string()),
        (["1e20", "5"], pa.float64()),
        (["100000000000000000000", "5"], pa.float64()),
        (["1e23", "1.5", "inf"], pa.float64()),
    ],
)
def test_whole_numbers_beyond_int64_are_kept(tmp_path, laws, cells, kind):
    text = "id,b\n" + "".join(f"{cell},7\n" for cell in cells)
    (tmp_path / "a.csv").write_text(text)
    table = open_table(tmp_path / "a.csv")
    assert table.schema.field("id").type == kind
    expected = pa.array([cell or None for cell in cells]).cast(kind)
    laws(table, pa.table({"id": expected, "b": [7] * len(cells)}), np.random.default_rng(0))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    cp.convert(tmp_path / "a.csv.gz", tmp_path / "a.arrow")
    assert open_table(tmp_path / "a.arrow").read(0, 2).column(0) == expected[:2]


def test_files_whose_whole_numbers_are_of_different_size(tmp_path):
    for name, number in (("a", 1), ("b", 2**64 - 1)):
        (tmp_path / f"{name}.csv").write_text(f"id,b\n{number},7\n")
    assert [row["id"] for row in open_table(tmp_path).read(0, 2).to_pylist()] == [1, 2**64 - 1]
    (tmp_path / "a.csv").write_text("id,b\n-1,7\n")
    with pytest.raises(ParseError, match=r"line 2: column 'id' must be uint64"):
        open_table(tmp_path).read(0, 2)


@pytest.mark.parametrize("packed", [False, True])
def test_other_text_than_utf8_is_refused(tmp_path, packed):
    data = "a,b\n1,x\n2,ä\n".encode("latin1")
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(ParseError, match=r"column 'b' must be UTF-8, got b'\\xe4'; convert the file"):
        cp.convert(path, tmp_path / "out.arrow")
    cp.convert(path, tmp_path / "out.arrow", types={"b": "binary"})
    assert open_table(tmp_path / "out.arrow").read(0, 2)["b"].to_pylist() == [b"x", b"\xe4"]
    if not packed:
        with pytest.raises(ParseError, match=r"line 3: column 'b' must be UTF-8"):
            open_table(path)


@pytest.mark.parametrize("mark", [*"\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"])
def test_separators_within_cells_end_no_line(tmp_path, mark):
    (tmp_path / "a.csv").write_text(f"a,b{mark}c\n1,x{mark}y\n2,z\n", newline="")
    rows = open_table(tmp_path / "a.csv").read(0, 2).to_pylist()
    assert rows == [{"a": 1, f"b{mark}c": f"x{mark}y"}, {"a": 2, f"b{mark}c": "z"}]


def test_one_column_is_read_where_the_format_is_said(tmp_path):
    (tmp_path / "a.csv").write_text("name\nAlice Smith\nBob\n")
    with pytest.raises(UnknownFormat, match="one column"):
        open_table(tmp_path / "a.csv")
    assert open_table(tmp_path / "a.csv", format="csv").read(0, 2).to_pylist()[1] == {"name": "Bob"}
    (tmp_path / "b.csv").write_text("full name\nAlice Smith\nBob\n")
    assert open_table(tmp_path / "b.csv", format="csv").read(0, 1).to_pylist() == [{"full name": "Alice Smith"}]
