"""Default scaling: as accurate as standardised features, with flags unscaled."""

import math
from contextlib import suppress
from inspect import signature

import numpy as np
import pyarrow as pa
import pytest

from corgipile import _kernel
from corgipile.errors import Diverged
from corgipile.linear import train
from corgipile.linear.features import Features
from corgipile.linear.scaling import Moments
from corgipile.linear.schedule import Schedule
from corgipile.steps import STEPS

ROWS, TRAINED = 2400, 600


def normal(rng):
    return rng.normal(size=(ROWS, 5))


def correlated(rng):
    return rng.normal(size=(ROWS, 4)) @ rng.normal(size=(4, 6))


def tails(rng):
    return rng.standard_t(3, (ROWS, 5))


def houses(rng):
    return np.column_stack([rng.lognormal(4, 1, ROWS), rng.integers(1, 6, ROWS), rng.integers(1950, 2020, ROWS)])


def persons(rng):
    ages, flags = rng.integers(18, 90, ROWS), rng.random((ROWS, 3)) < [0.5, 0.1, 0.9]
    return np.column_stack([ages, rng.exponential(2000, ROWS), rng.normal(65, 30, ROWS), flags])


def dates(rng):
    return np.column_stack([1.7e9 + rng.integers(0, 3e7, ROWS), rng.integers(0, 7, ROWS), rng.normal(size=ROWS)])


def short(rng):
    return rng.normal(size=(ROWS, 6)) / 20


def flags(rng):
    return (rng.random((ROWS, 8)) < 0.4) * 1.0


def rare(rng):
    return rng.normal(size=(ROWS, 6)) * (rng.random((ROWS, 6)) < 0.1)


def shares(rng):
    return rng.beta(2, 5, (ROWS, 5))


def one_hot(x, rng):
    states = rng.integers(0, 20, ROWS)
    return np.column_stack([x, np.eye(20)[states]]), np.where(states < 5, 2.0, 0.0)


def counts(x, rng):
    return np.column_stack([x, rng.poisson([0.3, 2, 0.1], (ROWS, 3)) * [1, 1, 1000], np.full(ROWS, 3.0)]), 0


def tiny(x, rng):
    return x * np.where(np.arange(x.shape[1]) % 3, 1, 1e-6), 0


def large(x, rng):
    return x * np.where(np.arange(x.shape[1]) % 3, 1, 1e6), 0


def accuracy(x, y, kind, **settings):
    """Return the held-out score of a model."""
    names = [f"x{at}" for at in range(x.shape[1])]
    rows = pa.table({**dict(zip(names, x.T, strict=True)), "label": y})
    found = train(rows.slice(0, TRAINED), model=kind, **settings).measure(rows.slice(TRAINED))
    return found["r2"] if kind == "linear" else found["accuracy"]


@pytest.mark.parametrize("columns", [normal, correlated, tails, houses, persons, dates, short, flags, rare, shares])
def test_the_default_is_as_accurate_as_standardised_features(columns):
    for at, change in enumerate((lambda x, rng: (x, 0), one_hot, counts, tiny, large)):
        rng = np.random.default_rng(at)
        x = columns(rng)
        z = (x - x.mean(axis=0)) / x.std(axis=0)
        changed, more = change(x, rng)
        score = z @ rng.normal(size=x.shape[1]) + more + 0.3 * rng.normal(size=ROWS)
        assert accuracy(changed, score, "linear") > accuracy(changed, score, "linear", standardize=True) - 0.01
        sides = (score > np.median(score)).astype(int)
        assert accuracy(changed, sides, "logistic") > accuracy(changed, sides, "logistic", standardize=True) - 0.01


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_labels_of_any_size_are_learnt_as_well_as_they_can_be(scale):
    x = houses(np.random.default_rng(0))
    y = scale * (
        (x - x.mean(axis=0)) / x.std(axis=0) @ [1, -1, 0.5] + 3 + 0.3 * np.random.default_rng(1).normal(size=ROWS)
    )
    design = np.column_stack([x, np.ones(ROWS)])
    best = np.linalg.lstsq(design[:TRAINED], y[:TRAINED], rcond=None)[0]
    rest = y[TRAINED:]
    reachable = 1 - ((rest - design[TRAINED:] @ best) ** 2).sum() / ((rest - rest.mean()) ** 2).sum()
    assert accuracy(x, y, "linear") > reachable - 0.01


@pytest.mark.parametrize("far", [690.0, 709.78, 709.7827128933856, 1000.0])
def test_the_rate_for_labels_of_any_size_is_finite(far):
    """The search for it ends, even at labels near the largest double."""
    step = STEPS["decay"]
    assert step.usual < _kernel.sgd_again(step.code, step.usual, 1.0, 1e9, far) < math.inf


def test_training_on_labels_near_the_largest_double_ends():
    x = np.random.default_rng(0).normal(size=500)
    with suppress(Diverged):
        train(pa.table({"x": x, "label": 1e308 * (1 + x / 50)}), model="quantile", epochs=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flags_stay_as_they_are(dtype):
    rng = np.random.default_rng(0)
    flag, rarely, always = rng.random(2000) < 0.3, np.arange(2000) < 20, np.ones(2000)
    rows = np.column_stack([rng.normal(50, 9, 2000), flag, rarely, always, 2 * flag, flag / 2]).astype(dtype)
    moments = Moments(Features(("x",), sparse=False, width=6, dtype=np.dtype(dtype), lists=True))
    moments.add(rows, np.arange(2000, dtype=np.int32))
    found = moments.scaling(centred=True, keep_flags=True)
    assert (found.center[1], found.scale[1]) == (0, 1)
    assert found.center[[2, 3]] == pytest.approx([0.01, 1])
    assert found.scale[2] == pytest.approx(math.sqrt(20 * 0.01 * 0.99))  # the threshold: 100 rows at a spread of 1
    at = [0, 4, 5]
    assert found.scale[at] == pytest.approx(rows[:, at].std(axis=0, dtype=np.float64))
    assert found.center[at] == pytest.approx(rows[:, at].mean(axis=0, dtype=np.float64))
    table = pa.table({**{f"x{at}": rows[:, at] for at in range(6)}, "label": flag.astype(int)})
    assert train(table, epochs=1).learnt.scaling.scale.tolist() == found.scale.tolist()
    whole = train(table, epochs=1, standardize=True).learnt.scaling
    assert whole.scale[1] == pytest.approx(rows[:, 1].std(dtype=np.float64))


@pytest.mark.parametrize("how", [
    {}, {"model": "svm", "step": "adam"}, {"model": "linear"}, {"by": "word"}, {"labels": ["flag", "label"]},
    {"encode": "onehot"}, {"validation": 0.2, "patience": 1},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("flags", [True, False])
def test_the_parameters_of_a_model_train_it_again(how, flags):
    random = np.random.default_rng(0)
    x, flag = random.normal(300, 50, 900), random.integers(0, 2, 900)
    words = np.array(["no", "yes"])[random.integers(0, 2, 900)]
    table = pa.table({"x": x, "flag": flag if flags else x**2, "label": (x / 50 + flag > 6.5) * 1, "word": words})
    if "labels" in how:
        table, how = table.append_column("other", pa.array(flag)), {"labels": ["other", "label"]}
    columns = ["x", "flag", *(["word"] if "encode" in how else [])]
    label = {} if "labels" in how else {"label": "label"}
    model = train(table, features=columns, epochs=2, **label, **how)
    assert model.params["standardize"] is (None if flags or "encode" in how else True)
    known = {*signature(train).parameters} - ({"order"} if label else {"order", "label"})
    again = train(table, **{name: value for name, value in model.params.items() if name in known})
    assert again.coef.tobytes() == model.coef.tobytes()
    assert again.intercept.tobytes() == model.intercept.tobytes()


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("labels", ["one", "several"])
def test_standardised_features_are_suggested_once(make, form, labels, caplog):
    x, y = make.rows(600, classes=0)
    settings = {} if form == "sparse" else {"standardize": False}
    rows = getattr(make, form)(1e4 * x, y)
    if labels == "several":
        rows = rows.append_column("group", pa.array(np.arange(600) % 2))
        settings |= {"by": "group"}
    train(rows, model="linear", epochs=3, **settings)
    assert "restarting at" in caplog.text
    assert caplog.text.count("standardize=True would help") == 1


def test_they_are_suggested_where_two_epochs_learn_nothing(make, caplog):
    x, y = make.rows(600, classes=0)
    model = train(make.sparse(x / 1e4, y + 9), model="linear", epochs=3, learning_rate=1e-6)
    said = [note for note in model.notes if "standardize=True would help" in note]
    assert len(said) == 1
    assert "no better than a constant" in said[0]
    assert train(make.dense(x, y), model="linear", epochs=2).notes == []


@pytest.mark.parametrize("how", [{"solver": "dual", "l2": 0.1}, {"decay": 0.5}, {"step": "adam"}])
def test_more_epochs_than_a_double_has_powers_of_two(how):
    rows = pa.table({"x": [0.1, -0.3, 0.8, -0.9], "label": [1, 0, 1, 0]})
    assert len(train(rows, epochs=1100, **how).history) == 1100


@pytest.mark.parametrize("step", STEPS)
def test_rates_of_late_epochs_are_numbers(step):
    for epoch in (1023, 1024, 1075, 10**6, 2**40):
        assert 0 <= Schedule(0.5, 0.9, 0.0, None, step=step).rate(epoch) <= 0.5
