"""Plans, counts, transactions, and what happens when training is interrupted."""

# ruff: noqa: S608  # tests write SQL

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from patience import wait_for

from corgipile import postgres

ORDERS = ("riffle", "corgipile", "block_only", "no_shuffle")
ROWS = 30_000
INTERRUPTIONS = int(os.environ.get("CORGIPILE_INTERRUPTIONS", "67"))  # of each kind


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a table of some 700 pages, clustered by label."""
    server.sql(f"""
        CREATE TABLE large AS SELECT i AS id, ARRAY(SELECT (random() + i / {ROWS // 2})::real
            FROM generate_series(1, 32) WHERE i >= 0) AS x, i / {ROWS // 2} AS label
            FROM generate_series(0, {ROWS - 1}) i;
        CREATE TABLE changing AS SELECT * FROM large;
    """)


def call(**options):
    """Write a call that trains for long unless told otherwise."""
    given = {"epochs": 100_000, "buffer_size": "'500kB'", **options}
    return "SELECT * FROM corgipile.train('large', 'logistic', 'x', 'label', " + ", ".join(
        f'"{name}" => {value}' for name, value in given.items()
    ) + ")"  # fmt: skip


@pytest.mark.every_server
def test_plan_is_three_operators(server):
    plan = server.text("EXPLAIN " + call(order="'corgipile'", epochs=7))
    for said in ("Custom Scan (SGD)", "Model: logistic", "Epochs: 7", "Custom Scan (TupleShuffle)", "Order: corgipile",
                 "Custom Scan (BlockShuffle)", "Table: large", "Block Pages: 1"):  # fmt: skip
        assert said in plan
    analyzed = server.text("EXPLAIN (ANALYZE, BUFFERS, TIMING) " + call(epochs=3, standardize="false"))
    assert f"Rows per Epoch: {ROWS}" in analyzed
    tuples, blocks = (line for line in analyzed.splitlines() if "Shuffle)" in line)
    assert f"rows={ROWS}" in tuples.replace(".00", "")
    assert "loops=3" in tuples
    assert f"rows={ROWS}" in blocks.replace(".00", "")
    assert "loops=4" in blocks
    assert "never executed" not in analyzed


def test_plan_of_a_query_around_it(server):
    query = f"SELECT max(rows), count(*) n FROM ({call(epochs=9)}) e WHERE epoch % 2 = 0"
    assert server.rows(query) == [{"max": ROWS, "n": 5}]
    join = f"SELECT count(*) FROM generate_series(0, 4) s LEFT JOIN ({call(epochs=3)}) e ON e.epoch = s"
    assert server.value(join) == 5


@pytest.mark.every_server
def test_arguments_from_elsewhere(server):
    said = server.text(f"""
        PREPARE p(int) AS {call(epochs="$1")};
        EXECUTE p(2);
        SET plan_cache_mode = force_generic_plan;
        EXECUTE p(1);
        SELECT count(*) FROM ({call(epochs="(SELECT 1 + count(*)::int FROM pg_am WHERE amname = 'heap')")}) q;
        SELECT string_agg((SELECT count(*) FROM ({call(epochs="e")}) q)::text, ' ') FROM generate_series(1, 3) e;
        DO $$ DECLARE n int := 0; r record; e int := 3; BEGIN
            FOR r IN {call(epochs="e")} LOOP n := n + 1; END LOOP; ASSERT n = 3; END $$;
    """)
    lines = said.splitlines()
    assert len(lines) == 5
    assert lines[3:] == ["2", "1 2 3"]


def test_rows_appear_as_epochs_finish(server):
    said = server.text(f"BEGIN; DECLARE c CURSOR FOR {call()}; FETCH 1 FROM c; FETCH 2 FROM c; CLOSE c; ROLLBACK")
    assert [line.split("|")[0] for line in said.splitlines()] == ["0", "1", "2"]


@pytest.mark.every_server
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("buffer", ["120kB", "1MB", "64MB"])
def test_every_visible_row_once(server, train, order, buffer):
    server.sql("DELETE FROM changing WHERE id % 11 = 0 OR id BETWEEN 5000 AND 7000")
    server.sql("UPDATE changing SET label = label WHERE id % 5 = 0")
    count = server.value("SELECT count(*) FROM changing")
    assert [epoch["rows"] for epoch in train("changing", epochs=3, order=order, buffer_size=buffer)] == [count] * 3


def test_a_transaction_sees_its_own_rows(server):
    count = "SELECT max(rows) FROM corgipile.train('changing', 'linear', 'x', 'label', learning_rate => 1e-6)"
    said = server.text(f"BEGIN; SELECT count(*) FROM changing; DELETE FROM changing WHERE id % 2 = 0; "
                       f"SELECT count(*) FROM changing; {count}; ROLLBACK; {count}")  # fmt: skip
    before, after, inside, outside = map(int, said.split())
    assert (inside, outside) == (after, before)
    assert after < before


def test_others_change_the_table_meanwhile(server):
    """One snapshot holds for all epochs, whatever others update, delete, add and vacuum."""
    call = "SELECT rows FROM corgipile.train('changing', 'svm', 'x', 'label', epochs => 60, buffer_size => '200kB');"
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM changing;"
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as psql:
        psql.stdin.write(f"{begin}\n{call}\n")
        psql.stdin.close()
        count = psql.stdout.readline()
        for i in range(15):
            server.sql(f"UPDATE changing SET label = 1 - label WHERE id % 17 = {i}")
            server.sql(f"DELETE FROM changing WHERE id % 301 = {i}; VACUUM changing")
            server.sql(f"INSERT INTO changing SELECT * FROM large WHERE id % 301 = {i}")
        said = psql.stdout.read()
    assert said == count * 60


@pytest.mark.every_server
def test_a_temporary_table_without_a_free_buffer(fails):
    """Each cursor holds a page; 100 buffers are the fewest that a session can have."""
    row = "SELECT * FROM t WHERE ctid ="
    cursors = "; ".join(f"DECLARE c{page} CURSOR FOR {row} '({page},1)'; MOVE c{page}" for page in range(100))
    assert "no empty local buffer available" in fails(f"""
        SET temp_buffers = 100;
        CREATE TEMP TABLE t AS SELECT ARRAY[i % 7] AS x, i % 2 AS label, repeat('w', 1000) AS word
            FROM generate_series(0, 1400) i;
        BEGIN; {cursors}; SELECT * FROM corgipile.train('t', 'linear', 'x', 'label')
    """)


@pytest.mark.parametrize("first", ["FETCH FROM c", "SELECT 1"], ids=["the pages end", "counted, not yet read"])
@pytest.mark.parametrize("made", [
    """PARTITION BY RANGE (k); CREATE TABLE skew1 PARTITION OF skew FOR VALUES FROM (0) TO (2);
        CREATE TABLE skew2 PARTITION OF skew FOR VALUES FROM (2) TO (4)""",
    "; ALTER TABLE skew ALTER word SET STORAGE PLAIN",
], ids=["an empty partition", "a page behind the last"])  # fmt: skip
def test_transactions_that_others_make_impossible_fail(server, made, first):
    """Each of two serializable transactions reads, or trains on, what the other one has not written yet."""
    row = "INSERT INTO skew SELECT k, repeat('w', 7000), ARRAY[k], k FROM generate_series({0}, {0}) k"
    server.sql(f"""DROP TABLE IF EXISTS skew, notes; CREATE TABLE notes (n int);
        CREATE TABLE skew (k int, word text, x real[], label int) {made}; {row.format(1)}""")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(server.command(), **pipes, text=True, cwd="/", bufsize=1) as psql:
        psql.stdin.write("BEGIN ISOLATION LEVEL SERIALIZABLE; DECLARE c CURSOR FOR "
                         f"SELECT rows FROM corgipile.train('skew', 'linear', 'x', 'label'); {first};\n")  # fmt: skip
        assert psql.stdout.readline() == "1\n"
        server.sql(f"BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM notes; {row.format(2)}; COMMIT")
        said, why = psql.communicate("FETCH FROM c; INSERT INTO notes VALUES (1); COMMIT;\n")
    assert said in ("1\n", "")
    assert "could not serialize access" in why


@pytest.mark.every_server
def test_models_are_transactional(server, train):
    train("large", name="kept")
    first = server.value("SELECT coefficients FROM corgipile.models WHERE name = 'kept'")
    retrain = call(epochs=1, name="'kept'")
    predict = "SELECT sum(d[1]) FROM (SELECT corgipile.decision('kept', x) d FROM large) q;"
    said = server.text(
        f"{predict} BEGIN; {predict} SAVEPOINT s; {retrain}; {predict} ROLLBACK TO s; {predict} COMMIT; {predict}"
    )
    before, begun, _, inside, undone, after = said.splitlines()
    assert before == begun == undone == after != inside
    assert server.value("SELECT coefficients FROM corgipile.models WHERE name = 'kept'") == first
    train("large", name="kept", epochs=1)
    assert server.value("SELECT coefficients FROM corgipile.models WHERE name = 'kept'") != first
    assert server.value("SELECT count(*) FROM corgipile.models WHERE name = 'kept'") == 1


def test_a_look_that_ends_within_a_run_of_pages_lets_go_of_them(server):
    """Half of a new table is in shared buffers: reading up to them finds a page that the look does not come to."""
    server.sql(f"""
        CREATE TABLE fresh AS SELECT i AS id, ARRAY(SELECT (random() + i / {ROWS // 2})::real
            FROM generate_series(1, 32) WHERE i >= 0) AS x, i / {ROWS // 2} AS label
            FROM generate_series(0, {ROWS - 1}) i
    """)
    assert len(server.rows(call(epochs=2).replace("large", "fresh"))) == 2  # a page held would be a warning
    server.sql("DROP TABLE fresh")


def test_a_function_that_stays_sees_the_new_model(server):
    said = server.text(f"""
        CREATE FUNCTION score() RETURNS float8 LANGUAGE plpgsql AS
            $$ BEGIN RETURN (corgipile.decision('stays', (SELECT x FROM large WHERE id = 5)))[1]; END $$;
        {call(epochs=1, name="'stays'")};
        SELECT score() AS a \\gset
        {call(epochs=2, name="'stays'")};
        SELECT score() <> :a, (corgipile.decision('stays', x))[1] = score() FROM large WHERE id = 5;
    """)
    assert said.splitlines()[-1] == "t|t"


@pytest.mark.every_server
def test_prediction_in_parallel(server, train):
    train("large", name="par")
    query = "SELECT count(*), sum(corgipile.predict('par', x)) FROM large"
    settings = (
        "SET parallel_setup_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; "
    )
    assert "Gather" in server.text(settings + "EXPLAIN " + query)
    assert server.text(settings + query) == server.text(query)


def test_a_stored_model_needs_all_epochs(server):
    server.text(call(epochs=3, name="'cut'") + " LIMIT 2")
    assert server.rows("SELECT * FROM corgipile.models WHERE name = 'cut'") == []


def test_large_tables_leave_shared_buffers_alone(server):
    server.sql("CREATE TABLE larger AS SELECT * FROM large; CHECKPOINT; SELECT count(*) FROM larger")

    def held():
        (plan,) = json.loads(server.text("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM larger"))
        return plan["Plan"]["Shared Hit Blocks"], plan["Plan"]["Shared Read Blocks"]

    before, _ = held()
    server.sql("SELECT * FROM corgipile.train('larger', 'svm', 'x', 'label', epochs => 2)")
    hit, read = held()
    assert hit + read > 512
    assert hit <= before + 64


def test_threads_end_with_the_epoch(server, fails):
    """The thread that learns is gone after each epoch and after each way of failing."""
    threads = "SELECT count(*) FROM pg_ls_dir('/proc/self/task');"
    if not Path("/proc/self/task").exists():
        pytest.skip("this system does not list the threads of a process")
    server.sql("DROP TABLE IF EXISTS flawed; CREATE TABLE flawed AS SELECT * FROM large")
    server.sql("UPDATE flawed SET x[3] = 'NaN' WHERE id = 20000")
    learns = call(epochs=3, name="'flawed'").replace("large", "flawed")
    said = server.text(f"""
        BEGIN; DECLARE c CURSOR FOR {call()}; FETCH 1 FROM c; {threads} FETCH 1 FROM c; {threads} COMMIT; {threads}
        {call()} LIMIT 1; {threads}
        \\set ON_ERROR_STOP off
        SET client_min_messages = panic;
        SET statement_timeout = 50; {call()}; RESET statement_timeout; {threads}
        {learns}; {threads}
        DO $$ BEGIN PERFORM * FROM ({learns}) e; EXCEPTION WHEN others THEN NULL; END $$; {threads}
    """)
    assert [line for line in said.splitlines() if "|" not in line] == ["1"] * 7


def test_a_thread_learns(server):
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as psql:
        psql.stdin.write(f"SELECT pg_backend_pid();\n{call(threads=2)};\n")
        psql.stdin.flush()
        tasks = Path(f"/proc/{psql.stdout.readline().strip()}/task")
        threads = wait_for(lambda: not tasks.exists() or [*tasks.iterdir()][1:], "a thread that learns")
        server.sql(f"SELECT pg_terminate_backend({tasks.parent.name})")
        psql.stdin.close()
    assert threads is True or len(threads) <= 2  # one learns, and one asks a device for pages where that helps


@pytest.mark.every_server
@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend", "statement_timeout"])
def test_interrupted_training_leaves_nothing(server, how):
    """Interruptions at random moments, of all orders: no crash, no model, no pin, server usable."""
    moment = random.Random(how)  # noqa: S311
    newest = server.version == max(postgres.EMBEDDED)
    for i in range(INTERRUPTIONS if newest else INTERRUPTIONS // 3):
        options = {"order": f"'{ORDERS[i % 4]}'", "balance": i % 8 == 0, "threads": 1 if i % 5 == 4 else 2}
        query = call(name=f"'half {i}'", buffer_size="'2MB'", **options)
        wait = moment.uniform(0.005, 0.1)
        if how == "statement_timeout":
            query = f"SET statement_timeout = {int(wait * 1000)}; {query}"
        with subprocess.Popen(
            server.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        ) as psql:
            psql.stdin.write(query + ";")
            psql.stdin.close()
            if how != "statement_timeout":
                time.sleep(wait)
                kill = f"SELECT {how}(pid) FROM pg_stat_activity WHERE query LIKE '%''half {i}''%'"
                kill += " AND pid <> pg_backend_pid()"
                while not server.text(kill) and psql.poll() is None:
                    time.sleep(0.01)
            said = psql.stderr.read()
        assert "due to" in said or "terminat" in said, said
    assert server.rows("SELECT * FROM corgipile.models WHERE name LIKE 'half%'") == []
    log = server.log()
    for trouble in ("PANIC", "signal 11", "leak", "TRAP", "could not find"):
        assert trouble not in log
    server.sql("VACUUM large")
