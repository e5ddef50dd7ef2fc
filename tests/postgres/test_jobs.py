"""Trainings in the background: what they make, how they are followed and ended, and whose they are."""

# ruff: noqa: S608  # tests write SQL

import contextlib
import os
import signal

import pytest
from patience import wait_for
from pgservers import SqlError

LONG = 100_000  # epochs, more than any test waits for
LIVING = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'corgipile job'"


@pytest.fixture(scope="module", autouse=True)
def rows(server):
    server.sql("""
        CREATE TABLE plain AS SELECT i, ARRAY[i % 7, random() + i / 1500]::real[] AS x, i / 1500 AS label,
            (ARRAY['a', 'b''s', 'c\\d'])[1 + i % 3] AS kind FROM generate_series(0, 2999) i;
        GRANT SELECT ON plain TO PUBLIC;
    """)


@pytest.fixture
def start(server):
    """Return what starts a job; those that still run are ended."""

    def run(rest="", source="'plain'", user="postgres", before="", **options):
        given = {"name": "'later'", "epochs": LONG, **options}
        more = ", ".join(f"{name} => {value}" for name, value in given.items())
        call = f"SELECT corgipile.train_async({source}, 'logistic', 'x', 'label', {more}{rest})"
        return int(server.text(f"{before}; {call}", user).split()[-1])

    yield run
    server.text("SELECT corgipile.cancel(id), corgipile.wait(id) FROM corgipile.jobs WHERE finished IS NULL")


@pytest.fixture
def job(server):
    """Return what looks at a job, once it is over if that is said."""

    def look(number, over=True, user="postgres"):
        if over:
            server.text(f"SELECT corgipile.wait({number})", user)
        (row,) = server.rows(f"SELECT * FROM corgipile.jobs WHERE id = {number}", user)
        return row

    return look


def same_models(server):
    columns = "coefficients, intercepts, classes, params, source"
    now, later = server.rows(f"SELECT {columns} FROM corgipile.models WHERE name IN ('now', 'later')")
    return now == later


@pytest.mark.every_server
def test_a_job_makes_the_same_model(server, start, job, train):
    history = train("plain", name="now", epochs=3)
    done = job(start(epochs=3))
    assert (done["state"], done["model"], done["role"], done["error"], done["pid"]) == (
        "done",
        "later",
        "postgres",
        None,
        None,
    )
    assert (done["epoch"], done["epochs"], done["rows"]) == (3, 3, 9000)
    assert done["loss"] == history[-1]["loss"]
    assert done["rows_per_second"] > 0
    assert done["started"] <= done["finished"]
    assert same_models(server)
    assert server.value("SELECT call IS NULL AND settings IS NULL FROM corgipile.job_records ORDER BY id DESC LIMIT 1")


ARGUMENTS = {
    "digits": "'plain', 'linear', 'x', 'label', learning_rate => 0.001::float8 + 0.002, l2 => 1e-17, tolerance => 1e-9",
    "classes": "'plain', 'logistic', ARRAY['x'], 'label', classes => ARRAY[0, 1.0]::numeric[], holdout => 0.1",
    "text": "'plain', 'softmax', 'x', 'kind', classes => ARRAY['a', 'b''s', 'c\\d'], threads => 1, batch_size => 3",
    "encode": """'plain', 'svm', ARRAY['kind', 'i'], 'label', encode => '{"kind": "onehot"}'::jsonb, missing => 'mean',
                 learning_rate => 1e-8""",
    "untyped": """'plain', 'svm', ARRAY['kind'], 'label', encode => 'hash:4', classes => '{0,1}', missing => 7.5,
                  seed => -5, balance => 'content'""",
    "query": """query => $q$SELECT *, '\\' AS s FROM plain WHERE kind <> 'b''s'$q$, model => 'svm', features => 'x',
                label => 'label'""",
    "where": "'plain', 'svm', 'x', 'label', \"where\" => 'kind = ''c\\d''', balance => true, standardize => true",
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_arrive_as_they_were(server, arguments):
    """Whatever the settings are that numbers and texts are written by."""
    server.text(f"""
        SET extra_float_digits = -9; SET standard_conforming_strings = on; SET DateStyle = 'SQL, DMY';
        SELECT * FROM corgipile.train({arguments}, name => 'now', epochs => 2);
        SELECT corgipile.train_async({arguments}, name => 'later', epochs => 2) AS j \\gset
        SELECT corgipile.wait(:j);
    """)
    assert same_models(server)


@pytest.mark.every_server
def test_progress_and_cancel(server, start, job, session):
    number = start()
    wait_for(lambda: (job(number, over=False)["epoch"] or 0) > 1, "the second epoch")
    seen = job(number, over=False)
    assert (seen["state"], seen["epochs"], seen["finished"]) == ("running", LONG, None)
    assert 0 < seen["loss"] < 1
    assert seen["rows"] >= 3000
    assert seen["rows_per_second"] > 0
    assert server.value(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {seen['pid']} "
                        f"AND query = 'corgipile job {number}'") == 1  # fmt: skip
    assert server.value(f"SELECT corgipile.wait({number}, '20 ms')") == "running"
    # in one transaction, the second look is newer than the first
    tell, look = session().tell, f"SELECT rows FROM corgipile.jobs WHERE id = {number}"
    tell("BEGIN ISOLATION LEVEL REPEATABLE READ")
    first = int(tell(look))
    second = wait_for(lambda: (rows := int(tell(look))) > first and rows, "more rows")
    tell("COMMIT")
    assert server.value(f"SELECT corgipile.cancel({number})") is True
    ended = job(number)
    assert (ended["state"], ended["error"]) == ("cancelled", "canceling statement due to user request")
    assert ended["rows"] >= second
    assert 0 < ended["epoch"] < LONG
    assert server.value(f"SELECT corgipile.cancel({number})") is False
    assert server.rows("SELECT * FROM corgipile.models WHERE name = 'later' AND (params ->> 'epochs')::int > 99") == []


@pytest.mark.every_server
def test_time_limit(start, job):
    ended = job(start(time_limit="'0.05 s'"))
    assert (ended["state"], ended["error"]) == ("failed", "the job exceeded its time limit of 00:00:00.05")
    assert job(start(epochs=2, time_limit="'1 year'"))["state"] == "done"


def test_time_limit_of_a_lock(server, start, job, session):
    tell = session().tell
    tell("BEGIN; LOCK TABLE plain")
    ended = job(start(source="'plain'::regclass", time_limit="'0.05 s'"))
    assert "time limit" in ended["error"]
    tell("ROLLBACK")


def test_errors_and_warnings(server, start, job):
    server.sql(
        "CREATE TABLE IF NOT EXISTS noise_of_jobs AS"
        " SELECT ARRAY[random()] AS x, i % 2 AS label FROM generate_series(1, 900) i"
    )
    failed = job(start(epochs=3, warm_start="'nothing'"))
    assert failed["state"] == "failed"
    assert failed["error"].startswith('there is no model "nothing"\nHINT:  SELECT name FROM')
    assert (
        job(start(source="NULL", rest=", query => 'SELECT 1 / (i - 7) AS x, label FROM plain'"))["error"]
        == "division by zero"
    )
    done = job(start(source="'noise_of_jobs'", epochs=3, learning_rate=2))
    assert done["state"] == "done"
    assert "the model is no better than chance" in done["warnings"]


@pytest.mark.every_server
def test_a_job_is_of_its_transaction(server, start, fails):
    """It begins when that commits, and sees what it made; a ROLLBACK, of a savepoint too, takes it back."""
    call = "SELECT corgipile.train_async('{}', 'logistic', 'x', 'label', name => '{}', epochs => 2)"
    said = server.text(f"""
        BEGIN; CREATE TABLE fresh AS TABLE plain; SAVEPOINT s; {call.format("fresh", "gone")} AS gone \\gset
        ROLLBACK TO s; {call.format("fresh", "fresh")} AS j \\gset
        SELECT state FROM corgipile.jobs WHERE id = :j; COMMIT; SELECT corgipile.wait(:j);
        BEGIN; {call.format("plain", "gone")} AS gone_too \\gset
        ROLLBACK; SELECT count(*) FROM corgipile.jobs WHERE id IN (:gone, :gone_too);
        BEGIN; {call.format("plain", "gone")} AS j \\gset
        SELECT corgipile.cancel(:j); COMMIT; SELECT corgipile.wait(:j);
        DROP TABLE fresh; SELECT count(*) FROM corgipile.models WHERE name IN ('fresh', 'gone')
    """)
    assert said.split() == ["waiting", "done", "0", "t", "cancelled", "1"]
    waits = f"BEGIN; {call.format('plain', 'gone')} AS j \\gset\nSELECT corgipile.wait(:j)"
    assert "begins only after this transaction commits" in fails(waits)
    wait_for(lambda: server.value(LIVING) == 0, "the end of workers")


def test_two_that_wait_for_each_other(server, start, session):
    tell = session().tell
    tell("BEGIN; SET deadlock_timeout = '20ms'; LOCK TABLE plain")
    number = start(source="'plain'::regclass", epochs=2)
    said = tell(f"SELECT corgipile.wait({number})")
    tell("ROLLBACK")
    ended = server.text(f"SELECT corgipile.wait({number})").strip()
    assert "deadlock detected" in said or ended == "failed"


REFUSED = {
    "name => NULL": "name must not be NULL: a job's only result is its model",
    "weights => true": "weights must be false for a job",
    "epochs => 0": "epochs must be 1 to 1000000, got 0",
    "time_limit => '-1 s'": 'time_limit must be positive, got "-00:00:01"',
    "query => 'SELECT 1'": "source and query both name rows",
}


def test_refused_at_once(server, fails):
    for arguments, said in REFUSED.items():
        name = "" if "name" in arguments else "name => 'm', "
        assert said in fails(f"SELECT corgipile.train_async('plain', 'svm', 'x', 'label', {name}{arguments})"), (
            arguments
        )
    call = "SELECT corgipile.train_async('{}', 'svm', 'x', 'label', name => 'm')"
    assert 'table "mine" is temporary' in fails(f"CREATE TEMP TABLE mine AS TABLE plain; {call.format('mine')}")
    assert "in a read-only transaction" in fails(f"BEGIN READ ONLY; {call.format('plain')}")
    restricted = f"""CREATE FUNCTION sly(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
        PERFORM FROM (SELECT public.o()) q; RETURN $1; END $$;
        CREATE FUNCTION o() RETURNS bigint LANGUAGE sql AS $$ {call.format("public.plain")} $$;
        CREATE TABLE indexed AS SELECT 1 AS i; BEGIN; CREATE INDEX ON indexed (sly(i))"""
    assert "security-restricted operation" in fails(restricted)
    assert "you have no job 0" in fails("SELECT corgipile.wait(0)")
    assert "you have no job -3" in fails("SELECT corgipile.cancel(-3)")
    assert server.text("SELECT corgipile.wait(NULL), corgipile.cancel(NULL)").strip() == "|"


@pytest.mark.every_server
def test_killed_workers_leave_nothing(server, start, job):
    """A terminated one, and one whose end takes the server down: no model, and no job that runs for ever."""
    number = start(name="'half'")
    server.sql(f"SELECT pg_terminate_backend(pid) FROM corgipile.jobs WHERE id = {number}")
    assert job(number)["state"] == "lost"
    number = start(name="'half'")
    wait_for(lambda: job(number, over=False)["epoch"], "an epoch")
    os.kill(job(number, over=False)["pid"], signal.SIGKILL)

    def over():  # a server that has not yet heard of the death still answers, and lets go of who waits then
        with contextlib.suppress(SqlError):
            return job(number)
        return None

    lost = wait_for(over, "the return of the server")
    assert (lost["state"], lost["pid"]) == ("lost", None)
    assert "the job's worker is gone" in lost["error"]
    assert server.value("SELECT count(*) FROM corgipile.models WHERE name = 'half'") == 0
    assert server.value(f"SELECT corgipile.cancel({number})") is False
    assert job(start(epochs=2))["state"] == "done"
    for trouble in ("TRAP", "signal 11", "PANIC"):
        assert trouble not in server.log()


def test_too_many(server, start, fails):
    many = "SELECT corgipile.train_async('plain', 'svm', 'x', 'label', name => 'm' || i) FROM generate_series(1, 40) i"
    before = server.value("SELECT max(id) FROM corgipile.job_records")
    assert "no background worker is free for the job: all 8 of max_worker_processes are in use" in fails(many)
    wait_for(lambda: server.value(LIVING) == 0, "the end of workers")
    assert server.value("SELECT max(id) FROM corgipile.job_records") == before
    start()
    assert 'role "postgres" has 1 jobs; corgipile.max_jobs allows 1' in fails("SET corgipile.max_jobs = 1;" + many)
    assert "permission denied to set parameter" in fails(
        "SELECT corgipile.wait(NULL); SET ROLE pg_monitor; SET corgipile.max_jobs = 99"
    )


@pytest.mark.every_server
def test_dropping_what_a_job_needs(server):
    """DROP EXTENSION ends the jobs of its database, and only for who may; so does DROP DATABASE (FORCE)."""
    server.sql("DROP DATABASE IF EXISTS doomed; DROP ROLE IF EXISTS dropper; CREATE ROLE dropper LOGIN")
    server.sql("CREATE DATABASE doomed TEMPLATE template0")
    begin = f"""CREATE EXTENSION corgipile; CREATE TABLE IF NOT EXISTS t AS SELECT ARRAY[i] AS x, i % 2 AS label
        FROM generate_series(1, 500) i;
        SELECT corgipile.train_async('t', 'svm', 'x', 'label', name => 'm', epochs => {LONG})"""
    server.text(begin, database="doomed")
    with pytest.raises(SqlError, match="must be owner of extension corgipile"):
        server.text("DROP EXTENSION corgipile", "dropper", "doomed")
    assert server.value(LIVING) == 1
    server.text("DROP EXTENSION corgipile", database="doomed")
    wait_for(lambda: server.value(LIVING) == 0, "the end of the worker")
    assert server.text("SELECT to_regclass('corgipile.jobs') IS NULL", database="doomed") == "t\n"
    server.text(begin, database="doomed")
    assert server.value(LIVING) == 1
    server.sql("DROP DATABASE doomed WITH (FORCE)")
    wait_for(lambda: server.value(LIVING) == 0, "the end of the worker")
    server.sql("DROP ROLE dropper")


def test_the_list_does_not_grow_for_ever(server, start, job):
    server.sql("""INSERT INTO corgipile.job_records (model, role, state, pid, began, epochs, finished)
        SELECT 'old', r::text::corgipile.role, 'done', 1, now() - interval '9 days', 1, now()
        FROM unnest(ARRAY['postgres', 'pg_monitor']) r, generate_series(1, 120)""")
    job(start(epochs=1))
    counts = {row["role"]: row["count"] for row in server.rows("SELECT role, count(*) FROM corgipile.jobs GROUP BY 1")}
    assert (counts["postgres"], counts["pg_monitor"]) == (100, 120)
    server.sql("DELETE FROM corgipile.job_records WHERE model = 'old'")
