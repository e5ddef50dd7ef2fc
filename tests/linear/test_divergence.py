"""Diverging and useless training warns; rows that cannot be evaluated are counted."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from corgipile.errors import BadArgument, BadValue, Diverged, DivergenceWarning, MissingColumn
from corgipile.linear import Model, train
from corgipile.linear.divergence import Baseline
from corgipile.linear.estimators import CorgiClassifier
from corgipile.orders import Riffle


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("logistic", [0, 0, 0, 1]), ("svm", [-1, -1, 1]), ("softmax", [0, 0, 1, 2]), ("svm", [5, 5, 6, 7, 7, 7]),
        ("linear", [1.0, 4.0, -2.5]), ("linear", [1e6, 1e6 + 1]),
    ],
)  # fmt: skip
def test_the_constant_model_is_the_best_constant(kind, labels):
    y = np.array(labels)
    classes = y[:0] if kind == "linear" else np.unique(y)
    base = Baseline(kind, classes)
    for part in np.array_split(np.append(y.astype(float), np.nan), 3):
        base.add(part)
    grid = np.linspace(-1, 1, 41) if kind == "svm" else np.linspace(-2, 2, 401)
    if kind == "linear":
        best = ((y - y.mean()) ** 2).mean() / 2
        nothing = (y**2).mean() / 2
    elif kind == "svm":
        sides = np.where(y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1, -1)
        best = np.maximum(0, 1 - sides[:, :, None] * grid).mean(axis=0).min(axis=1).sum()
        nothing = float(sides.shape[1])
    else:
        shares = np.bincount(np.searchsorted(classes, y)) / len(y)
        best, nothing = -(shares * np.log(shares)).sum(), np.log(len(classes))
    assert base.constant() == pytest.approx(best)
    assert base.untrained() == pytest.approx(nothing)


@pytest.mark.parametrize("kind", ["logistic", "svm", "softmax", "linear"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_rate_that_is_too_large_is_told(make, kind, form):
    x, y = make.rows(classes={"softmax": 3, "linear": 0}.get(kind, 2))
    table = getattr(make, form)(x, y)
    if kind == "linear":
        with pytest.raises(Diverged, match="try learning_rate=100, or standardize=True"):
            train(table, model=kind, learning_rate=1000)
        return
    with pytest.warns(DivergenceWarning, match=r"the loss is .* constant prediction .*; try learning_rate=100"):
        model = train(table, model=kind, learning_rate=1000)
    assert "diverged" in model.notes[-1]


@pytest.mark.parametrize("kind", ["logistic", "svm", "softmax", "linear"])
def test_a_rate_that_nobody_chose_is_lowered(make, kind, caplog):
    x, y = make.rows(classes={"softmax": 3, "linear": 0}.get(kind, 2))
    table = make.dense(1e4 * x, y)
    model = train(table, model=kind, standardize=False, test=table, step="decay")
    assert model.params["learning_rate"] < 1e-4
    assert [record["epoch"] for record in model.history] == list(range(5))
    assert model.history[-1]["r2" if kind == "linear" else "accuracy"] > {"linear": 0.5, "softmax": 0.6}.get(kind, 0.8)
    assert "learning rate 0.01 diverges; restarting at 0.002" in caplog.text
    whole = train(table, model=kind, standardize=False, epochs=7, step="decay")
    assert (train(table, model=kind, epochs=2, warm_start=model).coef == whole.coef).all()
    with pytest.warns(DivergenceWarning) if kind != "linear" else pytest.raises(Diverged):
        train(table, model=kind, standardize=False, learning_rate=0.01)


@pytest.mark.parametrize("size", [1e300, 1.7e308])
def test_numbers_to_predict_that_are_too_large_are_divergence(make, size):
    x, _ = make.rows(40, dtype=np.float64)
    for labels in (np.full(40, size), size * (-1) ** np.arange(40)):
        with pytest.raises(Diverged):
            train(make.dense(x, labels), model="linear")


def test_a_rate_is_lowered_in_later_epochs_too(make):
    """The effect of an epoch's last row shows in the next epoch."""
    x, y = make.rows(classes=0)
    x[-1], y[-1] = 40 * x[-1], 40 * y[-1]
    told, settings = [], {"model": "linear", "standardize": False, "order": "no_shuffle", "step": "decay"}
    model = train(make.dense(x, y), epochs=6, on_rows=told.append, **settings)
    first = train(make.dense(x, y), epochs=1, **settings)
    assert not first.notes
    assert first.history[0]["loss"] == model.history[0]["loss"]
    assert any("learning rate 0.01 diverges; restarting at 0.002" in note for note in model.notes)
    assert model.params["learning_rate"] < 0.01
    assert model.history[-1]["r2"] > 0.5
    assert [record["epoch"] for record in model.history] == list(range(6))
    assert sum(told) == 6 * len(y)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_rows_of_an_epoch_begun_again_are_taken_back(make, kind):
    x, y = make.rows(9000, classes=0 if kind == "linear" else 2)
    told, records = [], []
    table = make.dense(1e4 * x, y)
    settings = {"model": kind, "standardize": False, "epochs": 2, "order": "riffle", "memory": "30KB", "step": "decay"}
    model = train(table, **settings, on_rows=told.append, callback=records.append)
    assert min(told) < 0
    assert sum(told) == 18_000
    assert [record["rows"] for record in records] == [9000, 9000]
    assert records == model.history
    again = train(table, **settings)
    assert (again.coef == model.coef).all()
    assert again.notes == model.notes
    assert again.notes[-1].startswith("learning rate")
    chosen = train(table, **settings, learning_rate=model.params["learning_rate"])
    assert (chosen.coef == model.coef).all()


def test_targets_far_from_zero_are_no_divergence(make):
    x, y = make.rows(classes=0)
    model = train(make.dense(x, y + 1000), model="linear", epochs=10)
    assert not model.notes
    assert model.history[-1]["r2"] > 0.5


def test_nothing_learnt_is_a_note(make, caplog):
    x, y = make.rows(1000)
    few = np.where(np.arange(1000) % 10, 0, y)
    with caplog.at_level(logging.WARNING, "corgipile"):
        train(make.dense(x, few), epochs=1, learning_rate=1e-6)
    assert "nothing was learnt yet" in caplog.text
    caplog.clear()
    rng = np.random.default_rng(0)
    train(make.dense(rng.normal(size=(5000, 5)), rng.integers(0, 2, 5000)))
    assert not caplog.records


def test_classes_that_are_told_were_learnt(make, caplog):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 6))
    y = (x @ rng.normal(size=(6, 30)) + rng.gumbel(size=(2000, 30)) / 2).argmax(axis=1)
    model = train(make.dense(x, y), model="svm", epochs=2)
    assert model.history[-1]["accuracy"] > 0.3
    assert "that of a constant prediction" in caplog.text
    assert "nothing was learnt" not in caplog.text


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_an_epoch_without_rows_is_an_error(make, form):
    x, y = make.rows(40)
    x[:, 0] = np.nan
    with pytest.raises(BadValue, match="all 40 were skipped"):
        train(getattr(make, form)(x, y), on_bad="skip")
    model = train(make.dense(*make.rows(40)), epochs=1)
    for measure in (model.measure, model.evaluate):
        with pytest.raises(BadValue, match="there are none"):
            measure(make.dense(x[:0], y[:0]))
    with pytest.raises(BadValue, match="no rows to score"):
        CorgiClassifier(epochs=1).fit(make.dense(*make.rows(40))).score(make.dense(x[:0], y[:0]))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_overflow_on_the_test_table_is_its_rows(make, form):
    x, y = make.rows(300)
    x[x == 0] = 0.5
    far = x.copy()
    far[7] = 3e38
    model = train(getattr(make, form)(x, y), epochs=2, test=getattr(make, form)(far, y))
    want = train(getattr(make, form)(x, y), epochs=2, test=getattr(make, form)(np.delete(x, 7, 0), np.delete(y, 7)))
    assert [record["test_skipped"] for record in model.history] == [1, 1]
    assert model.history[-1]["test_loss"] == pytest.approx(want.history[-1]["test_loss"])
    assert "test_skipped" not in want.history[-1]
    with pytest.raises(BadValue, match=r"1 rows of .* have scores outside the range of float32"):
        model.measure(getattr(make, form)(far, y))
    with pytest.raises(BadValue, match=r"row 7 of .* has features so large that its score overflows float32"):
        model.predict(getattr(make, form)(far, y))


def test_rows_of_the_test_table_are_skipped_too(make):
    x, y = make.rows(200)
    bad = x.copy()
    bad[3, 2] = np.nan
    with pytest.raises(BadValue, match="row 3 of"):
        train(make.dense(x, y), epochs=1, test=make.dense(bad, y))
    record = train(make.dense(x, y), epochs=1, test=make.dense(bad, y), on_bad="skip").history[0]
    assert record["test_skipped"] == 1


@pytest.mark.parametrize("order", ["riffle", "corgipile", "full", Riffle(block=20, buffer="30%", balance="label")])
@pytest.mark.parametrize("stored", ["memory", "parquet"])
@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_nulls_are_skipped_as_nan_is(make, order, stored, kind, tmp_path):
    x, y = make.rows(600)
    labels = pa.array([None if at in (5, 599) else int(label) for at, label in enumerate(y)])
    columns = {f"x{i}": pa.array(x[:, i]) for i in range(6)}
    columns["x1"] = pa.array([None if at == 100 else value for at, value in enumerate(x[:, 1])])
    columns["n"] = pa.array([None if at in (100, 300) else at % 7 for at in range(600)])
    columns["b"] = pa.array([None if at == 400 else bool(at % 2) for at in range(600)])
    rows = pa.table({**columns, "label": labels})
    if stored == "parquet":
        pa.parquet.write_table(rows, tmp_path / "t.parquet", row_group_size=100)
        rows = tmp_path / "t.parquet"
    memory = None if isinstance(order, Riffle) else "64MB"
    model = train(rows, model=kind, order=order, memory=memory, on_bad="skip", epochs=2)
    assert [record["skipped"] for record in model.history] == [5, 5]
    assert model.history[-1]["rows"] == 595
    with pytest.raises(BadValue, match=r"row 5 of (label )?column 'label'|row \d+ of .* has (null|NaN) in column"):
        train(rows, model=kind, order="no_shuffle")


def test_whole_numbers_beside_nulls_may_be_of_any_size():
    """The values round as in a column without nulls, silently."""
    ids = np.random.default_rng(0).integers(1 << 53, 1 << 62, 400)
    columns = {"id": pa.array(ids, mask=np.arange(400) == 7), "x": np.arange(400) % 5.0}
    rows = pa.table({**columns, "label": np.arange(400) % 2})
    assert train(rows, epochs=1, on_bad="skip").history[0]["skipped"] == 1
    with pytest.raises(BadValue, match="row 7 of"):
        train(rows, epochs=1)
    numbers = rows.drop_columns("label").rename_columns(["label", "x"])
    assert train(numbers, model="linear", epochs=1, learning_rate=1e-3, on_bad="skip").history[0]["skipped"] == 1


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2), pa.list_(pa.int64())])
def test_nulls_in_lists_are_named_and_skipped(kind):
    lists = [[at % 3, at % 5] for at in range(300)]
    lists[77], lists[200] = [1, None], None
    rows = pa.table({"features": pa.array(lists, kind), "label": [0, 1] * 150})
    model = train(rows, on_bad="skip", epochs=1)
    assert model.history[0]["skipped"] == 2
    with pytest.raises(BadValue, match="row 77 of"):
        train(rows, epochs=1, order="no_shuffle")
    part = rows.slice(50, 100)
    with pytest.raises(BadValue, match="row 27 of"):
        model.predict(part)


def test_nulls_in_sparse_lists_are_named_and_skipped(make):
    x, y = make.rows(200)
    x[50, 0] = 1
    table = make.sparse(x, y)
    for column in ("features_k", "features_v"):
        rows = table[column].to_pylist()
        rows[50][0] = None
        at = table.column_names.index(column)
        bad = table.set_column(at, column, pa.array(rows, table.schema.field(column).type))
        bad = bad.replace_schema_metadata({"corgipile.dims": "6"})
        assert train(bad, on_bad="skip", epochs=1).history[0]["skipped"] == 1
        with pytest.raises(BadValue if column == "features_v" else ValueError, match="row 50 of"):
            train(bad, epochs=1)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("epochs", [1.5, "2", True, None, float("nan"), -1, 1 << 70]),
        ("batch_size", [0, 1.0, "8", True, None, 1 << 70]),
        ("learning_rate", ["0.1", True, 0, -1, float("nan"), float("inf"), [0.1]]),
        ("decay", ["0.9", None, True, 0, 1.01, float("nan")]),
        ("l2", ["0", None, False, -1, float("inf"), float("nan")]),
        ("tolerance", ["0", True, -1, float("nan")]),
        ("seed", [0.5, "1", None, True]),
        ("intercept", [1, "yes", None]),
        ("standardize", [1, "yes"]),
        ("model", [None, 3, ["svm"], "tree"]),
        ("label", [3, None, ["label"]]),
        ("save", [3, b"x"]),
        ("warm_start", ["m.safetensors", 3]),
        ("classes", [3, [[0, 1], [2, 3]], [0, None], "01", [0, float("nan")]]),
        ("on_bad", ["ignore", None]),
        ("memory", [1.5, "lots", True, 0]),
        ("callback", [3]),
        ("on_rows", ["x"]),
    ],
)
def test_every_setting_is_checked(make, setting, values):
    table = make.dense(*make.rows(50))
    for value in values:
        with pytest.raises(BadArgument):
            train(table, **{setting: value})


def test_settings_of_numpy_are_numbers(make):
    table = make.dense(*make.rows(50))
    model = train(table, epochs=np.int64(1), learning_rate=np.float32(0.1), l2=np.int8(0), intercept=np.bool_(1))
    assert len(model.history) == 1


def test_settings_without_effect_are_refused(make):
    with pytest.raises(BadArgument, match="a linear model has no classes"):
        train(make.dense(*make.rows(50, classes=0)), model="linear", classes=[0, 1])
    model = Model("svm", np.ones((1, 2)), np.zeros(1), np.array([0, 1]))
    with pytest.raises(BadArgument, match=r"what must be one of predict, .* got 'guess'"):
        list(model.stream(np.ones((1, 2)), "guess"))
    with pytest.raises(BadArgument, match="has no probabilities"):
        model.predict_proba(np.ones((1, 2)))
    with pytest.raises(MissingColumn, match="no column 'y'"):
        train(make.dense(*make.rows(50)), epochs=1).measure(make.dense(*make.rows(50)), label="y")


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_an_svm_tells_each_class_from_the_rest(make, form, batch):
    x, y = make.rows(3000, classes=3, dtype=np.float64)
    x = np.abs(x) * np.eye(6)[y] * 3 + x / 4
    table = getattr(make, form)(x, y)
    settings = {"model": "svm", "epochs": 3, "batch_size": batch, "learning_rate": 0.02, "order": "riffle"}
    model = train(table, test=table, **settings)
    assert model.coef.shape == (3, 6)
    assert model.history[-1]["test_accuracy"] == (model.predict(x) == y).mean() > 0.75
    for one in range(3):
        alone = train(getattr(make, form)(x, (y == one).astype(int)), **settings)
        assert model.decision(x)[:, one] == pytest.approx(alone.decision(x), abs=1e-9)
