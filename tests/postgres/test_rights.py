"""Who may do what: roles against functions, tables and models."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgroles import ROLES, trains

pytestmark = pytest.mark.usefixtures("roles")

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
        "VALUES ('made for another', 'linear', 1, '{}', '{{1}}', '{0}', '{}', 'nowhere', 'm_owner')"),
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
def test_execute_is_asked_for(server, model, fails, session):
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
    tell = session("m_stranger").tell
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
        assert "buffer_size must be at most corgipile.max_memory" in fails(
            trains(", buffer_size => '2MB'"), "m_stranger"
        )
        said = server.said("EXPLAIN " + trains(), "m_stranger")
        assert "Buffer Memory: 1024 kB" in said[0]
        assert "buffer_size defaults to 1024 kB, the limit of corgipile.max_memory" in said[1]
        assert server.text(trains(), "m_stranger") == "1\n"
        said = server.text("EXPLAIN " + trains(", buffer_size => '1MB', threads => 2"), "m_stranger")
        assert "Threads: 1" in said
        assert "permission denied to set parameter" in fails(
            f"EXPLAIN {trains()}; SET corgipile.max_threads = 2", "m_user"
        )
    finally:
        server.sql("ALTER ROLE m_stranger RESET ALL")


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
def test_two_trainings_of_one_name(server, session):
    """The second waits before its first epoch; where its snapshot is older than the first's model, it fails there."""
    for level, said in (("READ COMMITTED", "2"), ("REPEATABLE READ", "could not serialize access")):
        server.sql("DELETE FROM corgipile.models WHERE name = 'twice'")
        one, two = session(), session()
        one.tell(f"BEGIN; {trains(', name => $$twice$$')}")
        again = trains(", name => $$twice$$").replace("epochs => 1", "epochs => 2")
        two.send(
            f"RESET client_min_messages; BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM seen; {again}; COMMIT"
        )
        server.wait_for_lock()
        one.tell("COMMIT")
        heard = two.hear()
        assert "waiting for another transaction that stores model" in heard
        assert said in heard
        assert ("epoch 0" in heard) == (level == "READ COMMITTED")


@pytest.mark.every_server
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_imports_of_one_name_at_once(server, session, train, level):
    """The second waits for the first and replaces its model, or fails clearly where its snapshot is older."""
    for name, epochs in (("longer", 3), ("shorter", 2)):
        train("seen", name=name, epochs=epochs)
    server.sql("DELETE FROM corgipile.models WHERE name = 'twice'")
    for one, two in (("longer", "shorter"), ("shorter", "longer"), ("longer", "longer")):
        first, second = session(), session()
        first.tell(f"BEGIN; SELECT corgipile.import('twice', corgipile.export('{one}'))")
        again = f"SELECT corgipile.import('twice', corgipile.export('{two}'))"
        second.send(f"BEGIN ISOLATION LEVEL {level}; SELECT FROM seen; {again}; COMMIT")
        server.wait_for_lock()
        first.tell("COMMIT")
        heard = second.hear()
        assert ("could not serialize access" in heard) == (level == "REPEATABLE READ"), heard
        assert ("ERROR" in heard) == (level == "REPEATABLE READ"), heard
        kept = one if level == "REPEATABLE READ" else two
        assert server.value("SELECT corgipile.export('twice') = corgipile.export('KEPT')".replace("KEPT", kept))
    server.sql("DELETE FROM corgipile.models WHERE name IN ('twice', 'longer', 'shorter')")


def test_a_model_replaced_while_another_goes_on_from_it(server, session, train):
    train("seen", name="twice", epochs=3)
    first, second = session(), session()
    first.tell(f"BEGIN; {trains(', name => $$twice$$')}")
    second.send(trains(", name => $$twice$$, warm_start => $$twice$$"))
    server.wait_for_lock()
    first.tell("COMMIT")
    assert 'model "twice" was replaced by a concurrent transaction' in second.hear()
    assert server.value("SELECT rows FROM corgipile.evaluate('twice', 'seen')") == 100
    assert server.text(trains(", name => 'twice', warm_start => 'twice'")) == "1\n"
    server.sql("DELETE FROM corgipile.models WHERE name = 'twice'")


def test_names_have_a_length(fails, train):
    said = fails(trains(f", name => '{'long ' * 300}'"))
    assert "name has 1500 bytes; the limit is 1000" in said
    train("seen", name="n" * 1000, epochs=1)


def test_history_of_many_epochs(server, train):
    train("seen", name="many", epochs=3000)
    train("seen", name="more", epochs=1, warm_start="many")
    query = "SELECT count(*) FROM corgipile.history WHERE model = 'more' AND loss > 0 AND rows = 100"
    assert server.value(query) == 3001
    server.sql("DELETE FROM corgipile.models WHERE name IN ('many', 'more')")
