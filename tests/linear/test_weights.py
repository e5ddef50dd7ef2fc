"""Row and class weights: effects and refusals."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadSchema, BadValue, MissingColumn
from corgipile.steps import STEPS

ROWS = 3000


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    label = (x[:, 0] + rng.normal(size=ROWS) > 1.5) * 1
    weight = rng.integers(0, 4, ROWS) / 2
    return pa.table({**{f"x{at}": x[:, at] for at in range(3)}, "weight": weight, "label": label})


def bits(model):
    return model.coef.tobytes(), model.intercept.tobytes(), model.history[-1]["loss"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_weight_of_one_changes_no_bit(rows, step, batch):
    ones = rows.set_column(3, "weight", pa.array(np.ones(ROWS)))
    how = {"step": step, "batch_size": batch, "features": ["x0", "x1", "x2"]}
    how["order"] = cp.orders.CorgiPile(block=100, buffer=1000)
    plain, weighted = cp.train(rows, **how), cp.train(ones, weight="weight", **how)
    classes = cp.train(rows, class_weight={0: 1, 1: 1.0}, **how)
    assert bits(plain)[:2] == bits(weighted)[:2] == bits(classes)[:2]
    assert bits(weighted)[2] == bits(classes)[2] == pytest.approx(bits(plain)[2], rel=1e-12)


def test_classes_are_weighed_as_columns_are(rows):
    column = np.where(rows["label"].to_numpy() == 1, 5.0, 0.5)
    by_row = rows.set_column(3, "weight", pa.array(column))
    how = {"order": cp.orders.Riffle(block=100, buffer=1000), "features": ["x0", "x1", "x2"]}
    assert bits(cp.train(by_row, weight="weight", **how)) == bits(cp.train(rows, class_weight={0: 0.5, 1: 5}, **how))
    both = by_row.set_column(3, "weight", pa.array(column / [0.5, 5][0]))
    assert bits(cp.train(both, weight="weight", class_weight={"0": 0.5, "1": 0.5}, **how)) == bits(
        cp.train(rows, class_weight={0: 0.5, 1: 5}, **how)
    )


def test_balanced_classes_count_for_as_much(rows):
    label = rows["label"].to_numpy()
    counts = np.bincount(label)
    named = {at: ROWS / (2 * count) for at, count in enumerate(counts.tolist())}
    how = {"features": ["x0", "x1", "x2"]}
    balanced, plain = cp.train(rows, class_weight="balanced", **how), cp.train(rows, **how)
    assert bits(balanced) == bits(cp.train(rows, class_weight=named, **how))
    assert bits(balanced) == bits(cp.train(rows, class_weight="balanced", classes=[0, 1], **how))
    recall = [np.mean(model.predict(rows)[label == 1]) for model in (plain, balanced)]
    assert recall[1] > recall[0] + 0.2
    words = rows.set_column(4, "label", pa.array(np.array(["no", "yes"])[label]))
    assert cp.train(words, class_weight="balanced", **how).coef.tobytes() == balanced.coef.tobytes()


def test_the_history_is_by_weight_and_the_column_is_no_feature(rows):
    model = cp.train(rows, weight="weight", epochs=1, learning_rate=1e-12, test=rows)
    assert model.features == ("x0", "x1", "x2")
    assert not model.left_out
    label, weight = rows["label"].to_numpy(), rows["weight"].to_numpy()
    share = (weight * (label == 0)).sum() / weight.sum()
    record = model.history[-1]
    assert record["accuracy"] == pytest.approx(share, abs=0.1)  # a margin near 0 may round to either side
    assert record["rows"] == ROWS
    assert {name: record[f"test_{name}"] for name in ("loss", "accuracy")} == model.measure(rows, weight="weight")
    right = model.predict(rows) == label
    assert model.measure(rows)["accuracy"] == pytest.approx(right.mean())
    assert model.measure(rows, weight="weight")["accuracy"] == pytest.approx((weight * right).sum() / weight.sum())
    numbers = cp.train(rows, model="linear", label="x0", weight="weight", epochs=1)
    x, y = rows.select(["x1", "x2", "label"]), rows["x0"].to_numpy()
    off = numbers.predict(x) - y
    mean = (weight * y).sum() / weight.sum()
    r2 = 1 - (weight * off**2).sum() / (weight * (y - mean) ** 2).sum()
    assert numbers.measure(rows, weight="weight")["r2"] == pytest.approx(r2)


def test_rows_are_evaluated_by_the_weight_of_a_feature(rows):
    plain, filled = cp.train(rows), cp.train(rows, missing=0)  # the features of the second are encoded
    found = [model.measure(rows, weight="weight")["accuracy"] for model in (plain, filled)]
    right, weight = plain.predict(rows) == rows["label"].to_numpy(), rows["weight"].to_numpy()
    assert found == pytest.approx([(weight * right).sum() / weight.sum()] * 2)


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal256(50, 1), pa.dictionary(pa.int8(), pa.float64())])
def test_decimals_and_numbers_in_dictionaries_are_weights(rows, kind, tmp_path):
    exact = pa.array([Decimal(one.as_py()) for one in rows["weight"]], kind if pa.types.is_decimal(kind) else None)
    column = rows["weight"].combine_chunks().dictionary_encode() if pa.types.is_dictionary(kind) else exact
    same = rows.set_column(3, "weight", column)
    plain, stored = (str(tmp_path / name) for name in ("plain.parquet", "stored.parquet"))
    for table, path in ((rows, plain), (same, stored)):
        parquet.write_table(table, path, row_group_size=500)
    for table, other in ((rows, same), (plain, stored)):
        model = cp.train(table, weight="weight", epochs=2)
        assert bits(cp.train(other, weight="weight", epochs=2)) == bits(model)
        assert model.measure(other, weight="weight") == model.measure(table, weight="weight")
    numbers = cp.train(rows, model="linear", label="x0", weight="weight", epochs=2, test=rows)
    tested = cp.train(rows, model="linear", label="x0", weight="weight", epochs=2, test=same)
    assert tested.history[-1]["test_loss"] == numbers.history[-1]["test_loss"]
    assert str(numbers.summary(same)) == str(numbers.summary(rows))


@pytest.mark.parametrize(
    ("weight", "error", "said"),
    [
        ([-1.0], BadValue, "row 0 .* has weight -1.0; a finite number of 0 or more is needed"),
        ([np.nan], BadValue, "has weight nan"),
        ([np.inf], BadValue, "has weight inf"),
        ([None], BadValue, "null"),
    ],
)
def test_bad_weights_are_refused_or_skipped(rows, weight, error, said):
    column = pa.array([*weight, *[1.0] * (ROWS - 1)], pa.float64())
    bad = rows.set_column(3, "weight", column)
    for learnt in (
        bad,
        bad.append_column("features_k", pa.array([[0, 1]] * ROWS, pa.list_(pa.int32()))).append_column(
            "features_v", pa.array([[0.5, 1.0]] * ROWS, pa.list_(pa.float32()))
        ),
    ):
        with pytest.raises(error, match=said):
            cp.train(learnt, weight="weight")
        assert cp.train(learnt, weight="weight", on_bad="skip").history[-1]["skipped"] == 1


def test_what_cannot_be_weights_is_said(rows):
    nothing = rows.set_column(3, "weight", pa.array(np.zeros(ROWS)))
    with pytest.raises(BadValue, match="are all zero; one above 0 is needed"):
        cp.train(nothing, weight="weight")
    with pytest.raises(MissingColumn, match="wait"):
        cp.train(rows, weight="wait")
    with pytest.raises(MissingColumn, match="in the test table"):
        cp.train(rows, weight="weight", test=rows.drop(["weight"]))
    with pytest.raises(BadSchema, match="weight column 'weight' is string in the table"):
        cp.train(rows.set_column(3, "weight", pa.array(["a"] * ROWS)), weight="weight")
    with pytest.raises(BadArgument, match="is the label; it cannot also be the weight"):
        cp.train(rows, weight="label")
    with pytest.raises(BadArgument, match="is among the features; leave it out"):
        cp.train(rows, weight="weight", features=["x0", "weight"])
    with pytest.raises(BadArgument, match="a linear model predicts numbers"):
        cp.train(rows, model="linear", label="x0", class_weight="balanced")
    with pytest.raises(BadArgument, match=r"needs training rows of each class: there are none of class 2"):
        cp.train(rows, model="softmax", classes=[0, 1, 2], class_weight="balanced")
    with pytest.raises(BadArgument, match="must name classes 0, 1, got '7'"):
        cp.train(rows, class_weight={7: 1})
    for wrong in ("equal", {}, 3):
        with pytest.raises(BadArgument, match='must be "balanced" or numbers by class'):
            cp.train(rows, class_weight=wrong)
    with pytest.raises(BadArgument, match="class_weight of 1 must be 0 or more, got -1"):
        cp.train(rows, class_weight={1: -1})
    with pytest.raises(BadArgument, match="must be above 0 for at least one class"):
        cp.train(rows, class_weight={0: 0, 1: 0})


def test_on_the_command_line_and_in_sql(rows, tmp_path):
    with pa.ipc.new_file(path := str(tmp_path / "t.arrow"), rows.schema) as out:
        out.write_table(rows)
    how = ["--weight", "weight", "--class-weight", "0=1,1=4", "--save", str(tmp_path / "m"), "--json"]
    assert cli.main(["train", path, *how]) == 0
    known = cp.train(path, weight="weight", class_weight={0: 1, 1: 4})
    assert bits(cp.load(tmp_path / "m")) == bits(known)
