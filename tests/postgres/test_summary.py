"""Standard errors and calibration: those of Python for the model and the rows, and what has none."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.linear.model import unpack

ROWS = 1500
COLUMNS = ("feature", "coefficient", "standard_error", "z", "p", "low", "high", "gap")
MODELS = {
    "logistic": "'logistic', 'x', 'two'",
    "weighed": "'logistic', 'x', 'two', weight => 'w', class_weight => 'balanced', l2 => 0.01",
    "by hand": """'logistic', ARRAY['a', 'b'], 'two', class_weight => '{"-1": 3, "1": 0.5}', standardize => true""",
    "linear": "'linear', 'x', 'y', learning_rate => 0.01",
    "without": "'linear', ARRAY['a', 'b'], 'y', intercept => false, learning_rate => 0.01",
    "poisson": "'poisson', 'wide', 'counts', learning_rate => 0.001, weight => 'w'",
    "sparse": "'logistic', ARRAY['k', 'v'], 'two'",
    "encoded": "'logistic', ARRAY['a', 'city'], 'two', encode => 'onehot', l2 => 0.001",
    "standardized": "'logistic', 'wide', 'two', standardize => true, l2 => 0.05, average => true",
    "three": "'softmax', 'x', 'three'",
    "rest": "'ovr_logistic', 'x', 'three'",
    "hinge": "'svm', 'x', 'two'",
}
SUMMED = [name for name in MODELS if name not in ("three", "rest", "hinge")]


@pytest.fixture(scope="module", autouse=True)
def models(server):
    """Make rows, and models of them."""
    server.sql(f"""
        CREATE TABLE summed AS SELECT i, ARRAY[a, b, a * b + c]::real[] AS x, ARRAY[a, 30 * c + 100]::float8[] AS wide,
            a, b,
            (a - b + c + d > 0)::int * 2 - 1 AS two, a + b * d + 2 AS y, (3 * a + 4 * d)::int AS counts, i % 4 AS w,
            (ARRAY['low', 'mid', 'top'])[1 + (a + d > 0.7)::int + (b + d > 1.2)::int] AS three,
            (ARRAY['Oslo', 'Rome', 'Bern'])[1 + i % 3] AS city, ARRAY[i % 3, 3 + i % 2] AS k, ARRAY[a, b]::real[] AS v
        FROM (SELECT i, random() AS a, random() AS b, random() - 0.5 AS c, random() AS d
            FROM generate_series(1, {ROWS}) i) q;
        ALTER TABLE summed ADD hole int, ADD same real DEFAULT 2, ADD twice real;
        UPDATE summed SET twice = 2 * a""")
    for name, how in MODELS.items():
        server.text(f"SELECT count(*) FROM corgipile.train('summed', {how}, name => '{name}', epochs => 3)")
    yield
    server.sql("DROP TABLE summed; DELETE FROM corgipile.models WHERE name <> 'm'")


def in_python(server, name):
    """Return a model as Python has it, and the rows."""
    content = bytes.fromhex(server.value(f"SELECT encode(corgipile.export('{name}'), 'hex')"))
    rows = server.rows("SELECT * FROM summed ORDER BY i")
    kinds = {"x": pa.list_(pa.float32(), 3), "wide": pa.list_(pa.float64(), 2), "v": pa.list_(pa.float32())}
    kinds["k"] = pa.list_(pa.int32())
    return unpack(content), pa.table(
        {key: pa.array([row[key] for row in rows], kinds.get(key)) for key in rows[0] if key != "hole"}
    )


@pytest.mark.every_build
@pytest.mark.parametrize("name", SUMMED)
def test_standard_errors_are_those_of_python(server, name):
    model, rows = in_python(server, name)
    wanted = model.summary(rows)
    found = server.rows(f"SELECT * FROM corgipile.summary('{name}', 'summed')")
    assert tuple(found[0]) == COLUMNS
    for key, values in (
        ("coefficient", wanted.coef),
        ("standard_error", wanted.standard_error),
        ("z", wanted.z),
        ("low", wanted.low),
        ("high", wanted.high),
        ("gap", wanted.gaps),
    ):
        np.testing.assert_allclose([row[key] for row in found], values, rtol=1e-7, atol=1e-12, err_msg=key)
    np.testing.assert_allclose([row["p"] for row in found], wanted.p, rtol=1e-6)
    names = [row["feature"] for row in found]
    assert names == [one if one[-1] != "]" else f"{one[:-2]}{int(one[-2]) + 1}]" for one in wanted.names]
    part = server.rows(f"SELECT * FROM corgipile.summary('{name}', 'summed', \"where\" => 'i <= 900')")
    np.testing.assert_allclose(
        [row["standard_error"] for row in part], model.summary(rows.slice(0, 900)).standard_error, rtol=1e-7
    )


def test_weights_of_a_call_take_the_place_of_those_of_training(server):
    model, rows = in_python(server, "linear")
    found = server.rows("SELECT * FROM corgipile.summary('linear', query => 'TABLE summed', weight => 'w')")
    wanted = model.summary(rows, weight="w").standard_error
    np.testing.assert_allclose([row["standard_error"] for row in found], wanted, rtol=1e-7)


@pytest.mark.parametrize("standardize", [True, False])
def test_models_of_the_dual_solver_are_penalised_with_their_intercept(server, standardize):
    _, rows = in_python(server, "linear")
    rows = rows.select(["wide", "two"])
    model = cp.train(rows, label="two", features="wide", solver="dual", l2=0.1, standardize=standardize)
    server.text(f"SELECT corgipile.import('dual', decode('{model.pack().hex()}', 'hex'))")
    found = server.rows("SELECT * FROM corgipile.summary('dual', 'summed')")
    wanted = model.summary(rows)
    for key, values in (("standard_error", wanted.standard_error), ("gap", wanted.gaps)):
        np.testing.assert_allclose([row[key] for row in found], values, rtol=1e-6, atol=1e-9)


@pytest.mark.every_server
def test_singular_matrices_name_the_features(server, fails):
    cases = {
        "ARRAY['a', 'same']": ('"same", "(intercept)" are sums of each other, or constant', "true"),
        "ARRAY['a', 'b', 'twice']": ('"a", "twice" are sums of each other', "true"),
        "ARRAY['a', 'w']": ('"w" do not vary', "w = 0"),
    }
    for features, (said, where) in cases.items():
        how = f"{features}, 'y', name => 'singular', standardize => true"
        server.text(f"SELECT count(*) FROM corgipile.train('summed', 'linear', {how})")
        asked = f"SELECT * FROM corgipile.summary('singular', 'summed', \"where\" => '{where}')"
        assert f"the information matrix is singular: {said}" in fails(asked)


def test_what_has_no_standard_errors(server, fails):
    for name, kind in (("three", "softmax"), ("rest", "ovr_logistic"), ("hinge", "svm")):
        said = fails(f"SELECT * FROM corgipile.summary('{name}', 'summed')")
        assert f"standard errors need a model of kind logistic, linear, poisson, got {kind}" in said
    for how, said in (("l1 => 0.1", "weights under an L1 penalty"), ("max_norm => 1", "weights at their bound")):
        server.text(f"SELECT count(*) FROM corgipile.train('summed', 'logistic', 'x', 'two', name => 'held', {how})")
        assert said in fails("SELECT * FROM corgipile.summary('held', 'summed')")
    assert "with a weight above 0" in fails("SELECT * FROM corgipile.summary('linear', 'summed', \"where\" => 'false')")
    said = fails("SELECT * FROM corgipile.summary('linear', 'summed', weight => 'k')")
    assert "weight" in said
    assert "no model" in fails("SELECT * FROM corgipile.summary('nobody', 'summed')")
    assert server.rows("SELECT * FROM corgipile.summary(NULL, 'summed')") == []
    assert "the weights of the evaluated rows are all zero" in fails(
        "SELECT * FROM corgipile.summary('linear', query => 'SELECT x, y, 0 AS w FROM summed', weight => 'w')"
    )


@pytest.mark.every_build
@pytest.mark.parametrize("name", ["logistic", "weighed", "sparse", "encoded", "three", "rest"])
def test_calibration_is_that_of_python(server, name):
    model, rows = in_python(server, name)
    of = [None] if len(model.classes) == 2 else model.classes.tolist()
    for positive in of:
        for weight in (None, "w"):
            wanted = model.judge(rows, positive=positive, weight=weight, bins=7).calibration
            how = "" if positive is None else f", class => '{positive}'"
            how += "" if weight is None else f", weight => '{weight}'"
            call = f"SELECT * FROM corgipile.calibration('{name}', 'summed', bins => 7{how})"
            if weight is None and name == "weighed":
                continue
            found = server.rows(call)
            assert tuple(found[0]) == ("low", "high", "predicted", "observed", "rows", "weight")
            for key in found[0]:
                values = wanted[key].to_pylist()
                np.testing.assert_allclose([row[key] for row in found], values, rtol=1e-6, err_msg=key)
            assert sum(row["rows"] for row in found) == ROWS


def test_what_has_no_calibration(server, fails):
    assert "a model of kind svm has no probabilities" in fails("SELECT * FROM corgipile.calibration('hinge', 'summed')")
    said = fails("SELECT * FROM corgipile.calibration('linear', 'summed')")
    assert "predicts numbers; corgipile.calibration needs a classifier" in said
    assert "has 3 classes; select one with class =>" in fails("SELECT * FROM corgipile.calibration('three', 'summed')")
    for bins in ("0", "1001", "NULL"):
        said = fails(f"SELECT * FROM corgipile.calibration('logistic', 'summed', bins => {bins})")
        assert f"bins must be 1 to 1000, got {bins}" in said
    assert server.rows("SELECT * FROM corgipile.calibration(NULL, 'summed')") == []
    assert server.rows("SELECT * FROM corgipile.calibration('logistic', 'summed', \"where\" => 'false')") == []


def test_they_ask_for_rights(server, model, fails):
    call = "SELECT count(*) FROM corgipile.calibration('m', '{}')"
    assert server.value(call.format("seen"), "m_user") > 0
    for role in ("m_stranger",):
        assert 'permission denied for model "m"' in fails(call.format("seen"), role)
    assert "permission denied for table unseen" in fails(call.format("unseen"), "m_owner")
    call = call.replace("calibration", "summary")
    for role in ("m_stranger", "m_user"):  # who may use it may not see its weights
        assert 'permission denied for model "m"' in fails(call.format("seen"), role)
    assert "permission denied for table unseen" in fails(call.format("unseen"), "m_owner")
