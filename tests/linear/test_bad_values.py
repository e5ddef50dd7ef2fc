"""A feature that is no finite number is told by its column, by what stands there, and by what would help."""

import math

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadValue

ROWS = 40
CURE = "fill it, or train with missing= what stands for null and NaN"
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
    for ask in (model.predict, model.measure, model.summary, lambda some: cp.train(some, standardize=True)):
        said = told(lambda ask=ask: ask(rows))
        assert said.startswith("row 7 of MemoryTable(")
        assert said.endswith(want)
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
