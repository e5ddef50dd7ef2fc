"""Dual coordinate descent: the optimum of other solvers for any order, form and memory, and refused settings."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import CLASSES, made, sparse_rows, where
from typer.testing import CliRunner

import corgipile as cp
from corgipile.cli.app import app
from corgipile.errors import BadArgument, BadLabel, BadValue
from corgipile.linear import dual_training
from corgipile.linear.dual import Dual, DualVariables
from corgipile.linear.estimators import CorgiClassifier
from corgipile.linear.features import Features
from corgipile.linear.model import Model
from corgipile.orders import BlockOnly, CorgiPile, Riffle

KINDS = ("logistic", "svm", "squared_hinge", "hinges", "ovr_logistic")
ROWS = 400
BLOCKS, PARTS = BlockOnly(block=50), CorgiPile(block=10, buffer=100)


def objective(kind, coef, bias, x, y, l2, weights=None):
    """Return mean loss and penalty, in float64; losses are multiplied by weights."""
    weights = np.ones(len(y)) if weights is None else weights
    coef, bias, total = coef.astype(np.float64), bias.astype(np.float64), 0.0
    targets = [np.where(y == c, 1, -1) for c in CLASSES[kind]] if len(coef) > 1 else [np.where(y == y.max(), 1, -1)]
    for w, b, target in zip(coef, bias, targets, strict=True):
        margin = target * (x.astype(np.float64) @ w + b)
        lack = np.maximum(0, 1 - margin)
        losses = np.logaddexp(0, -margin) if kind.endswith("logistic") else lack**2 if kind == "squared_hinge" else lack
        total += (weights * losses).mean() + l2 / 2 * (w @ w + b * b)
    return total


def peer(kind, x, y, l2, weights=None):
    """Return the objective that LIBLINEAR reaches."""
    linear = pytest.importorskip("sklearn.linear_model")
    svm = pytest.importorskip("sklearn.svm")
    settings = {"C": 1 / (l2 * len(x)), "dual": True, "tol": 1e-9, "max_iter": 200_000, "intercept_scaling": 1}
    if kind == "ovr_logistic":
        sides = [y == c for c in CLASSES[kind]]
        made_by = linear.LogisticRegression
        each = [made_by(solver="liblinear", **settings).fit(x.astype(np.float64), side, weights) for side in sides]
        coef, bias = (np.concatenate([getattr(one, name) for one in each]) for name in ("coef_", "intercept_"))
        return objective(kind, coef, bias, x, y, l2, weights)
    if kind == "logistic":
        found = linear.LogisticRegression(solver="liblinear", **settings)
    else:
        found = svm.LinearSVC(loss="squared_hinge" if kind == "squared_hinge" else "hinge", **settings)
    found.fit(x.astype(np.float64), y, weights)
    return objective(kind, found.coef_, found.intercept_, x, y, l2, weights)


def table_of(x, y):
    return pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1]), "label": y})


def sparse_table(x, y):
    places = [np.flatnonzero(row).astype(np.int32) for row in x]
    columns = {"features_k": pa.array(places, pa.list_(pa.int32()))}
    columns["features_v"] = pa.array([row[at] for row, at in zip(x, places, strict=True)], pa.list_(pa.float32()))
    return pa.table({**columns, "label": y})


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_where_liblinear_does(kind, sparse):
    x, y = made(kind, ROWS, 12, np.float32)
    l2 = 1 / ROWS
    name = "svm" if kind == "hinges" else kind
    rows = (sparse_table if sparse else table_of)(x, y)
    model = cp.train(rows, model=name, solver="dual", l2=l2, epochs=400, tolerance=5e-7)
    wanted = peer(kind, x, y, l2)
    assert model.history[-1]["gap"] <= 5e-7
    assert objective(kind, model.coef, model.intercept, x, y, l2) == pytest.approx(wanted, rel=1e-6)
    assert model.history[-1]["objective"] == pytest.approx(wanted, rel=1e-6)
    assert model.measure(rows)["accuracy"] > 0.7


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_rows_and_classes_are_those_of_liblinear(kind, sparse):
    x, y = made(kind, ROWS, 12, np.float32)
    rng, l2 = np.random.default_rng(0), 1 / ROWS
    weights = rng.choice([0.25, 1.0, 3.0], ROWS)
    of_class = dict(zip(CLASSES[kind], [0.5, 2.0, 1.5], strict=False))
    name = "svm" if kind == "hinges" else kind
    rows = (sparse_table if sparse else table_of)(x, y).append_column("w", pa.array(weights))
    how = {"model": name, "solver": "dual", "l2": l2, "epochs": 800, "tolerance": 5e-7, "weight": "w"}
    model = cp.train(rows, class_weight=of_class, **how)
    both = weights * np.array([of_class[label] for label in y.tolist()])
    wanted = peer(kind, x, y, l2, both)
    assert model.history[-1]["gap"] <= 5e-7
    assert objective(kind, model.coef, model.intercept, x, y, l2, both) == pytest.approx(wanted, rel=1e-6)
    assert model.history[-1]["objective"] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("kind", ["logistic", "svm", "squared_hinge"])
def test_a_row_that_counts_twice_is_there_twice(kind):
    """A row of weight 0 counts only in the size that scales the penalty."""
    x, y = made(kind, ROWS, 7, np.float32)
    times = np.random.default_rng(1).integers(0, 4, ROWS)
    how = {"model": kind, "solver": "dual", "epochs": 800, "tolerance": 1e-8, "standardize": False}
    some = cp.train(table_of(x, y).append_column("w", pa.array(times)), weight="w", l2=2 / ROWS, **how)
    each = cp.train(table_of(np.repeat(x, times, axis=0), np.repeat(y, times)), l2=2 / times.sum(), **how)
    np.testing.assert_allclose(some.coef, each.coef, atol=2e-3)
    assert some.history[-1]["rows"] == ROWS
    assert some.history[-1]["accuracy"] == pytest.approx(each.history[-1]["accuracy"], abs=0.05)
    assert some.history[-1]["objective"] * ROWS == pytest.approx(each.history[-1]["objective"] * times.sum(), rel=1e-6)


def test_balanced_classes_and_weights_that_are_none():
    x, y = made("logistic", ROWS, 5, np.float32)
    rare = (x[:, 0] + x[:, 1] > 1).astype(np.int64)
    how = {"solver": "dual", "l2": 0.1, "epochs": 300, "tolerance": 1e-7}
    balanced = cp.train(table_of(x, rare), class_weight="balanced", **how)
    said = {at: ROWS / 2 / count for at, count in enumerate(np.bincount(rare).tolist())}
    assert (cp.train(table_of(x, rare), class_weight=said, **how).coef == balanced.coef).all()
    plain = cp.train(table_of(x, rare), **how)
    assert balanced.predict(x).sum() > plain.predict(x).sum()
    ones = cp.train(table_of(x, y).append_column("w", pa.array(np.ones(ROWS))), weight="w", memory=None, **how)
    assert (ones.coef == cp.train(table_of(x, y), memory=None, **how).coef).all()
    for bad, why in ((-1.0, "weight -1.0"), (np.nan, "weight nan")):
        weights = np.where(np.arange(ROWS) == 7, bad, 1.0)
        with pytest.raises(BadValue, match=f"row 7 of .* has {why}; a finite number of 0 or more is needed"):
            cp.train(table_of(x, y).append_column("w", pa.array(weights)), weight="w", **how)
        model = cp.train(table_of(x, y).append_column("w", pa.array(weights)), weight="w", on_bad="skip", **how)
        assert (model.history[-1]["rows"], model.history[-1]["skipped"]) == (ROWS - 1, 1)
    with pytest.raises(BadValue, match="all zero"):
        cp.train(table_of(x, y).append_column("w", pa.array(np.zeros(ROWS))), weight="w", **how)


@pytest.mark.parametrize(
    ("order", "inner"), [("no_shuffle", 1), ("riffle", 1), ("corgipile", 5), ("full", 1), (BLOCKS, 5)]
)
def test_any_order_ends_there(order, inner):
    x, y = made("squared_hinge", ROWS, 9, np.float32)
    how = {"model": "squared_hinge", "solver": "dual", "l2": 20 / ROWS, "epochs": 500, "tolerance": 1e-8}
    found = cp.train(table_of(x, y), order=order, inner=inner, **how)
    assert len(found.history) < 500
    best = cp.train(table_of(x, y), order="full", seed=1, inner=300, **how)
    assert found.history[-1]["objective"] == pytest.approx(best.history[-1]["objective"], rel=1e-7)
    np.testing.assert_allclose(found.coef, best.coef, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sparse=st.booleans(),
    wide=st.booleans(),
    weighted=st.booleans(),
    intercept=st.booleans(),
    passes=st.sampled_from([1, 4]),
    rows=st.integers(1, 80),
    width=st.integers(1, 40),
    l2=st.sampled_from([1e-3, 0.1, 10.0]),
    seed=st.integers(0, 99),
)
def test_the_bound_rises_and_is_one(kind, sparse, wide, weighted, intercept, passes, rows, width, l2, seed):
    x, y = made(kind, rows, width, np.float64 if wide else np.float32, seed)
    inputs = Features(("x",), sparse=sparse, width=width, dtype=x.dtype, lists=True)
    name = "svm" if kind == "hinges" else kind
    made_of = {"rows": rows, "l2": l2, "intercept": intercept, "passes": passes, "weighted": weighted}
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 7.0], rows) if weighted else None
    models = [Dual(name, inputs, np.array(CLASSES[kind]), isa=isa, **made_of) for isa in (0, 1)]
    held, kept = sparse_rows(x) if sparse else (np.ascontiguousarray(x), None)
    last, everything = 0.0, np.arange(rows, dtype=np.int32)
    for epoch in range(4):
        visit = np.random.default_rng(epoch).permutation(rows).astype(np.int32)
        for model in models:
            model.begin()
            model.learn(held, y, visit, where, weights, visit.astype(np.int64))
            model.begin()
            model.learn(held, y, everything, where, weights)
        assert models[0].weights()[0].tobytes() == models[1].weights()[0].tobytes()
        loss, bound = models[0].objective()
        coef, bias = models[0].weights()
        assert loss == pytest.approx(objective(kind, coef, bias, x, y, l2, weights), rel=1e-5) or y.min() == y.max()
        figures, counted = models[0].flush(), float(rows if weights is None else weights.sum())
        assert (figures.rows, figures.weight) == (rows, counted)
        penalty = l2 / 2 * (np.sum(coef.astype(np.float64) ** 2) + np.sum(bias.astype(np.float64) ** 2))
        assert figures.loss * counted == pytest.approx((loss - penalty) * rows, rel=1e-4, abs=1e-9)
        slack = 1e-9 if wide else 1e-6
        assert last - 1e-9 <= bound <= loss * (1 + slack)
        last = bound
    if not intercept:
        assert not models[0].weights()[1].any()
    del kept


@pytest.mark.parametrize("weighted", [False, True])
def test_variables_in_a_file_change_nothing(monkeypatch, weighted):
    x, y = made("svm", 20_000, 5, np.float32)
    how = {"model": "svm", "solver": "dual", "l2": 1e-4, "epochs": 2, "order": Riffle(block=200), "memory": "400KB"}
    how |= {"class_weight": {-1: 2}} if weighted else {}
    inside = cp.train(table_of(x, y), **how)
    monkeypatch.setattr(dual_training, "MIN_BYTES", 0)
    outside = cp.train(table_of(x, y), **how)
    assert outside.notes == [f"dual variables are in a file of {312 if weighted else 156} KB"]
    assert inside.notes == []
    assert inside.coef.tobytes() == outside.coef.tobytes()


@given(numbers=st.lists(st.integers(0, 39_999), max_size=300), most=st.integers(1, 4), outputs=st.integers(1, 3))
@settings(deadline=None)
def test_what_is_put_is_taken(numbers, most, outputs):
    variables = DualVariables(40_000, outputs, limit=most * 65536)
    assert variables.in_file
    numbers, want = np.array(numbers, np.int64), np.zeros((40_000, outputs))
    for turn in (1.0, 2.0):
        values, places = variables.take(numbers)
        values = values.reshape(-1, outputs)
        np.testing.assert_array_equal(values[places], want[numbers])
        values[:] = np.random.default_rng(int(turn)).random(values.shape)
        want[numbers] = values[places]
        variables.put(numbers, values)
    np.testing.assert_array_equal(variables.values.reshape(-1, outputs), want)


def test_history_model_and_file(tmp_path):
    x, y = made("logistic", ROWS, 6, np.float32)
    seen = []
    how = {
        "solver": "dual",
        "l2": 0.01,
        "epochs": 4,
        "validation": 0.2,
        "memory": None,
        "callback": seen.append,
        "order": PARTS,
    }
    model = cp.train(table_of(x, y), save=tmp_path / "m.safetensors", **how)
    assert seen == model.history
    assert [sorted(record) for record in seen[:3]] == [sorted(seen[0])] * 3
    assert {"test_accuracy", "bound", "running_gap", "bytes_read"} <= seen[0].keys()
    assert "gap" not in seen[0]
    assert seen[3]["gap"] >= 0
    assert seen[3]["objective"] >= seen[3]["bound"]
    whole = cp.train(table_of(x, y), solver="dual", l2=0.01, epochs=50, tolerance=1e-9)
    assert len(whole.history) < 50
    assert {"objective", "gap"} <= whole.history[0].keys()
    again = cp.load(tmp_path / "m.safetensors")
    assert again.predict(x).tolist() == model.predict(x).tolist()
    assert (again.params["solver"], again.params["inner"]) == ("dual", 10)
    assert cp.train(table_of(x, y), **how).coef.tobytes() == model.coef.tobytes()
    assert cp.train(table_of(x, y), **{**how, "seed": 1}).coef.tobytes() != model.coef.tobytes()


def test_standardised_and_with_rows_left_out():
    x, y = made("logistic", ROWS, 3, np.float32)
    scale = np.array([1000, 1, 0.01], np.float32)
    how = {"solver": "dual", "l2": 0.1, "epochs": 500, "tolerance": 1e-9, "standardize": True}
    plain, scaled = cp.train(table_of(x, y), **how), cp.train(table_of(x * scale + 7, y), **how)
    np.testing.assert_allclose(plain.coef, scaled.coef * scale, rtol=2e-3)
    x = np.concatenate([x, np.full((2, 3), np.nan, np.float32)])
    y = np.concatenate([y, [0, 1]])
    some = cp.train(table_of(x, y), solver="dual", l2=0.1, epochs=30, inner=3, on_bad="skip")
    assert (some.history[-1]["rows"], some.history[-1]["skipped"]) == (ROWS, 2)
    with pytest.raises(BadValue, match=r"row 40[01] of .* has NaN in feature 0 of column"):
        cp.train(table_of(x, y), solver="dual", l2=0.1)


def test_a_tolerance_that_is_not_reached_is_told():
    x, y = made("svm", ROWS, 6, np.float32)
    model = cp.train(table_of(x, y), model="svm", solver="dual", l2=1e-3, epochs=2, tolerance=1e-9, inner=2)
    assert [note for note in model.notes if "the final duality gap is" in note]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"l2": 0.0}, "solver='dual' needs l2 above 0, got 0.0; for C = 1 use l2=0.0025"),
        (
            {"model": "linear"},
            "with solver='dual' model must be one of logistic, svm, squared_hinge, ovr_logistic, got 'linear'",
        ),
        ({"learning_rate": 0.1}, "learning_rate needs solver='sgd', got learning_rate=0.1"),
        ({"step": "adagrad"}, "step needs solver='sgd'"),
        ({"l1": 0.1}, "l1 needs solver='sgd'"),
        ({"batch_size": 4}, "batch_size needs solver='sgd'"),
        ({"average": True}, "average needs solver='sgd'"),
        ({"solver": "sgd", "inner": 2}, "inner needs solver='dual', got inner=2"),
        ({"solver": "exact"}, "solver"),
        ({"inner": 0}, "inner must be a whole number"),
    ],
)
def test_what_does_not_go_together_is_refused(how, why):
    x, y = made("logistic", ROWS, 3, np.float32)
    with pytest.raises(BadArgument, match=why):
        cp.train(table_of(x, y), **{"solver": "dual", "l2": 0.1, **how})


def test_going_on_is_refused():
    x, y = made("logistic", ROWS, 3, np.float32)
    model = cp.train(table_of(x, y), solver="dual", l2=0.1)
    with pytest.raises(BadArgument, match="warm_start needs solver='sgd'"):
        cp.train(table_of(x, y), solver="dual", l2=0.1, warm_start=model)
    assert len(cp.train(table_of(x, y), l2=0.1, epochs=1, warm_start=model).history) == 6


def test_labels_of_no_class_and_rows_of_zeros():
    x, y = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 1, 1])
    model = cp.train(table_of(x, y), model="svm", solver="dual", l2=0.1, epochs=50, intercept=False)
    assert model.history[-1]["objective"] == pytest.approx(1.0)
    assert not model.coef.any()
    with pytest.raises(BadLabel):
        cp.train(table_of(x, np.array([0, 1, 2, 0, 1, 2])), solver="dual", l2=0.1)


def test_each_class_against_the_rest_has_probabilities(tmp_path):
    """A class has the weights of its binary model; probabilities are normalised over classes."""
    x, y = made("ovr_logistic", ROWS, 8, np.float64)
    names, how = np.array(["ash", "elm", "oak"])[y], {"l2": 1 / ROWS, "epochs": 400, "tolerance": 1e-9}
    cp.convert(table_of(x, names), tmp_path / "t.arrow")
    options = [f"--{name}={value}" for name, value in {"solver": "dual", "model": "ovr_logistic", **how}.items()]
    done = CliRunner().invoke(app, ["train", str(tmp_path / "t.arrow"), *options, "--save", str(tmp_path / "m")])
    assert done.exit_code == 0, done.output
    model = cp.load(tmp_path / "m")
    alone = [cp.train(table_of(x, y == k), solver="dual", **how) for k in range(3)]
    np.testing.assert_allclose(model.coef, np.concatenate([one.coef for one in alone]), atol=1e-5)
    np.testing.assert_allclose(model.intercept, np.concatenate([one.intercept for one in alone]), atol=1e-5)
    sure = 1 / (1 + np.exp(-model.decision(table_of(x, names))))
    np.testing.assert_allclose(
        model.predict_proba(table_of(x, names)), sure / sure.sum(axis=1, keepdims=True), rtol=1e-12
    )
    assert model.predict(table_of(x, names)).tolist() == np.array(["ash", "elm", "oak"])[sure.argmax(axis=1)].tolist()
    estimator = CorgiClassifier(solver="dual", **how).fit(x, names)
    assert estimator.model_.kind == "ovr_logistic"
    np.testing.assert_allclose(estimator.predict_proba(x), model.predict_proba(table_of(x, names)), atol=1e-5)
    assert CorgiClassifier(epochs=1).fit(x, names).model_.kind == "softmax"
    counts = np.arange(ROWS) % 3
    weighted = CorgiClassifier(solver="dual", **how).fit(x, names, counts).model_
    rows = table_of(x, names).append_column("w", pa.array(counts.astype(np.float64)))
    by_column = cp.train(rows, model="ovr_logistic", solver="dual", weight="w", **how)
    np.testing.assert_allclose(weighted.coef, by_column.coef, atol=1e-5)


def test_scores_far_off_have_probabilities():
    far = np.array([[-800.0, -900.0, -1000.0], [800.0, 900.0, -1000.0]])
    model = Model("ovr_logistic", np.eye(3), np.zeros(3), np.arange(3))
    np.testing.assert_allclose(model.predict_proba(far), [[1, np.exp(-100), np.exp(-200)], [0.5, 0.5, 0]], rtol=1e-9)
