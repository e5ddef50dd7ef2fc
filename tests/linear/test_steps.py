"""Steps and penalties in training: effects, refusals and warm starts from files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument
from corgipile.linear import load, train
from corgipile.steps import STEPS
from corgipile.tables.splitting import folds_of


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 5))
    label = (x.sum(axis=1) + rng.normal(size=3000) > 0) * 1
    return pa.table({**{f"x{at}": x[:, at] for at in range(5)}, "label": label})


@pytest.mark.parametrize("kind", ["logistic", "svm", "linear", "softmax"])
@pytest.mark.parametrize("step", STEPS)
def test_all_steps_learn(rows, step, kind):
    model = train(rows, model=kind, step=step, epochs=5)
    figures = model.measure(rows)
    assert figures.get("accuracy", 0.8) >= 0.8
    assert figures.get("r2", 0.5) > 0.45
    assert model.params["step"] == step
    assert model.params["learning_rate"] in (STEPS[step].usual, STEPS[step].usual / 5)  # a converged regression


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(rows, tmp_path, step):
    how = {"step": step, "l1": 1e-3, "standardize": True, "batch_size": 3}
    whole = train(rows, epochs=4, **how)
    train(rows, epochs=2, save=tmp_path / "m", **how)
    again = train(rows, epochs=2, warm_start=load(tmp_path / "m"), **how)
    assert (again.coef.tobytes(), again.intercept.tobytes()) == (whole.coef.tobytes(), whole.intercept.tobytes())


def test_auto_averages_and_needs_no_rate_whatever_the_scale(rows):
    scales = np.array([1e-3, 1, 10, 1e3, 1])
    scaled = pa.table(
        {name: rows[name].to_numpy() * (scales[at] if at < 5 else 1) for at, name in enumerate(rows.schema.names)}
    )
    one, other = (train(part, step="auto", standardize=False) for part in (rows, scaled))
    assert one.learnt is not None
    np.testing.assert_allclose(other.coef * scales, one.coef, rtol=1e-4)
    assert one.measure(rows)["loss"] < train(rows, standardize=False, step="decay").measure(rows)["loss"]


@pytest.mark.parametrize(
    ("count", "width", "kind", "rate"),
    [
        (100, 4, "logistic", 4),
        (400, 100, "logistic", 2),
        (89 * 36, 25, "logistic", 4 * (36 / 30) ** 2),
        (4000, 20, "svm", 8),
        (144 * 50, 80, "squared_hinge", 8),
        (94 * 40, 10, "softmax", 4 * (40 / 30) ** 2),
        (1000, 20, "softmax", 4),
        (400, 2, "logistic", 4),
        (464 * 3, 10, "softmax of 40", 2 + 2 * 4**0.625),
        (464 * 4, 10, "softmax of 40", 4 * 4**0.625),
        (264 * 4, 20, "softmax of 10", 4),
    ],
)
def test_auto_steps_are_the_longer_the_more_rows_there_are_for_each_weight(count, width, kind, rate):
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, width)).astype(np.float32)
    kind, _, many = kind.partition(" of ")
    classes = int(many or 3)
    shares = np.quantile(x.sum(axis=1), np.arange(1, classes) / classes)
    y = np.digitize(x.sum(axis=1), shares if kind == "softmax" else [0])
    rows = pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width), "label": y})
    how = {"model": kind, "order": "no_shuffle", "standardize": False}
    auto = train(rows, step="auto", epochs=2, **how)
    assert auto.params["learning_rate"] == 1
    how |= {"step": "normalized", "average": True, "epochs": 1}
    first = train(rows, learning_rate=4 if width <= 25 else max(2, 4 * (25 / width) ** 0.5), **how)
    same = train(rows, learning_rate=rate, warm_start=first, **how)
    assert (auto.coef.tobytes(), auto.intercept.tobytes()) == (same.coef.tobytes(), same.intercept.tobytes())


def test_auto_goes_by_the_rows_of_a_group_and_those_that_a_fold_leaves():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 2))
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "g": ["few"] * 60 + ["many"] * 3_940, "label": x[:, 0] > x[:, 1]})
    how = {"epochs": 2, "order": "no_shuffle", "standardize": False}
    models = train(rows, by="g", **how)
    for group, part in (("few", rows[:60]), ("many", rows[60:])):
        assert np.array_equal(models.of(group).coef, train(part.drop("g"), **how).coef)
    plain = rows[:2_600].drop("g")  # a fold leaves few rows, which shortens the steps
    parts = folds_of(cp.open(plain), 3, 0)
    found = cp.search(plain, {"step": ["auto"]}, folds=3, refit=False, **how)
    for fold, score in enumerate(found.results[0]["scores"]):
        alone = train(plain.filter(parts != fold), **how)
        assert alone.measure(plain.filter(parts == fold))["accuracy"] == score


def test_going_on_in_another_way_begins_from_the_weights(rows):
    past = train(rows, epochs=2, step="adagrad")
    for how in ({"step": "normalized"}, {"step": "decay"}, {"step": "adagrad", "l1": 0.1}):
        assert (train(rows, epochs=0, warm_start=past, **how).coef == past.coef).all()
    again = train(rows, epochs=1, warm_start=past)
    assert (again.params["step"], again.params["learning_rate"]) == ("adagrad", STEPS["adagrad"].usual)
    assert train(rows, epochs=1, warm_start=past, learning_rate=0.1).params["step"] == "adagrad"


def test_the_usual_step_is_auto_for_classes_where_no_rate_is_given(rows):
    def step(**how):
        return train(rows, epochs=1, **how).params["step"]

    assert [step(model=kind) for kind in ("logistic", "svm", "softmax")] == ["auto"] * 3
    assert [step(model=kind) for kind in ("linear", "huber", "poisson", "quantile")] == ["decay"] * 4
    assert [step(learning_rate=0.1), step(decay=0.5)] == ["decay"] * 2
    known = train(rows, epochs=1)
    assert [step(warm_start=known), step(warm_start=known, decay=0.9)] == ["auto", "decay"]
    assert train(rows, epochs=1, l2=1e6).coef.any()  # with rates per weight no penalty is too strong


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step": "adagard"}, "step must be one of constant, .*auto, got 'adagard'; did you mean adagrad?"),
        ({"step": 1}, "step must be one of .* got 1"),
        ({"step": "auto", "learning_rate": 0.1}, "step='auto' sets the rate, got learning_rate=0.1; leave it out"),
        ({"step": "constant", "decay": 0.5}, "decay needs step='decay', got decay=0.5 with step='constant'"),
        ({"l2": 1000.0, "step": "decay"}, "l2 must be 0 or more, and below 1 / learning_rate, got 1000"),
        ({"l1": -1}, "l1 must be 0 or more, got -1"),
        ({"l1": float("nan")}, "l1 must be"),
    ],
)
def test_what_does_not_go_together_is_refused(rows, wrong, message):
    with pytest.raises(BadArgument, match=message):
        train(rows, **wrong)


def test_the_command_and_the_estimators_have_them(rows, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    from corgipile.linear.estimators import CorgiClassifier  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(rows, "rows.parquet")
    assert cli.main(["train", "rows.parquet", "--step", "auto", "--l1", "0.001", "--save", "m", "--epochs", "2"]) == 0
    want = train("rows.parquet", step="auto", l1=0.001, epochs=2)
    assert (load("m").coef == want.coef).all()
    fitted = CorgiClassifier(step="auto", l1=0.001, epochs=2, l2=0.0).fit("rows.parquet")
    assert (fitted.coef_ == want.coef).all()
    x, y = rows.drop_columns(["label"]).to_pandas(), rows["label"].to_numpy()
    for step in STEPS:
        parts = CorgiClassifier(step=step)
        for _ in range(2):
            parts.partial_fit(x, y, classes=[0, 1])
        assert parts.n_iter_ == 2
