"""Models of ordinary columns (text labels, categories, missing values) store the encoding."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import corgipile as cp
from corgipile.cli.app import app
from corgipile.errors import BadArgument, BadLabel, BadModelFile, BadSchema, BadValue

ROWS = 3000
HOW = {"label": "y", "encode": "onehot", "missing": "mean", "epochs": 4}


@pytest.fixture(scope="module")
def people():
    pick = np.random.default_rng(0)
    city = pick.choice(["Rome", "Oslo", "Bern"], ROWS)
    x = pick.normal(size=ROWS)
    age = pick.integers(18, 90, ROWS).astype(float)
    sure = x + 2.0 * (city == "Rome") - 2.0 * (city == "Oslo")
    y = np.where(sure > 0, "yes", "no")
    age[pick.random(ROWS) < 0.1] = np.nan
    return pd.DataFrame({"x": x, "age": age, "city": pd.Categorical(city), "y": y})


@pytest.fixture(scope="module")
def model(people):
    return cp.train(people, **HOW)


def test_it_learns_what_columns_say(people, model):
    assert model.classes.tolist() == ["no", "yes"]
    assert model.names == ("x", "age", "city=Bern", "city=Oslo", "city=Rome")
    assert model.history[-1]["accuracy"] > 0.93
    assert (model.predict(people) == people["y"]).mean() > 0.95
    by_name = dict(zip(model.names, model.coef[0], strict=True))
    assert by_name["city=Rome"] > 1 > -1 > by_name["city=Oslo"]


def test_the_same_as_by_hand(people, model):
    filled = people.assign(age=people["age"].fillna(people["age"].mean()))
    hand = {"x": filled["x"], "age": filled["age"]}
    hand |= {f"city={name}": (filled["city"] == name).astype(float) for name in ("Bern", "Oslo", "Rome")}
    again = cp.train(pd.DataFrame({**hand, "y": (people["y"] == "yes").astype(int)}), label="y", epochs=4)
    np.testing.assert_allclose(model.coef, again.coef, rtol=1e-4, atol=1e-4)


def test_a_file_holds_all_of_it(people, model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    loaded = cp.load(tmp_path / "m.safetensors")
    mixed = people.sample(frac=1.0, random_state=1)[["city", "age", "x"]]
    assert (loaded.predict(mixed) == model.predict(people)[mixed.index]).all()
    assert loaded.measure(people) == model.measure(people)
    more = cp.train(people, label="y", warm_start=loaded, epochs=1)
    assert len(more.history) == 5
    assert more.names == model.names


def test_a_damaged_encoding_is_a_bad_model(model, tmp_path):
    broken = cp.Model(model.kind, model.coef, model.intercept, model.classes, json.loads(json.dumps(model.params)))
    broken.params["encoding"]["features"][0]["column"] = "z"
    broken.save(tmp_path / "m.safetensors")
    with pytest.raises(BadModelFile, match="its features are"):
        cp.load(tmp_path / "m.safetensors")


def test_a_category_never_seen_counts_for_nothing(people, model):
    strange = people.assign(city="Paris")
    plain = people.assign(city=pd.Categorical(["Bern"] * ROWS))
    bern = model.coef[0, 2]
    np.testing.assert_allclose(model.decision(strange), model.decision(plain) - bern, atol=1e-4)


def test_bad_rows_of_a_label_of_text(people):
    rows = pa.Table.from_pandas(people, preserve_index=False)
    holes = rows.set_column(3, "y", pa.array([None, *rows["y"].to_pylist()[1:]]))
    with pytest.raises(BadLabel, match="row 0 has label None; the classes are 'no', 'yes'"):
        cp.train(holes, **HOW)
    skipped = cp.train(holes, on_bad="skip", **HOW)
    assert skipped.history[-1]["skipped"] == 1
    others = rows.set_column(3, "y", pa.array(["maybe"] * ROWS))
    with pytest.raises(BadLabel, match="the classes are 'no', 'yes'"):
        cp.train(rows, test=others, **HOW)


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"encode": None}, BadSchema, "choose how it becomes numbers"),
        ({"missing": "error"}, BadValue, "missing= to replace null"),
        ({"model": "linear"}, BadSchema, "regression needs numbers"),
        ({"classes": ["no"]}, BadLabel, "two classes at least"),
        ({"classes": [0, 1]}, BadLabel, "the classes are"),
    ],
)
def test_errors(people, more, error, text):
    with pytest.raises(error, match=text):
        cp.train(people, **{**HOW, "features": ["x", "age", "city"], **more})


def test_an_array_has_no_names_to_encode_by(model):
    with pytest.raises(BadArgument, match="encodes named columns"):
        model.predict(np.zeros((2, 5)))


def test_several_classes_of_text():
    rows = pa.table({"x": [-3.0, 0.0, 3.0] * 200, "y": ["low", "middle", "high"] * 200})
    model = cp.train(rows, label="y", model="softmax", epochs=20, learning_rate=0.1)
    assert model.classes.tolist() == ["high", "low", "middle"]
    assert model.predict(rows)[:3].tolist() == ["low", "middle", "high"]


def test_classes_of_an_ordered_dictionary_are_those_of_its_rows():
    codes = pa.array(np.tile([0, 1], 50).astype(np.int8))
    label = pa.DictionaryArray.from_arrays(codes, pa.array(["low", "high"]), ordered=True)
    rows = pa.table({"x": np.tile([-1.0, 1.0], 50), "label": label})
    model = cp.train(rows, features=["x"], learning_rate=0.1)
    assert model.classes.tolist() == ["high", "low"]
    assert model.predict(rows)[:2].tolist() == ["low", "high"]
    assert model.measure(rows)["accuracy"] == 1


def test_the_command(people, tmp_path):
    people.to_parquet(tmp_path / "p.parquet", index=False)
    run = CliRunner()
    made = run.invoke(
        app,
        ["train", str(tmp_path / "p.parquet"), "--label", "y", "--features", "x,age,city", "--encode", "city=onehot",
         "--missing", "mean", "--save", str(tmp_path / "m.safetensors"), "--json"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    done = run.invoke(app, ["predict", str(tmp_path / "m.safetensors"), str(tmp_path / "p.parquet")])
    assert done.exit_code == 0, done.output
    assert set(done.output.split()) == {"yes", "no"}


def test_going_on_from_a_model_asks_for_nothing_else(people, model):
    for more, text in (
        ({"features": ["x"]}, "must be those of warm_start, 'x', 'age', 'city', got 'x'"),
        ({"encode": "hash"}, "must be left out"),
    ):
        with pytest.raises(BadArgument, match=text):
            cp.train(people, label="y", warm_start=model, **more)


def test_functions_and_numeric_choose_features_of_plain_tables():
    rows = pa.table({"a": [0.0, 1.0] * 50, "b": [1.0, 0.0] * 50, "y": [0, 1] * 50})
    assert cp.train(rows, label="y", features="numeric", epochs=1).features == ("a", "b")
    assert cp.train(rows, label="y", features=lambda schema: ["b"], epochs=1).features == ("b",)


def test_rows_of_no_category_are_skipped():
    rows = pa.table({"k": ["a", None, "b"] * 40, "y": [0, 1, 1] * 40})
    how = {"label": "y", "features": ["k"], "encode": "onehot", "epochs": 1}
    with pytest.raises(BadValue, match="of column 'k' is null; replace it with missing="):
        cp.train(rows, **how)
    assert cp.train(rows, on_bad="skip", **how).history[-1]["skipped"] == 40


def test_arrays_are_filled_but_not_encoded():
    rows = pa.table({"z": [5.0, 15.0, None, 25.0] * 20, "y": [0, 1, 0, 1] * 20})
    filled = cp.train(rows, label="y", missing="mean", epochs=2)
    array = rows["z"].to_numpy().reshape(-1, 1)
    np.testing.assert_allclose(filled.decision(array), filled.decision(rows), rtol=1e-5)
    coded = cp.train(rows, label="y", features=["z"], encode={"z": "ordinal"}, missing="mean", epochs=2)
    with pytest.raises(BadArgument, match="encodes named columns"):
        coded.predict(array)


def test_a_model_that_left_rows_out_names_the_label_it_is_measured_by():
    rows = pa.table({"x": [-1.0, 1.0] * 50, "label": ["no", "yes"] * 49 + ["no", None]})
    model = cp.train(rows, on_bad="skip", epochs=1)
    assert model.history[-1]["skipped"] == 1
    for table, wrong in ((rows, "row 99 has label None"), (pa.table({"x": [0.5], "label": ["odd"]}), "label 'odd'")):
        with pytest.raises(BadLabel, match=f"{wrong}.* the classes are 'no', 'yes'"):
            model.measure(table)


@pytest.mark.parametrize("missing", ["error", 0.5])
def test_arrays_are_rows_of_a_list_column_whose_label_is_text(missing):
    x = np.random.default_rng(4).normal(size=(200, 3))
    rows = pa.table({"features": list(x), "label": np.where(x[:, 0] > 0, "yes", "no")})
    model = cp.train(rows, missing=missing, epochs=2)
    if missing != "error":
        x[::7, 1] = np.nan
        rows = rows.set_column(0, "features", pa.array(list(x)))
    assert model.predict(x).tolist() == model.predict(rows).tolist()
    pair = {"features_k": pa.array([[0, 2]] * 200, pa.list_(pa.int32())), "features_v": list(np.ones((200, 2)))}
    sparse = cp.train(pa.table(pair | {"label": ["no", "yes"] * 100}), epochs=1)
    assert set(sparse.predict(csr_array(np.eye(3)))) <= {"no", "yes"}


def test_a_share_of_all_rows_is_no_validation(people):
    with pytest.raises(BadArgument, match=r"validation must be a share between 0 and 1, such as 0.1, got 1"):
        cp.train(people, validation=1.0, **HOW)
