"""Newton's method: certified and reference coefficients for any order, form and memory; refused settings; warnings."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from newton_rows import KINDS, ROWS, fit, labels, rows, slopes, table, weights
from nist import NAMES, digits, nist

import corgipile as cp
from corgipile.errors import BadArgument, BadLabel, BadValue, ConvergenceWarning
from corgipile.linear import newton, newton_training, passes
from corgipile.linear.estimators import CorgiClassifier, CorgiRegressor
from corgipile.linear.features import Features
from corgipile.linear.newton import GRADIENT, GRAM, Newton
from corgipile.linear.scaling import Scaling

DIGITS = {"longley": 11, "filip": 6.5, "wampler1": 8, "wampler2": 11, "wampler3": 8, "wampler4": 7, "wampler5": 5.5}


def dense(x, y):
    return pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1]), "label": y})


def sparse(x, y):
    places = [np.flatnonzero(row).astype(np.int32) for row in x]
    columns = {"features_k": pa.array(places, pa.list_(pa.int32()))}
    columns["features_v"] = pa.array([row[at] for row, at in zip(x, places, strict=True)], pa.list_(pa.float32()))
    return pa.table({**columns, "label": y})


def gradient(model, x, y, counts=None, l2=0.0, scale=1.0):
    """Return the gradient of the objective by weights of features of mean 0 and spread 1, relative to its terms."""
    n, slope = len(y), slopes(model, x, y)
    slope = slope * (1 if counts is None else counts[:, None])
    z = np.hstack([np.ones((n, 1)), (x - x.mean(axis=0)) / x.std(axis=0)])
    penalty = l2 * np.hstack([0 * model.intercept[:, None], model.coef * scale**2 / x.std(axis=0)])
    return np.abs(slope.T @ z / n + penalty).max() / (np.abs(slope).T @ np.abs(z) / n).max()


@pytest.mark.parametrize("name", NAMES)
def test_certified_coefficients_of_nist(name):
    x, y, certified = nist(name)
    assert digits(weights(fit(table(x, y), model="linear"))[0], certified) >= DIGITS[name]


@pytest.mark.parametrize("l2", [0, 0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_vanishes_at_the_end(kind, l2):
    x, score, rng = rows()
    y, counts = labels(kind, score, rng), rng.uniform(0, 2, ROWS)
    model = fit(table(x, y, w=counts), model=kind, l2=l2, weight="w", standardize=True)
    assert gradient(model, x, y, counts, l2, scale=x.std(axis=0)) < 1e-12
    assert model.history[-1]["objective"] <= model.history[0]["objective"]


@pytest.mark.parametrize("kind", KINDS)
def test_neither_order_nor_memory_changes_the_model(kind):
    x, score, rng = rows(1)
    y, order = labels(kind, score, rng), rng.permutation(ROWS)
    model = fit(table(x, y), model=kind)
    other = fit(table(x[order], y[order]), model=kind)
    np.testing.assert_allclose(weights(other), weights(model), rtol=1e-10)
    assert np.array_equal(weights(fit(table(x, y), model=kind, memory="2KB")), weights(model))


def test_each_instruction_set_and_number_of_calls_gives_the_same_sums(monkeypatch):
    rng = np.random.default_rng(0)
    x, y, space = (
        rng.normal(size=(1000, 37)).astype(np.float32),
        rng.integers(0, 3, 1000),
        Scaling(np.ones(37), np.ones(37)),
    )
    inputs = Features(("x",), sparse=False, width=37, dtype=np.dtype(np.float32), lists=True)
    found = []
    monkeypatch.setattr(newton, "MIN_THREAD_ROWS", 1)
    for isa, cuts in ((0, [0, 1000]), (1, [0, 1, 130, 1000]), (2, [0, 500, 1000])):
        for what in (GRADIENT, GRAM):
            one = Newton("softmax", inputs, np.arange(3), isa=isa)
            with one.summing(what, rng.normal(size=(3, 38)) * 0 + 0.1, space, start=False, blend=0.0):
                for start, stop in pairwise(cuts):
                    one.learn(x, y, np.arange(start, stop, dtype=np.int32), str)
            sums = one.sums()
            found.append(
                (what, sums.totals.loss, sums.gradient.tobytes(), b"" if what == GRADIENT else sums.matrices.tobytes())
            )
    assert len({*found}) == 2


def test_ridge_penalises_features_as_sgd_scales_them():
    x, score, rng = rows(2)
    y = labels("linear", score, rng)
    for standardize, scale in ((True, x.std(axis=0)), (False, np.ones(4))):
        z = (x - x.mean(axis=0)) / scale
        coef = np.linalg.solve(z.T @ z / ROWS + 0.3 * np.eye(4), z.T @ (y - y.mean()) / ROWS) / scale
        model = fit(table(x, y), model="linear", l2=0.3, standardize=standardize)
        np.testing.assert_allclose(model.coef[0], coef, rtol=1e-9)
        assert model.summary(table(x, y)).gap < 1e-9


def test_sgd_comes_near_the_same_objective():
    x, score, rng = rows(3)
    y = labels("logistic", score, rng)
    exact = fit(table(x, y), l2=0.01, standardize=True)
    sgd = cp.train(table(x, y), l2=0.01, standardize=True, epochs=200, learning_rate=0.01, average=True)
    np.testing.assert_allclose(weights(sgd), weights(exact), rtol=0.05, atol=0.05)


def test_class_weights_count_as_rows_do():
    x, score, rng = rows(4)
    y = np.where(labels("logistic", score, rng) == 1, "yes", "no")
    twice = np.concatenate([np.arange(ROWS), np.flatnonzero(y == "yes")])
    model = fit(table(x, y), class_weight={"yes": 2})
    assert model.classes.tolist() == ["no", "yes"]
    np.testing.assert_allclose(weights(model), weights(fit(table(x[twice], y[twice]))), rtol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_sparse_rows_and_lists_give_the_model_of_columns(kind):
    x, score, rng = rows(5)
    x[rng.random(x.shape) < 0.5] = 0
    x = x.astype(np.float32)
    y = labels(kind, score, rng)
    model = fit(table(x, y), model=kind)
    for other in (dense(x, y), sparse(x, y)):
        found = fit(other, model=kind)
        np.testing.assert_allclose(weights(found), weights(model), rtol=1e-8)
        np.testing.assert_allclose(found.decision(other), model.decision(table(x, y)), rtol=1e-5, atol=1e-5)


def test_no_intercept():
    x, score, rng = rows(6)
    y = labels("linear", score, rng)
    model = fit(table(x, y), model="linear", intercept=False)
    np.testing.assert_allclose(model.coef[0], np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-9)
    assert not model.intercept.any()


def test_large_integers_keep_their_digits():
    x = np.arange(100, dtype=np.int64)[:, None] + (1 << 40)
    model = fit(table(x, 3.0 * (x[:, 0] - (1 << 40)) + 1), model="linear")
    np.testing.assert_allclose(model.coef, [[3]], rtol=1e-12)


def test_collinear_and_constant_columns_are_named():
    x, score, rng = rows(7)
    y = labels("linear", score, rng)
    extra = np.column_stack([x, x[:, 0] + x[:, 1], np.full(ROWS, 3.0)])
    for kind, target in (
        ("linear", y),
        ("logistic", (y > y.mean()).astype(int)),
        ("softmax", np.digitize(y, [99, 101])),
    ):
        with pytest.warns(ConvergenceWarning, match="collinear columns 'x4', 'x5'"):
            model = cp.train(table(extra, target), model=kind, solver="newton")
        plain = fit(table(x, target), model=kind)
        assert not model.coef[:, 4:].any() or kind == "softmax"
        np.testing.assert_allclose(model.decision(table(extra, target)), plain.decision(table(x, target)), rtol=1e-7)
        fit(table(extra, target), model=kind, l2=0.1)


def test_separation_is_named():
    x, score, _ = rows(8)
    for kind, y in (("logistic", score > 0), ("softmax", np.digitize(score, [-2, 2])), ("ovr_logistic", score > 0)):
        with pytest.warns(ConvergenceWarning, match="perfect separation"):
            model = cp.train(table(x, y.astype(int)), model=kind, solver="newton")
        assert model.history[-1]["accuracy"] == 1
    flag = (score > 1).astype(float)
    with pytest.warns(ConvergenceWarning, match="quasi-complete separation: the weights of .*'x1'"):
        cp.train(table(np.column_stack([x[:, 0], flag]), (flag + (x[:, 2] > 40) > 0).astype(int)), solver="newton")
    with pytest.warns(ConvergenceWarning, match="weights of .*'.intercept.' grow without bound"):
        cp.train(table(x, np.zeros(ROWS)), model="poisson", solver="newton")


def test_too_few_passes_are_named():
    x, score, rng = rows(9)
    with pytest.warns(ConvergenceWarning, match="no convergence after 2 passes"):
        cp.train(table(x, labels("logistic", score, rng)), solver="newton", epochs=2)


def test_a_pass_polishes_a_model_of_sgd():
    x, score, rng = rows(10)
    y = labels("linear", score, rng)
    sgd = cp.train(table(x, y), model="linear")
    polished = fit(table(x, y), model="linear", warm_start=sgd, epochs=1)
    np.testing.assert_allclose(weights(polished), weights(fit(table(x, y), model="linear")), rtol=1e-9)
    assert len(polished.history) == len(sgd.history) + 1


def test_one_row_and_bad_rows():
    x, score, rng = rows(11)
    y = labels("linear", score, rng)
    with pytest.warns(ConvergenceWarning, match="collinear"):
        model = cp.train(table(x[:1], y[:1]), model="linear", solver="newton")
    assert model.predict(table(x[:1], y[:1])) == pytest.approx(y[:1])
    bad = x.copy()
    bad[77, 2], bad[500, 1] = np.nan, np.inf
    with pytest.raises(BadValue, match=r"row 77 .* column 'x2'"):
        fit(table(bad, y), model="linear")
    model, kept = fit(table(bad, y), model="linear", on_bad="skip"), np.delete(np.arange(ROWS), [77, 500])
    assert model.history[-1]["skipped"] == 2
    np.testing.assert_allclose(weights(model), weights(fit(table(x[kept], y[kept]), model="linear")), rtol=1e-9)
    with pytest.raises(BadLabel, match="-1"):
        fit(table(x, np.where(np.arange(ROWS) == 50, -1.0, 1.0)), model="poisson")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.1}, "learning_rate needs solver='sgd'"),
        ({"order": "riffle"}, "order needs solver='sgd'"),
        ({"model": "svm"}, "model must be one of linear"),
        ({"max_norm": 1.0}, "max_norm needs solver='sgd'"),
    ],
)
def test_what_it_does_not_have_is_refused(given, message):
    x, score, rng = rows(12)
    with pytest.raises(BadArgument, match=message):
        fit(table(x, labels("logistic", score, rng)), **given)


def test_too_many_coefficients_are_refused():
    wide = pa.table({"features_k": [[5000]], "features_v": pa.array([[1.0]]), "label": [1.0]})
    wide = wide.set_column(0, "features_k", pa.array([[5000]], pa.list_(pa.int32())))
    with pytest.raises(BadArgument, match="at most 4096 coefficients, got 5002; use solver='sgd'"):
        fit(wide, model="linear")


def test_estimators_and_files(tmp_path):
    x, score, rng = rows(13)
    y, path = labels("linear", score, rng), tmp_path / "model.safetensors"
    model = fit(table(x, y), model="linear", save=path)
    assert np.array_equal(cp.load(path).coef, model.coef)
    np.testing.assert_allclose(CorgiRegressor(l2=0).fit(x, y).coef_, model.coef[0], rtol=1e-9)
    classes = np.digitize(y, [99, 101])
    assert CorgiClassifier(solver="newton").fit(x, classes).score(x, classes) > 0.4


def test_auto_takes_newton_for_regression_without_settings_of_sgd():
    x, score, rng = rows(14)
    y = labels("linear", score, rng)
    solver = {
        name: cp.train(table(x, y), solver="auto", **given).params.get("solver")
        for name, given in (
            ("linear", {"model": "linear"}),
            ("rate", {"model": "linear", "learning_rate": 0.01}),
            ("l1", {"model": "linear", "l1": 0.1}),
            ("median", {"model": "quantile:0.5", "l1": 0.1}),
        )
    }
    assert solver == {"linear": "newton", "rate": None, "l1": "newton", "median": None}
    assert "solver" not in cp.train(sparse(x.astype(np.float32), y), model="linear", solver="auto").params
    assert "solver" not in cp.train(table(x, (score > 0).astype(int)), solver="auto").params


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("count", "width"), [(235, 1), (600, 4), (30, 3)])
def test_quantiles_are_those_of_linear_programming(count, width, tau):
    peers = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, width)) * np.arange(1, width + 1) + 10
    y = 100 + x.sum(axis=1) + rng.standard_t(2, count) * (1 + np.abs(x[:, 0] - 10)) * 5
    model = fit(table(x, y), model=f"quantile:{tau}")
    peer = peers.QuantileRegressor(quantile=tau, alpha=0, solver="highs").fit(x, y)
    np.testing.assert_allclose(model.coef[0], peer.coef_, rtol=1e-6)
    assert abs((y < model.predict(table(x, y))).mean() - tau) <= (width + 1) / count


@pytest.mark.parametrize(("sudden", "reads"), [(False, 0), (True, 1)])
def test_features_of_long_tables_are_standardised_by_sampled_rows_if_these_are_like_the_others(
    sudden, reads, monkeypatch
):
    rng, count, calls = np.random.default_rng(0), newton_training.MIN_SAMPLED_ROWS, []
    x = rng.normal(size=(count, 2)) * [1, 1e3] + [1e6, 5]
    x[count // 5 : count // 5 + 10 * sudden, 0] += 1e9
    y = x @ [1.0, -2.0] + rng.normal(size=count)
    moments = passes.moments
    monkeypatch.setattr(passes, "moments", lambda *how: calls.append(how) or moments(*how))
    rows_seen = []
    model = fit(table(x, y), model="linear", standardize=False, on_rows=rows_seen.append)
    z = x - x.mean(axis=0)
    np.testing.assert_allclose(model.coef[0], np.linalg.lstsq(z, y - y.mean(), rcond=None)[0], rtol=1e-10)
    assert len(calls) == reads
    assert sum(rows_seen) == count * len(model.history)
