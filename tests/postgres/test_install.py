"""Installed into a schema of another, or over an earlier version."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgroles import trains
from pgservers import SqlError

pytestmark = pytest.mark.usefixtures("roles")


@pytest.mark.every_server
def test_an_installation_of_before_is_upgraded(server, model):
    """Its models keep their owners, all may read them as they could, and who may train stays as it was."""
    server.sql("CREATE DATABASE older TEMPLATE template0")
    try:
        server.text(
            """
            CREATE EXTENSION corgipile VERSION '0.1';
            REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA corgipile FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION corgipile.predict TO m_stranger;
            INSERT INTO corgipile.models
                (name, kind, dims, classes, coefficients, intercepts, params, history, source, owner)
                VALUES ('old', 'linear', 2, '{}', '{{1, 2}}', '{0}', '{}',
                '[{"loss": 0.25, "rows": 7}, {"loss": 0.125}]', 'nowhere', 'm_owner'),
                ('orphan', 'linear', 2, '{}', '{{1, 2}}', '{0}', '{}', '5', 'nowhere', 'nobody');
            ALTER EXTENSION corgipile UPDATE;
            """,
            database="older",
        )
        owners = "SELECT string_agg(owner || ' ' || may_read::text, ' ' ORDER BY name) FROM corgipile.models"
        assert server.text(owners, database="older") == "m_owner {public} none {public}\n"
        epochs = "SELECT epoch, loss, rows FROM corgipile.history ORDER BY epoch"
        assert server.text(epochs, database="older").split() == ["0|0.25|7", "1|0.125|"]
        assert server.text("SELECT corgipile.predict('old', 1, 2)", "m_stranger", "older") == "5\n"
        with pytest.raises(Exception, match="permission denied for function train"):
            server.text(trains(source="pg_class"), "m_stranger", "older")
        same = """SELECT string_agg(pg_describe_object(classid, objid, objsubid), ' ' ORDER BY 1) FROM (SELECT classid,
            objid, objsubid FROM pg_depend WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension
            WHERE extname = 'corgipile')) m"""
        assert server.text(same, database="older") == server.text(same)
    finally:
        server.sql("DROP DATABASE older")


@pytest.mark.every_server
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_models_predict_before_the_extension_is_updated(server, version):
    """All else names the statement that updates it."""
    history = version == "0.1"
    server.sql("CREATE DATABASE older TEMPLATE template0")
    try:
        server.text(
            f"""CREATE EXTENSION corgipile VERSION '{version}'; CREATE TABLE t AS SELECT 2 AS b, 1 AS a;
            INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source
                {", history" if history else ""}) VALUES ('old', 'linear', 2, '{{}}', '{{{{1, 2}}}}', '{{0}}',
                '{{"features": ["a", "b"], "label": "a"}}', 't' {", '[]'" if history else ""})""",
            database="older",
        )
        for given in ("1, 2", "ROW(1, 2)", "'{1, 2}'::real[]", "t"):
            assert server.text(f"SELECT corgipile.predict('old', {given}) FROM t", database="older") == "5\n"
        for call in ("evaluate('old', 't')", "evaluate('old', 't', 'a')", "train('t', 'linear', 'b', 'a')"):
            with pytest.raises(SqlError, match="ALTER EXTENSION corgipile UPDATE in this database"):
                server.text(f"SELECT * FROM corgipile.{call}", database="older")
        server.text("REVOKE SELECT ON corgipile.models FROM PUBLIC", database="older")
        denied = "permission denied for " + ("table models" if version == "0.1" else 'model "old"')
        with pytest.raises(SqlError, match=denied):
            server.text("SELECT corgipile.predict('old', 1, 2)", "m_stranger", "older")
    finally:
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
        for version in ("0.1", "0.2", "0.3"):
            with pytest.raises(Exception, match="schema corgipile") as caught:
                server.text(f"CREATE EXTENSION corgipile VERSION '{version}'", database="squatted")
            assert said in str(caught.value)
        server.text("DROP SCHEMA corgipile CASCADE; CREATE SCHEMA corgipile; CREATE EXTENSION corgipile",
                    database="squatted")  # fmt: skip
    finally:
        server.sql("DROP DATABASE squatted")


@pytest.mark.every_server
def test_a_schema_taken_over_since_is_not_upgraded(server):
    server.sql("CREATE DATABASE squatted TEMPLATE template0")
    try:
        server.text("CREATE EXTENSION corgipile VERSION '0.1'; CREATE FUNCTION corgipile.may(int) RETURNS int "
                    "LANGUAGE sql AS 'SELECT 1'", database="squatted")  # fmt: skip
        with pytest.raises(Exception, match=r"schema corgipile holds function may\(integer\)"):
            server.text("ALTER EXTENSION corgipile UPDATE", database="squatted")
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
