"""Rows are taken from a heap's pages as they are stored; whatever the storage, the model is that of the general way.

Rows with a numeric label are taken apart by the server's own routines: they make the model to compare with.
"""

# ruff: noqa: S608  # tests write SQL

import pytest

REALS = "ARRAY[i % 5 - 2, i % 7 - 3, i % 2]::real[]"
# What to make of a table t (..., label); i counts its rows.
LAYOUTS = {
    "array, label": f"CREATE TABLE t AS SELECT {REALS} AS x, i % 2 AS label FROM i",
    "bool, array": f"CREATE TABLE t AS SELECT i % 2 = 0 AS label, {REALS} AS x FROM i",
    "text before": f"CREATE TABLE t AS SELECT repeat('w', i % 9) AS word, {REALS} AS x, (i % 3)::int2 AS label FROM i",
    "long text before": f"""CREATE TABLE t AS SELECT 'a'::"char" AS c, repeat('w', i * 37 % 400) AS word, {REALS} AS x,
        'b'::"char" AS d, (i % 3)::real AS label FROM i""",
    "text between": f"CREATE TABLE t AS SELECT {REALS} AS x, repeat('w', i % 9) AS w, (i % 3)::int8 AS label FROM i",
    "label before text": f"""CREATE TABLE t AS SELECT i % 3 / 2.0::float8 AS label, repeat('w', i % 9) AS word,
        {REALS}::float8[] AS x FROM i""",
    "long array": """CREATE TABLE t AS SELECT 'a'::"char" AS c, ARRAY(SELECT sin(i * j) FROM generate_series(1, 40) j
        WHERE i >= 0)::real[] AS x, 'b'::"char" AS d, i % 2 AS label FROM i""",
    "small numbers": """CREATE TABLE t AS SELECT 'a'::"char" AS c, ARRAY[i % 5, -i % 3]::int2[] AS x, i % 2 = 1 AS d,
        (i % 2)::int2 AS label FROM i""",
    "large numbers": f"""CREATE TABLE t AS SELECT true AS c, {REALS}::int8[] AS x, true AS d, i::int8 % 2 AS label
        FROM i""",
    "fixed widths": f"""CREATE TABLE t AS SELECT 'a'::"char" AS c, md5(i::text)::uuid AS u, '1 day'::interval AS v,
        'n'::name AS n, {REALS} AS x, true AS b, '10:00'::timetz AS z, i % 2 AS label FROM i""",
    "NULLs elsewhere": f"""CREATE TABLE t AS SELECT nullif(i % 3, 0)::int2 AS n, nullif(repeat('w', i % 9), '') AS word,
        {REALS} AS x, nullif(i % 4, 1)::int8 AS m, i % 2 AS label, nullif(i % 2, 0) AS after FROM i""",
    "dropped columns": f"""CREATE TABLE t AS SELECT repeat('w', i % 9) AS gone, i::int8 AS too, {REALS} AS x,
        i % 2 AS label FROM i; ALTER TABLE t DROP gone, DROP too;
        INSERT INTO t SELECT {REALS}, i % 3 FROM i""",
    "added columns": f"""CREATE TABLE t AS SELECT i % 3 AS a, {REALS} AS x FROM i;
        ALTER TABLE t ADD label int DEFAULT 7; INSERT INTO t SELECT i, {REALS}, i % 3 FROM i""",
    "added array": f"""CREATE TABLE t AS SELECT i % 3 AS label FROM i;
        ALTER TABLE t ADD x real[] DEFAULT '{{1, 2, 3}}'; INSERT INTO t SELECT i % 3, {REALS} FROM i""",
    "compressed and TOASTed": """CREATE TABLE t AS SELECT i,
        CASE i % 3 WHEN 0 THEN array_fill(i % 2, ARRAY[700])::real[]
        ELSE ARRAY(SELECT sin(i * j * i) FROM generate_series(1, 700) j)::real[] END AS x, i % 2 AS label
        FROM i WHERE i < 400""",
    "arrays with bounds": """CREATE TABLE t (x real[], label int);
        INSERT INTO t SELECT ('[5:6]={1,' || i % 5 || '}')::real[], i % 2 FROM i""",
    "dead rows": f"""CREATE TABLE t (i int, x real[], label int) WITH (fillfactor = 50);
        INSERT INTO t SELECT i, {REALS}, i % 2 FROM i; UPDATE t SET label = 3 WHERE i % 5 = 0;
        UPDATE t SET label = 4 WHERE i % 10 = 0; DELETE FROM t WHERE i BETWEEN 700 AND 1300 OR i % 7 = 0""",
    "dead rows removed": f"""CREATE TABLE t (i int, x real[], label int) WITH (fillfactor = 50);
        INSERT INTO t SELECT i, {REALS}, i % 2 FROM i; UPDATE t SET label = 3 WHERE i % 5 = 0;
        DELETE FROM t WHERE i BETWEEN 700 AND 1300 OR i % 7 = 0; VACUUM t""",
    "one row a page": f"""CREATE TABLE t (x real[], word text, label int); ALTER TABLE t ALTER word SET STORAGE PLAIN;
        INSERT INTO t SELECT {REALS}, repeat('w', 5000), i % 2 FROM i WHERE i < 300""",
    "parts": f"""CREATE TABLE t (x real[], k int, label int) PARTITION BY RANGE (k);
        CREATE TABLE t1 (label int, gone text, k int NOT NULL, x real[]); ALTER TABLE t1 DROP gone;
        ALTER TABLE t ATTACH PARTITION t1 FOR VALUES FROM (0) TO (900);
        CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (900) TO (9000);
        INSERT INTO t SELECT {REALS}, i, i % 2 FROM i""",
}
COLUMNS = {
    "numbers": """CREATE TABLE t AS SELECT i % 2 = 0 AS a, (i % 5)::int2 AS b, repeat('w', i % 9) AS word, i % 7 AS c,
        i::int8 % 3 AS d, i % 5 / 4.0::real AS e, i % 5 / 4.0::float8 AS f, i % 2 AS label FROM i""",
    "numbers and NULLs": """CREATE TABLE t AS SELECT i % 2 = 0 AS a, (i % 5)::int2 AS b, nullif(i % 3, 0)::int2 AS n,
        i % 7 AS c, i::int8 % 3 AS d, i % 5 / 4.0::real AS e, i % 5 / 4.0::real AS f, i % 2 AS label FROM i""",
}
PAIRS = {
    kind: f"""CREATE TABLE t AS SELECT i % 2 AS label,
        ARRAY(SELECT j * 5 + i % 5 FROM generate_series(1, i % 9) j) AS k, repeat('w', i % 9) AS word,
        ARRAY(SELECT sin(i * j) FROM generate_series(1, i % 9) j)::{kind}[] AS v FROM i"""
    for kind in ("real", "float8")
}
CASES = [
    *((name, made, ["x"]) for name, made in LAYOUTS.items()),
    *((name, made, list("abcdef")) for name, made in COLUMNS.items()),
    *((f"pairs of {kind}", made, ["k", "v"]) for kind, made in PAIRS.items()),
]


@pytest.mark.every_server
@pytest.mark.parametrize(("made", "features"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_model_is_that_of_the_general_way(server, train, made, features):
    server.sql(f"""
        DROP TABLE IF EXISTS t, flat;
        CREATE TEMP VIEW i AS SELECT i FROM generate_series(0, 1999) i;
        {made};
    """)
    number = "label::int" if server.value("SELECT pg_typeof(label) FROM t LIMIT 1") == "boolean" else "label"
    server.sql(f"CREATE TABLE flat AS SELECT {', '.join(features)}, {number}::numeric AS label FROM t "
               "ORDER BY tableoid, ctid")  # fmt: skip
    rows = server.value("SELECT count(*) FROM flat")
    for holdout in (0, 0.2):
        given = {"model": "linear", "features": features, "order": "no_shuffle", "learning_rate": 0.0001,
                 "block_size": "8kB", "buffer_size": "4MB", "holdout": holdout}  # fmt: skip
        plain, general = (train(table, name=table, **given) for table in ("t", "flat"))
        assert holdout or plain[0]["rows"] == rows
        assert [(epoch["rows"], epoch["loss"]) for epoch in plain] == [
            (epoch["rows"], epoch["loss"]) for epoch in general
        ]
        assert server.value("SELECT count(DISTINCT (coefficients, intercepts)) FROM corgipile.models "
                            "WHERE name IN ('t', 'flat')") == 1  # fmt: skip
