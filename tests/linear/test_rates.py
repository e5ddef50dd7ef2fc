"""Default learning rates of models trained together are lowered as those of each model alone."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import Diverged
from corgipile.linear.multi_model import check_rates
from corgipile.tables.splitting import folds_of

WIDTH, ROWS = 40, 900


def made(classes=2, scale=1.0, seed=0, last=1.0, *, far=False):
    """Return features mixed from three by a random matrix, with labels that are easier in smaller groups.

    The last row is longer than the others: steps too long for it show in the next epoch. Labels may be far from 0,
    depending on the group.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(ROWS, 3))
    x = z @ rng.normal(size=(3, WIDTH)) + 0.1 * rng.normal(size=(ROWS, WIDTH))
    group = rng.integers(0, 3, ROWS)
    scores = z @ rng.normal(size=(3, max(classes, 1)))
    scores += rng.gumbel(size=scores.shape) * np.array([0.01, 1, 6])[group, None]
    label = scores[:, 0] if classes == 0 else scores.argmax(1)
    size = np.array([scale, scale, 1e-3 if scale > 1 else scale])[group, None]
    x[-1] *= last
    label = label * 10.0 ** (2 * group) + 10 * 30.0**group if far else label
    lists = pa.FixedSizeListArray.from_arrays((x * size).astype(np.float32).ravel(), WIDTH)
    columns = {"x": lists, "label": label, "w": rng.integers(0, 3, ROWS) / 2, "group": group}
    for at, noise in enumerate((0.01, 2, 9)):
        columns[f"l{at}"] = ((z[:, 0] + noise * rng.logistic(size=ROWS)) > 0).astype(np.int64)
    return pa.table(columns)


CASES = [
    ("logistic", 2, 1.0, {}),
    ("softmax", 4, 1.0, {"weight": "w", "step": "adagrad"}),
    ("svm", 2, 1.0, {"batch_size": 4, "class_weight": "balanced"}),
    ("linear", 0, 1e3, {"step": "decay"}),
    ("huber", 0, 1e4, {"weight": "w"}),
    ("quantile", 0, 1e4, {"step": "constant", "average": True}),
    ("linear", 0, 0.1, {"step": "decay", "last": 300.0, "epochs": 5}),
    ("huber", 0, 1.0, {"far": True, "weight": "w"}),
    ("quantile:0.9", 0, 1.0, {"far": True}),
]


@pytest.mark.parametrize(("kind", "classes", "scale", "how"), CASES)
def test_groups_have_the_rates_that_each_has_alone(kind, classes, scale, how, tmp_path):
    how = {"model": kind, "features": "x", "order": "no_shuffle", "standardize": False, "epochs": 3, **how}
    table = made(classes, scale, last=how.pop("last", 1.0), far=how.pop("far", False))
    how |= {"classes": list(range(classes))} if classes else {}
    if "class_weight" in how:
        how["class_weight"] = {0: 2, 1: 1}
    told = []
    models = cp.train(table, by="group", on_rows=told.append, save=tmp_path / "m", **how)
    alone = {at: cp.train(table.filter(pa.compute.equal(table["group"], at)), **how) for at in range(3)}
    rates = [one.params["learning_rate"] for one in alone.values()]
    assert len({*rates}) > 1
    for some in (models, cp.linear.load(tmp_path / "m")):
        for at, one in alone.items():
            assert some.of(at).coef.tobytes() == one.coef.tobytes()
            assert some.of(at).intercept.tobytes() == one.intercept.tobytes()
            assert some.of(at).params["learning_rate"] == one.params["learning_rate"]
    assert sum(told) == how["epochs"] * ROWS
    assert min(told) < 0
    assert [record["rows"] for record in models.history] == [ROWS] * how["epochs"]
    assert sum("groups of 'group'" in note and "restarting" in note for note in models.notes) >= 1
    weights = [table.filter(pa.compute.equal(table["group"], at))["w"].to_numpy() for at in range(3)]
    counts = [one.sum() if "weight" in how else len(one) for one in weights]
    if "class_weight" not in how:
        losses = [one.history[-1]["loss"] for one in alone.values()]
        assert models.history[-1]["loss"] == pytest.approx(np.average(losses, weights=counts))


def test_rows_left_out_are_counted_once_where_groups_begin_again():
    table = made()
    x = np.array(table["x"].to_pylist(), np.float32)
    x[::100, 3] = np.nan
    lists = pa.FixedSizeListArray.from_arrays(x.ravel(), WIDTH)
    table = table.set_column(0, "x", lists)
    how = {"features": "x", "order": "riffle", "standardize": False, "on_bad": "skip", "epochs": 2}
    for more in ({"by": "group"}, {"labels": ["l0", "l1", "l2"]}):
        models = cp.train(table, **how, **more)
        assert "restarting" in models.notes[-1]
        assert [(one["rows"], one["skipped"]) for one in models.history] == [(ROWS - 9, 9)] * 2


@pytest.mark.parametrize("how", [{}, {"step": "adagrad"}, {"model": "svm", "weight": "w", "standardize": True}])
def test_labels_have_the_rates_that_each_has_alone(how, tmp_path):
    table, labels, told = made(), ["l0", "l1", "l2"], []
    how = {"features": "x", "order": "riffle", "standardize": False, "epochs": 2, "seed": 5, **how}
    models = cp.train(table, labels=labels, on_rows=told.append, save=tmp_path / "m", **how)
    order = models.params["order"]
    assert order == "riffle"
    rates = []
    for some in (models, cp.linear.load(tmp_path / "m")):
        for label in labels:
            alone = cp.train(table, label=label, **how)
            rates.append(alone.params["learning_rate"])
            assert some.of(label).coef.tobytes() == alone.coef.tobytes()
            assert some.of(label).params["learning_rate"] == alone.params["learning_rate"]
    assert len({*rates}) > 1
    assert sum(told) == 2 * ROWS
    assert any("of 3 labels" in note for note in models.notes)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("logistic", {"label": "l2"}),
        ("softmax", {}),
        ("huber", {"scale": 1e4}),
        ("linear", {"scale": 1e3}),
        ("linear", {"scale": 0.1, "last": 300.0}),
        ("huber", {"far": True}),
    ],
)
def test_folds_of_a_search_have_the_rates_that_each_has_alone(kind, how, caplog):
    classes = {"logistic": 2, "softmax": 4}.get(kind, 0)
    rows, told = made(classes, how.get("scale", 1.0), last=how.get("last", 1.0), far=how.get("far", False)), []
    table, folds = cp.open(rows), 3
    parts = folds_of(table, folds, 5)
    given = {"model": kind, "epochs": 4, "seed": 5, "order": "no_shuffle", "features": "x", "standardize": False}
    given["label"] = how.get("label", "label")
    grid = [{"l2": [0.0]}, {"step": ["decay"], "l2": [1e-9], "average": [False]}, {"learning_rate": [1e-12]}]
    found = cp.search(table, grid, folds=folds, refit=False, on_rows=told.append, **given)
    assert sum(told) == 4 * ROWS
    assert min(told) < 0
    lowered = 0
    for record in found.results:
        point = {name: record[name] for name in ("l2", "step", "average", "learning_rate") if name in record}
        for fold, rate in enumerate(record["learning_rates"]):
            model = cp.train(rows.filter(parts != fold), **given, **point)
            assert rate == model.params["learning_rate"]
            held = model.measure(rows.filter(parts == fold))
            assert record["scores"][fold] == held[model.loss.score]
            lowered += rate not in (1e-12, 1.0, 0.01)
    assert lowered > 1
    assert found.table().column_names.count("learning_rates") == 1
    assert f"of {folds} folds of {{'l2'" in caplog.text


def test_a_rate_that_was_chosen_is_left_alone(caplog):
    table = made(0, 1e3)
    how = {"model": "linear", "features": "x", "standardize": False, "step": "decay"}
    with pytest.raises(Diverged):
        cp.train(table, by="group", learning_rate=0.01, **how)
    assert "again" not in caplog.text
    models = cp.train(made(), labels=["l0", "l2"], features="x", learning_rate=0.5)
    assert models.of("l2").params["learning_rate"] == 0.5
    assert "again" not in caplog.text


@pytest.mark.parametrize("rates", [[1.0], [1.0, 0.0], [1.0, float("nan")], "ab", [1.0, None]])
def test_damaged_rates_of_a_file_are_told(rates):
    check_rates({"learning_rates": [1.0, 0.2]}, 2)
    with pytest.raises(ValueError, match="learning rates of its models are damaged"):
        check_rates({"learning_rates": rates}, 2)
