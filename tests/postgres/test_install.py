"""Installation into a schema of another role, and functions of another version."""

# ruff: noqa: S608  # tests write SQL

import pytest

pytestmark = pytest.mark.usefixtures("roles")


OLDER = """
CREATE FUNCTION older_train(source regclass, model text, features text[], label text, name text DEFAULT NULL)
    RETURNS SETOF record AS '$libdir/corgipile', 'corgipile_train' LANGUAGE C SUPPORT corgipile.train_support;
CREATE FUNCTION older_evaluate(model text, source regclass, features text[] DEFAULT NULL, label text DEFAULT NULL)
    RETURNS record AS '$libdir/corgipile', 'corgipile_evaluate' LANGUAGE C;
"""


@pytest.mark.every_server
@pytest.mark.parametrize("call", ["older_evaluate('old', 'seen')", "older_train('seen', 'linear', '{x}', 'label')"])
def test_functions_of_another_version_are_refused(server, fails, call):
    assert "ALTER EXTENSION corgipile UPDATE in this database" in fails(
        f"BEGIN; {OLDER} SELECT * FROM {call} AS (a int); ROLLBACK"
    )


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
