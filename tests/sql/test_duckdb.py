"""DuckDB's own features: files in FROM, models in the database file, SQL functions, several processes."""

# ruff: noqa: S608  # tests write SQL

import subprocess
import sys
import threading
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from duckdbtables import ROWS, TRAIN, rows, sql, value

import corgipile as cp
from corgipile.errors import BadArgument, BadModelFile, BadSchema, MissingColumn, ReadFailed, UnknownFormat
from corgipile.sql import IntegrityError, OperationalError, connect
from corgipile.sql.engines.duckdb.models import COLUMNS
from corgipile.tables.in_memory.streams import SpilledTable

__all__ = ["sql"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("files")
    table = rows()
    pq.write_table(table, place / "x.parquet")
    pq.write_table(table, place / "it's.parquet")
    pa.csv.write_csv(table, place / "x.csv")
    with pa.ipc.new_file(place / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    return place


@pytest.mark.parametrize("name", ["x.parquet", "it''s.parquet", "x.csv", "x.arrow", "x.parq*"])
def test_files_are_trained_from_as_python_does(files, name):
    with connect() as sql:
        sql.execute(f"SELECT a, B, Label FROM '{files}/{name}' TRAIN BY logistic WITH epochs = 2, seed = 3 INTO m")
        python = cp.train(str(files / name.replace("''", "'")), features=["a", "b"], epochs=2, seed=3)
        found = sql.engine.models.find("m").model
        assert (found.coef == python.coef).all()
        assert (found.intercept == python.intercept).all()
        asked = sql.execute(f"SELECT a, b FROM '{files}/{name}' WHERE a > 0.9 ORDER BY b LIMIT 5 PREDICT BY m").arrow()
        assert asked["prediction"].to_pylist() == found.predict(asked.select(["a", "b"]).cast(_floats())).tolist()
        assert value(sql, f"SELECT rows FROM ML.EVALUATE(MODEL m, (SELECT * FROM '{files}/{name}'))") == ROWS


def _floats():
    return pa.schema({"a": pa.float32(), "b": pa.float32()})


def test_a_table_gives_the_model_that_its_rows_give_in_python(sql):
    for order in ("auto", "riffle", "corgipile", "no_shuffle"):
        sql.execute(f"{TRAIN}, \"order\" = {order}, memory = '64KB', block = 100 INTO m")
        given = {"epochs": 2, "learning_rate": 0.1, "memory": "64KB", "features": ["a", "b"]}
        named = cp.orders.named(order)
        python = cp.train(rows(), order=replace(named, block=100), **given)
        assert (sql.engine.models.find("m").model.coef == python.coef).all(), order


def test_many_rows_are_spilled_and_learnt_from_alike(sql):
    small = sql.execute(f"{TRAIN}, memory = '16KB' INTO small")
    assert "spill file" in small.notes[0]
    sql.execute(f"{TRAIN}, memory = '64MB', buffer = '16KB' INTO large")
    read = sql.engine.fit(sql.parse(f"{TRAIN}, memory = '16KB'")[0], ())[1].table
    assert isinstance(read, SpilledTable)
    models = sql.engine.models
    python = cp.train(rows(), features=["a", "b"], epochs=2, learning_rate=0.1, memory="16KB")
    assert (models.find("small").model.coef == python.coef).all()


def test_rows_that_are_not_committed_are_learnt_from(sql):
    sql.begin()
    sql.execute("DELETE FROM t WHERE a < 0.1")
    sql.execute("INSERT INTO t SELECT * FROM t LIMIT 7")
    left = value(sql, "SELECT count(*) FROM t")
    assert [row[7] for row in sql.execute(TRAIN)] == [left, left]
    sql.rollback()
    assert [row[7] for row in sql.execute(TRAIN)] == [ROWS, ROWS]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("DECIMAL(9, 3)", "a"),
     ("BOOLEAN", "a > 0.5"), ("TINYINT", "(a * 9)"), ("DATE", "DATE '2020-01-01' + (a * 99)::int"),
     ("FLOAT[3]", "[a, b, a]"), ("DOUBLE[]", "[a, b]"), ("HUGEINT", "(a * 9)"), ("UBIGINT", "(a * 9)")],
)  # fmt: skip
def test_columns_of_any_kind_of_number_are_features(sql, kind, text):
    sql.execute(f"CREATE TABLE kinds AS SELECT ({text})::{kind} AS x, label FROM t")
    sql.execute("SELECT * FROM kinds TRAIN BY logistic WITH epochs = 1 INTO k")
    model = sql.engine.models.find("k").model
    found = sql.execute("SELECT * FROM kinds PREDICT BY k").arrow()
    python = cp.train(found.select(["x", "label"]), features=["x"], epochs=1)
    assert np.allclose(model.coef, python.coef)
    assert found["prediction"].to_pylist() == python.predict(found).tolist()


def test_text_must_be_encoded_and_its_classes_come_back_as_names(sql):
    with pytest.raises(BadSchema, match=r"'city' must be numeric, got string.*WITH encode = 'onehot'"):
        sql.execute("SELECT a, city, label FROM t TRAIN BY logistic")
    sql.execute("SELECT a, city, label FROM t TRAIN BY logistic WITH encode = onehot INTO e")
    assert value(sql, "SELECT avg((predict('e', a, city) = label)::int) FROM t") > 0.9
    sql.execute("SELECT a, b, city FROM t TRAIN BY softmax INTO c; CREATE TABLE p AS SELECT a, b FROM t PREDICT BY c")
    assert {name for (name,) in sql.execute("SELECT DISTINCT prediction FROM p")} <= {"x", "y", "it's"}
    assert value(sql, "SELECT count(*) FROM p, t WHERE p.a = t.a AND prediction = predict_label('c', t.a, t.b)") == ROWS
    with pytest.raises(BadArgument, match="predict_label"):
        sql.execute("SELECT predict('c', a, b) FROM t").fetchall()


def test_columns_of_settings_are_of_any_case(sql):
    asked = 'WITH encode = {CITY: onehot}, "order" = riffle, balance = LABEL, validation = 0.5, "group" = A'
    sql.execute(f"SELECT a, b, city, label FROM t TRAIN BY logistic {asked}, epochs = 1 INTO e")
    assert sql.engine.models.find("e").model.width == 5
    with pytest.raises(MissingColumn, match=r"no column 'nope'"):
        sql.execute("SELECT a, city, label FROM t TRAIN BY logistic WITH encode = {nope: onehot}")


def test_balance_by_content_is_that_of_python(sql, files):
    asked = f"SELECT a, b, label FROM '{files}/x.arrow' TRAIN BY logistic WITH balance = content"
    assert "balanced" in str(sql.execute(f"EXPLAIN {asked}").fetchall()).lower()
    sql.execute(f"{TRAIN}, balance = content, block = 20 INTO m")
    order = cp.orders.Riffle(block=20, balance="content")
    table = sql.execute("SELECT a, b, label FROM t").arrow()
    again = cp.train(table, features=["a", "b"], order=order, epochs=2, learning_rate=0.1)
    assert np.array_equal(sql.engine.models.find("m").model.coef, again.coef)


def test_functions_are_those_of_python(sql):
    sql.execute(f"{TRAIN} INTO m")
    model = sql.engine.models.find("m").model
    found = sql.execute(
        "SELECT a, b, predict('m', a, b) AS p, predict_proba('m', a, b) AS q, decision('m', a, b) AS d FROM t"
    ).arrow()
    matrix = np.column_stack([found["a"], found["b"]])
    assert found["p"].to_pylist() == model.predict(matrix).tolist()
    assert np.array_equal(np.array(found["q"].to_pylist()), model.predict_proba(matrix))
    assert np.array_equal(np.array(found["d"].to_pylist())[:, 0], model.decision(matrix).astype(float))


def test_functions_of_nulls_lists_and_names_of_each_row(sql):
    sql.execute(f"{TRAIN} INTO m; {TRAIN}, seed = 1 INTO n")
    asked = """SELECT predict('m', NULL, 1), predict('m', [0.9, 0]), predict('m', [0.9, NULL]), predict(NULL, 1, 2),
        predict_proba('m', NULL, 1), predict('m', 0.9::DECIMAL(9, 2), 0), predict('m', [0.9, 0]::FLOAT[2])"""
    assert sql.execute(asked).fetchone() == (None, 1.0, None, None, None, 1.0, 1.0)
    names = "(VALUES ('m'), ('n'), (NULL)) AS v (name)"
    by_row = sql.execute(f"SELECT name, decision(name, a, b) FROM t, {names} WHERE a < 0.01 ORDER BY ALL").fetchall()
    each = [
        row
        for name in "mn"
        for row in sql.execute(f"SELECT '{name}', decision('{name}', a, b) FROM t WHERE a < 0.01 ORDER BY ALL")
    ]
    assert [row for row in by_row if row[0]] == each
    assert value(sql, "SELECT count(predict('m', a, b)) FROM t WHERE false") == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("predict('nosuch', a, b)", "no model 'nosuch'; stored models: 'm'"),
        ("predict('m', a)", r"needs 2 features \('a', 'b'\), got 1"),
        ("predict('m', a, city)", "feature 2 must be numeric, got string"),
        ("predict(7, a, b)", "a model's name"),
        ("predict('m', [a])", "2 features"),
        ("predict('m', CASE WHEN a > 0.5 THEN [a, b] ELSE [a] END)", "lists of features must have one length"),
    ],
)
def test_wrong_calls_say_what_is_wrong(sql, call, said):
    sql.execute(f"{TRAIN} INTO m")
    with pytest.raises((BadArgument, BadSchema), match=said):
        sql.execute(f"SELECT {call} FROM t").fetchall()
    assert value(sql, "SELECT 1") == 1


def test_a_function_of_the_users_own_keeps_its_name(tmp_path):
    own = duckdb.connect()
    own.create_function("predict", lambda x: x + 1, ["BIGINT"], "BIGINT")
    sql = connect(own)
    assert value(sql, "SELECT predict(41)") == 42
    sql.execute("CREATE TABLE t AS SELECT i AS x, i % 2 AS label FROM range(100) r (i)")
    sql.execute("SELECT * FROM t TRAIN BY svm INTO m; CREATE TABLE p AS SELECT * FROM t PREDICT BY m")
    assert value(sql, "SELECT count(prediction) FROM p") == 100
    sql.close()
    assert own.execute("SELECT 1").fetchone() == (1,)
    own.close()


def test_models_are_those_of_the_transaction(sql):
    sql.execute(f"{TRAIN} INTO m")
    before = value(sql, "SELECT sum(predict('m', a, b)) FROM t")
    sql.begin()
    sql.execute("SELECT a, b, 1 - label AS label FROM t TRAIN BY logistic INTO m; ALTER MODEL m RENAME TO other")
    changed = value(sql, "SELECT sum(predict('other', a, b)) FROM t")
    assert changed != before
    with pytest.raises(BadArgument, match="no model 'm'; stored models: 'other'"):
        sql.execute("SELECT predict('m', 1, 2)").fetchall()
    sql.rollback()
    assert value(sql, "SELECT sum(predict('m', a, b)) FROM t") == before
    assert [row[0] for row in sql.execute("SHOW MODELS")] == ["m"]
    with pytest.raises(BadArgument, match="no model 'other'"):
        sql.execute("SELECT predict('other', 1, 2)").fetchall()


def test_models_outlive_the_connection(tmp_path):
    path = str(tmp_path / "m.duckdb")
    with connect(path) as sql:
        sql.execute("CREATE TABLE t AS SELECT i AS x, i > 50 AS label FROM range(100) r (i)")
        sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 2 INTO m")
        sql.execute("CREATE VIEW v AS SELECT * FROM t PREDICT BY m")
    with connect(path, read_only=True) as sql:
        assert value(sql, "SELECT count(prediction) FROM v") == 100
        assert len(sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 1 USING m").fetchall()) == 1
        with pytest.raises(OperationalError, match="the database is read-only"):
            sql.execute("SELECT * FROM t TRAIN BY svm INTO n")


@pytest.mark.parametrize("content", ["'rows'", "NULL", "unhex(hex(content)[:400])"])
def test_damaged_models_are_told(sql, content):
    sql.execute(f"{TRAIN} INTO m")
    sql.execute(f"UPDATE corgipile_models SET content = {content}, version = uuid()")
    for asked in ("SELECT predict('m', a, b) FROM t", "SELECT * FROM t PREDICT BY m", "DESCRIBE MODEL m"):
        with pytest.raises(BadModelFile, match="model 'm'"):
            sql.execute(asked).fetchall()
    sql.execute("DROP MODEL m")


def test_a_table_of_others_is_left_alone(sql):
    sql.execute("CREATE TABLE corgipile_models (name VARCHAR, mine INT)")
    for script in (f"{TRAIN} INTO m", "SHOW MODELS", "DROP MODEL m", "SELECT * FROM t PREDICT BY m"):
        with pytest.raises(OperationalError, match="not created by corgipile: its columns are 'name', 'mine'"):
            sql.execute(script)
    assert len(sql.execute(TRAIN).fetchall()) == 2


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    path = tmp_path / "m.duckdb"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(path)!r}); print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        holder.stdout.readline()
        with pytest.raises(ReadFailed, match="is in use"):
            connect(path)
        holder.stdin.close()
    (tmp_path / "junk").write_bytes(b"rows" * 5000)
    with pytest.raises(UnknownFormat, match="not a DuckDB database"):
        connect(tmp_path / "junk")
    with pytest.raises(OperationalError, match="cannot open"):
        connect(tmp_path / "nosuch" / "m.duckdb")


def test_two_connections_train_at_once(tmp_path):
    path = str(tmp_path / "m.duckdb")
    with connect(path) as one, connect(path) as two:
        one.execute("CREATE TABLE t AS SELECT i AS x, i % 7 AS y, i % 2 AS label FROM range(20000) r (i)")
        script = "SELECT * FROM t TRAIN BY logistic WITH epochs = 5 INTO "
        threads = [
            threading.Thread(target=sql.execute, args=(script + name,)) for sql, name in ((one, "m"), (two, "n"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row[0] for row in one.execute("SHOW MODELS")] == ["m", "n"]
        assert value(two, "SELECT count(*) FROM t WHERE predict('m', x, y) = predict('n', x, y)") == 20000
        one.begin()
        two.begin()
        one.execute(script + "m")

        def both():
            two.execute(script + "m")
            one.commit()
            two.commit()

        with pytest.raises((IntegrityError, OperationalError)):
            both()
        two.rollback()


def test_a_table_may_change_while_it_is_trained_from(tmp_path):
    path = str(tmp_path / "m.duckdb")
    with connect(path) as one, connect(path) as two:
        one.execute("CREATE TABLE t AS SELECT i AS x, i % 2 AS label FROM range(5000) r (i)")
        seen = []

        class Meddler:
            def begin(self, rows, epochs):
                two.execute("DELETE FROM t WHERE x > 10")

            def rows(self, count):
                seen.append(count)

            def epoch(self, record):
                two.execute("INSERT INTO t VALUES (1, 5)")

        found = one.execute("SELECT * FROM t TRAIN BY svm WITH epochs = 3", progress=Meddler()).fetchall()
        assert [row[7] for row in found] == [5000] * 3
        assert sum(seen) == 15000
        assert value(one, "SELECT count(*) FROM t") == 14


def test_explain_names_the_operators(sql, files):
    def plan(script):
        return [line for (line,) in sql.execute(script).fetchall()]

    train = TRAIN.replace("FROM t", f"FROM '{files}/x.arrow'")
    for planned in (plan(f"EXPLAIN {train}"), plan(f"EXPLAIN ANALYZE {TRAIN}")):
        names = [line.strip().removeprefix("->  ") for line in planned if ":" not in line]
        assert names == ["SGD", "TupleShuffle", "BlockShuffle", "Scan"]
        said = dict(line.strip().split(": ", 1) for line in planned if ": " in line)
        assert (said["Model"], said["Epochs"], said["Order"], said["Rows per Epoch"]) == (
            "logistic",
            "2",
            "riffle",
            "3000",
        )
    assert said["Actual Rows"] == "6000"
    assert {"Seconds", "Peak Memory", "Bytes", "Blocks", "Buffer Memory"} <= said.keys()
    assert plan(f"EXPLAIN {TRAIN}")[0] == "SGD"
    assert sql.execute("SHOW MODELS").fetchall() == []


def test_columns_are_found_where_they_are(sql):
    sql.execute(f"{TRAIN} INTO m")
    for script in (
        "SELECT city FROM t PREDICT BY m",
        "SELECT a AS x, b AS y FROM t WHERE a < 2 ORDER BY b PREDICT BY m",
        "SELECT * FROM (SELECT a, b FROM t) AS s PREDICT BY m",
        "WITH s AS (SELECT * FROM t) SELECT * FROM s PREDICT BY m",
        "SELECT DISTINCT a, b FROM t PREDICT BY m",
    ):
        found = sql.execute(script).arrow()
        assert found.num_rows == ROWS, script
        assert found.column_names[-1] == "prediction"
    with pytest.raises(MissingColumn, match=r"trained on 'a', 'b'.*without 'b'"):
        sql.execute("SELECT a FROM (SELECT a FROM t) PREDICT BY m")


def test_another_database_of_the_session(sql, tmp_path):
    sql.execute(f"ATTACH '{tmp_path}/other.duckdb' AS \"o'ther\"; USE \"o'ther\"; CREATE TABLE t AS FROM m.main.t")
    sql.execute(f"{TRAIN} INTO there")
    assert value(sql, "SELECT count(predict('there', a, b)) FROM t") == ROWS
    sql.execute("USE m")
    assert sql.execute("SHOW MODELS").fetchall() == []
    assert value(sql, 'SELECT count(*) FROM "o\'ther".corgipile_models') == 1


def test_nobody_sees_what_stands_for_a_model_in_a_transaction(sql):
    sql.execute("CREATE TABLE rows AS SELECT (i / 9)::DOUBLE AS x, i % 2 AS label FROM range(90) r (i)")
    sql.begin()
    sql.execute("""SELECT * FROM rows TRAIN BY logistic WITH epochs = 1 INTO "it's new" """)
    call = "predict('it''s new', x)"
    assert [one[0] for one in sql.execute(f"SELECT {call}, sum({call}) OVER () FROM rows").description] == [
        call,
        f"sum({call}) OVER ()",
    ]
    sql.execute(f"CREATE TABLE p AS SELECT x, {call} FROM rows")
    assert sql.tables()["p"] == ["x", call]
    plans = sql.execute(f"EXPLAIN SELECT {call} FROM rows").fetchall()
    plans += sql.execute("""EXPLAIN SELECT * FROM rows PREDICT BY "it's new" """).fetchall()
    assert call in plans[0][1]
    assert "\x01" not in str(plans)
    with pytest.raises(sql.Error, match="it's new") as error:
        sql.execute("SELECT predict('it''s new', x, x) FROM rows").fetchall()
    assert "\x01" not in str(error.value)


def test_a_prediction_never_has_the_name_of_a_column_of_the_rows():
    with connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT i % 7 AS x, 9 AS prediction, i % 2 AS y FROM range(60) r(i)")
        sql.execute("SELECT x, y FROM t TRAIN BY logistic INTO m")
        for rows in ("SELECT * FROM t", "SELECT x, 1 AS Prediction FROM t", "WITH c AS (FROM t) SELECT * FROM c"):
            with pytest.raises(BadArgument, match=r"already have a column '\w+'.*AS name gives another"):
                sql.execute(f"{rows} PREDICT BY m")
            assert sql.execute(f"{rows} PREDICT BY m AS answer").arrow().num_rows == 60
        assert sql.execute("SELECT x FROM t PREDICT BY m").arrow().column_names == ["x", "prediction"]
        called = "SELECT * FROM ML.PREDICT(MODEL m, (SELECT x, y AS {} FROM t))"
        for name in ("predicted_y", '"Predicted_Y_probs"'):
            with pytest.raises(BadArgument, match="rename or drop it in the query"):
                sql.execute(called.format(name))
        assert sql.execute(called.format("before")).arrow().num_rows == 60


@pytest.mark.parametrize(
    ("kind", "type_"), [("INTEGER", pa.int64()), ("BOOLEAN", pa.bool_()), ("DOUBLE", pa.float64())]
)
def test_predictions_have_the_type_of_the_labels(kind, type_):
    with connect() as sql:
        sql.execute(f"CREATE TABLE t AS SELECT i % 7 AS x, (i % 2)::{kind} AS y FROM range(60) r(i)")
        sql.execute("SELECT x, y FROM t TRAIN BY logistic INTO m")
        asked = ("SELECT x FROM t PREDICT BY m AS predicted_y", "SELECT predicted_y FROM ML.PREDICT(MODEL m, TABLE t)")
        for script in asked:
            assert sql.execute(script).arrow().schema.field("predicted_y").type == type_
        with_threshold = "SELECT predicted_y FROM ML.PREDICT(MODEL m, TABLE t, STRUCT(0.9 AS threshold))"
        assert sql.execute(with_threshold).arrow().schema.types == [type_]
        assert sql.execute("SELECT NULL AS x PREDICT BY m").fetchall()[0][-1] is None


def test_literals_are_asked_about_whatever_their_type():
    with connect() as sql:
        sql.execute(
            "CREATE TABLE t AS SELECT i % 7 AS x, i % 2 AS k, 'abc'[i % 3 + 1] AS c, i % 5 > 2 AS y FROM range(60) r(i)"
        )
        sql.execute("SELECT x, k, y FROM t TRAIN BY logistic WITH by = k INTO m")
        wanted = sql.execute("SELECT 1.5::DOUBLE AS x, 1 AS k PREDICT BY m").fetchone()[-1]
        assert sql.execute("SELECT 1.5 AS x, 1.0 AS k PREDICT BY m").fetchone()[-1] == wanted
        with pytest.raises(BadSchema, match="decimal"):
            sql.execute("SELECT 1.5 AS x, 1.5 AS k PREDICT BY m").fetchall()
        sql.execute("SELECT x, c, y FROM t TRAIN BY logistic WITH encode = 'onehot', missing = 'mean' INTO o")
        for rows in ("SELECT NULL AS x, 'a' AS c", "SELECT 1.5 AS x, NULL AS c", "SELECT NULL AS x, NULL AS c"):
            assert sql.execute(f"{rows} PREDICT BY o").fetchone()[-1] in (True, False)


def test_a_note_names_the_label_that_nobody_named():
    with connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 2 AS y FROM range(60) r(i)")
        assert "the label is column 'y', the last one; LABEL names another" in sql.execute("FROM t TRAIN BY svm").notes
        assert not any("the label is" in note for note in sql.execute("FROM t TRAIN BY svm LABEL y").notes)


def test_a_regression_on_whole_labels_predicts_fractions():
    with connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT i % 7 AS x, 2 * (i % 7) AS y FROM range(60) r(i)")
        sql.execute("SELECT x, y FROM t TRAIN BY linear INTO m")
        assert sql.execute("SELECT x FROM t PREDICT BY m").arrow().schema.field("prediction").type == pa.float64()


def test_macros_of_a_database_replace_no_function_of_a_session(tmp_path):
    names = dict.fromkeys(("current_database", "current_schema", "txid_current", "now", "uuid"), "")
    one = "lower chr json_serialize_sql count avg min max median stddev_pop list_max list_reverse_sort struct_pack abs"
    names |= dict.fromkeys(one.split(), "a") | dict.fromkeys(
        ["contains", "starts_with", "list_transform", "list_zip"], "a, b"
    )
    tables = [f"duckdb_{one}" for one in ("columns", "tables", "views", "databases", "functions", "schemas")]
    with duckdb.connect(str(tmp_path / "a.duckdb")) as made:
        made.execute("CREATE TABLE t AS SELECT range / 7 AS x, range % 2 AS label FROM range(8)")
        for name, arguments in names.items():
            made.execute(f"CREATE MACRO {name}({arguments}) AS error('planted')")
        for name in (*tables, "duckdb_prepared_statements"):
            made.execute(f"CREATE MACRO {name}() AS TABLE SELECT error('planted')")
    (tmp_path / "b.csv").write_text("x,label\n1,0\n2,1\n")
    with connect(tmp_path / "a.duckdb") as session:
        for statement in (
            "CREATE MODEL m TRANSFORM (x * 2 AS y, label) OPTIONS (model_type = 'logistic_reg') AS SELECT * FROM t",
            "CREATE MODEL n OPTIONS (model_type = 'logistic_reg') AS SELECT * FROM t", "SHOW MODELS",
            "DESCRIBE MODEL n", "SELECT * FROM ML.PREDICT(MODEL m, TABLE t)",
            "SELECT * FROM ML.EXPLAIN_PREDICT(MODEL n, TABLE t)",
            "SELECT * FROM ML.FEATURE_INFO(MODEL n)", "SELECT * FROM ML.EVALUATE(MODEL n, TABLE t)",
            "SELECT * FROM t PREDICT BY n", f"SELECT * FROM '{tmp_path}/b.csv' PREDICT BY n",
            "EXPLAIN SELECT * FROM t TRAIN BY logistic", "DROP MODEL n",
        ):  # fmt: skip
            done = session.execute(statement)
            assert "planted" not in repr(done.fetchall() if done.description else "")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as made:
        made.execute("CREATE MACRO corgipile_predict(a, b) AS 'planted'")
    with pytest.raises(OperationalError, match="must not have a function corgipile_predict"):
        connect(tmp_path / "a.duckdb")


def test_a_view_is_no_table_of_models(tmp_path):
    (tmp_path / "secret").write_text("a")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as made:
        columns = ", ".join(f"NULL::{kind} AS {name}" for name, kind in COLUMNS.items() if name != "content")
        made.execute(f"CREATE VIEW corgipile_models AS SELECT {columns}, content FROM read_blob('{tmp_path}/secret')")
    with connect(tmp_path / "a.duckdb") as session:
        assert session.execute("SHOW MODELS").fetchall() == []
