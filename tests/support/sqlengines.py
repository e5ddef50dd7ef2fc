"""The SQL engines with some tables, for tests of all engines."""

# ruff: noqa: S608  # tests write SQL

import functools
import json

import pytest

from corgipile.errors import CorgiPileError
from corgipile.sql.connection import connect

ROWS = 600
TABLES = f"""
    CREATE TABLE t AS SELECT i, (i * 7919 % 1000 / 1000.0)::real AS a, (i * 104729 % 1000 / 1000.0)::real AS b,
        (i * 7919 % 1000 > 500)::int AS label, i % 5 AS part FROM generate_series(0, {ROWS - 1}) AS g (i);
    CREATE TABLE wide AS SELECT i * 7919 % 100 / 100.0 AS "A b", i * 31 % 100 / 100.0 AS "select", i % 2 AS "Ünï"
        FROM generate_series(0, {ROWS - 1}) AS g (i);
    CREATE VIEW seen AS SELECT a, b, label FROM t;
    CREATE TABLE texts AS SELECT 'red' AS colour, 1.5 AS x, 1 AS label;
"""
PARAMS = ("block_pages", "blocks", "buffer_blocks", "group", "whole")


def quoted(name):
    """Write a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


@functools.cache
def _template(server):
    """Make the template database with the extension and the tables; return its name. Each test copies it."""
    server.sql("DROP DATABASE IF EXISTS sql_template; CREATE DATABASE sql_template")
    server.text("CREATE EXTENSION corgipile; " + TABLES, database="sql_template")
    return "sql_template"


class Asking:
    """Queries an engine with some tables by the connection `sql`."""

    def rows(self, sql, script, values=()):
        """Return the rows of a script as dictionaries."""
        cursor = sql.execute(script, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def value(self, sql, script, values=()):
        """Return the one value of a script."""
        ((found,),) = sql.execute(script, values).fetchall()
        return found

    def fails(self, sql, script, part, values=(), kind=CorgiPileError):
        """Check the error of a failing script."""
        with pytest.raises(kind, match=part):
            sql.execute(script, values).fetchall()

    def weights(self, sql, model):
        """Return the weights of a model by name, and by class if there are more than two."""
        found = self.rows(sql, f"SELECT * FROM ML.WEIGHTS(MODEL {quoted(model)})")
        return {(row.get("class"), row["processed_input"]): row["weight"] for row in found}


class OnDuckDB(Asking):
    """On DuckDB, in memory."""

    @pytest.fixture
    def sql(self):
        pytest.importorskip("duckdb")
        with connect() as connection:
            connection.execute(TABLES)
            yield connection

    def sizes(self, sql, order):
        """Return sizes of blocks and buffers in SQL, and a function that returns those of Python."""
        return "block_size = 100, buffer_size = 700", lambda: {"block": 100, "buffer": 700}


class OnPostgreSQL(Asking):
    """On PostgreSQL, in its own database."""

    @pytest.fixture
    def sql(self, server):
        pytest.importorskip("psycopg")
        made = f"CREATE DATABASE sql_tests TEMPLATE {_template(server)} STRATEGY file_copy"
        server.sql(f"DROP DATABASE IF EXISTS sql_tests; {made}")
        with connect(server.url.replace("/postgres?", "/sql_tests?")) as connection:
            yield connection

    def sizes(self, sql, order):
        """Return sizes of blocks and buffers in SQL, and a function that returns those of Python from the model m."""

        def told():
            found = {
                row["property"]: json.loads(row["value"])
                for row in self.rows(sql, "DESCRIBE MODEL m")
                if row["property"] in PARAMS
            }
            rows = self.value(sql, "SELECT max((ctid::text::point)[1])::int FROM many") * found["block_pages"]
            mixed = {name: found[name] for name in ("group", "whole")} if order in ("riffle", "balanced") else {}
            assert found["blocks"] > found["buffer_blocks"]
            return {"block": rows, "buffer": rows * found["buffer_blocks"], **mixed}

        return "block_size = 8KB, buffer_size = 50KB", told
