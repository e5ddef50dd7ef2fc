"""The commands train, predict and compare."""

import importlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import corgipile as cp
from corgipile import cli, tables
from corgipile.cli import options
from corgipile.datasets import higgs_like
from corgipile.errors import BadArgument
from corgipile.linear import load, passes
from corgipile.orders import CorgiPile, Riffle


@pytest.fixture(scope="module")
def higgs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    higgs_like(folder / "train.arrow", 20_000, features=6, test=folder / "test.arrow", test_rows=3000)
    return str(folder / "train.arrow"), str(folder / "test.arrow")


@pytest.fixture(scope="module")
def model(higgs, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "m.safetensors")
    words = ["--test", higgs[1], "--memory", "1MB", "--epochs", "2", "--order", "balanced", "--save", path]
    assert cli.main(["train", higgs[0], *words]) == 0
    return path


def test_train_shows_epochs_and_saves(higgs, tmp_path, capsys):
    path = str(tmp_path / "m.safetensors")
    assert cli.main(["train", higgs[0], "--epochs", "2", "--order", "full", "--save", path, "--test", higgs[1]]) == 0
    told = capsys.readouterr()
    above, names, *_ = told.out.splitlines()
    assert names.split() == ["epoch", "loss", "accuracy", "loss", "accuracy", "seconds", "rows/s"]
    assert above.split() == ["running", "running", "test", "test"]
    assert f"model written to {path}" in told.out
    assert "train: " in told.err
    assert len(load(path).history) == 2


def test_train_prints_one_json_document(higgs, capsys):
    words = ["--model", "svm", "--epochs", "3", "--seed", "4", "--block", "50", "--buffer", "2000", "--json"]
    assert cli.main(["train", higgs[0], *words]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert told.err == ""
    assert document["model"] == "svm"
    assert document["shape"] == [1, 6]
    assert [record["epoch"] for record in document["history"]] == [0, 1, 2]
    assert document["history"][-1]["loss"] < 1


def test_train_leaves_rows_out_to_measure_on(higgs, capsys):
    words = ["train", higgs[0], "--epochs", "1", "--json", "--validation", "0.2"]
    assert cli.main(words) == 0
    record = json.loads(capsys.readouterr().out)["history"][0]
    assert abs(record["rows"] - 16_000) < 5 * (20_000 * 0.16) ** 0.5
    assert record["test_accuracy"] > 0.5
    assert cli.main([*words, "--group", "label"]) == 2  # with two groups, one class can be missing from training
    capsys.readouterr()
    for more, message in ((["--test", higgs[1]], "give one of them"), (["--validation", "2"], "between 0 and 1")):
        assert cli.main([*words, *more]) == 2
        assert message in capsys.readouterr().out
    assert cli.main(["train", higgs[0], "--group", "label"]) == 2
    assert "group needs validation: give a share" in capsys.readouterr().err


def messy(folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    rows = {"id": np.arange(500), "x": x[:, 0], "y": 1e5 * x[:, 1], "name": ["n"] * 500, "label": (x[:, 0] > 0) * 1}
    pq.write_table(pa.table(rows), folder / "messy.parquet")
    return str(folder / "messy.parquet")


def test_train_says_what_it_learns_from(tmp_path, capsys):
    assert cli.main(["train", messy(tmp_path), "--save", str(tmp_path / "m.safetensors")]) == 0
    told = capsys.readouterr().err
    assert "corgipile: features: 'id', 'x', 'y' (3); label: label" in told
    assert "columns left out: 'name' (string)" in told
    assert "'id' looks like a row number" in told
    assert "they are standardised" in told
    assert load(tmp_path / "m.safetensors").left_out == {"name": "string"}
    assert (
        cli.main(["train", messy(tmp_path), "--features", "x,y", "--no-standardize", "--step", "decay", "--json"]) == 0
    )
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert told.err == ""
    assert document["features"] == ["x", "y"]
    assert (document["label"], document["left_out"], document["diverged"]) == ("label", {}, False)
    assert any("standardize=True would help" in note for note in document["notes"])
    assert document["params"]["learning_rate"] < 0.01


@pytest.mark.parametrize("words", [["--learning-rate", "1000"], ["--no-standardize", "--learning-rate", "0.01"]])
def test_divergence_is_told_and_exit_code_1(tmp_path, words, capsys):
    path = str(tmp_path / "m.safetensors")
    assert cli.main(["train", messy(tmp_path), *words, "--save", path]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("corgipile: training diverged: the loss is")
    assert "try learning_rate=" in last
    assert len(load(path).history) == 5
    assert cli.main(["train", messy(tmp_path), *words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diverged"] is True


def test_predict_finds_columns_by_name(tmp_path, capsys):
    source, path = messy(tmp_path), str(tmp_path / "m.safetensors")
    assert cli.main(["train", source, "--epochs", "1", "--features", "x,y", "--save", path]) == 0
    pq.write_table(pq.read_table(source).select(["y", "label", "x"]), tmp_path / "turned.parquet")
    pq.write_table(pq.read_table(source).select(["y"]), tmp_path / "less.parquet")
    for name in ("messy", "turned"):
        assert cli.main(["predict", path, str(tmp_path / f"{name}.parquet"), "--out", f"{tmp_path}/{name}.npy"]) == 0
    assert (np.load(tmp_path / "messy.npy") == np.load(tmp_path / "turned.npy")).all()
    capsys.readouterr()
    assert cli.main(["predict", path, str(tmp_path / "less.parquet")]) == 2
    assert "no column 'x'" in capsys.readouterr().err


def test_classes_of_text_are_predicted_to_any_goal(tmp_path, capsys):
    source, path = str(tmp_path / "t.csv"), str(tmp_path / "m.safetensors")
    words = ["no", "maybe"] * 50
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{i % 2},{word}\n" for i, word in enumerate(words)))
    assert cli.main(["train", source, "--epochs", "5", "--save", path, "-q"]) == 0
    for name in ("p.arrow", "p.npy"):
        assert cli.main(["predict", path, source, "--out", str(tmp_path / name), "-q"]) == 0
    assert cp.open(tmp_path / "p.arrow").read(0, 100).column(0).to_pylist() == words
    assert np.load(tmp_path / "p.npy").tolist() == words
    capsys.readouterr()
    assert cli.main(["predict", path, source]) == 0
    assert capsys.readouterr().out.split() == words


def test_compare_tells_divergence_and_says_things_once(tmp_path, capsys, caplog):
    words = ["--order", "full,riffle", "--learning-rate", "1000", "--epochs", "1"]
    assert cli.main(["compare", messy(tmp_path), *words]) == 0
    assert capsys.readouterr().out.count("training diverged") == 2
    assert caplog.text.count("columns left out") == 1


def test_a_model_goes_on(higgs, model, tmp_path, capsys):
    path = str(tmp_path / "more.safetensors")
    assert cli.main(["train", higgs[0], "--epochs", "1", "--warm-start", model, "--save", path]) == 0
    capsys.readouterr()
    assert len(load(path).history) == 3


def test_predictions_agree_wherever_they_go(higgs, model, tmp_path, capsys):
    expected = load(model).predict(higgs[1])
    assert cli.main(["predict", model, higgs[1], "--out", str(tmp_path / "p.npy")]) == 0
    assert np.array_equal(np.load(tmp_path / "p.npy"), expected)
    assert cp.open(tmp_path / "p.npy").read(0, 3000).column(0).to_pylist() == expected.tolist()
    assert cli.main(["predict", model, higgs[1], "--out", str(tmp_path / "p.arrow"), "--json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told[told.index("{") :])["rows"] == 3000
    written = tables.open(tmp_path / "p.arrow")
    assert np.array_equal(written.read(0, 3000)["prediction"], expected)
    assert cli.main(["predict", model, higgs[1]]) == 0
    assert np.array_equal(np.array(capsys.readouterr().out.split(), int), expected)


def test_an_array_of_predictions_is_replaced_by_others_but_no_other_array(higgs, model, tmp_path, capsys):
    words = ["predict", model, higgs[1], "--out", str(path := tmp_path / "p.npy")]
    for what, shape in (("predict_proba", (3000, 2)), ("decision", (3000,)), ("predict", (3000,))):
        assert cli.main([*words, "--what", what]) == 0
        assert np.load(path, mmap_mode="r").shape == shape
    predicted = np.load(path)
    for other in (lambda: np.save(path, predicted), lambda: path.write_bytes(b"no array at all")):
        other()
        before = path.read_bytes()
        assert cli.main(words) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert path.read_bytes() == before
    assert cli.main([*words, "--overwrite"]) == 0
    assert np.array_equal(np.load(path), predicted)


def test_probabilities_and_decisions(higgs, model, tmp_path, capsys):
    for what in ("predict_proba", "decision"):
        assert cli.main(["predict", model, higgs[1], "--out", str(tmp_path / f"{what}.npy"), "--what", what]) == 0
    both, scores = np.load(tmp_path / "predict_proba.npy"), np.load(tmp_path / "decision.npy")
    assert both.shape == (3000, 2)
    assert np.allclose(both[:, 1], expit(scores), atol=1e-6)
    assert cli.main(["predict", model, higgs[1], "--what", "predict_proba", "--out", str(tmp_path / "p.arrow")]) == 0
    assert tables.open(tmp_path / "p.arrow").schema.field("prediction").type.list_size == 2
    capsys.readouterr()
    assert cli.main(["predict", model, higgs[1], "--what", "predict_proba"]) == 0
    assert np.allclose(np.loadtxt(capsys.readouterr().out.splitlines()), both)


def test_compare_prints_a_table(higgs, capsys):
    words = ["--test", higgs[1], "--memory", "200KB", "--epochs", "1", "--order", "no_shuffle,balanced,shuffle_once"]
    assert cli.main(["compare", higgs[0], *words]) == 0
    told = capsys.readouterr().out
    assert all(
        word in told for word in ("test accuracy", "no_shuffle", "balanced", "deff", "for writing the table once")
    )


def test_a_comparison_of_failures_alone_is_one(higgs, capsys):
    words = ["--memory", "100KB", "--epochs", "1", "--order", "corgipile", "--block", "2000"]
    assert cli.main(["compare", higgs[0], *words]) == 1
    assert cli.main(["compare", higgs[0], *words, "--json"]) == 1
    assert '"failure": "memory' in capsys.readouterr().out


def test_an_interrupted_comparison_shows_what_is_finished(higgs, monkeypatch, capsys):
    module = importlib.import_module("corgipile.comparison")
    run = module._run

    def interrupted(order, plan):
        if order.name == "full":
            raise KeyboardInterrupt
        return run(order, plan)

    monkeypatch.setattr(module, "_run", interrupted)
    words = ["compare", higgs[0], "--epochs", "1", "--order", "no_shuffle,full,riffle"]
    assert cli.main(words) == 130
    told = capsys.readouterr()
    assert "no_shuffle" in told.out
    assert told.err.splitlines()[-1] == "corgipile: interrupted"
    assert cli.main([*words, "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["stopped"]
    assert [result["order"] for result in document["results"]] == ["no_shuffle"]


def test_compare_prints_one_json_document(higgs, capsys):
    words = ["--memory", "100KB", "--epochs", "1", "--order", "full,corgipile", "--block", "2000", "--json"]
    assert cli.main(["compare", higgs[0], *words]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert told.err == ""
    assert document["rows"] == 20_000
    assert document["corgipile"] == cp.__version__
    assert document["table"]["paths"] == [higgs[0]]
    assert document["settings"]["seed"] == 0
    assert document["settings"]["order"] == ["full", "corgipile"]
    assert document["machine"]["python"]
    full, corgipile = document["results"]
    assert full["order"] == "full"
    assert full["scores"][0] > 0.6
    assert "memory" in corgipile["failure"]
    assert corgipile["loss"] is None
    assert cli.main(["compare", higgs[0], *words[:-1]]) == 0
    assert "corgipile: memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "{}", "--order", "sorted"], "no order is named 'sorted'"),
        (["train", "{}", "--model", "forest"], "model must be one of"),
        (["train", "{}", "--label", "target"], "no column 'target'"),
        (["train", "{}", "--memory", "1B"], "memory"),
        (["train", "{}", "--balance", "label", "--order", "full"], "balance needs order riffle"),
        (["train", "{}", "--block", "100", "--order", "full"], "visits single rows"),
        (["train", "{}", "--block", "huge"], "block must be rows (1000), bytes"),
        (["train", "{}", "--model", "linear", "--learning-rate", "9"], "training diverged in epoch 0"),
        (["predict", "/nowhere.safetensors", "{}"], "nowhere"),
        (["predict", "{m}", "{}", "--out", "a.txt"], "a name ending in .arrow or .npy"),
        (["predict", "{m}", "{}", "--what", "guess"], "got 'guess'"),
        (["compare", "{}", "--order", "riffle,random"], "no order is named 'random'"),
    ],
)
def test_bad_requests_are_one_line_and_code_2(higgs, model, words, message, capsys):
    capsys.readouterr()
    assert cli.main([word.format(higgs[0], m=model) for word in words]) == 2
    told = capsys.readouterr()
    assert message in told.err.splitlines()[-1]
    assert told.err.startswith("corgipile: ")
    assert told.out == ""


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["predict", "{m}", "{}"], "BadArgument", "--out FILE"),
        (["train", "{}", "--epochs", "many"], "Usage", "a valid integer"),
        (["train", "{}", "--memry", "1"], "Usage", "--memory"),
        (["info", "/nowhere"], "MissingFile", "/nowhere"),
        (["train", "{}", "--model", "linear", "--learning-rate", "9"], "Diverged", "learning"),
    ],
)
def test_errors_are_json_too(higgs, model, words, kind, message, capsys):
    capsys.readouterr()
    assert cli.main([*(word.format(higgs[0], m=model) for word in words), "--json"]) == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["type"], error["code"]) == (kind, 2)
    assert message in error["message"]
    assert told.err == ""


def test_interrupted_training_writes_no_model(higgs, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("corgipile.linear.passes.learn", interrupted)
    assert cli.main(["train", higgs[0], "--save", str(tmp_path / "m.safetensors")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_interrupted_training_says_how_to_go_on(higgs, tmp_path, monkeypatch, capsys):
    path, learn = str(tmp_path / "m.safetensors"), passes.learn

    def interrupted(sgd, feeder, label, rate, epoch, *told, **also):
        if epoch:
            raise KeyboardInterrupt
        return learn(sgd, feeder, label, rate, epoch, *told, **also)

    monkeypatch.setattr("corgipile.linear.passes.learn", interrupted)
    assert cli.main(["train", higgs[0], "--save", path]) == 130
    assert f"continue with --warm-start {path}" in capsys.readouterr().err
    assert len(load(path).history) == 1


def test_an_array_that_is_none_is_not_replaced(higgs, model, tmp_path, capsys):
    path = tmp_path / "p.npy"
    for header in (b"(" * 69 + b"\n", b"{[]:1}" + b" " * 63 + b"\n"):
        path.write_bytes(b"\x93NUMPY\x01\x00\x46\x00" + header)
        assert cli.main(["predict", model, higgs[1], "--out", str(path)]) == 2
        assert "--overwrite" in capsys.readouterr().err


def test_npy_features_and_labels_are_named_together(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", (x[:, 0] > 0).astype(np.int8))
    pair = f"{tmp_path}/x.npy,{tmp_path}/y.npy"
    assert cli.main(["train", pair, "--test", pair, "--epochs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["history"][0]["test_accuracy"] > 0.8
    assert cli.main(["info", pair]) == 0
    assert "column label" in capsys.readouterr().out


def test_orders_from_words():
    assert options.order_of("balanced", None, None, None, "target") == Riffle(balance="target")
    assert options.order_of("riffle", "100", "2%", "x", "label") == Riffle(block=100, buffer="2%", balance="x")
    assert options.order_of("balanced", None, None, "content", "label") == Riffle(balance="content")
    assert options.order_of("corgipile", "256KB", None, None, "label") == CorgiPile(block="256KB")
    with pytest.raises(BadArgument, match="no order"):
        options.order_of("", None, None, None, "label")
