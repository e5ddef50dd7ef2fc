"""Models with less common losses: optimum, predictions, refusals and files."""

import json

import numpy as np
import pytest
from sklearn.linear_model import HuberRegressor, PoissonRegressor
from sklearn.svm import LinearSVC

import corgipile as cp
from corgipile.cli import main
from corgipile.errors import BadArgument, BadLabel
from corgipile.linear import load, train
from corgipile.linear.divergence import Baseline
from corgipile.linear.estimators import CorgiClassifier, CorgiRegressor

ROWS, WEIGHTS = 20_000, np.array([0.5, -0.3, 0.2])


@pytest.fixture(scope="module")
def rows():
    """Return features and the scores of a linear model."""
    x = np.random.default_rng(3).normal(size=(ROWS, 3))
    return x, x @ WEIGHTS + 0.3


def noise(draw, *size):
    return getattr(np.random.default_rng(7), draw)(*size, size=ROWS)


def test_poisson_finds_what_scikit_learn_does(make, rows):
    x, score = rows
    y = np.random.default_rng(5).poisson(np.exp(score))
    model = train(make.dense(x, y), model="poisson", epochs=15, decay=0.7)
    peer = PoissonRegressor(alpha=0).fit(x, y)
    np.testing.assert_allclose(model.coef[0], peer.coef_, atol=0.01)
    np.testing.assert_allclose(model.predict(x), np.exp(model.decision(x)), rtol=1e-14)
    assert model.measure(make.dense(x, y))["loss"] < 1.001 * _half_deviance(peer.predict(x), y)
    with pytest.raises(BadArgument, match="has no probabilities"):
        model.predict_proba(x)


def _half_deviance(mean, y):
    return (mean - y + np.where(y > 0, y * np.log(np.maximum(y, 1) / mean), 0)).mean()


def test_poisson_refuses_negative_labels_and_may_skip_them(make, rows):
    x, score = rows
    y = np.random.default_rng(5).poisson(np.exp(score)).astype(float)
    y[123] = -1
    with pytest.raises(BadLabel, match=r"row 123 of .* has label -1.0; a poisson model needs labels of 0 or more"):
        train(make.dense(x, y), model="poisson", order="no_shuffle")
    model = train(make.dense(x, y), model="poisson", epochs=1, on_bad="skip")
    assert (model.history[0]["skipped"], model.history[0]["rows"]) == (1, ROWS - 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poisson_survives_margins_beyond_all_numbers(make, dtype):
    x = np.full((50, 1), 1e4, dtype)
    model = cp.linear.Model("poisson", np.ones((1, 1), dtype), np.zeros(1, dtype), np.zeros(0))
    figures = model.measure(make.dense(x, np.arange(50.0)))
    assert np.isfinite(figures["loss"])
    assert model.predict(-x).tolist() == [0.0] * 50


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
def test_a_share_of_labels_lies_below_a_quantile(make, rows, tau):
    x, score = rows
    y = score + noise("exponential", 1.0)
    model = train(make.dense(x, y), model=f"quantile:{tau}", epochs=10, decay=0.8)
    assert (y < model.predict(x)).mean() == pytest.approx(tau, abs=0.015)
    np.testing.assert_allclose(model.coef[0], WEIGHTS, atol=0.05)
    assert not model.notes


@pytest.mark.parametrize(("far", "large"), [(200_000, 60_000), (50, 6), (0, 10_000), (-3_000, 400)])
def test_labels_may_be_far_off(make, rows, far, large):
    x, score = rows
    y = far + large * (score / score.std() + 0.3 * noise("normal", 1.0))
    huber, low, high = (train(make.dense(x, y), model=kind) for kind in ("huber", "quantile:0.05", "quantile:0.9"))
    assert huber.history[-1]["r2"] > 0.85
    assert (y < low.predict(x)).mean() == pytest.approx(0.05, abs=0.03)
    assert (y < high.predict(x)).mean() == pytest.approx(0.9, abs=0.03)
    assert any("is small for labels this far from 0; restarting at" in note for note in huber.notes)
    y[::50] += 1e9 * large  # they say little about other models
    assert np.corrcoef(train(make.dense(x, y), model="huber").predict(x), score)[0, 1] > 0.9


def test_the_usual_parameter_need_not_be_said(make, rows):
    x, score = rows
    table = make.dense(x, score + noise("exponential", 1.0))
    said, unsaid = (train(table, model=kind, epochs=1) for kind in ("quantile:0.5", "quantile"))
    assert (said.coef == unsaid.coef).all()
    assert (train(table, model="quantile:0.6", epochs=1).coef != unsaid.coef).any()


def test_huber_is_not_led_astray(make, rows):
    x, score = rows
    y = score + noise("standard_t", 1.5)
    y[::50] += 300 * x[::50, 2]
    off = {
        kind: np.abs(train(make.dense(x, y), model=kind, epochs=10, decay=0.8).coef[0] - WEIGHTS).max()
        for kind in ("linear", "huber")
    }
    assert off["huber"] < 0.1
    assert off["linear"] > 1
    np.testing.assert_allclose(HuberRegressor().fit(x, y).coef_, WEIGHTS, atol=0.1)


def test_a_huge_delta_is_squared_loss(make, rows):
    x, score = rows
    table = make.dense(x, score + noise("normal"))
    huber, linear = (train(table, model=kind, epochs=2) for kind in ("huber:1e9", "linear"))
    np.testing.assert_allclose(huber.coef, linear.coef, rtol=1e-9)
    assert huber.history[-1]["loss"] == pytest.approx(linear.history[-1]["loss"])


def test_squared_hinge_classifies(make, rows):
    x, score = rows
    y = (score + noise("logistic", 0.0, 0.1) > 0).astype(int) * 2 + 3
    model = train(make.dense(x, y), model="squared_hinge", epochs=5)
    peer = LinearSVC(loss="squared_hinge", random_state=0).fit(x, y)
    assert model.classes.tolist() == [3, 5]
    assert (model.predict(x) == y).mean() > peer.score(x, y) - 0.01
    with pytest.raises(BadLabel, match='squared_hinge takes two, "softmax" and "svm" and "ovr_logistic" take more'):
        train(make.dense(x, y + np.arange(ROWS) % 2 * 10), model="squared_hinge")


@pytest.mark.parametrize("kind", ["huber:0.5", "squared_hinge", "poisson", "quantile:0.2"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_saved_model_predicts_and_goes_on_as_it_did(make, tmp_path, kind, form):
    x, y = make.rows(500)
    table = getattr(make, form)(x, y)
    model = train(table, model=kind, epochs=2, save=tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.kind == kind
    assert (again.predict(table) == model.predict(table)).all()
    assert again.measure(table) == model.measure(table)
    more, whole = train(table, model=kind, epochs=1, warm_start=again), train(table, model=kind, epochs=3)
    assert (more.coef == whole.coef).all()
    with pytest.raises(BadArgument, match=f"got {kind} of"):
        train(table, model="linear", warm_start=again)


def test_a_parameter_is_compared_by_its_value(make, rows):
    x, score = rows
    table = make.dense(x, score)
    past = train(table, model="quantile:0.2", epochs=1)
    train(table, model="quantile:0.20", epochs=1, warm_start=past)
    with pytest.raises(BadArgument, match=r"got quantile:0\.2 of"):
        train(table, model="quantile", warm_start=past)


@pytest.mark.parametrize(
    ("kind", "best"),
    [
        ("poisson", np.mean), ("quantile:0.9", lambda y: np.quantile(y, 0.9, method="inverted_cdf")),
        ("quantile", np.median), ("huber:1e6", np.mean), ("huber:1e-6", np.median),
    ],
)  # fmt: skip
def test_the_best_constant_of_numbers(kind, best):
    y = np.random.default_rng(2).poisson(3.0, 4001).astype(float)
    base, value = Baseline(kind, np.zeros(0)), best(y)
    for part in np.array_split(np.append(y, np.nan), 5):
        base.add(part)
    name, _, parameter = kind.partition(":")
    tau = float(parameter or 0.5)
    losses = {
        "poisson": lambda m: _half_deviance(m, y),
        "quantile": lambda m: np.maximum(tau * (y - m), (tau - 1) * (y - m)).mean(),
        "huber": lambda m: ((y - m) ** 2 / 2 if tau > 1 else tau * np.abs(y - m)).mean(),
    }
    assert base.constant() == pytest.approx(losses[name](value), rel=1e-5)
    assert base.untrained() == pytest.approx(losses[name](1.0 if name == "poisson" else 0.0), rel=1e-5)


def test_the_best_constant_of_many_labels_is_that_of_a_sample():
    y = np.random.default_rng(2).exponential(3.0, 300_000)
    base = Baseline("quantile:0.9", np.zeros(0))
    for part in np.array_split(np.sort(y), 77):
        base.add(part)
    best = np.quantile(y, 0.9)
    assert base.constant() == pytest.approx(np.maximum(0.9 * (y - best), -0.1 * (y - best)).mean(), rel=0.03)


def test_a_step_too_large_is_taken_back(make, rows):
    x, score = rows
    y = np.random.default_rng(5).poisson(np.exp(score))
    model = train(make.dense(x * 30, y), model="poisson", epochs=2, standardize=False)
    assert "diverges; restarting" in " ".join(model.notes)


@pytest.mark.parametrize("kind", ["huber:2", "poisson", "quantile:0.7"])
def test_the_regressor_takes_losses_of_numbers(rows, kind):
    x, score = rows
    y = np.random.default_rng(5).poisson(np.exp(score))
    estimator = CorgiRegressor(kind, epochs=3).fit(x, y)
    assert estimator.get_params()["model"] == kind
    assert (estimator.predict(x) == estimator.model_.predict(x)).all()
    assert estimator.partial_fit(x, y).n_iter_ == 4
    with pytest.raises(BadArgument, match=r"CorgiRegressor needs one of .* as model, got 'svm'"):
        CorgiRegressor("svm").fit(x, y)


def test_the_classifier_takes_losses_of_classes(rows):
    x, score = rows
    estimator = CorgiClassifier("squared_hinge", epochs=3).fit(x, np.where(score > 0, "yes", "no"))
    assert estimator.score(x, np.where(score > 0, "yes", "no")) > 0.97
    assert not hasattr(estimator, "predict_proba")
    with pytest.raises(BadArgument, match=r"CorgiClassifier needs one of .* as model, got 'poisson'"):
        CorgiClassifier("poisson").fit(x, score > 0)


def test_the_command_line_takes_a_parameter(make, rows, tmp_path, capsys):
    x, score = rows
    cp.convert(make.dense(x[:500], score[:500] + noise("exponential", 1.0)[:500]), tmp_path / "t.arrow")
    path = str(tmp_path / "t.arrow")
    command = ["train", path, "--model", "quantile:0.9", "--epochs", "1", "--json", "--save", str(tmp_path / "m")]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "quantile:0.9"
    assert load(tmp_path / "m").loss.parameter == 0.9
    assert main(["train", path, "--model", "quantile:2"]) != 0
    assert "tau of a quantile model must be above 0 and below 1" in capsys.readouterr().err
    assert main(["compare", path, "--model", "huber", "--epochs", "1", "--order", "full"]) == 0
