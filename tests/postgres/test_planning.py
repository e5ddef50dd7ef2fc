"""The call of train as part of other queries: conditions, whole rows, EXPLAIN."""

# ruff: noqa: S608  # tests write SQL

import subprocess
import time

import pytest

CALL = "corgipile.train('planned', 'logistic', 'x', 'y', epochs => 3)"


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a table to learn from, and one to change."""
    server.sql("""
        CREATE TABLE planned AS SELECT ARRAY[i % 2 - 0.5, i / 300.0]::real[] AS x, i % 2 AS y
            FROM generate_series(0, 299) i;
        CREATE TABLE changed AS SELECT i AS id, NULL::float8 AS rows FROM generate_series(0, 9) i;
    """)


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("condition", "rows"),
    [("false", 0), ("true", 3), ("(SELECT true)", 3), ("(SELECT false)", 0), ("now() > '2000-01-01'", 3),
     ("now() < '2000-01-01'", 0), ("epoch > 0 AND now() > '2000-01-01'", 2)],
)  # fmt: skip
def test_constant_conditions(server, condition, rows):
    query = f"SELECT epoch FROM {CALL} WHERE {condition}"
    assert "Result" in server.text(f"EXPLAIN {query}") or "now" not in condition
    assert len(server.text(query).splitlines()) == rows


def test_a_condition_that_is_a_parameter(server):
    said = server.text(f"""
        SET plan_cache_mode = force_generic_plan;
        PREPARE p(bool) AS SELECT count(*) FROM {CALL} WHERE $1;
        EXECUTE p(true); EXECUTE p(false); EXECUTE p(NULL);
        INSERT INTO changed SELECT epoch, 1 FROM {CALL} WHERE false;
    """)
    assert said.split() == ["3", "0", "0"]


@pytest.mark.every_server
def test_rows_as_a_whole(server):
    server.sql(f"CREATE TABLE whole AS SELECT r, row_to_json(r) AS j, (r).rows AS n FROM {CALL} r(e)"
               .replace("SELECT r, ", "SELECT r::text, "))  # fmt: skip
    rows = server.rows("SELECT * FROM whole")
    assert [(row["j"]["e"], row["j"]["rows"], row["n"]) for row in rows] == [(i, 300, 300) for i in range(3)]
    assert [row["r"].split(",")[0] for row in rows] == ["(0", "(1", "(2"]
    assert server.value(f"SELECT count(r) FROM {CALL} r WHERE r IS DISTINCT FROM NULL") == 3
    assert server.value(f"SELECT count(*) FROM (SELECT DISTINCT r, s FROM {CALL} r, {CALL} s) q") == 9
    left = f"generate_series(0, 9) i LEFT JOIN {CALL} r ON r.epoch = i AND r IS NOT DISTINCT FROM r"
    assert server.value(f"SELECT count(r) FROM {left}") == 3
    lateral = f"{CALL} r, LATERAL (SELECT (row_to_json(r) ->> 'epoch')::int AS e OFFSET 0) s"
    assert server.value(f"SELECT sum(e) FROM {lateral}") == 3
    plan = server.text(f"EXPLAIN (VERBOSE, ANALYZE, BUFFERS) SELECT r FROM {CALL} r WHERE now() > '2000-01-01'")
    assert "Output: r.*" in plan
    assert plan.count("Custom Scan") == 3


@pytest.mark.every_server
@pytest.mark.parametrize("statement", [
    "UPDATE changed t SET rows = r.rows FROM {} r WHERE t.id = r.epoch RETURNING t.rows",
    "SELECT r.rows FROM changed t, {} r WHERE t.id = r.epoch FOR UPDATE OF t",
    "DELETE FROM changed t USING {} r WHERE t.id = r.epoch RETURNING r.rows",
])  # fmt: skip
def test_tables_changed_by_what_was_learnt(server, statement):
    assert server.text("BEGIN;" + statement.format(CALL) + "; ROLLBACK").split() == ["300"] * 3


def test_merge(server):
    merge = f"MERGE INTO changed t USING {CALL} r ON t.id = r.epoch WHEN MATCHED THEN UPDATE SET rows = r.rows"
    assert server.text(f"BEGIN; {merge}; SELECT count(*) FROM changed WHERE rows = 300; ROLLBACK").split() == ["3"]


def test_a_row_changed_meanwhile_is_joined_again_without_training(server):
    """The other session changes the row after this one's snapshot and before the join comes to it."""
    update = f"UPDATE changed t SET rows = coalesce(t.rows, 0) + r.rows FROM {CALL} r WHERE t.id = r.epoch"
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as other:
        other.stdin.write("BEGIN; UPDATE changed SET rows = 1000; SELECT 'held';\n")
        other.stdin.flush()
        assert other.stdout.readline() == "held\n"
        with subprocess.Popen(
            server.command(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        ) as own:
            own.stdin.write(update + ";")
            own.stdin.close()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not server.value(waiting) and own.poll() is None:
                time.sleep(0.01)
            other.stdin.write("COMMIT;")
            other.stdin.close()
            said = own.stderr.read()
    assert said.count("NOTICE:  epoch") == 3
    assert server.value("SELECT json_agg(rows ORDER BY id) FROM changed WHERE rows > 1000") == [1300] * 3


def test_explain_alone_has_no_effects(server):
    server.sql("CREATE SEQUENCE effects")
    call = CALL.replace("epochs => 3", "seed => nextval('effects')")
    plan = server.text(f"EXPLAIN SELECT * FROM {call}")
    assert "BlockShuffle" in plan
    assert server.value("SELECT is_called FROM effects") is False
    assert "Model: logistic" in server.text(f"EXPLAIN ANALYZE SELECT * FROM {call}")
    assert server.value("SELECT last_value FROM effects") == 1
