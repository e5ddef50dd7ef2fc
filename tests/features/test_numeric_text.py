"""Explanations of almost-numeric text columns."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadSchema, LeftOutWarning
from corgipile.features.numeric_text import MAX_ROWS, explain_text_columns
from corgipile.tables import MemoryTable
from corgipile.tables.formats.parquet.table import ParquetTable

ROWS = 2000


@pytest.fixture
def onebad(tmp_path):
    rows = [f"{i / 7},{'?' if i == ROWS - 1 else i / 3},w{i},{i % 2}" for i in range(ROWS)]
    path = tmp_path / "Onebad.csv"
    path.write_text("\n".join(["a,b,t,label", *rows]) + "\n")
    return path


def test_the_cell_is_named(onebad):
    found = explain_text_columns(cp.open(onebad), ["b", "t"])
    assert list(found) == ["b"]
    assert found["b"].startswith(
        f"1,999 of its first 2,000 cells are numbers, but '?' ({onebad}, line 2001) is not; types={{'b': 'float64'}}"
    )


def test_training_warns_of_what_it_leaves_out(onebad):
    with pytest.warns(LeftOutWarning, match="column 'b' is left out as text, though 1,999 of") as caught:
        model = cp.train(onebad, epochs=1)
    assert caught[0].filename == __file__
    assert str(caught[0].message) in model.notes
    assert model.features == ("a",)
    with pytest.raises(BadSchema, match=r"leave it out. It is not numeric: 1,999 of .*Onebad.csv, line 2001"):
        cp.train(onebad, features=["a", "b"])
    assert not any("left out" in note for note in cp.train(onebad, features=["a"], epochs=1).notes)


def test_what_is_said_to_be_text_is_text(onebad):
    table = cp.open(onebad, types={"b": "string"})
    assert explain_text_columns(table, ["b"]) == {}
    assert explain_text_columns(table.slice(0, 100), ["b"]) == {}


def test_files_and_partitions(onebad):
    folder = onebad.parent / "parts" / "year=2024"
    folder.mkdir(parents=True)
    (folder / "0.csv").write_text("a,b,t,label\n1,2,x,0\n\n3,4,y,1\n")
    onebad.rename(folder / "1.csv")
    found = explain_text_columns(cp.open(folder.parent), ["b"])
    assert "2,001 of its first 2,002 cells" in found["b"]
    assert "1.csv, line 2001) is not" in found["b"]


def test_a_cell_beyond_those_looked_at(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("b,label\n" + "".join(f"{i if i < MAX_ROWS + 9 else 'x'},{i % 2}\n" for i in range(MAX_ROWS + 10)))
    assert explain_text_columns(cp.open(path), ["b"])["b"].startswith(
        "its first 4,096 cells are numbers; a later one is not"
    )


def test_decimal_commas(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a;b;label\n" + "".join(f"{i},5;{i};{i % 2}\n" for i in range(20)))
    found = explain_text_columns(cp.open(path), ["a"])
    assert found["a"].startswith(f"its cells are numbers with a decimal comma, such as '0,5' ({path}, line 2)")
    with pytest.raises(
        BadSchema, match=r"no column of numbers .* Text columns: column 'a': its cells are numbers with a dec"
    ):
        cp.train(cp.open(path).select(["a", "label"]))


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["1", "2", "3", "?"] * 5, "15 of its first 20 cells are numbers, but '?' (row 3) is not; pandas.to_numeric"),
        (["?", None, "", "1", "2", "?", "3"] * 5, "15 of its first 25 cells are numbers, but '?' (row 0) is not"),
        (["38", "S"] * 10, None),  # a code with two values
        (["1", "K", "2"] * 10, None),
        ([f"{i:03}" for i in range(40)] + ["X40"], None),
        ([f"{i},106" for i in range(1, 20)], "its cells are numbers with a comma, such as '1,106' (row 0): use pandas"),
        ([f"{i},106" for i in range(20)], "its cells are numbers with a decimal comma, such as '0,106' (row 0)"),
        (["1", "2", "3", "?", "x"] * 5, None),
        ([str(i) for i in range(19)] + ["x"], "19 of its first 20 cells are numbers, but 'x' (row 19) is not"),
        (["1", "2", "3"], None),
        ([None, ""], None),
        (["1,234,567", "2,345,678.5", "2"], "its cells are numbers with a comma, such as '1,234,567' (row 0): use pan"),
        (["1,23,567", "2,34,678", "2"], None),
        ([], None),
    ],
)
def test_text_in_memory(cells, found):
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        told = explain_text_columns(cp.open(pa.table({"x": pa.array(cells, kind)})), ["x"])
        assert told.get("x", "").startswith(found or "")
        assert bool(told) == (found is not None)


def test_long_text_is_given_up(monkeypatch):
    table, read = cp.open(pa.table({"t": ["word"] * 5000, "x": ["1", "?", "2", "3"] * 1250})), []
    way = MemoryTable.read
    monkeypatch.setattr(MemoryTable, "read", lambda self, *asked: read.append(asked) or way(self, *asked))
    assert list(explain_text_columns(table, ["t", "x"])) == ["x"]
    assert [stop for _, stop, names in read if "t" in names] == [16]
    assert read[-1] == (3856, 4096, ["x"])


MANY = 400_000


def encoded(path, cells):
    table = pa.table({"x": cells, "t": [f"word {i}" for i in range(len(cells))], "k": np.arange(len(cells))})
    table = table.append_column("a", pa.array(np.arange(len(cells)) % 2))
    if path.suffix == ".arrow":
        pyarrow.feather.write_feather(table, path, compression="lz4", chunksize=30_000)
    else:
        pq.write_table(table, path, row_group_size=len(cells) if path.stem == "large" else 1000)
    return cp.open(path)


@pytest.mark.parametrize("name", ["large.parquet", "small.parquet", "a.arrow"])
def test_encoded_columns(tmp_path, monkeypatch, name):
    cells = [f"{i % 977 / 8}" for i in range(MANY)]
    cells[3000] = "n/a"
    table = encoded(tmp_path / name, cells)
    decoded = []
    way = ParquetTable._decode
    monkeypatch.setattr(ParquetTable, "_decode", lambda self, i, names: decoded.append(i) or way(self, i, names))
    for some in (table, table.select(["t", "x"])):
        found = explain_text_columns(some, ["x", "t"])
        assert list(found) == ["x"]
        assert found["x"].startswith("4,095 of its first 4,096 cells are numbers, but 'n/a' (row 3000 of ")
        assert f"{name}')) is not; pandas.to_" in found["x"]
    assert not decoded  # only the inspected Parquet pages are decoded
    with pytest.warns(LeftOutWarning, match="column 'x' is left out as text, though 4,095"):
        cp.train(table.select(["x", "k", "a"]), label="a", epochs=1)


def test_parts_of_which_the_first_are_empty(tmp_path):
    table = encoded(tmp_path / "large.parquet", ["?", *map(str, range(MANY - 1))])
    pq.write_table(pa.Table.from_batches([table.read(0, 0)]), tmp_path / "a.parquet")
    found = explain_text_columns(cp.open(tmp_path), ["x"])
    assert found["x"].startswith("4,095 of its first 4,096 cells are numbers, but '?' (row 0 of ")


def test_measures_are_numbers_though_no_cell_is_bad():
    rows = pa.table({"x": ["0.5", "1.25", "3", "7.5"] * 5, "version": ["1", "2"] * 10})
    found = explain_text_columns(cp.open(rows), ["x", "version"])
    assert found == {
        "x": "its first 20 cells are numbers; to convert them use corgipile convert OLD NEW --types x=double"
    }


def test_long_text_is_not_decoded_for_it(tmp_path, monkeypatch):
    pq.write_table(pa.table({"t": ["long text " * 20_000] * 300}), tmp_path / "a.parquet")
    table, rows = cp.open(tmp_path / "a.parquet"), []
    way = ParquetTable._decoded_batches
    monkeypatch.setattr(
        ParquetTable, "_decoded_batches", lambda self, *given: rows.append(given[2]) or way(self, *given)
    )
    assert explain_text_columns(table, ["t"]) == {}
    assert rows[-1] <= 8


def test_what_must_be_sent_or_decoded_for_it_is_not_looked_at(tmp_path):
    pyarrow.feather.write_feather(pa.table({"x": ["1", "2", "?"] * MANY}), tmp_path / "a.arrow", chunksize=3 * MANY)
    assert explain_text_columns(cp.open(tmp_path / "a.arrow"), ["x"]) == {}


def test_few_of_many_columns_are_told():
    columns = {f"c{i}": ["1", "2", "3", "?"] * 5 for i in range(9)}
    table = cp.open(pa.table({**columns, "x": np.arange(20.0), "label": [0, 1] * 10}))
    with pytest.warns(LeftOutWarning) as told:
        cp.train(table, epochs=1)
    said = [str(one.message) for one in told]
    assert len(said) == 6
    assert said[-1] == "4 more columns are left out likewise"
