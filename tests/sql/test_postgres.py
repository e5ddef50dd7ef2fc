"""SQL on PostgreSQL: missing and forbidden features, types, concurrent sessions."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt
import json
import threading
from decimal import Decimal

import pyarrow as pa
import pytest
from patience import PATIENCE, wait_for
from sqlservers import ROWS, database, guest, sql

from corgipile.errors import BadArgument, CorgiPileError, MissingColumn, ServerError
from corgipile.linear.model import unpack
from corgipile.sql.answers.frame import FrameAnswers
from corgipile.sql.connection import connect
from corgipile.sql.engines.postgres import training
from corgipile.sql.exceptions import (
    DataError,
    Interrupted,
    NotSupportedError,
    OperationalError,
)
from corgipile.sql.runner import Runner

__all__ = ["database", "guest", "sql"]
pytest.importorskip("psycopg")


def test_a_server_without_the_extension_says_how_to_install_it(server):
    server.sql("CREATE DATABASE sql_bare STRATEGY file_copy")
    try:
        with connect(server.url.replace("/postgres?", "/sql_bare?")) as bare:
            assert bare.execute("SELECT 1").fetchall() == [(1,)]
            for script in (
                f"{ROWS} TRAIN BY svm",
                "SELECT 1 AS a PREDICT BY m",
                "SHOW MODELS",
                "DROP MODEL m",
                "DESCRIBE MODEL m",
            ):
                with pytest.raises(ServerError, match="CREATE EXTENSION corgipile"):
                    bare.execute(script)
    finally:
        server.sql("DROP DATABASE sql_bare")


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(ServerError, match="cannot connect"):
        connect(f"postgresql://postgres:secret@/postgres?host={tmp_path}")
    try:
        connect("postgresql://postgres:secret@127.0.0.1:1/postgres", connect_timeout=2)
    except ServerError as error:
        assert "secret" not in str(error)  # noqa: PT017 - the message must not contain the password


def test_a_read_only_transaction(sql):
    sql.execute("BEGIN READ ONLY")
    for query in ("t", "t WHERE a > 0", "(SELECT * FROM t) q"):
        assert len(sql.execute(f"SELECT a, b, label FROM {query} TRAIN BY svm WITH epochs = 1").fetchall()) == 1
    with pytest.raises(CorgiPileError, match="read-only"):
        sql.execute("SELECT a, b, label FROM t TRAIN BY svm INTO m")


def test_models_of_others_are_not_seen(sql, guest):
    sql.execute("SELECT a, b, label FROM t TRAIN BY svm INTO mine")
    with pytest.raises(BadArgument, match="no model 'mine' that this role may read"):
        guest.execute("SELECT * FROM t PREDICT BY mine")
    sql.execute("SELECT corgipile.grant_model('mine', 'sql_guest', 'read')")
    assert len(guest.execute("SELECT a FROM t PREDICT BY mine").fetchall()) == 200
    for script in ("DROP MODEL mine", "ALTER MODEL mine RENAME TO yours"):
        with pytest.raises(BadArgument, match="only its owner postgres can drop or rename model 'mine'"):
            guest.execute(script)


def test_partitions_and_materialized_views_are_read_as_they_are(sql):
    sql.execute("""
        BEGIN; CREATE TABLE parted (LIKE t) PARTITION BY LIST (label);
        CREATE TABLE p0 PARTITION OF parted FOR VALUES IN (0); CREATE TABLE p1 PARTITION OF parted FOR VALUES IN (1);
        INSERT INTO parted SELECT * FROM t; CREATE MATERIALIZED VIEW kept AS SELECT * FROM t""")
    for table in ("parted", "kept"):
        cursor = sql.execute(f"SELECT * FROM {table} TRAIN BY svm WITH epochs = 1, block_size = 50%")
        assert (cursor.fetchone()[7], [note for note in cursor.notes if "temporary" in note]) == (200, [])
    sql.rollback()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("block_size = 100", "in PostgreSQL, got 100 rows"),
        ("buffer_size = 1MB, memory = 1MB", "the same setting in PostgreSQL"),
        ("group = a", "group works for files and DuckDB only"),
        ("by = a, validation = 0.1", "holdout must be left out with by = 'a': each value has its own model"),
        ("text = a", 'text column "a" is double precision; text is needed'),
        ("hash_bits = 8", "hash_bits has no effect without text or interactions"),
        ("balance = a", "must be the label"),
        ("order = reservoir", "no_shuffle"),
    ],
)
def test_settings_that_postgresql_has_nothing_for(sql, setting, message):
    with pytest.raises(CorgiPileError, match=message):
        sql.execute(f"SELECT a, b, label FROM t TRAIN BY svm WITH {setting}")


def test_text_and_crosses_are_hashed_by_the_server(sql):
    sql.execute("CREATE TABLE hashed_here AS SELECT 'good ' || i % 3 AS said, i % 4 AS city, i % 2 AS label, i AS a "
                "FROM generate_series(0, 199) i")  # fmt: skip
    given = "text = said, interactions = ((city, a), city), hash_bits = 8, ngrams = 3, step = adagrad, epochs = 1"
    sql.execute(f"SELECT said, city, a, label FROM hashed_here TRAIN BY logistic WITH {given} INTO hashed_here")
    how = json.loads(sql.execute("SELECT params FROM corgipile.models WHERE name = 'hashed_here'").fetchone()[0])
    hashing = how["encoding"]["hashing"]
    assert (hashing["terms"], hashing["bits"], hashing["ngrams"]) == ([["said"], ["city", "a"], ["city"]], 8, 3)
    assert (how["features"], how["encoding"]["features"]) == (["said", "city", "a"], [])
    rows = sql.execute("SELECT said, city, a FROM hashed_here PREDICT BY hashed_here").fetchall()
    assert len(rows) == 200


@pytest.mark.parametrize(
    "setting",
    [
        *(f"balance = {one}" for one in ("true", "label", "content")),
        "standardize = false",
        "memory = 1MB",
        "classes = [0, 1]",
    ],
)
def test_settings_that_are_arguments_of_the_extension(sql, setting):
    assert len(sql.execute(f"SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 1, {setting}").fetchall()) == 1


def test_a_budget_gives_way_to_a_buffer(sql):
    runner = Runner(sql, FrameAnswers(), lambda note: None, memory="1MB")
    runner.run("SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 1, buffer_size = 2MB")
    runner.run("EXPLAIN SELECT a, b, label FROM t TRAIN BY svm WITH buffer_size = 2MB")
    assert len(runner.answers.frames) == 2


def test_many_columns_and_classes_of_text(sql):
    names = ", ".join(f"i * {j + 1} % 7 / 7.0::float8 AS x{j}" for j in range(120))
    many = f"SELECT {names}, CASE i % 2 WHEN 0 THEN 'no' ELSE 'yes' END AS answer FROM generate_series(1, 200) i"
    holes = many.replace("AS x0", "/ nullif(i % 9, 0) AS x0").replace("'no'", "0").replace("'yes'", "1")
    for rows, more in ((many, ""), (holes, ", missing = mean")):
        sql.execute(f"{rows} TRAIN BY svm WITH epochs = 1{more} INTO m")
        assert len(sql.execute(f"{rows} PREDICT BY m").fetchall()) == 200
        assert len(sql.execute(f"SELECT * FROM ML.PREDICT(MODEL m, ({rows}))").fetchall()) == 200


TYPES = {
    "true": (pa.bool_(), True),
    "1::smallint": (pa.int16(), 1),
    "2::bigint": (pa.int64(), 2),
    "1.5::real": (pa.float32(), 1.5),
    "1.25": (pa.float64(), 1.25),
    "1.25::numeric(6, 3)": (pa.decimal128(6, 3), Decimal("1.250")),
    "'NaN'::numeric": (pa.float64(), None),
    "'é'": (pa.string(), "é"),
    "'ab'::char(3)": (pa.string(), "ab "),
    "'\\x00ff'::bytea": (pa.binary(), b"\x00\xff"),
    "date '2026-02-03'": (pa.date32(), dt.date(2026, 2, 3)),
    "time '01:02:03'": (pa.time64("us"), dt.time(1, 2, 3)),
    "timestamp '2026-02-03 04:05'": (pa.timestamp("us"), dt.datetime(2026, 2, 3, 4, 5)),  # noqa: DTZ001
    "interval '1 day'": (pa.string(), "1 day"),
    "'{\"a\": 1}'::jsonb": (pa.string(), '{"a": 1}'),
    "'(1,2)'::point": (pa.string(), "(1,2)"),
    "int4range(1, 3)": (pa.string(), "[1,3)"),
    "ARRAY[1, NULL]": (pa.list_(pa.int32()), [1, None]),
    "ARRAY[[1.5, 2], [3, 4]]": (pa.list_(pa.list_(pa.float64())), [[1.5, 2], [3, 4]]),
    "ARRAY['a', 'b']": (pa.list_(pa.string()), ["a", "b"]),
    "NULL::int": (pa.int32(), None),
}


@pytest.mark.parametrize("expression", TYPES)
def test_types_of_columns(sql, expression):
    kind, value = TYPES[expression]
    found = sql.execute(f"SELECT {expression} AS x").arrow()
    assert found.schema.field("x").type == kind
    assert found.column("x").to_pylist() == [value] or expression.startswith("'NaN'")
    assert sql.execute(f"SELECT {expression} AS x WHERE false").arrow().num_rows == 0


def test_times_are_those_of_the_session(sql):
    moment = "SELECT timestamptz '2026-02-03 04:05:06+00' AS x"
    for zone, known in (("Europe/Oslo", "Europe/Oslo"), ("<+05>-05", "UTC")):
        found = sql.execute(f"SET TimeZone = '{zone}'; {moment}").arrow()
        assert found.schema.field("x").type == pa.timestamp("us", known)
        assert found["x"].to_pylist() == [dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)]
    with pytest.raises(DataError, match="cast the column to text"):
        sql.execute("SELECT date 'infinity'").fetchall()


def test_arrays_that_differ_in_depth(sql):
    with pytest.raises(DataError, match="cast it to text"):
        sql.execute("SELECT x FROM (VALUES (ARRAY[1]), (ARRAY[[1], [2]])) v (x)").fetchall()


def test_answers_wait_while_other_statements_run(sql):
    first = sql.execute("SELECT i FROM generate_series(1, 50000) i")
    assert first.fetchone() == (1,)
    second = sql.execute("SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 2")
    assert len(second.fetchall()) == 2
    assert sum(1 for _ in first) == 49999
    third = sql.execute("SELECT x.a FROM t x, t y, t z")
    del third
    assert sql.execute("SELECT 1").fetchall() == [(1,)]


def test_an_answer_that_fails_midway(sql):
    cursor = sql.execute("SELECT 1 / (40000 - i) FROM generate_series(1, 50000) i")
    with pytest.raises(DataError, match="division by zero"):
        cursor.fetchall()
    assert sql.execute("SELECT 1").fetchall() == [(1,)]


def test_operators_that_have_question_marks(sql):
    found = sql.execute(
        """SELECT j ? 'a', j ?| ARRAY['b', ?], j -> 'a' = ? FROM (SELECT '{"a": 1}'::jsonb AS j) q""", ["a", "1"]
    )
    assert found.fetchall() == [(True, True, True)]
    assert sql.execute("SELECT '%s %% %(a)s', 7 % 4").fetchall() == [("%s %% %(a)s", 3)]


def test_statements_with_places_and_streams_of_their_own(sql):
    sql.execute("PREPARE plus AS SELECT $1::int + 1; CREATE FUNCTION pg_temp.more(int) RETURNS int RETURN $1 + 2")
    assert sql.execute("EXECUTE plus(3)").fetchall() == [(4,)]
    assert sql.execute("SELECT pg_temp.more(3)").fetchall() == [(5,)]
    for script in ("COPY t TO STDOUT", "COPY (SELECT * FROM t) TO stdout", "COPY t FROM STDIN"):
        with pytest.raises(NotSupportedError, match="psql"):
            sql.execute(script)
    assert sql.execute("SELECT 1").fetchall() == [(1,)]


def test_values_of_all_kinds(sql):
    given = [None, True, -1, 2.5, "o'b", b"\0\\'", dt.date(2026, 1, 2), [1, 2], Decimal("1.10")]
    found = sql.execute("SELECT ?::int, ?, 3 -?, ?, ?, ?, ?, ?::int[], ?", given).fetchone()
    assert found == (None, True, 4, 2.5, "o'b", b"\0\\'", dt.date(2026, 1, 2), [1, 2], 1.1)
    with pytest.raises(CorgiPileError):
        sql.execute("SELECT ?", [object()])
    with pytest.raises(CorgiPileError, match=r"NUL|zero|0x00"):
        sql.execute("SELECT ?", ["a\0b"])


def test_features_named_twice_by_a_join(sql):
    sql.execute("SELECT a, b, label FROM t TRAIN BY svm INTO m")
    with pytest.raises(MissingColumn, match="more than once"):
        sql.execute("SELECT * FROM t x, t y PREDICT BY m")


def test_a_session_that_is_ended_by_another(sql, database):
    caught = []

    def run():
        with connect(database) as other:
            pids.append(other.engine.session.connection.info.backend_pid)
            try:
                other.execute("SELECT a, b, label FROM t WHERE a >= 0 TRAIN BY svm WITH epochs = 1000000 INTO m")
            except CorgiPileError as error:
                caught.append(error)

    pids = []
    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: sql.execute("SELECT 1 FROM corgipile.progress WHERE rows > 0").fetchall(), "a training")
    sql.execute("SELECT pg_terminate_backend(?)", pids)
    thread.join(PATIENCE)
    assert [type(error) for error in caught] == [OperationalError]
    assert sql.execute("SHOW MODELS").fetchall() == []


def test_progress_between_epochs(sql, monkeypatch):
    monkeypatch.setattr(training, "POLL_SECONDS", 0.01)
    heard, told = threading.Event(), []

    class Told:
        def begin(self, rows, epochs):
            told.append((rows, epochs))

        def rows(self, count):
            told.append(count)
            if not heard.is_set():
                heard.set()
                sql.interrupt()

        def epoch(self, record):
            told.append(record["epoch"])

    sql.execute("CREATE TEMP TABLE large AS SELECT * FROM t, generate_series(1, 500) g; ANALYZE large")
    with pytest.raises(Interrupted):
        sql.execute("SELECT a, b, label FROM large TRAIN BY svm WITH epochs = 100000", progress=Told())
    assert told[0] == (100_000, 100_000)
    assert heard.is_set()


def test_a_statement_that_times_out(sql):
    sql.execute("SET statement_timeout = '200ms'")
    with pytest.raises(Interrupted, match="statement timeout"):
        sql.execute("SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 1000000 INTO m")
    sql.execute("RESET statement_timeout")
    assert sql.execute("SHOW MODELS").fetchall() == []


def test_what_the_server_says_is_heard(sql):
    assert sql.execute("DROP TABLE IF EXISTS nothing").notes == ['table "nothing" does not exist, skipping']
    assert any(
        "differ in scale" in note for note in sql.execute("SELECT a * 1e6 AS a, b, label FROM t TRAIN BY svm").notes
    )


@pytest.mark.parametrize("said", ["GROUP BY side WITH epochs = 2 INTO m", "WITH epochs = 2, by = side INTO m"])
def test_models_by_group_answer_as_those_of_python(sql, said):
    sql.execute("BEGIN; CREATE TABLE sides AS SELECT i % 7 / 7.0::float8 AS a, i % 11 / 11.0::float8 AS b, "
                "(ARRAY['north', 'south', NULL])[1 + i % 3] AS side, (i % 7 > 3) <> (i % 3 = 1) AS label "
                "FROM generate_series(1, 400) i")  # fmt: skip
    assert len(sql.execute(f"SELECT * FROM sides TRAIN BY logistic {said}").fetchall()) == 2
    ((content,),) = sql.execute("SELECT corgipile.export('m')").fetchall()
    models, rows = unpack(bytes(content)), sql.execute("SELECT * FROM sides").arrow()
    assert (models.groups, models.features) == (["north", "south", None], ("a", "b"))
    for query in ("SELECT * FROM sides PREDICT BY m", "SELECT a, side FROM sides PREDICT BY m"):
        assert sql.execute(query).arrow()["prediction"].to_pylist() == models.predict(rows).tolist()
    answer = sql.execute("SELECT * FROM ML.PREDICT(MODEL m, (SELECT * FROM sides))").arrow()
    assert answer["predicted_label"].to_pylist() == models.predict(rows).tolist()
    (found,) = sql.execute("SELECT * FROM ML.EVALUATE(MODEL m, (SELECT * FROM sides))").arrow().to_pylist()
    figures = models.judge(rows).figures
    assert (found["accuracy"], found["roc_auc"]) == pytest.approx((figures["accuracy"], figures["auc"]))
    weights = sql.execute("SELECT * FROM ML.WEIGHTS(MODEL m)").arrow().to_pylist()
    for group in models.groups:
        mine = [one["weight"] for one in weights if one["side"] == group]
        assert mine == [*models.of(group).coef[0].tolist(), *models.of(group).intercept.tolist()]
    with pytest.raises(MissingColumn, match="trained on 'a', 'b', 'side'"):
        sql.execute("SELECT a, b FROM t PREDICT BY m")
    with pytest.raises(CorgiPileError, match='is of group "west" of "side"'):
        sql.execute("SELECT 0.5 AS a, 0.5 AS b, 'west' AS side PREDICT BY m").fetchall()


def test_what_goes_by_one_model_refuses_groups(sql):
    sql.execute("CREATE TEMPORARY TABLE sides AS SELECT a, b, label + 1 AS side, label FROM t")
    sql.execute("SELECT * FROM sides TRAIN BY logistic GROUP BY side WITH epochs = 1 INTO m")
    plan = sql.execute("EXPLAIN SELECT * FROM sides TRAIN BY logistic GROUP BY side").fetchall()
    assert ("  By: side",) in plan
    for query in (
        "SELECT a, b, label FROM t TRAIN BY logistic USING m",
        "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m, (SELECT * FROM sides))",
    ):
        with pytest.raises(CorgiPileError, match="holds models of 2 groups"):
            sql.execute(query).fetchall()
    sql.execute("DROP TABLE sides")
