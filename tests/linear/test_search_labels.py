"""A search over labels equals the searches of each label, and trains the best."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.cli import main
from corgipile.errors import BadArgument, BadLabel, BudgetTooSmall, Diverged
from corgipile.linear.multilabel import LabelModels

NAMES, FEATURES = list("dacb"), [f"x{at}" for at in range(5)]
GRID = {"l2": [0.0, 1e-3], "step": ["constant", "adagrad"]}
ORDER = cp.orders.Riffle(block=8, buffer=64)


@pytest.fixture(scope="module")
def rows():
    """Return rows whose labels are in columns and in lists."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 5)).astype(np.float32)
    there = x @ rng.normal(size=(5, 4)) + rng.normal(size=(600, 4)) / 3 > 0.4
    tags = [[name for name, one in zip(NAMES, row, strict=True) if one] for row in there.tolist()]
    words = [" ".join(f"w{at}" for at in np.flatnonzero(row > 0)) for row in x]
    columns = dict(zip(FEATURES, x.T, strict=True)) | dict(zip(NAMES, there.T, strict=True))
    return pa.table(
        {**columns, "tags": tags, "w": rng.integers(1, 3, 600) / 2, "words": words, "who": np.arange(600) // 9}
    )


HOW = {
    "plain": {"standardize": False},
    "standardised": {"standardize": True},
    "weights": {"weight": "w", "model": "svm"},
    "by a column": {"group": "who"},
    "text": {"features": None, "text": "words", "hash_bits": 6},
}


@pytest.mark.parametrize("case", HOW)
def test_scores_are_means_of_those_of_each_label(rows, case):
    how = {"features": FEATURES, "folds": 3, "epochs": 2, "order": ORDER, **HOW[case]}
    found = cp.search(rows, GRID, labels="tags", **how)
    beside = cp.search(rows, GRID, labels=NAMES, refit=False, **how)
    each = [cp.search(rows, GRID, label=name, refit=False, **how).results for name in NAMES]
    point = lambda one: (one["l2"], one["step"])  # noqa: E731
    for one in (*found.results, *beside.results):
        alone = [next(other for other in results if point(other) == point(one)) for results in each]
        assert np.allclose(one["scores"], np.mean([other["scores"] for other in alone], axis=0), rtol=1e-12)
        assert np.isclose(one["loss"], np.mean([other["loss"] for other in alone]), rtol=1e-12)
    assert [one["score"] for one in found.results] == sorted((one["score"] for one in found.results), reverse=True)
    assert isinstance(found.model, LabelModels)
    again = {name: value for name, value in how.items() if name not in ("folds", "group")}
    assert np.array_equal(found.model.coef, cp.train(rows, labels="tags", **{**again, **found.best}).coef)


def test_rates_of_labels_that_diverge_are_lowered(rows, caplog):
    x = rows["x0"].to_numpy() + np.where(rows["d"].to_numpy(zero_copy_only=False), 3e5, 0)
    far = rows.set_column(0, "x0", pa.array(x))
    with caplog.at_level(logging.WARNING, "corgipile"):
        how = {"features": FEATURES, "folds": 3, "standardize": False, "model": "squared_hinge", "refit": False}
        found = cp.search(far, {"step": ["constant"]}, labels="tags", epochs=1, **how)
    assert "of 12 models of {'step': 'constant'}; restarting at" in caplog.text
    assert len(found.results[0]["learning_rates"]) == 12
    with pytest.raises(Diverged, match="at every point"):
        cp.search(far, {"learning_rate": [1e30]}, labels="tags", epochs=1, **how)


def test_what_cannot_be_is_refused(rows):
    for how, why in (
        ({"label": "a"}, "label must be left out with labels"),
        ({"class_weight": "balanced"}, "class_weight must be left out with labels"),
        ({"model": "softmax"}, "model must be logistic, svm or squared_hinge with labels"),
        ({"features": ["x0", "a"], "labels": NAMES}, "'a' is among the features"),
    ):
        with pytest.raises(BadArgument, match=why):
            cp.search(rows, {"l2": [0.0]}, **{"labels": "tags", **how})
    some = pa.table({"x": np.arange(60.0), "tags": [["a", "b"][at < 1 :] if at % 2 else ["c"] for at in range(60)]})
    rare = pa.table({"x": np.arange(60.0), "tags": [["a"] if at % 2 else ["b"] * (at == 8) for at in range(60)]})
    with pytest.raises(
        BadLabel, match=r"the one row that has label 'b' is in one of 3 folds, .* one; leave such labels"
    ):
        cp.search(rare, {"l2": [0.0]}, labels="tags", folds=3)
    ids = pa.table({"x": np.arange(60.0), "tags": [[f"t{at % 40}"] for at in range(60)]})
    with pytest.raises(BadLabel, match=r"of 3 folds, .* \(as for \d\d more labels\); fewer folds, another seed"):
        cp.search(ids, {"l2": [0.0]}, labels="tags", folds=3)
    with pytest.raises(BudgetTooSmall, match="labels"):
        cp.search(some, {"l2": [0.0]}, labels="tags", memory=500)


def test_the_command_takes_labels(rows, tmp_path, capsys):
    pq.write_table(rows.drop(["words", "who"]), tmp_path / "t.parquet")
    given = ["search", f"{tmp_path}/t.parquet", "--features", ",".join(FEATURES), "--grid", "l2=0,1e-3", "--folds", "2"]
    assert main([*given, "--labels", "tags", "--save", f"{tmp_path}/m.safetensors", "-q"]) == 0
    assert cp.load(tmp_path / "m.safetensors").labels == sorted(NAMES)
    capsys.readouterr()
