"""Models of several labels in PostgreSQL: what cannot be, what is of one model, damage, rights."""

# ruff: noqa: S608  # tests write SQL

import json
import re

import pytest
from pgservers import literal
from taggedrows import exported

from corgipile.linear.model import unpack

REFUSED = {
    "a number": ({"labels": "w"}, 'label column "w" is double precision; an array of text or of whole'),
    "text": ({"labels": "word"}, 'label column "word" is text; an array of .*string_to_array\\(word'),
    "numbers": ({"labels": "v"}, 'label column "v" is real\\[\\]; an array of text or of whole numbers'),
    "no column": ({"labels": "nil"}, 'table "tagged" has no column "nil"'),
    "a list of several": ({"labels": ["tags", "one"]}, 'label column "tags" is text\\[\\]; 0 and 1, or booleans'),
    "twice": ({"labels": ["one", "one"]}, 'labels must not repeat columns, got "one" twice'),
    "one label too": ({"label": "label"}, "label must be left out with labels: each label has its own model"),
    "groups": ({"by": "i"}, "by must be left out with labels"),
    "held out": ({"holdout": 0.1}, "holdout must be left out with labels"),
    "going on": ({"warm_start": "m"}, "warm_start must be left out with labels"),
    "weights": ({"weights": True}, "weights must be left out with labels"),
    "classes": ({"classes": [0, 1]}, "classes must be left out with labels"),
    "class weights": ({"class_weight": "balanced"}, "class_weight must be left out with labels"),
    "classes of one": ({"model": "softmax"}, 'logistic, svm or squared_hinge with labels, got "softmax"'),
    "numbers of one": ({"model": "linear"}, 'squared_hinge with labels, got "linear"'),
    "the weight": ({"labels": ["one", "w"], "weight": "w"}, 'column "w" is a label; it cannot be the weight too'),
    "a feature": ({"labels": ["one", "two"], "features": ["w", "one"]}, 'column "one" is the label; it cannot'),
    "no labels": ({"labels": "none"}, 'all arrays of label column "none" are empty; there is nothing to learn'),
    "all rows": ({"labels": "same"}, 'all of 3085 rows have label "b"; it must be in some rows, not in all'),
    "no row": ({"labels": ["one", "never"]}, 'none of 3085 rows have label "never"; it must be in some rows'),
    "two": ({"labels": ["one", "k1"]}, 'row \\(.*\\) has 7 in label column "k1"; 0 or 1 is needed'),
    "a matrix": ({"labels": "deep"}, 'column "deep" is an array of 2 dimensions; 1 is needed'),
    "null": ({"labels": "gone"}, 'row \\(.*\\) has a NULL in label column "gone"; use an empty array for no labels'),
    "null, though rows are left out": ({"labels": "gone", "missing": "skip"}, 'has a NULL in label column "gone"'),
    "null in it": ({"labels": "holed"}, 'row \\(.*\\) has a NULL in an array of label column "holed"'),
    "too many": (
        {"labels": "own", "buffer_size": "200kB"},
        "half of buffer_size, 100 kB, must hold the models of .* or more labels, ",
    ),
    "neither": ({"labels": None}, "label must not be NULL"),
}  # fmt: skip
ODD = """CREATE TABLE odd AS SELECT *, 'a,b'::text AS word, '{}'::text[] AS none, ARRAY['b'] || tags AS same,
    false AS never, 7 AS k1, ARRAY[tags || 'y'::text] AS deep, CASE WHEN i <> 77 THEN tags END AS gone,
    CASE WHEN i = 77 THEN ARRAY['a', NULL] ELSE tags END AS holed, ARRAY[i] AS own FROM tagged;
    DROP TABLE tagged; ALTER TABLE odd RENAME TO tagged"""


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(server, fails, tagged, name):
    tagged()
    server.sql(ODD)
    asked, why = REFUSED[name]
    asked = {"model": "logistic", "features": "x", "labels": "tags", **asked}
    arguments = ", ".join(f'"{name}" => {literal(value)}' for name, value in asked.items() if value is not None)
    assert re.search(why, fails(f"SELECT * FROM corgipile.train('tagged', {arguments})"), re.DOTALL)


def test_the_size_that_is_named_is_enough(server, fails, learn, tagged):
    tagged()
    call = "SELECT * FROM corgipile.train('tagged', 'logistic', 'x', labels => 'small', buffer_size => '{}kB')"
    said = fails(call.format(82))  # which labels rows have is known once all are seen
    assert "must hold the models of 18 labels, " in said
    size = re.search("buffer_size => '(.*?)kB'", said)[1]
    assert "must hold the models of 18 labels, " in fails(call.format(int(size) - 3))
    assert len(learn("small", epochs=1, buffer_size=f"{size}kB")) == 1


ONE = {
    "summary": "SELECT corgipile.summary('tags', 'tagged')",
    "warm_start": "SELECT * FROM corgipile.train('tagged', 'logistic', 'x', 'label', warm_start => 'tags')",
    "auc": "SELECT corgipile.auc('tags', 'tagged')",
    "roc": "SELECT corgipile.roc('tags', 'tagged')",
    "calibration": "SELECT corgipile.calibration('tags', 'tagged')",
    "confusion_matrix": "SELECT corgipile.confusion_matrix('tags', 'tagged')",
}


def test_functions_of_one_model_name_the_way(server, train, fails, learn, tagged):
    tagged()
    learn("tags")
    for sql in ONE.values():
        said = fails(sql)
        assert '"tags" holds models of 5 labels; ' in said
        assert "corgipile.load(path).of(label).pack()" in said
    for name in ("predict", "predict_bool", "predict_text"):
        assert "is a multi-label model; use corgipile.predict_labels" in fails(
            f"SELECT corgipile.{name}('tags', x) FROM tagged"
        )
    train("tagged", name="one")
    assert 'model "one" is no multi-label model; use corgipile.predict' in fails(
        "SELECT corgipile.predict_labels('one', x) FROM tagged"
    )
    assert "use corgipile.evaluate" in fails("SELECT corgipile.evaluate_labels('one', 'tagged')")
    assert server.value("SELECT corgipile.predict_labels('tags', NULL::real[])") is None


def test_what_cannot_be_measured_is_told(server, fails, learn, tagged):
    tagged()
    learn("tags")
    judge = "SELECT corgipile.evaluate_labels('tags', 'tagged'"
    assert 'label column "codes" has whole numbers; the labels of model "tags" are text' in fails(
        f"{judge}, label => 'codes')"
    )
    empty = server.rows("SELECT (corgipile.evaluate_labels('tags', 'tagged', \"where\" => 'i < 0')).*")[0]
    assert empty.pop("rows") == 0
    assert set(empty.values()) == {None}
    server.sql("UPDATE tagged SET w = -1 WHERE i = 70")
    assert "has weight -1; a finite number of 0 or more" in fails(f"{judge}, weight => 'w')")
    server.sql("UPDATE tagged SET x[2] = 'NaN' WHERE i = 77")
    assert "has a feature that is NaN or infinite" in fails(f"{judge})")
    server.sql("UPDATE tagged SET tags = ARRAY['new'] WHERE i = 20")
    assert re.search(
        r'row \(.*\) has "new" in label column "tags", which is none of the labels "", ', fails(f"{judge})")
    )
    learn("tags", features=["k", "v"], where="i <> 20")
    server.sql("UPDATE tagged SET tags = '{}', k = ARRAY[900], v = ARRAY[1] WHERE i = 20")
    assert "an index in column" in fails(f"{judge})")


DAMAGED = {
    "no labels": {"labels": None},
    "too few": {"labels": ["a"]},
    "twice": {"labels": ["a"] * 5},
    "fractions": {"labels": [0.5, 1, 2, 3, 4]},
    "lists": {"labels": [[1], 1, 2, 3, 4]},
    "of two kinds": {"labels": ["a", 1, 2, 3, 4]},
    "rates of some": {"learning_rates": [1.0]},
    "groups too": {"by": "g", "groups": [1, 2, 3, 4, 5]},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found(server, learn, fails, tagged, name):
    tagged()
    learn("tags")
    content, change = unpack(exported(server)), DAMAGED[name]
    content.params.update(change)
    assert "ERROR" in fails(f"SELECT corgipile.import('copy', '\\x{content.pack().hex()}')")
    server.sql(
        f"UPDATE corgipile.models SET params = params || {literal(json.dumps(change))}::jsonb WHERE name = 'tags'"
    )
    assert "is damaged" in fails("SELECT corgipile.export('tags')")


def test_a_role_needs_the_right_to_see_labels(server, fails, tagged):
    tagged()
    call = "SELECT * FROM corgipile.train('tagged', 'logistic', 'x', labels => {})"
    server.sql("CREATE ROLE seer LOGIN; GRANT SELECT (x, tags, one) ON tagged TO seer")
    try:
        assert "permission denied for table tagged" in fails(call.format("'small'"), "seer")
        assert "permission denied for table tagged" in fails(call.format("ARRAY['one', 'two']"), "seer")
        assert len(server.rows(call.format("'tags'"), "seer")) == 5
        server.sql("SELECT * FROM corgipile.train('tagged', 'logistic', 'x', labels => 'tags', name => 'tags')")
        assert "permission denied" in fails("SELECT corgipile.predict_labels('tags', x) FROM tagged", "seer")
        server.sql("SELECT corgipile.grant_model('tags', 'seer', 'use')")
        assert server.rows("SELECT corgipile.predict_labels('tags', x) p FROM tagged", "seer")
        assert server.rows("SELECT corgipile.evaluate_labels('tags', 'tagged') e", "seer")
        assert "permission denied for table tagged" in fails(
            "SELECT corgipile.evaluate_labels('tags', 'tagged', label => 'codes')", "seer"
        )
    finally:
        server.sql("DROP OWNED BY seer; DROP ROLE seer")


def test_sessions_see_how_far_it_is_and_cancel(server, session, tagged):
    """A training of many labels ends soon when asked to, in its thread too."""
    tagged()
    lists = "ARRAY(SELECT j FROM generate_series(1, 200) j WHERE (i + j) % 7 = 0)"
    server.sql(f"CREATE TABLE often AS SELECT x, {lists} AS tags FROM tagged, generate_series(1, 3)")
    one = session()
    one.tell("SET statement_timeout = '300ms'")
    for threads in (1, 2):
        call = f"corgipile.train('often', 'svm', 'x', labels => 'tags', epochs => 100000, threads => {threads})"
        said = one.tell(f"SELECT count(*) FROM {call}")
        assert "canceling statement due to statement timeout" in said
    server.sql("DROP TABLE often")
