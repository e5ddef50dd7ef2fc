"""Columns of any name on the command line: the same model and answers as under plain names."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile import cli
from corgipile.cli.options import by_column, columns_of, crosses_of
from corgipile.linear import load

NAMES = [
    "features", "label", "weight", "by", "row", "prediction", "ctid", "_id", "epoch", "", " ", '"', "'", "a.b", "a,b",
    "a=b", "a:b", "sélection", "日本", "FEATURES", "Label", "ORDER", "é" * 31, "n" * 63, "-x", "--label", "*", "%s",
    "1", 'a,"b', "balanced",
]  # fmt: skip
PLAIN = [f"c{at}" for at in range(6)]
WAYS = {
    "weight": ("--features", "{0},{4}", "--encode", "{4}=onehot", "--weight", 2),
    "by": ("--features", "{0},{2}", "--by", 3),
    "group": ("--features", 0, "--validation", "0.25", "--group", 3),
    "text": ("--features", 0, "--text", 4, "--hash-bits", "8"),
    "balance": ("--order", "riffle", "--balance", 3, "--encode", "onehot"),
}


def quoted(name):
    """Write a name as one of several."""
    return '"' + name.replace('"', '""') + '"' if {*name} & {*",:="} else name


def rows(names):
    random = np.random.default_rng(3)
    x, weight = random.normal(size=120), random.random(120)
    words = [("red", "green blue", "blue")[at] for at in random.integers(3, size=120)]
    columns = [x, (x > 0.1).astype(int), weight, np.arange(120) % 4, words, np.arange(120) % 2]
    return pa.table([pa.array(one) for one in columns], names)


def answers(folder, names, way, capsys):
    table, model, many = str(folder / "t.parquet"), str(folder / "m"), [quoted(name) for name in names]
    pq.write_table(rows(names), table)
    plain = ("--features", "--text", "--encode")
    words = [one if isinstance(one, str) else many[one] if before in plain else names[one]
             for before, one in zip(("", *WAYS[way]), WAYS[way], strict=False)]  # fmt: skip
    words = [one.format(*many) if "{" in one else one for one in words]
    assert cli.main(["train", table, "--label", names[1], *words, "--epochs", "2", "--save", model, "--quiet"]) == 0
    assert cli.main(["predict", model, table]) == 0
    assert cli.main(["judge", model, table, "--json"]) == 0
    found = load(model)
    return capsys.readouterr().out, found.coef.tobytes(), found.intercept.tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_models_are_the_same_whatever_columns_are_called(way, tmp_path, capsys):
    wanted = answers(tmp_path, PLAIN, way, capsys)
    for at in range(0, len(NAMES), 4):
        names = (NAMES + NAMES)[at : at + 6]
        assert answers(tmp_path, names, way, capsys) == wanted, names


def test_quotes_hold_names_with_marks():
    assert columns_of('x,"y,z","w"') == ["x", "y,z", '"w"']
    assert columns_of('5",7"') == ['5"', '7"']
    assert columns_of("x,") == ["x", ""]
    assert columns_of('"x,y"') == "x,y"
    assert by_column('"a,b"=onehot,c=d=hash:64') == {"a,b": "onehot", "c=d": "hash:64"}
    assert crosses_of('a:"b,c","d:e"') == [("a", "b,c"), ("d:e",)]


def test_labels_and_columns_hold_names_with_marks(tmp_path, capsys):
    names = ["x", "a,b", "w", "k", "t", "c"]
    table, model = str(tmp_path / "t.parquet"), str(tmp_path / "m")
    pq.write_table(rows(names), table)
    assert cli.main(["train", table, "--features", "x", "--labels", '"a,b",c', "--save", model, "--quiet"]) == 0
    assert cli.main(["judge", model, table, "--label", '"a,b",c', "--json"]) == 0
    assert [one["label"] for one in json.loads(capsys.readouterr().out)["labels"]] == ["a,b", "c"]
    assert cli.main(["convert", table, str(tmp_path / "u.parquet"), "--columns", 'x,"a,b"', "--quiet"]) == 0
    assert pq.read_table(tmp_path / "u.parquet").column_names == ["x", "a,b"]
