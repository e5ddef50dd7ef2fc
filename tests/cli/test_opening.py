"""Options of the command line for opening tables and test tables."""

import json
import sqlite3

import numpy as np
import pytest

from corgipile import cli, tables
from corgipile.cli.opening import options_of
from corgipile.errors import BadArgument
from corgipile.tables.registry import formats

h5py = pytest.importorskip("h5py")


@pytest.fixture
def groups(tmp_path):
    path = tmp_path / "a.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, rows in (("train", 300), ("test", 100), ("auto", 20)):
            label = np.arange(rows) % 2
            file[f"{name}/features"] = (rng.standard_normal((rows, 3)) + label[:, None]).astype("f4")
            file[f"{name}/label"] = label.astype("i4")
    return str(path)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("create table one (x real, label integer)")
        made.execute("create table two (y real, label integer)")
        made.executemany("insert into one values (?, ?)", [(i / 7, i % 2) for i in range(50)])
    made.close()
    return str(path)


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_every_command_opens_by_options(groups, tmp_path, capsys):
    train, test = ["--open", "group=train"], ["--open-test", "group=test"]
    model, out = str(tmp_path / "m.npz"), str(tmp_path / "o.arrow")
    settings = ["--test", groups, "--epochs", "1", "--json"]
    assert cli.main(["train", groups, *train, *test, *settings, "--save", model]) == 0
    assert told(capsys)["history"][0]["rows"] == 300
    assert cli.main(["compare", groups, *train, *test, *settings, "--order", "riffle"]) == 0
    assert told(capsys)["rows"] == 300
    assert cli.main(["predict", model, groups, "--open", "group=test", "--out", out, "--json"]) == 0
    assert told(capsys)["rows"] == 100
    assert cli.main(["info", groups, "--open", "group=auto", "--json"]) == 0  # an ordinary name
    assert told(capsys)["rows"] == 20
    assert cli.main(["convert", groups, out, "--overwrite", *train, "--open", "columns=label", "--json"]) == 0
    assert told(capsys)["rows"] == 300
    assert tables.open(out).schema.names == ["label"]
    assert cli.main(["reshuffle", groups, out, *train, "--json"]) == 0
    assert told(capsys)["rows"] == 300


def test_test_tables_are_opened_alike_or_otherwise(groups, tmp_path, capsys):
    plain = str(tmp_path / "test.arrow")
    assert cli.main(["convert", groups, plain, "--open", "group=test", "-q"]) == 0
    settings = ["train", groups, "--open", "group=train", "--epochs", "1", "--json"]
    assert cli.main([*settings, "--test", groups]) == 0
    assert told(capsys)["history"][0]["rows"] == 300
    assert cli.main([*settings, "--test", plain]) == 2
    assert "group does not apply to" in told(capsys)["error"]["message"]
    assert cli.main([*settings, "--test", plain, "--open-test", "format=arrow"]) == 0


def test_tables_of_databases_and_delimiters(database, tmp_path, capsys):
    assert cli.main(["info", database, "--open", "table=one", "--json"]) == 0
    assert told(capsys)["rows"] == 50
    text = tmp_path / "a.csv"
    text.write_text("a b;c\n1 2;3\n4 5;6\n")
    assert cli.main(["index", str(text), "--open", "delimiter=;", "--open", "header=true", "--json"]) == 0
    assert told(capsys)[0]["rows"] == 2
    assert cli.main(["info", str(text), "--open", "delimiter=;", "--open", "types=c=float32", "--json"]) == 0
    assert told(capsys)["columns"] == {"a b": "string", "c": "float"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["info", "{}", "--open", "gruop=x"], "unknown option 'gruop'; options are columns, decode,"),
        (["info", "{}", "--open", "gruop=x"], "did you mean group?"),
        (["info", "{}", "--open", "train"], "'train' must be KEY=VALUE"),
        (["info", "{}", "--open", "group=a", "--open", "group=b"], "group is given twice"),
        (
            ["info", "{}", "--open", "table=x"],
            "whose format is hdf5; its options are columns, group, paths, spill",
        ),
        (["info", "{}", "--open", "group=valid"], "has no group 'valid'"),
        (["index", "{}", "--open", "group=x"], "needs no index"),
    ],
)
def test_wrong_options(groups, capsys, words, says):
    assert cli.main([word.format(groups) for word in words]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_no_file_of_a_table_is_written_over(groups, capsys):
    assert cli.main(["convert", groups, groups, "--open", "group=train", "--to", "arrow", "--overwrite"]) == 2
    assert "one of the input files" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ('columns="x,1",y', ["x,1", "y"]),
        ('columns=new="old,1","a=b"=c,same', {"new": "old,1", "a=b": "c", "same": "same"}),
        ('columns="q"', ['"q"']),
        ('types="x,1"=float32,"a=b"=int8, y = int8', {"x,1": "float32", "a=b": "int8", "y": "int8"}),
    ],
)
def test_names_with_marks_are_quoted(word, read):
    assert list(options_of([word]).values()) == [read]


def test_types_of_quoted_names(tmp_path):
    (tmp_path / "a.csv").write_text('"x,1",label\n007,1\n008,0\n')
    types = '"x,1"=string'
    assert cli.main(["convert", f"{tmp_path}/a.csv", f"{tmp_path}/a.arrow", "--types", types]) == 0
    assert tables.open(tmp_path / "a.arrow").read(0, 2).column("x,1").to_pylist() == ["007", "008"]


def test_values_are_read_by_their_options():
    words = [
        "version=3",
        "paths=true",
        "zero_based=FALSE",
        "group=3",
        "delimiter=tab",
        "columns=x=a/b,y=c",
        "decode=auto",
    ]
    assert options_of(words) == {
        "version": 3, "paths": True, "zero_based": False, "group": "3", "delimiter": "\t",
        "columns": {"x": "a/b", "y": "c"}, "decode": "auto",
    }  # fmt: skip
    assert options_of(None) == {}
    for option in set().union(*(kind.options for kind in formats().values())):  # also for a new format
        assert list(options_of([f"{option}=x=y"])) == [option]
    with pytest.raises(BadArgument, match="unknown option ''"):
        options_of(["=x"])
