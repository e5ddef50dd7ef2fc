"""Measures of models: of two classes, of several, of text, of numbers; on tables, conditions and queries."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pytest
from sklearn import metrics

KINDS = {"logistic": "two", "svm": "two", "squared_hinge": "two", "softmax": "text", "linear": "y", "poisson": "y"}
KINDS |= {"ovr_logistic": "text"}
FUNCTIONS = ("evaluate", "confusion_matrix", "class_metrics", "auc", "roc")


@pytest.fixture(scope="module", autouse=True)
def models(server):
    """Make a table with many equal scores, and a model of each kind."""
    server.sql("""
        CREATE TABLE measured AS SELECT i, ARRAY[i % 7, i * 7919 % 13 / 13.0, 1]::real[] AS x,
            (i * 7919 % 13 + i % 5 > 8)::int * 2 - 1 AS two, (ARRAY['a', 'b', 'ç'])[1 + (i % 7 + i % 3) / 3] AS text,
            (i % 7 + i * 7919 % 13) / 4.0 AS y, NULL::int AS hole
            FROM generate_series(1, 700) i;
        CREATE SCHEMA tables; CREATE TABLE tables.vacant (LIKE measured)""")
    for kind, label in KINDS.items():
        options = f"'{kind}', 'x', '{label}', name => 'of {kind}', epochs => 3, learning_rate => 0.003"
        server.text(f"SELECT count(*) FROM corgipile.train('measured', {options})")
    options = "'svm', 'x', 'text', name => 'of svms', epochs => 3"
    server.text(f"SELECT count(*) FROM corgipile.train('measured', {options})")
    yield
    server.sql("DROP TABLE measured; DROP SCHEMA tables CASCADE; DELETE FROM corgipile.models WHERE name LIKE 'of %'")


def scored(server, kind, condition="true"):
    """Return the labels, the decisions and the predictions of rows."""
    label = KINDS.get(kind, "text")
    predict = "predict_text" if label == "text" else "predict"
    rows = server.rows(f"SELECT {label} AS label, corgipile.decision('of {kind}', x) AS scores, "
                       f"corgipile.{predict}('of {kind}', x) AS said FROM measured WHERE {condition}")  # fmt: skip
    return (np.array([row[name] for row in rows]) for name in ("label", "scores", "said"))


@pytest.mark.every_server
@pytest.mark.parametrize("kind", ["logistic", "svm", "squared_hinge"])
def test_two_classes(server, kind):
    label, scores, said = scored(server, kind, "i > 30")
    call = f"('of {kind}', 'measured', \"where\" => 'i > 30')"
    (row,) = server.rows(f"SELECT * FROM corgipile.evaluate{call}")
    assert len(np.unique(scores)) < len(scores) / 4
    assert row["auc"] == pytest.approx(metrics.roc_auc_score(label, scores[:, 0]), abs=1e-12)
    assert row["auc"] == server.value(f"SELECT corgipile.auc{call}")
    assert (row["accuracy"], row["rows"]) == (metrics.accuracy_score(label, said), 670)
    assert {name for name in ("log_loss", "rmse", "mae", "r2") if row[name] is not None} == (
        {"log_loss"} if kind == "logistic" else set()
    )
    if kind == "logistic":
        shares = 1 / (1 + np.exp(-scores[:, 0]))
        assert row["log_loss"] == pytest.approx(metrics.log_loss(label, shares), rel=1e-6)
    other = server.value(f"SELECT corgipile.auc('of {kind}', 'measured', \"where\" => 'i > 30', class => -1)")
    assert other == row["auc"]


@pytest.mark.every_server
@pytest.mark.parametrize("kind", ["logistic", "svms", "softmax", "ovr_logistic"])
def test_curves(server, kind):
    label, scores, _ = scored(server, kind)
    of = {"logistic": 1}.get(kind, "b")
    score = scores[:, 0] if kind == "logistic" else scores[:, 1]
    if kind == "ovr_logistic":
        scores = -np.logaddexp(0, -scores)
        score = scores[:, 1]
    if kind in ("softmax", "ovr_logistic"):
        rest = scores[:, [0, 2]]
        score = score - np.logaddexp(*rest.T)
    points = server.rows(f"SELECT * FROM corgipile.roc('of {kind}', 'measured', class => '{of}')")
    fpr, tpr = (np.array([point[name] for point in points]) for name in ("fpr", "tpr"))
    area = metrics.roc_auc_score(label == of, score)
    assert metrics.auc(fpr, tpr) == pytest.approx(area, abs=1e-12)
    asked = server.value(f"SELECT corgipile.auc('of {kind}', 'measured', class => '{of}')")
    assert asked == pytest.approx(area, abs=1e-12)
    assert (points[0]["threshold"], fpr[0], tpr[0]) == ("Infinity", 0, 0)
    assert (fpr[-1], tpr[-1]) == (1, 1)
    for point in points[1:]:
        above = score >= point["threshold"] - 1e-9
        assert ((above & (label == of)).sum(), (above & (label != of)).sum()) == (
            point["true_positives"], point["false_positives"])  # fmt: skip
    turns = np.diff(fpr)[:-1] * np.diff(tpr)[1:] - np.diff(tpr)[:-1] * np.diff(fpr)[1:]
    assert (np.abs(turns) > 1e-12).all()


@pytest.mark.every_server
@pytest.mark.parametrize("kind", ["logistic", "softmax", "svms", "ovr_logistic"])
def test_classes(server, kind):
    label, _, said = scored(server, kind, "i < 500")
    names = ["-1", "1"] if kind == "logistic" else ["a", "b", "ç"]
    label, said = ([str(int(one)) if kind == "logistic" else one for one in some] for some in (label, said))
    call = f"('of {kind}', query => 'SELECT * FROM measured WHERE i < 500')"
    cells = server.rows(f"SELECT * FROM corgipile.confusion_matrix{call}")
    assert [(cell["actual"], cell["predicted"]) for cell in cells] == [(a, b) for a in names for b in names]
    wanted = metrics.confusion_matrix(label, said, labels=names)
    assert [cell["rows"] for cell in cells] == wanted.ravel().tolist()
    rows = server.rows(f"SELECT * FROM corgipile.class_metrics{call}")
    assert [row["class"] for row in rows] == names
    sets = zip(*metrics.precision_recall_fscore_support(label, said, labels=names, zero_division=np.nan), strict=True)
    for row, (precision, recall, f1, count) in zip(rows, sets, strict=True):
        found = [np.nan if row[name] is None else row[name] for name in ("precision", "recall", "f1")]
        assert np.allclose(found, [precision, recall, f1], equal_nan=True)
        assert row["rows"] == count
    (row,) = server.rows(f"SELECT * FROM corgipile.evaluate{call}")
    assert row["accuracy"] == metrics.accuracy_score(label, said)
    assert (row["auc"] is None) == (kind != "logistic")
    assert (row["log_loss"] is None) == (kind not in ("logistic", "softmax"))


@pytest.mark.every_server
def test_shares_of_classes_against_the_rest(server):
    shares = "SELECT corgipile.predict_proba('of ovr_logistic', x) AS p, corgipile.decision('of ovr_logistic', x) AS d"
    rows = server.rows(f"{shares} FROM measured WHERE i < 99")
    sure = 1 / (1 + np.exp(-np.array([row["d"] for row in rows])))
    np.testing.assert_allclose([row["p"] for row in rows], sure / sure.sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.every_server
@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_numbers(server, fails, kind):
    label, _, said = scored(server, kind)
    (row,) = server.rows(f"SELECT * FROM corgipile.evaluate('of {kind}', 'measured')")
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((said - label) ** 2)), rel=1e-9)
    assert row["mae"] == pytest.approx(np.abs(said - label).mean(), rel=1e-9)
    assert row["r2"] == pytest.approx(metrics.r2_score(label, said), rel=1e-5)
    assert [row[name] for name in ("accuracy", "auc", "log_loss")] == [None] * 3
    for function in FUNCTIONS[1:]:
        said = fails(f"SELECT corgipile.{function}('of {kind}', 'measured')")
        assert f"is of kind {kind} and predicts numbers; corgipile.{function} needs a classifier" in said


@pytest.mark.every_server
def test_one_class_and_no_rows(server):
    """There is no area then, and a rate of no rows is NULL."""
    one = "'of logistic', 'measured', \"where\" => 'two = 1 AND i < 99'"
    (row,) = server.rows(f"SELECT * FROM corgipile.evaluate({one})")
    assert (row["auc"], row["loss"] > 0, row["rows"] > 9) == (None, True, True)
    assert server.value(f"SELECT corgipile.auc({one})") is None
    curve = server.rows(f"SELECT * FROM corgipile.roc({one})")
    assert {point["fpr"] for point in curve} == {None}
    assert curve[-1]["tpr"] == 1
    first, _ = server.rows(f"SELECT * FROM corgipile.class_metrics({one})")
    assert (first["recall"], first["rows"]) == (None, 0)
    none = "'of logistic', 'tables.vacant'"
    (row,) = server.rows(f"SELECT * FROM corgipile.evaluate({none})")
    assert [name for name, value in row.items() if value is not None] == ["rows"]
    assert server.value(f"SELECT corgipile.auc({none})") is None
    assert server.rows(f"SELECT * FROM corgipile.roc({none})") == []
    assert [cell["rows"] for cell in server.rows(f"SELECT * FROM corgipile.confusion_matrix({none})")] == [0] * 4
    assert {row["f1"] for row in server.rows(f"SELECT * FROM corgipile.class_metrics({none})")} == {None}
    for function in FUNCTIONS[1:]:
        assert server.rows(f"SELECT corgipile.{function}(NULL, 'measured') AS one") in ([], [{"one": None}])
    (row,) = server.rows("SELECT * FROM corgipile.evaluate('of linear', 'tables.vacant')")
    assert (row["rmse"], row["mae"], row["r2"]) == (None, None, None)


def test_what_is_refused(server, fails):
    cases = {
        "('of logistic')": "source must not be NULL; name a table, or give a query",
        "('of logistic', 'measured', query => 'SELECT 1')": "source and query both name rows; give one of them",
        "('of logistic', query => 'TABLE measured', \"where\" => 'true')": "move the condition into query",
        "('of logistic', query => 'DELETE FROM measured RETURNING *')": "query must be one SELECT",
        "('of logistic', 'measured', \"where\" => 'two')": "argument of where must be type boolean",
        "('of logistic', 'measured', label => 'hole')": 'has a NULL in label column "hole"',
        "('of logistic', 'measured', features => 'y')": "there are 1 feature columns; model",
        "('of logistic', 'measured', features => 3)": "features must be names of columns, got integer",
        "('of logistic', 'measured', label => 'i')": "which is none of the classes",
        "('of logistic', query => 'SELECT NULL::real[] AS x, 1 AS two')": 'has a NULL in feature column "x"',
        "('of logistic', query => 'SELECT ARRAY[0, NULL, 1] AS x, 1 AS two')": "the query",
        "('of logistic', query => 'SELECT x FROM measured')": 'has no column "two"',
    }
    for call, said in cases.items():
        for function in ("evaluate", "roc"):
            assert said in fails(f"SELECT corgipile.{function}{call}"), (function, call)
    for function in ("auc", "roc"):
        call = f"SELECT corgipile.{function}('of softmax', 'measured'"
        assert "has 3 classes; select one with class => : a, b, ç" in fails(f"{call})")
        assert 'class must be a class of model "of softmax", got d; it has a, b, ç' in fails(f"{call}, class => 'd')")
    assert server.value("SELECT count(*) FROM pg_class WHERE relname ~ '^corgipile_rows'") == 0


def test_features_by_every_type_of_name(server):
    for names in ("'x'", "'x'::text", "'x'::name", "'x'::varchar", "'{x}'::text[]", "'{x}'::name[]"):
        call = f"corgipile.evaluate('of logistic', 'measured', {names}, 'two')"
        assert server.value(f"SELECT rows FROM {call}") == 700
    call = "corgipile.auc('of logistic', 'measured', class => {})"
    areas = {server.value(f"SELECT {call.format(of)}") for of in ("1", "1.0", "'1'", "true", "'+1'::text")}
    assert len(areas) == 1


@pytest.mark.every_server
def test_an_area_of_more_rows_than_memory_holds(server):
    """Sorted on disk it is the same."""
    area = "SELECT {}corgipile.auc('of logistic', query => 'SELECT x, two FROM measured, generate_series(1, 200)')"
    asked = [float(server.text(f"SET work_mem = '{memory}'; {area.format('')}")) for memory in ("64kB", "64MB")]
    alone = server.value("SELECT corgipile.auc('of logistic', 'measured')")
    assert asked == pytest.approx([alone] * 2, abs=1e-12)


def test_the_scale_of_weights_is_nothing_to_an_area(server):
    """Products of two weights are beyond what numbers hold."""
    rows = "query => 'SELECT x, two, (1 + i % 3) * {} ::float8 AS w FROM measured', weight => 'w'"
    asked = "SELECT auc FROM corgipile.evaluate('of logistic', {})"
    areas = [server.value(asked.format(rows.format(scale))) for scale in ("1", "1e300", "1e-300")]
    assert areas == pytest.approx([areas[0]] * 3, rel=1e-12)


@pytest.mark.every_server
def test_measures_ask_for_rights(server, model, fails):
    for function in FUNCTIONS:
        call = f"SELECT count(*) FROM corgipile.{function}('m', "
        assert server.value(f"{call}'seen')", "m_user") > 0
        assert 'permission denied for model "m"' in fails(f"{call}'seen')", "m_stranger")
        assert "permission denied for table unseen" in fails(f"{call}'unseen')", "m_owner")
        assert "permission denied for table unseen" in fails(f"{call}query => 'TABLE unseen')", "m_owner")
        said = fails(f"{call}'seen', \"where\" => 'secret > 1')", "m_owner")
        assert "permission denied for table seen" in said
        said = fails(f"{call}'seen', weight => 'secret')", "m_owner")
        assert "permission denied for table seen" in said
        assert server.value(f"{call}query => 'SELECT x, label FROM seen')", "m_user") > 0
