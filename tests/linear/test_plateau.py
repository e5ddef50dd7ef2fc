"""Default learning rates of a regression on noisy labels are lowered at a plateau."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile.linear import load, train


@pytest.fixture
def noisy():
    random = np.random.default_rng(0)
    x = random.standard_normal((30_000, 2)).astype(np.float32)
    y = x @ [3.0, -1.0] + 20 * random.standard_normal(len(x))  # R2 of the best model: 0.024
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "label": y})
    best = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
    return rows, best


def test_weights_come_to_rest_near_the_best(noisy):
    rows, best = noisy
    model = train(rows, model="linear", test=rows, epochs=8, average=False)
    assert np.allclose([*model.coef[0], model.intercept[0]], best, atol=0.8)
    assert model.history[-1]["test_r2"] > 0.02
    assert model.params["learning_rate"] < 0.01
    chosen = train(rows, model="linear", epochs=8, learning_rate=0.01)
    assert chosen.params["learning_rate"] == 0.01
    assert not np.allclose([*chosen.coef[0], chosen.intercept[0]], best, atol=0.8)


def test_the_mean_of_long_steps_is_at_rest(noisy):
    rows, best = noisy
    model = train(rows, model="linear", epochs=8)
    assert np.allclose([*model.coef[0], model.intercept[0]], best, atol=0.2)
    assert model.params["learning_rate"] == 0.01


def test_going_on_is_to_the_same_bits(noisy, tmp_path):
    rows, _ = noisy
    whole = train(rows, model="linear", epochs=6, average=False)
    for first in (1, 2, 3, 5):
        train(rows, model="linear", epochs=first, average=False, save=tmp_path / "m")
        model = train(rows, model="linear", epochs=6 - first, warm_start=load(tmp_path / "m"))
        assert model.coef.tobytes() == whole.coef.tobytes()
        assert [record["loss"] for record in model.history] == [record["loss"] for record in whole.history]


def test_what_still_improves_keeps_its_rate():
    x = np.random.default_rng(1).standard_normal((2000, 20)).astype(np.float32)
    rows = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.ravel(), 20), "label": x @ np.arange(20.0)})
    assert train(rows, model="linear", epochs=3, features="x", average=False).params["learning_rate"] == 0.01
