"""ML.EVALUATE, ML.CONFUSION_MATRIX, ML.ROC_CURVE and others on every engine, compared with counts in Python."""

# ruff: noqa: S608  # tests write SQL

import itertools
import math

import numpy as np
import pytest
from sqlengines import ROWS, OnDuckDB, OnPostgreSQL

from corgipile.errors import BadStatement, CorgiPileError
from corgipile.sql.engines.duckdb import evaluation, rows
from corgipile.sql.engines.evaluation import CLASS_METRICS, REGRESSION_METRICS

TRAIN = "TRAIN BY logistic WITH learning_rate = 0.3, epochs = 3"
NOISY = "SELECT a, b, (a + (i % 7) * 0.1 > 0.8)::int AS label FROM t"
THREE = "SELECT a, b, CASE WHEN a < 0.3 THEN 'low' WHEN b < 0.9 THEN '2nd' ELSE 'it''s' END AS kind FROM t"


def shares(asking, sql, rows="noisy"):
    """Return the class of each row and the probability of the second class."""
    found = asking.rows(sql, f"SELECT label, predicted_label_probs AS p FROM ML.PREDICT(MODEL m, TABLE {rows}) q")
    return [(int(row["label"]), row["p"][1]) for row in found]


def counts(pairs, threshold):
    """Count true and false positives and negatives."""
    said = [(actual, int(share >= threshold)) for actual, share in pairs]
    return {(i, k): said.count((i, k)) for i in range(2) for k in range(2)}


def area(pairs):
    """Return the share of row pairs in the right order."""
    mine, others = ([share for actual, share in pairs if actual == k] for k in (1, 0))
    better = sum((x > y) + (x == y) / 2 for x, y in itertools.product(mine, others))
    return better / (len(mine) * len(others))


class Evaluation:
    """Tests for every engine."""

    @pytest.fixture
    def noisy(self, sql):
        sql.execute(f"CREATE TABLE noisy AS {NOISY}; SELECT * FROM noisy {TRAIN} INTO m")

    @pytest.mark.parametrize("threshold", [None, 0.3, 1])
    def test_two_classes(self, sql, noisy, threshold):
        pairs = shares(self, sql)
        cells = counts(pairs, 0.5 if threshold is None else threshold)
        also = "" if threshold is None else f", STRUCT({threshold} AS threshold)"
        (found,) = self.rows(sql, f"SELECT * FROM ML.EVALUATE(MODEL m, TABLE noisy{also})")
        assert tuple(found) == CLASS_METRICS
        assert found["accuracy"] == (cells[0, 0] + cells[1, 1]) / ROWS
        said = cells[0, 1] + cells[1, 1]
        assert found["precision"] == (cells[1, 1] / said if said else None)
        assert found["recall"] == cells[1, 1] / (cells[1, 0] + cells[1, 1])
        assert found["f1_score"] == 2 * cells[1, 1] / (said + cells[1, 0] + cells[1, 1])
        assert found["roc_auc"] == pytest.approx(area(pairs), abs=1e-12)
        assert (found["log_loss"], found["rows"]) == (found["loss"], ROWS)
        matrix = self.rows(sql, f"SELECT * FROM ML.CONFUSION_MATRIX(MODEL m, TABLE noisy{also}) x")
        assert [tuple(row.values()) for row in matrix] == [(k, cells[k, 0], cells[k, 1]) for k in (0, 1)]
        assert list(matrix[0]) == ["expected_label", "_0", "_1"]

    def test_queries_are_evaluated_on_the_rows_that_they_gave(self, sql, noisy):
        sampled = "SELECT * FROM noisy WHERE random() < 0.5"
        joined = "SELECT x.a, y.b, x.label FROM noisy x JOIN noisy y ON x.a = y.a WHERE x.a > 0.3"
        for query in ("SELECT * FROM noisy WHERE a > 0.2", joined, sampled, f"SELECT * FROM ({sampled}) q"):
            (found,) = self.rows(sql, f"SELECT * FROM ML.EVALUATE(MODEL m, ({query}))")
            right = found["accuracy"] * found["rows"]
            assert 0 < found["rows"] < ROWS
            assert right == pytest.approx(round(right), abs=1e-6)
        plain = self.rows(
            sql, "SELECT * FROM ML.EVALUATE(MODEL m, (SELECT a, b, label FROM noisy q WHERE q.a > ?))", [0.2]
        )
        assert plain == self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, (SELECT * FROM noisy WHERE a > 0.2))")

    def test_three_classes_of_text(self, sql):
        sql.execute(
            f"CREATE TABLE three AS {THREE}; SELECT * FROM three TRAIN BY softmax WITH learning_rate = 0.1 INTO m"
        )
        said = self.rows(sql, "SELECT kind, prediction FROM (SELECT * FROM three PREDICT BY m) q")
        names = sorted({row["kind"] for row in said})
        matrix = self.rows(sql, "SELECT * FROM ML.CONFUSION_MATRIX(MODEL m, (SELECT * FROM three))")
        assert list(matrix[0]) == ["expected_label", "_2nd", "it's", "low"]
        cells = {
            (row["expected_label"], name): list(row.values())[k + 1] for row in matrix for k, name in enumerate(names)
        }
        assert cells == {
            (i, k): sum((row["kind"], row["prediction"]) == (i, k) for row in said) for i in names for k in names
        }
        (found,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE three)")
        recalls = [cells[name, name] / sum(cells[name, other] for other in names) for name in names]
        assert found["recall"] == pytest.approx(sum(recalls) / 3)
        assert (found["accuracy"], found["roc_auc"]) == (sum(cells[name, name] for name in names) / ROWS, None)
        self.fails(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE three, STRUCT(0.5 AS threshold))", "two classes")
        self.fails(sql, "SELECT * FROM ML.ROC_CURVE(MODEL m, TABLE three)", "two classes")

    def test_curves(self, sql, noisy):
        pairs = shares(self, sql)
        points = self.rows(sql, "SELECT * FROM ML.ROC_CURVE(MODEL m, TABLE noisy, [0.6, 0.25, 0, 0.6])")
        assert [row["threshold"] for row in points] == [0.6, 0.25, 0]
        default = self.rows(sql, "SELECT * FROM ML.ROC_CURVE(MODEL m, (SELECT * FROM noisy WHERE a >= 0)) r")
        assert 50 < len(default) <= 101
        assert (default[-1]["recall"], default[-1]["true_negatives"]) == (1, 0)
        for row in points + default:
            cells = counts(pairs, row["threshold"])
            expected = (cells[1, 1], cells[0, 1], cells[0, 0], cells[1, 0])
            assert tuple(row.values())[3:] == expected
            assert row["recall"] == cells[1, 1] / (cells[1, 0] + cells[1, 1])
        made = self.rows(sql, "SELECT threshold FROM ML.ROC_CURVE(MODEL m, TABLE noisy, GENERATE_ARRAY(0.5, 0.9, 0.2))")
        assert [row["threshold"] for row in made] == pytest.approx([0.9, 0.7, 0.5])

    @pytest.fixture
    def weighed(self, sql, noisy):
        """Create weighted rows, and a table that repeats each row by its weight."""
        numbered = "SELECT row_number() OVER () AS i, * FROM noisy"
        columns = (
            "*, i % 4 AS w, (i % 4)::decimal(9, 2) AS exact, 'a' AS text, NULL::int AS hole, -1 AS less, 0 AS zero"
        )
        sql.execute(f"CREATE TABLE weighed AS SELECT {columns} FROM ({numbered}) q")
        sql.execute("CREATE TABLE copied AS SELECT q.* FROM weighed q, generate_series(1, 3) AS g (k) WHERE k <= w")

    def test_a_weight_counts_a_row_so_often(self, sql, weighed):
        by = "STRUCT('w' AS weight)"
        (one,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE weighed, STRUCT('W' AS weight))")
        (copied,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE copied)")
        assert (one.pop("rows"), copied.pop("rows")) == (ROWS, ROWS // 4 * 6)
        assert one == pytest.approx(copied)
        queried = f"SELECT roc_auc FROM ML.EVALUATE(MODEL m, (SELECT * FROM weighed WHERE i > 0), {by})"
        assert self.value(sql, queried) == pytest.approx(one["roc_auc"])
        for function, points in (("CONFUSION_MATRIX", ""), ("ROC_CURVE", ", [0.3, 0.6]")):
            mine = self.rows(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE weighed{points}, {by})")
            assert mine == self.rows(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE copied{points})")
        curve = self.rows(sql, f"SELECT * FROM ML.ROC_CURVE(MODEL m, TABLE weighed, {by})")
        assert curve[-1]["true_positives"] + curve[-1]["false_positives"] == ROWS // 4 * 6

    def test_decimals_are_weights(self, sql, weighed):
        for function in ("EVALUATE", "CONFUSION_MATRIX", "ROC_CURVE"):
            call = f"SELECT * FROM ML.{function}(MODEL m, TABLE weighed, STRUCT('{{}}' AS weight))"
            assert self.rows(sql, call.format("exact")) == self.rows(sql, call.format("w"))
        for name in ("w", "exact"):
            options = f"epochs = 2, weight = {name}"
            sql.execute(f"SELECT a, b, {name}, label FROM weighed TRAIN BY logistic WITH {options} INTO {name}")
        assert self.weights(sql, "exact") == self.weights(sql, "w")

    def test_the_scale_of_weights_is_nothing_to_an_area(self, sql, weighed):
        columns = "w * 1e300::float8 AS large, w * 1e-300::float8 AS small"
        asked = f"ML.EVALUATE(MODEL m, (SELECT *, {columns} FROM weighed), STRUCT('{{}}' AS weight))"
        found = [self.value(sql, f"SELECT roc_auc FROM {asked.format(name)}") for name in ("w", "large", "small")]
        assert found == pytest.approx([found[0]] * 3)

    def test_calibration(self, sql, weighed):
        pairs = shares(self, sql)
        for rest, weights in (("", None), (", STRUCT(4 AS bins)", None), (", STRUCT(5 AS bins, 'w' AS weight)", "w")):
            found = self.rows(sql, f"SELECT * FROM ML.CALIBRATION(MODEL m, TABLE weighed{rest})")
            assert tuple(found[0]) == ("low", "high", "predicted", "observed", "rows", "weight")
            bins = round(1 / (found[0]["high"] - found[0]["low"]))
            assert bins == {"": 10, ", STRUCT(4 AS bins)": 4}.get(rest, 5)
            counted = self.rows(
                sql, "SELECT label, w, predicted_label_probs AS p FROM ML.PREDICT(MODEL m, TABLE weighed) q"
            )
            for row in found:
                inside = [
                    (int(one["label"]), one["w"] if weights else 1, one["p"][1])
                    for one in counted
                    if min(int(one["p"][1] * bins), bins - 1) == round(row["low"] * bins)
                ]
                mass = sum(w for _, w, _ in inside)
                assert (row["rows"], row["weight"]) == (len(inside), mass)
                assert row["predicted"] == pytest.approx(sum(w * p for _, w, p in inside) / mass, rel=1e-6)
                assert row["observed"] == pytest.approx(sum(w * k for k, w, _ in inside) / mass)
            assert sum(row["rows"] for row in found) == len(pairs) == ROWS
        of_query = "SELECT sum(rows) FROM ML.CALIBRATION(MODEL m, (SELECT * FROM weighed WHERE i <= 100))"
        assert self.value(sql, of_query) == 100
        for rest, said in (("0 AS bins", "bins must be a whole number of 1 to 1000, got 0"), ("'w' AS wait", "wait")):
            kind = BadStatement if "wait" in rest else CorgiPileError
            self.fails(sql, f"SELECT * FROM ML.CALIBRATION(MODEL m, TABLE t, STRUCT({rest}))", said, kind=kind)
        self.fails(
            sql, "SELECT * FROM ML.CALIBRATION(MODEL m, TABLE t, STRUCT(1.5 AS bins))", "whole", kind=BadStatement
        )
        sql.execute("SELECT a, b, label FROM noisy TRAIN BY svm INTO hinge")
        self.fails(sql, "SELECT * FROM ML.CALIBRATION(MODEL hinge, TABLE noisy)", "no probabilities")

    @pytest.mark.parametrize("weight", [None, "w"])
    def test_standard_errors(self, sql, weighed, weight):
        rest = "" if weight is None else f", STRUCT('{weight}' AS weight)"
        found = self.rows(sql, f"SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m, TABLE weighed{rest})")
        names = ["processed_input", "weight", "standard_error", "z", "p_value", "low", "high", "gap"]
        assert list(found[0]) == names
        assert [row["processed_input"] for row in found] == ["a", "b", "__INTERCEPT__"]
        assert {(None, row["processed_input"]): row["weight"] for row in found} == self.weights(sql, "m")
        rows = self.rows(sql, "SELECT a, b, label, w FROM weighed")
        x = np.array([[row["a"], row["b"], 1] for row in rows])
        w = np.array([row["w"] if weight else 1 for row in rows])
        label, coef = np.array([row["label"] for row in rows]), np.array([row["weight"] for row in found])
        mean = 1 / (1 + np.exp(-x @ coef))
        bread = np.linalg.inv((x.T * (w * mean * (1 - mean))) @ x)
        errors = np.sqrt(np.diag(bread @ (x.T * (w * (mean - label)) ** 2) @ x @ bread))
        np.testing.assert_allclose([row["standard_error"] for row in found], errors, rtol=1e-6)
        np.testing.assert_allclose([row["z"] for row in found], coef / errors, rtol=1e-6)
        for row in found:
            assert row["p_value"] == pytest.approx(math.erfc(abs(row["z"]) / math.sqrt(2)), rel=1e-6)
            assert row["low"] < row["weight"] < row["high"]
        query = f"SELECT max(gap) FROM ML.ADVANCED_WEIGHTS(MODEL m, (SELECT * FROM weighed WHERE i > 0){rest})"
        assert self.value(sql, query) == pytest.approx(max(row["gap"] for row in found), rel=1e-6)
        self.fails(
            sql, "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m, (SELECT a, 1 AS b, label FROM noisy))", "is singular: "
        )
        sql.execute("SELECT a, b, label FROM noisy TRAIN BY svm INTO hinge")
        self.fails(
            sql, "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL hinge, TABLE noisy)", "standard errors (are|need a model) of"
        )
        self.fails(sql, "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m)", "the rows of ML.ADVANCED")

    def test_numbers_by_weights(self, sql, weighed):
        sql.execute("SELECT a, b, i FROM weighed TRAIN BY linear WITH epochs = 2 INTO m")
        (one,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE weighed, STRUCT('w' AS weight))")
        (copied,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE copied)")
        assert (one.pop("rows"), copied.pop("rows")) == (ROWS, ROWS // 4 * 6)
        assert one == pytest.approx(copied)

    def test_weights_that_are_none(self, sql, weighed):
        cases = {
            "nowhere": "nowhere",
            "text": "text",
            "label": "the label",
            "hole": "weight|hole",
            "less": "weight|less",
            "zero": "must be above 0, got only zeros|all zero",
        }
        for function in ("EVALUATE", "CONFUSION_MATRIX", "ROC_CURVE", "CALIBRATION", "ADVANCED_WEIGHTS"):
            call = f"SELECT * FROM ML.{function}(MODEL m, TABLE weighed"
            for name, said in cases.items():
                self.fails(sql, f"{call}, STRUCT('{name}' AS weight))", said)
            self.fails(sql, f"{call}, STRUCT(3 AS weight))", "must be text", kind=BadStatement)
        self.fails(
            sql, "SELECT * FROM ML.EVALUATE(MODEL m, STRUCT('w' AS weight))", "a weight needs rows", kind=BadStatement
        )

    def test_rows_told_apart_without_error_have_an_area_of_one(self, sql):
        sql.execute(
            "CREATE TABLE apart AS SELECT a, i % 3 + 1 AS w, (a > 0.53)::int AS label FROM t WHERE a < 0.5 OR a > 0.53"
        )
        sql.execute("SELECT a, label FROM apart TRAIN BY logistic WITH epochs = 30 INTO m")
        for rest in ("", ", STRUCT('w' AS weight)"):
            assert self.value(sql, f"SELECT roc_auc FROM ML.EVALUATE(MODEL m, TABLE apart{rest})") == 1

    def test_numbers(self, sql):
        sql.execute("SELECT a, b, i FROM t TRAIN BY linear WITH epochs = 2 INTO m")
        (found,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE t)")
        wrong = [row["prediction"] - row["i"] for row in self.rows(sql, "SELECT i FROM t PREDICT BY m")]
        assert tuple(found) == REGRESSION_METRICS
        assert found["mean_absolute_error"] == pytest.approx(sum(map(abs, wrong)) / ROWS)
        assert found["mean_squared_error"] == pytest.approx(sum(one**2 for one in wrong) / ROWS)
        for function in ("CONFUSION_MATRIX", "ROC_CURVE", "CALIBRATION"):
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE t)", "predicts numbers")

    def test_what_cannot_be_evaluated(self, sql, noisy):
        sql.execute("CREATE TABLE others AS SELECT a, CASE WHEN i = 7 THEN 5 ELSE label END AS label, b FROM t")
        sql.execute("CREATE TABLE holes AS SELECT CASE WHEN i <> 9 THEN a END AS a, b, label FROM t")
        for function in ("EVALUATE", "CONFUSION_MATRIX", "ROC_CURVE", "CALIBRATION", "ADVANCED_WEIGHTS"):
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE others)", "class|label")
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE holes)", "null|NULL")
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, TABLE nowhere)", "nowhere")
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, (SELECT a, label FROM t))", "b")
        for function in ("CONFUSION_MATRIX", "ROC_CURVE"):
            self.fails(sql, f"SELECT * FROM ML.{function}(MODEL m, (SELECT a, b FROM t))", "label")
        assert self.rows(sql, "SELECT * FROM ML.ROC_CURVE(MODEL m, (SELECT * FROM noisy WHERE false))") == []
        for row in self.rows(sql, "SELECT * FROM ML.CONFUSION_MATRIX(MODEL m, (SELECT * FROM noisy WHERE false))"):
            assert list(row.values())[1:] == [0, 0]
        for rest in (
            "0.5",
            "[]",
            "[2]",
            "[0.5, 'a']",
            "GENERATE_ARRAY(0.1)",
            "GENERATE_ARRAY(0, 1, 0)",
            "STRUCT(0.5 AS threshold)",
        ):
            self.fails(
                sql, f"SELECT * FROM ML.ROC_CURVE(MODEL m, TABLE t, {rest})", "threshold|expected", kind=BadStatement
            )
        self.fails(sql, "SELECT * FROM ML.EVALUATE(MODEL m, STRUCT(0.5 AS threshold))", "needs rows", kind=BadStatement)
        self.fails(
            sql,
            "SELECT * FROM ML.EVALUATE(MODEL m, TABLE noisy, STRUCT(7 AS threshold))",
            "threshold must be from 0 to 1",
        )

    def test_models_by_group(self, sql):
        sql.execute(f"CREATE TABLE towns AS SELECT *, CASE WHEN a < 0.4 THEN 'A' ELSE 'B' END AS town FROM ({NOISY}) q")
        sql.execute("SELECT a, b, town, label FROM towns TRAIN BY logistic WITH by = town, epochs = 2 INTO m")
        pairs = shares(self, sql, "towns")
        (found,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE towns)")
        assert found["roc_auc"] == pytest.approx(area(pairs), abs=1e-12)
        for threshold in (0.5, 0.3):
            cells = counts(pairs, threshold)
            of = f"MODEL m, TABLE towns, STRUCT({threshold} AS threshold)"
            matrix = self.rows(sql, f"SELECT * FROM ML.CONFUSION_MATRIX({of})")
            assert [tuple(row.values())[1:] for row in matrix] == [(cells[k, 0], cells[k, 1]) for k in (0, 1)]

    def test_booleans(self, sql):
        sql.execute(f"CREATE TABLE truths AS SELECT a, b, label = 1 AS label FROM ({NOISY}) q")
        sql.execute(f"SELECT * FROM truths {TRAIN} INTO m")
        cells = counts(shares(self, sql, "truths"), 0.5)
        matrix = self.rows(sql, "SELECT * FROM ML.CONFUSION_MATRIX(MODEL m, TABLE truths)")
        assert [tuple(row.values())[1:] for row in matrix] == [(cells[k, 0], cells[k, 1]) for k in (0, 1)]
        assert [bool(row["expected_label"]) for row in matrix] == [False, True]
        (found,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE truths)")
        assert found["accuracy"] == (cells[0, 0] + cells[1, 1]) / ROWS


class TestDuckDB(OnDuckDB, Evaluation):
    """The tests on DuckDB."""

    def test_rows_of_a_query_in_a_spill_file(self, sql, noisy, monkeypatch):
        query = "SELECT * FROM ML.EVALUATE(MODEL m, (SELECT a, b, label FROM noisy WHERE a > 0.1))"
        few = self.rows(sql, query)
        monkeypatch.setattr(rows, "DEFAULT", 4096)
        read, before = list[object](), evaluation.read_query
        monkeypatch.setattr(evaluation, "read_query", lambda *rows: read.append(before(*rows)) or read[-1])
        assert self.rows(sql, query) == few
        assert "SpilledTable" in repr(read)

    def test_columns_match_in_any_case(self, sql, noisy):
        for function in ("EVALUATE", "CONFUSION_MATRIX", "ROC_CURVE", "CALIBRATION", "ADVANCED_WEIGHTS"):
            call = f"SELECT * FROM ML.{function}(MODEL m, (SELECT {{}} FROM noisy))"
            assert self.rows(sql, call.format('a AS "A", b, label AS "Label"')) == self.rows(sql, call.format("*"))

    def test_more_classes_than_a_matrix_has(self, sql):
        sql.execute("CREATE TABLE fine AS SELECT i % 2000 AS a, i % 1030 AS kind FROM range(4000) r (i)")
        sql.execute("SELECT a, kind FROM fine TRAIN BY softmax WITH epochs = 1 INTO m")
        (found,) = self.rows(sql, "SELECT * FROM ML.EVALUATE(MODEL m, TABLE fine)")
        right = "SELECT avg((kind = prediction)::int) FROM (SELECT * FROM fine PREDICT BY m)"
        assert found["accuracy"] == pytest.approx(self.value(sql, right))
        self.fails(sql, "SELECT * FROM ML.CONFUSION_MATRIX(MODEL m, TABLE fine)", "at most 1000 classes, got 1030")


class TestPostgreSQL(OnPostgreSQL, Evaluation):
    """The tests on PostgreSQL."""
