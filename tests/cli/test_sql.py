"""`corgipile sql`: statements, files, stdin; tables, CSV, JSON; errors, pipes, signals, databases."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE
from terminal import Terminal

from corgipile import cli

COMMAND = [sys.executable, "-m", "corgipile", "sql"]
TRAIN = "SELECT * FROM 't.parquet' TRAIN BY logistic WITH epochs = 2"

COUNT = "SELECT count(*) AS n FROM 't.parquet'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a table of two features and a label."""
    folder = tmp_path_factory.mktemp("sql")
    rows = np.random.default_rng(0).normal(size=(2000, 2))
    label = (rows[:, 0] > rows[:, 1]).astype(np.int32)
    pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1], "label": label}), folder / "t.parquet")
    return folder


@pytest.fixture
def sql(folder, monkeypatch, capfd):
    """Run the command; return its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        code = cli.main(["sql", *words])
        printed, said = capfd.readouterr()
        return code, printed, said

    return run


def stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_statements_one_after_the_other(sql):
    code, printed, said = sql(f"{TRAIN} INTO m; {COUNT}; SHOW MODELS")
    assert code == 0
    epochs, count, models = printed.split("\n(")[0], printed.split("row")[1], printed
    assert epochs.splitlines()[1].split() == [
        "epoch",
        "loss",
        "accuracy",
        "r2",
        "loss",
        "accuracy",
        "r2",
        "rows",
        "seconds",
    ]
    assert "2000" in count
    assert "logistic" in models
    assert "(2 rows)" in printed
    assert "train: 4,000 of 4,000 rows" in said
    assert "2 of 2 epochs: loss" in said


def test_quiet_says_nothing_but_the_answer(sql):
    code, printed, said = sql("SELECT 1 AS one; CREATE TABLE t (a int); " + TRAIN, "--quiet")
    assert (code, said) == (0, "")
    assert printed.startswith("one\n---\n  1\n")
    assert "row" not in printed.replace("rows", "", 1)
    assert "done" not in printed


def test_scripts_come_from_files_and_stdin(sql, tmp_path, monkeypatch):
    file = tmp_path / "a.sql"
    file.write_text("\ufeffSELECT 1 AS a; -- remark\nSELECT 'it''s; é' AS b;\r\n", encoding="utf-8")
    assert sql("-f", str(file))[1].split("\n") == ["a", "-", "1", "(1 row)", "b", "-------", "it's; é", "(1 row)", ""]
    stdin(monkeypatch, b"SELECT 2 AS c")
    assert sql()[1].startswith("c\n-\n2\n")
    stdin(monkeypatch, b"SELECT 3 AS d")
    assert sql("-f", "-", "-f", str(file))[1].startswith("d\n-\n3\n")
    stdin(monkeypatch, b"")
    assert sql() == (0, "", "")


def test_what_cannot_be_a_script_is_named(sql, tmp_path, monkeypatch):
    latin = tmp_path / "latin.sql"
    latin.write_bytes("SELECT 'é'".encode("latin-1"))
    cases = [
        (["-f", str(latin)], "must be UTF-8 text, got byte 0xe9 at 8"),
        (["-f", "nowhere.sql"], "nowhere.sql: file not found"),
        (["-f", str(tmp_path)], "directory"),
        (["SELECT 1", "-f", "a.sql"], "give one of them"),
        (["SELECT 1", "--csv", "--json"], "give one of them"),
        (["SELECT 1", "--db", "a", "--dsn", "postgresql://b"], "db and dsn exclude each other"),
        (["SELECT 1", "--dsn", "mysql://me:secret@b"], "postgresql://user@host"),
        (["SELECT 1", "--memory", "lots"], "memory"),
        (["SELECT 1", "--db", "/nowhere/a.duckdb"], "/nowhere/a.duckdb"),
    ]
    for words, message in cases:
        code, printed, said = sql(*words)
        assert code == 2, words
        assert message in printed + said
        assert "secret" not in printed + said
        assert "Traceback" not in said


def test_errors_show_their_place(sql):
    code, printed, said = sql("SELECT 1 AS a;\nSELECT * FROM t TRAIN BY smv")
    assert (code, printed) == (2, "")
    first, line, caret = said.splitlines()
    assert first.startswith("corgipile: line 2, column 26: ")
    assert "did you mean svm?" in first
    assert line[caret.index("^") :] == "smv"
    code, printed, said = sql("SELECT 1 AS a; SELECT * FROM nowhere; SELECT 3")
    assert code == 2
    assert printed.endswith("(1 row)\n")
    assert "nowhere" in said


def test_csv_has_all_rows(sql):
    code, printed, said = sql("SELECT * FROM 't.parquet'", "--csv")
    assert (code, said) == (0, "")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == 2000
    assert rows[0].keys() == {"a", "b", "label"}


def test_json_is_one_document_also_of_errors(sql):
    code, printed, said = sql(f"{TRAIN}; SELECT 1 AS a, NULL AS b", "--json")
    assert (code, said) == (0, "")
    epochs, row = json.loads(printed)["results"]
    assert [one["name"] for one in epochs["columns"]][:2] == ["epoch", "loss"]
    assert len(epochs["rows"]) == 2
    assert row["rows"] == [{"a": 1, "b": None}]
    code, printed, said = sql("SELECT 1 AS a; SELECT * FROM nowhere", "--json")
    assert (code, said) == (2, "")
    document = json.loads(printed)
    assert document["results"][0]["rows"] == [{"a": 1}]
    assert "nowhere" in document["error"]["message"]
    code, printed, said = sql("SELECT * FROM t TRAIN BY", "--json")
    assert (code, said, list(json.loads(printed))) == (2, "", ["error"])


def test_rows_that_are_not_shown_are_counted(sql):
    assert sql("SELECT * FROM 't.parquet'")[1].splitlines()[-1] == "(40 of 2,000 rows shown)"
    assert sql("SELECT * FROM 't.parquet'", "--rows", "3")[1].splitlines()[-1] == "(3 of 2,000 rows shown)"
    assert len(sql("SELECT * FROM 't.parquet'", "--rows", "0")[1].splitlines()) >= 2003


@pytest.mark.parametrize("wide", [60, 80])
def test_tables_are_as_wide_as_the_terminal(sql, wide, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(wide))
    _, printed, _ = sql("SELECT repeat('日本 ', 100) AS text, 1234567 AS number; " + TRAIN)
    lines = printed.splitlines()
    assert max(map(len, lines)) <= wide
    assert re.search(r"…  +1234567$", lines[2])


def test_models_stay_in_the_file(sql, tmp_path):
    file = str(tmp_path / "a.duckdb")
    assert sql(f"{TRAIN} INTO kind", "--db", file)[0] == 0
    code, printed, _ = sql("SELECT * FROM 't.parquet' PREDICT BY kind", "--db", file, "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(printed)))
    right = sum(float(row["label"]) == float(row["prediction"]) for row in rows)
    assert right > 1800
    assert sql("BEGIN; DROP MODEL kind; ROLLBACK", "--db", file)[0] == 0
    assert "kind" in sql("SHOW MODELS", "--db", file)[1]


def test_memory_holds_for_training_unless_the_statement_says_it(sql):
    code, _, said = sql(TRAIN, "--memory", "64B")
    assert code == 2
    assert "memory='64B' holds 3 rows" in said
    assert sql(f"{TRAIN}, memory = '64MB'", "--memory", "128MB")[0] == 0


def run(*words, folder, **options):
    return subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_whoever_reads_may_have_seen_enough(folder):
    with run("SELECT * FROM range(10000000)", "--csv", folder=folder) as process:
        assert process.stdout.readline() == "range\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE) == 0


def test_a_full_disk_is_said(folder):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "SELECT 1"], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "cannot write the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code", "word"), [("INT", 130, "interrupted"), ("TERM", 143, "terminated")])
def test_a_signal_ends_the_statement_and_leaves_no_model(sql, folder, tmp_path, number, code, word):
    file = str(tmp_path / "a.duckdb")
    endless = TRAIN.replace("epochs = 2", "epochs = 1000000") + " INTO m"
    with Terminal("sql", endless, "--db", file, cwd=folder) as terminal:
        terminal.wait(r"rows/s \d+ of 1000000 epochs: loss 0\.\d+ +\d+:\d\d:\d\d")
        if number == "INT":
            terminal.type("\x03")
        else:
            terminal.process.terminate()
        assert terminal.end() == code
    assert f"corgipile: {word}" in terminal.all
    assert "Traceback" not in terminal.all
    assert "(0 rows)" in sql("SHOW MODELS", "--db", file)[1]


def test_words_that_are_no_text_are_refused_as_scripts_are(folder):
    done = subprocess.run(
        [*(word.encode() for word in COMMAND), b"SELECT '\xff'"], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"must be UTF-8 text, got byte 0xff at 8" in done.stderr


def test_a_locale_of_few_characters_shows_the_others_by_their_numbers(folder):
    few = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "SELECT 'é' AS a"], cwd=folder, capture_output=True, env=few, check=True)
    assert b"\\xe9" in done.stdout


def test_without_a_terminal_and_a_statement_there_is_no_shell(folder):
    done = subprocess.run([*COMMAND], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
