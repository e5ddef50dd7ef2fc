"""The page of a table: `corgipile info --html`."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import text_of, tree

from corgipile.cli.app import run
from corgipile.description import about
from corgipile.proof import about_page


@pytest.fixture
def rows():
    at = np.arange(4000)
    return pa.table({"<b>": at // 40 % 2, "y": np.random.default_rng(0).normal(size=4000), "kind": at // 400})


def test_what_rows_are_clustered_by_is_said(rows):
    page = about_page(about(rows, label="kind", block=100, columns=True), "mine", "kind")
    assert page.verdict.startswith("Rows are clustered by kind: h_D is 100 in blocks of 100 rows")
    text = text_of(page)
    assert "<b>" in text
    assert "400 10.00%" in text
    mixed = about_page(about(rows.select(["y"]), block=100, columns=True), "mine")
    assert "Rows are mixed" in mixed.verdict
    assert about_page(about(rows.select(["y"]), block=100), "mine").verdict == "4,000 rows of 1 columns, 31.2 KB."


def test_tables_of_no_rows_and_of_many_columns_and_labels_have_small_pages():
    assert text_of(about_page(about(pa.table({"x": pa.array([], pa.int64())})), "none"))
    wide = {f"column {at}": np.arange(2000) % 7 for at in range(1000)} | {"label": np.arange(2000) // 2}
    page = about_page(about(wide, block=50, columns=True), "wide")
    assert len(page.html()) < 500_000
    assert "Shown: the first 24 of 1,001 columns." in text_of(page)
    numbers = about_page(about({"label": np.linspace(0, 1, 50)}), "numbers")
    assert "Numbers from 0 to 1, 0.5 on average." in text_of(numbers)


def test_the_command_writes_a_page(tmp_path, capsys, monkeypatch, rows):
    path, page = tmp_path / "rows.parquet", tmp_path / "info.html"
    pq.write_table(rows, path, row_group_size=500)
    words = ["info", str(path), "--label", "kind", "--block", "400", "--html", str(page)]
    monkeypatch.setattr("sys.argv", ["corgipile", *words])
    assert run(words) == 0
    assert "clustered by" not in capsys.readouterr().out  # columns are in the page; the text says what was asked
    assert "clustered by kind" in tree(page.read_text()).find("./body/header/h1").text
    for command in (["info"], ["info", "--full"]):
        assert run([*command, str(path), "--html", str(path), "--overwrite"]) == 2
        assert "input files" in capsys.readouterr().err
    again = tmp_path / "inspect.html"
    words = ["info", "--full", str(path), "--label", "kind", "--block", "400", "--seconds", "0", "--html", str(again)]
    assert run(words) == 0
    assert tree(again.read_text()).find("./body/header/h1").text == tree(page.read_text()).find("./body/header/h1").text


def test_what_orders_cost_is_on_the_page_of_inspect(tmp_path, rows, capsys):
    path, page = tmp_path / "rows.parquet", tmp_path / "inspect.html"
    pq.write_table(rows, path, row_group_size=500)
    words = [
        "info",
        "--full",
        str(path),
        "--label",
        "kind",
        "--memory",
        "16KB",
        "--seconds",
        "0.01",
        "--html",
        str(page),
    ]
    assert run(words) == 0
    shown = " ".join("".join(tree(page.read_text()).itertext()).split())
    assert "Costs of each order" in shown
    assert "Read rates by block size" in shown
    for line in capsys.readouterr().out.splitlines():
        if line.startswith(("no_shuffle ", "full ")):  # the same figures as in the terminal
            assert line.split()[1] in shown
    few = about_page(about(rows, block=100, columns=True), "mine")
    assert "Costs of each order" not in text_of(few)
