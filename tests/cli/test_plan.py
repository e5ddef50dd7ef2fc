"""`corgipile plan`, as a user runs it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile import cli
from corgipile.cli.plan import price_of
from corgipile.errors import BadArgument


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "rows.parquet"
    table = pa.table({"x": np.random.default_rng(0).random(20_000), "label": np.arange(20_000) // 2000})
    pq.write_table(table, path, row_group_size=5000)
    return str(path)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_it_fits_the_terminal_and_says_how_to_ask(path, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["plan", path, "--memory", "1MB", "--seconds", "0.01", "--price", "0.0004/1000GET"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines()[1:])) <= columns
    assert "orders." in shown
    assert "requests" in shown


def test_json(path, capsys):
    assert cli.main(["plan", path, "--memory", "1MB", "--seconds", "0", "--price", "2e-6", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["best"]["deff"] <= 1.1
    assert facts["best"]["price"] == pytest.approx(2e-6 * facts["best"]["reads"])
    assert facts["labels"] == "label"


def test_what_cannot_be(path, capsys):
    assert cli.main(["plan", path, "--memory", "10"]) == 2
    assert "memory" in capsys.readouterr().err
    for text in ("", "cheap", "1/0GET", "-1"):
        with pytest.raises(BadArgument, match=r"0\.0004/1000GET"):
            price_of(text)
