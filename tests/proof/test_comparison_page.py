"""The page of a comparison: `corgipile compare --html`."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import text_of, tree

from corgipile import tables
from corgipile.cli.app import run
from corgipile.cli.pages import command_text
from corgipile.comparison import Result, compare
from corgipile.datasets import clustered
from corgipile.planner import choose
from corgipile.proof import Compared, comparison_page

OF = Compared("a.arrow", 1000, 9000, "logistic", 2, "1MB")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("compared") / "rows.parquet"
    made = tables.open(clustered(6000, classes=2)).read(0, 6000)
    pq.write_table(pa.Table.from_batches([made]), path)
    return path


def result(order, score, seconds, **more):
    given = {"losses": (1.0, 0.5), "elapsed": (seconds / 2, seconds), "seconds": seconds / 2, "deff": 1.0, **more}
    return Result(order, scores=(score / 2, score), **given)


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([result("full", 0.8, 9.0), result("riffle", 0.796, 3.0)],
         "riffle trains to 79.60 % in 3 s, 3.0 times as fast as full, which reaches 80.00 %."),
        ([result("full", 0.8, 9.0), result("riffle", 0.79, 3.0)],
         "full trains to 80.00 % in 9 s; none of 2 orders reaches as much in less time."),
        ([result("corgipile", 0.8, 2.0), result("riffle", 0.8, 3.0, deff=0.9), result("block_only", 0.8, 1, deff=9.0)],
         "corgipile trains to 80.00 % in 2 s, 1.5 times as fast as riffle, which reaches 80.00 %."),
        ([result("block_only", 0.8, 1.0, deff=9.0)], "block_only trains to 80.00 % in 1 s."),
        ([result("full", 0.31, 4.0, metric="r2"), result("riffle", 0.305, 4.0, metric="r2")],
         "full trains to R² 0.3100 in 4 s; none of 2 orders reaches as much in less time."),
        ([result("full", 0.8, 1.0)], "full trains to 80.00 % in 1 s."),
        ([Result("riffle", failure="no room")], "No order has a result: no room."),
    ],
)  # fmt: skip
def test_the_verdict_is_one_sentence(results, verdict):
    page = comparison_page(results, OF)
    assert page.verdict.replace("\N{NO-BREAK SPACE}", " ") == verdict
    assert text_of(page)


def test_curves_are_of_epochs_and_of_seconds():
    root = tree(comparison_page([result("full", 0.8, 9.0), result("<b>", 0.2, 3.0, losses=(900.0, 2e9))], OF))
    titles = [one.text for one in root.iter("figcaption")]
    assert titles == ["Accuracy by epochs", "Accuracy by seconds", "Loss by epochs", "Loss by seconds"]
    said = [one.text for one in root.iter("desc")]
    assert said[1] == "full: 80 after 9 seconds; <b>: 20 after 3 seconds"


def test_a_page_of_many_epochs_stays_small():
    many = {"losses": tuple(range(5000, 0, -1)), "elapsed": tuple(range(5000))}
    found = [replace(result(f"order {at}", 0.8, 1.0, **many), scores=(0.2,) * 5000) for at in range(9)]
    page = comparison_page(found, OF)
    assert len(page.html()) < 500_000
    rows = [[cell.text for cell in row] for row in tree(page).iter("tr")]
    assert ["order 3", "4999", "1"] in rows


def test_orders_of_one_name_and_scores_that_are_no_numbers():
    nan = float("nan")
    found = [result("riffle", nan, 1.0), result("riffle", 0.7, 2.0), result("riffle", 0.6, 3.0, losses=(nan, nan))]
    page = comparison_page(found, OF)
    assert page.verdict.startswith("riffle trains to 70.00")
    said = [one.text for one in tree(page).iter("desc")]
    assert said[0] == "riffle: 70 after 2 epochs; riffle: nan after 2 epochs; riffle: 60 after 2 epochs"


def test_failures_and_warnings_are_told():
    text = text_of(comparison_page([result("full", 0.8, 9.0, warning="drifted"), Result("x", failure="no room")], OF))
    assert "Warnings and failures" in text
    assert "drifted" in text
    assert "no room" in text


def test_what_a_loader_gave_is_audited():
    rows = tables.open(clustered(6000, classes=2))
    names = ["no_shuffle", "balanced", "shuffle_once"]
    found = compare(rows, epochs=2, memory="64KB", order=names, audited=True, batch=64)
    for one in found:
        assert len(one.losses) == len(one.elapsed) == 2
        assert one.losses[-1] == one.loss
        assert one.setup_seconds < one.elapsed[0] < one.elapsed[1]
        assert one.peak_bytes == 0 or one.peak_bytes > 10 << 20
        assert len(one.audit.epochs) == 2
        assert one.audit.epochs[0].spreads[0].deff[0] == pytest.approx(one.deff, rel=0.1, abs=0.05)
    faults = {one.order: {fault.name for fault in one.audit.faults} for one in found}
    assert faults == {
        "no_shuffle": {"not shuffled", "identical epochs"},
        "balanced": set(),
        "shuffle_once": {"identical epochs"},
    }
    choice = choose(rows, memory="64KB", seconds=0.01)
    of = Compared("rows", 6000, rows.nbytes, "logistic", 2, "64KB", choice=choice, command="again")
    page = comparison_page(found, of)
    root, text = tree(page), text_of(page)
    assert len(page.html()) < 500_000
    for one in found:
        spread = one.audit.epochs[-1].spreads[0]
        assert f"{spread.tail[0]:.2f} ± {spread.tail[1]:.2f}" in text
    assert choice.reason in text
    assert sum(one.get("r") == "7" for one in root.iter("circle")) == 1  # the block that is chosen
    assert root.find(".//pre").text == "again"
    assert "shuffle_once: identical epochs" in text


def test_text_labels_are_audited_too():
    rows = pa.table({"x": [float(at % 7) for at in range(600)], "label": ["a", "b"] * 300})
    (found,) = compare(rows, epochs=1, order=["full"], audited=True, batch=50)
    assert not found.failure
    assert found.audit.faults == ()


def test_labels_that_are_numbers_are_no_classes_in_any_part():
    at = np.arange(80_000)
    rows = pa.table({"x": at / 80_000, "label": at // 60})  # few values at a time, many in all
    for one in compare(rows, model="linear", epochs=1, order=["no_shuffle", "shuffle_once", "full"], audited=True):
        assert not one.failure
        spread = one.audit.epochs[0].spreads[0]
        assert spread.kinds == 1
        assert spread.deff[0] == pytest.approx(one.deff, rel=0.15)


def test_seeds_are_joined():
    rows = clustered(600, classes=2)
    (one,) = compare(rows, epochs=3, order=["full"], seeds=2, audited=True, batch=20)
    assert len(one.losses) == len(one.elapsed) == len(one.scores) == 3
    assert one.losses[-1] == pytest.approx(one.loss)


def test_the_command_writes_a_page(table, tmp_path, capsys, monkeypatch):
    path = tmp_path / "proof.html"
    words = ["compare", str(table), "--epochs", "1", "--order", "full,riffle", "--html", str(path), "-q", "--json"]
    monkeypatch.setattr("sys.argv", ["/somewhere/corgipile", *words])
    assert run(words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["audit"]["faults"] for one in shown["results"]] == [[], []]
    assert shown["results"][0]["audit"]["epochs"][0]["places"] is None
    root = tree(path.read_text())
    assert root.find(".//pre").text == f"corgipile {' '.join(words)}"
    assert "/somewhere" not in path.read_text()
    assert {"corgipile", "python", "pyarrow"} <= {one.text for one in root.iter("th")}


def test_a_page_is_refused_before_orders_run(table, tmp_path, capsys):
    other = tmp_path / "notes.html"
    other.write_text("<p>mine")
    assert run(["compare", str(table), "--html", str(other)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(["compare", str(table), "--html", str(table), "--overwrite"]) == 2
    assert "input files" in capsys.readouterr().err
    assert run(["compare", str(table), "--html", str(tmp_path / "none" / "a.html")]) == 2
    assert other.read_text() == "<p>mine"
    assert [one.name for one in tmp_path.iterdir()] == ["notes.html"]


def test_secrets_stay_out_of_the_command():
    words = ["compare", "s3://KEY:SECRET@bucket/a.parquet", "--test=https://h/a.csv?sig=SECRET&v=2", "--open"]
    assert "SECRET" not in command_text([*words, "aws_secret_access_key=SECRET", "--order", "riffle,full"])
    assert command_text(["info", "a b.arrow"]) == "corgipile info 'a b.arrow'"
