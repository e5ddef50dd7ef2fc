"""Connections and cursors: DB-API 2.0, Arrow, transactions, several open results."""

import datetime as dt
import threading

import numpy as np
import pyarrow as pa
import pytest

import corgipile.sql as db
from corgipile.errors import BadArgument, BadStatement, CorgiPileError
from corgipile.sql.engines.engine import Result
from corgipile.sql.types import BINARY, DATETIME, NUMBER, STRING

MANY = "SELECT i FROM range(300000) AS r (i)"


@pytest.fixture
def sql():
    with db.connect() as connection:
        yield connection


def test_the_module_says_what_it_has():
    assert (db.apilevel, db.threadsafety, db.paramstyle) == ("2.0", 1, "qmark")
    for name in ("InterfaceError", "DatabaseError", "OperationalError", "IntegrityError", "ProgrammingError"):
        kind = getattr(db, name)
        assert issubclass(kind, db.Error)
        assert getattr(db.Connection, name) is kind
    assert db.Error is CorgiPileError
    assert issubclass(db.DataError, db.DatabaseError)


def test_types_and_values_of_dbapi():
    assert {db.STRING, db.BINARY, db.NUMBER, db.DATETIME} == {STRING, BINARY, NUMBER, DATETIME}
    assert db.ROWID not in (STRING, BINARY, NUMBER, DATETIME)
    assert db.Connection.Warning is db.Warning
    assert (db.Date(2026, 1, 2), db.Time(3, 4, 5)) == (dt.date(2026, 1, 2), dt.time(3, 4, 5))
    assert db.Timestamp(2026, 1, 2, 3) == dt.datetime(2026, 1, 2, 3)  # noqa: DTZ001
    moment = db.TimestampFromTicks(86400.5)
    assert (db.DateFromTicks(86400.5), db.TimeFromTicks(86400.5)) == (moment.date(), moment.time())
    assert db.Binary(b"x") == b"x"


def test_an_answer_without_columns_has_a_description():
    cursor = db.Cursor(None)
    cursor._set_result(Result(pa.schema([])))
    assert cursor.description == []


def test_rows_are_fetched_as_they_are_asked_for(sql):
    cursor = sql.cursor()
    assert (cursor.description, cursor.rowcount) == (None, -1)
    assert (
        cursor.execute("SELECT i, i::VARCHAR AS s, 'x'::BLOB AS b, DATE '2020-01-02' AS d FROM range(10) r (i)")
        is cursor
    )
    assert [(name, kind) for name, kind, *_ in cursor.description] == [
        ("i", NUMBER), ("s", STRING), ("b", BINARY), ("d", DATETIME),
    ]  # fmt: skip
    assert cursor.fetchone()[:2] == (0, "0")
    assert [row[0] for row in cursor.fetchmany()] == [1]
    with pytest.raises(BadArgument, match="got -1"):
        cursor.fetchmany(-1)
    assert [row[0] for row in cursor.fetchmany(3)] == [2, 3, 4]
    assert next(cursor)[0] == 5
    assert cursor.arrow()["i"].to_pylist() == [6, 7, 8, 9]
    assert (cursor.fetchone(), cursor.fetchall()) == (None, [])
    assert list(sql.execute("SELECT 1 WHERE false")) == []


def test_parameters_of_each_kind(sql):
    assert sql.execute("SELECT ?::INT + ?, ?", [1, 2, "it's"]).fetchall() == [(3, "it's")]
    assert sql.execute("SELECT $2::INT, $1::INT", [1, 2]).fetchall() == [(2, 1)]
    assert sql.execute("SELECT :a::INT, ':b'", {"a": 7}).fetchall() == [(7, ":b")]
    assert sql.execute("SELECT ?::INT[]", [[1, None]]).fetchone() == ([1, None],)
    for script, values in (("SELECT ?", []), ("SELECT :a", {"b": 1}), ("SELECT :a", [1])):
        with pytest.raises(BadArgument, match="has no value"):
            sql.execute(script, values)


@pytest.mark.parametrize(
    ("script", "values", "said"),
    [
        ("SELECT 1 WHERE 1 IN (?)", [1, 2], "2 values were given, but the statement takes 1"),
        ("SELECT 1", ["x"], "1 value was given, but the statement takes 0"),
        ("SELECT ?; SELECT $1", [1, 2, 3], "3 values were given"),
        ("SELECT ?", "x", "values must be a list"),
        ("SELECT ?", 7, "values must be a list"),
        ("SELECT ?", {1, 2}, "values must be a list"),
    ],
)
def test_values_that_do_not_fit(sql, script, values, said):
    with pytest.raises(BadArgument, match=said):
        sql.execute(script, values)
    with pytest.raises(BadArgument, match=said):
        sql.executemany(script, [values])


def test_values_of_numpy_are_those_of_python(sql):
    given = [np.int64(3), np.float32(0.5), np.bool_(1), np.array([1, 2]), np.datetime64("2026-01-02T03:04:05", "ns")]
    assert sql.execute("SELECT ?, ?, ?, ?, ?", given).fetchone() == (
        3, 0.5, True, [1, 2], dt.datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
    )  # fmt: skip
    assert sql.execute("SELECT ?, ?", np.array([1, 2])).fetchone() == (1, 2)
    assert sql.execute("SELECT $2::INT", [1, "7"]).fetchone() == (7,)
    assert sql.execute("SELECT 1", None).fetchone() == (1,)


def test_rows_that_change_are_counted(sql):
    assert sql.execute("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR)").description is None
    assert sql.executemany("INSERT INTO t VALUES (?, ?)", [(i, "x") for i in range(5)]).rowcount == 5
    assert sql.execute("UPDATE t SET b = 'y' WHERE a < 3").rowcount == 3
    assert sql.execute("DELETE FROM t WHERE a = 4 RETURNING a").fetchall() == [(4,)]
    with pytest.raises(db.IntegrityError):
        sql.execute("INSERT INTO t VALUES (1, 'z')")
    with pytest.raises(db.ProgrammingError, match="nosuch"):
        sql.execute("SELECT * FROM nosuch")
    with pytest.raises(db.InterfaceError, match="no rows to fetch"):
        sql.execute("DELETE FROM t").fetchone()


def test_a_script_that_does_not_parse_runs_nothing(sql):
    with pytest.raises(BadStatement):
        sql.execute("CREATE TABLE t (a INT); SELECT * FROM t TRAIN BY")
    assert sql.tables() == {}


def test_answers_under_way_wait_for_one_another(sql):
    first, second = sql.cursor().execute(MANY), sql.cursor()
    assert first.fetchone() == (0,)
    assert second.execute(MANY).fetchmany(2) == [(0,), (1,)]
    sql.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert sum(row[0] for row in first) == sum(range(300000))
    assert len(second.fetchall()) == 299998


def test_transactions(sql):
    sql.execute("CREATE TABLE t (a INT)")
    sql.commit()  # no transaction is open
    sql.begin()
    sql.execute("INSERT INTO t VALUES (1)")
    sql.rollback()
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)
    sql.begin()
    sql.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(db.DataError):
        sql.execute("SELECT 'x'::INT").fetchall()
    sql.rollback()
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_blocks_keep_or_take_back(tmp_path):
    path = tmp_path / "m.duckdb"
    with db.connect(path, autocommit=False) as sql:
        sql.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")

    def fails():
        with db.connect(path, autocommit=False) as sql:
            sql.execute("INSERT INTO t VALUES (2)")
            raise ValueError

    with pytest.raises(ValueError):
        fails()
    with db.connect(path) as sql:
        assert sql.execute("SELECT * FROM t").fetchall() == [(1,)]
    with pytest.raises(db.InterfaceError, match="closed"):
        sql.execute("SELECT 1")
    sql.close()


def test_arrow_and_pandas(sql):
    assert sql.execute(MANY).reader().read_next_batch().num_rows > 1000
    assert sql.execute("SELECT 1::TINYINT AS a").arrow() == pa.table({"a": pa.array([1], pa.int8())})
    frame = pytest.importorskip("pandas").DataFrame({"a": [1, 2]})
    assert sql.execute("SELECT i::BIGINT AS a FROM range(1, 3) r (i)").df().equals(frame)


def test_interruption_by_another_thread(sql):
    long = "SELECT sum(a.i * b.i) FROM range(10000000) a (i), range(100000) b (i)"
    ended = threading.Event()

    def interrupt():
        while not ended.wait(0.2):  # an interrupt before the statement has no effect
            sql.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(db.Interrupted):
        sql.execute(long).fetchall()
    ended.set()
    thread.join()
    assert sql.execute("SELECT 1").fetchone() == (1,)


def test_settings_are_of_connections_that_are_opened_here(sql):
    open_already = sql.engine.session.connection
    for options in ({"read_only": True}, {"memory_limit": "1GB"}):
        with pytest.raises(BadArgument, match=f"'{next(iter(options))}' must be set when"):
            db.connect(open_already, **options)


def test_what_is_no_database_is_told():
    with pytest.raises(BadArgument, match="got 7"):
        db.connect(7)
    with pytest.raises(db.OperationalError, match="nosuch"):
        db.connect(":memory:", nosuch=1)
