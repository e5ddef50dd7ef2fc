import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema
from corgipile.tables import ConcatTable, MemoryTable, concat
from corgipile.tables import open as open_table
from corgipile.testing import check_table


def write(path, rows, batch=20):
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return path


def pieces(folder, rows_of, counts, seed):
    parts = [rows_of(count, seed + i, nulls=True) for i, count in enumerate(counts)]
    return [write(folder / f"part-{i}.arrow", part) for i, part in enumerate(parts)], pa.concat_tables(parts)


@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(0, 50), min_size=2, max_size=4))
@settings(max_examples=30, deadline=None)
def test_agrees_with_all_files(folder, laws, layout_law, rows_of, seed, counts):
    paths, rows = pieces(folder, rows_of, counts, seed)
    table = open_table(paths)
    laws(table, rows, np.random.default_rng(seed))
    if len(rows):
        layout_law(table, ["label", "features"])


def test_manners(tmp_path, manners, rows_of):
    paths, _ = pieces(tmp_path, rows_of, [30, 40, 0, 30], 0)
    table = open_table(paths)
    manners(table)
    assert "ConcatTable(4 tables from ArrowFile(" in repr(table)
    assert table.cuts(25).tolist() == [0, 25, 30, 55, 70, 95, 100]


def test_layout_only_if_all_have_one(tmp_path, rows_of):
    rows = rows_of(30)
    assert ConcatTable([open_table(write(tmp_path / "a.arrow", rows)), MemoryTable(rows)]).layout(["label"]) is None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (pa.table({"x": [1]}), r"b.arrow'\) has no column 'y', but ArrowFile\('.*a.arrow'\) has"),
        (
            pa.table({"x": ["1.5"], "y": [2]}),
            r"b.arrow'\): column 'x' is string; in ArrowFile\('.*a.arrow'\) it is int64",
        ),
        (pa.table({"x": [1], "y": [2], "z": [3]}), r"b.arrow'\) has a column 'z', which .*a.arrow'\) lacks"),
    ],
)
def test_schemas_that_differ(tmp_path, other, message):
    first = write(tmp_path / "a.arrow", pa.table({"x": [1], "y": [2]}))
    with pytest.raises(BadSchema, match=message):
        open_table([first, write(tmp_path / "b.arrow", other)])


def test_dims_are_the_largest_and_nullable_is_kept():
    rows = pa.table({"x": [1]})
    parts = [
        rows.cast(pa.schema([pa.field("x", pa.int64(), nullable=False)], metadata={"corgipile.dims": "3"})),
        rows.cast(pa.schema([pa.field("x", pa.int64())], metadata={"corgipile.dims": "10"})),
    ]
    table = ConcatTable([MemoryTable(part) for part in parts])
    assert table.schema.metadata == {b"corgipile.dims": b"10"}
    assert table.schema.field("x").nullable
    assert table.read(0, 2).schema.equals(table.schema, check_metadata=True)


def test_no_tables():
    with pytest.raises(BadArgument, match="tables to join must be at least one"):
        ConcatTable([])


def test_text_of_both_widths_is_one_table(tmp_path):
    rows = pa.table({"t": ["a", None, "c"], "b": [b"1", b"22", b""], "label": [0, 1, 0]})
    large = rows.cast(pa.schema([("t", pa.large_string()), ("b", pa.large_binary()), ("label", pa.int64())]))
    for parts in ([rows, large], [large, rows], [rows, cp.open(write(tmp_path / "a.arrow", large))]):
        table = cp.concat(parts)
        assert table.schema == large.schema
        check_table(table, pa.concat_tables([large, large]))
        mixed = cp.mix([(part, 0.5) for part in parts])
        assert sorted(mixed.read(0, 6)["b"].to_pylist()) == sorted(rows["b"].to_pylist() * 2)
    assert cp.concat([rows, rows]).schema == rows.schema
    with pytest.raises(BadSchema, match=r"column 'b' is binary; in .* it is large_string"):
        cp.concat([large.select(["t"]).rename_columns(["b"]), rows.select(["b"])])


def test_rows_of_any_number_of_files_lie_where_the_layout_says(tmp_path, monkeypatch):
    """Layouts are joined a few at a time."""
    monkeypatch.setattr(concat, "MAX_LAYOUTS", 3)
    paths = [tmp_path / f"{number}.npy" for number in range(10)]
    for number, path in enumerate(paths):
        np.save(path, 100 * number + np.arange(number % 4 + 1.0))
    for count in range(2, 11):
        table = cp.open(paths[:count])
        expected = np.concatenate([np.load(path) for path in paths[:count]])
        with cp.Loader(table, batch_size=64, order="no_shuffle") as loader:
            assert table.layout(table.schema.names) is not None
            assert next(iter(loader))[table.schema.names[0]].ravel().tolist() == expected.tolist()
