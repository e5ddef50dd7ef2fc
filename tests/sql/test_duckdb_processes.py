"""Stopped and killed trainings on DuckDB, and the memory of a process."""

# ruff: noqa: S608  # tests write SQL

import os
import signal
import subprocess
import sys
import time

import pytest
from duckdbtables import sql, value

from corgipile.sql import connect

__all__ = ["sql"]

LONG = "SELECT * FROM t TRAIN BY logistic WITH epochs = 1000000, learning_rate = 0.1 INTO m"


def _running(path, extra=""):
    """Start a process that trains until stopped."""
    code = f"""
import corgipile.sql, sys
class Told:
    def begin(self, rows, epochs): print("begun", flush=True)
    def rows(self, count): pass
    def epoch(self, record): pass
sql = corgipile.sql.connect({str(path)!r})
sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 1 INTO kept")
try:
    sql.execute({LONG!r}, progress=Told())
except KeyboardInterrupt:
    print(sql.execute("SELECT count(*) FROM t").fetchall(), [row[0] for row in sql.execute("SHOW MODELS")], flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "m.duckdb"
    with connect(path) as sql:
        sql.execute("CREATE TABLE t AS SELECT i AS x, i % 2 AS label FROM range(5000) r (i)")
    return path


def test_ctrl_c_leaves_a_session_and_no_model(stored):
    with _running(stored) as process:
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "[(5000,)] ['kept']\n"


def test_a_kill_leaves_a_file_that_opens(stored):
    with _running(stored) as process:
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
    with connect(stored) as sql:
        assert [row[0] for row in sql.execute("SHOW MODELS")] == ["kept"]
        assert value(sql, "SELECT count(predict('kept', x)) FROM t") == 5000


def test_memory_is_the_budget_and_the_limit_of_duckdb(tmp_path):
    path = tmp_path / "large.duckdb"
    code = f"""
import corgipile.sql
def peak(): return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10
sql = corgipile.sql.connect({str(path)!r}, memory_limit="100MB", threads=1)
sql.execute("CREATE TABLE t AS SELECT list_transform(range(28), lambda k: random())::FLOAT[28] AS x, i % 2 AS label"
    " FROM range(10) r (i)")
sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 1")
before = peak()
sql.execute("INSERT INTO t SELECT list_transform(range(28), lambda k: random())::FLOAT[28], i % 2"
    " FROM range(700000) r (i)")
print(sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 2, memory = 32MB").notes)
print(peak() - before)
"""
    *_, told, grown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "spill file (700010 rows" in told
    assert int(grown) < 132
