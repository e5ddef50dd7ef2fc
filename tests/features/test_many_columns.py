"""Work grows linearly with the number of columns: tests count calls, since times vary by machine."""

import os
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import MissingColumn
from corgipile.features.choose import require
from corgipile.features.fit import chosen_columns
from corgipile.loader.buffer import Field
from corgipile.loader.wide_rows import _in_place
from corgipile.tables.concat import _check_equal
from corgipile.tables.encoded import unpack
from corgipile.tables.in_memory.frames import plain
from corgipile.tables.io.pieces import pick, places_of
from corgipile.tables.table import check_columns
from corgipile.tables.wrapper import Wrapper

COLUMNS = 500


class Counted:
    """A schema that counts how often its names are listed."""

    def __init__(self, schema):
        self._schema, self.listed = schema, 0

    @property
    def names(self):
        self.listed += 1
        return self._schema.names

    def __iter__(self):
        return iter(self._schema)

    def __len__(self):
        return len(self._schema)

    def __getattr__(self, name):
        return getattr(self._schema, name)


@pytest.fixture
def rows():
    return pa.table({f"x{at}": [0.0, 1.0] for at in range(COLUMNS)})


def test_names_are_listed_once_for_all_columns(rows):
    schema = Counted(rows.schema)
    require(schema, rows.column_names)
    with pytest.raises(MissingColumn):
        require(schema, ["y"])
    assert chosen_columns(schema, "numeric", None).names == tuple(rows.column_names)
    assert schema.listed < 10


def test_no_names_are_listed_for_a_column_of_a_wrapped_table(rows):
    wrapped = Wrapper(cp.open(rows))
    wrapped.table.schema = Counted(wrapped.schema)
    assert all(wrapped.by_column(name) for name in rows.column_names)
    assert wrapped.table.schema.listed == 0


def test_places_of_columns_in_a_row_are_added_up():
    field = Field("x", ("a", "b", "c"), np.dtype("f4"), (6,), (1, 2, 3))
    assert field.begins == (0, 1, 3)


def test_names_are_not_listed_to_find_one_column(rows):
    schema = Counted(rows.schema)
    assert [check_columns(schema, [name]) for name in rows.column_names] == [[name] for name in rows.column_names]
    assert schema.listed == 0
    for wrong in ("y", "\udcff"):
        with pytest.raises(MissingColumn):
            check_columns(schema, [wrong])


def test_names_are_listed_once_to_compare_joined_tables(rows):
    tables = [cp.open(rows), cp.open(rows.set_column(0, "x0", [[None, None]]).cast(rows.schema))]
    one, other = (types.SimpleNamespace(schema=Counted(table.schema)) for table in tables)
    one.schema.equals = other.schema.equals = lambda _: False
    _check_equal(one, other)
    assert one.schema.listed == other.schema.listed == 1


def test_wide_rows_ask_for_the_places_of_all_columns_at_once(tmp_path, monkeypatch):
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4 * 100, dtype=np.float32)), 100)
    columns = {f"x{at}": wide for at in range(60)} | {"n": pa.array([1, None, 3, 4])}
    for name, most in (("n", 20), (None, 2)):
        table = pa.table(columns if name else {key: columns[key] for key in columns if key != "n"})
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table)
        opened, asked = cp.open(tmp_path / "a.arrow"), []
        kept = opened.layout
        opened.layout = lambda names, kept=kept, asked=asked: asked.append(names) or kept(names)
        fields = [Field(key, (key,), np.dtype("f4"), (100,)) for key in table.column_names]
        assert set(_in_place(opened, fields)) == set(table.column_names) - {"n"}
        assert len(asked) <= most


def test_places_of_many_files_are_found_in_one_pass():
    numbers = np.array([3, 0, 3, 1, 0])
    assert [(at, places.tolist()) for at, places in places_of(numbers)] == [(0, [1, 4]), (1, [3]), (3, [0, 2])]
    assert list(places_of(numbers[:0])) == []


def test_text_views_are_replaced_in_all_columns():
    rows = pa.table({"a": pa.array(["x"], pa.string_view()), "n": [1], "b": pa.array(["y"], pa.string_view())})
    found = plain(rows.replace_schema_metadata({"k": "v"}))
    assert found.to_pydict() == rows.to_pydict()
    assert (found.schema.metadata, set(found.schema.types)) == ({b"k": b"v"}, {pa.large_string(), pa.int64()})


def test_names_are_not_listed_to_pick_a_few_columns(rows):
    schema = Counted(rows.schema)
    assert pick(schema, ["x1", "x0"]).names == ["x1", "x0"]
    assert schema.listed == 0


def test_short_columns_are_unpacked_many_at_a_time_by_few_writes(tmp_path, rows, monkeypatch):
    pq.write_table(rows, tmp_path / "a.parquet")
    table, writes, pwrite = cp.open(tmp_path / "a.parquet"), [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *given: writes.append(1) or pwrite(*given))
    plain = unpack(table, rows.column_names, tmp_path)
    assert len(writes) < COLUMNS / 10
    assert len(plain._parts) == 1
    asked, location = [], plain._parts[0].location
    monkeypatch.setattr(plain._parts[0], "location", lambda names: asked.append(names) or location(names))
    assert [*plain.location(rows.column_names).layout.columns] == rows.column_names
    assert len(asked) == 1
