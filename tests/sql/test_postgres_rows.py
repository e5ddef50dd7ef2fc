"""Training rows on a server: a table in place, with a condition, or a query."""

# ruff: noqa: S608  # tests write SQL

import pytest
from sqlservers import database, guest, sql

from corgipile.sql.engines.postgres.models import Known
from corgipile.sql.exceptions import DatabaseError, NotSupportedError, OperationalError, ProgrammingError

__all__ = ["database", "guest", "sql"]
pytest.importorskip("psycopg")


def test_who_may_make_no_temporary_table_trains_from_tables_alone(guest):
    for rows in ("SELECT a, b, label FROM t", "SELECT a, b, label FROM t WHERE a > 0"):
        assert len(guest.execute(f"{rows} TRAIN BY svm WITH epochs = 2").fetchall()) == 2
    for settings in ("epochs = 2", "buffer_size = 100%"):
        with pytest.raises(OperationalError, match="GRANT TEMPORARY ON DATABASE"):
            guest.execute(f"SELECT a + 1 AS a, b, label FROM t TRAIN BY svm WITH {settings}")
    assert not guest.engine.in_transaction()
    with pytest.raises(ProgrammingError, match="permission denied for schema"):
        guest.execute("CREATE TABLE public.x AS SELECT * FROM t")


LIES, RUN = "public.t was read in place without copying; WHERE selected its rows", "the query ran once"
SOURCES = {
    "SELECT a, b, label FROM t WHERE i <= ?": (100, LIES),
    "SELECT a, b, label FROM public.t WHERE public.t.i <= 100 AND t.label IS DISTINCT FROM 7 -- all": (100, LIES),
    "SELECT f.a, f.b, f.label FROM t AS f WHERE f.i <= 100 AND f . b >= 0": (100, LIES),
    'SELECT a, b, label FROM t "F g" WHERE "F g".i <= 100 AND \'"F g".i\' <> \'f.i\'': (100, LIES),
    "SELECT a, b, label FROM t AS label WHERE label >= 0 AND label.i <= 100": (100, LIES),
    "SELECT a, b, label FROM t WHERE t.ctid <> '(0,1)'": (199, RUN),
    "SELECT a, b, label FROM t f WHERE f IS NOT NULL": (200, RUN),
    "SELECT a, b, label FROM t WHERE i IN (SELECT i FROM t WHERE i <= 100)": (100, RUN),
    "SELECT a, b, label FROM t WHERE i IN (VALUES (1), (2))": (2, RUN),
    "SELECT a, b, label FROM ONLY t WHERE i <= 100": (100, RUN),
    "SELECT a, b, label FROM t WHERE i <= 100 ORDER BY b": (100, RUN),
    "WITH q AS (SELECT * FROM t LIMIT 10) SELECT a, b, label FROM q WHERE a >= 0": (10, RUN),
    "SELECT a::share AS a, label FROM t": (200, RUN),
    "SELECT a, label FROM shares WHERE a > 0.5": (85, "public.shares was read"),
}


def test_where_rows_come_from(sql):
    """A condition on a table's columns is checked while the table is read; other sources are a query that runs once."""
    sql.execute("""BEGIN; ALTER TABLE t RENAME TO u; CREATE TABLE t AS SELECT row_number() OVER () AS i, * FROM u;
        CREATE DOMAIN share AS float8; CREATE TABLE shares AS SELECT a::share AS a, label FROM t""")
    for query, (rows, told) in SOURCES.items():
        cursor = sql.execute(f"{query}\nTRAIN BY svm WITH epochs = 1 INTO m", [100] if "?" in query else [])
        assert (cursor.fetchone()[7], cursor.notes[0][: len(told)]) == (rows, told), query
        (source,) = sql.execute("SELECT source FROM corgipile.models").fetchone()
        assert source == (query if told == RUN else told.split(" ")[0])
    sql.rollback()


def test_a_condition_is_asked_of_each_row_once(sql):
    found = sql.execute("SELECT a, b, label FROM t WHERE random() < 0.5 TRAIN BY svm WITH epochs = 3").fetchall()
    assert len({row[7] for row in found}) == 1
    for condition, said in (
        ("nope = 1", "LINE 1: SELECT a, b, label FROM t WHERE nope"),
        ("a / 0 > 1", "by zero"),
        ("false", "no row"),
    ):
        with pytest.raises(DatabaseError, match=said):
            sql.execute(f"SELECT a, b, label FROM t WHERE {condition} TRAIN BY svm")


def test_rows_that_are_hidden_and_columns_that_are_computed(sql, guest):
    sql.execute("""BEGIN; GRANT TEMPORARY ON DATABASE sql_alone TO sql_guest; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        CREATE POLICY half ON t USING (label = 1 OR a > 0.5); COMMIT""")
    try:
        for query in ("SELECT a, b, label FROM t", "SELECT a, b, label FROM t WHERE a >= 0"):
            rows = guest.execute(f"SELECT count(*) FROM ({query}) q").fetchone()[0]
            cursor = guest.execute(f"{query} TRAIN BY svm WITH epochs = 1")
            assert (cursor.fetchone()[7], cursor.notes[0][: len(RUN)]) == (rows, RUN)
            assert rows < 200
    finally:
        sql.execute("DROP POLICY half ON t; ALTER TABLE t DISABLE ROW LEVEL SECURITY")
        sql.execute("REVOKE TEMPORARY ON DATABASE sql_alone FROM sql_guest")
    if sql.execute("SHOW server_version_num").fetchone()[0] >= "180000":
        sql.execute("BEGIN; CREATE TABLE computed (a float8, twice float8 GENERATED ALWAYS AS (a * 2), label int)")
        sql.execute("INSERT INTO computed (a, label) SELECT a, label FROM t")
        for query in ("SELECT a, twice, label FROM computed", "SELECT a, label FROM computed WHERE twice >= 0"):
            assert sql.execute(f"{query} TRAIN BY svm WITH epochs = 1").fetchone()[7] == 200


def test_an_older_extension_is_named_with_the_statement_that_updates_it():
    with pytest.raises(
        NotSupportedError, match=r"corgipile 0\.2 has no 'where'.* pg install; then run ALTER EXTENSION"
    ):
        Known(frozenset({"source"}), "0.2", "0.2").check("where")
    with pytest.raises(NotSupportedError, match="may: run ALTER EXTENSION corgipile UPDATE in this database"):
        Known(frozenset({"source"}), "0.2", "0.3").check("where")


def test_no_table_is_left(sql):
    count = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"
    before = sql.execute(count).fetchone()
    sql.begin()
    for settings in ("epochs = 1", "epochs = 1, buffer_size = 100%"):
        sql.execute(f"SELECT a + 1 AS a, b, label FROM t TRAIN BY svm WITH {settings} INTO m")
        sql.execute("SELECT * FROM ML.EVALUATE(MODEL m, (SELECT * FROM t WHERE a > 0.5))").fetchall()
        assert sql.execute(count).fetchone() == before
    assert sql.execute("SHOW synchronize_seqscans").fetchone() == ("on",)
    sql.rollback()
