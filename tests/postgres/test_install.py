"""Installation into a schema of another role, and use before an update."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgolder import VERSION, write_older
from pgservers import SqlError

pytestmark = pytest.mark.usefixtures("roles")


@pytest.mark.every_server
def test_models_predict_before_the_extension_is_updated(server):
    """Everything else names the statement that updates it."""
    script = write_older(server.scripts)
    server.sql("CREATE DATABASE older TEMPLATE template0")
    try:
        server.text(
            f"""CREATE EXTENSION corgipile VERSION '{VERSION}'; CREATE TABLE t AS SELECT 2 AS b, 1 AS a;
            INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source)
                VALUES ('old', 'linear', 2, '{{}}', '{{{{1, 2}}}}', '{{0}}',
                '{{"features": ["a", "b"], "label": "a"}}', 't')""",
            database="older",
        )
        for given in ("1, 2", "ROW(1, 2)", "'{1, 2}'::real[]", "t"):
            assert server.text(f"SELECT corgipile.predict('old', {given}) FROM t", database="older") == "5\n"
        for call in ("evaluate('old', 't') AS (a int)", "train('t', 'linear', '{b}', 'a') AS (a int)"):
            with pytest.raises(SqlError, match="ALTER EXTENSION corgipile UPDATE in this database"):
                server.text(f"SELECT * FROM corgipile.{call}", database="older")
        server.text("REVOKE SELECT ON corgipile.models FROM PUBLIC", database="older")
        with pytest.raises(SqlError, match='permission denied for model "old"'):
            server.text("SELECT corgipile.predict('old', 1, 2)", "m_stranger", "older")
    finally:
        script.unlink()
        server.sql("DROP DATABASE older")


SQUATTERS = {
    "a schema of another": ("", "schema corgipile belongs to m_stranger"),
    "a function in it": (
        (
            "CREATE FUNCTION corgipile.may(text) RETURNS bool LANGUAGE sql AS 'SELECT true';"
            "RESET ROLE; ALTER SCHEMA corgipile OWNER TO postgres;"
        ),
        "schema corgipile holds function may(text)",
    ),
    "a type in it": (
        "CREATE TYPE corgipile.role AS (a int); RESET ROLE; ALTER SCHEMA corgipile OWNER TO postgres;",
        "schema corgipile holds ",
    ),
    "an operator in it": (
        (
            "CREATE OPERATOR corgipile.= (FUNCTION = int4eq, LEFTARG = int4, RIGHTARG = int4);"
            "RESET ROLE; ALTER SCHEMA corgipile OWNER TO postgres;"
        ),
        "schema corgipile holds operator",
    ),
    "default privileges in it": (
        (
            "ALTER DEFAULT PRIVILEGES IN SCHEMA corgipile GRANT ALL ON TABLES TO m_stranger;"
            "RESET ROLE; ALTER SCHEMA corgipile OWNER TO postgres;"
        ),
        "schema corgipile holds default privileges",
    ),
    "the right to create in it": (
        "RESET ROLE; ALTER SCHEMA corgipile OWNER TO postgres; GRANT CREATE ON SCHEMA corgipile TO m_user;",
        "m_user may create objects in schema corgipile",
    ),
}


@pytest.mark.every_server
@pytest.mark.parametrize("how", SQUATTERS)
def test_a_schema_made_by_another_is_refused(server, how):
    made, said = SQUATTERS[how]
    server.sql("CREATE DATABASE squatted TEMPLATE template0; GRANT CREATE ON DATABASE squatted TO m_stranger")
    try:
        server.text(f"SET ROLE m_stranger; CREATE SCHEMA corgipile; {made}", database="squatted")
        with pytest.raises(Exception, match="schema corgipile") as caught:
            server.text("CREATE EXTENSION corgipile", database="squatted")
        assert said in str(caught.value)
        server.text("DROP SCHEMA corgipile CASCADE; CREATE SCHEMA corgipile; CREATE EXTENSION corgipile",
                    database="squatted")  # fmt: skip
    finally:
        server.sql("DROP DATABASE squatted")


def test_default_privileges_do_not_pass_row_security(server):
    server.sql("CREATE DATABASE generous TEMPLATE template0")
    try:
        server.text("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO m_stranger; CREATE EXTENSION corgipile",
                    database="generous")  # fmt: skip
        for table, right in (("models", "TRUNCATE"), ("models", "TRIGGER"), ("models", "REFERENCES"),
                             ("history", "DELETE"), ("history", "TRIGGER")):  # fmt: skip
            query = f"SELECT has_table_privilege('m_stranger', 'corgipile.{table}', '{right}')"
            assert server.text(query, database="generous") == "f\n"
    finally:
        server.sql("DROP DATABASE generous")
