"""Every statement gives the same columns, rows and models on every engine."""

# ruff: noqa: S608, E501  # tests write SQL

import json

import pytest
from sqlengines import ROWS, OnDuckDB, OnPostgreSQL

from corgipile.sql.exceptions import IntegrityError

EPOCHS = ["epoch", "loss", "accuracy", "r2", "holdout_loss", "holdout_accuracy", "holdout_r2", "rows", "seconds"]


class Statements:
    """Tests for every engine."""

    def test_training_answers_an_epoch_a_row(self, sql):
        cursor = sql.execute("SELECT a, b, label FROM t TRAIN BY svm WITH max_epoch_num = 3, learning_rate = 0.1")
        found = cursor.fetchall()
        assert [column[0] for column in cursor.description] == EPOCHS
        assert [row[0] for row in found] == [0, 1, 2]
        assert {row[7] for row in found} == {ROWS}
        assert all(row[2] is not None and row[3] is None and row[4] is None for row in found)
        assert self.rows(sql, "SHOW MODELS") == []

    def test_sizes_of_the_paper(self, sql):
        found = self.rows(
            sql,
            "SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 1, block_size = 8KB, buffer_size = 90%, order = corgipile",
        )
        assert [row["rows"] for row in found] == [ROWS]

    def test_models_are_kept_listed_described_renamed_and_dropped(self, sql):
        sql.execute(
            "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 2 INTO Mine; SELECT a, label FROM t TRAIN BY linear INTO other"
        )
        found = self.rows(sql, "SHOW MODELS")
        assert [(row["name"], row["model"], row["features"], row["epochs"]) for row in found] == [
            ("Mine", "logistic", 2, 2),
            ("other", "linear", 1, 5),
        ]
        assert [row["name"] for row in self.rows(sql, "SHOW MODELS LIKE 'oth%'")] == ["other"]
        facts = {row["property"]: row["value"] for row in self.rows(sql, "DESCRIBE MODEL Mine")}
        assert (facts["model"], json.loads(facts["features"]), facts["label"], facts["epochs"]) == (
            "logistic",
            ["a", "b"],
            "label",
            "2",
        )
        sql.execute("ALTER MODEL Mine RENAME TO yours")
        self.fails(sql, "ALTER MODEL yours RENAME TO other", "model 'other' already exists", kind=IntegrityError)
        self.fails(sql, "DROP MODEL Mine", "no model 'Mine'")
        self.fails(sql, "DESCRIBE MODEL your", "did you mean yours")
        sql.execute("DROP MODEL yours; DROP MODEL IF EXISTS yours; ALTER MODEL IF EXISTS yours RENAME TO x")
        assert [row["name"] for row in self.rows(sql, "SHOW MODELS")] == ["other"]

    @pytest.mark.parametrize(
        ("query", "rows"),
        [
            ("SELECT a, b, label FROM t WHERE part < 2", 240),
            ("SELECT a + 1 AS a, b * 2 AS b, label FROM t", ROWS),
            ("SELECT x.a, y.b, x.label FROM t x JOIN t y ON x.i = y.i WHERE x.i < 100", 100),
            ("WITH c AS (SELECT a, b, label FROM t WHERE i < 50) SELECT * FROM c", 50),
            ("SELECT * FROM (SELECT a, b, label FROM t LIMIT 30) q", 30),
            ("SELECT * FROM seen", ROWS),
            ("VALUES (0.5, 1.5, 1), (1.5, 0.5, 0)", 2),
            ("SELECT a, b, label FROM t ORDER BY b DESC LIMIT 40", 40),
        ],
    )
    def test_any_query_is_trained_from(self, sql, query, rows):
        cursor = sql.execute(f"{query} TRAIN BY logistic WITH epochs = 1")
        assert [row[7] for row in cursor.fetchall()] == [rows]
        assert cursor.notes != []

    def test_weights_are_named_by_what_their_numbers_are(self, sql):
        colours = "SELECT a, CASE part WHEN 0 THEN 'red' ELSE 'blue' END AS colour, label FROM t"
        sql.execute(f"{colours} TRAIN BY svm WITH encode = onehot, epochs = 1 INTO m")
        names = ["a", "colour=blue", "colour=red", "__INTERCEPT__"]
        assert sorted(name for _, name in self.weights(sql, "m")) == sorted(names)

    def test_the_label_of_create_model_is_called_so(self, sql):
        sql.execute("CREATE MODEL m OPTIONS (model_type = 'svm', epochs = 1) AS SELECT label, a, b FROM t")
        assert self.weights(sql, "m").keys() == {(None, name) for name in ("a", "b", "__INTERCEPT__")}

    def test_labels_and_features_by_name(self, sql):
        sql.execute("SELECT * FROM t TRAIN BY svm WITH epochs = 1, features = [b, a] LABEL label INTO m")
        assert self.weights(sql, "m").keys() == {(None, name) for name in ("a", "b", "__INTERCEPT__")}
        sql.execute("SELECT * FROM t TRAIN BY linear WITH epochs = 1, features = ? LABEL b INTO m", [["a"]])
        assert self.weights(sql, "m").keys() == {(None, name) for name in ("a", "__INTERCEPT__")}
        self.fails(sql, "SELECT a, b, label FROM t TRAIN BY svm LABEL lable", "did you mean label")
        self.fails(sql, "SELECT a, nope, label FROM t TRAIN BY svm", "nope")
        self.fails(sql, "SELECT label FROM t TRAIN BY svm", "no features")
        self.fails(sql, "SELECT colour, x, label FROM texts TRAIN BY svm", "'colour' must be .*encode")

    def test_warm_start_goes_on(self, sql):
        sql.execute(
            "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 2, order = no_shuffle, learning_rate = 0.1 INTO two"
        )
        found = self.rows(
            sql,
            "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 1, order = no_shuffle, learning_rate = 0.1 USING two INTO three",
        )
        sql.execute(
            "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 3, order = no_shuffle, learning_rate = 0.1 INTO whole"
        )
        assert [row["epoch"] for row in found] == [2]
        assert self.weights(sql, "three") == self.weights(sql, "whole")
        self.fails(sql, "SELECT a, b, label FROM t TRAIN BY logistic USING nothing", "nothing")

    def test_booleans_are_classes_of_their_own(self, sql):
        sql.execute("SELECT a, b, label = 1 AS yes FROM t TRAIN BY softmax WITH epochs = 1, learning_rate = 0.1 INTO m")
        described = {row["property"]: row["value"] for row in self.rows(sql, "DESCRIBE MODEL m")}
        assert (described["classes"], described.get("class_type")) == ("[false, true]", None)
        assert {of for of, _ in self.weights(sql, "m")} == {"False", "True"}
        found = self.rows(sql, "SELECT a, label = 1 AS yes, b FROM t PREDICT BY m")
        assert {row["prediction"] for row in found} == {0.0, 1.0}
        assert found[0]["prediction"] == float(found[0]["yes"])

    def test_models_as_bigquery_makes_them(self, sql):
        script = "MODEL m OPTIONS (model_type = 'LOGISTIC_REG', input_label_cols = ['label'], learn_rate = 0.5, max_iterations = {}, calculate_p_values = true) AS SELECT label, a FROM t"
        cursor = sql.execute("CREATE " + script.format(2))
        assert any("p-values" in note for note in cursor.notes)
        self.fails(sql, "CREATE " + script.format(3), "model 'm' already exists", kind=IntegrityError)
        cursor = sql.execute("CREATE MODEL IF NOT EXISTS" + script.removeprefix("MODEL").format(3))
        assert any("nothing was trained" in note for note in cursor.notes)
        assert self.rows(sql, "SHOW MODELS")[0]["epochs"] == 2
        sql.execute("CREATE OR REPLACE " + script.format(4))
        assert self.rows(sql, "SHOW MODELS")[0]["epochs"] == 4
        assert [row["epoch"] for row in self.rows(sql, "SELECT * FROM ML.TRAINING_INFO(MODEL m)")] == [0, 1, 2, 3]

    def test_rows_held_out(self, sql):
        found = self.rows(sql, "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 1, validation = 0.25 INTO m")
        assert found[0]["rows"] < ROWS
        assert found[0]["holdout_accuracy"] is not None
        (evaluated,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m)")
        assert evaluated["loss"] == found[0]["holdout_loss"]

    def test_predictions_stand_beside_rows(self, sql):
        sql.execute("SELECT a, b, label FROM t TRAIN BY logistic WITH learning_rate = 1 INTO m")
        found = self.rows(sql, "SELECT i, label FROM t WHERE i < ? ORDER BY i PREDICT BY m", [100])
        assert [row["i"] for row in found] == list(range(100))
        assert list(found[0]) == ["i", "label", "prediction"]
        right = sum(row["prediction"] == row["label"] for row in found)
        assert right > 80
        for script in (
            "SELECT t PREDICT BY m",
            "SELECT * FROM t PREDICT BY m",
            "SELECT i, a, b, label FROM t PREDICT BY m AS prediction",
        ):
            same = self.rows(
                sql, f"SELECT sum(CASE WHEN prediction = label THEN 1 ELSE 0 END) AS n FROM ({script}) q WHERE i < 100"
            )
            assert same == [{"n": right}]
        sql.execute("CREATE TABLE kept AS SELECT i FROM t PREDICT BY m AS p")
        sql.execute("INSERT INTO kept SELECT i + 1000 AS i FROM t WHERE part = 0 PREDICT BY m")
        assert self.value(sql, "SELECT count(p) FROM kept") == ROWS + ROWS // 5
        assert len(self.rows(sql, "SELECT a AS x, b AS y FROM t LIMIT 3 PREDICT BY m")) == 3
        self.fails(sql, "SELECT part FROM t GROUP BY part PREDICT BY m", "without 'a', 'b'")
        self.fails(sql, "SELECT * FROM texts PREDICT BY m", "without 'a', 'b'")
        self.fails(sql, "SELECT * FROM t PREDICT BY nothing", "no model 'nothing'")

    def test_functions_of_bigquery(self, sql):
        sql.execute("SELECT a, b, label FROM t TRAIN BY logistic WITH learning_rate = 1 INTO m")
        plain = self.rows(sql, "SELECT i, label FROM t ORDER BY i PREDICT BY m")
        found = self.rows(sql, "SELECT * FROM ML.PREDICT(MODEL m, TABLE t) ORDER BY i")
        assert list(found[0]) == ["predicted_label", "predicted_label_probs", "i", "a", "b", "label", "part"]
        assert [row["predicted_label"] for row in found] == [row["prediction"] for row in plain]
        assert all(sum(row["predicted_label_probs"]) == pytest.approx(1) for row in found)
        sure = self.rows(
            sql,
            "SELECT * FROM ML.PREDICT(MODEL m, (SELECT a, b FROM t WHERE part = ?), STRUCT(0.8 AS threshold)) p",
            [1],
        )
        assert [row["predicted_label"] for row in sure] == [
            float(row["predicted_label_probs"][1] >= 0.8) for row in sure
        ]
        (evaluated,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE t)")
        assert evaluated["accuracy"] == sum(row["prediction"] == row["label"] for row in plain) / ROWS
        (part,) = self.rows(
            sql, "SELECT e.* FROM ML.EVALUATE(MODEL m, (SELECT a, b, label FROM t WHERE part = 1)) AS e"
        )
        assert (part["rows"], "r2" in part) == (ROWS // 5, False)
        assert self.value(sql, "SELECT count(*) FROM ML.WEIGHTS(MODEL m) w, ML.TRAINING_INFO(MODEL m) i") == 15
        nested = self.rows(
            sql,
            "SELECT * FROM ML.PREDICT(MODEL m, (SELECT a, b FROM ML.PREDICT(MODEL m, TABLE t) q WHERE predicted_label = 1))  x LIMIT 2",
        )
        assert len(nested) == 2
        self.fails(sql, "SELECT * FROM ML.PREDICT(MODEL m, TABLE t, STRUCT(2 AS threshold))", "threshold")
        self.fails(sql, "SELECT * FROM ML.PREDICT(MODEL m, TABLE texts)", "without 'a', 'b'")
        self.fails(sql, "SELECT * FROM ML.WEIGHTS(MODEL nothing)", "nothing")

    def test_plans(self, sql):
        found = [
            row["plan"] for row in self.rows(sql, "EXPLAIN SELECT a, b, label FROM t TRAIN BY svm WITH epochs = 2")
        ]
        text = "\n".join(found)
        assert [name for name in ("SGD", "TupleShuffle", "BlockShuffle") if name in text] == [
            "SGD",
            "TupleShuffle",
            "BlockShuffle",
        ]
        assert "Epochs: 2" in text
        sql.execute("EXPLAIN ANALYZE SELECT a, b, label FROM t WHERE i < 100 TRAIN BY svm INTO m").fetchall()
        assert self.rows(sql, "SHOW MODELS") == []
        self.fails(sql, "EXPLAIN SELECT nope FROM t TRAIN BY svm", "nope")
        assert self.rows(sql, "EXPLAIN SELECT 1") != []

    def test_all_else_passes(self, sql):
        found = self.rows(
            sql,
            "SELECT 1 AS train, 'TRAIN BY svm; ?' AS model, NULL AS label; -- the end\nSELECT ? AS a, 'it''s' AS b /* ? */, :x::int AS c"
            if False
            else "SELECT CAST(? AS int) AS a, 'it''s ?' AS b, CAST(? AS text) AS c",
            [7, "o'x"],
        )
        assert found == [{"a": 7, "b": "it's ?", "c": "o'x"}]
        assert self.rows(sql, "SELECT :n + 1 AS n, $n AS m, CAST(:t AS text) AS t", {"n": 1, "t": None}) == [
            {"n": 2, "m": 1, "t": None}
        ]
        assert self.rows(sql, "SELECT $2 - $1 AS d", [3, 10]) == [{"d": 7}]
        assert sql.execute("CREATE TABLE u (x int)").description is None
        assert sql.execute("INSERT INTO u VALUES (1), (2)").rowcount == 2
        assert self.rows(sql, "DELETE FROM u WHERE x = 1 RETURNING x") == [{"x": 1}]
        assert self.rows(sql, "SELECT x FROM u WHERE false") == []
        self.fails(sql, "SELECT * FROM nowhere", "nowhere")
        self.fails(sql, "SELECT ?", "parameter|value", [])
        self.fails(sql, "SELECT 1 +", "syntax|end of")
        assert self.value(sql, "SELECT 1") == 1

    def test_text_and_missing_values(self, sql):
        sql.execute("""CREATE TABLE people AS SELECT CASE i % 3 WHEN 0 THEN 'r"d' WHEN 1 THEN 'blue''' ELSE 'grün' END AS colour,
            CASE WHEN i % 7 = 0 THEN NULL ELSE a END AS a, CASE i % 3 WHEN 0 THEN 'yes' ELSE 'n''o' END AS answer FROM t""")
        script = "SELECT colour, a, answer FROM people TRAIN BY logistic WITH encode = {colour: onehot}, missing = mean, learning_rate = 1"
        sql.execute(f"{script} INTO m")
        found = self.rows(sql, "SELECT answer FROM people PREDICT BY m")
        assert sum(row["prediction"] == row["answer"] for row in found) == ROWS
        query = "(SELECT 'r\"d' AS colour, 0.5 AS a)"
        (row,) = self.rows(sql, f"SELECT * FROM ML.PREDICT(MODEL m, {query}, STRUCT(0.99999 AS threshold))")
        assert (row["predicted_answer"], row["predicted_answer_probs"][1] > 0.5) == ("n'o", True)
        assert self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE people)")[0]["accuracy"] == 1
        facts = {row["property"]: row["value"] for row in self.rows(sql, "DESCRIBE MODEL m")}
        assert json.loads(facts["classes"]) == ["n'o", "yes"]
        assert len(self.weights(sql, "m")) == 5
        self.fails(sql, "SELECT colour, a, answer FROM people TRAIN BY logistic WITH encode = onehot", "null|NULL")
        nope = "encode = {nope: onehot}, missing = 0"
        self.fails(sql, f"SELECT colour, a, answer FROM people TRAIN BY logistic WITH {nope}", "nope|colour")

    def test_rows_with_holes_are_skipped_or_filled(self, sql):
        sql.execute("CREATE TABLE holes AS SELECT CASE WHEN i % 4 > 0 THEN a END AS a, b, label FROM t")
        skipped = [
            self.rows(sql, f"SELECT * FROM holes TRAIN BY svm WITH epochs = 1, {how} = skip")
            for how in ("missing", "on_bad")
        ]
        assert [row["rows"] for (row,) in skipped] == [ROWS * 3 // 4] * 2
        self.fails(sql, "SELECT * FROM holes TRAIN BY svm WITH missing = skip, on_bad = raise", "give one of them")
        self.fails(sql, "SELECT * FROM holes TRAIN BY svm", "null|NULL")
        wanted = "missing ?= ?."
        self.fails(sql, "SELECT a, 'x' AS c, b, label FROM holes TRAIN BY svm WITH encode = onehot", wanted)

    def test_decimals_are_groups_where_they_are_whole(self, sql):
        """For prediction; models are not trained by them, nor measured."""
        sql.execute("SELECT a, label, part FROM t TRAIN BY svm WITH epochs = 1, by = part, label = label INTO g")
        whole, wanted = (
            "SELECT a, label, part::numeric{} AS part FROM t",
            "SELECT a, part FROM t ORDER BY i PREDICT BY g AS p",
        )
        wanted = [row["p"] for row in self.rows(sql, wanted)]
        for kind in ("(10, 2)", "(38, 0)", "(5, 0)"):
            rows = self.rows(sql, f"SELECT a, part::numeric{kind} AS part FROM t ORDER BY i PREDICT BY g AS p")
            assert [row["p"] for row in rows] == wanted
            refused = "text, (whole numbers|integers) or booleans"
            self.fails(sql, f"{whole.format(kind)} TRAIN BY svm WITH by = part, label = label", refused)
            self.fails(sql, f"SELECT * FROM ML.EVALUATE(MODEL g, ({whole.format(kind)}))", refused)
        for other in (
            "part + 0.5",
            "part + 9007199254740992.5",
            "1e30::numeric(38, 0)",
            "NULL::numeric",
            "part = 1",
            "'1'",
        ):
            self.fails(sql, f"SELECT a, {other} AS part FROM t PREDICT BY g", "of group|groups (are|must be)|group is")

    @pytest.mark.parametrize("text", [True, False])
    def test_more_columns_than_a_function_takes_arguments(self, sql, text):
        numbers = ", ".join(f"(i * {n + 3} % 97) / 97.0 AS c{n}" for n in range(130))
        colour = "CASE part WHEN 0 THEN 'red' ELSE 'blue' END AS colour, " if text else ""
        sql.execute(f"CREATE TABLE broad AS SELECT {colour}{numbers}, label FROM t")
        how = ", encode = onehot" if text else ""
        sql.execute(f"SELECT * FROM broad TRAIN BY logistic WITH epochs = 2{how} INTO m")
        plain = self.rows(sql, "SELECT label, c0 FROM broad PREDICT BY m")
        also = self.rows(sql, "SELECT predicted_label AS prediction FROM ML.PREDICT(MODEL m, TABLE broad) p")
        assert [row["prediction"] for row in plain] == [row["prediction"] for row in also]
        (evaluated,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE broad)")
        assert evaluated["accuracy"] == pytest.approx(sum(row["prediction"] == row["label"] for row in plain) / ROWS)
        assert len(self.weights(sql, "m")) == 131 + 2 * text


class TestDuckDB(Statements, OnDuckDB):
    """The tests on DuckDB in memory."""


class TestPostgreSQL(Statements, OnPostgreSQL):
    """The tests on PostgreSQL in a new database."""
