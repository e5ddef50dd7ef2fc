"""The shell in a terminal: completion, Ctrl-C, Ctrl-D, history, narrow windows."""

import json
import os
import re
import signal
import stat
import threading
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE, wait_for
from prompt_toolkit import buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from terminal import READY, Terminal

from corgipile.cli.signals import Stopped
from corgipile.sql.shell import history
from corgipile.sql.shell.completion import SqlCompleter
from corgipile.sql.shell.shell import is_whole


class Known:
    tables = MappingProxyType({"flights": ["delay", "from city", "miles"], "My table": ["x"], "other.t": ["y"]})
    models = ("late", "My model")


COMMANDS = ["\\d", "\\models", "\\o", "\\i", "\\q"]


def completed(text, after=""):
    """Return the completions of a text."""
    completer = SqlCompleter(Known(), COMMANDS)
    found = completer.get_completions(Document(text + after, len(text)), CompleteEvent())
    return [text[: len(text) + one.start_position] + one.text for one in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEL", "SELECT"),
        ("sel", "select"),
        ("SELECT * FROM fl", "SELECT * FROM flights"),
        ("SELECT * FROM m", 'SELECT * FROM "My table"'),
        ("select * from flights join oth", "select * from flights join other.t"),
        ("SELECT * FROM t TRAIN BY lo", "SELECT * FROM t TRAIN BY logistic"),
        ("SELECT * FROM t train by svm with learn", "SELECT * FROM t train by svm with learning_rate"),
        (
            "SELECT * FROM t TRAIN BY svm WITH epochs = 3, max_e",
            "SELECT * FROM t TRAIN BY svm WITH epochs = 3, max_epoch_num",
        ),
        ("SELECT * FROM t TRAIN BY svm WITH order = ri", "SELECT * FROM t TRAIN BY svm WITH order = riffle"),
        ("SELECT * FROM t TRAIN BY svm WITH intercept = f", "SELECT * FROM t TRAIN BY svm WITH intercept = false"),
        ("SELECT * FROM t PREDICT BY la", "SELECT * FROM t PREDICT BY late"),
        ("DROP MODEL m", 'DROP MODEL "My model"'),
        ("SELECT 1; SELECT * FROM fl", "SELECT 1; SELECT * FROM flights"),
        ("CREATE MODEL m OPTIONS (model_t", "CREATE MODEL m OPTIONS (model_type"),
        ("SELECT * FROM ml.pre", "SELECT * FROM ml.predict"),
        ("\\mo", "\\models"),
        ("\\d fl", "\\d flights"),
    ],
)
def test_what_fits_is_completed(text, expected):
    assert expected in completed(text)


def test_columns_are_those_of_the_tables_that_are_named():
    assert "SELECT delay" in completed("SELECT del", " FROM flights")
    assert 'SELECT "from city"' in completed("SELECT fr", " FROM flights")
    assert completed("SELECT mi") == ["SELECT miles"]
    assert completed("SELECT x, y", " FROM flights") == []


def test_nothing_is_completed_in_comments():
    assert completed("SELECT 1 -- sel") == []
    assert completed("SELECT 1 /* sel") == []
    assert "SELECT 1 -- so\nfrom" in completed("SELECT 1 -- so\nfr")


def test_files_are_completed_in_quotes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("data/a.parquet", "data/it's.csv", ".hidden"):
        (tmp_path / name).touch()
    assert completed("SELECT * FROM '") == ["SELECT * FROM 'data/"]
    assert completed("SELECT * FROM 'data/a") == ["SELECT * FROM 'data/a.parquet'"]
    assert completed("SELECT * FROM 'data/i") == ["SELECT * FROM 'data/it''s.csv'"]
    assert completed(f"FROM '{tmp_path}/da") == [f"FROM '{tmp_path}/data/"]
    assert completed("SELECT * FROM 'nowhere/") == []
    assert completed("\\i data/i") == ["\\i data/it's.csv"]


def test_what_ends_a_statement():
    assert [is_whole(text) for text in ("SELECT 1;", "SELECT ';", "SELECT 1 -- ;", "\\d", "exit", "", "SELECT );")] == [
        True, False, False, True, True, True, True
    ]  # fmt: skip


def test_history_is_shared_and_belongs_to_its_user(tmp_path):
    place = tmp_path / "state" / "sql_history"
    past, warning = history.opened(place)
    assert warning is None
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    place.chmod(0o644)
    other, _ = history.opened(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    lines = {f"SELECT {i},\n{'x' * 20_000};" for i in range(20)}
    shells = [threading.Thread(target=one.store_string, args=(line,)) for line in lines for one in (past, other)]
    for shell in shells:
        shell.start()
    for shell in shells:
        shell.join()
    past.store_string("  ATTACH 'postgresql://me:secret@host/db';")
    third, _ = history.opened(place)
    assert set(third.load_history_strings()) == lines
    assert "secret" not in place.read_text()


def test_where_nothing_can_be_remembered_the_shell_says_so(tmp_path):
    (tmp_path / "file").touch()
    past, warning = history.opened(tmp_path / "file" / "sql_history")
    assert "history of this shell is not saved" in warning
    past.store_string("SELECT 1;")


@pytest.mark.parametrize(("raised", "told"), [(Stopped(signal.SIGTERM), False), (OSError("disk"), True)])
def test_a_stop_while_history_is_read_is_no_error(tmp_path, caplog, raised, told):
    history.opened(tmp_path / "sql_history")
    try:
        raise raised
    except (KeyboardInterrupt, OSError):
        buffer.logger.exception("Loading history failed")
    assert ("Loading history failed" in caplog.text) == told


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shell")
    rows = np.random.default_rng(0).normal(size=(2000, 2))
    pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1], "label": rows[:, 0] > rows[:, 1]}), folder / "t.parquet")
    (folder / "script.sql").write_text("SELECT 41 AS first; SELECT 42 AS second")
    return folder


TRAIN = "SELECT * FROM 't.parquet' TRAIN BY svm WITH epochs = {} INTO kind;"


def shell(folder, *words, columns=80):
    """Open a shell and wait until it is ready."""
    terminal = Terminal("sql", *words, columns=columns, cwd=folder, env={"XDG_STATE_HOME": str(folder / "state")})
    terminal.wait(READY)
    return terminal


def test_a_session(folder, tmp_path):
    with shell(folder) as terminal:
        terminal.type("SELECT 2 AS two,\r")
        terminal.wait("->")
        assert "two  three\r\n---  -----\r\n  2      3\r\n(1 row)" in terminal.run("3 AS three;")
        assert "line 1, column 25: " in terminal.run("SELECT * FROM t TRAIN BY;")
        assert "nowhere" in terminal.run("SELECT * FROM nowhere;")
        assert "done" in terminal.run("CREATE TABLE flights AS SELECT 1 AS delay;")
        terminal.type("SELECT dela\t")
        terminal.wait("delay")
        terminal.type(" FROM fli\t")
        terminal.wait("flights")
        assert "delay\r\n-----\r\n    1\r\n" in terminal.run(";")
        assert "flights  delay" in terminal.run("\\d")
        assert "delay   int32" in terminal.run("\\d flights")
        assert "label   bool" in terminal.run("\\d 't.parquet'")
        assert "timing is on" in terminal.run("\\timing")
        shown = terminal.run("\\i script.sql")
        assert "first" in shown
        assert "second" in shown
        assert "Time: " in terminal.run(TRAIN.format(1))
        assert "kind  svm" in terminal.run("\\models")
        assert "\\timing" in terminal.run("\\?")
        assert "did you mean \\models" in terminal.run("\\model")
        out = tmp_path / "out.csv"
        terminal.run(f"\\o {out}")
        terminal.run("SELECT 1 AS one;")
        assert "exists" in terminal.run(f"\\o {out}")
        terminal.run("\\o")
        assert "(1 row)" in terminal.run("SELECT 1 AS one;")
        assert out.read_text() == "one\n1\n"
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "Traceback" not in terminal.all
    remembered = (folder / "state" / "corgipile" / "sql_history").read_text()
    assert "+SELECT 2 AS two,\n+3 AS three;\n" in remembered


def test_ctrl_c_stops_a_training_or_clears_a_line_and_the_shell_lives(folder, tmp_path):
    with shell(folder, "--db", str(tmp_path / "a.duckdb"), columns=60) as terminal:
        terminal.type("SELECT what is this")
        terminal.wait("this")
        terminal.type("\x03")
        terminal.wait(READY)
        for _ in range(2):
            terminal.type(TRAIN.format(100000) + "\r")
            shown = terminal.wait(r"rows/s \d+ of 100000 epochs: loss [\d.]+")
            terminal.type("\x03")
            assert "stopped" in terminal.wait(READY)
        bars = [line for line in re.split(r"[\r\n]+", shown) if line.startswith("tra")]
        assert max(map(len, bars)) <= 60
        assert "(0 rows)" in terminal.run("\\models")
        terminal.type("SELECT count(*) FROM range(100000) a, range(10000000) b;\r")
        terminal.wait("b;\r")
        terminal.works()
        terminal.type("\x03")
        assert "stopped" in terminal.wait(READY)
        assert "(1 row)" in terminal.run("SELECT 1 AS one;")
        terminal.type("exit\r")
        assert terminal.end() == 0
    assert "Traceback" not in terminal.all


def test_a_narrow_window(folder):
    with shell(folder, columns=60) as terminal:
        (folder / "wide.sql").write_text(
            "SELECT repeat('x', 500) AS text, 12345 AS number, NULL AS nothing;" + TRAIN.format(1)
        )
        text = terminal.run("\\i wide.sql")
        (folder / "wrong.sql").write_text("SELECT * FROM a_table_of_a_long_name, another_table TRAIN BY smv;")
        text += terminal.run("\\i wrong.sql")
        assert "12345" in text
        assert "(no room for " in text
        lines = [line for line in re.split(r"[\r\n]+", text) if "corgipile: " not in line]
        assert max(map(len, lines)) <= 60
        caret = lines.index(next(line for line in lines if line.strip() == "^"))
        assert lines[caret - 1][lines[caret].index("^") :].startswith("smv")


def test_a_shell_that_is_told_to_end_does(folder):
    with shell(folder) as terminal:
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
    assert "Traceback" not in terminal.all


def test_a_terminal_that_is_gone_ends_the_shell(folder):
    terminal = shell(folder)
    os.close(terminal.ours)
    assert terminal.process.wait(PATIENCE) != 0


def test_what_is_read_no_longer_ends_the_shell(folder):
    """Results go to a pipe, the prompt to the terminal."""
    reader, writer = os.pipe()
    env = {"XDG_STATE_HOME": str(folder / "state")}
    with Terminal("sql", cwd=folder, env=env, stdout=writer) as terminal:
        os.close(writer)
        terminal.wait(READY)
        terminal.run("SELECT 1 AS one;")
        assert os.read(reader, 1000) == b"one\n---\n  1\n(1 row)\n"
        os.close(reader)
        terminal.type("SELECT 2;\r")
        assert terminal.end() == 0
    assert "Traceback" not in terminal.all


def test_a_session_on_a_server(folder, server, tmp_path):
    pytest.importorskip("psycopg")
    server.sql("DROP DATABASE IF EXISTS sql_shell; CREATE DATABASE sql_shell STRATEGY file_copy")
    url, out = server.url.replace("/postgres?", "/sql_shell?"), tmp_path / "out.json"
    rows = "SELECT random() AS a, i % 2 AS label FROM generate_series(1, 20000) i"
    train = "SELECT * FROM {} TRAIN BY svm WITH epochs = 1000000 INTO m;"
    with shell(folder, "--dsn", url, columns=100) as terminal:
        assert "CREATE EXTENSION corgipile" in terminal.run("SHOW MODELS;")
        terminal.run(f'CREATE EXTENSION corgipile; CREATE TABLE "My t" AS {rows};')
        assert re.search(r"My t +a, label", terminal.run("\\d"))
        assert "label   int32" in terminal.run("\\d My t")
        assert "timing is on" in terminal.run("\\timing")
        terminal.run(f"\\o {out}")
        terminal.run("SELECT 1 AS one;")
        terminal.run("\\o")
        assert json.loads(out.read_text())["results"][0]["rows"] == [{"one": 1}]
        for source in ('"My t"', '"My t" WHERE a > 0.1', f"({rows}) q"):
            terminal.type(train.format(source) + "\r")
            terminal.wait(r"of 1000000 epochs: loss")
            terminal.type("\x03")
            assert "stopped" in terminal.wait(READY)
        for slow in ("SELECT pg_sleep(60);", "SELECT count(*) FROM generate_series(1, 1e10::bigint) i;"):
            terminal.type(f"{slow}\r")
            terminal.wait(re.escape(slow))
            active = (
                "SELECT 1 FROM pg_stat_activity WHERE datname = 'sql_shell' AND state = 'active' AND query LIKE '%{}%'"
            )
            active = active.format(slow[:-1])  # not the server's autovacuum
            wait_for(lambda active=active: server.rows(active), "a statement that runs")
            terminal.type("\x03")
            terminal.wait(READY)
        assert "(0 rows)" in terminal.run("\\models")
        assert "Time: " in terminal.run('SELECT * FROM "My t" TRAIN BY svm WITH epochs = 1 INTO m;')
        assert "m     svm" in terminal.run("\\models")
        terminal.type("SELECT 1\x03")
        terminal.wait(READY)
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "Traceback" not in terminal.all
    wait_for(lambda: not server.rows("SELECT 1 FROM pg_stat_activity WHERE datname = 'sql_shell'"), "its session's end")
    server.sql("DROP DATABASE sql_shell")
