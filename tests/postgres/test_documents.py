"""The blocks of postgres/README and docs that need a server run as they stand."""

import os
import shlex
import subprocess

import pytest
from documents import ROOT, blocks, commands

from corgipile import cli, postgres

TABLES = """
CREATE TABLE higgs AS SELECT array_agg(random()::real) OVER (ROWS 3 PRECEDING) AS x, (i % 2)::int AS label
    FROM generate_series(1, 2003) i OFFSET 3;
CREATE TABLE held_out AS SELECT * FROM higgs;
CREATE TABLE higgs_of_today AS SELECT * FROM higgs;
CREATE TABLE people AS SELECT i % 80 AS age, (ARRAY['Rome', 'Oslo', NULL])[1 + i % 3] AS city,
    (ARRAY['yes', 'no'])[1 + i % 2] AS answer FROM generate_series(1, 1000) i;
CREATE TABLE towns AS SELECT 'Rome' AS city UNION SELECT 'Oslo';
CREATE TABLE reviews AS SELECT 'a ' || (ARRAY['good', 'bad'])[1 + i % 2] || ' film' AS review, 'Rome' AS city,
    (ARRAY['tv', 'phone', 'wall'])[1 + i % 3] AS device, i % 2 AS liked FROM generate_series(1, 1000) i;
CREATE TABLE posts AS SELECT x, string_to_array(CASE WHEN x[1] > 0.5 THEN 'a,b' WHEN x[2] > 0.2 THEN 'b' ELSE '' END,
    ',') AS tags FROM higgs;
CREATE TABLE flat AS SELECT random() AS a, random() AS b, random() AS y FROM generate_series(1, 1000);
"""


@pytest.fixture
def database(server):
    """A database without the extension, which the blocks create."""
    server.sql("DROP DATABASE IF EXISTS documents")
    server.sql("CREATE DATABASE documents TEMPLATE template0")
    server.text(TABLES, database="documents")
    yield "documents"
    server.sql("DROP DATABASE documents")


@pytest.mark.parametrize("document", ["postgres/README.md", "docs/server.md", "docs/tutorials/sql.md"])
def test_sql(server, database, document):
    found = blocks(document, "sql")
    assert found
    for block in found:
        assert server.text(block, database=database)


def test_shell(server, monkeypatch, capfd):
    monkeypatch.setattr(postgres, "default_home", lambda: server.home)
    monkeypatch.setattr(postgres, "installed", lambda config: postgres.embedded() if config else None)
    built, started = [], []
    monkeypatch.setattr(postgres, "install", built.append)
    monkeypatch.setattr(os, "execv", lambda program, words: started.append(words))
    found = [block for document in ("docs/server.md", "docs/tutorials/sql.md") for block in blocks(document, "sh")]
    lines = [line for block in found for line in commands(block) if "corgipile pg" in line]
    assert len(lines) > 2
    for line in lines:
        assert cli.main(shlex.split(line)[1:]) == 0, line
    assert built
    assert subprocess.run(started[0], input="SELECT 1", capture_output=True, text=True, check=True).stdout
    capfd.readouterr()


def test_making(server):
    (line,) = (line for block in blocks("postgres/README.md", "sh") for line in commands(block))
    assert line == "make && sudo make install"
    config = f"PG_CONFIG={postgres.embedded().config}"
    for words in (["make"], ["make", "install"]):
        subprocess.run([*words, "-n", "-C", str(ROOT / "postgres"), config], check=True, capture_output=True)
