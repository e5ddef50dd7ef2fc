"""Training on the rows of a query, and on those of a table that a condition holds of."""

# ruff: noqa: S608  # tests write SQL

import pytest

pytestmark = pytest.mark.usefixtures("roles", "rows")
CALL = "SELECT * FROM corgipile.train(query => $q${}$q$, model => 'logistic', features => 'x', label => 'y'{})"
LEFT = "SELECT count(*) FROM pg_class WHERE relname LIKE 'corgipile_rows%'"


@pytest.fixture(scope="module")
def rows(server):
    """Make two tables to join, one with row security and one in partitions."""
    server.sql("""
        CREATE TABLE facts AS SELECT i, i % 10 AS k, i / 2000 AS y, ARRAY[i % 7, random() + i / 2000]::real[] AS x
            FROM generate_series(0, 3999) i;
        CREATE TABLE kinds AS SELECT k, 'kind ' || k AS name FROM generate_series(0, 8) k;
        CREATE VIEW joined AS SELECT x, y, name FROM facts JOIN kinds USING (k) WHERE i % 3 = 0 ORDER BY i;
        CREATE TABLE secret AS SELECT i, x, y, CASE WHEN i % 4 = 0 THEN 'm_user' ELSE 'm_owner' END AS whose FROM facts;
        ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON secret USING (whose = current_user);
        GRANT SELECT ON secret TO m_user;
        GRANT SELECT (x, y) ON facts TO m_user;
        CREATE TABLE parts (i int, y int, x real[]) PARTITION BY LIST (y);
        CREATE TABLE part_0 PARTITION OF parts FOR VALUES IN (0);
        CREATE TABLE part_1 (gone int, x real[], y int, i int);
        ALTER TABLE part_1 DROP gone;
        ALTER TABLE parts ATTACH PARTITION part_1 FOR VALUES IN (1);
        INSERT INTO parts (i, y, x) SELECT i, y, x FROM facts;
    """)


@pytest.mark.every_server
@pytest.mark.parametrize("query", ["SELECT * FROM joined", "SELECT x, y, repeat(name, 900) AS name FROM joined"])
def test_a_query_is_learnt_as_the_table_of_its_rows(server, train, query):
    options = {"block_size": "8kB", "buffer_size": "16kB", "holdout": 0.1, "label": "y", "epochs": 3}
    server.sql(f"DROP TABLE IF EXISTS made; CREATE TABLE made AS {query}")
    history = train("made", name="made", **options)
    given = ", ".join(f"{name} => '{value}'" for name, value in options.items() if name != "label")
    asked = server.rows(CALL.format(query, f", name => 'asked', {given}"))
    same = ("loss", "accuracy", "holdout_loss", "rows")
    assert [[row[name] for name in same] for row in asked] == [[row[name] for name in same] for row in history]
    made, found = server.rows("SELECT * FROM corgipile.models WHERE name IN ('asked', 'made') ORDER BY name DESC")
    assert made["coefficients"] == found["coefficients"]
    assert made["params"] == found["params"]
    assert found["source"] == query
    assert server.value(LEFT) == 0


def test_columns_of_a_query(server):
    """All but the label, text too, in the order of the query; also in a function and with parameters."""
    call = "SELECT * FROM corgipile.train(query => {}, model => 'logistic', features => '*', label => 'y', {})"
    query = "$q$SELECT i % 5 AS a, name, i % 7 AS b, y FROM facts LEFT JOIN kinds USING (k)$q$"
    server.text(call.format(query, "name => 'all', encode => 'hash:4', missing => 0"))
    assert server.value("SELECT params -> 'features' FROM corgipile.models WHERE name = 'all'") == ["a", "name", "b"]
    server.text(f"""
        CREATE FUNCTION pg_temp.learn(text) RETURNS bigint LANGUAGE plpgsql AS $f$
            BEGIN RETURN (SELECT max(rows) FROM corgipile.train(query => $1, model => 'svm', features => 'x',
                label => 'y')); END $f$;
        SELECT pg_temp.learn('SELECT x, y FROM facts LIMIT 2100') + pg_temp.learn('SELECT x, y FROM joined');
        PREPARE learn (text) AS {CALL.replace("$q${}$q$", "$1").format("")};
        EXECUTE learn ('SELECT x, y FROM joined'); EXECUTE learn ('TABLE joined');
    """)
    assert server.value(LEFT) == 0


REFUSED = {
    "": "query must be one SELECT",
    "SELECT x, y FROM facts; SELECT 1": "query must be one SELECT",
    "SELECT x, y FROM facts; DROP TABLE kinds": "query must be one SELECT",
    "DELETE FROM kinds RETURNING *": "query must be one SELECT",
    "SELECT * INTO more FROM facts": "query must be one SELECT",
    "EXPLAIN SELECT 1": "query must be one SELECT",
    "WITH d AS (DELETE FROM kinds RETURNING *) SELECT x, y FROM facts": "query must only read",
    "SELECT x, y FROM facts FOR UPDATE": "query must only read",
    "SELECT x, y FROM (SELECT * FROM facts FOR SHARE) f": "SELECT FOR SHARE is not allowed",
    "SELECT x, y FROM no_such_table": 'relation "no_such_table" does not exist',
    "SELECT x, y, $1 FROM facts": "there is no parameter $1",
    "SELECT x, y, y FROM facts": 'column "y" specified more than once',
    "SELECT x FROM facts": 'has no column "y"',
    "SELECT x, y FROM facts WHERE false": "the query has no training rows",
    "SELECT x, nullif(y, 1) AS y FROM facts": 'of the query has a NULL in label column "y"',
    "SELECT x, y / (i - 77) AS y FROM facts": "division by zero",
    "SELECT x, y FROM facts, pg_sleep(20)": "statement timeout",
}


@pytest.mark.parametrize("query", REFUSED)
def test_queries_refused(server, fails, query):
    limit = "SET statement_timeout = '300ms';" if "pg_sleep" in query else ""
    assert REFUSED[query] in fails(limit + CALL.format(query, ""))
    assert server.rows(f"SELECT count(*) AS kinds, ({LEFT}) AS gone FROM kinds") == [{"kinds": 9, "gone": 0}]


def test_the_query_runs_as_the_caller(server, fails):
    """Its privileges and row security count, those of a SECURITY DEFINER function's owner within it."""
    ask = CALL.format("SELECT x, y FROM secret", ", epochs => 1")
    assert server.rows(ask, "m_user")[0]["rows"] == 1000
    assert server.rows(ask)[0]["rows"] == 4000
    assert "permission denied for table secret" in fails(ask, "m_stranger")
    assert server.rows(CALL.format("SELECT x, y FROM facts", ", epochs => 1"), "m_user")[0]["rows"] == 4000
    assert "permission denied for table facts" in fails(CALL.format("SELECT x, y FROM facts WHERE k = 1", ""), "m_user")
    server.sql(
        f"CREATE FUNCTION lent() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $f${ask.replace('*', 'rows')}$f$"
    )
    assert server.value("SELECT lent()", "m_stranger") == 4000
    server.sql("REVOKE TEMP ON DATABASE postgres FROM PUBLIC")
    try:
        assert "permission denied to create temporary tables" in fails(ask, "m_user")
    finally:
        server.sql("GRANT TEMP ON DATABASE postgres TO PUBLIC; DROP FUNCTION lent()")


@pytest.mark.every_server
def test_its_rows_go_when_training_ends(server):
    """However it ends: read to the end, given up, at a savepoint, in a cursor that outlives its transaction."""
    call = CALL.format("SELECT x, y FROM facts", "")
    left = f"SELECT 'left ' || (q.count - 2)::text FROM ({LEFT}) q"
    said = server.text(f"""
        CREATE TEMP TABLE corgipile_rows (mine int); CREATE TABLE pg_temp.corgipile_rows_1 (mine int);
        BEGIN; SAVEPOINT s; DECLARE c CURSOR FOR {call}; FETCH 1 FROM c; {left}; ROLLBACK TO s; {left};
        DECLARE c CURSOR FOR {call}; FETCH 1 FROM c; CLOSE c; {left}; COMMIT;
        BEGIN; DECLARE c CURSOR FOR {call}; FETCH 1 FROM c; COMMIT; {left};
        BEGIN; DECLARE c CURSOR WITH HOLD FOR {call}; COMMIT; {left}; CLOSE c;
        {call} LIMIT 1; {left};
        BEGIN READ ONLY; {call}; COMMIT; {left};
        BEGIN ISOLATION LEVEL SERIALIZABLE; {call}; COMMIT; {left};
        SELECT a.epoch FROM ({call}) a, ({call}) b WHERE a.epoch = b.epoch; {left};
    """)
    assert [line for line in said.splitlines() if line.startswith("left")] == ["left 1", *8 * ["left 0"]]
    assert server.value(LEFT) == 0


def test_explain_alone_runs_no_query(server):
    query = "SELECT x, y / (i - 77) AS y FROM facts"
    assert f"Query: {query}\n" in server.text("EXPLAIN " + CALL.format(query, ""))
    query = "SELECT x, y FROM facts"
    assert f"Query: {query}\n" in server.text("EXPLAIN ANALYZE " + CALL.format(query, ""))


WHERE = "SELECT * FROM corgipile.train('{}', 'logistic', 'x', 'y', epochs => 1, \"where\" => $w${}$w$)"


@pytest.mark.every_server
def test_a_condition_of_a_table(server):
    """Asked once of each row, in partitions too, whose columns lie elsewhere."""
    for source in ("facts", "parts"):
        for condition in ("i % 4 = 0 AND x[1] < 5", "i % 3 = 0 OR false -- not all", f"{source}.i < 2100 AND y >= 0"):
            rows = server.value(f"SELECT count(*) FROM {source} WHERE {condition} \n")
            assert server.rows(WHERE.format(source, condition))[0]["rows"] == rows
    (held,) = server.rows(WHERE.replace("epochs => 1", "epochs => 1, holdout => 0.5").format("parts", "i % 2 = 0"))
    assert 900 < held["rows"] < 1100
    assert server.rows(WHERE.format("facts", "random() < 0.5"))[0]["rows"] < 2500
    assert "Filter: i = 1\n" in server.text("EXPLAIN " + WHERE.format("facts", "i = 1"))


CONDITIONS = {
    "": "syntax error",
    "i < 5; DROP TABLE kinds": "syntax error",
    "true), (true": "where must be one condition",
    "true) FROM facts WHERE (true": "where must be one condition",
    "true); DROP TABLE kinds; SELECT (true": "where must be one condition",
    "true) UNION SELECT (true": "where must be one condition",
    "EXISTS (SELECT FROM kinds)": "where must not have aggregates, window functions, set-returning",
    "count(*) > 1": "where must not have aggregates",
    "row_number() OVER () > 1": "where must not have aggregates",
    "generate_series(1, 2) > 1": "must not return a set",
    "i": "must be type boolean, not type integer",
    "nope = 1": 'column "nope" does not exist',
    "facts IS NULL": "where must not have whole rows",
    "$1": "there is no parameter $1",
    "1 / (i - 3) > 0": "division by zero",
    "i < 0": 'where matches no row of table "facts"',
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_refused(fails, condition):
    assert CONDITIONS[condition] in fails(WHERE.format("facts", condition))


def test_a_condition_takes_the_right_to_its_columns(server, fails):
    assert server.rows(WHERE.format("facts", "y >= 0"), "m_user")[0]["rows"] == 4000
    for condition in ("k = 1", "ctid <> '(0,1)'"):
        assert "permission denied for table facts" in fails(WHERE.format("facts", condition), "m_user")
    server.sql("CREATE FUNCTION barred(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN true; END'; "
               "REVOKE EXECUTE ON FUNCTION barred FROM PUBLIC")  # fmt: skip
    assert "permission denied for function barred" in fails(WHERE.format("facts", "barred(y)"), "m_user")
    server.sql("DROP FUNCTION barred")


def test_what_rows_come_from_is_said_once(fails):
    call = "SELECT * FROM corgipile.train({}model => 'svm', features => 'x', label => 'y')"
    assert "source must not be NULL; name a table, or give a query" in fails(call.format(""))
    assert "source and query both name rows" in fails(call.format("source => 'facts', query => 'TABLE facts', "))
    assert "move the condition into query" in fails(call.format("query => 'TABLE facts', \"where\" => 'true', "))
