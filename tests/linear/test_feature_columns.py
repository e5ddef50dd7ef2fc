"""Feature columns: how they are chosen, logged and matched by name."""

import datetime as dt
import decimal
import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from corgipile import convert, tables
from corgipile.errors import BadArgument, BadSchema, BadValue, MissingColumn
from corgipile.linear import load, train
from corgipile.linear.labelled import Labelled
from corgipile.loader import Loader
from corgipile.tables.location import IN_MEMORY

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
ROWS = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": (X @ [1, -2, 3] > 0).astype(int)})


class Frame:
    """A data frame of a library with an Arrow interface."""

    def __init__(self, rows):
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self.rows.__arrow_c_stream__(requested_schema)


def test_what_was_chosen_and_what_was_left_out_is_told(caplog):
    odd = {
        "name": pa.array(["x"] * 400),
        "day": pa.array([dt.date(2020, 1, 1)] * 400),
        "price": pa.array([decimal.Decimal("1.5")] * 400),
        "kind": pa.array(["x"] * 400).dictionary_encode(),
        "nothing": pa.nulls(400),
        "__index_level_0__": pa.array(RNG.permutation(400)),
    }
    rows = pa.table({**{name: ROWS[name] for name in ROWS.column_names}, **odd})
    with caplog.at_level(logging.INFO, "corgipile"):
        model = train(rows, epochs=1)
    assert model.features == model.names == ("a", "b", "c", "price")
    assert model.label == "label"
    assert set(model.left_out) == set(odd) - {"price"}
    assert model.left_out["__index_level_0__"] == "the index that pandas wrote"
    assert model.left_out["day"] == "date32[day]"
    assert "features: 'a', 'b', 'c', 'price' (4); label: label" in caplog.text
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == model.notes
    assert "'name' (string)" in warned[0]
    caplog.clear()
    assert train(rows, features=["a", "b"], epochs=1).left_out == {}
    assert not caplog.records


def test_columns_beside_a_list_of_features_are_told(make):
    rows = make.dense(*make.rows(50)).append_column("weight", pa.array(range(50)))
    assert train(rows, epochs=1).left_out == {"weight": "the features are in 'features'"}


@pytest.mark.parametrize("form", [lambda rows: rows, Frame])
def test_features_are_found_by_name_wherever_they_stand(tmp_path, form):
    train(ROWS, epochs=2, save=tmp_path / "m")
    model, turned = load(tmp_path / "m"), form(ROWS.select(["label", "c", "a", "b"]))
    assert (model.predict(turned) == model.predict(ROWS)).all()
    assert model.evaluate(turned) == model.measure(ROWS)
    assert (model.predict(form(ROWS.select(["c", "b", "a"]))) == model.predict(ROWS)).all()
    with pytest.raises(MissingColumn, match="no columns 'a', 'c' in MemoryTable"):
        model.predict(form(ROWS.select(["b", "label"])))


@pytest.mark.parametrize("use", ["predict", "measure", "test", "warm_start", "saved"])
def test_columns_that_were_not_there_when_a_model_was_trained_are_told(tmp_path, use, caplog):
    old = ROWS.append_column("name", pa.array(["x"] * 400))
    model = train(old, epochs=1) if use != "saved" else train(old, features=["a", "b"], epochs=1, save=tmp_path / "m")
    new, given = old.append_column("id", pa.array(range(400))), {"epochs": 1, "order": "no_shuffle"}
    uses = {
        "predict": model.predict,
        "measure": model.measure,
        "test": lambda rows: train(old, test=rows, **given),
        "warm_start": lambda rows: train(rows, warm_start=model, **given),
        "saved": lambda rows: load(tmp_path / "m").predict(rows),
    }
    for rows, told in ((old, 0), (new, 1)):
        caplog.clear()
        uses[use](rows)
        assert caplog.text.count("column 'id': ignored, because the model was trained on a table without") == told


def test_pandas_frames_are_tables():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = ROWS.to_pandas()
    model = train(frame[frame.a > -1], epochs=1)
    assert model.features == ("a", "b", "c")
    assert (model.predict(frame[["c", "b", "a"]]) == model.predict(ROWS)).all()
    assert isinstance(frame, pd.DataFrame)


def test_going_on_finds_features_by_name_too():
    model = train(ROWS, epochs=1)
    whole = train(ROWS, epochs=2)
    turned = ROWS.select(["label", "c", "b", "a"])
    for features in (None, ["c", "a", "b"]):
        gone_on = train(turned, warm_start=model, epochs=1, features=features)
        assert gone_on.features == ("a", "b", "c")
        assert (gone_on.coef == whole.coef).all()
    with pytest.raises(MissingColumn, match="no column 'b'"):
        train(ROWS.drop_columns("b"), warm_start=model)
    other = ROWS.rename_columns(["a", "b", "d", "label"])
    with pytest.raises(BadArgument, match="features must be those of warm_start, 'a', 'b', 'c', got 'a', 'b', 'd'"):
        train(other, warm_start=model, features=["a", "b", "d"])


def test_a_test_table_has_the_same_columns_in_any_order():
    turned = ROWS.select(["label", "c", "a", "b"])
    settings = {"epochs": 1, "order": "no_shuffle"}
    assert train(ROWS, test=turned, **settings).history[0]["test_loss"] == pytest.approx(
        train(ROWS, test=ROWS, **settings).history[0]["test_loss"]
    )
    with pytest.raises(MissingColumn, match="no column 'label' in the test table"):
        train(ROWS, test=ROWS.drop_columns("label"))
    with pytest.raises(MissingColumn, match="no columns 'b', 'c' in the test table"):
        train(ROWS, test=ROWS.drop_columns(["b", "c"]))
    with pytest.raises(BadSchema, match="label column 'label' is string in the test table"):
        train(ROWS, test=ROWS.set_column(3, "label", pa.array(["x"] * 400)))
    with pytest.raises(BadValue, match=r"the test table .* has no rows"):
        train(ROWS, test=ROWS.slice(0, 0))


@pytest.mark.parametrize("features", [["a", "a"], ["a", 3], 5, [["a"]]])
def test_names_that_are_none_are_refused(features):
    with pytest.raises(BadArgument, match="features"):
        train(ROWS, features=features)


def test_labels_of_other_types_say_what_would_do():
    dates = ROWS.set_column(3, "label", pa.array([1, 2] * 200, pa.date32()))
    with pytest.raises(BadSchema, match=r"label column 'label' is date32\[day\]"):
        train(dates)
    decimals = [decimal.Decimal(number) for number in (0, 1)]
    assert train(ROWS.set_column(3, "label", pa.array(decimals * 200))).classes.tolist() == [0, 1]


def test_row_numbers_are_told(caplog):
    numbered = ROWS.append_column("id", pa.array(range(10**6, 10**6 + 400)))
    notes = train(numbered, epochs=1).notes
    assert any("'id' looks like a row number" in note for note in notes)
    ages = train(ROWS.append_column("age", pa.array(RNG.integers(0, 9, 400))), epochs=1)
    assert not any("row number" in note for note in ages.notes)


def test_labels_in_another_order_are_another_table():
    rows, y = tables.open(ROWS), np.arange(400) % 2
    prints = [Labelled(rows, "label", labels).fingerprint for labels in (y, 1 - y, y.astype(float), y.copy())]
    assert len(set(prints)) == 3
    assert prints[0] == prints[3]


@pytest.mark.parametrize("where", ["memory", "file", "files", "spilled", "filtered"])
def test_labels_in_memory_are_loaded_beside_rows_where_they_lie(tmp_path, where):
    """The kernel reads both in whole tables; all rows keep their labels."""
    y = np.random.default_rng(5).permutation(400).astype(np.int32)
    rows = tables.open(ROWS)
    if where in ("file", "files"):
        parts = [ROWS] if where == "file" else [ROWS[:150], ROWS[150:]]
        paths = [tmp_path / f"{at}.arrow" for at in range(len(parts))]
        for part, path in zip(parts, paths, strict=True):
            convert(part, path)
        rows = tables.open(paths)
    elif where == "spilled":
        pq.write_table(ROWS, tmp_path / "rows.parquet", row_group_size=90)
        rows = tables.open(tmp_path / "rows.parquet")
    labelled = Labelled(rows, "label", y)
    if where == "filtered":
        labelled = labelled.filter(pc.field("label") < 90)
    found = labelled.location(["a", "label"])
    assert (found is None) == (where == "spilled")
    assert found is None or IN_MEMORY in found.layout.columns["label"].files
    batches = list(Loader(labelled, columns=["a", "label"], batch_size=32, memory="8KB"))
    a, b = (np.concatenate([batch[name] for batch in batches]) for name in ("a", "label"))
    assert len(b) == len(labelled)
    assert np.array_equal(a, X[np.argsort(y)[b], 0])


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ({"features": "a,b"}, "several columns are a list in Python: ['a', 'b']"),
        ({"features": ["a, b"]}, "several columns are a list in Python: ['a', 'b']"),
        ({"text": "t,u"}, "several columns are a list in Python: ['t', 'u']"),
        ({"interactions": ["t:u"]}, "columns that are crossed are a tuple in Python: ('t', 'u')"),
        ({"interactions": ["t:z"]}, "it has 'a', 'b', 't', 'u', 'label'"),
    ],
)
def test_columns_written_as_on_a_command_line_are_told(how, hint):
    rows = pa.table({"a": [0.5, 1.0], "b": [1.0, 2.0], "t": ["x", "y"], "u": ["v", "v"], "label": [0, 1]})
    with pytest.raises(MissingColumn) as found:
        train(rows, epochs=1, **how)
    assert str(found.value).endswith(hint)
    with pytest.raises(MissingColumn, match="several columns are a list in Python"):
        tables.open(rows).read(0, 1, ["a,b"])
