"""Rows given to predict and its like as one record: columns are found by name wherever they have names."""

# ruff: noqa: S608  # tests write SQL

import pytest

pytestmark = pytest.mark.every_server
SHUFFLED = "SELECT noise, b, a FROM rows_t"
# What stands behind FROM, and the record. All have other columns than the model's, in another order.
NAMED = {
    "table": ("rows_t r", "r"),
    "all columns": ("rows_t r", "r.*"),
    "view": ("rows_v r", "r"),
    "subquery": (f"({SHUFFLED}) r", "r"),
    "subquery that stays": (f"({SHUFFLED} OFFSET 0) r", "r"),
    "renamed": ("(SELECT b, a, noise FROM rows_t) r (b, a, noise)", "r"),
    "CTE": ("r", "r", f"WITH r AS NOT MATERIALIZED ({SHUFFLED}) "),
    "materialized CTE": ("r", "r", f"WITH r AS MATERIALIZED ({SHUFFLED}) "),
    "LATERAL": ("rows_t t, LATERAL (SELECT t.noise, t.b, t.a) r", "r"),
    "LATERAL that stays": ("rows_t t, LATERAL (SELECT t.noise, t.b, t.a OFFSET 0) r", "r"),
    "VALUES": ("(VALUES (9.5, 5, -4.5)) r (noise, b, a)", "r"),
    "function": ("rows_f() r", "r"),
    "function of rows": ("rows_f(1) r", "r"),
    "definition list": ("json_to_record('{\"a\": -4.5, \"b\": 5}') r (b float8, noise float8, a float8)", "r"),
    "join": ("(SELECT b FROM rows_t) x, (SELECT a, noise FROM rows_t) y", "(SELECT z FROM (SELECT x.b, y.a) z)"),
    "joined": ("((SELECT b FROM rows_t) x CROSS JOIN (SELECT a, noise FROM rows_t) y) r", "r"),
    "record of a subquery": (f"(SELECT q AS r FROM ({SHUFFLED}) q OFFSET 0) s", "s.r"),
    "array": (f"(SELECT array_agg(q) AS r FROM ({SHUFFLED}) q) s", "s.r[1]"),
    "aggregate": (f"({SHUFFLED} UNION ALL {SHUFFLED} LIMIT 1) r", "r"),
}  # fmt: skip
FUNCTIONS = ("predict", "decision", "predict_proba", "predict_bool")


@pytest.fixture
def two(server):
    """Store models of two columns, one of them of labels, and some whose columns are called as ROW calls them."""
    server.sql("""
        CREATE TABLE rows_t AS SELECT 9.5::float8 AS noise, 5::float8 AS b, -4.5::float8 AS a;
        CREATE VIEW rows_v AS SELECT b, noise, a FROM rows_t;
        CREATE FUNCTION rows_f() RETURNS TABLE (b float8, noise float8, a float8) LANGUAGE plpgsql
            AS $$ BEGIN RETURN QUERY SELECT t.b, t.noise, t.a FROM rows_t t; END $$;
        CREATE FUNCTION rows_f(int, OUT b float8, OUT noise float8, OUT a float8) LANGUAGE sql
            AS 'SELECT b, noise, a FROM rows_t';
        INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source)
            SELECT name, 'logistic', 2, '{0,1}', CASE name WHEN 'labels' THEN '{{1,2},{1,2}}' ELSE '{{1,2}}'
                END::float8[],
                CASE name WHEN 'labels' THEN '{0,-9}' ELSE '{0}' END::float8[], params::jsonb, 'rows_t'
            FROM (VALUES ('two', '{"features": ["a", "b"]}'), ('fs', '{"features": ["f2", "f1"]}'), ('none', '{}'),
                ('straight', '{"features": ["f1", "f2"]}'),
                ('labels', '{"features": ["a", "b"], "label": null, "labels": ["x", "y"]}')) q (name, params);
    """)
    yield
    server.sql("""DROP TABLE rows_t CASCADE; DROP FUNCTION rows_f(), rows_f(int);
        DELETE FROM corgipile.models WHERE source = 'rows_t'""")


def test_columns_are_found_by_name(server, two):
    want = {name: server.value(f"SELECT corgipile.{name}('two', ROW(-4.5, 5))") for name in FUNCTIONS}
    labels = server.value("SELECT corgipile.predict_labels('labels', -4.5, 5)")
    assert labels == ["x"]
    assert want["decision"] == [5.5]
    for what, (rows, record, *more) in NAMED.items():
        before = "".join(more)
        for name, value in want.items():
            assert server.value(f"{before}SELECT corgipile.{name}('two', {record}) AS v FROM {rows}") == value, what
        got = server.value(f"{before}SELECT corgipile.predict_labels('labels', {record}) AS v FROM {rows}")
        assert got == labels, what


def test_rows_without_names_keep_the_order_of_training(server, two, fails):
    assert server.value("SELECT corgipile.decision('two', ROW(a, b)) FROM rows_t") == [5.5]
    assert server.value("SELECT corgipile.decision('none', ROW(a, b)) FROM rows_t") == [5.5]
    assert server.value("SELECT corgipile.decision('two', r) FROM (SELECT ROW(a, b) AS r FROM rows_t OFFSET 0) q") == [
        5.5
    ]


@pytest.mark.parametrize(("model", "row"), [
    ("fs", "ROW(1, 2)"), ("fs", "r) FROM (SELECT 1 AS f1, 2 AS f2"), ("straight", "ROW(1, 2, 3)"),
])  # fmt: skip
def test_columns_called_as_row_calls_them(server, two, fails, model, row):
    """Nothing tells ROW from a subquery whose columns are called f1 and f2."""
    call = f"SELECT corgipile.decision('{model}', {row}) {'r' if 'FROM' in row else ''}"
    assert "of the row are ambiguous: ROW uses these names" in fails(call)
    for good in ("ROW(f1, f2)) FROM (SELECT 1 AS f1, 2 AS f2", "r) FROM (SELECT 2 AS f2, 1 AS f1"):
        named = "straight" if "ROW" in good else "fs"
        want = server.value(f"SELECT corgipile.decision('{named}', {'1, 2' if named == 'straight' else '2, 1'})")
        assert server.value(f"SELECT corgipile.decision('{named}', {good}) r") == want


@pytest.mark.parametrize(("rows", "said"), [
    ("(SELECT b, noise FROM rows_t) r", 'the row is record, which has no column "a"'),
    ("(VALUES (-4.5, 5)) r", 'the row is record, which has no column "a"'),
    ("(SELECT a, b, a FROM rows_t) r", 'the row has two columns "a"'),
])  # fmt: skip
def test_columns_that_are_missing_or_ambiguous(two, fails, rows, said):
    for name in (*FUNCTIONS, "predict_labels"):
        said_of = fails(f"SELECT corgipile.{name}('{'labels' if name == 'predict_labels' else 'two'}', r) FROM {rows}")
        assert said in said_of
        assert "ROW(a, b)" in said_of
    assert "do not name its training columns" in fails(
        "SELECT corgipile.predict('none', r) FROM (SELECT a, b FROM rows_t) r"
    )
