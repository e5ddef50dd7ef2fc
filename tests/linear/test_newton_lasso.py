"""Newton's method with an L1 penalty: the optimum of scikit-learn's solvers, zeros included."""

import numpy as np
import pytest
from newton_rows import KINDS, ROWS, fit, labels, rows, slopes, table, weights

import corgipile as cp
from corgipile.errors import BadArgument

peers = pytest.importorskip("sklearn.linear_model")


def means(model, x, y):
    """Return the derivatives of the mean loss by standardised features and intercept, [outputs, width]."""
    return slopes(model, x, y).T @ np.hstack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones((len(y), 1))]) / len(y)


@pytest.mark.parametrize(("l1", "l2"), [(0.5, 0), (0.2, 0.3), (50, 0)])
def test_linear_models_are_those_of_scikit_learn(l1, l2):
    x, score, rng = rows(0, width=8)
    y = labels("linear", score, rng)
    model = fit(table(x, y), model="linear", l1=l1, l2=l2, standardize=False)
    peer = peers.ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), tol=1e-14, max_iter=10**6).fit(x, y)
    np.testing.assert_allclose(model.coef[0], peer.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.intercept[0], peer.intercept_, rtol=1e-8)
    assert np.array_equal(model.coef[0] == 0, peer.coef_ == 0)
    assert (model.coef == 0).any()


def test_a_logistic_model_is_that_of_saga():
    x, score, rng = rows(1)
    x = np.hstack([x - x.mean(axis=0), rng.normal(size=(ROWS, 3))])
    y = labels("logistic", score, rng)
    model = fit(table(x, y), l1=0.02, standardize=False)
    saga = peers.LogisticRegression(C=1 / (0.02 * ROWS), l1_ratio=1.0, solver="saga", tol=1e-13, max_iter=10**5)
    np.testing.assert_allclose(model.coef, saga.fit(x, y).coef_, rtol=1e-6, atol=1e-8)
    assert np.array_equal(model.coef == 0, saga.coef_ == 0)


@pytest.mark.parametrize("l2", [0, 0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_no_weight_can_improve(kind, l2):
    x, score, rng = rows(2, width=6)
    x[:, 5] = x[:, 4]
    y = labels(kind, score, rng)
    model = fit(table(x, y), model=kind, l1=0.03, l2=l2, standardize=True)
    coef, slope = model.coef * x.std(axis=0), means(model, x, y)
    assert np.abs(slope[:, -1]).max() < 1e-9
    slope = slope[:, :-1] + l2 * coef
    assert np.abs(slope + 0.03 * np.sign(coef))[coef != 0].max() < 1e-9
    assert (np.abs(slope)[coef == 0] < 0.03 + 1e-9).all()
    order = rng.permutation(ROWS)
    again = fit(table(x[order], y[order]), model=kind, l1=0.03, l2=l2, standardize=True)
    np.testing.assert_allclose(again.decision(table(x, y)), model.decision(table(x, y)), rtol=1e-8, atol=1e-8)


def test_a_model_without_a_penalty_is_continued_to_one_with_zeros():
    x, score, rng = rows(3)
    y = labels("logistic", score, rng)
    first = fit(table(x, y))
    np.testing.assert_allclose(
        weights(fit(table(x, y), l1=0.1, standardize=True, warm_start=cp.train(table(x, y), standardize=True))),
        weights(fit(table(x, y), l1=0.1, standardize=True)),
        rtol=1e-8,
        atol=1e-12,
    )
    assert (first.coef != 0).all()


def test_quantiles_refuse_l1():
    x, score, rng = rows(4)
    with pytest.raises(BadArgument, match=r"l1 of quantile needs solver='sgd', got l1=0.1"):
        fit(table(x, labels("linear", score, rng)), model="quantile:0.5", l1=0.1)
