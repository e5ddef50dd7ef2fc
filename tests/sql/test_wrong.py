"""Syntax errors: their position and their hint."""

# ruff: noqa: E501  # tests write SQL

import re

import pytest
from sqlparsing import error

from corgipile.errors import BadArgument, BadStatement
from corgipile.sql.grammar import parse

WRONG = {
    "SELECT * FROM t TRAIN BY": ("expected a model", ""),
    "SELECT * FROM t TRAIN BY svmm": ("did you mean svm?", "svmm"),
    "SELECT * FROM t TRAIN BY huber:x": ("expected the parameter of the model", "x"),
    "SELECT * FROM t TRAIN BY quantile:7": ("above 0 and below 1", "quantile:7"),
    "SELECT * FROM t TRAIN BY svm WITH": ("expected the name of a setting", ""),
    "SELECT * FROM t TRAIN BY svm WITH learning_rat = 1": ("did you mean learning_rate?", "learning_rat = 1"),
    "SELECT * FROM t TRAIN BY svm WITH zzz = 1": ("settings are features, label", "zzz = 1"),
    "SELECT * FROM t TRAIN BY svm WITH epochs 5": ("expected = and a value after epochs", "5"),
    "SELECT * FROM t TRAIN BY svm WITH epochs = -1": ("whole number of 0 to", "-1"),
    "SELECT * FROM t TRAIN BY svm WITH epochs = 1 LABLE y": ("LABEL", "LABLE y"),
    "SELECT * FROM t TRAIN BY svm WITH epochs = 1, max_epoch_num = 2": ("epochs is set twice (max_epoch_num is", "max_epoch_num = 2"),
    "SELECT * FROM t TRAIN BY svm WITH order = rifle": ("did you mean riffle?", "rifle"),
    "SELECT * FROM t TRAIN BY svm WITH block_size = 10XB": ("expected ,", "XB"),
    "SELECT * FROM t TRAIN BY svm WITH buffer_size = 120%": ("above 0% and at most 100%", "120%"),
    "SELECT * FROM t TRAIN BY svm WITH classes = [1, 2": ("this bracket is not closed", "[1, 2"),
    "SELECT * FROM t TRAIN BY svm WITH model = x": ("after TRAIN BY", "model = x"),
    "SELECT * FROM t TRAIN BY svm WITH save = x": ("INTO name stores", "save = x"),
    "SELECT * FROM t TRAIN BY svm LABEL (a, b)": ("LABEL must name one column", "(a, b)"),
    "SELECT * FROM t TRAIN BY svm INTO": ("expected a name for the model", ""),
    "SELECT * FROM t TRAIN BY svm INTO a INTO b": ("INTO is given twice", "INTO b"),
    "SELECT * FROM t TRAIN BY svm WHERE x": ("WHERE, ORDER BY and LIMIT stand before TRAIN BY", "WHERE x"),
    "SELECT * FROM t TRAIN BY svm TRAIN BY svm": ("expected WITH", "TRAIN BY svm"),
    "SELECT * FROM (SELECT * FROM t TRAIN BY svm)": ("end a whole statement", "TRAIN BY svm)"),
    "CREATE TABLE x AS SELECT * FROM t TRAIN BY svm": ("end a whole statement", "TRAIN BY svm"),
    "SELECT * FROM t PREDICT BY": ("expected the name of a model", ""),
    "SELECT * FROM t PREDICT BY m LIMIT 3": ("stand before PREDICT BY", "LIMIT 3"),
    "SELECT * FROM (SELECT * FROM t PREDICT BY m LIMIT 3) q": ("stand before PREDICT BY", "LIMIT 3) q"),
    "SELECT * FROM (SELECT a FROM t PREDICT BY m) PREDICT BY n": ("PREDICT BY is given twice", "PREDICT BY m) PREDICT BY n"),
    "DELETE FROM t WHERE a PREDICT BY m": ("must follow the SELECT", "PREDICT BY m"),
    "CREATE MODEL": ("expected a name for the model", ""),
    "CREATE MODEL m": ("expected OPTIONS", ""),
    "SHOW MODEL VERSIONS m": ("DuckDB keeps one version", "SHOW MODEL VERSIONS m"),
    "SHOW VERSIONS OF MODEL m": ("INTO another name", "SHOW VERSIONS OF MODEL m"),
    "ALTER MODEL m ROLLBACK": ("DuckDB keeps one version", "ROLLBACK"),
    "CREATE MODEL m TRANSFORM (a + 1) OPTIONS () AS SELECT 1": ("needs AS and a name", "1) OPTIONS () AS SELECT 1"),
    "CREATE MODEL m TRANSFORM (ML.X(a) AS b) OPTIONS () AS SELECT 1": ("TRANSFORM supports ML.STANDARD", "X(a) AS b) OPTIONS () AS SELECT 1"),
    "CREATE MODEL m TRANSFORM (a, b AS a) OPTIONS () AS SELECT 1": ("names 'a' twice", "a) OPTIONS () AS SELECT 1"),
    "CREATE MODEL m TRANSFORM (? AS b) OPTIONS () AS SELECT 1": ("takes no parameters", "? AS b) OPTIONS () AS SELECT 1"),
    "CREATE MODEL m OPTIONS (model_type = 'KMEANS') AS SELECT 1": ("'LOGISTIC_REG', 'LINEAR_REG'", "'KMEANS') AS SELECT 1"),
    "CREATE MODEL m OPTIONS (epochs = 1) AS SELECT 1": ("must set model_type", ") AS SELECT 1"),
    "CREATE MODEL m OPTIONS (model_type = 'svm')": ("expected AS", ""),
    "CREATE MODEL m OPTIONS (model_type = 'svm') AS": ("expected a SELECT", ""),
    "CREATE OR REPLACE MODEL IF NOT EXISTS m OPTIONS () AS SELECT 1": ("exclude each other", "IF NOT EXISTS m OPTIONS () AS SELECT 1"),
    "ALTER MODEL m SET OPTIONS (x = 1)": ("x is not supported here; options are description", "x = 1)"),
    "ALTER MODEL m SET OPTIONS (description = 1)": ("description must be text", "1)"),
    "DROP MODEL": ("expected the name of a model", ""),
    "DROP MODEL ''": ("a model's name must not be empty", "''"),
    "DROP MODEL m n": ("expected the end of the statement", "n"),
    "SHOW MODELS LIKE a": ("expected a pattern", "a"),
    "EXPLAIN (VERBOSE) SELECT * FROM t TRAIN BY svm": ("the only option", "VERBOSE) SELECT * FROM t TRAIN BY svm"),
    "SELECT * FROM ML.PREDIT(MODEL m, TABLE t)": ("did you mean ML.PREDICT?", "PREDIT(MODEL m, TABLE t)"),
    "SELECT * FROM ML.PREDICT(MODEL m)": ("the rows of ML.PREDICT", ")"),
    "SELECT * FROM ML.WEIGHTS(MODEL m, TABLE t)": ("takes no rows", "TABLE t)"),
    "SELECT * FROM ML.PREDICT(MODEL m, TABLE t, STRUCT(1 AS x))": ("it has threshold", "x))"),
    "SELECT * FROM ML.PREDICT(MODEL m, TABLE t, STRUCT('a' AS threshold))": ("must be a number", "'a' AS threshold))"),
    "SELECT (1": ("this bracket is not closed", "(1"),
    "SELECT 1)": ("closes no open bracket", ")"),
    "SELECT (1]": ("does not close the open (", "]"),
    "SELECT 'abc": ("this string is not terminated", "'abc"),
    'SELECT "abc': ("this name is not terminated", '"abc'),
    "SELECT $x$ abc $$": ("$x$ is missing", "$x$ abc $$"),
    "SELECT E'a\\'": ("this string is not terminated", "E'a\\'"),
    "SELECT 1 /* a /* b */": ("this comment is not terminated", "/* a /* b */"),
    "SELECT ?, $1": ("not both", "$1"),
}  # fmt: skip


@pytest.mark.parametrize("script", WRONG)
def test_what_is_wrong_is_said_where_it_stands(script):
    part, rest = WRONG[script]
    message, shown = error(script)
    assert part in message
    assert shown == rest


def test_errors_show_the_line_they_are_in():
    with pytest.raises(BadStatement) as caught:
        parse("SELECT 1;\n\tSELECT *\n\tFROM t\n  TRAIN BY 日本 WITH x")
    assert (caught.value.line, caught.value.column) == (4, 12)
    assert str(caught.value).split("\n")[1:] == ["  TRAIN BY 日本 WITH x", "           ^"]
    wide, _ = "SELECT '" + "字" * 30 + "', (", None
    with pytest.raises(BadStatement) as caught:
        parse(wide)
    assert str(caught.value).split("\n")[2] == " " * (8 + 60 + 3) + "^"


def test_long_lines_are_cut_around_the_place():
    with pytest.raises(BadStatement) as caught:
        parse("SELECT " + "a, " * 5000 + "( " + ", b" * 5000)
    message, line, caret = str(caught.value).split("\n")
    assert len(line) <= 100
    assert line[len(caret) - 1] == "("
    assert re.match(r"line 1, column 15008: ", message)


@pytest.mark.parametrize("script", ["SELECT 'a", "SELECT (", "SELECT /*", 'SELECT "', "SELECT $$", "SELECT E'\\'"])
def test_what_more_text_could_mend_is_told_apart(script):
    with pytest.raises(BadStatement) as caught:
        parse(script)
    assert caught.value.incomplete
    with pytest.raises(BadStatement) as caught:
        parse("SELECT )")
    assert not caught.value.incomplete


@pytest.mark.parametrize(("script", "dialect"), [(b"SELECT 1", "duckdb"), (None, "duckdb"), ("SELECT 1", "mysql")])
def test_what_is_no_script(script, dialect):
    with pytest.raises(BadArgument, match=r"must be text|must be one of"):
        parse(script, dialect)


@pytest.mark.parametrize("script", ["SELECT '\0'", "SELECT \ud800", "\0"])
def test_characters_of_no_text(script):
    assert "is not valid in text" in error(script)[0]
