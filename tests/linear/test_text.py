"""Models of text and crosses: the same from every format and host."""

# ruff: noqa: S608  # tests write SQL

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import corgipile as cp
from corgipile.errors import (
    BadArgument,
    BadModelFile,
    BadSchema,
    BadValue,
    BudgetTooSmall,
    MissingColumn,
    WriteFailed,
)
from corgipile.features.fit_hashed import fit_hashed
from corgipile.features.hashed import PAIR, HashedColumns
from corgipile.features.hashing import Hashing
from corgipile.linear.model import load, unpack
from corgipile.orders import Riffle

ORDER = Riffle(block=40, buffer=400)
ROWS = 1500


def made(rows=ROWS, seed=0, **more):
    """Return reviews sorted by label, most of them given away by one word, and other columns."""
    rng = np.random.default_rng(seed)
    label = np.sort(rng.integers(0, 2, rows))
    said = np.where(rng.random(rows) < 0.95, label, 1 - label)
    filler = [" ".join(f"w{word}" for word in rng.zipf(1.3, size) % 500) for size in rng.integers(0, 20, rows)]
    review = [f"{text} {('Awful', 'GREAT')[one]}!" for text, one in zip(filler, said, strict=True)]
    columns = {
        "review": review,
        "id": np.arange(rows),
        "price": rng.normal(size=rows),
        "city": rng.choice(["a", "b"], rows),
    }
    return pa.table(columns | {"label": label} | more)


@pytest.fixture(scope="module")
def rows():
    return made()


def write(table, folder, form):
    """Write a table in a format, in small units; return the path."""
    path = f"{folder}/rows.{form.partition(' ')[0]}"
    if form == "parquet":
        pa.parquet.write_table(table, path, row_group_size=200)
    elif form == "csv":
        pa.csv.write_csv(table, path)
    elif form == "jsonl":
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        kinds = {"review": {"arrow views": pa.string_view(), "arrow large": pa.large_string()}.get(form, pa.string())}
        table = table.cast(pa.schema([one.with_type(kinds.get(one.name, one.type)) for one in table.schema]))
        if form == "arrow dictionary":
            table = table.set_column(0, "review", table["review"].dictionary_encode())
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.unify_dictionaries(), max_chunksize=None if "dictionary" in form else 300)
    return path


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow", "arrow large", "arrow views", "arrow dictionary"])
def test_the_same_model_from_every_format(rows, tmp_path, form):
    how = {"text": "review", "features": ["price"], "epochs": 2, "order": ORDER}
    wanted = cp.train(rows, **how)
    path = write(rows, tmp_path, form)
    model = cp.train(path, **how)
    assert model.history[-1]["accuracy"] > 0.9
    if form not in ("parquet", "csv", "jsonl"):  # these have other blocks, or write fractions differently
        assert np.array_equal(model.coef, wanted.coef)
    assert np.array_equal(model.predict(path), model.predict(rows))
    assert model.evaluate(path) == pytest.approx(model.evaluate(rows))


def test_the_model_is_that_of_hashed_rows(rows):
    """The kernel gets rows hashed by the rule, cached or read by several threads."""
    table = cp.open(rows)
    hashed = fit_hashed(table, None, None, text="review", hash_bits=12).table(table)
    pair = pa.Table.from_batches([hashed.read(0, ROWS, [*PAIR, "label"])])
    pair = pair.rename_columns(["features_k", "features_v", "label"]).replace_schema_metadata(hashed.schema.metadata)
    wanted = cp.train(pair, epochs=3, order=ORDER, step="adagrad")
    for memory in ("64MB", "400KB"):
        found = cp.train(rows, text="review", hash_bits=12, epochs=3, order=ORDER, memory=memory)
        assert np.array_equal(found.coef, wanted.coef)
        assert np.array_equal(found.intercept, wanted.intercept)
    assert found.width == 1 << 12
    assert found.features == found.columns == ("review",)
    assert found.left_out.keys() == {"id", "price", "city"}


def test_a_model_file_says_all_that_prediction_needs(rows, tmp_path):
    model = cp.train(rows, text="review", features=["price"], interactions=[("city", "price")], epochs=2, hash_bits=10)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.encoding == model.encoding
    assert again.width == (1 << 10) + 1
    some = rows.select(["city", "review", "price"]).slice(100, 50)
    assert np.array_equal(again.decision(some), model.decision(some))
    assert again.predict(some.slice(0, 0)).shape == (0,)
    with pytest.raises(MissingColumn, match="no column 'review'"):
        again.predict(rows.select(["price", "city"]))
    with pytest.raises(BadArgument, match="encodes named columns"):
        again.predict(np.zeros((1, again.width)))


def test_a_damaged_hashing_is_no_model(rows):
    model = cp.train(rows, text="review", epochs=1, hash_bits=8)
    for bits, message in ((9, "its features are"), (99, "hashing of its columns is not supported")):
        model.params["encoding"]["hashing"]["bits"] = bits
        with pytest.raises((BadArgument, BadModelFile), match=message):
            unpack(model.pack())


def test_training_goes_on_where_it_was(rows, tmp_path):
    how = {"text": "review", "interactions": [("city", "review")], "hash_bits": 12, "order": ORDER}
    whole = cp.train(rows, epochs=4, **how)
    cp.train(rows, epochs=2, **how).save(tmp_path / "m.safetensors")
    for same in ({}, how):
        past = load(tmp_path / "m.safetensors")
        assert np.array_equal(cp.train(rows, epochs=2, **{"order": ORDER} | same, warm_start=past).coef, whole.coef)
    for other in ({"hash_bits": 13}, {"ngrams": 1}, {"text": "city"}, {"interactions": ["city"]}):
        with pytest.raises(BadArgument, match="must be that of warm_start"):
            cp.train(rows, epochs=1, warm_start=past, **other)
    with pytest.raises(BadArgument, match="text must be that of warm_start"):
        cp.train(rows, text="review", warm_start=cp.train(rows, epochs=1, features=["price"]))


def test_held_out_rows_and_a_test_table(rows):
    model = cp.train(rows, text="review", epochs=2, hash_bits=12, test=made(300, seed=1), patience=1)
    assert model.history[-1]["test_accuracy"] > 0.9
    assert cp.train(rows, text="review", epochs=1, hash_bits=12, validation=0.2).history[0]["test_accuracy"] > 0.85


@pytest.mark.parametrize(("given", "step"), [({}, "adagrad"), ({"ngrams": 1}, "auto"), ({"features": ["a"]}, "auto")])
def test_the_step_that_nobody_named(rows, given, step):
    rows = rows.append_column("a", pa.array(range(ROWS)))
    model = cp.train(rows, text="review", epochs=1, **given)
    assert model.params["step"] == step


def test_rows_without_text_are_errors_or_skipped_or_have_no_words(rows):
    holes = [None if at % 100 == 7 else text for at, text in enumerate(rows["review"].to_pylist())]
    table = rows.set_column(0, "review", pa.array(holes))
    with pytest.raises(
        BadValue, match=r"row 7 of .* has a null in the text column 'review'; fill it, or train with on_bad"
    ):
        cp.train(table, text="review", order="no_shuffle", epochs=1)
    model = cp.train(table, text="review", on_bad="skip", epochs=2)
    assert model.history[-1]["skipped"] == ROWS // 100
    with pytest.raises(BadValue, match="a null in the text column 'review'"):
        model.predict(table)
    filled = cp.train(table, text="review", missing=0, epochs=1)
    assert len(filled.predict(table)) == ROWS
    numbers = pa.array([None if at == 5 else at for at in range(ROWS)])
    for beside, said in (({"features": ["n"]}, "a null in column 'n'; fill it, or train with missing="),
                         ({"interactions": [("n", "review")]}, "row 5 of .* 'n'")):  # fmt: skip
        with pytest.raises(BadValue, match=said):
            cp.train(rows.append_column("n", numbers), text="review", epochs=1, **beside)


def test_three_classes_of_text_labels(rows):
    named = pa.array([f"class {one % 3}" for one in range(ROWS)])
    words = pa.array([f"it is {one % 3}" for one in range(ROWS)])
    table = pa.table({"said": words, "sort": named})
    model = cp.train(table, text="said", label="sort", model="softmax", hash_bits=10, epochs=2)
    assert model.coef.shape == (3, 1 << 10)
    assert model.predict(table).tolist() == named.to_pylist()


def test_numbers_predicted_from_text(rows):
    table = pa.table({"said": [("low", "high")[one % 2] for one in range(ROWS)], "label": np.arange(ROWS) % 2 * 3.0})
    model = cp.train(table, model="linear", text="said", hash_bits=8, epochs=10)
    assert model.history[-1]["r2"] > 0.9


def test_weights_are_counted_before_anything_is_read(rows):
    for more in ({}, {"model": "softmax"}):
        with pytest.raises(BudgetTooSmall, match=r"with hash_bits=24; give memory=\d+, or fewer bits"):
            cp.train(rows, text="review", hash_bits=24, memory="64MB", **more)
    with pytest.raises(BudgetTooSmall, match="6 models take"):
        cp.search(rows, {"l2": [0.0, 1e-4]}, folds=3, text="review", hash_bits=18, memory="64MB")


def test_models_side_by_side(rows):
    found = cp.search(rows, {"l2": [0.0, 1e-5]}, folds=3, text="review", hash_bits=12, epochs=2)
    assert found.results[0]["score"] > 0.85
    assert found.model.features == ("review",)
    groups = cp.train(rows, text="review", hash_bits=10, by="city", epochs=3)
    assert (groups.predict(rows) == rows["label"].to_numpy()).mean() > 0.9


def test_the_exact_solver_and_comparison(rows):
    model = cp.train(rows, solver="dual", model="svm", text="review", hash_bits=12, l2=1e-3, epochs=5)
    assert model.evaluate(rows)["accuracy"] > 0.9
    results = cp.compare(rows, text="review", hash_bits=12, epochs=2, order=["no_shuffle", "full"], memory="2MB")
    assert [one.failure for one in results] == ["", ""]
    assert results[1].score > 0.85


def test_weights_of_rows_are_no_features(rows):
    table = rows.append_column("much", pa.array(np.ones(ROWS)))
    with_them, without = (
        cp.train(table, text="review", hash_bits=10, epochs=1, **how) for how in ({"weight": "much"}, {})
    )
    assert np.array_equal(with_them.coef, without.coef)


def test_crosses_alone():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 2000))
    table = pa.table({"a": a.astype(str), "b": b.astype(str), "label": a ^ b})
    assert cp.train(table, interactions=[("a", "b")], epochs=2).history[-1]["accuracy"] > 0.99
    assert cp.train(table, interactions=["a", "b"], epochs=2).history[-1]["accuracy"] < 0.7


def test_the_same_model_on_the_command_line_and_in_sql(rows, tmp_path):
    pytest.importorskip("duckdb")
    from corgipile.cli.app import app  # noqa: PLC0415
    from corgipile.sql import connect  # noqa: PLC0415

    path, saved = write(rows, tmp_path, "arrow"), tmp_path / "m.safetensors"
    how = {"text": "review", "features": ["price"], "hash_bits": 12, "ngrams": 3, "epochs": 2}
    wanted = cp.train(path, **how, interactions=[("city", "price"), "city"])
    words = f"train {path} --text review --features price --hash-bits 12 --ngrams 3 --epochs 2 --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--interactions", "city:price,city", "--save", str(saved)])
    assert done.exit_code == 0, done.output
    assert np.array_equal(load(saved).coef, wanted.coef)
    with connect() as sql:
        sql.execute(
            f"SELECT REVIEW, price, city, label FROM '{path}' TRAIN BY logistic WITH text = Review, hash_bits = 12, "
            "ngrams = 3, epochs = 2, interactions = (('City', price), city) INTO m"
        )
        found = sql.execute(f"SELECT * FROM '{path}' PREDICT BY m").fetchall()
    assert [row[-1] for row in found] == wanted.predict(path).tolist()


def test_estimators_take_frames_and_tables(rows):
    estimators = pytest.importorskip("corgipile.linear.estimators")
    pd = pytest.importorskip("pandas")
    wanted = cp.train(rows, text="review", hash_bits=10, epochs=2)
    for frame in (rows, pd.DataFrame({name: rows[name].to_pylist() for name in rows.column_names})):
        found = estimators.CorgiClassifier(text="review", hash_bits=10, epochs=2)
        found = found.fit(frame) if frame is rows else found.fit(frame.drop(columns="label"), frame["label"])
        assert (found.predict(frame) == rows["label"].to_numpy()).mean() > 0.9
        assert found.coef_.shape == wanted.coef.shape
    with pytest.raises(BadArgument, match="need named columns"):
        estimators.CorgiClassifier(text="review").fit(np.zeros((4, 2)), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"text": 3}, BadArgument, "text must be the name of a column or a list of them, got 3"),
        ({"text": []}, BadArgument, "text must be the name"),
        ({"text": "review", "hash_bits": 31}, BadArgument, "hash_bits must be a whole number of 1 to 30, got 31"),
        ({"text": "review", "ngrams": 0}, BadArgument, "ngrams must be a whole number of 1 to 8, got 0"),
        ({"text": "revue"}, MissingColumn, "no column 'revue'.*did you mean review"),
        ({"text": "price"}, BadSchema, "text column 'price' is double"),
        ({"interactions": "city"}, BadArgument, "interactions must be a list"),
        ({"interactions": [("label", "city")]}, BadArgument, "'label' is among the features"),
        ({"hash_bits": 12}, BadArgument, "hash_bits=12 has no effect without text= or interactions="),
    ],
)
def test_what_is_wrong_is_said(rows, how, error, words):
    with pytest.raises(error, match=words):
        cp.train(rows, epochs=1, **how)


def test_loaders_refuse_hashed_features(rows):
    model = cp.train(rows, text="review", hash_bits=10, epochs=1)
    with pytest.raises(BadArgument, match="hashed features are for linear models"):
        cp.Loader(rows, features=model.encoding)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory):
    """Return texts too large for the cache of a small budget, as a table and as files."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("long")
    words = np.array([f"w{number:x}" for number in range(500)])
    label = np.arange(2000) % 2
    draws = [words[random.integers(0, 400, 40) + 100 * one] for one in label.tolist()]
    table = pa.table({"text": [" ".join(draw) for draw in draws], "label": label, "more": random.random(2000)})
    pa.feather.write_feather(table, folder / "a.arrow", compression="uncompressed")
    pa.parquet.write_table(table, folder / "a.parquet", row_group_size=500)
    return {"memory": table, "arrow": folder / "a.arrow", "parquet": folder / "a.parquet"}


@pytest.mark.parametrize(("form", "order", "most"), [
    ("memory", "riffle", 2), ("arrow", "no_shuffle", 2), ("arrow", "riffle", 2), ("parquet", "riffle", 1),
])  # fmt: skip
def test_epochs_read_hashed_rows_from_a_spill_file(long_text, monkeypatch, form, order, most):
    """An encoded table is hashed once, others once more at the second epoch; the model does not change."""
    hashed = []
    inner = Hashing.rows

    def counted(self, columns, numbers):
        hashed.append(len(columns[0]))
        return inner(self, columns, numbers)

    how = {"text": "text", "features": ["more"], "order": order, "epochs": 5, "memory": "1MB", "hash_bits": 12}
    monkeypatch.setattr(Hashing, "rows", counted)
    model = cp.train(long_text[form], **how)
    assert sum(hashed) < 2000 * most + 1500  # samples are hashed too
    monkeypatch.setattr(HashedColumns, "spills", False)
    hashed.clear()
    assert np.array_equal(cp.train(long_text[form], **how).coef, model.coef)
    assert sum(hashed) >= 5 * 2000


def test_a_full_disk_leaves_text_to_be_hashed_in_each_epoch(long_text, monkeypatch):
    def full(*_):
        raise WriteFailed(28, "the disk is full")

    how = {"text": "text", "features": ["more"], "epochs": 3, "memory": "1MB", "hash_bits": 12}
    expected = cp.train(long_text["arrow"], **how).coef
    monkeypatch.setattr("corgipile.features.hashed.check_room", full)
    assert np.array_equal(cp.train(long_text["arrow"], **how).coef, expected)
    monkeypatch.undo()
    monkeypatch.setattr("corgipile.features.hashed.unpack", full)
    assert np.array_equal(cp.train(long_text["arrow"], **how).coef, expected)


@pytest.mark.parametrize("form", ["parquet", "arrow", "memory"])
@pytest.mark.parametrize("failure", ["full", "longer than sampled"])
def test_hashed_rows_that_do_not_fit_leave_the_columns_to_be_spilled(long_text, monkeypatch, form, failure):
    """A disk that fills while hashed rows are written, and rows that samples had not shown, change no model."""
    how, tried = {"text": "text", "features": ["more"], "epochs": 3, "memory": "1MB", "hash_bits": 12}, []
    monkeypatch.setattr(HashedColumns, "spills", False)
    expected = cp.train(long_text[form], **how).coef
    monkeypatch.undo()

    def full(out, *_):
        tried.append(out)
        out.write(b"half a batch")
        raise WriteFailed(28, "the disk is full")

    if failure == "full":
        monkeypatch.setattr("corgipile.features.hashed.write_plain", full)
    else:
        monkeypatch.setattr("corgipile.features.hashed.format_bytes", lambda size: tried.append(size) or str(size))
        monkeypatch.setattr("corgipile.features.hashed.MAX_SPILLED", 1 << 18)
        monkeypatch.setattr("corgipile.features.hashed.check_room", lambda *_: None)
        monkeypatch.setattr(HashedColumns, "spills", True)
    assert np.array_equal(cp.train(long_text[form], **how).coef, expected)
    assert len(tried) == 1


@pytest.mark.parametrize("kind", ["csv", "memory", "files"])
def test_spill_off_holds_for_hashed_rows_of_any_format(long_text, tmp_path, monkeypatch, kind):
    spilled = []
    monkeypatch.setattr("corgipile.features.hashed.check_room", lambda *_: spilled.append(kind))
    table = long_text["memory"]
    for part in range(2):
        pa.csv.write_csv(table.slice(1000 * part, 1000), tmp_path / f"{part}.csv")
    source = {"csv": tmp_path / "0.csv", "memory": table, "files": tmp_path}[kind]
    for spill, wanted in (("off", []), (None, [kind])):
        cp.train(cp.open(source, spill=spill), text="text", features=["more"], epochs=2, memory="500KB", hash_bits=12)
        assert spilled == wanted
