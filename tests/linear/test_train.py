import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pytest

from corgipile import tables
from corgipile.errors import (
    BadArgument,
    BadLabel,
    BadSchema,
    BadSparseRow,
    BadValue,
    Diverged,
    MissingColumn,
    MissingFile,
    RaggedRows,
)
from corgipile.linear import load, train
from corgipile.linear.schedule import Schedule
from corgipile.orders import Riffle
from corgipile.tables import MemoryTable
from corgipile.testing import Counting, Failing

KINDS = ["logistic", "svm", "softmax", "linear"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [1, 16])
def test_every_model_learns_from_sorted_rows(make, kind, form, dtype, batch):
    x, y = make.rows(classes={"softmax": 3, "linear": 0}.get(kind, 2), dtype=dtype)
    table = getattr(make, form)(x, y)
    rate = 0.3 if batch > 1 else 0.05
    model = train(table, model=kind, epochs=8, learning_rate=rate, batch_size=batch, test=table)
    last = model.history[-1]
    assert [record["epoch"] for record in model.history] == list(range(8))
    assert last["rows"] == len(x)
    assert last["seconds"] > 0
    figure = "r2" if kind == "linear" else "accuracy"
    assert last[f"test_{figure}"] > (0.9 if kind == "linear" else 0.8)
    assert last["test_loss"] < model.history[0]["loss"]
    assert model.coef.dtype == dtype
    assert model.measure(table)[figure] == last[f"test_{figure}"]


@pytest.mark.parametrize("l2", [0.0, 1e-2])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_three_epochs_and_two_are_five(make, form, batch, l2):
    table = getattr(make, form)(*make.rows())
    settings = {"batch_size": batch, "l2": l2, "order": "corgipile", "memory": "16KB"}
    whole = train(table, epochs=5, **settings)
    begun = train(table, epochs=3, **settings)
    gone_on = train(table, epochs=2, warm_start=begun, **settings)
    assert (gone_on.coef == whole.coef).all()
    assert (gone_on.intercept == whole.intercept).all()
    assert [r["loss"] for r in gone_on.history] == [r["loss"] for r in whole.history]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("width", [5, 40])
def test_rows_that_are_skipped_leave_no_trace(make, kind, form, batch, width):
    x, y = make.rows(600, classes={"softmax": 3, "linear": 0}.get(kind, 2), width=width)
    y = y.astype(np.float64)
    settings = {"model": kind, "epochs": 2, "batch_size": batch, "order": "no_shuffle", "learning_rate": 0.01}
    bad = np.array([0, 1, 17, 200, 201, 599])
    good = np.delete(np.arange(600), bad)
    clean = train(getattr(make, form)(x[good], y[good]), **settings)
    x[bad[:3], 2], y[bad[3:]] = [np.nan, np.inf, -np.inf], [np.nan, np.inf, np.nan]
    with pytest.raises(BadValue):
        train(getattr(make, form)(x, y), **settings)
    skipping = train(getattr(make, form)(x, y), on_bad="skip", **settings)
    np.testing.assert_allclose(skipping.coef, clean.coef, rtol=1e-4, atol=1e-6)
    assert [record["skipped"] for record in skipping.history] == [6, 6]
    assert skipping.history[-1]["rows"] == 594
    assert "skipped" not in clean.history[-1]


def test_labels_of_no_class_can_be_skipped(make):
    x, y = make.rows(300)
    odd = train(make.dense(x, np.where(np.arange(300) % 50, y, 7)), classes=np.unique(y), on_bad="skip", epochs=1)
    assert odd.history[0]["skipped"] == 6
    with pytest.raises(BadArgument, match='on_bad must be "raise" or "skip", got 3'):
        train(make.dense(x, y), on_bad=3)


def test_an_interrupted_run_goes_on_from_its_file(make, tmp_path):
    table, path = make.dense(*make.rows()), tmp_path / "m.safetensors"

    def interrupt(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(table, epochs=5, save=path, callback=interrupt)
    begun = load(path)
    assert len(begun.history) == 2
    whole, gone_on = train(table, epochs=5), train(table, epochs=3, warm_start=begun, save=path)
    assert (gone_on.coef == whole.coef).all()
    assert (load(path).coef == whole.coef).all()


def test_files_and_memory_give_the_same_model(make, tmp_path):
    x, y = make.rows(5000)
    table = make.dense(x, y)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    settings = {"epochs": 2, "memory": "64KB", "order": Riffle(block=32)}
    from_file, from_memory = train(tmp_path / "t.arrow", **settings), train(table, **settings)
    assert from_file.history[-1]["rows"] == from_memory.history[-1]["rows"] == 5000
    assert from_file.history[0]["bytes_read"] == 5000 * (24 + 8)
    assert abs(from_file.history[-1]["accuracy"] - from_memory.history[-1]["accuracy"]) < 0.02


def test_features_in_every_form_are_the_same_features(make):
    x, y = make.rows(300)
    names = [f"f{i}" for i in range(x.shape[1])]
    scalars = pa.table({**dict(zip(names, x.T, strict=True)), "label": y})
    listed = pa.table(
        {"v": [row.tolist() for row in x], "label": y},
        pa.schema([("v", pa.list_(pa.float32())), ("label", pa.int64())]),
    )
    want = train(make.dense(x, y), epochs=2, order="no_shuffle").coef
    assert (train(scalars, epochs=2, order="no_shuffle").coef == want).all()
    assert (train(scalars, epochs=2, order="no_shuffle", features=names[::-1]).coef[:, ::-1] - want).max() < 1e-5
    assert (train(listed, features="v", epochs=2, order="no_shuffle").coef == want).all()


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [1, 2], [False, True], [0.5, 2.5]])
def test_labels_of_two_values(make, labels):
    x, y = make.rows(500)
    table = make.dense(x, np.array(labels)[y])
    model = train(table, epochs=3)
    assert model.classes.tolist() == labels
    assert (model.predict(table) == np.array(labels)[y]).mean() > 0.8
    assert model.predict(table).dtype == np.array(labels).dtype


def test_three_labels_need_softmax(make):
    x, y = make.rows(classes=3)
    with pytest.raises(
        BadLabel,
        match=r'logistic takes two, "softmax" and "svm" and "ovr_logistic" take more, "linear" predicts numbers',
    ):
        train(make.dense(x, y - 1))


def test_classes_given_spare_the_scan_and_are_checked(make):
    x, y = make.rows(100)
    assert train(make.dense(x, y), classes=[1, 0], epochs=1).classes.tolist() == [0, 1]
    with pytest.raises(BadLabel, match=r"row \d+ of MemoryTable.* has label 1; the model's classes are \[0, 2\]"):
        train(make.dense(x, y), classes=[0, 2])


@pytest.mark.parametrize("order", ["riffle", "corgipile", "no_shuffle"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_bad_rows_are_named_wherever_the_order_meets_them(make, form, order):
    x, y = make.rows(900)
    x[:, 0] = 1
    x[677, 0] = np.nan
    with pytest.raises(BadValue, match="row 677 of MemoryTable"):
        train(getattr(make, form)(x, y), order=order, memory="8KB")
    y = y.astype(float)
    y[5] = np.inf
    with pytest.raises(BadValue, match=r"row 5 of label column 'label' is inf"):
        train(getattr(make, form)(x, y), order=order, memory="8KB")


def test_divergence_names_the_epoch_and_a_smaller_step(make):
    x, y = make.rows(classes=0)
    with pytest.raises(Diverged, match=r"diverged in epoch 0: .*; try learning_rate=1"):
        train(make.dense(x * 100, y), model="linear", learning_rate=10)


def test_a_loss_that_grows_without_bound_is_divergence():
    schedule = Schedule(0.1, 1.0, 0.0, None)
    assert not schedule.enough([1.0, 500.0, 999.0], 2)
    assert not schedule.enough([1.0, 5000.0, 2000.0], 2)
    for losses in ([1.0, 500.0, 1001.0], [1.0, float("nan")], [float("inf")]):
        with pytest.raises(Diverged, match=r"in epoch 7.*try learning_rate=0.01"):
            schedule.enough(losses, 7)


def test_tolerance_stops_early(make):
    table = make.dense(*make.rows())
    assert len(train(table, epochs=50, tolerance=0.02).history) < 20
    assert len(train(table, epochs=10, tolerance=0.0, learning_rate=1e-4).history) == 10


def test_callbacks_see_epochs_and_rows(make):
    seen, rows = [], []
    train(make.dense(*make.rows()), epochs=3, memory="8KB", callback=seen.append, on_rows=rows.append)
    assert [record["epoch"] for record in seen] == [0, 1, 2]
    assert sum(rows) == 6000
    assert len(rows) > 3


def test_balanced_order_is_at_home_here(make):
    table = make.dense(*make.rows(20_000))
    plain = train(table, order="no_shuffle", epochs=2, test=table).history[-1]["test_accuracy"]
    riffle = train(table, order=Riffle(block=100, buffer="12%", balance="label"), epochs=2, test=table, memory=None)
    assert riffle.history[-1]["test_accuracy"] > plain + 0.05


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model", "tree"), ("epochs", -1), ("batch_size", 0), ("learning_rate", 0.0), ("learning_rate", float("nan")),
        ("decay", 0.0), ("decay", 1.5), ("l2", -1.0), ("tolerance", -0.1), ("features", []),
        ("classes", ["a", "b"]),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(make, setting, value):
    with pytest.raises(BadArgument, match=r"got|name at least"):
        train(make.dense(*make.rows(50)), **{setting: value})


def test_tables_that_do_not_serve(make):
    x, y = make.rows(50)
    table = make.dense(x, y)
    with pytest.raises(MissingColumn, match="no column 'target'"):
        train(table, label="target")
    with pytest.raises(MissingColumn, match="no column 'wrong'"):
        train(table, features="wrong")
    with pytest.raises(BadSchema, match="label column 'label' is string"):
        train(make.dense(x, y.astype(str)), model="linear")
    with pytest.raises(BadSchema, match="feature column 'a' is string"):
        train(pa.table({"a": ["x"], "label": [1]}), features="a")
    with pytest.raises(BadSchema, match="no column of numbers"):
        train(pa.table({"a": ["x"], "label": [1]}))
    with pytest.raises(BadLabel, match=r"only the value \[1\]"):
        train(pa.table({"a": [0.5], "label": [1]}))
    with pytest.raises(BadValue, match="no rows to train on"):
        train(table.slice(0, 0), model="linear")
    with pytest.raises(RaggedRows, match="row 1 of column 'features'"):
        train(pa.table({"features": [[1.0, 2.0], [1.0]], "label": [0, 1]}))
    uneven = pa.table({"x": [[1.0, 2.0], [2.0], [0.5, 1.0]], "label": [0, 1, 1]})
    with pytest.raises(RaggedRows, match=r"row 1 .* on_bad= does not cover this; leave others out by table.filter"):
        train(uneven, features="x", on_bad="skip")
    length = pc.list_value_length(pc.field("x"))  # as in the message
    assert train(tables.open(uneven).filter(length == 2), features="x", epochs=1).history[0]["rows"] == 2
    with pytest.raises(BadValue, match="null"):
        train(pa.table({"a": [0.5, None], "label": [0, 1]}))
    with pytest.raises(BadValue, match="row 1 of label column 'label' is None"):
        train(pa.table({"a": [0.5, 0.5], "label": [0, None]}))


BAD_SPARSE = {
    "falls": ([2, 1], [1.0, 1.0], BadSparseRow, "row 7 .* repeat or fall"),
    "repeats": ([1, 1], [1.0, 1.0], BadSparseRow, "row 7 .* repeat or fall"),
    "null": ([0, None], [1.0, 1.0], BadSparseRow, "row 7 .* has a null among its sparse indices"),
    "null-value": ([0, 1], [1.0, None], BadValue, "row 7 .* has null or NaN in feature 1 of column 'x_v'"),
    "uneven": ([0, 1, 2], [1.0, 1.0], RaggedRows, "row 7 .* has 3 sparse indices and 2 values"),
    "null-indices": (None, [1.0, 1.0], BadSparseRow, "row 7 .* has a null among its sparse indices"),
    "null-values": ([0, 1], None, BadValue, "row 7 .* has a feature that is null"),
}


@pytest.mark.parametrize("real", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(("keys", "values", "error", "words"), BAD_SPARSE.values(), ids=BAD_SPARSE)
def test_a_bad_sparse_row_is_named_with_its_reason_or_skipped(keys, values, error, words, real):
    schema = pa.schema([("x_k", pa.list_(pa.int32())), ("x_v", pa.list_(real)), ("label", pa.int8())])
    indices, numbers = [[0, 2]] * 20, [[1.0, 2.0]] * 20
    good = pa.table([indices, numbers, [0, 1] * 10], schema=schema)
    indices[7], numbers[7] = keys, values
    table = pa.table([indices, numbers, [0, 1] * 10], schema=schema)
    for standardize in (False, True):
        settings = {"features": "x", "epochs": 1, "standardize": standardize}
        with pytest.raises(error, match=words):
            train(table, **settings)
        assert train(table, on_bad="skip", **settings).history[0]["skipped"] == 1
    model = train(good, features="x", epochs=1)
    for use in (model.predict, model.measure):
        with pytest.raises(error, match=words):
            use(table)


def test_negative_sparse_indices():
    table = pa.table({"x_k": [[0, 2], [-1, 0]], "x_v": [[1.0, 2.0]] * 2, "label": [0, 1]})
    kinds = pa.schema([("x_k", pa.list_(pa.int32())), ("x_v", pa.list_(pa.float32())), ("label", pa.int8())])
    with pytest.raises(BadSparseRow, match="holds index -1"):
        train(table.cast(kinds), features="x")


def test_sparse_index_beyond_the_named_width(make):
    table = make.sparse(*make.rows(50)).replace_schema_metadata({"corgipile.dims": "3"})
    with pytest.raises(BadSparseRow, match="outside the model's 3 features"):
        train(table)
    with pytest.raises(BadSchema, match="list<int32> and list<float>"):
        train(pa.table({"features_k": [[0]], "features_v": [[1]], "label": [0]}))


def test_warm_start_of_another_model(make):
    x, y = make.rows(200)
    model = train(make.dense(x, y), epochs=1)
    with pytest.raises(BadArgument, match=r"warm_start must be .* of 3 features, got logistic of 6"):
        train(make.dense(x[:, :3], y), warm_start=model)
    with pytest.raises(BadArgument, match="classes must be those of warm_start"):
        train(make.dense(x, y), warm_start=model, classes=[0, 2])
    with pytest.raises(BadArgument, match="needs a warm_start without intercept"):
        train(make.dense(x, y), warm_start=model, intercept=False)
    without = train(make.dense(x, y), epochs=1, intercept=False)
    assert train(make.dense(x, y), epochs=1, warm_start=without, intercept=False).intercept.tolist() == [0]


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("on_bad", "ski", BadArgument), ("memory", "64Q", BadArgument), ("order", "rifle", BadArgument),
        ("seed", "a", BadArgument), ("test", "nowhere.arrow", MissingFile), ("test", "s4://a/b", BadArgument),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_words_is_said_before_anything_is_read(setting, value, error):
    table = Failing(MemoryTable(pa.table({"x": [0.5, 1.5], "label": [0, 1]})), after=0)
    with pytest.raises(error):
        train(table, **{setting: value})


def test_test_table_of_another_width(make):
    x, y = make.rows(200)
    with pytest.raises(BadArgument, match="the test table must have 6 features, got 3"):
        train(make.dense(x, y), test=make.dense(x[:, :3], y))


def test_the_label_is_no_feature_and_fractions_are_no_classes():
    rows = pa.table({"x": np.arange(300.0), "label": np.arange(300) + 0.5})
    with pytest.raises(BadArgument, match="the label column 'label' is among the features"):
        train(rows, features=["x", "label"])
    with pytest.raises(BadLabel, match='use model="linear"'):
        train(rows, model="softmax")


class LabelReads(Counting):
    """Counts the rows whose label alone is read."""

    def __init__(self, table):
        super().__init__(table)
        self.labels = 0

    def read(self, start, stop, columns=None):
        self.labels += (stop - start) * (list(columns or []) == ["label"])
        return super().read(start, stop, columns)


@pytest.mark.parametrize("order", ["balanced", "corgipile"])
@pytest.mark.parametrize("on_bad", ["raise", "skip"])
@pytest.mark.parametrize("settings", [{}, {"standardize": True}, {"model": "softmax"}])
def test_classes_and_blocks_come_of_one_reading_of_the_labels(make, order, on_bad, settings):
    rows = make.dense(*make.rows())
    table, settings = LabelReads(MemoryTable(rows)), {"epochs": 1, "memory": "16KB", "on_bad": on_bad, **settings}
    model = train(table, order=order, **settings)
    assert table.labels == len(table)
    known = train(rows, order=order, classes=[0, 1], **settings)
    assert (model.coef == known.coef).all()
    assert model.classes.tolist() == known.classes.tolist() == [0, 1]


def test_a_bad_label_is_told_while_blocks_are_balanced(make):
    x, y = make.rows()
    labels = pa.array([*y[:-1].tolist(), None])
    for order in ("balanced", "corgipile"):
        with pytest.raises(BadValue, match="row 1999 of label column 'label' is None"):
            train(make.dense(x, labels), order=order, memory="16KB")
        with pytest.raises(BadLabel, match=r"has the values 0, 1, 2\.\.\."):
            train(make.dense(x, np.arange(2000) % 5), order=order, memory="16KB")
