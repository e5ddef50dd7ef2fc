"""Objects that a role plants under the names of the server's own: no function of the extension may run them.

A schema at the front of the search path, and pg_temp, hold types, functions, aggregates and operators by every name in
the extension's sources. Each raises a warning that names the role that ran it.
"""

# ruff: noqa: S608  # tests write SQL

import re
from pathlib import Path

import pytest
from pgroles import ROLES
from pgservers import SqlError, literal

from corgipile.sql.connection import connect

pytestmark = pytest.mark.usefixtures("roles")
SOURCES = Path(__file__).parents[2] / "postgres"
TYPES = [
    *(
        "bool",
        "bytea",
        "float4",
        "float8",
        "int2",
        "int4",
        "int8",
        "interval",
        "json",
        "jsonb",
        "name",
        "numeric",
        "oid",
    ),
    *("regclass", "regnamespace", "text", "timestamptz", "xid"),
]
PLANT = """
    SET search_path = pg_catalog;
    CREATE FUNCTION PLACE.note(text) RETURNS bool LANGUAGE plpgsql AS
        $$ BEGIN RAISE WARNING 'planted % as %', $1, current_user; RETURN true; END $$;
    DO $plant$
    DECLARE
        types regtype[] := TYPES;
        body text := $$BEGIN RAISE WARNING 'planted %% as %%', %L, current_user; RETURN NULL; END$$;
        one record;
    BEGIN
        FOR one IN SELECT p.proname AS name, p.prokind = 'f' AS plain, p.prorettype::regtype AS result, p.proretset
                AS rows, (SELECT string_agg(a::regtype::text, ', ' ORDER BY n) FROM unnest(p.proargtypes)
                WITH ORDINALITY q (a, n)) AS given, 'made' || p.oid AS made,
                format(CASE WHEN p.proretset THEN replace(body, 'NULL', '') ELSE body END, p.proname) AS body
            FROM pg_proc p LEFT JOIN pg_aggregate g ON g.aggfnoid = p.oid
            WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (NAMES) AND p.prokind IN ('f', 'a')
                AND coalesce(g.aggkind, 'n') = 'n'
                AND p.prorettype <> ALL ('{trigger,internal,cstring,record,void}'::regtype[])
                AND p.proargtypes::oid[] <@ (types
                    || '{anyelement,anyarray,anynonarray,text[],float8[],regclass[]}'::regtype[])::oid[]
        LOOP
            IF one.plain THEN
                EXECUTE format('CREATE FUNCTION PLACE.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', one.name, one.given,
                    CASE WHEN one.rows THEN 'SETOF' END, one.result, one.body);
            ELSE
                EXECUTE format('CREATE FUNCTION PLACE.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', one.made,
                    concat_ws(', ', 'text', one.given), one.body);
                EXECUTE format('CREATE AGGREGATE PLACE.%I(%s) (SFUNC = PLACE.%I, STYPE = text)', one.name,
                    coalesce(one.given, '*'), one.made);
            END IF;
        END LOOP;
        FOR one IN SELECT o.oprname AS name, o.oprleft::regtype AS a, o.oprright::regtype AS b, 'made' || o.oid AS made,
                o.oprresult::regtype AS result, format(body, o.oprname) AS body
            FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (OPERATORS)
                AND o.oprleft = ANY (types || '{anyarray,anycompatiblearray,text[]}'::regtype[])
                AND o.oprright = ANY (types || '{anyarray,anycompatiblearray,text[],jsonpath}'::regtype[])
        LOOP
            EXECUTE format('CREATE FUNCTION PLACE.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', one.made, one.a, one.b,
                one.result, one.body);
            EXECUTE format('CREATE OPERATOR PLACE.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = PLACE.%I)', one.name,
                one.a, one.b, one.made);
        END LOOP;
        FOR one IN SELECT typname AS name, oid::regtype AS base FROM pg_type WHERE oid = ANY (types) LOOP
            EXECUTE format('CREATE DOMAIN PLACE.%I AS pg_catalog.%I CHECK (PLACE.note(%L))', one.name, one.name,
                'type ' || one.name);
        END LOOP;
    END $plant$;
    CREATE TABLE PLACE.models (name text); CREATE TABLE PLACE.pg_roles (rolname name);
"""


def plant(place):
    """Write SQL that plants what warns into a schema."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("s*/*.[cs]*"))]
    said = " ".join(re.sub(r"/\*.*?\*/|--[^\n]*", " ", text, flags=re.DOTALL) for text in texts)
    names, operators = re.findall(r"\b[a-z_][a-z_0-9]*", said), re.findall(r"[-+*/<>=~!@#%^&|?]+", said)
    filled = PLANT.replace("PLACE", place).replace("TYPES", f"{literal(TYPES)}::regtype[]")
    return filled.replace("NAMES", f"{literal(sorted({*names}))}::text[]").replace(
        "OPERATORS", f"{literal(sorted({*operators}))}::text[]"
    )


TRAIN = "'public.many', 'logistic', 'a', 'flag', epochs => 2"
MODELS = {
    "plain": "'x', 'label'",
    "texts": "'a', 'b'",
    "bools": "'a', 'flag'",
    "hashed": "'b', 'flag', encode => 'hash:64', learning_rate => 0.1",
    "scaled": "'a', 'flag', standardize => true, patience => 1, holdout => 0.3",
    "groups": "'a', 'flag', by => 'kind'",
    "labels": "'a', labels => 'tags'",
}
# What calls each function; NAME is the caller's own model.
CALLS = {
    "train": [
        *(f"corgipile.train('public.many', 'logistic', {how}, epochs => 2, name => 'NAME {name}')"
          for name, how in MODELS.items() for _ in range(2)),
        f"corgipile.train({TRAIN}, name => 'NAME bools', warm_start => 'NAME bools')",
        "corgipile.train(query => 'TABLE public.flags', model => 'logistic', label => 'flag', epochs => 2)",
        f"corgipile.train({TRAIN}, \"where\" => 'pg_catalog.boolne(flag, NULL) IS NULL', weights => true)",
    ],
    "cross_validate": [f"corgipile.cross_validate({TRAIN}, folds => 2)"],
    "train_async": [f"corgipile.train_async({TRAIN}, name => 'NAME job')"],
    "wait": ["corgipile.wait(id) FROM corgipile.jobs"],
    "read_jobs": ["corgipile.jobs"],
    "cancel": ["corgipile.cancel(id) FROM corgipile.jobs LIMIT 1"],
    "read_progress": ["corgipile.progress"],
    "predict": [
        "corgipile.predict('NAME plain', x) FROM public.many",
        "corgipile.predict('NAME bools', m) FROM public.many m",
        "corgipile.predict('NAME hashed', 'a'::pg_catalog.text)",
        "corgipile.predict('NAME groups', 1, 'k')",
    ],
    "predict_bool": ["corgipile.predict_bool('NAME bools', 1)"],
    "predict_text": ["corgipile.predict_text('NAME texts', 1)"],
    "predict_labels": ["corgipile.predict_labels('NAME labels', 1)"],
    "predict_proba": ["corgipile.predict_proba('NAME scaled', 1)"],
    "decision": ["corgipile.decision('NAME bools', 1)"],
    "class_names": ["corgipile.class_names('NAME texts')"],
    **{name: [f"corgipile.{name}('{of} bools', 'public.many')" for of in ("NAME", "shared")]
       for name in ("evaluate", "confusion_matrix", "class_metrics", "auc", "roc", "calibration", "summary")},
    "evaluate_labels": ["corgipile.evaluate_labels('NAME labels', 'public.many')"],
    "export": [f"corgipile.export('NAME {name}')" for name in MODELS],
    "import": [f"corgipile.import('NAME copy', corgipile.export('NAME {name}'))" for name in MODELS],
    "grant_model": ["corgipile.grant_model('NAME bools', 'public', 'all')"],
    "change_grant": ["corgipile.change_grant('NAME bools', 'm_user', 'use', false)"],
    "revoke_model": ["corgipile.revoke_model('NAME bools', 'public', 'all')"],
    "rollback": ["corgipile.rollback('NAME bools')", "corgipile.rollback('shared bools')", "corgipile.versions"],
    "may": ["corgipile.may('use', 'm_owner', '{m_user}', '{}', '{}')"],
    "role_in": ["corgipile.role_in('m_owner')"],
    "role_out": ["corgipile.role_out('m_owner')"],
    "role_send": ["corgipile.role_send('m_owner')"],
    # what the triggers do
    "guard_model": ["", "INSERT INTO corgipile.models SELECT * FROM corgipile.models LIMIT 0"],
    "note_roles": ["", "BEGIN; DELETE FROM corgipile.models; ROLLBACK"],
    "keep_version": ["", "UPDATE corgipile.models SET source = 'elsewhere'"],
    "follow_roles": ["", "DO 'BEGIN DROP OWNED BY CURRENT_USER; EXCEPTION WHEN insufficient_privilege THEN END'"],
}  # fmt: skip


def script(name):
    """Write the statements that call every function, under models of a name."""
    for calls in CALLS.values():
        if not calls[0]:
            yield from calls[1:]
        for call in filter(None, calls if calls[0] else ()):
            rows = call.startswith(("corgipile.train(", "corgipile.jobs", "corgipile.versions", "corgipile.progress"))
            yield f"SELECT * FROM {call}" if rows else f"SELECT {call}"


@pytest.fixture
def bait(server):
    """Plant a schema, and give models to everybody."""
    server.sql(f"""
        CREATE SCHEMA bait; GRANT USAGE ON SCHEMA bait TO PUBLIC; {plant("bait")}
        CREATE TABLE public.many AS SELECT i % 7 - 3.5::float8 AS a, ARRAY[i % 7 - 3.5, 1]::real[] AS x,
            i % 7 / 4 AS label, CASE WHEN i % 7 > 3 THEN 'p' ELSE 'q' END AS b, i % 7 > 3 AS flag, 'k'::text AS kind,
            ARRAY[(i % 7 / 4)::text] AS tags FROM generate_series(1, 60) i;
        CREATE VIEW public.flags AS SELECT a, flag FROM public.many;
        GRANT SELECT ON public.many, public.flags TO PUBLIC;
    """)
    for name in ("bools", "plain"):
        how = MODELS[name]
        for _ in range(2):
            server.sql(
                f"SELECT * FROM corgipile.train('public.many', 'logistic', {how}, epochs => 2, name => 'shared {name}')"
            )
        server.sql(f"SELECT corgipile.grant_model('shared {name}', 'public', 'all')")
    yield
    server.sql("SET client_min_messages = error; DROP SCHEMA bait CASCADE; DROP TABLE many CASCADE")
    server.sql("DELETE FROM corgipile.models")


PATH = "SET search_path = pg_temp, bait, pg_catalog, public"


@pytest.mark.every_server
def test_nothing_planted_runs(server, bait):
    """Every function, called by six roles."""
    took = {row["proname"] for row in server.rows("""SELECT DISTINCT proname FROM pg_proc WHERE pronamespace =
        'corgipile'::regnamespace AND 'internal'::regtype <> ALL (proargtypes)""")}  # fmt: skip
    assert took == set(CALLS), "every function needs a call here"
    before = len(server.log())
    for role in ROLES:
        sql = ";\n".join(script(role)).replace("NAME", role)
        sql = f"\\set ON_ERROR_STOP 0\nSET client_min_messages = warning; {plant('pg_temp')} {PATH};\n{sql}"
        said, heard = server.said(sql, f"m_{role}")
        assert heard == "", role
        assert "done" in said.splitlines(), "the job failed"
    assert "planted" not in server.log()[before:]  # of jobs


@pytest.mark.every_server
@pytest.mark.parametrize("taken", ["1::int8", "'a'::pg_catalog.varchar = 'b'", "count(*)", "now()"])
def test_what_is_planted_lies_in_wait(server, bait, taken):
    with pytest.raises(SqlError, match=r"planted .* as m_owner"):
        server.said(f"{plant('pg_temp')} {PATH}; SELECT {taken}", "m_owner")


@pytest.mark.every_server
def test_constraints_on_the_type_of_a_role_do_not_run(server, bait, fails):
    """A role cannot add one; one from elsewhere, as of a dump, runs nowhere."""
    check = """SELECT corgipile.import('own', corgipile.export('shared bools')); DO $do$ BEGIN EXECUTE (SELECT
        format('ALTER DOMAIN %s ADD CHECK (bait.note(VALUE::text))', oid::regtype) FROM pg_type
        WHERE typname ~ '^models_of' AND typowner = 'm_owner'::regrole); END $do$"""
    assert "must stay as it is" in fails(check, "m_owner")
    server.sql("SET SESSION AUTHORIZATION m_owner; " + check.replace("; DO", "; RESET SESSION AUTHORIZATION; DO"))
    before = len(server.log())
    for role in ("m_owner", "m_member", "postgres"):
        server.sql(f"SELECT * FROM corgipile.train({TRAIN}, name => 'of {role}')", role)
        server.sql("UPDATE corgipile.models SET owner = 'm_owner' WHERE name = 'own'", role)
        server.sql("SELECT corgipile.grant_model('own', 'public', 'all')", role)
    server.sql(
        "REASSIGN OWNED BY m_member TO m_owner; DROP OWNED BY m_owner; GRANT SELECT (x, label) ON seen TO m_owner"
    )
    assert "planted" not in server.log()[before:]


SPIES = """
    CREATE ROLE m_fresh LOGIN; CREATE SCHEMA own AUTHORIZATION m_fresh;
    CREATE FUNCTION own.spy(float8) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN
        RAISE INFO 'spy as %', current_user; PERFORM set_config('search_path', 'bait, pg_catalog', false); RETURN $1;
    END $$;
    CREATE VIEW own.seen AS SELECT own.spy(a) AS a, flag FROM public.many; GRANT SELECT ON own.seen TO m_fresh;
    CREATE FUNCTION own.event() RETURNS event_trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE WARNING 'planted event as %', current_user; END $$;
    CREATE EVENT TRIGGER planted ON ddl_command_end EXECUTE FUNCTION own.event();
"""


@pytest.mark.every_server
def test_code_of_the_caller_runs_as_the_caller(server, bait):
    """In views and conditions; what it sets stays, what the extension sets does not, after errors either."""
    server.sql(SPIES)
    try:
        said, heard = server.said(
            f"""{PATH}; SELECT * FROM corgipile.train(query => 'SELECT a, flag FROM own.seen', model => 'logistic',
                label => 'flag', epochs => 2, name => 'fresh');
            SET search_path = pg_temp, public; SELECT corgipile.evaluate('fresh', 'many', "where" => 'own.spy(a) > 0');
            SHOW search_path; SET search_path = pg_temp, public;
            DO $$ BEGIN PERFORM corgipile.predict('none', 1); EXCEPTION WHEN undefined_object THEN NULL; END $$;
            SHOW search_path; SELECT current_user; BEGIN; SAVEPOINT s;
            SELECT corgipile.export('fresh') IS NULL; ROLLBACK TO s; SHOW search_path""", "m_fresh")  # fmt: skip
        assert set(re.findall("spy as (.*)", heard)) == {"m_fresh"}
        assert said.splitlines()[-5:] == ["bait, pg_catalog", "pg_temp, public", "m_fresh", "f", "pg_temp, public"]
    finally:
        server.sql("""DROP EVENT TRIGGER planted; DROP SCHEMA own CASCADE; DELETE FROM corgipile.models;
            DROP OWNED BY m_fresh; DROP ROLE m_fresh""")


# The conditions are the user's own, so they name operators in full.
STATEMENTS = """
    SELECT a, flag FROM many WHERE a OPERATOR(pg_catalog.<) 2 TRAIN BY logistic WITH epochs = 1, label = flag
    SELECT a, label FROM many TRAIN BY logistic WITH epochs = 1, holdout = 0.3 INTO here
    SELECT a, label FROM (SELECT * FROM many) q TRAIN BY logistic WITH epochs = 1, learning_rate = 0.01 INTO here
    SELECT a, b FROM many TRAIN BY logistic WITH epochs = 1 INTO words
    EXPLAIN SELECT a, flag FROM many TRAIN BY logistic
    SELECT * FROM many PREDICT BY here
    SELECT * FROM many PREDICT BY words
    SELECT * FROM ML.PREDICT(MODEL here, TABLE many, STRUCT(0.3 AS threshold))
    SELECT * FROM ML.EVALUATE(MODEL here)
    SELECT * FROM ML.EVALUATE(MODEL here, TABLE many)
    SELECT * FROM ML.EVALUATE(MODEL here, (SELECT * FROM many WHERE pg_catalog.random() IS NOT NULL))
    SELECT * FROM ML.EVALUATE(MODEL words, TABLE many, STRUCT('label' AS weight))
    SELECT * FROM ML.EVALUATE(MODEL words, TABLE many, STRUCT(0.4 AS threshold))
    SELECT * FROM ML.CONFUSION_MATRIX(MODEL words, TABLE many)
    SELECT * FROM ML.ROC_CURVE(MODEL here, TABLE many)
    SELECT * FROM ML.ROC_CURVE(MODEL words, TABLE many, [0.6, 0.25])
    SELECT * FROM ML.CALIBRATION(MODEL here, TABLE many)
    SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL here, TABLE many)
    SELECT * FROM ML.WEIGHTS(MODEL here)
    SELECT * FROM ML.TRAINING_INFO(MODEL here)
    SHOW MODELS LIKE 'h%'
    DESCRIBE MODEL here
    ALTER MODEL here RENAME TO there
    DROP MODEL there
"""


@pytest.mark.every_server
def test_nothing_planted_runs_in_sessions_of_python(server, bait):
    pytest.importorskip("psycopg")
    before = len(server.log())
    with connect(f"{server.url}&options=-csearch_path%3Dbait%2Cpg_catalog%2Cpublic") as session:
        for statement in STATEMENTS.strip().splitlines():
            cursor = session.execute(statement)
            _ = cursor.fetchall() if cursor.description else []
        assert session.engine.tables()["many"]
    assert re.findall(r"planted .*", server.log()[before:]) == []
