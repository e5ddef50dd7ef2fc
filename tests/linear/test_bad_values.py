"""Errors for features that are not finite name the column, the value and the remedy."""

import math

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadLabel, BadValue
from corgipile.linear.row_errors import FILLED
from corgipile.linear.row_errors import TRAINED as CURE

ROWS = 40
CASES = {"null": (None, f": {CURE}"), "NaN": (math.nan, f": {CURE}"), "inf": (math.inf, ""), "-inf": (-math.inf, "")}


def table(value=0.5, **more):
    columns = {"a": [0.5] * ROWS, "b": [1.0] * 7 + [value] + [1.0] * (ROWS - 8), "label": [0, 1] * (ROWS // 2)}
    return pa.table(columns | more)


def told(call):
    with pytest.raises(BadValue) as found:
        call()
    return str(found.value)


@pytest.mark.parametrize(("what", "value", "cure"), [(name, *case) for name, case in CASES.items()], ids=CASES)
def test_scalar_columns(what, value, cure):
    rows, model = table(value), cp.train(table(), epochs=1)
    want = f" has {what} in column 'b'; a finite number is needed{cure}"
    for ask in (model.summary, lambda some: cp.train(some, standardize=True)):
        said = told(lambda ask=ask: ask(rows))
        assert said.startswith("row 7 of MemoryTable(")
        assert said.endswith(want)
    used = f": {FILLED}" if cure else ""
    for ask in (model.predict, model.measure):
        assert told(lambda ask=ask: ask(rows)).endswith(f"has {what} in column 'b'; a finite number is needed{used}")
    said = told(lambda: cp.train(rows.append_column("g", pa.array([0, 1] * (ROWS // 2))), by="g", epochs=1))
    assert said.endswith(f", of group 1 of 'g',{want}")
    said = told(lambda: cp.search(rows, {"l2": [0.0, 0.1]}, epochs=1, folds=2))
    assert said.endswith(want)


def test_missing_is_not_advised_where_it_was_given():
    assert told(lambda: cp.train(table(math.inf), missing=0)).endswith(
        "has inf in column 'b'; a finite number is needed"
    )
    lists = [[0.5, 1.0]] * 7 + [None] + [[0.5, 1.0]] * (ROWS - 8)
    rows = pa.table({"features": lists, "label": [0, 1] * (ROWS // 2)})
    want = "has null in feature 0 of column 'features'; a finite number is needed: fill it"
    assert told(lambda: cp.train(rows, missing=0)).endswith(want)
    assert told(lambda: cp.train(rows)).endswith(CURE)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_lists_beside_scalars_and_numbers_behind_hashed_features(value):
    lists = [[0.5, 1.0]] * 3 + [[1.0, value]] + [[0.5, 1.0]] * (ROWS - 4)
    rows = table(features=lists, text=["few words"] * ROWS)
    assert (
        f"has {value:g} in feature 1 of column 'features'".lower()
        in told(lambda: cp.train(rows, features=["a", "features"])).lower()
    )
    said = told(lambda: cp.train(table(value, text=["few words"] * ROWS), text="text", features=["a", "b"]))
    assert f"has {value:g} in column 'b'".lower() in said.lower()


def test_rows_of_an_array():
    model = cp.train(table(), epochs=1)
    want = r"^row 1 has null or NaN in feature 1; a finite number is needed: fill it"
    with pytest.raises(BadValue, match=want):
        model.predict(np.array([[1.0, 2.0], [1.0, np.nan]]))


def spoilt(classes, **more):
    """Return rows without faults, and with four that cannot be evaluated."""
    good = table(label=[classes[at % 2] for at in range(ROWS)], **more).to_pydict()
    bad = {name: list(column) for name, column in good.items()}
    bad["a"][3], bad["b"][7], bad["label"][9], bad["a"][20] = math.inf, None, None, math.nan
    return pa.table(good), pa.table(bad)


@pytest.mark.parametrize("groups", [{}, {"by": "g"}])
@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes")])
def test_rows_that_a_model_cannot_be_judged_by_are_left_out_and_counted(classes, groups):
    good, bad = spoilt(classes, g=[0, 1] * (ROWS // 2))
    model = cp.train(good, features=["a", "b"], epochs=2, **groups)
    left = good.take([at for at in range(ROWS) if at not in (3, 7, 9, 20)])
    assert model.measure(bad, on_bad="skip") == {**model.measure(left), "skipped": 4}
    assert model.measure(left, on_bad="skip") == model.measure(left)
    found, want = model.judge(bad, on_bad="skip"), model.judge(left)
    assert (found.figures, found.rows, found.skipped) == (want.figures, ROWS - 4, 4)
    np.testing.assert_array_equal(found.confusion, want.confusion)
    with pytest.raises((BadValue, BadLabel)):
        model.judge(bad)
    with pytest.raises(BadArgument, match='on_bad must be "raise" or "skip"'):
        model.measure(bad, on_bad="drop")


def test_categories_that_are_null_are_left_out_too():
    city = ["Rome", "Oslo", *["Rome", "Oslo"] * (ROWS // 2 - 1)]
    good = table(city=city)
    model = cp.train(good, encode="onehot", epochs=1)
    bad = table(city=[*city[:5], None, *city[6:]])
    assert model.measure(bad, on_bad="skip")["skipped"] == 1
    assert model.judge(bad, on_bad="skip").rows == ROWS - 1


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("value", [None, math.nan])
def test_a_number_stands_for_what_is_missing_in_a_model_trained_without(value, lists):
    def rows(value):
        if not lists:
            return table(value)
        return pa.table({"features": [[0.5, 1.0]] * 7 + [[0.5, value]], "label": [0, 1] * 4})

    model = cp.train(rows(1.0), epochs=2)
    want = model.decision(rows(2.5))
    np.testing.assert_array_equal(model.filled(2.5).decision(rows(value)), want)
    assert model.filled(2.5).measure(rows(value)) == model.measure(rows(2.5))
    array = np.array([[0.5, np.nan], [0.5, 1.0]])
    np.testing.assert_array_equal(model.filled(2.5).decision(array), model.decision(np.nan_to_num(array, nan=2.5)))
    with pytest.raises(BadArgument, match="missing must be a finite number, got 'mean'"):
        model.filled("mean")


def test_what_stands_for_missing_numbers_in_training_stays():
    model = cp.train(table(None), missing=4.0, epochs=2)
    assert model.filled(9.0).encoding == model.encoding
    np.testing.assert_array_equal(model.decision(table(None)), model.decision(table(4.0)))
    both = cp.train(table(features=[[0.5, 1.0]] * ROWS), features=["a", "features"], epochs=1)
    with pytest.raises(BadArgument, match=r"did not record which of its columns \['a', 'features'\] are lists"):
        both.filled(0)
