"""Multi-label models in SQL equal Python's on every engine, in predictions and model calls."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlengines import OnDuckDB, OnPostgreSQL

import corgipile as cp
from corgipile.errors import BadArgument, BadStatement, MissingColumn
from corgipile.sql import connect
from corgipile.sql.grammar import parse
from corgipile.sql.options import bind_settings

HOW = "epochs = 2, learning_rate = 0.05, order = no_shuffle, standardize = false"
PYTHON = {"epochs": 2, "learning_rate": 0.05, "order": "no_shuffle", "standardize": False}
# Arrays of text, arrays of integers, and columns of 0 and 1.
COLUMNS = {
    "tags": "string_to_array(CASE part WHEN 0 THEN 'low,odd' WHEN 1 THEN 'high' WHEN 2 THEN 'odd' ELSE 'low' END, ',')",
    "codes": "string_to_array(CASE part WHEN 0 THEN '7,-1' WHEN 1 THEN '7' WHEN 2 THEN '-1' ELSE '12' END, ',')::int[]",
    "big": "part > 2",
    "even": "part % 2",
}
SEVERAL = {"tags": "tags", "codes": "codes", "(big, even)": ["big", "even"]}


class Labels:
    """Tests for every engine."""

    def table(self, sql):
        """Create multi-label rows; return them as an Arrow table."""
        named = ", ".join(f"{text} AS {name}" for name, text in COLUMNS.items())
        sql.execute(f"CREATE TABLE posts AS SELECT a, b, {named}, (i % 3 + 1) * 0.5 AS w FROM t ORDER BY i")
        names = ["a", "b", *COLUMNS, "w"]
        columns = zip(*sql.execute(f"SELECT {', '.join(names)} FROM posts").fetchall(), strict=True)
        kinds = {"a": pa.float32(), "b": pa.float32(), "codes": pa.list_(pa.int32()), "w": pa.float64()}
        made = {name: pa.array(map(list, values) if name in ("tags", "codes") else map(float, values))
                for name, values in zip(names, columns, strict=True)}  # fmt: skip
        return pa.table({name: values.cast(kinds.get(name, values.type)) for name, values in made.items()})

    @pytest.mark.parametrize("named", SEVERAL)
    def test_models_are_those_of_python(self, sql, named):
        rows, labels = self.table(sql), SEVERAL[named]
        sql.execute(f"SELECT * FROM posts TRAIN BY logistic WITH labels = {named}, features = (a, b), {HOW} INTO m")
        python = cp.train(rows, labels=labels, features=["a", "b"], **PYTHON)
        found = self.rows(sql, "SELECT * FROM ML.WEIGHTS(MODEL m)")
        lines = zip(python.labels, python.coef.tolist(), python.intercept.tolist(), strict=True)
        assert [(row["label"], row["weight"]) for row in found] == [
            (label, weight) for label, coef, constant in lines for weight in [*coef, constant]
        ]
        predicted = self.rows(sql, "SELECT a, b FROM posts PREDICT BY m AS said")
        sets = [[str(one) for one in row] for row in python.sets(rows)]
        assert [row["said"] for row in predicted] == sets
        name = "predicted_" + (named if isinstance(labels, str) else "labels")
        answered = self.rows(sql, "SELECT * FROM ML.PREDICT(MODEL m, (SELECT a, b FROM posts))")
        assert [row[name] for row in answered] == sets
        chances = [row[f"{name}_probs"] for row in answered]
        assert np.allclose(chances, python.predict_proba(rows), rtol=1e-6)
        for weight, also in ((None, ""), ("w", ", STRUCT('w' AS weight)")):
            (measured,) = self.rows(sql, f"SELECT * FROM ML.EVALUATE(MODEL m, TABLE posts{also})")
            assert measured.pop("rows") == len(rows)
            assert measured == pytest.approx(python.measure(rows, weight=weight), rel=1e-9)
        (last,) = self.rows(sql, "SELECT loss, accuracy, rows FROM ML.EVALUATE(MODEL m)")
        assert last == {name: python.history[-1][name] for name in ("loss", "accuracy", "rows")}
        said = dict(sql.execute("DESCRIBE MODEL m").fetchall())
        assert said.get("label") == (labels if isinstance(labels, str) else None)

    def test_create_model_takes_them(self, sql):
        rows = self.table(sql)
        kind = "model_type = 'logistic_reg', max_iterations = 2, learn_rate = 0.05"
        for name, option in {
            "one": "labels = tags, features = ['a', 'b']",
            "two": "input_label_cols = ['big', 'even'], features = ['a', 'b']",
            "three": "labels = ['big', 'even'], features = ['a', 'b']",
        }.items():
            script = f"CREATE MODEL {name} OPTIONS ({kind}, {option}, order = no_shuffle, standardize = false)"
            sql.execute(f"{script} AS SELECT * FROM posts")
        for name, labels in (("one", "tags"), ("two", ["big", "even"]), ("three", ["big", "even"])):
            python = cp.train(rows, labels=labels, features=["a", "b"], **PYTHON)
            found = [row["weight"] for row in self.rows(sql, f"SELECT * FROM ML.WEIGHTS(MODEL {name})")]
            lines = zip(python.coef.tolist(), python.intercept.tolist(), strict=True)
            assert found == [weight for coef, constant in lines for weight in [*coef, constant]]

    def test_what_is_of_one_label_is_refused(self, sql):
        self.table(sql)
        given = f"labels = tags, features = (a, b), {HOW}"
        sql.execute(f"SELECT * FROM posts TRAIN BY logistic WITH {given} INTO m")
        for call, more in (
            ("CONFUSION_MATRIX", ""),
            ("ROC_CURVE", ""),
            ("CALIBRATION", ""),
            ("ADVANCED_WEIGHTS", ""),
            ("EVALUATE", ", STRUCT(0.6 AS threshold)"),
            ("PREDICT", ", STRUCT(0.6 AS threshold)"),
        ):
            script = f"SELECT * FROM ML.{call}(MODEL m, TABLE posts{more})"
            self.fails(sql, script, f"ML.{call} needs a model of one label; 'm' has 3", kind=BadArgument)
        for what, why in (
            (f"WITH {given} LABEL big", "label and labels exclude each other, got label 'big'; give one of them"),
            (f"WITH {given}, validation = 0.1", "must be left out with labels"),
            (f"WITH {given}, by = even", "must be left out with labels"),
            ("WITH labels = a, features = b", "label column .a. is "),
            ("WITH labels = nil", "there is no column 'nil'"),
        ):
            self.fails(sql, f"SELECT * FROM posts TRAIN BY logistic {what}", why)
        self.fails(sql, f"SELECT * FROM posts TRAIN BY softmax WITH {given}", "squared_hinge with labels, got")
        self.fails(sql, "SELECT a, b, big FROM posts TRAIN BY logistic USING m", "label", kind=Exception)

    def test_functions_name_each_other(self, sql):
        self.table(sql)
        sql.execute(f"SELECT * FROM posts TRAIN BY svm WITH labels = tags, features = (a, b), {HOW} INTO m")
        schema = "corgipile." if isinstance(self, OnPostgreSQL) else ""
        self.fails(sql, f"SELECT {schema}predict('m', a, b) FROM posts", "is a multi-label model", kind=Exception)
        sql.execute(f"SELECT a, b, even FROM posts TRAIN BY svm WITH {HOW} INTO n")
        self.fails(
            sql, f"SELECT {schema}predict_labels('n', a, b) FROM posts", "is no multi-label model", kind=Exception
        )
        assert self.value(sql, f"SELECT {schema}predict_labels('m', NULL::real, 1::real)") is None
        assert sql.execute("EXPLAIN SELECT * FROM posts TRAIN BY svm WITH labels = tags, features = (a, b)").fetchall()


class TestDuckDB(Labels, OnDuckDB):
    """The tests on DuckDB."""


class TestPostgreSQL(Labels, OnPostgreSQL):
    """The tests on PostgreSQL."""


def test_names_are_read():
    for said, labels in (("tags", ("tags",)), ("(a, b)", ("a", "b")), ("['a', 'b']", ("a", "b")), ("?", ("x", "y"))):
        (train,) = parse(f"SELECT * FROM t TRAIN BY svm WITH labels = {said}")
        assert bind_settings(train, {"1": ["x", "y"]}).settings == {"labels": labels}
    for wrong, message in (("labels = 3", "a column name"), ("labels = []", "a column name")):
        with pytest.raises(BadStatement, match=message):
            parse(f"SELECT * FROM t TRAIN BY svm WITH {wrong}")
    with pytest.raises(BadArgument, match="labels must be the name of a column or a list of them, got 3"):
        bind_settings(parse("SELECT * FROM t TRAIN BY svm WITH labels = ?")[0], {"1": 3})


def test_files_are_learnt_from_where_they_lie(tmp_path):
    pytest.importorskip("duckdb")
    rows = pa.table({"x": [-1.0, 1.0] * 100, "Tags": [["low"], ["high", "odd"]] * 100})
    pq.write_table(rows, tmp_path / "t.parquet")
    with connect() as sql:
        sql.execute(f"SELECT * FROM '{tmp_path}/t.parquet' TRAIN BY logistic WITH labels = tags, epochs = 2 INTO m")
        found = sql.engine.models.find("m").model
        assert found.coef.tobytes() == cp.train(tmp_path / "t.parquet", labels="Tags", epochs=2).coef.tobytes()
        answer = sql.execute(f"SELECT * FROM '{tmp_path}/t.parquet' PREDICT BY m").arrow()
        assert answer["prediction"].to_pylist()[:2] == [["low"], ["high", "odd"]]
        assert sql.execute(f"SELECT rows FROM ML.EVALUATE(MODEL m, (SELECT * FROM '{tmp_path}/t.parquet'))").fetchall()
        with pytest.raises(MissingColumn, match="no column 'Tags'"):
            sql.execute(f"SELECT * FROM ML.EVALUATE(MODEL m, (SELECT x FROM '{tmp_path}/t.parquet'))")
