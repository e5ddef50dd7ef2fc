"""Folders of many small files are opened without an index file for each."""

import pytest

import corgipile as cp
from corgipile.tables.io import index_cache

LONG = "".join(f"{at},{at % 2}\n" for at in range(1500))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(index_cache, "MAX_STORED", 3)
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text(f"x,label\n{ord(name)},0\n0.5,1\n")
    return tmp_path


def indexes(folder):
    return sorted(path.name[:5] for path in folder.glob("*.corgipile-index.arrow"))


def test_small_files_have_no_stored_index(folder):
    (folder / "e.csv").write_text("x,label\n" + LONG)
    table = cp.open(folder)
    assert indexes(folder) == ["e.csv"]
    assert table.read(0, 10, ["x"]).column("x").to_pylist() == [97, 0.5, 98, 0.5, 99, 0.5, 100, 0.5, 0, 1]
    assert table.take([7, 1507]).column("x").to_pylist() == [0.5, 1499]


def test_few_files_and_requested_indexes_are_stored(folder):
    (folder / "d.csv").unlink()
    assert len(cp.open(folder)) == 6
    assert indexes(folder) == ["a.csv", "b.csv", "c.csv"]


def test_damage_is_reported(folder):
    (folder / "b.csv").write_text("x,label\n1,2,3\n")
    with pytest.raises(cp.errors.ParseError, match=r"b\.csv"):
        cp.open(folder)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-40], lambda data: data[:200] + bytes(8) + data[208:], lambda _: b"x"]
)
def test_a_damaged_small_index_is_built_again(tmp_path, damage):
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,0\n2,1\n")
    cp.open(path)
    index = tmp_path / "a.csv.corgipile-index.arrow"
    data = index.read_bytes()
    index.write_bytes(damage(data))
    assert cp.open(path).read(0, 2).column("x").to_pylist() == [1, 2]
    assert index.read_bytes() == data
