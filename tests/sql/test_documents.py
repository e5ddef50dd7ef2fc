"""The statements of docs/sql.md and docs/bigquery.md run unchanged on the engine of their section."""

import pytest
from documents import ROOT, blocks

from corgipile.sql import connect

PAGE = "docs/sql.md"


def run(connection, scripts):
    """Run scripts; return how many statements returned rows."""
    answers = 0
    for script in scripts:
        for statement in connection.parse(script):
            result = connection.run(statement)
            answers += sum(batch.num_rows for batch in result.batches) > 0
    return answers


def on_the_server():
    """Return the blocks of the section about PostgreSQL."""
    section = (ROOT / PAGE).read_text().partition("\n## On PostgreSQL\n")[2]
    return [block for block in blocks(PAGE, "sql") if block in section]


def test_statements_on_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(PAGE, "python")[0], PAGE, "exec"), {})  # noqa: S102 - our own page
    with connect() as connection:
        assert run(connection, [block for block in blocks(PAGE, "sql") if block not in on_the_server()]) > 14
        assert connection.execute("SELECT count(*) FROM corgipile_models WHERE name = 'kept'").fetchone() == (1,)
        (accuracy,) = connection.execute("SELECT avg((prediction = late)::int) FROM guesses").fetchone()
        assert accuracy > 0.7


def test_statements_of_bigquery():
    with connect() as connection:
        assert run(connection, blocks("docs/bigquery.md", "sql")) == 4


def test_statements_on_a_server(server):
    pytest.importorskip("psycopg")
    server.sql("DROP DATABASE IF EXISTS sql_page")
    server.sql("CREATE DATABASE sql_page TEMPLATE template0 STRATEGY file_copy")
    try:
        with connect(server.url.replace("/postgres?", "/sql_page?")) as connection:
            connection.execute("CREATE EXTENSION corgipile")
            assert run(connection, on_the_server()) >= 4
    finally:
        server.sql("DROP DATABASE sql_page")
