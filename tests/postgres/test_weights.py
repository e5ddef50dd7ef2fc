"""Rows that count for more or less, and stopping by rows held out, inside the server: what is refused, and going on."""

# ruff: noqa: S608  # tests write SQL

import pytest

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
    "class_weight => '{}'": "class_weight is an empty object; name a class at least",
    "class_weight => '{\"0\": -1}'": 'class_weight of class "0" must be a finite number of 0 or more',
    'class_weight => \'{"0": "a"}\'': 'class_weight of class "0" must be a finite number of 0 or more',
    "class_weight => '{\"7\": 1}'": 'class_weight names class "7", which is none of those of the label',
    'class_weight => \'{"0": 0, "1": 0}\'': "class_weight is 0 for all classes",
    "class_weight => 'balanced', model => 'linear'": "class_weight is for classes; a linear model predicts numbers",
    "class_weight => 'balanced', model => 'softmax', classes => '{0,1,2}'": "are no rows to learn from of class 2",
    "patience => 2": "patience stops by the loss on rows held out: give holdout",
    "patience => 0, holdout => 0.1": "patience must be at least 1, got 0",
    "patience => 1, holdout => 1e-9": "so there is nothing to stop by",
}


@pytest.fixture
def table(server):
    server.sql(f"DROP TABLE IF EXISTS t; SELECT setseed(0.25); {TABLE}")


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
