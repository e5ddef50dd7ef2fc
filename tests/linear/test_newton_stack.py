"""Newton's method for several models in the same passes: by group and by label, equal to models trained alone."""

import numpy as np
import pyarrow as pa
import pytest
from newton_rows import ROWS, fit, labels, rows, table, weights

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall, ConvergenceWarning
from corgipile.linear.groups import Groups
from corgipile.linear.multilabel import LabelModels


@pytest.mark.parametrize(
    ("kind", "memory"),
    [("linear", "64MB"), ("linear", "16KB"), ("softmax", "40KB"), ("huber:0.5", "16KB"), ("quantile:0.5", "64MB")],
)
def test_groups_are_the_models_of_their_rows(kind, memory, tmp_path):
    x, score, rng = rows(1)
    y, of = labels("linear" if "quantile" in kind else kind, score, rng), rng.choice(["a", "b", "c"], ROWS)
    named = {"model": kind, "l2": 0.01 if kind == "softmax" else 0, "standardize": False}
    models = fit(table(x, y, g=of), by="g", save=tmp_path / "m.safetensors", memory=memory, **named)
    assert isinstance(models, Groups)
    assert models.groups == ["a", "b", "c"]
    for group in models.groups:
        some = of == group
        alone = fit(table(x[some], y[some]), **named)
        np.testing.assert_allclose(weights(models.of(group)), weights(alone), rtol=1e-8)
    assert models.table()["rows"].to_pylist() == [int((of == group).sum()) for group in models.groups]
    loaded = cp.load(tmp_path / "m.safetensors")
    assert np.array_equal(loaded.predict(table(x, y, g=of)), models.predict(table(x, y, g=of)))


def test_nearly_dependent_features_of_a_group_are_solved_by_rotations():
    rng = np.random.default_rng(0)
    x, of = rng.normal(size=(ROWS, 3)), np.arange(ROWS) % 2
    x[:, 2] = np.where(of == 1, x[:, 0] + 1e-6 * x[:, 2], x[:, 2])
    y = x @ [1.0, 2.0, 3.0] + rng.normal(size=ROWS)
    models = fit(table(x, y, g=of), model="linear", by="g", memory="8KB")
    for group in range(2):
        ones = np.column_stack([np.ones((of == group).sum()), x[of == group]])
        expected = np.linalg.lstsq(ones, y[of == group], rcond=None)[0]
        np.testing.assert_allclose(weights(models.of(group))[0], expected, rtol=1e-8)


def test_collinear_columns_name_their_group_and_auto_takes_groups():
    x, score, rng = rows(2)
    y, of = labels("linear", score, rng), np.where(np.arange(ROWS) % 3, "a", "b")
    x[of == "b", 1] = 5
    with pytest.warns(ConvergenceWarning, match=r"collinear column 'x1': .* \(in groups 'b' of 'g'\)"):
        models = cp.train(table(x, y, g=of), model="linear", by="g", solver="auto")
    assert models.params["solver"] == "newton"
    assert models.of("b").coef[0, 1] == 0


@pytest.mark.parametrize("kind", ["logistic", "squared_hinge"])
def test_labels_are_models_of_their_own(kind):
    x, score, rng = rows(3)
    has = np.column_stack([labels(kind, at * score, rng) for at in (1, -1, 0)])
    tags = pa.array([[name for name, on in zip("pqr", row, strict=True) if on] for row in has])
    features = {f"x{at}": x[:, at] for at in range(4)}
    models = fit(pa.table({**features, "tags": tags}), model=kind, labels="tags", memory="16KB")
    assert isinstance(models, LabelModels)
    assert models.labels == ["p", "q", "r"]
    for at in range(3):
        np.testing.assert_allclose(
            weights(models.of("pqr"[at])), weights(fit(table(x, has[:, at]), model=kind)), rtol=1e-8
        )


def test_several_models_refuse_what_needs_one():
    x, score, rng = rows(4)
    y, of = labels("linear", score, rng), np.arange(ROWS)
    with pytest.raises(BadArgument, match="validation must be left out with by='g'"):
        fit(table(x, y, g=of), model="linear", by="g", validation=0.1)
    with pytest.raises(BadArgument, match="by='label' is the label column"):
        fit(table(x, y), model="linear", by="label")
    with pytest.raises(BudgetTooSmall, match="for 600 groups"):
        fit(table(x, y, g=of), model="linear", by="g", memory="16KB")
