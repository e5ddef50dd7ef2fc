"""Tables of data frames, sparse matrices, datasets and streams."""

import logging
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, ReadFailed
from corgipile.tables import ArrowStream, MemoryTable, ParquetTable
from corgipile.tables.in_memory import streams
from corgipile.tables.in_memory.streams import SpilledTable
from corgipile.testing import check_table


def rows_of(table, name):
    return table.read(0, len(table), [name]).column(0).to_pylist()


def test_pandas_columns_stay_where_they_lie():
    pd = pytest.importorskip("pandas")
    columns = {f"x{i}": np.random.default_rng(i).random(1000).astype(np.float32) for i in range(28)}
    frame = pd.DataFrame(columns)
    table = cp.open(frame)
    found = table.location(list(columns)).layout.columns
    assert [int(found[name].offsets[0]) for name in columns] == [frame[name].to_numpy().ctypes.data for name in columns]
    check_table(table, pa.table(columns))


def test_pandas_of_all_kinds(caplog):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "nan": [1.0, np.nan, 3.0],
            "text": ["a", None, "c"],
            "kind": pd.Categorical(["u", "v", "u"]),
            "when": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "zone": pd.to_datetime(["2020-01-01"] * 3).tz_localize("UTC"),
            "whole": pd.array([1, None, 3], "Int64"),
            "truth": [True, False, True],
            "arrow": pd.array([1, None, 2], "int8[pyarrow]"),
            "object": [{"a": 1}, None, {"a": 2}],
            "list": [[1], [2, 3], []],
            7: pd.arrays.SparseArray([0, 0, 5]),
        }
    )
    table = cp.open(frame)
    assert table.schema.names == [str(name) for name in frame.columns]
    assert table.read(0, 3).column(0).null_count == 0
    nulls = {"text": 1, "when": 1, "whole": 1, "arrow": 1, "object": 1}
    for name in table.schema.names[1:]:
        assert rows_of(table, name).count(None) == nulls.get(name, 0), name
    assert rows_of(table, "kind") == ["u", "v", "u"]
    assert rows_of(table, "7") == [0, 0, 5]
    assert rows_of(table, "list") == [[1], [2, 3], []]
    assert not caplog.records


def test_empty_cells_of_pandas_are_null():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(100.0), "label": [0, 1] * 50, "t": np.array(["u"] * 100, object)})
    frame.loc[5, "t"] = np.nan
    frame.loc[6, "t"] = pd.NaT
    frame["truth"] = np.array([True, np.nan] * 50, object)
    frame["score"] = np.array([1.5, np.nan] * 50, object)
    frame["none"] = np.array([np.nan] * 100, object)
    check_table(cp.open(frame.drop(columns="none")), pa.Table.from_pandas(frame.drop(columns="none")))
    table = cp.open(frame)
    assert np.isnan(rows_of(table, "none")).all()
    assert rows_of(table, "t")[4:8] == ["u", None, None, "u"]
    assert cp.train(frame, features=["a"]).features == ("a",)


def test_what_pandas_may_hide(caplog):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"user": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    with caplog.at_level(logging.WARNING, "corgipile"):
        assert cp.open(frame.set_index("user")).schema.names == ["x"]
    assert "the index user of the data frame is dropped; keep it as a column with reset_index()" in caplog.text
    assert rows_of(cp.open(frame[frame.x > 1]), "user") == [2, 3]
    assert rows_of(cp.open(frame.iloc[::-2]), "x") == [3, 1]
    with pytest.raises(BadSchema, match="2 columns named 'x'"):
        cp.open(pd.DataFrame(np.zeros((2, 2)), columns=["x", "x"]))
    with pytest.raises(BadArgument, match="must have at least one column"):
        cp.open(pd.DataFrame(index=[1, 2]))
    with pytest.raises(BadArgument, match=r"a Series of pandas must be made a table first; call to_frame\(\)"):
        cp.open(frame.x)
    with pytest.raises(BadSchema, match="the values of column 'x' must have one Arrow type"):
        cp.open(pd.DataFrame({"x": [1, "a"]}))
    with pytest.raises(BadSchema, match=r"column 'x' must be .*, got complex128"):
        cp.open(pd.DataFrame({"x": [1j]}))
    assert len(cp.open(frame[:0])) == 0


def test_polars():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {"x": [1.5, None, 3.0], "text": ["a", "b", None], "kind": pl.Series(["u", "v", "u"], dtype=pl.Categorical)}
    )
    table = cp.open(frame)
    assert [rows_of(table, name) for name in table.schema.names] == [
        [1.5, None, 3.0],
        ["a", "b", None],
        ["u", "v", "u"],
    ]
    assert sum(len(batch["text"]) for batch in cp.Loader(table, columns=["text"])) == 3
    with pytest.raises(BadArgument, match=r"collect\(\) it, or sink_ipc"):
        cp.open(frame.lazy())
    with pytest.raises(BadArgument, match="a Series of polars must be made a table first"):
        cp.open(frame["x"])


def test_categories_of_pandas_keep_their_order():
    pd = pytest.importorskip("pandas")
    sizes = pd.Categorical(["low", None, "high"], ["low", "mid", "high"], ordered=True)
    table = cp.open(pd.DataFrame({"size": sizes, "code": pd.Categorical([3, 1, None])}))
    assert [table.schema.field(name).type.ordered for name in table.schema.names] == [True, False]
    assert table.read(0, 3)["size"].dictionary.to_pylist() == ["low", "mid", "high"]
    assert rows_of(table, "size") == ["low", None, "high"]
    assert rows_of(table, "code") == [3, 1, None]
    with pytest.raises(BadSchema, match="the values of column 'x' must have one Arrow type"):
        cp.open(pd.DataFrame({"x": pd.Categorical([1, "a"])}))


def test_text_of_polars_is_no_view_wherever_it_is():
    pl = pytest.importorskip("polars")
    kinds = {"enum": pl.Enum(["v", "u"]), "kind": pl.Categorical, "lists": pl.List(pl.Categorical)}
    rows = {"enum": ["u", None, "v"], "kind": ["u", "v", "u"], "lists": [["u"], [], None], "text": [["a"]] * 3}
    frame = pl.DataFrame(rows, schema_overrides=kinds).with_columns(label=pl.Series([0, 1, 0]))
    table = cp.open(frame)
    assert "view" not in str(table.schema.types)
    assert table.schema.field("enum").type.ordered
    with cp.Loader(table, batch_size=2, order="no_shuffle", format="arrow") as loader:
        assert pa.Table.from_batches(loader).select([*rows]).to_pydict() == rows
    assert cp.train(table, features=["kind"], encode="onehot", epochs=1).width == 2
    coded = pa.DictionaryArray.from_arrays([0, 0], pa.array(["a"], pa.string_view()))
    assert "view" not in str(cp.open(Stream(pa.table({"x": coded}))).schema)
    with pytest.raises(BadSchema, match="column 'x' must be of an Arrow type, got Int128"):
        cp.open(pl.DataFrame({"x": pl.Series([1], dtype=pl.Int128)}))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_sparse_matrices_are_left_as_they_are(form):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.coo_array(([1.0, 2.0, 3.0, 4.0], ([0, 2, 2, 2], [1, 3, 0, 3])), (4, 9)).asformat(form)
    before = matrix.toarray()
    table = cp.open((matrix, [0, 1, 1, 0]))
    assert rows_of(table, "features_k") == [[1], [], [0, 3], []]
    assert rows_of(table, "features_v") == [[1.0], [], [3.0, 6.0], []]
    assert table.schema.metadata[b"corgipile.dims"] == b"9"
    assert np.array_equal(matrix.toarray(), before)
    assert cp.train(table, epochs=1).width == 9


def test_sparse_numbers_stay_where_they_lie_and_unsorted_ones_are_sorted():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    values = cp.open(matrix).read(0, 3, ["features_v"]).column(0).values
    assert values.buffers()[1].address == matrix.data.ctypes.data
    odd = sparse.csr_array((np.array([2.0, 1.0]), np.array([1, 0]), np.array([0, 2])), (1, 2))
    assert rows_of(cp.open(odd), "features_k") == [[0, 1]]
    assert odd.indices.tolist() == [1, 0]
    with pytest.raises(BadSchema, match="a sparse matrix must be numeric with two axes"):
        cp.open(sparse.csr_array(np.eye(2, dtype=complex)))


def test_hugging_face_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict({"x": range(200), "text": [str(i) for i in range(200)]})
    assert rows_of(cp.open(made), "x") == list(range(200))
    with pytest.raises(BadArgument, match="must be opened by split; open one of train, test"):
        cp.open(datasets.DatasetDict({"train": made, "test": made}))
    with pytest.raises(BadArgument, match="must be a dataset with rows in Arrow"):
        cp.open(made.to_iterable_dataset())
    made.save_to_disk(str(tmp_path / "d"), num_shards=3)
    stored = datasets.load_from_disk(str(tmp_path / "d"))
    table = cp.open(stored)
    assert {type(part) for part in table.tables} == {ArrowStream}
    assert rows_of(table, "x") == list(range(200))
    small = datasets.Value("int32")
    for view in (
        stored.select(range(50, 120)), stored.shuffle(seed=1), stored.filter(lambda row: row["x"] % 3 == 0),
        stored.remove_columns("text"), stored.shuffle(seed=2).select(range(20)), stored.rename_column("text", "t"),
        datasets.concatenate_datasets([stored.select(range(10)), stored]), stored.cast_column("x", small),
    ):  # fmt: skip
        found = cp.open(view)
        assert found.schema.names == view.column_names
        assert rows_of(found, "x") == view["x"][:]
    again = pickle.loads(pickle.dumps(cp.open(made.rename_column("text", "t"))))  # noqa: S301
    assert rows_of(again, "x") == list(range(200))


def test_arrow_datasets(tmp_path):
    rows = pa.table(
        {"x": range(100), "year": [2000 + i // 50 for i in range(100)], "text": [str(i) for i in range(100)]}
    )
    pds.write_dataset(rows, tmp_path / "d", format="parquet", partitioning=["year"], partitioning_flavor="hive")
    dataset = pds.dataset(tmp_path / "d", format="parquet", partitioning="hive")
    table = cp.open(dataset)
    assert isinstance(table.tables[0].table.table, ParquetTable)
    assert table.schema.names == dataset.schema.names
    assert table.read(0, 100).to_pylist() == dataset.to_table().to_pylist()
    filtered = cp.open(dataset.filter(pc.field("x") > 30).filter(pc.field("year") == 2000))
    assert rows_of(filtered, "x") == list(range(31, 50))
    assert rows_of(cp.open(pds.dataset(rows)), "x") == list(range(100))
    assert rows_of(cp.open(dataset.scanner(columns=["x"])), "x") == list(range(100))
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=10)
    fragment = next(iter(pds.dataset(tmp_path / "a.parquet").get_fragments())).subset(row_group_ids=[1, 3])
    part = pds.FileSystemDataset([fragment], fragment.physical_schema, fragment.format, fragment.filesystem)
    assert rows_of(cp.open(part), "x") == [*range(10, 20), *range(30, 40)]


def test_relations_of_duckdb():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("select range as x, 'row ' || range as text, (range % 2)::float as label from range(5000)")
    table = cp.open(relation)
    assert rows_of(table, "x") == list(range(5000))
    assert len(table.read(0, 5000).to_pydict()["text"]) == 5000
    assert cp.train(table, features="x", epochs=1).width == 1


class Stream:
    """An object with Arrow's C interface only."""

    def __init__(self, rows):
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)


def parts_of(rows):
    yield from rows.to_batches(max_chunksize=7)


def test_streams_and_generators(rows_of):
    rows = rows_of(60, 1, nulls=True)
    for source in (Stream(rows), rows.to_reader(), parts_of(rows), iter([rows.slice(0, 30), rows.slice(30)])):
        check_table(cp.open(source), rows)
    coded = pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert rows_of_batch(cp.open(Stream(coded))) == ["a", "b", "a"]
    assert rows_of_batch(cp.open(Stream(pa.table({"v": pa.array(["a"], pa.string_view())})))) == ["a"]
    assert len(cp.open(rows.slice(0, 0).to_reader())) == 0


def rows_of_batch(table):
    return table.read(0, len(table)).column(0).to_pylist()


def test_what_a_generator_should_not_yield():
    with pytest.raises(BadArgument, match="a generator must yield at least one record batch"):
        cp.open(batch for batch in ())
    with pytest.raises(BadArgument, match="must yield record batches of pyarrow, got a int as item 0"):
        cp.open(iter([1, 2]))
    with pytest.raises(BadSchema, match="must yield equal columns, 'x':int64, got 'x':string as item 1"):
        cp.open(iter([pa.record_batch({"x": [1]}), pa.record_batch({"x": ["a"]})]))

    def failing():
        yield pa.record_batch({"x": [1]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cp.open(failing())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), failing())
    with pytest.raises((ReadFailed, ZeroDivisionError)):
        cp.open(reader)


@pytest.fixture
def spilled(monkeypatch, tmp_path):
    monkeypatch.setattr(streams, "IN_MEMORY", 10_000)
    monkeypatch.setattr(streams, "JOINED_BYTES", 2_000)

    def make(rows, **options):
        return cp.open(parts_of(rows), **({"spill": tmp_path} | options))

    return make


def test_more_than_a_bound_is_spilled(spilled, rows_of, tmp_path):
    rows = rows_of(400, 2, nulls=True)
    table = spilled(rows)
    assert isinstance(table, SpilledTable)
    check_table(table, rows)
    assert list(tmp_path.iterdir()) == []  # an unnamed file
    kept = spilled(rows, spill="off")
    assert isinstance(kept, MemoryTable)
    assert kept.fingerprint == table.fingerprint
    assert table.location(["label"]).layout.paths[0].startswith("/proc/self/fd/")


def test_processes_share_a_spilled_table_while_it_lives(spilled, rows_of):
    table = spilled(rows_of(400, 2))
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(len, (table,)) == 400
    script = f"import pickle; print(len(pickle.loads({pickle.dumps(table)!r})))"
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, check=True).stdout.strip() == b"400"
    del table
    gone = subprocess.run(run, capture_output=True, text=True, check=False).stderr
    assert "write rows that are needed later to a file" in gone
    assert os.getpid()


def test_objects_of_polars_are_refused():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [1, 2], "o": pl.Series("o", [object(), {1}], dtype=pl.Object)})
    with pytest.raises(BadSchema, match="column 'o' must be of an Arrow type, got Object"):
        cp.open(frame)
