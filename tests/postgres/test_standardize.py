"""Standardised features in PostgreSQL: where Python standardises them, by the same numbers, to the same bits."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from pgservers import literal

import corgipile as cp

KINDS = {"real": pa.float32(), "float8": pa.float64(), "int": pa.int32(), "smallint": pa.int16(), "bigint": pa.int64()}
KINDS |= {"text": pa.string(), "date": pa.date32(), "bool": pa.bool_()}
SETTINGS = {"epochs": 2, "learning_rate": 0.05, "order": "no_shuffle"}
# Columns of rows i, from 0 on: type and expression; and whether they are standardised where nobody says so.
TABLES = {
    "apart": ({"a": ("real", "random() * 1e5"), "b": ("real", "random()")}, True),
    "far": ({"a": ("float8", "1e9 + i % 97"), "b": ("float8", "random()")}, True),
    "whole": ({"a": ("int", "1700000000 + i % 97"), "b": ("smallint", "i % 5")}, True),
    "short": ({"a": ("float8", "random() / 100"), "b": ("float8", "random() / 100")}, True),
    "long": ({"a": ("real", "10 + random()"), "b": ("real", "random()")}, True),
    "aside": ({"a": ("real", "1 + random()"), "b": ("real", "2 + random()")}, True),
    "denormal": ({"a": ("float8", "i % 3 * 1e-310"), "b": ("float8", "random() * 3 - 1.5")}, False),
    "tiny": ({"a": ("float8", "random() * 1e-150"), "b": ("float8", "random()")}, True),
    "huge": ({"a": ("float8", "random() * 1e150"), "b": ("float8", "random()")}, True),
    "constant": ({"a": ("real", "0.1"), "b": ("real", "random() * 40")}, True),
    "equal": ({"a": ("float8", "7e15"), "b": ("float8", "0.1")}, True),
    "fine": ({"a": ("real", "random() * 3 - 1.5"), "b": ("bigint", "i % 2"), "c": ("bool", "i % 3 = 0")}, False),
    "counts": ({"a": ("int", "i % 20 / 19 * 9000"), "b": ("int", "i % 30 / 29")}, True),
    "flags": ({"a": ("real", "random() * 90"), "b": ("int", "i % 3 / 2"), "c": ("int", "i % 80 / 79")}, True),
    "zeros": ({"a": ("float8", "i % 5 / 4 * 1e-6"), "b": ("int", "i % 2"), "c": ("bool", "i % 7 < 3")}, True),
    "small": ({"a": ("float8", "random() / 6 - 0.08"), "b": ("float8", "random() / 6 - 0.08")}, True),
    "states": ({"a": ("real", "random() * 90"), "s": ("text", "'v' || i % 20"), "b": ("int", "1950 + i % 70")}, True),
    "text": ({"a": ("text", "'v' || i % 3"), "b": ("real", "i % 90"), "d": ("date", "date '2026-01-01' + i")}, True),
    "filled": ({"n": ("int", "i % 5"), "b": ("real", "random()"), "d": ("date", "date '2026-01-01' + i % 9")}, True),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def gone(server):
    """Leave neither tables nor models."""
    yield
    server.sql("DROP TABLE IF EXISTS st; DELETE FROM corgipile.models")


def make(server, columns, rows=900, label="(i * 7 % 900 < 450)::int"):
    """Make a table of rows that are not all alike, and return it as Python reads it."""
    made = ", ".join(f"({text})::{kind} AS {name}" for name, (kind, text) in columns.items())
    server.sql(f"DROP TABLE IF EXISTS st; SELECT setseed(0.5); CREATE TABLE st AS SELECT {made}, {label} AS label "
               f"FROM generate_series(0, {rows - 1}) i")  # fmt: skip
    return arrow(server, columns)


def arrow(server, columns, source="st", label=None):
    """Read a table as Python reads it."""
    rows = server.rows(f"SELECT {', '.join(columns)}, label FROM {source}")
    kinds = {name: KINDS[kind] for name, (kind, _) in columns.items()} | {"label": label or pa.int32()}
    return pa.table({name: pa.array([plain(row[name], kind) for row in rows], kind) for name, kind in kinds.items()})


def plain(value, kind):
    """Return what JSON has as text."""
    if kind == pa.date32():
        return dt.date.fromisoformat(value)
    return float(value) if value in ("NaN", "Infinity") else value


def stored(server, name="st"):
    (row,) = server.rows(f"SELECT * FROM corgipile.models WHERE name = '{name}'")
    return row


def check_same(model, python):
    """Check that a model is that of Python, as it was learnt too."""
    assert model["params"]["standardize"] is python.params["standardize"]
    assert model["coefficients"] == python.coef.astype(np.float64).tolist()
    assert model["intercepts"] == python.intercept.astype(np.float64).tolist()
    assert (model["learnt"] is None) == (python.learnt is None)
    if python.learnt is not None:
        scaling, coef, intercept, _ = python.learnt
        known = [[*scaling.center, 0], [*scaling.scale, 1]]
        assert model["learnt"] == [*known, *np.column_stack([coef, intercept]).astype(float).tolist()]


@pytest.mark.parametrize("name", TABLES)
def test_it_happens_where_it_does_in_python(server, train, name):
    columns, needed = TABLES[name]
    rows = make(server, columns)
    onehot = {"encode": "onehot"}
    also = {"text": onehot, "states": onehot | {"learning_rate": 0.005}, "filled": {"missing": "mean"}}.get(name, {})
    also |= {} if needed else {"learning_rate": 1e-9}
    options = {"features": list(columns), **SETTINGS | also}
    for asked in ({}, {"standardize": True}, {"standardize": False})[: 2 if needed else 3]:
        python = cp.train(rows, **options, **asked)
        history = train("st", name="st", **options, **asked)
        check_same(stored(server), python)
        assert python.params["standardize"] in ([asked["standardize"]] if asked else [needed, None])
        assert [row["loss"] for row in history] == [record["loss"] for record in python.history]
    said = server.said("SELECT * FROM corgipile.train('st', 'svm', '*', 'label', epochs => 1{})".format(
        ", encode => 'onehot'" if "encode" in also else ""))[1]  # fmt: skip
    assert ("they are standardised; standardize => false learns from them as they are" in said) == needed


def test_flags_are_left_alone(server, train):
    make(server, TABLES["flags"][0])
    train("st", name="st", features=["a", "b", "c"], **SETTINGS)
    center, scale = stored(server)["learnt"][:2]
    assert (center[1], scale[1]) == (0, 1)
    assert center[2] == pytest.approx(11 / 900)


@pytest.mark.parametrize("name", ["flags", "apart"])
def test_the_parameters_of_a_model_train_it_again(server, train, name):
    columns = list(TABLES[name][0])
    make(server, TABLES[name][0])
    train("st", name="st", features=columns)
    first = stored(server)
    assert first["params"]["standardize"] is (None if name == "flags" else True)
    again = "NULL" if name == "flags" else "true"
    server.sql(f"""SELECT * FROM corgipile.train('st', 'logistic', {literal(columns)}, 'label', name => 'st',
        epochs => 2, standardize => {again}::bool)""")
    assert stored(server)["learnt"] == first["learnt"]


def test_standardised_features_are_suggested_once(server):
    columns = {"k": ("int", "i % 3"), "a": ("real", "random() * 1e4")}
    make(server, columns, label="(random() * 9)::float8")
    server.sql("CREATE TABLE sparse AS SELECT ARRAY[k] AS k, ARRAY[a]::real[] AS v, label FROM st")
    call = "SELECT * FROM corgipile.train('{}', 'linear', ARRAY[{}], 'label', epochs => 3{})"
    for source, features, more in (("sparse", "'k', 'v'", ""), ("st", "'k', 'a'", ", standardize => false")):
        said = server.said(call.format(source, features, more))[1]
        assert "restarting at" in said
        assert said.count("standardize => true would help") == 1
    server.sql("DROP TABLE sparse")


@pytest.mark.parametrize("rows", [1, 2, 255, 257, 1030, 5000])
def test_rows_of_any_number(server, train, rows):
    """A part of them is looked at, whose numbers are larger than the others'."""
    columns = {
        "a": ("float8", f"random() * CASE WHEN i > {rows} - 40 THEN 1e7 ELSE 1 END"),
        "b": ("float8", "random()"),
    }
    make(server, columns, rows, "i % 3 * 0.5")
    python = cp.train(arrow(server, columns, label=pa.float64()), model="huber", **SETTINGS)
    train("st", model="huber", name="st", features=["a", "b"], **SETTINGS)
    check_same(stored(server), python)


def test_conditions_queries_and_parts(server, train):
    columns = {"a": ("int", "1000000 + i * 31 % 997"), "b": ("real", "CASE WHEN i % 4 = 0 THEN random() * 1e6 END")}
    make(server, columns)
    python = cp.train(arrow(server, columns, "st WHERE b IS NOT NULL"), **SETTINGS)
    train("st", name="st", features=["a", "b"], where="b IS NOT NULL", **SETTINGS)
    check_same(stored(server), python)
    rest = (
        "features => ARRAY['a', 'b'], label => 'label', epochs => 2, learning_rate => 0.05, \"order\" => 'no_shuffle'"
    )
    what = "query => 'TABLE st', model => 'logistic', name => 'st', missing => 'skip'"
    server.sql(f"SELECT * FROM corgipile.train({what}, {rest})")
    assert stored(server)["learnt"][0] == [*python.learnt.scaling.center, 0]
    server.sql(f"SELECT * FROM corgipile.train('st', 'logistic', name => 'st', missing => 'mean', {rest})")
    check_same(stored(server), cp.train(arrow(server, columns), missing="mean", **SETTINGS))
    server.sql("""CREATE TABLE parted (b real, junk text, a int, label int) PARTITION BY LIST (label);
        CREATE TABLE p0 PARTITION OF parted FOR VALUES IN (0); CREATE TABLE p1 (label int, a int, b real, junk text);
        ALTER TABLE parted ATTACH PARTITION p1 FOR VALUES IN (1);
        INSERT INTO parted (a, b, label) SELECT a, b, label FROM st WHERE b IS NOT NULL""")
    train("parted", name="st", features=["a", "b"], **SETTINGS)
    check_same(stored(server), cp.train(arrow(server, columns, "parted"), **SETTINGS))
    server.sql("DROP TABLE parted")


@pytest.mark.parametrize(("model", "features"), [("logistic", "x"), ("softmax", "x"), ("linear", "kv")])
def test_going_on_is_going_on(server, train, model, features):
    sparse = features == "kv"
    names = ["k", "v"] if sparse else ["x"]
    server.sql("""DROP TABLE IF EXISTS st; SELECT setseed(0.5);
        CREATE TABLE st AS SELECT ARRAY[1e4 * random(), random(), 5]::real[] AS x, ARRAY[i % 2, 2 + i % 3] AS k,
        ARRAY[random() * 90, random()]::real[] AS v, i * 7 % 3 AS label FROM generate_series(0, 599) i;""")
    if model == "logistic":
        server.sql("UPDATE st SET label = label % 2")
    options = {"model": model, "features": names, "learning_rate": 0.01, "standardize": True}
    unsaid = {name: value for name, value in options.items() if name != "standardize"}
    train("st", name="whole", epochs=4, **options)
    train("st", name="part", epochs=2, **options)
    train("st", name="part", epochs=2, warm_start="part", **unsaid)
    whole, part = stored(server, "whole"), stored(server, "part")
    for one in ("coefficients", "intercepts", "learnt"):
        assert whole[one] == part[one]
    train("st", name="plain", epochs=1, warm_start="part", **options | {"standardize": False, "learning_rate": 1e-12})
    plain = stored(server, "plain")
    assert (plain["learnt"], plain["params"]["standardize"]) == (None, False)
    train("st", name="again", epochs=1, warm_start="plain", **options)
    train("st", name="still", epochs=1, warm_start="plain", **unsaid | {"learning_rate": 1e-12})
    assert stored(server, "again")["learnt"][:2] == whole["learnt"][:2]
    assert stored(server, "still")["learnt"] is None


def test_weights_that_were_changed_are_gone_on_from(server, train, fails):
    make(server, TABLES["apart"][0])
    train("st", name="st", features=["a", "b"], **SETTINGS | {"epochs": 1})
    first = stored(server)["learnt"]
    server.sql("UPDATE corgipile.models SET coefficients = '{{0, 0}}', intercepts = '{0}' WHERE name = 'st'")
    train(
        "st", name="on", features=["a", "b"], warm_start="st", **SETTINGS | {"epochs": 1, "learning_rate": 0.05 / 0.95}
    )
    assert stored(server, "on")["learnt"] == first
    call = "SELECT * FROM corgipile.train('st', 'logistic', ARRAY['a', 'b'], 'label', warm_start => 'st')"
    for damage in ("'{1, 2}'", "'{{0,0,0},{1,1,1}}'", "'{{0,0,0},{1,-1,1},{0,0,0}}'", "'{{0,0,0},{1,1,1},{0,NaN,0}}'"):
        server.sql(f"UPDATE corgipile.models SET learnt = {damage} WHERE name = 'st'")
        assert "what it was standardised by does not fit its arrays" in fails(call)


def test_numbers_too_large_for_a_spread_are_named(server, fails):
    make(server, {"a": ("float8", "1"), "b": ("float8", "i % 2 * 1e300")})
    said = fails("SELECT * FROM corgipile.train('st', 'svm', '*', 'label')")
    assert 'feature "b" has numbers so large that their spread is beyond what double precision holds' in said


def test_rows_that_are_no_numbers_are_left_out(server, train):
    columns = {
        "a": ("float8", "CASE i % 9 WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' ELSE random() * 1e6 END"),
        "b": ("float8", "i % 5"),
    }
    rows = make(server, columns)
    python = cp.train(rows, on_bad="skip", **SETTINGS)
    train("st", name="st", features=["a", "b"], missing="skip", **SETTINGS)
    check_same(stored(server), python)


def test_explain_says_so(server):
    make(server, TABLES["apart"][0])
    call = "corgipile.train('st', 'svm', '*', 'label', epochs => 3{})"
    for asked, word in (("", "where needed"), (", standardize => true", "true"), (", standardize => false", "false")):
        assert f"Standardize: {word}" in server.text(f"EXPLAIN SELECT * FROM {call.format(asked)}")
        said = server.text(f"EXPLAIN (ANALYZE, TIMING off) SELECT * FROM {call.format(asked)}")
        assert f"Standardized: {str(word != 'false').lower()}" in said
        assert f"Passes before Epochs: {1 + (word != 'false')}" in said
        assert f"rows=900{'.00' if server.version >= 18 else ''} loops={4 + (word != 'false')}" in said
