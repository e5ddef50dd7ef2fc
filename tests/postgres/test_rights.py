"""Who may do what: roles against functions, tables and models; renamed, dropped, revoked, dumped and restored."""

# ruff: noqa: S608  # tests write SQL

import subprocess
import time

import pytest

ROLES = ("owner", "member", "user", "reader", "replacer", "stranger")


@pytest.fixture(scope="module", autouse=True)
def roles(server):
    """Make six roles: one owns a model, one is a member of it, three hold a right each, one none."""
    server.sql("CREATE ROLE m_owner LOGIN; CREATE ROLE m_member LOGIN IN ROLE m_owner;"
               + "".join(f"CREATE ROLE m_{name} LOGIN;" for name in ROLES[2:]))  # fmt: skip
    server.sql("""
        CREATE TABLE seen AS SELECT ARRAY[i % 7, i / 50 - 1]::real[] AS x, i / 50 AS label, i AS secret
            FROM generate_series(0, 99) i;
        GRANT SELECT (x, label) ON seen TO m_owner, m_member, m_user, m_reader, m_replacer, m_stranger;
        CREATE TABLE unseen AS SELECT * FROM seen;
    """)
    yield
    server.sql("DELETE FROM corgipile.models WHERE owner <> 'postgres'")


@pytest.fixture
def model(server, train):
    """Train the model of m_owner, anew, and grant it."""
    server.sql("DELETE FROM corgipile.models WHERE name IN ('m', 'mine')")
    train("seen", name="m", user="m_owner")
    for role, right in (("user", "use"), ("reader", "read"), ("replacer", "replace")):
        server.text(f"SELECT corgipile.grant_model('m', 'm_{role}', '{right}')", "m_owner")


def trains(more="", source="seen"):
    return f"SELECT count(*) FROM corgipile.train('{source}', 'logistic', 'x', 'label', epochs => 1{more})"


OWNERS = {"owner", "member"}
USERS = OWNERS | {"user", "reader"}
READERS = OWNERS | {"reader"}
# What is done: the statement, who may do it, and what the others are told. Without words they see, or change, no row.
MATRIX = {
    "train": (trains(), set(ROLES), ""),
    "train and store": (trains(", name => 'mine'"), set(ROLES), ""),
    "train over the model": (trains(", name => 'm'"), OWNERS | {"replacer"}, 'model "m" belongs to m_owner'),
    "go on from the model": (trains(", warm_start => 'm'"), READERS, 'permission denied for model "m"'),
    "train on a table that is not theirs": (trains(source="unseen"), set(), "permission denied for table unseen"),
    "train on a column that is not theirs": (
        "SELECT count(*) FROM corgipile.train('seen', 'linear', 'secret', 'label')",
        set(),
        "permission denied for table seen",
    ),
    "predict": ("SELECT count(corgipile.predict('m', x)) FROM seen", USERS, 'permission denied for model "m"'),
    "predict_bool": ("SELECT corgipile.predict_bool('m', 1, 2)", USERS, 'permission denied for model "m"'),
    "predict_proba": ("SELECT corgipile.predict_proba('m', 1, 2)", USERS, 'permission denied for model "m"'),
    "decision": ("SELECT corgipile.decision('m', 1, 2)", USERS, 'permission denied for model "m"'),
    "evaluate": ("SELECT rows FROM corgipile.evaluate('m', 'seen')", USERS, 'permission denied for model "m"'),
    "evaluate, another's table": ("SELECT corgipile.evaluate('m', 'unseen')", set(), "permission denied for"),
    "see": ("SELECT 1 / count(*) FROM corgipile.models WHERE name = 'm'", READERS, "division by zero"),
    "see epochs": ("SELECT 1 / count(*) FROM corgipile.history WHERE model = 'm'", READERS, "division by zero"),
    "write epochs": ("UPDATE corgipile.history SET loss = 0", set(), "permission denied for table history"),
    "empty": ("TRUNCATE corgipile.models CASCADE", set(), "permission denied for table models"),
    "trigger": (
        "CREATE TRIGGER t BEFORE INSERT ON corgipile.models EXECUTE FUNCTION corgipile.note_roles()",
        set(),
        "permission denied",
    ),
    "drop": ("WITH d AS (DELETE FROM corgipile.models WHERE name = 'm' RETURNING 1) SELECT 1 / count(*) FROM d",
             OWNERS, "division by zero"),
    "rename": (("WITH u AS (UPDATE corgipile.models SET name = 'n' WHERE name = 'm' RETURNING 1) "
               "SELECT 1 / count(*) FROM u"), OWNERS, "division by zero"),
    "take": (("WITH u AS (UPDATE corgipile.models SET owner = current_user::text::corgipile.role RETURNING 1) "
             "SELECT 1 / count(*) FROM u"), OWNERS, ""),
    "grant": ("SELECT corgipile.grant_model('m', 'public', 'use')", OWNERS, ""),
    "revoke": ("SELECT corgipile.revoke_model('m', 'm_user', 'use')", OWNERS, ""),
    "insert for another": (
        ("INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source, owner) "
        "VALUES ('made', 'linear', 1, '{}', '{{1}}', '{0}', '{}', 'nowhere', 'm_owner')"),
        OWNERS,
        "violates row-level security policy",
    ),
    "progress": ("SELECT count(*) FROM corgipile.progress", set(ROLES), ""),
    "inner function": (
        "SELECT corgipile.may('own', 'm_owner', 'm_owner', '{}', '{}', '{}')",
        set(),
        "permission denied for function may",
    ),
}  # fmt: skip


@pytest.mark.every_server
@pytest.mark.parametrize("what", MATRIX)
def test_roles(server, model, fails, what):
    statement, allowed, said = MATRIX[what]
    for name in ROLES:
        whole = f"BEGIN; {statement}; ROLLBACK"
        if name in allowed:
            server.text(whole, f"m_{name}")
        else:
            assert said in fails(whole, f"m_{name}"), name


FUNCTIONS = ("train", "predict", "predict_bool", "predict_proba", "decision", "evaluate", "grant", "revoke", "see",
             "progress", "drop", "see epochs")  # fmt: skip


@pytest.mark.every_server
def test_execute_is_asked_for(server, model, fails):
    """Of every function, in a plan of old too, and of who runs it: the definer of a function, else the caller."""
    call = trains()
    server.sql(f"""
        GRANT CREATE ON SCHEMA public TO m_owner; SET ROLE m_owner;
        CREATE FUNCTION as_owner() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
            AS $$ BEGIN RETURN ({call}); END $$;
        CREATE FUNCTION as_caller() RETURNS bigint LANGUAGE sql AS $$ {call} $$;
        CREATE VIEW through_a_view AS {call};
        GRANT SELECT ON through_a_view TO PUBLIC;
    """)
    every = "ALL FUNCTIONS IN SCHEMA corgipile"
    ways = ("SELECT as_caller()", "TABLE through_a_view", call, f"EXPLAIN {call}", f"DECLARE c CURSOR FOR {call}",
            f"DO $$ BEGIN PERFORM ({call}); END $$", f"CREATE TEMP TABLE made AS {call}")  # fmt: skip
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(server.command("m_stranger"), **pipes, text=True, cwd="/", bufsize=1) as psql:

        def tell(sql):
            psql.stdin.write(f"\\set ON_ERROR_STOP 0\nSET client_min_messages = warning; {sql};\n\\echo .\n")
            psql.stdin.flush()
            return "".join(iter(psql.stdout.readline, ".\n")).strip()

        tell(f"SET plan_cache_mode = force_generic_plan; PREPARE p AS {call}")
        try:
            assert [tell("EXECUTE p") for _ in range(2)] == ["1", "1"]
            server.sql(f"REVOKE EXECUTE ON {every} FROM PUBLIC")
            assert "permission denied for function train" in tell("EXECUTE p")
            for way in ways:
                assert "permission denied for function train" in fails(f"BEGIN; {way}; ROLLBACK", "m_stranger"), way
            for what in FUNCTIONS:
                assert "permission denied for function" in fails(MATRIX[what][0], "m_owner"), what
            server.sql("GRANT EXECUTE ON FUNCTION corgipile.train TO m_owner".replace(
                "corgipile.train", server.value("SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'train' "
                                                "AND proargtypes[2] = 'text'::regtype")))  # fmt: skip
            assert server.value("SELECT as_owner()", "m_stranger") == 1
            assert "permission denied for function train" in tell("EXECUTE p")
        finally:
            server.sql(f"""
                GRANT EXECUTE ON {every} TO PUBLIC;
                REVOKE EXECUTE ON FUNCTION corgipile.may(text, corgipile.role, corgipile.role, corgipile.role[],
                    corgipile.role[], corgipile.role[]), corgipile.guard_model(), corgipile.note_roles(),
                    corgipile.follow_roles() FROM PUBLIC;
                DROP VIEW through_a_view; DROP FUNCTION as_owner(), as_caller();
                REVOKE CREATE ON SCHEMA public FROM m_owner;
            """)
        assert tell("EXECUTE p") == "1"
        psql.stdin.close()


def test_rights_on_the_table_count_before_training(server, fails):
    for right in ("INSERT", "UPDATE"):
        server.sql(f"REVOKE {right} ON corgipile.models FROM PUBLIC")
        try:
            if right == "UPDATE":
                server.text(trains(", name => 'mine'"), "m_reader")
            said = fails(trains(", name => 'mine'"), "m_reader")
            assert "permission denied for table models" in said
            assert "epoch 0" not in said
        finally:
            server.sql(f"GRANT {right} ON corgipile.models TO PUBLIC")
    server.sql("DELETE FROM corgipile.models WHERE name = 'mine'")


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


def test_a_model_is_given_only_to_a_role_the_giver_may_become(server, model, fails):
    give = "UPDATE corgipile.models SET owner = '{}' WHERE name = 'm'"
    assert 'must be a member of role "m_user"' in fails(give.format("m_user"), "m_owner")
    server.sql(give.format("m_owner"), "m_member")
    assert "there is no such role" in fails(give.format("nobody here"), "m_owner")
    assert "role 'nobody here' does not exist" in fails("SELECT corgipile.grant_model('m', 'nobody here', 'use')")
    assert "privilege must be use, read, replace or all" in fails("SELECT corgipile.grant_model('m', 'm_user', 'own')")


@pytest.mark.parametrize(("share", "may"), [("none", (0, 0)), ("use", (1, 0)), ("read", (1, 1))])
def test_new_models_are_shared_by_a_setting(server, share, may, fails):
    server.text(f"SET corgipile.share = {share}; {trains(', name => $$shared$$')}", "m_owner")
    predict = "SELECT count(corgipile.predict('shared', 1, 2))"
    if may[0]:
        assert server.value(predict, "m_stranger") == 1
    else:
        assert "permission denied for model" in fails(predict, "m_stranger")
    assert server.value("SELECT count(*) FROM corgipile.models WHERE name = 'shared'", "m_stranger") == may[1]
    server.sql("DELETE FROM corgipile.models WHERE name = 'shared'", "m_owner")


def test_limits_of_the_server(server, fails):
    server.sql(
        "ALTER ROLE m_stranger SET corgipile.max_memory = '1MB'; ALTER ROLE m_stranger SET corgipile.max_threads = 1"
    )
    try:
        assert "corgipile.max_memory allows 1024 kB" in fails(trains(), "m_stranger")
        said = server.text("EXPLAIN " + trains(", buffer_size => '1MB', threads => 2"), "m_stranger")
        assert "Threads: 1" in said
        assert "permission denied to set parameter" in fails(
            f"EXPLAIN {trains()}; SET corgipile.max_threads = 2", "m_user"
        )
    finally:
        server.sql("ALTER ROLE m_stranger RESET ALL")


def restore(server, script, database):
    """Run a dump in a new database, and return what the server said against it."""
    server.sql(f"CREATE DATABASE {database} TEMPLATE template0")
    command = [*server.psql("-XAtq")[:-1], database]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=True, cwd="/").stderr


def dump(server):
    command = [server.bin / "pg_dump", "-h", server.where().host, "-U", "postgres", "postgres"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout


@pytest.mark.every_server
def test_dumps_keep_owners_and_rights(server, model):
    server.sql("CREATE ROLE gone; ALTER ROLE gone LOGIN; GRANT SELECT ON seen TO gone")
    server.text(trains(", name => 'of one gone'"), "gone")
    server.text("SELECT corgipile.grant_model('m', 'gone', 'read')", "m_owner")
    script = dump(server)
    server.sql("DROP OWNED BY gone; DROP ROLE gone")
    query = (
        "SELECT name, owner, may_use, may_read, may_replace FROM corgipile.models WHERE name IN ('m', 'of one gone')"
    )
    try:
        said = restore(server, script, "restored")
        assert 'model "of one gone" has no owner here; it becomes postgres' in said
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
        for version in ("0.1", "0.2"):
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


HOSTILE = """
    CREATE SCHEMA bait AUTHORIZATION m_stranger; SET ROLE m_stranger;
    CREATE FUNCTION bait.steal(anyelement, anyelement) RETURNS bool LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'stolen by %', current_user; END $$;
    CREATE FUNCTION bait.may(text, corgipile.role, corgipile.role[], corgipile.role[], corgipile.role[]) RETURNS bool
        LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stolen'; END $$;
    CREATE FUNCTION bait.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'stolen'; END $$;
    CREATE FUNCTION bait.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stolen'; END $$;
    CREATE OPERATOR bait.= (FUNCTION = bait.steal, LEFTARG = anyelement, RIGHTARG = anyelement);
    CREATE TEMP TABLE models (name text); CREATE TEMP TABLE history (model text); RESET ROLE;
"""


def test_names_of_a_caller_take_no_place_of_ours(server, model):
    said = server.text(f"""BEGIN; {HOSTILE} GRANT USAGE ON SCHEMA bait TO PUBLIC;
        SET search_path = pg_temp, bait, pg_catalog; {trains(", name => 'm'").replace("'seen'", "'public.seen'")};
        SELECT count(corgipile.predict('m', x)) FROM public.seen;
        SELECT corgipile.grant_model('m', 'm_stranger', 'use'); SELECT rows FROM corgipile.evaluate('m', 'public.seen');
        {trains(", name => 'm3', warm_start => 'm'").replace("'seen'", "'public.seen'")}; ROLLBACK""")
    assert said.split() == ["1", "100", "100", "1"]


@pytest.mark.every_server
def test_two_trainings_of_one_name(server, train):
    """The second waits before its first epoch; where its snapshot is older than the first's model, it fails there."""
    for level, said in (("READ COMMITTED", "2"), ("REPEATABLE READ", "could not serialize access")):
        server.sql("DELETE FROM corgipile.models WHERE name = 'twice'")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with (
            subprocess.Popen(server.command(), **pipes, text=True, cwd="/") as one,
            subprocess.Popen(server.command(), **pipes, text=True, cwd="/") as two,
        ):
            one.stdin.write(f"BEGIN; {trains(', name => $$twice$$')}; SELECT 'stored';\n")
            one.stdin.flush()
            while "stored" not in one.stdout.readline():
                pass
            again = trains(", name => $$twice$$").replace("epochs => 1", "epochs => 2")
            two.stdin.write(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM seen; {again}; COMMIT;\n")
            two.stdin.close()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not server.value(waiting):
                time.sleep(0.01)
            one.stdin.write("COMMIT;\n")
            one.stdin.close()
            heard = two.stdout.read()
        assert "waiting for another transaction that stores a model" in heard
        assert said in heard
        assert ("epoch 0" in heard) == (level == "READ COMMITTED")


def test_names_have_a_length(fails, train):
    said = fails(trains(f", name => '{'long ' * 300}'"))
    assert "name has 1500 bytes; 1000 at most are allowed" in said
    train("seen", name="n" * 1000, epochs=1)


def test_history_of_many_epochs(server, train):
    train("seen", name="many", epochs=3000)
    train("seen", name="more", epochs=1, warm_start="many")
    query = "SELECT count(*) FROM corgipile.history WHERE model = 'more' AND loss > 0 AND rows = 100"
    assert server.value(query) == 3001
    server.sql("DELETE FROM corgipile.models WHERE name IN ('many', 'more')")
