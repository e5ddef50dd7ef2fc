"""Jobs run as who asked for them, with the session's settings, and as nobody else; others neither see nor end them."""

# ruff: noqa: S608  # tests write SQL

import pytest
from patience import wait_for

pytestmark = pytest.mark.usefixtures("people")
CALL = """SELECT corgipile.train_async(model => 'svm', features => 'x', label => 'y', query => $q$
    SELECT CASE WHEN i = 1 THEN {}(ARRAY[i::real]) ELSE ARRAY[i::real] END AS x, i % 2 AS y
    FROM generate_series(1, 20) i$q$, name => '{}')"""


@pytest.fixture(scope="module")
def people(server):
    """Roles: one that may not log in, a member of it, another, one that sees all, one that signals."""
    server.sql("""
        CREATE ROLE j_group; CREATE ROLE j_one LOGIN IN ROLE j_group; CREATE ROLE j_two LOGIN;
        CREATE ROLE j_sees LOGIN IN ROLE pg_read_all_stats; CREATE ROLE j_signals LOGIN IN ROLE pg_signal_backend;
        CREATE SCHEMA j_evil AUTHORIZATION j_one;
        CREATE TABLE j_rows AS SELECT ARRAY[i] AS x, i % 2 AS y FROM generate_series(1, 500) i;
        GRANT SELECT ON j_rows TO j_group, j_two;
        CREATE TABLE j_many AS SELECT j_rows.* FROM j_rows, generate_series(1, 100);  -- for jobs that do not end
        GRANT SELECT ON j_many TO j_two;
        CREATE TABLE said (what text, role text DEFAULT current_user, session text DEFAULT session_user);
        GRANT ALL ON said TO PUBLIC;
        CREATE FUNCTION peek(real[]) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.said SELECT string_agg(current_setting(name, true), ' ' ORDER BY number)
                FROM unnest(string_to_array('my.tenant work_mem search_path corgipile.max_threads '
                    'plpgsql.variable_conflict', ' ')) WITH ORDINALITY AS s (name, number);
            RETURN $1; END $$;
        CREATE FUNCTION flee(real[]) RETURNS real[] LANGUAGE plpgsql AS $$ DECLARE way text; BEGIN
            FOREACH way IN ARRAY ARRAY['RESET ROLE', 'SET ROLE postgres', 'RESET SESSION AUTHORIZATION', 'RESET ALL',
                'SET SESSION AUTHORIZATION postgres', 'SELECT set_config(''role'', ''postgres'', true)'] LOOP
                BEGIN EXECUTE way; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
                INSERT INTO public.said VALUES (way);
            END LOOP; RETURN $1; END $$;
        CREATE FUNCTION for_two(name text) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public
            AS $$ SELECT corgipile.train_async('j_many', 'svm', 'x', 'y', name => name, epochs => 1000000) $$;
        ALTER FUNCTION for_two OWNER TO j_two;
    """)
    yield
    server.sql("SELECT corgipile.cancel(id), corgipile.wait(id) FROM corgipile.jobs WHERE finished IS NULL")


def run(server, call, before="", user="postgres"):
    """Run a job to its end; return what its functions noted."""
    server.sql("TRUNCATE said")
    said = server.text(f"{before}; {call} AS j \\gset\nRESET search_path; SELECT corgipile.wait(:j)", user)
    return said.split()[-1], server.rows("SELECT * FROM public.said")


@pytest.mark.every_server
def test_settings_and_roles_are_those_of_the_caller(server):
    settings = (
        "SET my.tenant = 'acme'; SET work_mem = '7MB'; SET search_path = public, j_evil; SET corgipile.max_threads = 1"
    )
    what = "acme 7MB public, j_evil 1 error"
    for become, role, session in (("SET ROLE j_group", "j_group", "postgres"), ("SET ROLE j_one", "j_one", "postgres"),
                                  ("SET SESSION AUTHORIZATION j_one; SET ROLE j_group", "j_group", "j_one"),
                                  ("SELECT 1", "postgres", "postgres")):  # fmt: skip
        state, said = run(server, CALL.format("peek", f"of {role}"), f"{settings}; {become}")
        assert (state, said) == ("done", [{"what": what, "role": role, "session": session}])
        assert server.value(f"SELECT owner FROM corgipile.models WHERE name = 'of {role}'") == role
        server.sql("DELETE FROM corgipile.models WHERE name LIKE 'of %'")


def test_settings_of_roles(server):
    """Limits that a superuser sets for who logs in hold in the worker, also for a role that has others of its own."""
    server.sql("ALTER ROLE j_one SET corgipile.max_threads = 1; ALTER ROLE j_one SET my.tenant = 'first'")
    server.sql("ALTER ROLE j_group SET my.tenant = 'other'")
    # what only superusers set can be set by others while its library is not loaded, to be of no effect when it is
    early = "SET ROLE j_group; SET plpgsql.variable_conflict = 'use_column'"
    _, said = run(server, CALL.format("peek", "g"), early, "j_one")
    assert said == [{"what": 'first 4MB "$user", public 1 error', "role": "j_group", "session": "j_one"}]
    warnings = server.value("SELECT warnings FROM corgipile.jobs ORDER BY id DESC LIMIT 1")
    assert warnings.splitlines()[0] == 'permission denied to set parameter "plpgsql.variable_conflict"'
    server.sql("DELETE FROM corgipile.models WHERE name = 'g'")
    server.sql("ALTER ROLE j_one RESET ALL; ALTER ROLE j_group RESET ALL")


@pytest.mark.every_server
@pytest.mark.parametrize("become", ["SET ROLE j_one", "SET ROLE j_group", "SET SESSION AUTHORIZATION j_one"])
def test_nothing_becomes_another_role(server, become):
    state, said = run(server, CALL.format("flee", "fled"), become)
    assert state == "done"
    assert {one["role"] for one in said} == {become.split()[-1]}
    assert len(said) == 6
    server.sql("DELETE FROM corgipile.models WHERE name = 'fled'")


def test_triggers_at_commit_are_the_roles(server):
    server.sql("""
        GRANT CREATE ON SCHEMA public TO j_one; SET ROLE j_one; CREATE TABLE noted (x real[]);
        CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM public.flee(NULL); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON noted DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            EXECUTE FUNCTION at_commit();
        CREATE OR REPLACE FUNCTION note(real[]) RETURNS real[] LANGUAGE sql AS
            $$ INSERT INTO public.noted VALUES ($1) RETURNING x $$;
    """)
    state, said = run(server, CALL.format("note", "noted"), "SET ROLE j_one")
    assert state == "done"
    assert [one["role"] for one in said] == ["j_one"] * 6
    server.sql(
        "DROP TABLE noted; REVOKE CREATE ON SCHEMA public FROM j_one; DELETE FROM corgipile.models WHERE name = 'noted'"
    )


def test_names_on_the_search_path_are_not_looked_up_by_ours(server):
    """An operator or a type of the caller's that takes the place of the server's."""
    sides = "LEFTARG = {0}, RIGHTARG = {0}, FUNCTION = j_evil.same"
    server.sql("SET ROLE j_one; " + "".join(f"""
        CREATE OR REPLACE FUNCTION j_evil.same({kind}, {kind}) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.said VALUES ('evil'); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
        DROP OPERATOR IF EXISTS j_evil.= ({kind}, {kind}); CREATE OPERATOR j_evil.= ({sides.format(kind)});
    """ for kind in ("pg_catalog.int8", "pg_catalog.text", "pg_catalog.timestamptz"))
        + "DROP DOMAIN IF EXISTS j_evil.int8; CREATE DOMAIN j_evil.int8 AS pg_catalog.text")  # fmt: skip
    server.sql("ALTER ROLE j_one SET search_path = j_evil, pg_catalog, public")
    call = "SELECT corgipile.train_async('j_rows', 'svm', 'x', 'y', name => 'ours')"
    assert run(server, call, user="j_one") == ("done", [])
    server.sql("ALTER ROLE j_one RESET ALL; DELETE FROM corgipile.models WHERE name = 'ours'")


def test_who_sees_and_who_ends(server, fails):
    number = int(server.text("SELECT for_two('of_two')", "j_one"))
    see = f"SELECT count(*) FROM corgipile.jobs WHERE id = {number}"
    cancel = f"SELECT corgipile.cancel({number})"
    assert {user: server.value(see, user) for user in ("j_one", "j_two", "j_sees", "j_signals", "postgres")} == {
        "j_one": 0, "j_two": 1, "j_sees": 1, "j_signals": 0, "postgres": 1}  # fmt: skip
    for what in (cancel, f"SELECT corgipile.wait({number}, '0 s')"):
        assert f"you have no job {number}" in fails(what, "j_one")
    assert "permission denied to cancel job" in fails(cancel, "j_sees")
    wait_for(lambda: server.value(f"SELECT corgipile.wait({number}, '0 s')", "j_sees") == "running", "a job that runs")
    assert server.value(cancel, "j_signals") is True
    assert server.value(f"SELECT corgipile.wait({number})", "j_two") == "cancelled"
    assert server.value(f"SELECT error FROM corgipile.jobs WHERE id = {number}", "j_two")
    assert server.value(f"SELECT error FROM corgipile.jobs WHERE id = {number}", "j_sees") is None
    supers = int(server.text("SELECT corgipile.train_async('j_many', 'svm', 'x', 'y', name => 's', epochs => 1000000)"))
    for user in ("j_signals", "j_two"):
        assert "you have no job" in fails(f"SELECT corgipile.cancel({supers})", user)
    assert server.value(f"SELECT corgipile.cancel({supers})") is True
    for inner in ("TABLE corgipile.job_records", "SELECT nextval('corgipile.job_records_id_seq')",
                  "DELETE FROM corgipile.job_records", "UPDATE corgipile.job_records SET call = NULL"):  # fmt: skip
        assert "permission denied" in fails(inner, "j_two")


def test_a_job_takes_the_rights_of_train(server):
    """Those on train, asked when the job runs; those on the table, and on a model of that name."""
    call = "SELECT corgipile.train_async('{}', 'svm', 'x', 'y', name => '{}') AS j \\gset\nSELECT corgipile.wait(:j);"
    error = "SELECT error FROM corgipile.jobs ORDER BY id DESC LIMIT 1"
    server.sql("CREATE TABLE IF NOT EXISTS j_secret AS TABLE j_rows")
    assert "permission denied for table j_secret" in server.text(call.format("j_secret", "m") + error, "j_two")
    server.sql(call.format("j_rows", "not theirs"))
    said = server.text(call.format("j_rows", "not theirs") + error, "j_two")
    assert 'model "not theirs" belongs to postgres' in said
    functions = server.value("SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE proname = 'train' "
                             "AND pronamespace = 'corgipile'::regnamespace")  # fmt: skip
    server.sql(f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC")
    assert "permission denied for function train" in server.text(call.format("j_rows", "m") + error, "j_two")
    server.sql(
        f"GRANT EXECUTE ON FUNCTION {functions} TO PUBLIC; DELETE FROM corgipile.models WHERE name = 'not theirs'"
    )
