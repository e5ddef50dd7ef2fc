"""Search: each model equals the one trained alone; results are ranked; invalid folds are refused."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sgd_rows import made
from typer.testing import CliRunner

import corgipile as cp
from corgipile.cli.app import app
from corgipile.errors import BadArgument, BadLabel, BadValue, BudgetTooSmall, Diverged
from corgipile.linear import search_runs, stack
from corgipile.tables.splitting import folds_of

ROWS = 900


def rows_of(kind="logistic", width=6, *, sparse=False, rows=ROWS):
    x, y = made(kind, rows, width, np.float32)
    if not sparse:
        return pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width), "label": y})
    places = [np.flatnonzero(row).astype(np.int32) for row in x]
    columns = {"features_k": pa.array(places, pa.list_(pa.int32()))}
    columns["features_v"] = pa.array([row[at] for row, at in zip(x, places, strict=True)], pa.list_(pa.float32()))
    return pa.table({**columns, "label": y})


def losses(found, *names):
    return {tuple(record[name] for name in names): (record["loss"], record["scores"]) for record in found.results}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["logistic", "softmax", "linear"])
def test_models_side_by_side_are_those_alone(kind, sparse, monkeypatch):
    """Results do not depend on other models, threads or chunks."""
    rows, how = rows_of(kind, sparse=sparse), {"model": kind, "folds": 3, "epochs": 2, "refit": False}
    grid = {"learning_rate": [0.01, 0.05], "l2": [0.0, 1e-2], "average": [False, True], "batch_size": [1, 8]}
    together = losses(cp.search(rows, grid, **how), *grid)
    assert len(together) == 16
    monkeypatch.setattr(search_runs, "CHUNK_BYTES", 1)
    monkeypatch.setattr(search_runs, "MIN_ROWS", 7)
    monkeypatch.setattr(search_runs, "SPARSE", 7)
    monkeypatch.setattr(stack, "MAX_THREADS", 1)
    for point in list(together)[:5]:
        alone = cp.search(rows, {name: [value] for name, value in zip(grid, point, strict=True)}, **how)
        assert losses(alone, *grid)[point] == together[point]


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_models_of_several_steps_and_penalties_are_those_alone(threads, monkeypatch):
    """Results do not depend on other steps and penalties, or threads."""
    monkeypatch.setattr(stack, "MAX_THREADS", threads)
    monkeypatch.setattr(stack, "cores", lambda: 64)
    rows, how = rows_of(), {"folds": 4, "epochs": 2, "refit": False}
    grid = {"step": ["auto", "normalized", "decay"], "l1": [0.0, 1e-3], "l2": [0.0, 1e-3]}
    together = losses(cp.search(rows, grid, **how), *grid)
    assert len(together) == 12
    monkeypatch.setattr(search_runs, "at_once", lambda _: 1)
    for point in list(together)[::3]:
        alone = cp.search(rows, {name: [value] for name, value in zip(grid, point, strict=True)}, **how)
        assert losses(alone, *grid)[point] == together[point]


def test_a_fold_is_judged_by_models_that_never_saw_it():
    """A model of the other rows equals that of `train`; held-out figures equal those of `measure`."""
    table, folds = cp.open(rows_of()), 4
    parts = folds_of(table, folds, 5)
    how = {"epochs": 3, "seed": 5, "order": "no_shuffle", "learning_rate": 0.1}
    found = cp.search(table, {"l2": [1e-3]}, folds=folds, refit=False, **how)
    assert len(found.results[0]["scores"]) == folds
    for fold, score in enumerate(found.results[0]["scores"]):
        seen, held = rows_of().filter(parts != fold), rows_of().filter(parts == fold)
        model = cp.train(seen, l2=1e-3, **how)
        assert model.measure(held)["accuracy"] == score


@pytest.mark.parametrize("how", [{}, {"standardize": True}, {"class_weight": "balanced"}, {"step": "normalized"}])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_count_for_their_weight(how, sparse):
    """Row weights count in training and evaluation of all folds; class weights only in training."""
    rows = rows_of(sparse=sparse)
    rows = rows.append_column("n", pa.array(np.random.default_rng(2).integers(0, 4, len(rows))))
    how = {"epochs": 2, "seed": 5, "order": "no_shuffle", "learning_rate": 0.1, "weight": "n"} | how
    found = cp.search(rows, {"l2": [1e-3, 0.0]}, folds=3, refit=False, **how)
    if "class_weight" in how:
        labels = rows["label"].to_numpy()
        how["class_weight"] = {str(one): len(labels) / (2 * (labels == one).sum()) for one in np.unique(labels)}
    for record in found.results:
        if how.get("standardize"):  # the search scales by all rows, training by those of its folds
            continue
        for fold, score in enumerate(record["scores"]):
            parts = folds_of(cp.open(rows), 3, 5)
            model = cp.train(rows.filter(parts != fold), l2=record["l2"], **how)
            assert model.measure(rows.filter(parts == fold), weight="n")["accuracy"] == score
    plain = cp.search(rows.drop("n"), {"l2": [1e-3, 0.0]}, folds=3, refit=False, **{**how, "weight": None})
    assert losses(plain, "l2") != losses(found, "l2")
    alike = rows.set_column(rows.schema.get_field_index("n"), "n", pa.array(np.full(len(rows), 1.0)))
    ones = cp.search(alike, {"l2": [1e-3, 0.0]}, folds=3, refit=False, **how)
    for one, other in zip(plain.results, ones.results, strict=True):
        assert one["scores"] == other["scores"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-12)  # summed in another order


def test_the_best_is_trained_by_weight_too():
    rows = rows_of().append_column("n", pa.array(np.arange(ROWS) % 3))
    found = cp.search(rows, {"l2": [1e-3]}, folds=3, epochs=2, weight="n", class_weight="balanced")
    alone = cp.train(rows, l2=1e-3, epochs=2, weight="n", class_weight="balanced")
    assert np.array_equal(found.model.coef, alone.coef)


def test_weights_that_say_nothing_are_refused():
    table = cp.open(rows_of())
    parts = folds_of(table, 3, 0)
    for weights, why in (
        (parts == 1, r"the weights of .* are all zero outside fold 1"),
        (parts != 1, r"the weights of fold 1 of .* are all zero"),
        (np.where(parts == 0, -1.0, 1.0), "has weight -1"),
    ):
        rows = rows_of().append_column("n", pa.array(weights.astype(np.float32)))
        with pytest.raises(BadValue, match=why):
            cp.search(rows, {"learning_rate": [0.1, 0.2]}, folds=3, epochs=1, weight="n", order="no_shuffle")


def test_the_first_fold_is_the_test_part():
    table = cp.open(rows_of())
    train, test = cp.train_test_split(table, 0.25, 3)
    assert (folds_of(table, 4, 3) == 0).sum() == len(test)
    assert np.bincount(folds_of(table, 4, 3)).sum() == len(train) + len(test)


def test_results_are_ranked_and_the_best_is_trained_on_all():
    rows = rows_of()
    found = cp.search(rows, [{"learning_rate": [1e-7, 0.1]}, {"step": ["auto"]}], folds=3, epochs=3)
    scores = [record["score"] for record in found.results]
    assert scores == sorted(scores, reverse=True)
    assert found.results[-1]["learning_rate"] == 1e-7
    again = cp.train(rows, epochs=3, **found.best)
    assert found.model.coef.tobytes() == again.coef.tobytes()
    assert found.metric == "accuracy"
    assert found.table().num_rows == 3


def test_what_diverges_is_last_and_all_of_it_is_an_error():
    rows = rows_of("linear")
    found = cp.search(rows, {"learning_rate": [0.01, 1e4]}, model="linear", folds=2, refit=False)
    assert [record["learning_rate"] for record in found.results] == [0.01, 1e4]
    assert found.results[1]["loss"] == np.inf
    assert np.isnan(found.results[1]["score"])
    with pytest.raises(Diverged, match="every point of the grid"):
        cp.search(rows, {"learning_rate": [1e4]}, model="linear", folds=2)


def test_standardised_columns_and_one_of_constants():
    x, y = made("logistic", ROWS, 3, np.float64)
    rows = pa.table({"a": x[:, 0] * 1e6, "b": x[:, 1], "c": x[:, 2], "same": np.full(ROWS, 7.0), "label": y})
    found = cp.search(rows, {"l2": [0.0, 1e-3]}, folds=3, standardize=True)
    assert found.results[0]["score"] > 0.85
    assert np.isfinite(found.model.coef).all()


def test_groups_stay_together():
    x, y = made("logistic", ROWS, 3, np.float32)
    rows = cp.open(pa.table({"a": x[:, 0], "b": x[:, 1], "g": np.arange(ROWS) // 30, "label": y}))
    parts = folds_of(rows, 3, 0, "g")
    assert all(len(set(parts[at : at + 30])) == 1 for at in range(0, ROWS, 30))
    assert (
        cp.search(rows, {"l2": [0.0]}, folds=3, group="g", features=["a", "b"], refit=False).results[0]["score"] > 0.5
    )


def test_a_class_that_vanishes_in_a_fold_is_refused():
    x, y = made("softmax", ROWS, 3, np.float32)
    y[y == 2] = 1
    y[17] = 2
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "label": y})
    with pytest.raises(BadLabel, match=r"the one row of class 2 of 'label' is in one of 3 folds, .*; leave the"):
        cp.search(rows, {"l2": [0.0]}, model="softmax", folds=3)


@pytest.mark.parametrize(
    ("grid", "how", "why"),
    [
        ({}, {}, "grid must be values by setting"),
        ({"epochs": [1]}, {}, "grid must name settings among learning_rate, step"),
        ({"l2": []}, {}, "needs a list of values for 'l2'"),
        ({"step": "auto"}, {}, "needs a list of values for 'step'"),
        ({"l2": [-1.0]}, {}, "l2 must be"),
        ({"l2": [0.0]}, {"folds": 1}, "folds must be"),
        ({"l2": [0.0]}, {"tolerance": 0.1}, "search does not support tolerance"),
        ({"step": ["auto"], "learning_rate": [0.1]}, {}, "sets the rate"),
        ({"l2": [0.0]}, {"folds": 200, "rows": 20}, "too few rows for folds=200"),
    ],
)
def test_what_makes_no_sense_is_refused(grid, how, why):
    rows = rows_of(rows=how.pop("rows", ROWS))
    with pytest.raises(BadArgument, match=why):
        cp.search(rows, grid, **how)


def test_rows_that_cannot_be_learnt_from():
    x, y = made("logistic", ROWS, 3, np.float32)
    x[450, 1] = np.nan
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "label": y})
    with pytest.raises(BadValue, match=r"row 450 of .* has NaN in column 'b'"):
        cp.search(rows, {"l2": [0.0, 0.1]}, folds=3)
    assert cp.search(rows, {"l2": [0.0, 0.1]}, folds=3, on_bad="skip").results[0]["score"] > 0.5
    with pytest.raises(BudgetTooSmall, match="folds of 900 rows take 900"):
        cp.search(rows_of(), {"l2": [0.0]}, memory=1000)


def test_command(tmp_path):
    cp.convert(rows_of(), tmp_path / "t.arrow")
    call = ["search", str(tmp_path / "t.arrow"), "--grid", "learning-rate=1e-7,0.1", "--grid", "average=true,false"]
    done = CliRunner().invoke(app, [*call, "--folds", "3", "--json", "--save", str(tmp_path / "m.safetensors")])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["best"]["learning_rate"] == 0.1
    assert len(said["results"]) == 4
    assert cp.load(tmp_path / "m.safetensors").params["learning_rate"] == 0.1
    shown = CliRunner().invoke(app, [*call, "--folds", "3"])
    assert "±" in shown.stdout
    assert "held-out" in shown.stdout
    assert CliRunner().invoke(app, ["search", str(tmp_path / "t.arrow"), "--grid", "l2"]).exit_code != 0
