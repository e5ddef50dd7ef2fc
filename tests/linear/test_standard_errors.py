"""Standard errors and p-values against the textbook sandwich, and models without them."""

import json

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadLabel, BadValue, MissingColumn
from corgipile.linear import gradients

ROWS = 4000


def made(kind, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3)) * [1, 30, 0.1] + [0, 100, 0]
    margin = x @ [0.8, 0.02, 0] - 2
    y = {
        "logistic": lambda: (rng.random(ROWS) < 1 / (1 + np.exp(-margin))) * 1,
        "linear": lambda: margin + rng.normal(size=ROWS) * (1 + np.abs(x[:, 0])),
        "poisson": lambda: rng.poisson(np.exp(margin / 2)),
    }[kind]()
    columns = {name: x[:, at] for at, name in enumerate("abc")}
    return pa.table({**columns, "weight": rng.integers(0, 4, ROWS), "label": y})


def sandwich(kind, x, y, w, coef, penalty=0.0):
    x = np.c_[x, np.ones(len(x))]
    m = x @ coef
    mean, curve = {
        "logistic": lambda: ((p := 1 / (1 + np.exp(-m))), p * (1 - p)),
        "linear": lambda: (m, np.ones(len(m))),
        "poisson": lambda: (np.exp(m), np.exp(m)),
    }[kind]()
    bread = np.linalg.inv((x.T * (w * curve)) @ x + np.diag([*(penalty * x[:, :-1].var(axis=0)), 0]))
    meat = (x.T * (w * (mean - y)) ** 2) @ x
    return np.sqrt(np.diag(bread @ meat @ bread))


@pytest.mark.parametrize("kind", ["logistic", "linear", "poisson"])
@pytest.mark.parametrize("how", [{}, {"weight": "weight"}, {"l2": 0.1}, {"standardize": True, "average": True}])
def test_errors_are_those_of_the_sandwich(kind, how):
    rows = made(kind)
    model = cp.train(rows, model=kind, features=["a", "b", "c"], epochs=3, **how)
    found = model.summary(rows)
    x, y = np.column_stack([rows[name] for name in "abc"]), rows["label"].to_numpy()
    w = rows["weight"].to_numpy() if how.get("weight") else np.ones(ROWS)
    coef = np.append(model.coef[0], model.intercept).astype(np.float64)
    wanted = sandwich(kind, x, y, w, coef, how.get("l2", 0.0) * ROWS)
    assert model.params["standardize"]  # the penalty then applies to the weights of scaled features
    np.testing.assert_allclose(found.standard_error, wanted, rtol=1e-6)
    assert found.names == ("a", "b", "c", "(intercept)")
    assert found.rows == ROWS
    assert (found.coef == coef).all()


@pytest.mark.parametrize("how", [{}, {"standardize": True}, {"intercept": False}])
@pytest.mark.parametrize("solver", ["sgd", "dual"])
def test_a_penalty_is_of_the_weights_that_were_learnt(how, solver):
    """Penalties on scaled weights, and on the intercept by the dual solver: the gap at the optimum is 0."""
    rows = made("logistic")
    x = np.column_stack([rows[name] for name in "abc"])
    if not how.get("standardize"):
        x = (x - [0, 100, 0]) / [1, 30, 0.1] + [0.5, 0, 1]
    rows = pa.table({**{name: x[:, at] for at, name in enumerate("abc")}, "label": rows["label"]})
    steps = {"learning_rate": 0.02, "average": True} if solver == "sgd" else {"solver": "dual", "tolerance": 1e-9}
    model = cp.train(rows, l2=0.2, epochs=150, **steps, **{"standardize": False, **how})
    found = model.summary(rows)
    assert found.gap < 0.02
    scale, center = (x.std(axis=0), x.mean(axis=0)) if how.get("standardize") else (np.ones(3), np.zeros(3))
    z = np.c_[(x - center) / scale, np.ones(ROWS)][:, : 3 + how.get("intercept", True)]
    free = 0.0 if solver == "sgd" else 1.0
    mean = 1 / (1 + np.exp(-model.decision(rows)))
    bread = (z.T * (mean * (1 - mean))) @ z + 0.2 * ROWS * np.diag([1, 1, 1, free][: z.shape[1]])
    wanted = np.linalg.inv(bread) @ ((z.T * (mean - rows["label"].to_numpy()) ** 2) @ z) @ np.linalg.inv(bread)
    np.testing.assert_allclose(found.standard_error[:3], np.sqrt(np.diag(wanted))[:3] / scale, rtol=1e-4)


@pytest.mark.parametrize("several", ["by", "labels"])
def test_one_of_several_models_knows_how_its_features_were_standardised(tmp_path, several):
    """The penalty is that of training, and a warm start continues, also from a file."""
    rows = made("logistic").drop(["weight"])
    x = rows["a"].to_numpy()
    rows = rows.append_column("side", pa.array(np.where(x > 0, "up", "down")))
    rows = rows.append_column("other", pa.array(1 - rows["label"].to_numpy()))
    how = {"features": ["a", "b", "c"], "l2": 0.1, "epochs": 60, "learning_rate": 0.02, "standardize": True}
    if several == "by":
        models, name, mine = cp.train(rows, by="side", average=True, **how), "up", rows.filter(pa.array(x > 0))
    else:
        models, name, mine = cp.train(rows, labels=["label", "other"], average=True, **how), "label", rows
    models.save(tmp_path / "m")
    for one in (models.of(name), cp.load(tmp_path / "m").of(name)):
        assert one.summary(mine, "label").gap < 0.05
        more = cp.train(mine, label="label", warm_start=one, **{**how, "epochs": 1, "standardize": None}, average=True)
        scale = [np.std(mine[name].to_numpy()) for name in how["features"]]
        np.testing.assert_allclose(more.coef * scale, one.coef * scale, rtol=0.05, atol=0.01)
        assert more.params["standardize"]


def test_what_matters_is_told_from_what_does_not():
    rows = made("logistic")
    found = cp.train(rows, features=["a", "b", "c"], epochs=30).summary(rows)
    assert found.gap < 0.3
    assert found.p[0] < 1e-20
    assert found.p[2] > 0.001
    off = found.gap * found.standard_error[0]  # training did not converge
    assert found.low[0] - off < 0.8 < found.high[0] + off
    np.testing.assert_allclose(found.z * found.standard_error, found.coef)
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["feature", "a", "b", "c", "(intercept)"]
    assert lines[-1].startswith("4,000 rows")
    early = cp.train(rows, features=["a", "b", "c"], epochs=1, learning_rate=1e-6).summary(rows)
    assert early.gap > 1
    assert "more epochs" in str(early)


def test_balanced_classes_sparse_rows_and_words():
    rows = made("logistic")
    x, y = np.column_stack([rows[name] for name in "abc"]), rows["label"].to_numpy()
    words = rows.set_column(4, "label", pa.array(np.array(["no", "yes"])[y]))
    model = cp.train(words, features=["a", "b", "c"], class_weight="balanced")
    w = (ROWS / (2 * np.bincount(y)))[y]
    coef = np.append(model.coef[0], model.intercept)
    np.testing.assert_allclose(model.summary(words).standard_error, sandwich("logistic", x, y, w, coef), rtol=1e-6)
    sparse = pa.table(
        {
            "x_k": pa.array([[0, 1, 2]] * ROWS, pa.list_(pa.int32())),
            "x_v": pa.array(x.tolist(), pa.list_(pa.float64())),
            "label": y,
        }
    )
    model = cp.train(sparse, features="x", epochs=2)
    coef = np.append(model.coef[0], model.intercept)
    wanted = sandwich("logistic", x, y, np.ones(ROWS), coef)
    np.testing.assert_allclose(model.summary(sparse).standard_error, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.full(ROWS, 2.0), r"singular: 'd', '\(intercept\)' are linearly dependent, or constant; leave a column out"),
        (np.zeros(ROWS), "singular: rows do not determine 'd'"),
        (np.arange(ROWS) * 2.0 + 1, "singular: 'i', 'd'.* are linearly dependent"),
    ],
)
def test_a_singular_matrix_is_an_error_that_names_the_features(values, said):
    rows = made("linear").drop(["weight"]).append_column("i", pa.array(np.arange(ROWS) * 1.0))
    rows = rows.append_column("d", pa.array(values))
    with pytest.raises(BadValue, match=said):
        cp.train(rows, model="linear", epochs=1, standardize=True).summary(rows)


@pytest.mark.parametrize("intercept", [True, False])
def test_levels_are_told_from_the_last_of_their_column(intercept):
    pick = np.random.default_rng(0)
    city, zone = pick.choice(["Bern", "Oslo", "Rome"], ROWS), pick.choice(["a", "b"], ROWS)
    x = pick.normal(size=ROWS)
    y = (x + (city == "Oslo") - 0.5 * (zone == "a") + pick.logistic(size=ROWS) > 0).astype(int)
    rows = pa.table({"x": x, "city": city, "zone": zone, "label": y})
    model = cp.train(rows, encode="onehot", epochs=5, intercept=intercept)
    found = model.summary(rows)
    by_name = dict(zip(model.names, model.coef[0].astype(float), strict=True))
    base = by_name["city=Rome"] if intercept else 0.0
    levels = ["city=Bern", "city=Oslo", *([] if intercept else ["city=Rome"])]
    hand = [x, *(city == name[5:] for name in levels), zone == "a", *([np.ones(ROWS)] if intercept else [])]
    coef = [by_name["x"], *(by_name[name] - base + (0 if intercept else by_name["zone=b"]) for name in levels)]
    coef += [by_name["zone=a"] - by_name["zone=b"]]
    coef += [float(model.intercept[0]) + base + by_name["zone=b"]] if intercept else []
    assert found.references == (("city=Rome", "zone=b") if intercept else ("zone=b",))
    assert found.names == ("x", *levels, "zone=a", *(["(intercept)"] if intercept else []))
    np.testing.assert_allclose(found.coef, coef, rtol=1e-6)
    scores = np.column_stack(hand).astype(float) @ found.coef
    np.testing.assert_allclose(scores, model.decision(rows), rtol=1e-4, atol=1e-5)
    mean = 1 / (1 + np.exp(-scores))
    design = np.column_stack(hand).astype(float)
    bread = np.linalg.inv((design * (mean * (1 - mean))[:, None]).T @ design)
    meat = (design * ((mean - y) ** 2)[:, None]).T @ design
    np.testing.assert_allclose(found.standard_error, np.sqrt(np.diag(bread @ meat @ bread)), rtol=1e-5)
    assert f"reference levels: {', '.join(map(repr, found.references))}" in str(found)


def test_levels_stay_where_they_do_not_add_up():
    pick = np.random.default_rng(0)
    city = pick.choice(["Bern", "Oslo", "Rome"], ROWS)
    rows = pa.table({"city": city, "label": pick.integers(0, 2, ROWS)})
    model = cp.train(rows, encode="onehot", epochs=2)
    strange = rows.set_column(0, "city", pa.array(np.where(np.arange(ROWS) % 9 == 0, "Riga", city)))
    assert model.summary(strange).references == ()  # rows of other cities have no level
    with_penalty = cp.train(rows, encode="onehot", epochs=2, l2=0.01).summary(rows)
    assert (with_penalty.references, len(with_penalty.names)) == ((), 4)


def test_what_has_no_standard_errors_is_said():
    rows = made("logistic")
    for kind in ("svm", "huber", "softmax"):
        with pytest.raises(BadArgument, match=f"need a model of kind logistic, linear, poisson, got {kind}"):
            cp.train(rows, model=kind, epochs=1).summary(rows)
    with pytest.raises(BadArgument, match="weights under an L1 penalty"):
        cp.train(rows, l1=0.1, epochs=1).summary(rows)
    model = cp.train(rows, epochs=1, features=["a", "b"])
    with pytest.raises(MissingColumn, match="'b'"):
        model.summary(rows.drop(["b"]))
    with pytest.raises(BadValue, match=r"row 3 of .* has NaN in column 'a'; a finite number is needed"):
        model.summary(rows.set_column(0, "a", pa.array([1.0, 2.0, 3.0, np.nan] * 1000)))
    with pytest.raises(BadLabel, match=r"row 1 of .* has label 7; the model's classes are \[0, 1\]"):
        model.summary(rows.set_column(4, "label", pa.array([0, 7] * 2000)))
    with pytest.raises(BadValue, match=r"row 1 of .* has weight -2; a finite number of 0 or more is needed"):
        model.summary(rows.set_column(3, "weight", pa.array([1, -2] * (ROWS // 2))), weight="weight")
    with pytest.raises(BadValue, match="there are no rows"):
        model.summary(rows.slice(0, 0))
    with pytest.raises(BadValue, match="weights of the 4000 rows are all zero; one above 0 is needed"):
        model.summary(rows.set_column(3, "weight", pa.array([0] * ROWS)), weight="weight")


def test_gradients_of_averaged_models_are_by_the_weights_that_predict():
    rows = made("linear").slice(0, 50)
    for how in ({"average": True}, {"average": True, "standardize": True}, {"standardize": True}):
        model = cp.train(rows, model="linear", features=["a", "b", "c"], **how)
        slope = model.predict(rows) - rows["label"].to_numpy()
        np.testing.assert_allclose(gradients(model, rows)[:, -1], slope, rtol=1e-5)


def test_the_command_shows_them(tmp_path, capsys):
    rows = made("linear")
    with pa.ipc.new_file(path := str(tmp_path / "t.arrow"), rows.schema) as out:
        out.write_table(rows)
    model = cp.train(path, model="linear", features=["a", "b", "c"], weight="weight", save=tmp_path / "m")
    words = ["summary", str(tmp_path / "m"), path]
    assert cli.main(words) == 0
    told = capsys.readouterr().out.splitlines()
    assert {"a", "b", "c", "(intercept)"} <= {line.split()[0] for line in told}
    assert any(line.startswith("4,000 rows") for line in told)
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["features"]["b"]["standard_error"] == model.summary(rows).standard_error[1]
    assert found["rows"] == ROWS
    assert cli.main([*words, "--label", "d"]) == 2
