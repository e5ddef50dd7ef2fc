"""Evaluation: every figure against scikit-learn's or NumPy's, in memory and sorted on disk."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadLabel, BadValue, WriteFailed
from corgipile.linear import passes, ranking
from corgipile.loader.table_reader import TableReader

ROWS = 3000
TWO = ("logistic", "svm", "squared_hinge")
MORE = ("softmax", "ovr_logistic", "svm")


def made(kind, seed=0):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(ROWS, 3)), 1)  # ties
    margin = x @ [1.0, -0.5, 0] + rng.logistic(size=ROWS)
    label = {
        "two": (margin > 0.5) * 2 - 1,
        "text": np.array(["high", "low", "mid"])[np.digitize(margin, [-1, 1])],
        "numbers": margin,
    }[kind]
    columns = {name: x[:, at] for at, name in enumerate("abc")}
    return pa.table({**columns, "label": label, "w": rng.integers(0, 4, ROWS)})


def weights(rows, weight):
    return np.ones(ROWS) if weight is None else rows[weight].to_numpy().astype(float)


def check_classes(found, model, rows, w):
    label, said = rows["label"].to_numpy(zero_copy_only=False), model.predict(rows)
    names = model.classes
    np.testing.assert_allclose(found.confusion, metrics.confusion_matrix(label, said, labels=names, sample_weight=w))
    wanted = metrics.precision_recall_fscore_support(label, said, labels=names, sample_weight=w, zero_division=math.nan)
    for name, values in zip(("precision", "recall", "f1", "weight"), wanted, strict=True):
        np.testing.assert_allclose(found.by_class[name], values)
    assert found.by_class["class"].to_pylist() == names.tolist()
    assert found.figures["accuracy"] == pytest.approx(metrics.accuracy_score(label, said, sample_weight=w))
    assert found.rows == ROWS


def check_calibration(found, shares, mine, w, bins):
    at = np.minimum((shares * bins).astype(int), bins - 1)
    for row in found.calibration.to_pylist():
        inside = at == round(row["low"] * bins)
        assert row["rows"] == inside.sum()
        assert row["weight"] == pytest.approx(w[inside].sum())
        assert row["predicted"] == pytest.approx(np.average(shares[inside], weights=w[inside]))
        assert row["observed"] == pytest.approx(np.average(mine[inside], weights=w[inside]))
    assert sum(found.calibration["rows"].to_pylist()) == sum(w.sum() > 0 for w in np.ones(len(w)))
    off = [row["weight"] * abs(row["predicted"] - row["observed"]) for row in found.calibration.to_pylist()]
    assert found.figures["calibration_error"] == pytest.approx(sum(off) / w.sum())


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("kind", TWO)
def test_two_classes(kind, weight):
    rows = made("two")
    model = cp.train(rows, model=kind, features=["a", "b", "c"], epochs=2)
    found, w = model.judge(rows, weight=weight, bins=7), weights(rows, weight)
    check_classes(found, model, rows, w)
    label, scores = rows["label"].to_numpy(), model.decision(rows)
    assert len(np.unique(scores)) < ROWS
    assert found.figures["auc"] == pytest.approx(metrics.roc_auc_score(label, scores, sample_weight=w), abs=1e-12)
    assert found.figures["loss"] == model.measure(rows, weight=weight)["loss"]
    if kind == "logistic":
        shares = model.predict_proba(rows)[:, 1]
        wanted = metrics.log_loss(label, shares, sample_weight=w)
        assert found.figures["log_loss"] == pytest.approx(wanted, rel=1e-6)
        check_calibration(found, shares, label == 1, w, 7)
        other = model.judge(rows, weight=weight, positive=-1).figures
        assert other["auc"] == pytest.approx(found.figures["auc"], abs=1e-12)
    else:
        assert (found.calibration, found.figures["log_loss"]) == (None, None)
        assert "calibration_error" not in found.figures


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("kind", MORE)
def test_more_classes(kind, weight):
    rows = made("text")
    model = cp.train(rows, model=kind, features=["a", "b", "c"], epochs=2)
    w, label = weights(rows, weight), rows["label"].to_numpy(zero_copy_only=False)
    found = model.judge(rows, weight=weight)
    check_classes(found, model, rows, w)
    assert (found.figures["auc"], found.calibration) == (None, None)
    for at, name in enumerate(model.classes.tolist()):
        found = model.judge(rows, weight=weight, positive=name)
        score = model.predict_proba(rows)[:, at] if kind != "svm" else model.decision(rows)[:, at]
        wanted = metrics.roc_auc_score(label == name, score, sample_weight=w)
        assert found.figures["auc"] == pytest.approx(wanted, abs=1e-9)
        if kind != "svm":
            check_calibration(found, score, label == name, w, 10)
    with pytest.raises(BadArgument, match="positive must be a class of the model, 'high', 'low', 'mid', got 'huge'"):
        model.judge(rows, positive="huge")


@pytest.mark.parametrize("kind", ["linear", "huber", "poisson"])
def test_numbers(kind):
    rows = made("numbers")
    if kind == "poisson":
        rows = rows.set_column(3, "label", pa.array(np.abs(np.round(rows["label"].to_numpy()))))
    model = cp.train(rows, model=kind, features=["a", "b", "c"], epochs=2)
    for weight in (None, "w"):
        found, w = model.judge(rows, weight=weight), weights(rows, weight)
        label, said = rows["label"].to_numpy(), model.predict(rows)
        wanted = metrics.root_mean_squared_error(label, said, sample_weight=w)
        assert found.figures["rmse"] == pytest.approx(wanted, rel=1e-6)
        assert found.figures["mae"] == pytest.approx(
            metrics.mean_absolute_error(label, said, sample_weight=w), rel=1e-6
        )
        assert found.figures["r2"] == model.measure(rows, weight=weight)["r2"]
        assert (found.by_class, found.confusion, found.calibration, found.rows) == (None, None, None, ROWS)
    with pytest.raises(BadArgument, match=f"positive needs classes, and a {kind} model predicts numbers"):
        model.judge(rows, positive=1)


def test_models_by_group_take_each_row_by_its_own():
    rows = made("two").append_column("side", pa.array(["a", "b", "a"] * (ROWS // 3)))
    models = cp.train(rows, by="side", features=["a", "b", "c"], epochs=1)
    check_classes(models.judge(rows), models, rows, np.ones(ROWS))
    wanted = metrics.roc_auc_score(rows["label"].to_numpy(), models.decision(rows))
    assert models.judge(rows).figures["auc"] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("ties", [True, False])
def test_areas_sorted_on_disk_are_the_same(monkeypatch, ties):
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 300, 20_000) / 7 if ties else rng.normal(size=20_000)
    mine, w = rng.random(20_000) < 0.3, rng.random(20_000)
    wanted = metrics.roc_auc_score(mine, scores, sample_weight=w)
    spilled = []
    spill = ranking.Ranking._spill
    monkeypatch.setattr(ranking.Ranking, "_spill", lambda self: (spilled.append(1), spill(self)))
    for at_once in (1 << 20, 256, 1000):
        monkeypatch.setattr(ranking, "RUN_SCORES", at_once)
        spilled.clear()
        ranks = ranking.Ranking()
        for start in range(0, 20_000, 700):
            some = slice(start, start + 700)
            ranks.add(scores[some], mine[some], w[some])
        assert bool(spilled) == (at_once < len(np.unique(scores)))
        assert ranks.area() == pytest.approx(wanted, abs=1e-12)
    monkeypatch.setenv("CORGIPILE_SPILL", "off")
    if not ties:
        with pytest.raises(WriteFailed, match="set it to a folder"):
            ranking.Ranking().add(scores, mine, w)


@pytest.mark.parametrize("scale", [1, 3, 1e300, 1e-300])
def test_rows_told_apart_without_error_have_an_area_of_one(scale):
    """The area is at most 1, though sums of shares may round above it."""
    for count in (7, 106, 3001):
        ranks = ranking.Ranking()
        ranks.add(np.arange(count) * 1.0, np.arange(count) >= count // 2, np.full(count, scale))
        area = ranks.area()
        assert 1 - 1e-12 < area <= 1
        assert area == 1 or scale not in (1, 3)


def test_rows_of_one_side_and_bad_rows():
    rows = made("two")
    model = cp.train(rows, features=["a", "b", "c"], epochs=1)
    one = rows.filter(pa.array(rows["label"].to_numpy() == 1))
    found = model.judge(one)
    assert found.figures["auc"] is None
    assert math.isnan(found.by_class["recall"][0].as_py())
    assert model.judge(rows.slice(0, 1)).rows == 1
    with pytest.raises(BadLabel, match=r"has label 7"):
        model.judge(rows.set_column(3, "label", pa.array([1, 7] * (ROWS // 2))))
    with pytest.raises(BadValue, match="all zero"):
        model.judge(rows.set_column(4, "w", pa.array([0] * ROWS)), weight="w")
    with pytest.raises(BadValue, match="weight -1"):
        model.judge(rows.set_column(4, "w", pa.array([1, -1] * (ROWS // 2))), weight="w")
    with pytest.raises(BadValue, match="there are none"):
        model.judge(rows.slice(0, 0))
    for bins in (0, 1001):
        with pytest.raises(BadArgument, match="bins must be a whole number of 1 to 1000"):
            model.judge(rows, bins=bins)
    labels = cp.train({"x": [0.0, 1.0] * 50, "up": [0, 1] * 50, "down": [1, 0] * 50}, labels=["up", "down"])
    with pytest.raises(BadArgument, match=r"needs? one model: use of\(...\)"):
        labels.judge(rows)


def test_scores_of_many_classes_come_in_parts(monkeypatch):
    rows = made("text")
    model = cp.train(rows, model="softmax", features=["a", "b", "c"], epochs=1)
    whole = model.judge(rows, positive="low")
    monkeypatch.setattr(passes, "MAX_SCORES", 100)
    parts = model.judge(rows, positive="low")
    np.testing.assert_array_equal(parts.confusion, whole.confusion)
    assert parts.figures == pytest.approx(whole.figures, rel=1e-12)


def test_the_command(tmp_path, capsys):
    for kind, model in (("two", "logistic"), ("text", "softmax"), ("numbers", "linear")):
        rows = made(kind)
        with pa.ipc.new_file(path := str(tmp_path / "t.arrow"), rows.schema) as out:
            out.write_table(rows)
        trained = cp.train(path, model=model, features=["a", "b", "c"], epochs=2, save=tmp_path / "m")
        words = ["evaluate", str(tmp_path / "m"), path]
        assert cli.main(words) == 0
        told = capsys.readouterr().out
        found = trained.judge(rows)
        assert "3,000 rows" in told
        assert f"{found.figures['loss']:.5g}" in told
        assert cli.main([*words, "--json", "--weight", "w", *(["--positive", "low"] if kind == "text" else [])]) == 0
        said = json.loads(capsys.readouterr().out)
        found = trained.judge(rows, weight="w", positive="low" if kind == "text" else None)
        assert said["figures"] == found.figures
        assert said["rows"] == ROWS
        assert ("confusion" in said) == (kind != "numbers")
        if kind != "numbers":
            assert said["confusion"] == found.confusion.tolist()
            assert said["calibration"] == found.calibration.to_pylist()
            assert [one["class"] for one in said["classes"]] == trained.classes.tolist()
    assert cli.main([*words, "--positive", "low"]) == 2
    assert "predicts numbers" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [60, 80, 120, 400])
@pytest.mark.parametrize("weights", [1.0, 123456.0])
def test_lines_keep_to_the_terminal(tmp_path, capsys, monkeypatch, columns, weights):
    names = [f"the class of {'very ' * 4}many things, number {at}" for at in range(12)]
    label = [names[at * at % 12] for at in range(240)] + names
    rows = pa.table({"x": np.arange(252) % 7 / 7, "label": label, "w": [weights] * 252})
    pq.write_table(rows, path := str(tmp_path / "rows.parquet"))
    cp.train(rows, model="softmax", features=["x"], epochs=1).save(model := str(tmp_path / "m.safetensors"))
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["evaluate", model, path, "--weight", "w", "--positive", names[0]]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= columns
    assert "predicted" in told
    assert names[11] in told or ("12 the" in told and "number 11" in told)


@pytest.mark.parametrize("groups", [{}, {"by": "z"}])
def test_a_label_of_text_leaves_numbers_where_they_lie(tmp_path, monkeypatch, groups):
    def whole(*_):
        pytest.fail("rows were read by the table, piece by piece")

    pick = np.random.default_rng(0)
    x = pick.normal(size=3000)
    y = (x + pick.normal(size=3000) > 0).astype(int)
    rows, found = {"x": x, "z": np.arange(3000) % 2}, []
    for name, label in (("numbers", y), ("text", np.array(["no", "yes"])[y])):
        cp.convert(pa.table({**rows, "label": label}), tmp_path / f"{name}.arrow")
        opened = cp.open(tmp_path / f"{name}.arrow")
        model = cp.train(opened, epochs=2, features=["x"], **groups)
        monkeypatch.setattr(TableReader, "fill", whole)
        found.append((model.measure(opened), model.judge(opened).figures))
        found[-1] += () if groups else (model.summary(opened).p.tolist(),)
        monkeypatch.undo()
    assert found[0] == found[1]


def test_a_label_of_text_that_is_no_class_is_named_by_its_row(tmp_path):
    rows = pa.table({"x": [0.5, -0.5, 1.0], "label": ["yes", "no", "perhaps"]})
    cp.convert(rows, tmp_path / "rows.arrow")
    model = cp.train(rows.slice(0, 2), epochs=1)
    for ask in (model.measure, model.judge, model.summary):
        with pytest.raises(BadLabel, match=r"^row 2 has label 'perhaps'; the classes are 'no', 'yes'$"):
            ask(tmp_path / "rows.arrow")
