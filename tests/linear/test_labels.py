"""Models of labels trained in one pass equal those trained one by one."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.cli import main
from corgipile.errors import BadArgument, BadLabel, BadModelFile, BadSchema, BadValue, BudgetTooSmall, MissingColumn
from corgipile.linear import label_sets
from corgipile.linear.label_sets import find_label_sets
from corgipile.linear.model import unpack
from corgipile.loader.default_order import chosen
from corgipile.tables import open as open_table

NAMES = ["d", "a", "c", "b"]
ROWS = 600
ORDER = cp.orders.Riffle(block=20, buffer=200)


@pytest.fixture(scope="module")
def rows():
    """Return a table with labels in columns and in lists, clustered by the first."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 5)).astype(np.float32)
    there = x @ rng.normal(size=(5, 4)) + rng.normal(size=(ROWS, 4)) / 3 > 0.4
    x, there = (part[np.argsort(there[:, 0], kind="stable")] for part in (x, there))
    columns = {f"x{i}": x[:, i] for i in range(5)} | {name: there[:, at] for at, name in enumerate(NAMES)}
    columns["c"] = columns["c"].astype(np.int8)
    tags = [[name for name, one in zip(NAMES, row, strict=True) if one] for row in there.tolist()]
    words = [" ".join(f"w{at}" for at in np.flatnonzero(row > 0)) for row in x]
    return pa.table({**columns, "tags": tags, "w": rng.integers(0, 3, ROWS) / 2, "words": words})


FEATURES = [f"x{i}" for i in range(5)]
HOW = {
    "plain": {},
    "standardised": {"standardize": True},
    "a rate for each weight": {"step": "adagrad"},
    "hinge": {"model": "svm", "step": "decay", "l1": 1e-3},
    "batches": {"model": "squared_hinge", "batch_size": 16, "average": True, "l2": 1e-3},
    "weights": {"weight": "w", "step": "adagrad"},
    "text": {"features": None, "text": "words", "hash_bits": 6},
    "text, scaled": {"features": None, "text": "words", "hash_bits": 6, "standardize": True, "step": "adam"},
}


@pytest.mark.parametrize("case", HOW)
def test_each_is_the_model_that_learns_alone(rows, case):
    how = {"features": FEATURES, "order": ORDER, "memory": None, "epochs": 3, **HOW[case]}
    models = cp.train(rows, labels="tags", **how)
    beside = cp.train(rows, labels=NAMES, **how)
    assert (models.labels, beside.labels) == (sorted(NAMES), NAMES)
    for name in NAMES:
        alone = cp.train(rows, label=name, **how)
        for some in (models, beside):
            one = some.of(name)
            assert np.array_equal(one.coef, alone.coef)
            assert np.array_equal(one.intercept, alone.intercept)
            assert np.array_equal(some.decision(rows)[:, some.labels.index(name)], alone.decision(rows))
            assert np.array_equal(some.predict(rows)[:, some.labels.index(name)], alone.predict(rows))
        if how.get("model", "logistic") == "logistic":
            chance = models.predict_proba(rows)[:, models.labels.index(name)]
            assert np.array_equal(chance, alone.predict_proba(rows)[:, 1])


def test_many_labels_are_learnt_by_several_threads():
    """Twenty models, several per thread, some vectorised."""
    rng = np.random.default_rng(7)
    x, names = rng.normal(size=(400, 3)).astype(np.float32), [f"y{at}" for at in range(20)]
    there = x @ rng.normal(size=(3, 20)) + rng.normal(size=(400, 20)) / 3 > 0.2
    columns = {name: there[:, at] for at, name in enumerate(names)}
    rows = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3), **columns})
    for step in ("constant", "adagrad"):
        models = cp.train(rows, labels=names, features="x", order=ORDER, epochs=2, step=step)
        for name in names[::6]:
            alone = cp.train(rows, label=name, features="x", order=ORDER, epochs=2, step=step)
            assert np.array_equal(models.of(name).coef, alone.coef)


def test_figures_are_those_of_scikit_learn(rows):
    metrics = pytest.importorskip("sklearn.metrics")
    models = cp.train(rows, labels="tags", features=FEATURES, epochs=1)
    truth = np.stack([rows[name].to_numpy(zero_copy_only=False).astype(int) for name in models.labels], axis=1)
    guess, found = models.predict(rows), models.measure(rows)
    for mean in ("micro", "macro"):
        wanted = metrics.precision_recall_fscore_support(truth, guess, average=mean, zero_division=0)
        assert np.allclose([found[f"{what}_{mean}"] for what in ("precision", "recall", "f1")], wanted[:3])
    assert np.isclose(found["subset_accuracy"], metrics.accuracy_score(truth, guess))
    assert np.isclose(found["accuracy"], (truth == guess).mean())
    alone = [models.of(name).measure(rows, label=name) for name in models.labels]
    assert np.isclose(found["loss"], np.mean([one["loss"] for one in alone]))
    each = metrics.precision_recall_fscore_support(truth, guess, zero_division=np.nan)
    table = models.label_metrics(rows)
    assert np.allclose([table[what] for what in ("precision", "recall", "f1", "rows")], each, equal_nan=True)
    weights = rows["w"].to_numpy()
    weighed = metrics.precision_recall_fscore_support(truth, guess, average="micro", sample_weight=weights)
    found = models.measure(rows, weight="w")
    assert np.allclose([found[f"{what}_micro"] for what in ("precision", "recall", "f1")], weighed[:3])
    assert models.measure(rows, sorted(NAMES)) == models.measure(rows)


def test_sets_are_what_is_predicted(rows):
    models = cp.train(rows, labels="tags", features=FEATURES)
    guess = models.predict(rows)
    assert guess.shape == (ROWS, 4)
    assert set(np.unique(guess)) == {0, 1}
    assert [[models.labels[at] for at in np.flatnonzero(row)] for row in guess] == models.sets(rows)
    array = np.stack([rows[name].to_numpy() for name in FEATURES], axis=1)
    assert np.array_equal(models.predict(array), guess)
    again = unpack(models.pack())
    assert type(again) is type(models)
    assert np.array_equal(again.predict(rows), guess)
    assert again.measure(rows) == models.measure(rows)


@given(st.lists(st.lists(st.integers(-3, 40), max_size=5), min_size=1, max_size=40), st.booleans())
@settings(max_examples=40, deadline=None)
def test_sets_of_labels_are_what_the_lists_say(lists, texts):
    said = [[str(one) for one in row] if texts else row for row in lists]
    table = open_table(pa.table({"tags": pa.array(said, pa.list_(pa.large_string() if texts else pa.int16()))}))
    if not any(said):
        with pytest.raises(BadLabel, match="are empty"):
            find_label_sets(table, "tags")
        return
    found = find_label_sets(table, "tags")
    assert found.labels == sorted({one for row in said for one in row})
    made = [{found.labels[at] for at in np.flatnonzero(row)} for row in found.sets[found.numbers]]
    assert made == [set(row) for row in said]
    assert found.counts.tolist() == [sum(label in row for row in said) for label in found.labels]


@pytest.mark.parametrize("labels", [3, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("piece", [1 << 22, 50])
def test_sets_are_numbered_ascending(labels, piece, monkeypatch):
    """Set numbers do not depend on the batch size, so that PostgreSQL has the same."""
    monkeypatch.setattr(label_sets, "PIECE", piece)
    there = np.random.default_rng(labels).integers(0, 9, (500, labels)) == 0
    there[::7] = there[0]
    found = find_label_sets(
        open_table(pa.table({f"y{at}": there[:, at] for at in range(labels)})), list(map("y{}".format, range(labels)))
    )
    assert np.array_equal(found.sets[found.numbers], there)
    assert np.array_equal(found.sets, np.unique(there, axis=0))
    lists = pa.array([np.flatnonzero(row).tolist() for row in there], pa.list_(pa.int64()))
    assert np.array_equal(find_label_sets(open_table(pa.table({"y": lists})), "y").numbers, found.numbers)


def table_of(tags, **more):
    """Return a table with a feature and lists of labels."""
    kind = more.pop("kind", pa.list_(pa.string()))
    return pa.table({"x": np.arange(len(tags), dtype=np.float32), "tags": pa.array(tags, kind), **more})


B = [0, 0, 1, 1]
SOME = [["a"], ["b"], [], ["a", "b"]]
WRONG = {
    "a null list": (table_of([["a"], None]), "tags", BadValue, "row 1 of label column 'tags' is null; an empty list"),
    "a null label": (table_of([["a"], [], ["b", None]]), "tags", BadValue, "row 2 of label column 'tags' holds a null"),
    "no label": (table_of([[], []]), "tags", BadLabel, "all lists of label column 'tags' are empty"),
    "one that all have": (table_of([["a"], ["a", "b"]]), "tags", BadLabel, "all of 2 rows have label 'a'"),
    "fractions": (table_of([[0.5]], kind=pa.list_(pa.float32())), "tags", BadSchema, "list<.*float>; lists of text"),
    "no label of any type": (table_of([[], []], kind=pa.list_(pa.null())), "tags", BadLabel, "are empty; at least"),
    "nulls of no type": (table_of([[], [None]], kind=pa.list_(pa.null())), "tags", BadValue, "row 1 .* holds a null"),
    "no list": (table_of(SOME), "x", BadSchema, "label column 'x' is float; lists of text"),
    "one of 0 and 1": (table_of(SOME, a=[0, 1, 1, 0]), ["a"], BadSchema, "'a' is int64; .*; .* use label='a'$"),
    "text": (table_of(SOME, t=["a,b", "a", "", "b"]), "t", BadSchema, r"string; .*split_pattern\(.*\), or json"),
    "no column": (table_of(SOME), "tag", MissingColumn, "tag"),
    "twos": (table_of(SOME, a=[0, 1, 2, 0], b=[0, 0, 1, 1]), ["a", "b"], BadLabel, "row 2 of label column 'a' is 2"),
    "a null of a column": (table_of(SOME, a=[0, 1, None, 0], b=B), ["a", "b"], BadLabel, "'a' is None; 0 or 1"),
    "text of a column": (table_of(SOME, a=list("0101"), b=B), ["a", "b"], BadSchema, "'a' is string; 0 and 1"),
    "none of a column": (table_of(SOME, a=[0] * 4, b=B), ["a", "b"], BadLabel, "none of 4 rows have label 'a'"),
    "twice": (table_of(SOME, a=[0, 0, 1, 1]), ["a", "a"], BadArgument, "names a column twice"),
    "a taken name": (table_of(SOME, a=[0, 1, 1, 0], b=B, **{"\x1flabels": [0] * 4}), ["a", "b"], BadArgument, "rename"),
    "no rows": (table_of([]), "tags", BadValue, "has no rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_labels_are_refused(case):
    table, labels, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        cp.train(table, labels=labels, features="x")


ALONE = {
    "solver": "dual", "by": "x", "test": table_of(SOME), "validation": 0.5, "classes": [0, 1], "label": "tags",
    "class_weight": "balanced", "model": "softmax", "features": "tags", "weight": "tags",
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_settings_of_one_model_are_refused(name):
    with pytest.raises(BadArgument, match=r"must be left out with labels|with labels, got 'softmax'|label"):
        cp.train(table_of(SOME), labels="tags", **{"features": "x", name: ALONE[name]})


def test_a_regression_and_little_memory_are_refused(rows):
    with pytest.raises(BadArgument, match="with labels, got 'linear'"):
        cp.train(rows, labels="tags", features=FEATURES, model="linear")
    with pytest.raises(BudgetTooSmall, match=r"models of 4 labels take \d+ bytes and the labels of 600 rows"):
        cp.train(rows, labels="tags", features=FEATURES, memory=6000)
    with pytest.raises(BudgetTooSmall, match=r"of 600 rows take at least [0-9.]+ KB, more than half of memory, 1000 B"):
        cp.train(rows, labels="tags", features=FEATURES, memory=2000)


def test_labels_of_which_each_is_of_few_rows_are_asked_about(caplog):
    tags = [[f"u{row}"] for row in range(150)]
    models = cp.train(table_of(tags), labels="tags", epochs=1)
    assert "label column 'tags' has 150 labels in 150 rows: does it hold ids?" in caplog.text
    assert "does it hold ids" in models.params["notes"][-1]
    caplog.clear()
    cp.train(table_of(tags[:90]), labels="tags", epochs=1)
    assert "does it hold ids" not in caplog.text


def test_more_labels_than_the_memory_has_room_for_are_refused_while_they_are_found(monkeypatch):
    looked = []
    monkeypatch.setattr(label_sets, "_from_lists", lambda *_: looked.append(1))
    many = pa.table({"x": np.zeros(40_000), "tags": [[f"label {row}"] for row in range(40_000)]})
    with pytest.raises(BudgetTooSmall, match=r"'tags' has more than \d{4,5} labels, .* half of memory, 977 KB"):
        cp.train(many, labels="tags", features="x", memory=2_000_000)
    assert not looked


def test_what_a_model_does_not_know_is_refused(rows):
    models = cp.train(rows, labels="tags", features=FEATURES, epochs=1)
    with pytest.raises(BadLabel, match="row 1 of label column 'tags' has 'z', which is none of the labels"):
        models.measure(table_of([["a"], ["z"]], **{name: [0.0, 1.0] for name in FEATURES}))
    with pytest.raises(BadSchema, match="holds int64; the labels are such as 'a'"):
        models.measure(table_of([[1]], kind=pa.list_(pa.int64()), **{name: [0.0] for name in FEATURES}))
    with pytest.raises(BadArgument, match="label 'z' has no model"):
        models.of("z")
    with pytest.raises(BadArgument, match="label must name 4 columns, one per label, got 2"):
        models.measure(rows, ["a", "b"])
    with pytest.raises(BadArgument, match="standard errors need one model"):
        models.summary(rows)
    for labels in ([], ["a"], ["a", "a", "b", "c"], [1.5, 2, 3, 4], "abcd"):
        models.params["labels"] = labels
        with pytest.raises(BadModelFile):
            unpack(models.pack())


@pytest.mark.parametrize("labels", ["tags", NAMES])
def test_blocks_are_balanced_by_sets(tmp_path, rows, labels):
    pq.write_table(rows, tmp_path / "rows.parquet")
    for table in (open_table(rows), open_table(tmp_path / "rows.parquet")):
        found = find_label_sets(table, labels)
        assert chosen("auto", found.table(table), found.name).title == f"balanced by {found.name!r}"


def test_one_model_does_not_go_on_from_several(rows):
    how = {"features": FEATURES, "epochs": 1, "order": ORDER}
    models = cp.train(rows, labels="tags", **how)
    with pytest.raises(BadArgument, match=r"by group or label; use of\(...\)"):
        cp.train(rows, label="a", warm_start=models, **how)
    assert len(cp.train(rows, label="a", warm_start=models.of("a"), **how).history) == 2
    for more in ({"labels": "tags"}, {"label": "a", "by": "b"}, {"label": "a", "solver": "dual", "l2": 0.1}):
        with pytest.raises(BadArgument, match=r"got warm_start=.{,40}( with .*)?$"):
            cp.train(rows, warm_start=models, features=FEATURES, **more)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_one_model_says_what_lists_of_labels_are_for(kind):
    with pytest.raises(BadSchema, match=r"; for lists of labels use labels="):
        cp.train(pa.table({"x": [0.5, 1.5], "tags": pa.array([["1"], []]).cast(pa.list_(kind))}), label="tags")


def test_lists_of_one_length_are_lists(rows):
    pairs = pa.array([["a", "b"], ["b", "c"]] * 20, pa.list_(pa.string(), 2))
    for part, start in ((pairs, 0), (pairs.slice(1), 1)):
        found = find_label_sets(open_table(pa.table({"t": part})), "t")
        assert [[found.labels[at] for at in np.flatnonzero(found.sets[one])] for one in found.numbers] == (
            pairs.to_pylist()[start:]
        )


def test_what_the_command_says_is_right_of_several_models(tmp_path, capsys, rows):
    pq.write_table(rows.select([*FEATURES, "a", "c"]), tmp_path / "rows.parquet")
    train = ["train", str(tmp_path / "rows.parquet"), "--epochs", "1", "--features", ",".join(FEATURES)]
    for more, told in ((["--label", "a"], True), (["--labels", "a,c"], False), (["--label", "a", "--by", "c"], False)):
        assert main([*train, *more]) == 0
        assert ("--test" in capsys.readouterr().out) == told


def test_the_command_trains_and_predicts(tmp_path, capsys, rows):
    pq.write_table(rows.select([*FEATURES, "tags"]), tmp_path / "rows.parquet")
    path, model = str(tmp_path / "rows.parquet"), str(tmp_path / "m.safetensors")
    assert main(["train", path, "--labels", "tags", "--save", model, "--epochs", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["params"]["labels"], said["shape"]) == (sorted(NAMES), [4, 5])
    assert main(["predict", model, path]) == 0
    out, told = capsys.readouterr()
    assert told == "corgipile: each row has a number for the labels 'a', 'b', 'c', 'd'\n"
    lines = [list(map(int, line.split())) for line in out.splitlines()]
    assert lines == cp.load(model).predict(rows).tolist()
    assert main(["predict", model, path, "--out", str(tmp_path / "p.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == sorted(NAMES)
    models = cp.load(model)
    assert main(["evaluate", model, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "figures": models.measure(path),
        "rows": 600,
        "labels": models.label_metrics(path).to_pylist(),
    }
    assert main(["evaluate", model, path]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in shown[-4:]] == sorted(NAMES)
    for words in (["--bins", "5"], ["--on-bad", "skip"], ["--positive", "a"]):
        assert main(["evaluate", model, path, *words]) == 2
        assert capsys.readouterr().err.startswith(f"corgipile: {words[0]} must be omitted for a model")
    pq.write_table(rows.select([*FEATURES, *NAMES]), tmp_path / "rows.parquet")
    assert main(["train", path, "--labels", ",".join(NAMES), "--epochs", "1", "--quiet"]) == 0
