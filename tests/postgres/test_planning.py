"""The call of train as part of other queries: conditions, whole rows, EXPLAIN."""

# ruff: noqa: S608  # tests write SQL

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
