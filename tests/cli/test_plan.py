"""`corgipile plan`."""

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
    assert " request" in shown


def test_what_decides_is_in_the_table_of_a_usual_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = pa.table({"x": np.arange(20_000.0), "label": np.arange(20_000) // 2000})
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    words = ["plan", str(tmp_path / "rows.arrow"), "--memory", "100KB", "--seconds", "0.01"]
    assert cli.main(words) == 0
    head = capsys.readouterr().out.splitlines()[2].split()
    assert {"deff", "rest", "warm", "memory"} <= set(head)


@pytest.mark.parametrize(
    ("price", "said"),
    [("$0.0004/1000GET", "1 request, "), ("$0.0004/1000GET", "for $0.0000004."), ("0.0123", "for 0.012."),
     ("€120", "for €120.00."), ("0", "for 0.")],
)  # fmt: skip
def test_money_is_said_as_people_read_it(tmp_path, price, said, capsys):
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "few.parquet")
    assert cli.main(["plan", str(tmp_path / "few.parquet"), "--seconds", "0", "--price", price]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


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


def test_blocks_of_whole_units_are_asked_for_as_such(tmp_path, capsys, caplog):
    """The printed order can be used without a warning about larger blocks."""
    x = {f"x{at}": np.random.default_rng(at).random(20_000) for at in range(16)}
    path = str(tmp_path / "wide.parquet")
    pq.write_table(pa.table({**x, "label": np.arange(20_000) // 2000}), path, row_group_size=400)
    assert cli.main(["plan", path, "--memory", "4MB", "--seconds", "0.01", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not [one for one in caplog.records if "units in which" in one.getMessage()]
    orders = [one["order"] for one in (facts["best"], *facts["others"])]
    assert "orders.Riffle(block=2000, batch=256)" in orders  # of 256 KB, 1927 rows, units of 400
