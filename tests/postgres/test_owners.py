"""Models belong to roles: renamed, dropped, given away, dumped and restored."""

# ruff: noqa: S608  # tests write SQL

import subprocess

import pytest
from pgroles import trains

pytestmark = pytest.mark.usefixtures("roles")


@pytest.mark.every_server
def test_models_stay_with_a_role(server, train, fails):
    """Renamed, its name taken by another, given away, dropped."""
    server.sql("CREATE ROLE first_one LOGIN; CREATE ROLE second LOGIN; GRANT SELECT ON seen TO first_one, second")
    train("seen", name="kept", user="first_one")
    server.text("SELECT corgipile.grant_model('kept', 'second', 'use')", "first_one")
    use = "SELECT corgipile.predict('kept', 1, 2) IS NOT NULL"
    server.sql("ALTER ROLE first_one RENAME TO renamed; CREATE ROLE first_one LOGIN")
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'kept'") == "renamed"
    assert server.value(use, "renamed")
    assert "permission denied for model" in fails(use, "first_one")
    for role, said in (("renamed", "owner of type corgipile.models_of_"), ("second", "corgipile.models")):
        assert said in fails(f"REVOKE ALL ON seen FROM renamed, second; DROP ROLE {role}")
    server.sql("REASSIGN OWNED BY renamed TO first_one; DROP OWNED BY renamed; DROP ROLE renamed")
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'kept'") == "first_one"
    assert server.value(use, "first_one")
    server.sql("GRANT SELECT ON seen TO first_one")
    train("seen", name="kept", user="first_one")
    server.sql("DROP OWNED BY second; DROP ROLE second")
    assert server.value("SELECT may_use FROM corgipile.models WHERE name = 'kept'") == []
    server.sql("DROP OWNED BY first_one; DROP ROLE first_one")
    assert server.rows("SELECT name FROM corgipile.models WHERE name = 'kept'") == []
    assert server.value("SELECT count(*) FROM corgipile.history WHERE model = 'kept'") == 0


@pytest.mark.every_server
def test_a_role_is_needed_while_one_model_names_it(server, train, fails):
    """Of two models that it may use; one is renamed, one taken away, then the other dropped, or both at once."""
    for last in (
        "DELETE FROM corgipile.models WHERE name = 'other'",
        "DELETE FROM corgipile.models WHERE name IN ('one', 'other')",
    ):
        server.sql("CREATE ROLE twice")
        for name in ("one", "two"):
            train("seen", name=name)
            server.text(f"SELECT corgipile.grant_model('{name}', 'twice', 'use')")
        server.sql("UPDATE corgipile.models SET name = 'other' WHERE name = 'two'")
        if "'one'" not in last:
            server.text("SELECT corgipile.revoke_model('one', 'twice', 'use')")
        assert "corgipile.models" in fails("DROP ROLE twice")
        server.text(last)
        server.sql("DROP ROLE twice")
    server.sql("DELETE FROM corgipile.models WHERE name = 'one'")


@pytest.mark.every_server
@pytest.mark.parametrize("statement", [
    "DROP OWNED BY m_both",
    "UPDATE corgipile.models SET may_use = '{}', may_read = '{}' WHERE name IN ('one', 'two')",
], ids=["drop owned", "update"])  # fmt: skip
def test_rights_on_two_models_are_taken_back_by_one_statement(server, train, statement):
    server.sql("CREATE ROLE m_both")
    for name in ("one", "two"):
        train("seen", name=name)
        server.text(f"SELECT corgipile.grant_model('{name}', 'm_both', 'read')")
    server.sql(f"{statement}; DROP ROLE m_both; DELETE FROM corgipile.models WHERE name IN ('one', 'two')")


@pytest.mark.every_server
@pytest.mark.parametrize("change", [
    "ALTER DOMAIN {} RENAME TO int8", "ALTER TYPE {} RENAME TO int8", "DROP DOMAIN {}",
    "DROP TYPE public.void, {} CASCADE", "ALTER DOMAIN {} ADD CHECK (public.spy(VALUE))",
    "ALTER DOMAIN {} SET DEFAULT 'public'", "ALTER DOMAIN {} SET NOT NULL",
    "ALTER DOMAIN {} SET SCHEMA public", "ALTER TYPE {} SET SCHEMA public", "ALTER DOMAIN {} OWNER TO m_owner",
    "SET search_path = corgipile; DO $$ BEGIN DROP DOMAIN IF EXISTS {}; END $$",
], ids=lambda change: change.replace("{}", "it"))  # fmt: skip
def test_a_role_cannot_change_the_type_that_stands_for_it(server, train, fails, change):
    """Its code would reach others through the schema of the extension, and its models would lose their owner."""
    server.sql("""CREATE ROLE changer LOGIN IN ROLE m_owner; GRANT SELECT ON seen TO changer;
        CREATE DOMAIN public.void AS int; ALTER DOMAIN public.void OWNER TO changer;
        GRANT CREATE ON SCHEMA public TO changer""")
    try:
        train("seen", name="changed", user="changer")
        found = "SELECT oid::regtype::text FROM pg_type WHERE typowner = 'changer'::regrole AND typname ~ '^models_of'"
        stands = server.value(found)
        assert "must stay as it is: models belong to its owner" in fails(change.format(stands), "changer")
        assert server.value(found) == stands
        assert server.value("SELECT owner FROM corgipile.models WHERE name = 'changed'") == "changer"
        server.sql("ALTER DOMAIN public.void SET NOT NULL; DROP DOMAIN public.void", "changer")
        server.sql(f"ALTER DOMAIN {stands} SET NOT NULL")  # a superuser may, as when it restores a dump
    finally:
        server.sql("DROP OWNED BY changer; DROP ROLE changer")


def test_a_model_is_given_only_to_a_role_the_giver_may_become(server, model, fails):
    give = "UPDATE corgipile.models SET owner = '{}' WHERE name = 'm'"
    assert 'must be a member of role "m_user"' in fails(give.format("m_user"), "m_owner")
    server.sql(give.format("m_owner"), "m_member")
    assert "a role must exist to own model" in fails(give.format("nobody here"), "m_owner")
    assert "role 'nobody here' does not exist" in fails("SELECT corgipile.grant_model('m', 'nobody here', 'use')")
    assert "privilege must be use, read, replace or all" in fails("SELECT corgipile.grant_model('m', 'm_user', 'own')")


def restore(server, script, database):
    """Run a dump in a new database, and return what the server said against it."""
    server.sql(f"CREATE DATABASE {database} TEMPLATE template0")
    command = [*server.psql("-XAtq")[:-1], database]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=True, cwd="/").stderr


@pytest.mark.every_server
def test_dumps_keep_owners_and_rights(server, model):
    server.sql("CREATE ROLE gone; ALTER ROLE gone LOGIN; GRANT SELECT ON seen TO gone")
    server.text(trains(", name => 'of one gone'"), "gone")
    server.text("SELECT corgipile.grant_model('m', 'gone', 'read')", "m_owner")
    script = server.dump()
    server.sql("DROP OWNED BY gone; DROP ROLE gone")
    query = (
        "SELECT name, owner, may_use, may_read, may_replace FROM corgipile.models WHERE name IN ('m', 'of one gone')"
    )
    try:
        said = restore(server, script, "restored")
        assert 'model "of one gone" has no existing owner; postgres now owns it' in said
        assert server.text(f"{query} ORDER BY name", database="restored").split() == [
            "m|m_owner|{m_user}|{m_reader,none}|{m_replacer}", *["of", "one", "gone|postgres|{}|{}|{}"]]  # fmt: skip
        assert server.text("SELECT count(*) FROM corgipile.history WHERE model = 'm'", database="restored") == "2\n"
        server.text("SELECT corgipile.predict('m', 1, 2)", "m_reader", "restored")
        with pytest.raises(Exception, match="permission denied for model"):
            server.text("SELECT corgipile.predict('m', 1, 2)", "m_stranger", "restored")
        server.text("REASSIGN OWNED BY m_owner TO m_stranger", database="restored")
        assert "m_stranger" in server.text(query, database="restored")
        server.text("DROP EXTENSION corgipile", database="restored")
        server.text("CREATE EXTENSION corgipile", database="restored")
    finally:
        server.sql("DROP DATABASE restored")


@pytest.mark.every_server
def test_one_role_stores_models_in_sessions_at_once(server, train, session):
    """Neither its first models nor later ones wait for each other longer than for the type of the role."""
    server.sql("CREATE ROLE busy LOGIN; GRANT SELECT ON seen TO busy")
    for made in ("first", "later"):
        one, two = session("busy"), session("busy")
        one.tell(f"BEGIN; {trains(f', name => $${made} 1$$')}")
        two.send(f"SET lock_timeout = '250s'; {trains(f', name => $${made} 2$$')}")
        if made == "first":
            server.wait_for_lock()
            one.tell("COMMIT")
        assert two.hear() == "1"
        one.tell("COMMIT")
    owners = server.value("SELECT json_agg(owner) FROM corgipile.models WHERE name ~ '^(first|later) [12]$'")
    assert owners == ["busy"] * 4
    server.sql("DROP OWNED BY busy; DROP ROLE busy")
    assert server.value("SELECT count(*) FROM corgipile.models WHERE name ~ '^(first|later) [12]$'") == 0


@pytest.mark.every_server
@pytest.mark.parametrize("order", ["dropped first", "stored first"])
def test_a_model_stored_while_its_owner_is_dropped(server, train, session, order):
    """It is stored after all others are gone, and is the role's; or goes with them."""
    server.sql("CREATE ROLE brief LOGIN; GRANT SELECT ON seen TO brief")
    train("seen", name="before", user="brief")
    one, two = session(), session("brief")
    store, drop = trains(", name => 'meanwhile'"), "DROP OWNED BY brief"
    first, then = (one, two) if order == "dropped first" else (two, one)
    first.tell(f"BEGIN; {drop if first is one else store}")
    then.send(store if then is two else drop)
    server.wait_for_lock()
    assert first.tell("COMMIT") == ""
    assert then.hear() == ("1" if then is two else "")
    left = [{"name": "meanwhile", "owner": "brief"}] if then is two else []
    assert server.rows("SELECT name, owner FROM corgipile.models WHERE name IN ('before', 'meanwhile')") == left
    server.sql("DROP OWNED BY brief; DROP ROLE brief")


@pytest.mark.parametrize("column", ["may_use", "may_read", "may_replace"])
def test_lists_of_roles_hold_no_null(server, model, fails, column):
    """One that did would be an error to all who look at the table."""
    said = f"{column} of model "
    change = f"UPDATE corgipile.models SET {column} = ARRAY[NULL, 'm_user']::corgipile.role[] WHERE name = 'm'"
    assert said in fails(change, "m_owner")
    same = "kind, dims, classes, coefficients, intercepts, params, source"
    copy = (f"INSERT INTO corgipile.models (name, {same}, {column}) SELECT 'copy', {same}, "
            "ARRAY[NULL]::corgipile.role[] FROM corgipile.models WHERE name = 'm'")  # fmt: skip
    assert said in fails(copy, "m_owner")
