"""Sessions of every engine: transactions, unusual names and values, progress, interrupts."""

# ruff: noqa: S608, E501  # tests write SQL

import json
import threading

import pytest
from patience import wait_for
from sqlengines import ROWS, OnDuckDB, OnPostgreSQL, quoted

from corgipile.errors import BadStatement, CorgiPileError
from corgipile.sql.exceptions import Interrupted

NASTY = [
    "x'; DROP TABLE t; --", 'x"; DROP TABLE t; --', "a' || (SELECT 1) || '", "$$; DROP TABLE t; $$", "\\'; DROP TABLE t; --", "%s %(x)s {} {0}",
    "m\n-- x", "/* x", "ünï 字 🐕", "select", "a.b.c", " ", "?", ":x", "$1", "E'\\'", "x" * 50,
]  # fmt: skip


def literal(text):
    """Quote text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


class Recorder:
    """Records training progress."""

    def __init__(self):
        self.begun, self.seen, self.epochs = [], 0, []

    def begin(self, rows, epochs):
        self.begun.append((rows, epochs))

    def rows(self, count):
        self.seen += count

    def epoch(self, record):
        self.epochs.append(record["epoch"])


class Sessions:
    """Tests for every engine."""

    def test_transactions_take_models_back(self, sql):
        sql.begin()
        sql.execute("SELECT a, b, label FROM t WHERE i < 300 TRAIN BY svm INTO gone")
        assert len(self.rows(sql, "SHOW MODELS")) == 1
        sql.rollback()
        assert self.rows(sql, "SHOW MODELS") == []
        sql.execute("BEGIN; SELECT a, b, label FROM t TRAIN BY svm INTO stays; COMMIT")
        sql.execute("BEGIN; DROP MODEL stays")
        sql.rollback()
        assert [row["name"] for row in self.rows(sql, "SHOW MODELS")] == ["stays"]

    def test_a_training_that_fails_leaves_no_model(self, sql):
        sql.execute("CREATE TABLE holes AS SELECT a, CASE WHEN i = 400 THEN NULL ELSE b END AS b, label FROM t")
        self.fails(sql, "SELECT a, b, label FROM holes TRAIN BY svm INTO m", "null|NULL")
        self.fails(sql, "SELECT a, b, label FROM holes WHERE a >= 0 TRAIN BY svm INTO m", "null|NULL")
        self.fails(sql, "SELECT a, b, part FROM t TRAIN BY logistic INTO m", "class|takes two")
        self.fails(sql, "SELECT a, b, label FROM t WHERE false TRAIN BY svm INTO m", "no rows?")
        assert self.rows(sql, "SHOW MODELS") == []
        assert self.value(sql, "SELECT count(*) FROM t") == ROWS

    @pytest.mark.parametrize("name", NASTY)
    def test_names_are_names_whatever_they_hold(self, sql, name):
        column, table = quoted(name + "c"), quoted(name)
        sql.execute(f"CREATE TABLE {table} AS SELECT a AS {column}, b, label AS {quoted(name)} FROM t WHERE i < 100")
        sql.execute(
            f"SELECT {column}, b, {quoted(name)} FROM {table} TRAIN BY svm WITH epochs = 1 LABEL {quoted(name)} INTO {quoted(name)}"
        )
        sql.execute(
            f"SELECT * FROM {table} WHERE b > 0 TRAIN BY svm WITH epochs = 1, features = [{literal(name + 'c')}] INTO {literal(name + '2')}"
        )
        assert [
            row["name"]
            for row in self.rows(sql, "SHOW MODELS LIKE ?".replace("?", literal(name[:2].replace("\\", "\\\\") + "%")))
        ] != [] or "\\" in name
        assert {row["name"] for row in self.rows(sql, "SHOW MODELS")} == {name, name + "2"}
        found = self.rows(sql, f"SELECT b FROM {table} WHERE {column} >= 0 PREDICT BY {quoted(name)} AS {quoted(name)}")
        assert len(found) == 100
        assert list(found[0]) == ["b", name]
        assert (
            f"predicted_{name}"
            in self.rows(sql, f"SELECT * FROM ML.PREDICT(MODEL {quoted(name)}, TABLE {table}) LIMIT 1")[0]
        )
        assert self.rows(sql, f"SELECT * FROM ML.EVALUATE(MODEL {quoted(name)}, TABLE {table})")[0]["rows"] == 100
        assert (None, name + "c") in self.weights(sql, name)
        facts = {row["property"]: row["value"] for row in self.rows(sql, f"DESCRIBE MODEL {quoted(name)}")}
        assert facts["name"] == name
        assert facts["features"] == json.dumps([name + "c", "b"], ensure_ascii=False)
        sql.execute(
            f"ALTER MODEL {quoted(name)} RENAME TO {quoted(name + '3')}; DROP MODEL {literal(name + '3')}; DROP MODEL {quoted(name + '2')}"
        )
        assert self.value(sql, "SELECT count(*) FROM t") == ROWS

    @pytest.mark.parametrize("text", NASTY)
    def test_values_are_values_whatever_they_hold(self, sql, text):
        assert self.value(sql, "SELECT CAST(? AS text)", [text]) == text
        assert self.value(sql, "SELECT CAST(:x AS text)", {"x": text}) == text
        assert self.value(sql, f"SELECT {literal(text)}") == text
        options = ("order", "missing", "encode", "memory", "on_bad", "classes")
        for option in options[NASTY.index(text) % 3 :: 3]:
            with pytest.raises(CorgiPileError):
                sql.execute(f"SELECT a, b, label FROM t TRAIN BY svm WITH {option} = {literal(text)}")
            with pytest.raises(CorgiPileError):
                sql.execute(f"SELECT a, b, label FROM t TRAIN BY svm WITH {option} = ?", [text])
        with pytest.raises(BadStatement):
            sql.execute(f"SELECT a, b, label FROM t TRAIN BY {literal(text)}")
        self.fails(sql, f"SELECT a, b, label FROM t TRAIN BY svm USING {literal(text)}", "model")
        assert self.value(sql, "SELECT count(*) FROM t") == ROWS

    def test_names_of_schemas_and_quoted_columns(self, sql):
        sql.execute('CREATE SCHEMA "S p"; CREATE TABLE "S p"."T.t" AS SELECT * FROM wide')
        found = self.rows(sql, 'SELECT "A b", "select", "Ünï" FROM "S p"."T.t" TRAIN BY svm WITH epochs = 1 INTO m')
        assert found[0]["rows"] == ROWS
        assert (None, "A b") in self.weights(sql, "m")
        assert len(self.rows(sql, 'SELECT * FROM "S p"."T.t" PREDICT BY m')) == ROWS
        assert sql.tables()["S p.T.t"] == ["A b", "select", "Ünï"]
        assert sql.tables()["t"] == ["i", "a", "b", "label", "part"]

    def test_progress_is_told(self, sql):
        told = Recorder()
        sql.execute("SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 3", progress=told)
        assert (told.begun, told.seen, told.epochs) == ([(ROWS, 3)], 3 * ROWS, [0, 1, 2])

    def test_a_training_is_stopped(self, sql):
        caught = []

        def run():
            try:
                sql.execute("SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 1000000 INTO m")
            except CorgiPileError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_for(lambda: sql.interrupt() or thread.join(0.2) or not thread.is_alive(), "the end of the training")
        assert [type(error) for error in caught] == [Interrupted]
        assert self.rows(sql, "SHOW MODELS") == []
        assert self.value(sql, "SELECT count(*) FROM t") == ROWS


class TestDuckDB(Sessions, OnDuckDB):
    """The tests on DuckDB in memory."""


class TestPostgreSQL(Sessions, OnPostgreSQL):
    """The tests on PostgreSQL in a new database."""
