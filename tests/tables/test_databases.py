"""Tables of SQLite and DuckDB: rows by rowid, types, several tables, concurrent use."""

import os
import pickle
import sqlite3

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile, MissingFile, ReadFailed, UnknownFormat
from corgipile.loader.budget import columns_of, fit
from corgipile.orders import named
from corgipile.tables import open as open_table
from corgipile.tables.encoded import unpack_shared
from corgipile.testing import check_damaged, check_table

ROWS = 300


def row(k):
    return (None if k % 4 == 0 else k, k / 2, f"né {k}", bytes(k % 5), "2020-01-01", k / 4 if k % 2 else k, "q")


NAMES = ("i", "x", "s", "b", "d", "n", 'a "b" c')


def make(path, mode="delete"):
    database = sqlite3.connect(path)
    database.execute(f"pragma journal_mode={mode}")
    database.execute('create table t (i integer, x real, s text, b blob, d date, n numeric, "a ""b"" c" varchar(9))')
    database.executemany("insert into t values (?,?,?,?,?,?,?)", map(row, range(ROWS)))
    database.commit()
    return database


def written(numbers):
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.string(), pa.float64(), pa.string())
    columns = zip(*map(row, numbers), strict=True)
    return pa.table({name: pa.array(list(one), kind) for name, one, kind in zip(NAMES, columns, kinds, strict=True)})


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_sqlite_with_and_without_gaps(tmp_path, mode):
    database = make(tmp_path / "a.db", mode)
    check_table(open_table(tmp_path / "a.db"), written(range(ROWS)))
    database.execute("delete from t where rowid % 7 = 3 or rowid between 100 and 180")
    database.commit()
    left = [k for k in range(ROWS) if (k + 1) % 7 != 3 and not 100 <= k + 1 <= 180]
    table = open_table(tmp_path / "a.db")
    check_table(table, written(left))
    assert "convert" in table.advice
    with cp.Loader(table, batch_size=16, columns=["x"]) as loader:
        assert sorted(float(x) for batch in loader for x in batch["x"]) == [k / 2 for k in left]
    process = os.fork()
    if not process:
        same = table.read(0, 5).to_pylist() == written(left).slice(0, 5).to_pylist()
        os._exit(0 if same else 1)
    assert os.waitpid(process, 0)[1] == 0
    database.close()


def test_sqlite_that_changes_is_noticed(tmp_path):
    database = make(tmp_path / "a.db", "wal")
    table = open_table(tmp_path / "a.db")
    table.read(0, 3)
    packed = pickle.dumps(table)
    database.execute("update t set x = 7 where rowid = 1")
    database.commit()
    for call in (lambda: table.read(0, 1), lambda: table.take(np.array([200]))):
        with pytest.raises(CorruptFile, match=r"a\.db has changed since it was opened"):
            call()
    assert pickle.loads(packed).fingerprint != table.fingerprint  # noqa: S301
    assert open_table(tmp_path / "a.db").read(0, 1, ["x"]).to_pylist() == [{"x": 7.0}]  # rows in the log count
    database.close()


def test_sqlite_tables_are_named(tmp_path):
    database = make(tmp_path / "a.db")
    database.execute("create table u (a, b)")
    database.execute("create table keyed (a integer primary key) without rowid")
    database.executemany("insert into u values (?, ?)", [(1, "x"), (2, 3)])
    database.commit()
    with pytest.raises(BadArgument, match=r"3 tables: 't', 'u', 'keyed'; select one by table="):
        open_table(tmp_path / "a.db")
    with pytest.raises(BadArgument, match="no table 'tt'"):
        open_table(tmp_path / "a.db", table="tt")
    with pytest.raises(BadSchema, match="column 'b' must hold values of one type, got int64, string"):
        open_table(tmp_path / "a.db", table="u")
    with pytest.raises(BadSchema, match="WITHOUT ROWID"):
        open_table(tmp_path / "a.db", table="keyed")
    assert len(open_table(tmp_path / "a.db", table="t")) == ROWS
    with pytest.raises(cp.errors.WouldOverwrite):
        cp.convert(open_table(tmp_path / "a.db", table="t"), tmp_path / "a.db", overwrite=True)
    database.execute("insert into t (i) values ('junk')")
    database.commit()
    with pytest.raises(BadValue, match="column 'i', about row 300: the value must be int64, got 'junk'"):
        open_table(tmp_path / "a.db", table="t").read(299, 301)
    database.close()
    sqlite3.connect(tmp_path / "empty.db").execute("create table x (a)").connection.execute(
        "drop table x"
    ).connection.close()
    with pytest.raises(UnknownFormat, match="without tables"):
        open_table(tmp_path / "empty.db")


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_sqlite_file(folder, damage, data):
    good = folder / "good.db"
    if not good.exists():
        make(good).close()
    path = folder / "bad.db"
    path.write_bytes(data.draw(damage(good.read_bytes())))
    check_damaged(path, lambda: open_table(path, format="sqlite"))


@pytest.fixture(scope="module")
def duck(tmp_path_factory):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path_factory.mktemp("duck") / "a.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "create table t as select i, i / 2 as x, 'né ' || i as s, [i, i + 1] as l, i % 2 = 0 as b, "
            "(i % 3)::varchar::enum('0', '1', '2') as e, {'a': i} as st, i::decimal(10, 2) as d, uuid() as u "
            "from range(400) r(i)"
        )
        database.execute("delete from t where i % 7 = 3 or i between 100 and 180")
        database.execute("create schema other; create table other.t as select 1 as x")
    return path


def test_duckdb(duck):
    table = open_table(duck, table="t")
    left = [i for i in range(400) if i % 7 != 3 and not 100 <= i <= 180]
    found = pa.Table.from_batches([table.read(0, len(table))])
    assert found["i"].to_pylist() == left
    assert found["e"].to_pylist() == [str(i % 3) for i in left]
    assert found["st"].to_pylist() == [{"a": i} for i in left]
    check_table(table, found)
    assert open_table(duck, table="other.t").read(0, 1).to_pylist() == [{"x": 1}]
    with pytest.raises(BadArgument, match=r"2 tables: '.*'; select one by table="):
        open_table(duck)
    with cp.Loader(table, batch_size=16, columns=["i"], memory="64KB") as loader:
        assert sorted(int(i) for batch in loader for i in batch["i"]) == left
    process = os.fork()
    if not process:
        os._exit(0 if table.take(np.array([5, 0]), ["i"]).to_pylist() == [{"i": 6}, {"i": 0}] else 1)
    assert os.waitpid(process, 0)[1] == 0


def test_duckdb_of_long_rows(tmp_path):
    """DuckDB allocates 2,048 rows at a time, however long, which exceeds its initial limit."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as database:
        database.execute("create table t as select i, repeat('x', 1000000 + i::int) as s from range(40) r(i)")
    for spill in (tmp_path, "off"):
        table = open_table(tmp_path / "a.duckdb", spill=spill)
        assert [len(row) for row in table.take(np.array([30, 2]), ["s"])["s"].to_pylist()] == [1_000_030, 1_000_002]
        with cp.Loader(table, batch_size=4, memory="32MB") as loader:
            assert sorted(len(row) for batch in loader for row in batch["s"]) == [1_000_000 + i for i in range(40)]


@pytest.mark.parametrize("spill", [None, "off"])
def test_duckdb_as_it_lies(duck, spill):
    table = open_table(duck, table="t", spill=spill)
    parts = [table.read(start, min(len(table), start + 50), ["s", "i"]) for start in range(0, len(table), 50)]
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([table.read(0, len(table), ["s", "i"])]))


def test_duckdb_that_is_open_in_this_process(duck):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(duck)) as database:
        with pytest.raises(ReadFailed, match=r"connection\.table"):
            open_table(duck, table="t")
        assert len(open_table(database.table("t"))) > 200
    with pytest.raises(MissingFile):
        open_table(duck.with_name("no.duckdb"))


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_damaged_duckdb_file(folder, duck, damage, data):
    path = folder / "bad.duckdb"
    path.write_bytes(data.draw(damage(duck.read_bytes())))
    check_damaged(path, lambda: open_table(path, format="duckdb", table="t"))


def test_duckdb_is_unpacked_by_one_process_where_its_library_would_fill_the_budget_of_each(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as database:
        database.execute("create table t as select i, i / 2 as x from range(2500000) r(i)")
    table = open_table(tmp_path / "a.duckdb", spill=tmp_path)
    columns = columns_of(table)
    ways = {memory: fit(table, named("no_shuffle"), memory, columns, 2).way for memory in ("16MB", "32MB", "128MB")}
    assert [way.spilled for way in ways.values()] == [True, True, False]
    unpacked = unpack_shared(table, table.schema.names)
    library = table._instance().sql("select sum(memory_usage_bytes) from duckdb_memory()").fetchall()[0][0]
    assert library <= 2 << 20
    assert unpacked.read(2_000_000, 2_000_001).to_pylist() == [{"i": 2_000_000, "x": 1e6}]


@pytest.mark.parametrize("gap", [False, True])
def test_rows_that_a_damaged_table_lacks_are_an_error(tmp_path, gap):
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as database:
        database.execute("pragma page_size=512")
        database.execute("create table t (i integer primary key, x real, pad text)")
        ids = [k + 100 * (gap and k > 5) for k in range(60)]
        database.executemany("insert into t values (?, ?, ?)", ((one, one / 2, "p" * 60) for one in ids))
        database.execute("create index by_x on t (x)")  # used to count rows
    database.close()
    data = bytearray(path.read_bytes())
    leaf = next(at for at in range(512, len(data), 512) if data[at] == 13 and data[at + 4] == 6)
    data[leaf + 4] -= 3  # of the cells of this page
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match="rows"):
        open_table(path).take(np.arange(60))
    if not gap:
        with pytest.raises(CorruptFile, match="rows"):
            open_table(path).read(0, 40)
