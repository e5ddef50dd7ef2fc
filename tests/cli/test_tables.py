"""The commands convert, reshuffle and info, and failures of commands."""

import importlib.metadata
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE

from corgipile import bars, cli, tables
from corgipile.cli import console
from corgipile.datasets import clustered


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,kind\n" + "".join(f"{i},{i / 2},{i // 50}\n" for i in range(100)))
    return str(path)


@pytest.fixture
def arrow(tmp_path):
    path = str(tmp_path / "a.arrow")
    table = clustered(1000, classes=4)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def test_convert(csv, tmp_path, capsys):
    out = str(tmp_path / "out.arrow")
    assert cli.main(["convert", csv, out, "--label", "kind", "--pack", "--record-batch", "10"]) == 0
    assert capsys.readouterr().out == f"{out}: 100 rows\n"
    assert tables.open(out).schema.names == ["features", "label"]
    assert cli.main(["convert", csv, out, "--label", "-1", "--columns", "x", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {"rows": 100, "path": out}
    assert told.err == ""
    assert tables.open(out).schema.names == ["x", "label"]


def test_full_info(arrow, tmp_path, capsys):
    assert cli.main(["info", "--full", arrow, "--block", "50", "--seconds", "0.01"]) == 0
    shown = capsys.readouterr().out
    for words in ("clustered by label", "250 rows (25.0 %)", "in place: 2 columns", "no_shuffle", "`corgipile plan`"):
        assert words in " ".join(shown.split())
    assert cli.main(["info", "--full", arrow, "--block", "50", "--seconds", "0", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert next(iter(facts["by_column"])) == "label"
    assert facts["plan"]["best"]["deff"] <= 1.1
    assert (facts["sampled"], facts["missing"]) == (1000, {})
    assert cli.main(["info", "--full", arrow, "--memory", "10B", "--seconds", "0"]) == 0
    assert "No order fits: memory" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [["info", "--full"], ["plan"], ["plan", "--label", "t"]], ids=" ".join)
def test_more_categories_than_the_memory_holds_are_refused_before_a_row_is_read(command, tmp_path, monkeypatch, capsys):
    texts = pa.array([f"a category that takes some bytes, number {number:08}" for number in range(300_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(400_000) % 300_000, pa.int32()), texts)
    pq.write_table(pa.table({"t": column}), tmp_path / "a.parquet")
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", None)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_group", None)
    assert cli.main([*command, str(tmp_path / "a.parquet"), "--memory", "1MB"]) == 2
    assert "a dictionary or a chunk of ParquetTable" in capsys.readouterr().err.replace("\n", " ")


def test_full_info_says_what_a_file_is_sorted_by(tmp_path, capsys):
    path = str(tmp_path / "rows.parquet")
    columns = {f"c{i}": np.arange(400) * (1 - i % 2 * 2) for i in range(14)}
    pq.write_table(pa.table({**columns, "label": [0, 1] * 200}), path, row_group_size=100)
    assert cli.main(["info", "--full", path, "--seconds", "0"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "sorted by c0 ascending from row group to row group sorted by c1 descending" in shown
    assert "and by 2 other columns" in shown
    assert cli.main(["info", "--full", path, "--seconds", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sorted_by"]["c13"] == "descending"


def test_full_info_of_what_people_have(tmp_path, capsys):
    holes = {
        "x": [1.0, None, float("nan"), 4.0],
        "v": [[1.0], None, [float("inf")], []],
        "label": ["a", "b", None, "a"],
    }
    for name, columns in {"holes": holes, "one": {"x": [1.0]}, "none": {"x": pa.array([], pa.float32())}}.items():
        path = str(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table(columns), path)
        assert cli.main(["info", "--full", path, "--seconds", "0", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["missing"] == ({"x": 2, "v": 2, "label": 1} if name == "holes" else {})
        assert ("must have rows" in str(facts["plan"])) == (name == "none")
        assert cli.main(["info", "--full", path, "--seconds", "0"]) == 0
        capsys.readouterr()


def test_what_is_null_is_told_though_no_order_can_be_tried(tmp_path, capsys, caplog):
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"x": [1.0, None] * 50, "label": [0, 1] * 50}), path)
    assert cli.main(["info", "--full", path, "--seconds", "0.01", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"] == {"x": 50}
    assert facts["plan"]["best"]
    assert "skipped the trials: row" in caplog.text


def test_reshuffle(arrow, tmp_path, capsys):
    out = str(tmp_path / "out.arrow")
    assert cli.main(["reshuffle", arrow, out, "--method", "bmf", "--block", "100", "--memory", "1MB"]) == 0
    assert f"{out}: 1,000 rows, bmf" in capsys.readouterr().out
    assert cli.main(["reshuffle", arrow, out, "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1000
    labels = tables.open(out).read(0, 1000)["label"].to_numpy()
    assert sorted(labels) == sorted(np.arange(1000) // 250)
    assert (np.diff(labels) < 0).any()


def test_info(arrow, capsys):
    assert cli.main(["info", arrow, "--block", "100", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 1000
    assert facts["classes"] == {"0": 250, "1": 250, "2": 250, "3": 250}
    assert facts["blocks"] == 10
    assert facts["h_d"] == pytest.approx(100 * 26 / 30)
    assert facts["columns"]["label"] == "int32"
    assert cli.main(["info", arrow]) == 0
    assert "250 rows (25.0 %)" in capsys.readouterr().out


def test_info_of_numbers_many_labels_and_none(tmp_path, capsys):
    for name, values in (("target", np.linspace(0, 1, 50)), ("label", np.arange(50.0) // 2)):
        with pa.ipc.new_file(str(tmp_path / name), pa.schema([(name, pa.float64())])) as writer:
            writer.write_table(pa.table({name: values}))
    assert cli.main(["info", str(tmp_path / "target"), "--label", "target"]) == 0
    assert "0 to 1, mean 0.5" in capsys.readouterr().out
    assert cli.main(["info", str(tmp_path / "target")]) == 0
    assert "h_D" not in capsys.readouterr().out
    assert cli.main(["info", str(tmp_path / "label")]) == 0
    assert "and 13 other labels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "/nowhere/a.arrow"], "no file at /nowhere/a.arrow"),
        (["convert", "one"], "convert needs a source and an output, got only one"),
        (["reshuffle", "one"], "reshuffle needs a table and an output file, got only one"),
    ],
)
def test_our_errors_are_one_line_and_code_2(arguments, message, capsys):
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert message in told.err


def test_wrong_options_are_code_2(capsys):
    assert cli.main(["info"]) == 2
    assert cli.main(["dance"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_interruption_is_code_130(arrow, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bars._Log, "__call__", interrupted)
    assert cli.main(["reshuffle", arrow, str(tmp_path / "out.arrow")]) == 130
    assert capsys.readouterr().err == "corgipile: interrupted\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.arrow"]


def test_help_and_version(capsys):
    assert cli.main(["--version"]) == 0
    assert cli.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ("train", "predict", "compare", "convert", "reshuffle", "info"))


def test_without_typer_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("corgipile.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main([]) == 2
    assert "pip install 'corgipile[cli]'" in capsys.readouterr().err


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with bars.progress("work") as bar:
        bar(50, 100)
        bar(100, 100, "loss 0.5")
    assert capsys.readouterr().out == ""


def test_log_lines_come_every_few_seconds_and_at_the_end(capsys, monkeypatch):
    with bars.progress("work") as bar:
        for done in range(1, 101):
            bar(done, 100, f"epoch {done}")
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr(bars, "_EVERY", 0.0)
    with bars.progress("work") as bar:
        bar(10, 100)
        bar(20, 100, "epoch 1")
        bar(100, 100, "epoch 1")
        bar(7, None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("work: 20 of 100 rows, ")
    assert lines[2].endswith(", epoch 1")
    assert lines[3].startswith("work: 7 rows")


def test_json_has_no_nan(capsys):
    console.show_json({"a": float("nan"), "b": np.float32(0.5), "c": [np.int64(3)], "d": float("inf")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": 0.5, "c": [3], "d": None}


def test_a_real_interrupt_leaves_nothing(tmp_path):
    source = str(tmp_path / "a.csv")
    with open(source, "w") as file:  # noqa: PTH123
        file.writelines(f"{i},{i % 7}\n" for i in range(600_000))
    words = [sys.executable, "-m", "corgipile.cli", "convert", source, str(tmp_path / "o.arrow"), "--record-batch", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    while not list(tmp_path.glob(".o.arrow*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert b"corgipile: interrupted" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_doctor_names_what_is_installed_and_where_files_go(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path))
    found = importlib.metadata.version
    monkeypatch.setattr("corgipile.cli.doctor.find_spec", lambda _: None)  # PyTorch takes seconds to load

    def version(name):
        if name == "duckdb":
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr("corgipile.cli.doctor.version", version)
    assert cli.main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["numpy"] == np.__version__
    assert facts["extra cli"].startswith("typer ")
    assert "duckdb missing: pip install 'corgipile[duckdb]'" in facts["extra duckdb"]
    assert facts["cache (CORGIPILE_CACHE)"] == str(tmp_path)
    assert "PyTorch" in facts["device"]
    assert "_kernel" in facts["kernel"]
    assert cli.main(["doctor"]) == 0
    assert "extra cli" in capsys.readouterr().out
