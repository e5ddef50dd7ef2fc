"""Rows that count for more or less, and stopping by rows held out, inside the server: what is refused, and going on."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

from corgipile.linear.model import unpack

TABLE = """CREATE TABLE t AS SELECT ARRAY[random() + i % 2, random()]::real[] AS x, i % 2 AS label,
    CASE i % 2 WHEN 0 THEN 'no' ELSE 'yes' END AS word, (i % 3)::float8 AS w, 'a' AS text, 0 AS nothing,
    CASE i WHEN 7 THEN -1 ELSE 1 END AS negative, CASE i WHEN 7 THEN 'NaN'::float8 ELSE 1 END AS nan,
    CASE i WHEN 7 THEN NULL ELSE 1 END AS missing FROM generate_series(1, 2000) i"""
BALANCED = "class_weight must be 'balanced' or a JSON object of numbers by class"
REFUSED = {
    "weight => 'wait'": 'has no column "wait"',
    "weight => 'text'": 'weight column "text" is text; a number or boolean is needed',
    "weight => 'label'": 'column "label" is the label; it cannot be the weight too',
    "weight => 'x'": 'weight column "x" is real[]',
    "weight => 'nothing'": "the weights of the rows to learn from are all zero; one above 0 is needed",
    "weight => 'negative'": "has weight -1; a finite number of 0 or more is needed",
    "weight => 'nan'": "has weight NaN; a finite number of 0 or more is needed",
    "weight => 'missing'": 'has a NULL in weight column "missing"',
    "class_weight => 'equal'": BALANCED,
    "class_weight => '3'": BALANCED,
    "class_weight => '{}'": "class_weight must name at least one class, got an empty object",
    "class_weight => '{\"0\": -1}'": 'class_weight of class "0" must be a finite number of 0 or more',
    'class_weight => \'{"0": "a"}\'': 'class_weight of class "0" must be a finite number of 0 or more',
    "class_weight => '{\"7\": 1}'": 'class_weight must name classes of the label, got "7"',
    'class_weight => \'{"0": 0, "1": 0}\'': "class_weight must be above 0 for at least one class",
    "class_weight => 'balanced', model => 'linear'": "class_weight needs a classifier; a linear model predicts numbers",
    "class_weight => 'balanced', model => 'softmax', classes => '{0,1,2}'": "there are none of class 2",
    "patience => 2": "patience needs validation rows: set holdout",
    "patience => 0, holdout => 0.1": "patience must be at least 1, got 0",
    "patience => 1, holdout => 1e-9": "so early stopping has no validation rows",
}


@pytest.fixture
def table(server):
    server.sql(f"DROP TABLE IF EXISTS t; SELECT setseed(0.25); {TABLE}")


def test_numerics_are_weights(server, table):
    server.sql("ALTER TABLE t ADD COLUMN exact numeric(9, 2); UPDATE t SET exact = w")
    for name in ("w", "exact"):
        server.rows(
            f"SELECT rows FROM corgipile.train('t', 'logistic', 'x', 'label', weight => '{name}', name => 'by_{name}')"
        )
    for function, of in (("evaluate", "loss, accuracy, auc"), ("confusion_matrix", "*"), ("class_metrics", "*")):
        found = [
            server.rows(f"SELECT {of} FROM corgipile.{function}('by_w', 't', weight => '{name}')")
            for name in ("w", "exact")
        ]
        assert found[0] == found[1]
    one, other = server.rows("SELECT coefficients FROM corgipile.models WHERE name IN ('by_w', 'by_exact')")
    assert one == other


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_is_said(server, table, fails, options):
    model = "" if "model =>" in options else "model => 'logistic', "
    said = fails(f"SELECT * FROM corgipile.train('t', {model}features => 'x', label => 'label', {options})")
    assert REFUSED[options] in said


def test_rows_whose_weights_are_bad_are_left_out(server, table):
    for column in ("negative", "nan", "missing"):
        (row,) = server.rows(
            f"SELECT rows FROM corgipile.train('t', 'logistic', 'x', 'label', weight => '{column}', missing => 'skip', "
            "epochs => 1)"
        )
        assert row["rows"] == 1999


def test_the_column_is_no_feature_and_words_are_weighed(server, table):
    server.sql(
        "DROP TABLE IF EXISTS worded; CREATE TABLE worded AS SELECT x[1] AS a, x[2] AS b, w, word AS label FROM t"
    )
    train = "SELECT * FROM corgipile.train('worded', 'logistic', '*', 'label', name => '{}', weight => 'w', {})"
    server.sql(train.format("one", "class_weight => '{\"yes\": 3}'"))
    server.sql(train.format("other", 'class_weight => \'{"no": 1, "yes": 3.0}\''))
    one, other = server.rows("SELECT coefficients, params FROM corgipile.models WHERE name IN ('one', 'other')")
    assert one["coefficients"] == other["coefficients"]
    assert one["params"]["features"] == ["a", "b"]
    assert {row["params"]["class_weight"]["yes"] for row in (one, other)} == {3}
    server.sql("DROP TABLE worded")


def test_going_on_from_the_best_epoch_goes_on_from_the_last(server, table):
    how = "holdout => 0.3, patience => 4, step => 'decay', learning_rate => 0.5"
    train = "SELECT * FROM corgipile.train('t', 'logistic', 'x', 'label', {}, epochs => {}, name => '{}', {})"
    whole = server.rows(train.format(how, 20, "whole", "seed => 0"))
    server.sql(train.format(how, 2, "part", "seed => 0"))
    server.sql(train.format(how, 18, "part", "warm_start => 'part'"))
    found = server.rows("SELECT coefficients, params -> 'best_epoch' AS best FROM corgipile.models "
                        "WHERE name IN ('whole', 'part')")  # fmt: skip
    assert found[0] == found[1]
    losses = [row["holdout_loss"] for row in whole]
    assert found[0]["best"] == losses.index(min(losses))
    assert len(losses) == min(20, found[0]["best"] + 5)
    (measured,) = server.rows("SELECT loss FROM corgipile.evaluate('whole', 't', label => 'label')")
    assert measured["loss"] > 0


JUDGED = ("evaluate", "confusion_matrix", "class_metrics", "auc", "roc")


@pytest.mark.every_server
def test_measures_count_rows_by_their_weights(server, table):
    """As scikit-learn does, and `Model.measure`, whose rows are the same."""
    server.sql(
        "SELECT * FROM corgipile.train('t', 'logistic', 'x', 'word', weight => 'w', name => 'weighed', epochs => 2)"
    )
    rows = server.rows("SELECT x, word, w, corgipile.predict_text('weighed', x) AS said, "
                       "(corgipile.decision('weighed', x))[1] AS score FROM t")  # fmt: skip
    word, said, score, w = (np.array([row[name] for row in rows]) for name in ("word", "said", "score", "w"))
    call = "('weighed', 't', weight => 'w')"
    (found,) = server.rows(f"SELECT * FROM corgipile.evaluate{call}")
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(word, said, sample_weight=w))
    assert found["log_loss"] == pytest.approx(
        metrics.log_loss(word, 1 / (1 + np.exp(-score)), sample_weight=w), rel=1e-6
    )
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(word, score, sample_weight=w), abs=1e-12)
    assert (found["auc"], found["rows"]) == (server.value(f"SELECT corgipile.auc{call}"), 2000)
    content = server.value("SELECT encode(corgipile.export('weighed'), 'hex')")
    table = pa.table({"x": pa.array([row["x"] for row in rows], pa.list_(pa.float32(), 2)), "word": word, "w": w})
    measured = unpack(bytes.fromhex(content)).measure(table, weight="w")
    assert (measured["loss"], measured["accuracy"]) == (found["loss"], found["accuracy"])
    cells = server.rows(f"SELECT * FROM corgipile.confusion_matrix{call}")
    matrix = metrics.confusion_matrix(word, said, sample_weight=w)
    assert [cell["weight"] for cell in cells] == pytest.approx(matrix.ravel())
    assert [cell["rows"] for cell in cells] == metrics.confusion_matrix(word, said).ravel().tolist()
    sets = metrics.precision_recall_fscore_support(word, said, sample_weight=w)
    for name, wanted in zip(("precision", "recall", "f1", "weight"), sets, strict=True):
        assert [row[name] for row in server.rows(f"SELECT * FROM corgipile.class_metrics{call}")] == pytest.approx(
            wanted
        )
    points = server.rows(f"SELECT * FROM corgipile.roc{call}")
    assert metrics.auc(*([point[name] for point in points] for name in ("fpr", "tpr"))) == pytest.approx(found["auc"])


def test_measures_of_numbers_by_weights(server, table):
    server.sql("SELECT * FROM corgipile.train('t', 'linear', 'x', 'label', name => 'weighed', epochs => 2)")
    rows = server.rows("SELECT label, w, corgipile.predict('weighed', x) AS said FROM t")
    label, said, w = (np.array([row[name] for row in rows], float) for name in ("label", "said", "w"))
    (found,) = server.rows("SELECT * FROM corgipile.evaluate('weighed', query => 'TABLE t', weight => 'w')")
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(label, said, sample_weight=w))
    assert found["rmse"] ** 2 == pytest.approx(metrics.mean_squared_error(label, said, sample_weight=w))
    assert found["r2"] == pytest.approx(metrics.r2_score(label, said, sample_weight=w), rel=1e-4)


@pytest.mark.parametrize("function", JUDGED)
def test_measures_refuse_weights_that_are_none(server, table, fails, function):
    server.sql("SELECT * FROM corgipile.train('t', 'logistic', 'x', 'label', name => 'weighed', epochs => 1)")
    for option, said in REFUSED.items():
        if option.startswith("weight"):
            told = fails(f"SELECT corgipile.{function}('weighed', 't', {option})")
            assert said.replace("rows to learn from", "evaluated rows") in told
    server.sql("DELETE FROM corgipile.models WHERE name = 'weighed'")
