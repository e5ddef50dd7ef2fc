"""Features and label from ordinary columns: every row whole, in every order, format and host."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue, MissingColumn, StateMismatch

ROWS, BATCH = 3000, 64


@pytest.fixture(scope="module")
def people():
    pick = np.random.default_rng(7)
    scalars = {f"x{i}": pick.normal(size=ROWS).astype(np.float32) for i in range(4)}
    return pa.table(
        {
            **scalars,
            "count": pa.array(pick.integers(-5, 5, ROWS), pa.int16()),
            "flag": pa.array(pick.random(ROWS) < 0.5),
            "age": pa.array(pick.random(ROWS) * 60, mask=pick.random(ROWS) < 0.1),
            "city": pa.array(pick.choice(["Rome", "Oslo", "Bern"], ROWS)).dictionary_encode(),
            "emb": pa.FixedSizeListArray.from_arrays(pa.array(pick.normal(size=2 * ROWS)), 2),
            "income": pa.array(np.sort(pick.choice(["<=50K", ">50K"], ROWS))),
            "id": np.arange(ROWS),
        }
    )


@pytest.fixture(scope="module", params=["memory", "arrow", "lz4", "parquet", "several"])
def source(request, people, tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    if request.param == "memory":
        return people
    if request.param == "parquet":
        pq.write_table(people, folder / "a.parquet", row_group_size=1000)
        return str(folder / "a.parquet")
    options = pa.ipc.IpcWriteOptions(compression="lz4" if request.param == "lz4" else None)
    parts = [people.slice(0, 1100), people.slice(1100)] if request.param == "several" else [people]
    for number, part in enumerate(parts):
        with pa.ipc.new_file(folder / f"{number}.arrow", people.schema, options=options) as file:
            file.write_table(part.unify_dictionaries(), max_chunksize=700)
    return str(folder)


def expected(row):
    city = [float(row["city"] == name) for name in ("Bern", "Oslo", "Rome")]
    age = 33.0 if row["age"] is None else row["age"]
    return [row["x2"], row["count"], row["flag"], age, *row["emb"], *city]


FEATURES = ["x2", "count", "flag", "age", "emb", "city"]


@pytest.mark.parametrize("order", ["auto", "corgipile", "full", "no_shuffle"])
def test_each_row_once_and_whole(people, source, order):
    loader = cp.Loader(
        source, batch_size=BATCH, order=order, features=FEATURES, label="income", encode="onehot", missing=33.0,
        columns=["id"], memory="1MB",
    )  # fmt: skip
    rows, seen = people.to_pylist(), []
    for batch in loader:
        assert set(batch) == {"features", "label", "id"}
        assert batch["features"].dtype == np.float32
        assert batch["label"].dtype == np.int64
        for features, label, number in zip(batch["features"], batch["label"], batch["id"].tolist(), strict=True):
            np.testing.assert_allclose(features, expected(rows[number]), rtol=1e-6)
            assert loader.classes[label] == rows[number]["income"]
            seen.append(number)
    assert sorted(seen) == list(range(ROWS))


def test_the_default_order_balances_by_a_label_of_text(source):
    loader = cp.Loader(source, features="numeric", label="income", missing="mean")
    assert loader.order.title == "balanced by 'income'"


def test_numbers_are_features_and_fractions_labels_of_their_type(people):
    x, y = next(iter(cp.Loader(people.drop(["age"]), features="numeric", label="x3", as_tuple=True, dtype="float64")))
    assert x.shape == (256, 6)
    assert x.dtype == y.dtype == np.float64
    only = cp.Loader(people, features=lambda schema: [one.name for one in schema if one.name[0] == "x"], label="id")
    assert only.encoding.columns == ("x0", "x1", "x2", "x3")
    assert next(iter(only))["label"].dtype == np.int64


def test_a_list_column_keeps_its_type_and_shape(people):
    batch = next(iter(cp.Loader(people, features="emb", label="flag", batch_size=3, format="torch")))
    assert tuple(batch["features"].shape) == (3, 2)
    assert str(batch["features"].dtype) == "torch.float64"
    assert str(batch["label"].dtype) == "torch.int64"


def test_another_table_is_read_by_the_same_encoding(people):
    loader = cp.Loader(people, features=["age", "city"], label="income", encode="ordinal", missing="mean")
    state = json.loads(json.dumps(loader.state_dict()))
    others = people.slice(5, 40).select(["income", "city", "age"])
    again = cp.Loader(others, features=cp.features.Encoding.of(state["encoding"]), order="no_shuffle")
    batch = next(iter(again))
    assert batch["features"][:, 1].tolist() == [
        ["Bern", "Oslo", "Rome"].index(name) for name in others["city"].to_pylist()
    ]
    assert again.classes.tolist() == loader.classes.tolist()
    strange = others.set_column(0, "income", pa.array(["much"] * 40))
    with pytest.raises(BadLabel, match="row 0 has label 'much'"):
        cp.Loader(strange, features=loader.encoding)


def test_it_goes_on_after_any_batch(source):
    how = {"features": FEATURES, "label": "income", "encode": "onehot", "missing": "mean", "seed": 3, "batch_size": 500}
    with cp.Loader(source, **how) as loader:
        whole = [batch["features"] for batch in loader]
    first = cp.Loader(source, **how)
    taken = iter(first)
    next(taken), next(taken)
    state = json.loads(json.dumps(first.state_dict()))
    later = pickle.loads(pickle.dumps(cp.Loader(source, **how)))  # noqa: S301 - ours
    later.load_state_dict(state)
    np.testing.assert_array_equal(np.concatenate([batch["features"] for batch in later]), np.concatenate(whole[2:]))
    other = cp.Loader(source, **{**how, "missing": 0.0})
    with pytest.raises(StateMismatch, match=r"another table|other features"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"encode": "onehot"}, BadArgument, "has no effect without features"),
        ({"as_tuple": True}, BadArgument, "has no effect without features"),
        ({"features": ["x0"], "as_tuple": True}, BadArgument, "give a label"),
        ({"features": ["x0"], "label": "id", "columns": ["x0"]}, BadArgument, "is a feature or the label already"),
        ({"features": ["x0"], "label": "nowhere"}, MissingColumn, "nowhere"),
        ({"features": ["x0", "city"]}, BadSchema, "choose how it becomes numbers"),
        ({"features": ["x0"], "dtype": "int8"}, BadArgument, "dtype must be"),
        ({"label": "id", "classes": [1, 2, 3], "features": ["x0"]}, BadLabel, "the classes are 1, 2, 3"),
    ],
)
def test_arguments_that_do_not_fit(people, arguments, error, text):
    with pytest.raises(error, match=text):
        list(cp.Loader(people, **arguments))


def test_a_null_is_an_error_unless_something_stands_for_it(people):
    with pytest.raises(BadValue, match=r"row \d+ of column 'age' is null"):
        list(cp.Loader(people, features=["age"], label="income"))
    lists = pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))
    holes = pa.table({"e": lists, "x": [float("nan")] * 9, "y": [1] * 9})
    with pytest.raises(BadValue, match="column 'x' holds NaN; fill it by missing="):
        list(cp.Loader(holes, features=["e", "x"], label="y"))


def test_blocks_of_many_columns_are_worth_their_requests():
    rows = 200_000
    table = pa.table({f"x{i}": np.zeros(rows, np.float32) for i in range(28)} | {"label": np.zeros(rows, np.int8)})
    narrow = cp.Loader(table, features="numeric", label="label", memory="8MB").order.block_rows
    assert narrow == min(int((4 << 10) * 29 / (28 * 4 + 1)), (8 << 20) // 113 // 128, rows // 512)


@pytest.mark.parametrize("missing", ["mean", "error"])
def test_a_row_group_larger_than_the_budget_is_no_matter(tmp_path, missing):
    rows = 100_000
    names = pa.array(["yes", "no"] * (rows // 2))
    holes = np.arange(rows) % 7 == 3 if missing == "mean" else None
    table = pa.table({"x": pa.array(np.arange(float(rows)), mask=holes), "y": names, "id": np.arange(rows)})
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=rows)
    loader = cp.Loader(tmp_path / "one.parquet", features=["x"], label="y", missing=missing, memory="300KB")
    seen = sum(len(batch["label"]) for batch in loader)
    assert seen == rows
    whole = cp.Loader(tmp_path / "one.parquet", features=["id", "x"], label="y", missing="mean", memory="600KB")
    assert "id" not in getattr(whole.feeder.table, "changed", {})  # no values are missing, so the column stays in place
    found = np.concatenate([batch["features"][:, 0] for batch in whole])
    assert np.array_equal(np.sort(found), np.arange(rows))


def test_states_are_of_their_features(people):
    table = cp.open(people)
    state = cp.Loader(table, features=["x0", "x1"], label="id").state_dict()
    for others in (["x1", "x0"], ["x0"]):
        with pytest.raises(StateMismatch, match="other features"):
            cp.Loader(table, features=others, label="id").load_state_dict(state)
    with pytest.raises(BadArgument, match="features must be a name or a list of names"):
        cp.Loader(table, features={"x0", "x1"}, label="id")


def test_an_encoding_takes_another_label_and_nothing_else(people):
    known = cp.Loader(people, features=["x0"], label="id").encoding
    loader = cp.Loader(people, features=known, label="income")
    assert loader.classes.tolist() == ["<=50K", ">50K"]
    assert next(iter(loader))["label"].dtype == np.int64
    for more in ({"encode": "hash"}, {"missing": 1.0}, {"classes": [1, 2]}):
        with pytest.raises(BadArgument, match="has no effect: features is an encoding"):
            cp.Loader(people, features=known, label="id", **more)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([[1.0, 2.0], [1.0]]), "lists of numbers of one length"),
        (pa.array([["a"], ["b"]]), "lists of numbers are needed"),
    ],
)
def test_lists_that_are_no_array(column, text):
    with pytest.raises(BadSchema, match=text):
        cp.Loader(pa.table({"x": column, "y": [1, 2]}), features=["x"], label="y", as_tuple=True)


def test_what_is_missing_in_lists():
    rows = pa.table({"x": pa.array([[1.0, None], [float("nan"), 2.0]], pa.list_(pa.float32(), 2)), "y": [1, 2]})
    batch = next(iter(cp.Loader(rows.slice(1), features=["x"], label="y", missing=7)))
    assert batch["features"].tolist() == [[7.0, 2.0]]
    lists = pa.table({"x": [[1.0, 2.0], [float("nan"), 1.0]], "y": [1, 2]})
    batch = next(iter(cp.Loader(lists, features=["x"], label="y", missing=0, order="no_shuffle")))
    assert batch["features"].tolist() == [[1.0, 2.0], [0.0, 1.0]]
    with pytest.raises(BadValue, match="column 'x' holds NaN"):
        list(cp.Loader(rows.slice(1), features=["x"], label="y", missing="mean"))


def test_labels_that_no_learner_takes():
    with pytest.raises(BadValue, match="label column holds NaN"):
        list(cp.Loader(pa.table({"x": [1.0], "y": [float("nan")]}), features=["x"], label="y"))
    with pytest.raises(BadValue, match="integer labels must be at most"):
        list(cp.Loader(pa.table({"x": [1.0], "y": pa.array([2**63], pa.uint64())}), features=["x"], label="y"))


def test_what_is_left_out_is_said(people, caplog):
    with caplog.at_level("INFO", "corgipile"):
        loader = cp.Loader(people, label="income", missing=0.0)
    assert "'emb' (fixed_size_list" in caplog.text
    assert "'city' (dictionary" in caplog.text
    assert "features of MemoryTable" in caplog.text
    caplog.clear()
    cp.Loader(people, features=loader.encoding)
    assert "are not features" not in caplog.text


def test_a_label_beside_text_alone():
    rows = pa.table({"text": list("abcd"), "other": list("efgh"), "cls": ["u", "v", "u", "v"]})
    for form in ("numpy", "torch"):
        loader = cp.Loader(rows, batch_size=4, label="cls", format=form, order="no_shuffle")
        batch = next(iter(loader))
        assert list(batch) == ["text", "other", "label"]
        assert loader.classes.tolist() == ["u", "v"]
        assert batch["label"].tolist() == [0, 1, 0, 1]
    batch = next(iter(cp.Loader(rows, batch_size=4, label="cls", format="arrow", order="no_shuffle")))
    assert batch.schema.names == ["text", "other", "label"]
    texts, labels = next(iter(cp.Loader(rows, label="cls", columns=["text"], as_tuple=True, order="no_shuffle")))
    assert (list(texts), labels.tolist()) == (list("abcd"), [0, 1, 0, 1])
    with pytest.raises(BadArgument, match="needs one column and the label, got 'text', 'other'"):
        cp.Loader(rows, label="cls", as_tuple=True)


@pytest.mark.parametrize("form", ["numpy", "torch", "arrow"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_batches_have_columns_in_the_order_of_the_table(form, prefetch):
    rows = pa.table({"t": ["a"] * 9, "x": [1.0] * 9, "l": [[1], [2, 3], []] * 3, "b": [True] * 9, "label": [1] * 9})
    for columns in (None, ["label", "t", "x"], ["l", "b"]):
        for batch in cp.Loader(rows, batch_size=4, columns=columns, format=form, prefetch=prefetch):
            names = batch.schema.names if form == "arrow" else list(batch)
            assert names == (columns or rows.schema.names)


@pytest.mark.parametrize("order", ["full", "corgipile"])
def test_the_first_null_and_its_file_are_named(tmp_path, order):
    for number in range(3):
        x = [1.0] * 90 + [None if number else 2.0] * 3
        pq.write_table(pa.table({"x": x, "l": [[1]] * 92 + [[None if number else 1]]}), tmp_path / f"{number}.parquet")
    for settings, what in (({"columns": ["x"]}, "features= with missing="), ({"features": ["x"]}, "missing=")):
        match = rf"row 183 of column 'x' is null \(row 90 of .*1.parquet.*\); {what}"
        with pytest.raises(BadValue, match=match):
            list(cp.Loader(tmp_path, batch_size=8, order=order, seed=3, **settings))
    with pytest.raises(BadValue, match=r"row 185 of column 'l' holds a null \(row 92 of .*1.parquet"):
        list(cp.Loader(tmp_path, batch_size=8, order=order, seed=3, columns=["l"]))
    with pytest.raises(BadArgument, match="missing=0 has no effect without features= or label=; features='numeric'"):
        cp.Loader(tmp_path, missing=0)
    assert sum(len(batch["features"]) for batch in cp.Loader(tmp_path, features=["x"], missing=0)) == 279


def test_a_state_that_lacks_something():
    loader = cp.Loader(pa.table({"x": [1.0, 2.0]}))
    with pytest.raises(StateMismatch, match=r"'version', 'table', 'seed', 'segments', got only 'epoch'"):
        loader.load_state_dict({"epoch": 1})
