"""Averaged weights: less noise, and the same bits after a warm start, however models are stored."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from corgipile import cli
from corgipile.errors import BadArgument, BadModelFile
from corgipile.linear import load, train
from corgipile.linear.saving import read_tensors, write_tensors


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 5))
    return pa.table(
        {**{f"x{at}": x[:, at] for at in range(5)}, "label": (x.sum(axis=1) + rng.normal(size=3000) > 0) * 1}
    )


@pytest.mark.parametrize("kind", ["logistic", "svm", "linear", "huber"])
def test_models_of_different_seeds_differ_less(rows, kind):
    def spread(**settings):
        found = [train(rows, model=kind, seed=seed, learning_rate=0.05, **settings).coef[0] for seed in range(6)]
        return np.std(found, axis=0).mean()

    assert spread(average=True) < spread() / 3


@pytest.mark.parametrize("standardize", [False, True])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(rows, tmp_path, standardize):
    how = {"average": True, "standardize": standardize, "validation": 0.1, "l2": 1e-3}
    whole = train(rows, epochs=5, **how)
    train(rows, epochs=2, save=tmp_path / "m", **how)
    again = train(rows, epochs=3, warm_start=load(tmp_path / "m"), **how)
    assert (again.coef.tobytes(), again.intercept.tobytes()) == (whole.coef.tobytes(), whole.intercept.tobytes())
    assert [record["test_loss"] for record in again.history] == [record["test_loss"] for record in whole.history]


def test_without_average_the_mean_is_gone_on_from(rows):
    past = train(rows, epochs=2, average=True)
    assert (train(rows, epochs=0, warm_start=past).coef == past.coef).all()
    assert past.learnt.coef.tolist() != past.coef.tolist()
    more = train(rows, epochs=1, warm_start=past, average=True)
    assert more.learnt.optimizer_state[-1, 0] == past.learnt.optimizer_state[-1, 0] * 3 / 2


def test_the_last_epochs_test_figures_are_those_of_the_model(rows):
    model = train(rows, average=True, test=rows)
    assert model.history[-1]["test_loss"] == model.measure(rows)["loss"]


@pytest.mark.parametrize(
    "change",
    [
        {"beside": np.zeros((2, 5))},
        {"beside": np.full((2, 6), np.nan)},
        {"beside": np.full((2, 6), -1.0)},
        {"beside": np.zeros((1, 6))},
        {"beside": np.zeros(12)},
        {"beside": np.zeros((2, 6), np.float32)},
        {"scale": None},
    ],
    ids=str,
)
def test_damaged_files_are_refused(rows, tmp_path, change):
    train(rows, epochs=1, average=True, save=tmp_path / "m")
    tensors, meta = read_tensors(tmp_path / "m")
    changed = {name: part for name, part in (tensors | change).items() if part is not None}
    write_tensors(tmp_path / "m", changed, meta)
    with pytest.raises(BadModelFile):
        load(tmp_path / "m")


def test_what_is_no_yes_or_no_is_refused(rows):
    with pytest.raises(BadArgument, match="average must be True or False, got 'tail'"):
        train(rows, average="tail")


def test_the_command_has_it(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(rows, "rows.parquet")
    assert cli.main(["train", "rows.parquet", "--average", "--save", "m", "--epochs", "2"]) == 0
    assert load("m").params["average"] is True
    assert (load("m").coef == train("rows.parquet", average=True, epochs=2).coef).all()


@pytest.mark.parametrize("kind", ["linear", "huber", "poisson", "quantile:0.9"])
def test_numbers_are_predicted_by_the_mean_where_nobody_says_how_weights_move(rows, kind):
    model = train(rows, model=kind)
    assert model.params["average"] is True
    assert (model.coef == train(rows, model=kind, average=True).coef).all()
    assert (model.coef != train(rows, model=kind, average=False).coef).any()
    for said in ({"step": "decay"}, {"learning_rate": 0.01}, {"decay": 0.9}):
        assert train(rows, model=kind, epochs=1, **said).params["average"] is False
    assert train(rows, epochs=1).params["average"] is False  # the default step averages


@pytest.mark.parametrize("average", [None, True, False])
def test_going_on_averages_as_before(rows, average):
    how = {"model": "linear", "average": average}
    past, whole = train(rows, epochs=2, **how), train(rows, epochs=4, **how)
    more = train(rows, model="linear", epochs=2, warm_start=past)
    assert more.params["average"] is whole.params["average"]
    assert (more.coef == whole.coef).all()


def test_noisy_numbers_end_near_the_best_that_there_is():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 28))
    y = x.sum(axis=1) / 5 + 2 * rng.normal(size=20_000)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    rows = pa.table({**{f"x{at}": x[:, at] for at in range(28)}, "label": y})
    found, last = (train(rows, model="linear", average=average).coef[0] for average in (None, False))
    assert np.square(found - best).sum() < np.square(last - best).sum() / 10
