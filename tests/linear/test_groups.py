"""Models by group: each equals the model of its rows alone, and predicts those rows."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadLabel, BadModelFile, BadSchema, BadValue, BudgetTooSmall, MissingColumn
from corgipile.linear.divergence import Baseline, GroupBaselines
from corgipile.linear.groups import Groups
from corgipile.linear.sgd import Figures
from corgipile.losses import loss_of


def made(rows=600, groups=("north", "south", None), seed=0, kind="logistic"):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    mine = rng.integers(0, len(groups), rows)
    score = (x * rng.normal(size=(len(groups), 3))[mine]).sum(axis=1)
    label = score if kind == "linear" else np.digitize(score, [-1, 1]) if kind == "softmax" else (score > 0) * 1
    columns = {f"x{at}": x[:, at] for at in range(3)}
    return pa.table({**columns, "region": pa.array([groups[one] for one in mine]), "label": label})


def only(table, group):
    mine = pa.compute.is_null(table["region"]) if group is None else pa.compute.equal(table["region"], group)
    return table.filter(mine).drop_columns(["region"])


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["logistic", "softmax", "linear", "svm"]),
    groups=st.sampled_from([("a", "b"), (3, -7, None), (True, False), ("one",)]),
    how=st.sampled_from([{}, {"step": "adam", "max_norm": 1.0}, {"batch_size": 4, "l1": 1e-3, "step": "normalized"}]),
    rows=st.integers(30, 300),
    standardize=st.booleans(),
)
def test_each_model_is_that_of_its_rows_alone(kind, groups, how, rows, standardize):
    table = made(rows, groups, rows, kind)
    how = {"model": kind, "epochs": 2, "order": "no_shuffle", "standardize": standardize, **how}
    how |= {} if kind == "linear" else {"classes": [0, 1, 2] if kind == "softmax" else [0, 1]}
    if standardize:  # scaled by the whole table: the same bits only if that is one group
        groups = groups[:1]
        table = made(rows, groups, rows, kind)
    models = cp.train(table, by="region", **how)
    assert models.groups == sorted(one for one in groups if one is not None) + [None] * (None in groups)
    for group in groups:
        mine = only(table, group)
        if not len(mine):
            continue
        alone = cp.train(mine, **how)
        one = models.of(group)
        assert one.coef.tobytes() == alone.coef.tobytes()
        assert one.intercept.tobytes() == alone.intercept.tobytes()
        np.testing.assert_array_equal(one.predict(mine), alone.predict(mine))


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_each_model_counts_the_weights_of_its_rows(kind):
    table = made(90, ("a", "b"), kind=kind)
    weighted = table.append_column("w", pa.array(np.arange(90) % 4 / 2))
    how = {"model": kind, "epochs": 2, "order": "no_shuffle", "standardize": False, "features": ["x0", "x1", "x2"]}
    how["classes"] = [0, 1, 2] if kind == "softmax" else [0, 1]
    models, plain = (
        cp.train(rows, by="region", **how, **extra) for rows, extra in ((weighted, {"weight": "w"}), (table, {}))
    )
    for group in ("a", "b"):
        alone = cp.train(only(weighted, group), weight="w", **how)
        assert models.of(group).coef.tobytes() == alone.coef.tobytes()
        assert models.of(group).coef.tobytes() != plain.of(group).coef.tobytes()


@pytest.mark.parametrize("kind", ["logistic", "softmax", "linear"])
def test_rows_are_predicted_and_measured_by_the_model_of_their_group(kind, tmp_path):
    table = made(5000, ("b", "a", None), kind=kind)
    models = cp.train(table, by="region", model=kind, save=tmp_path / "m", memory="1MB")
    whats = ["predict", "decision"] + ["predict_proba"] * (kind != "linear")
    for what in whats:
        parts = list(models.stream(table, what))
        assert parts[0].shape[1:] == parts[1].shape[1:]
        found = np.concatenate(parts)
        for group in ("a", "b", None):
            mine = np.array([one == group for one in table["region"].to_pylist()])
            want = getattr(models.of(group), what)(only(table, group))
            np.testing.assert_array_equal(found[mine], want)
    each = [models.of(group).measure(only(table, group)) for group in models.groups]
    counts = [len(only(table, group)) for group in models.groups]
    assert models.measure(table)["loss"] == pytest.approx(np.average([one["loss"] for one in each], weights=counts))
    again = cp.linear.load(tmp_path / "m")
    assert isinstance(again, Groups)
    np.testing.assert_array_equal(again.decision(table), models.decision(table))
    assert again.table().equals(models.table())
    assert again.table()["rows"].to_pylist() == counts


def test_text_features_labels_weights_and_sparse_rows():
    rng = np.random.default_rng(0)
    n = 400
    city = np.array(["Oslo", "Bergen"])[rng.integers(0, 2, n)]
    side = rng.integers(0, 2, n)
    label = np.where((city == "Oslo") == (side == 0), "yes", "no")
    columns = {"city": city, "side": side, "label": label, "w": rng.random(n)}
    models = cp.train(pa.table(columns), by="side", encode="onehot", weight="w", class_weight="balanced", epochs=10)
    assert models.features == ("city",)
    assert (models.predict(pa.table(columns)) == label).all()
    k, v = [[0], [1]], [[1.0], [1.0]]
    pair = {"x_k": pa.array(k * 100, pa.list_(pa.int32())), "x_v": pa.array(v * 100, pa.list_(pa.float32()))}
    sparse = pa.table({**pair, "g": ["a"] * 100 + ["b"] * 100, "label": [0, 1] * 50 + [1, 0] * 50})
    models = cp.train(sparse, by="g", features="x", epochs=10)
    assert models.measure(sparse)["accuracy"] == 1


def test_thousands_of_groups_keep_to_their_memory():
    table = made(20_000, tuple(range(4000)))
    models = cp.train(table, by="region", epochs=2, memory="64MB")
    assert models.groups == sorted(set(table["region"].to_pylist()))
    assert sum(models.table()["rows"].to_pylist()) == 20_000
    with pytest.raises(BudgetTooSmall, match=r"'region' has more than \d+ groups, more models than half") as told:
        cp.train(table, by="region", epochs=2, memory="1MB")
    assert f"for {len(models.groups)} groups models by group take" in str(told.value)
    enough = int(re.search(r"give memory=(\d+), or group by a column of fewer values", str(told.value))[1])
    assert cp.train(table, by="region", epochs=1, memory=enough).groups == models.groups


def test_a_group_of_one_row_is_told_and_learns():
    table = pa.concat_tables([made(50, ("a",)), made(1, ("b",))])
    models = cp.train(table, by="region", epochs=1)
    assert "1 of 2 groups of 'region' have one row: 'b'" in models.notes
    assert models.of("b").coef.any()
    with_bad = table.set_column(0, "x0", pa.array([*table["x0"].to_pylist()[:-1], float("nan")], pa.float32()))
    models = cp.train(with_bad, by="region", epochs=1, on_bad="skip")
    assert models.history[-1]["skipped"] == 1
    assert "1 of 2 groups of 'region' have no row to train on" in models.notes[-1]
    assert not models.of("b").coef.any()


def test_what_goes_wrong_names_the_group():
    table = made(100)
    models = cp.train(table, by="region", epochs=1)
    unknown = pa.concat_tables([table, made(1, ("west",))])
    message = r"row 100 of .* is of group 'west' of 'region', which has no model; .* 'north', 'south', null"
    for ask in (models.predict, models.measure):
        with pytest.raises(BadValue, match=message):
            ask(unknown)
    with pytest.raises(BadArgument, match="group 'west' of 'region' has no model"):
        models.of("west")
    with pytest.raises(MissingColumn, match="region"):
        models.predict(table.drop_columns(["region"]))
    with pytest.raises(BadArgument, match="models by group need the column 'region'"):
        models.predict(np.ones((2, 3)))
    for call in (models.summary, lambda rows: cp.linear.gradients(models, rows)):
        with pytest.raises(BadArgument, match=r"of\(\.\.\.\)"):
            call(table)
    strange = table.set_column(4, "label", pa.array([*table["label"].to_pylist()[:-1], 7]))
    with pytest.raises(BadLabel, match=r"row 99 of .*, of group .* of 'region', has label 7"):
        cp.train(strange, by="region", epochs=1, classes=[0, 1])


@pytest.mark.parametrize(("groups", "others"), [((0, 1), pa.array([False, True])), ((False, True), pa.array([0, 1]))])
def test_a_boolean_is_no_number(groups, others):
    """Although they are equal in Python."""
    table = made(groups=groups)
    models = cp.train(table, by="region", epochs=1)
    with pytest.raises(BadValue, match="has no model; there are models of"):
        models.predict(table[:2].set_column(3, "region", others))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"by": "regoin"}, MissingColumn, "did you mean region"),
        ({"by": "x0"}, BadSchema, "is float; groups must be text, integers or booleans"),
        ({"by": "label"}, BadArgument, "by='label' is the label column"),
        (
            {"by": "region", "features": ["x0", "region"]},
            BadArgument,
            "the group column 'region' is among the features",
        ),
        ({"by": "region", "validation": 0.1}, BadArgument, "validation must be left out with by=.*measure"),
        ({"by": "region", "solver": "dual", "l2": 0.1}, BadArgument, "solver must be left out with by"),
        ({"by": 3}, BadArgument, "by must be the name of a column, got 3"),
    ],
)
def test_what_does_not_go_together_is_refused(wrong, kind, message):
    with pytest.raises(kind, match=message):
        cp.train(made(50), **wrong)


def test_one_model_cannot_go_on_from_many():
    table = made(100)
    models = cp.train(table, by="region", epochs=1)
    with pytest.raises(BadArgument, match="warm_start must be a single model, got models by group"):
        cp.train(table, warm_start=models)


def test_the_command_trains_and_predicts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = made(300)
    pa.parquet.write_table(table, "t.parquet")
    assert cli.main(["train", "t.parquet", "--by", "region", "--save", "m", "--epochs", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["params"]["groups"] == ["north", "south", None]
    want = cp.train("t.parquet", by="region", epochs=2)
    assert cli.main(["predict", "m", "t.parquet", "--out", "p.npy", "--what", "predict_proba"]) == 0
    np.testing.assert_array_equal(np.load("p.npy"), want.predict_proba(table))
    assert cli.main(["summary", "m", "t.parquet"]) != 0
    assert "standard errors need one model" in capsys.readouterr().err


def test_damaged_groups_are_refused(tmp_path):
    models = cp.train(made(50), by="region", epochs=1)
    for params in (
        {"groups": ["a"]},
        {"groups": [["a"]] * 3},
        {"groups": ["a", "a", "b"]},
        {"by": 1},
        {"of_groups": {}},
    ):
        damaged = cp.train(made(50), by="region", epochs=1)
        damaged.params.update(params)
        if params == {"of_groups": {}}:
            damaged.params["of_groups"] = {"rows": [1]}
        damaged.save(tmp_path / "m")
        with pytest.raises(BadModelFile):
            cp.linear.load(tmp_path / "m")
    assert models.groups == ["north", "south", None]


def far(rows=600):
    rng = np.random.default_rng(3)
    x, side = rng.normal(size=rows), np.arange(rows) % 3
    return pa.table({"x": x, "side": side, "label": 3 * x + rng.normal(size=rows) + 2e5 * (side > 0)})


@pytest.mark.parametrize("kind", ["linear", "huber", "quantile:0.9"])
def test_groups_where_nothing_was_learnt_are_told(kind):
    rate = 1e-4 if kind == "linear" else 0.01
    models = cp.train(far(), by="side", model=kind, epochs=2, learning_rate=rate)
    assert (
        "nothing was learnt yet in 2 of 3 groups of 'side', 1, 2: after the last epoch the loss of the first is"
        in models.notes[-1]
    )
    near = cp.train(far().filter(pc.equal(far()["side"], 0)), by="side", model=kind, epochs=5)
    assert not near.notes


def test_classes_of_groups_where_nothing_was_learnt_are_told():
    rng = np.random.default_rng(4)
    side = np.arange(900) % 3
    x = rng.normal(size=900)
    label = np.where(side == 0, x > 0, np.where(side == 1, rng.random(900) < 0.02, side == 2))  # group 2 has one class
    table = pa.table({"x": x * 30, "side": side, "label": label.astype(int)})
    kept = {"by": "side", "epochs": 1, "standardize": False, "learning_rate": 0.05}
    assert "nothing was learnt yet in 1 of 3 groups of 'side', 1: after" in cp.train(table, **kept).notes[-1]
    weighted = cp.train(
        table.append_column("w", pa.array(np.full(900, 2.0))), weight="w", class_weight="balanced", **kept
    )
    assert isinstance(weighted, Groups)


@pytest.mark.parametrize("kind", ["logistic", "softmax", "huber:1", "quantile:0.9"])
def test_the_constant_of_a_group_counts_weights(kind):
    rng, rows = np.random.default_rng(6), 36
    classes = np.arange({"logistic": 2, "softmax": 3}.get(kind, 0))
    labels = rng.integers(0, len(classes), rows).astype(float) if len(classes) else 10 * rng.normal(size=rows)
    numbers, weights = np.arange(rows) % 3, rng.choice([0.25, 1, 3.5], rows)
    found = GroupBaselines(loss_of(kind, len(classes)), classes, 3)
    found.add(labels, weights, numbers)
    unweighted = GroupBaselines(loss_of(kind, len(classes)), classes, 3)
    unweighted.add(labels, np.full(rows, 2.0), numbers)
    for group in range(3):
        alone = Baseline(kind, classes)
        alone.add(labels[numbers == group], weights[numbers == group])
        assert found.constant(group, Figures(12, 1.0, 0.0)) == pytest.approx(alone.constant())
        assert unweighted.constant(group, Figures(12, 1.0, 0.0)) != pytest.approx(alone.constant())
