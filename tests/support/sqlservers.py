"""A PostgreSQL database with sessions of two roles."""

import pytest

from corgipile.sql.connection import connect

ROWS = "SELECT i % 7 / 7.0::float8 AS a, i % 11 / 11.0::float8 AS b, i % 2 AS label FROM generate_series(1, 200) i"


@pytest.fixture(scope="module")
def database(server):
    """The address of a database, with a role of few rights."""
    server.sql("CREATE DATABASE sql_alone STRATEGY file_copy; CREATE ROLE sql_guest LOGIN")
    server.sql("REVOKE TEMPORARY ON DATABASE sql_alone FROM PUBLIC")
    address = server.url.replace("/postgres?", "/sql_alone?")
    with connect(address) as connection:
        connection.execute(f"CREATE EXTENSION corgipile; CREATE TABLE t AS {ROWS}; GRANT SELECT ON t TO PUBLIC")
    yield address
    server.sql("DROP DATABASE sql_alone; DROP ROLE sql_guest")


@pytest.fixture
def sql(database):
    """A session of the superuser; its models are dropped at the end."""
    with connect(database) as connection:
        yield connection
        if connection.engine.in_transaction():
            connection.rollback()
        connection.execute("DELETE FROM corgipile.models")


@pytest.fixture
def guest(database):
    """A session of the role with few rights."""
    with connect(database.replace("postgres@", "sql_guest@")) as connection:
        yield connection
