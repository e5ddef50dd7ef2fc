"""Views obey the table laws, over tables in memory, in files, and over other views."""

import importlib
import pickle
import pkgutil
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import tables
from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.tables import Subset
from corgipile.tables.concat import ConcatTable
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import MaskTable, TakeTable
from corgipile.tables.table import Table
from corgipile.tables.views import mask_rows
from corgipile.testing import Counting, check_table

ROWS = 150


@pytest.fixture(scope="module", params=["memory", "arrow", "parquet"])
def opened(request, rows_of, folder):
    rows = rows_of(ROWS, 3, nulls=True)
    if request.param == "memory":
        return rows, cp.open(pa.concat_tables([rows.slice(0, 70), rows.slice(70)]))
    if request.param == "parquet":
        rows = rows.drop_columns(["nothing here", "map"])
        pq.write_table(rows, folder / "t.parquet", row_group_size=40)
        return rows, cp.open(folder / "t.parquet")
    with pa.ipc.new_file(str(folder / "t.arrow"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=17)
    return rows, cp.open(folder / "t.arrow")


@given(st.integers(0, 10**6))
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_view_of_a_view_has_the_rows_it_should(opened, seed):
    rows, table = opened
    rng = np.random.default_rng(seed)
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(0, 4)
        if kind == 0:
            start, stop = sorted(rng.integers(-len(table), len(table) + 2, 2).tolist())
            table, rows = table.slice(start, stop), rows.take(pa.array(np.arange(rows.num_rows)[start:stop]))
        elif kind == 1:
            names = rng.permutation(rows.schema.names)[: rng.integers(3, 9)].tolist()
            names += [name for name in ("label", "small") if name not in names]
            table, rows = table.select(names), rows.select(names)
        elif kind == 2:
            wanted = (pc.field("label") < int(rng.integers(0, 4))) | (pc.field("small") > int(rng.integers(0, 100)))
            table, rows = table.filter(wanted), rows.filter(wanted)
        else:
            mask = rng.random(rows.num_rows) < rng.random()
            table, rows = mask_rows(table, RowMask.of(mask)), rows.filter(pa.array(mask))
    check_table(table, rows, seed)


@given(st.integers(0, 10**6), st.sampled_from([0, 1, 3, 511, 512, 513, 2000]))
@settings(max_examples=40, deadline=None)
def test_bits(seed, rows):
    rng = np.random.default_rng(seed)
    mask = rng.random(rows) < rng.random() ** 2
    at = sorted(rng.integers(0, rows + 1, 3).tolist())
    bits = RowMask.joined(np.split(mask, at))
    numbers = np.flatnonzero(mask)
    assert len(bits) == len(numbers)
    assert bits.runs == np.count_nonzero(np.diff(mask.astype(int), prepend=0) == 1)
    assert np.array_equal(bits.rows(np.arange(len(bits))), numbers)
    assert np.array_equal(bits.before(np.arange(rows + 1)), np.append(0, np.cumsum(mask)))
    start, stop = sorted(rng.integers(0, len(bits) + 1, 2).tolist())
    assert np.array_equal(bits.within(start, stop), numbers[start:stop])
    assert np.array_equal(np.concatenate([np.zeros(0, int), *bits.flipped(rows).parts()]), np.flatnonzero(~mask))
    assert pickle.loads(pickle.dumps(bits)).digest == bits.digest  # noqa: S301
    table = cp.open(pa.table({"row": np.arange(rows)}))
    found = mask_rows(table, bits)
    assert found.read(0, len(found))["row"].to_pylist() == numbers.tolist()


def test_bits_refuse_what_is_not_there():
    bits = RowMask.of([True, False, True])
    for ask in (bits.rows, bits.before):
        with pytest.raises(ValueError, match="must lie within the bits"):
            ask(np.array([-1]))
    with pytest.raises(ValueError, match="must lie within the bits"):
        bits.rows(np.array([2]))


def test_a_random_part_takes_bits_and_a_stretch_takes_runs():
    table = cp.open(pa.table({"row": np.arange(100_000)}))
    part = mask_rows(table, RowMask.of(np.arange(100_000) % 10 == 0))
    assert isinstance(part, MaskTable)
    assert part.bits.nbytes < 1.2 * 100_000 / 8
    stretch = table.filter((pc.field("row") > 9) & (pc.field("row") < 90_000))
    assert isinstance(stretch, Subset)
    assert stretch.runs.tolist() == [[10, 90_000]]
    assert isinstance(
        part.filter(pc.field("row") < 500).table, type(table)
    )  # row numbers of the table, not of the part
    assert table.filter(pc.field("row") >= 0) is table
    assert len(table.filter(pc.field("row") < 0)) == 0


def test_a_filter_reads_its_columns_once_and_keeps_no_null():
    rows = pa.table({"x": [1, None, 3], "y": [b"a" * 999] * 3, "z": pa.array([{"a": 1}, {"a": 2}, None])})
    table = Counting(cp.open(rows))
    found = tables.filter(table, pc.field("x") != 3)
    assert (table.calls, table.rows) == (2, 2 * 3 - 2) or table.rows <= 3 + 64
    assert found.read(0, 1)["x"].to_pylist() == [1]
    assert len(found) == 1
    nested = cp.open(rows).filter(pc.field("z", "a") == 2)
    assert nested.read(0, 1)["y"].to_pylist() == [b"a" * 999]
    assert len(cp.open(rows).filter(pc.scalar(False))) == 0  # noqa: FBT003


def test_what_is_no_filter():
    table = cp.open(pa.table({"x": [1, 2], "t": ["a", "b"]}))
    with pytest.raises(MissingColumn, match="the table has 'x', 't'"):
        table.filter(pc.field("year") > 2020)
    with pytest.raises(BadArgument, match=r"must be an expression .* got str"):
        table.filter("x > 1")
    with pytest.raises(BadArgument, match="must be true or false for each row, got int64"):
        table.filter(pc.field("x"))
    with pytest.raises(BadSchema, match="cannot be computed"):
        table.filter(pc.field("t") + pc.field("x") > 1)
    with pytest.raises(BadSchema, match="cannot be computed for rows 0 to 2: divide by zero"):
        table.filter(pc.field("x") / 0 > 1)


def test_columns_are_those_named():
    table = cp.open(pa.table({"x": [1, 2], "y": [3, 4], "z": [5, 6]}))
    assert table.select(["z", "x"]).select(["x"]).schema.names == ["x"]
    assert table.select(["x", "y", "z"]) is table
    assert table.select(["x"]).fingerprint != table.select(["y"]).fingerprint
    with pytest.raises(MissingColumn, match="no column 'w'"):
        table.select(["w"])
    for wrong in ("x", [], ["x", "x"]):
        with pytest.raises(BadArgument, match="a list of different columns, at least one"):
            table.select(wrong)
    with pytest.raises(MissingColumn, match="no column 'z'"):
        table.select(["x"]).read(0, 1, ["z"])


def test_slices_count_as_python_does():
    table = cp.open(pa.table({"x": range(10)}))
    for start, stop in ((2, 5), (-3, None), (0, -4), (5, 3), (8, 99), (-99, 2)):
        part = table.slice(start, stop)
        assert part.read(0, len(part))["x"].to_pylist() == list(range(10))[slice(start, stop)]
    assert table.slice() is table
    with pytest.raises(BadArgument, match="start must be a whole number"):
        table.slice(1.5)


def test_concat_finds_columns_by_name():
    one, other = pa.table({"x": [1], "label": [0]}), pa.table({"label": [1], "x": [2]})
    joined = cp.concat([one, other, cp.open(one).slice(0, 1)])
    check_table(joined, pa.table({"x": [1, 2, 1], "label": [0, 1, 0]}))
    assert cp.concat([one]).schema.names == ["x", "label"]
    with pytest.raises(BadSchema, match="column 'x' is string; in "):
        cp.concat([one, pa.table({"x": ["a"], "label": [1]})])
    with pytest.raises(BadSchema, match="has a column 'more', which"):
        cp.concat([one, other.append_column("more", [[1]])])
    with pytest.raises(BadArgument, match="at least one"):
        cp.concat([])
    with pytest.raises(BadArgument, match="tables must be a list"):
        cp.concat("a.arrow")


def test_rows_by_number(opened):
    rows, table = opened
    numbers = np.random.default_rng(1).integers(0, ROWS, 40)
    check_table(TakeTable(table, numbers), rows.take(pa.array(numbers)))


@pytest.mark.parametrize("share", [0.9, 0.1, 0.003])
@pytest.mark.parametrize("kind", ["memory", "arrow"])
@pytest.mark.parametrize("order", ["riffle", "corgipile", "full", "no_shuffle", "sliding_window"])
def test_a_loader_reads_a_random_part_in_place(tmp_path, share, kind, order):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((20_000, 30)).astype(np.float32)
    columns = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 30)
    rows = pa.table({"features": columns, "row": np.arange(20_000)})
    if kind == "arrow":
        with pa.ipc.new_file(str(tmp_path / "t.arrow"), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=7000)
        table = cp.open(tmp_path / "t.arrow")
    else:
        table = cp.open(pa.concat_tables([rows.slice(0, 7000), rows.slice(7000)]))
    kept = np.flatnonzero(rng.random(20_000) < share)
    part = mask_rows(table, RowMask.of(np.isin(np.arange(20_000), kept)))
    seen = []
    with cp.Loader(part, batch_size=64, order=order, memory="400KB", seed=5) as loader:
        for batch in loader:
            assert np.array_equal(batch["features"], features[batch["row"]])
            seen.append(batch["row"].copy())
        assert type(loader.feeder._reader()).__name__ == "LayoutReader"
    assert np.array_equal(np.sort(np.concatenate(seen)), kept)


def test_the_kernel_refuses_bits_that_do_not_fit():
    from corgipile import _kernel  # noqa: PLC0415

    bits = RowMask.of([True] * 10)
    for rows, words, ranks in (
        (9, bits.words, bits.ranks),
        (10, bits.words, bits.ranks * 0),
        (10, bits.words[:4], bits.ranks),
    ):
        reader = _kernel.reader_new(1, 16, rows)
        with pytest.raises(ValueError, match=r"must select \d+ rows"):
            _kernel.reader_pick(reader, words, ranks)
    reader = _kernel.reader_new(1, 16, 10)
    starts, target = np.array([0, 10]), np.zeros(16, np.int64)
    rows = np.arange(100)
    offsets, files = np.array([rows.ctypes.data]), np.array([-2], np.int32)
    _kernel.reader_column(reader, starts, offsets, files, target, at=0, stride=8, items=1, from_type=6, to_type=6)
    with pytest.raises(ValueError, match="must select 10 rows of the columns"):
        _kernel.reader_pick(
            reader, RowMask.of([False] * 5 + [True] * 10).words, RowMask.of([False] * 5 + [True] * 10).ranks
        )


def test_every_table_of_ours_has_views_as_methods():
    made = []
    for found in pkgutil.walk_packages(tables.__path__, "corgipile.tables."):
        kinds = vars(importlib.import_module(found.name)).values()
        made += [kind for kind in kinds if isinstance(kind, type) and kind.__module__ == found.name]
    ours = {kind for kind in made if hasattr(kind, "read") and hasattr(kind, "cuts") and Protocol not in kind.__mro__}
    assert {tables.CsvTable, tables.JsonLinesTable, tables.WebDatasetTable, ConcatTable} < ours
    assert [kind for kind in ours if not issubclass(kind, Table)] == []


def test_text_has_views(tmp_path):
    (tmp_path / "t.csv").write_text("x,label\n1,0\n2,1\n3,1\n")
    (tmp_path / "t.jsonl").write_text('{"x": 1, "label": 0}\n{"x": 2, "label": 1}\n{"x": 3, "label": 1}\n')
    for name in ("t.csv", "t.jsonl"):
        part = cp.open(tmp_path / name).filter(pc.field("label") == 1).slice(1).select(["x"])
        assert part.read(0, len(part)).to_pydict() == {"x": [3]}
