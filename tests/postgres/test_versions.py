"""Versions of models: what is kept of what was replaced, and what rollback brings back."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgroles import trains

pytestmark = pytest.mark.usefixtures("roles")

STATE = """SELECT kind, dims, classes, coefficients, intercepts, params, source, created, version, before, owner,
    (SELECT json_agg(h ORDER BY epoch) FROM corgipile.history h WHERE model = 'v') AS history
    FROM corgipile.models WHERE name = 'v'"""
KEPT = "SELECT version, current, before, epochs FROM corgipile.versions WHERE model = 'v' ORDER BY version"


@pytest.fixture(autouse=True)
def clean(server):
    """Begin without the model."""
    server.sql("DELETE FROM corgipile.models WHERE name IN ('v', 'w')")


def kept(server):
    """Return the versions that are kept, the present one as a negative number."""
    return [-row["version"] if row["current"] else row["version"] for row in server.rows(KEPT)]


@pytest.mark.every_server
def test_each_version_comes_back_as_it_was(server, train):
    states = []
    for epochs, kind in ((1, "logistic"), (2, "svm"), (3, "softmax")):
        train("seen", name="v", epochs=epochs, model=kind, holdout=0.2)
        states += server.rows(STATE)
    assert [state["version"] for state in states] == [1, 2, 3]
    assert [len(state["history"]) for state in states] == [1, 2, 3]
    assert [row["epochs"] for row in server.rows(KEPT)] == [1, 2, 3]
    for number in (1, 3, 2, 1):
        assert server.value(f"SELECT corgipile.rollback('v', {number})") == number
        assert server.rows(STATE) == [states[number - 1]]
        assert sorted(map(abs, kept(server))) == [1, 2, 3]
    train("seen", name="v", epochs=1, warm_start="v")
    assert [row["epochs"] for row in server.rows(KEPT)] == [1, 2, 3, 2]
    assert server.value("SELECT before FROM corgipile.models WHERE name = 'v'") == 1


def test_rollback_goes_to_the_version_before(server, train, fails):
    for _ in range(3):
        train("seen", name="v", epochs=1)
    assert server.value("SELECT corgipile.rollback('v')") == 2
    train("seen", name="v", epochs=1)
    assert kept(server) == [1, 2, 3, -4]
    assert [server.value("SELECT corgipile.rollback('v')") for _ in range(2)] == [2, 1]
    assert 'model "v" has no version before 1' in fails("SELECT corgipile.rollback('v')")
    said = fails("SELECT corgipile.rollback('v', 9)")
    assert 'version 9 of model "v" is not stored' in said
    assert "Its version is 1; also stored: 2, 3, 4." in said
    assert 'there is no model "w"' in fails("SELECT corgipile.rollback('w')")
    assert server.value("SELECT corgipile.rollback('v', 1)") == 1
    assert server.value("SELECT corgipile.rollback(NULL)") is None
    assert server.value("SELECT corgipile.predict('v', 1, 2) IS NOT NULL")


def test_as_many_are_kept_as_a_setting_says(server, train, fails):
    for _ in range(7):
        train("seen", name="v", epochs=1)
    assert kept(server) == [3, 4, 5, 6, -7]
    server.sql("SELECT corgipile.rollback('v', 3)")
    train("seen", name="v", epochs=1)  # what was in use last is kept: not 4, which was replaced before
    assert kept(server) == [3, 5, 6, 7, -8]
    said = fails("SELECT corgipile.rollback('v', 4)")
    assert "also stored: 3, 5, 6, 7" in said
    server.sql(f"SET corgipile.keep_versions = 2; {trains(', name => $$v$$')}")
    assert kept(server) == [8, -9]
    server.sql(f"SET corgipile.keep_versions = 1; {trains(', name => $$v$$')}")
    assert kept(server) == [-10]
    assert "version 9 of model" in fails("SELECT corgipile.rollback('v')")


def test_any_change_of_the_model_is_a_version_and_no_other(server, train, fails):
    train("seen", name="v", epochs=1)
    server.sql("""SELECT corgipile.grant_model('v', 'public', 'use');
        UPDATE corgipile.models SET owner = 'm_owner', intercepts = intercepts WHERE name = 'v'""")
    assert kept(server) == [-1]
    server.sql("UPDATE corgipile.models SET intercepts = '{7}' WHERE name = 'v'")
    server.sql("UPDATE corgipile.models SET intercepts = '{8}', name = 'w' WHERE name = 'v'")
    query = "SELECT json_agg((version, intercepts) ORDER BY version)::text FROM corgipile.past WHERE model = 'w'"
    assert '"f2":[7]' in server.text(query)
    server.sql("SELECT corgipile.rollback('w'); UPDATE corgipile.models SET name = 'v' WHERE name = 'w'")
    assert server.value("SELECT intercepts FROM corgipile.models WHERE name = 'v'") == [7]
    assert kept(server) == [1, -2, 3]
    for change in ("version = 5", "before = 7"):
        assert "cannot be changed" in fails(f"UPDATE corgipile.models SET {change}")
    said = server.text(f"BEGIN; SELECT corgipile.rollback('v', 3); ROLLBACK; {KEPT}")
    assert "2|t|1" in said
    server.sql("DELETE FROM corgipile.models WHERE name = 'v'")
    left = "SELECT (SELECT count(*) FROM corgipile.past WHERE {0}) + count(*) FROM corgipile.past_history WHERE {0}"
    assert server.value(left.format("model IN ('v', 'w')")) == 0


@pytest.mark.every_server
def test_rights_on_versions_are_those_on_the_model(server, model, train, fails):
    train("seen", name="m", user="m_replacer")
    back, see = "SELECT corgipile.rollback('m')", "SELECT 1 / count(*) FROM corgipile.{} WHERE model = 'm'"
    forget = "WITH d AS (DELETE FROM corgipile.past WHERE model = 'm' RETURNING 1) SELECT 1 / count(*) FROM d"
    owners = {"owner", "member"}
    cases = [(back, owners | {"replacer"}, 'permission denied for model "m"'), (forget, owners, "division by zero")]
    cases += [(see.format(name), owners | {"reader"}, "division by zero") for name in ("past", "past_history")]
    cases += [(see.format("versions"), owners | {"reader"}, "division by zero")]
    cases += [("UPDATE corgipile.past SET kind = 'svm'", set(), "permission denied for table past")]
    cases += [("DELETE FROM corgipile.past_history", set(), "permission denied for table past_history")]
    for statement, allowed, said in cases:
        for name in ("owner", "member", "user", "reader", "replacer", "stranger"):
            if name in allowed:
                server.text(f"BEGIN; {statement}; ROLLBACK", f"m_{name}")
            else:
                assert said in fails(statement, f"m_{name}"), (name, statement)
    server.sql("REVOKE UPDATE ON corgipile.models FROM PUBLIC")
    try:
        assert "permission denied for table models" in fails(back, "m_owner")
    finally:
        server.sql("GRANT UPDATE ON corgipile.models TO PUBLIC")
    assert "read-only transaction" in fails(f"BEGIN READ ONLY; {back}")
    assert server.value(back, "m_replacer") == 1
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'm'") == "m_owner"


@pytest.mark.every_server
def test_two_sessions_change_a_model(server, train, session):
    """They wait for each other; both versions are kept."""
    train("seen", name="v", epochs=1)
    one, two = session(), session()
    one.tell(f"BEGIN; {trains(', name => $$v$$')}")
    two.send("SELECT corgipile.rollback('v')")
    server.wait_for_lock()
    one.tell("COMMIT")
    assert two.hear().split()[-1] == "1"
    one.tell("BEGIN; UPDATE corgipile.models SET intercepts = '{1}' WHERE name = 'v'")
    two.send("UPDATE corgipile.models SET intercepts = '{2}' WHERE name = 'v'")
    server.wait_for_lock()
    one.tell("COMMIT")
    assert two.hear() == ""
    assert kept(server) == [1, 2, 3, -4]


def test_a_dump_holds_the_versions(server, train):
    for epochs in (1, 2):
        train("seen", name="v", epochs=epochs)
    script = server.dump()
    server.sql("CREATE DATABASE restored TEMPLATE template0")
    try:
        server.text(script, database="restored")
        assert server.text(KEPT, database="restored") == server.text(KEPT)
        server.text("SELECT corgipile.rollback('v')", database="restored")
        assert "2|f|1|2" in server.text(KEPT, database="restored")
    finally:
        server.sql("DROP DATABASE restored")
