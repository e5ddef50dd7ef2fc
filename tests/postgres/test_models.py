"""The table of models: its rows, who sees which version, dumps, upgrades; prediction in all its forms."""

# ruff: noqa: S608  # tests write SQL

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a table with an array and the same numbers as columns."""
    server.sql("""
        CREATE TABLE forms AS SELECT i, ARRAY[i % 7, i / 50 - 1]::real[] AS x, (i % 7)::smallint AS a,
            (i / 50 - 1)::numeric AS b, i / 50 AS label FROM generate_series(0, 99) i;
        CREATE TABLE nameless AS SELECT 1 AS a, 2 AS b;
    """)


@pytest.fixture
def model(train):
    """Train a model of two features."""
    train("forms", name="form", epochs=3, learning_rate=0.1)
    return "form"


def test_columns_of_the_table(server, train):
    train("forms", name="full", epochs=3, label="label", holdout=0.2)
    (row,) = server.rows("SELECT *, created > now() - interval '1 minute' AS fresh FROM corgipile.models "
                         "WHERE name = 'full'")  # fmt: skip
    assert (row["kind"], row["dims"], row["classes"], row["source"]) == ("logistic", 2, [0, 1], "public.forms")
    assert (row["owner"], row["fresh"]) == ("postgres", True)
    assert (len(row["coefficients"][0]), len(row["intercepts"])) == (2, 1)
    history = server.rows("SELECT * FROM corgipile.history WHERE model = 'full' ORDER BY epoch")
    assert [epoch["epoch"] for epoch in history] == [0, 1, 2]
    assert all({name for name, value in epoch.items() if value is None} == {"r2", "holdout_r2"} for epoch in history)
    assert row["params"]["features"] == ["x"]
    assert row["params"]["holdout"] == 0.2


@pytest.mark.parametrize(
    "features",
    ["x", "x::float8[]", "x::int[]", "x::smallint[]", "x::numeric[]", "a, b", "VARIADIC x", "a::int8, b::float8",
     "ARRAY[a, b]", "ROW(a, b)", "ROW(x)", "forms"],
)  # fmt: skip
def test_every_form_of_features_predicts_the_same(server, model, features):
    query = """SELECT sum(corgipile.predict('form', {0})), sum((corgipile.decision('form', {0}))[1]),
        sum((corgipile.predict_proba('form', {0}))[2]) FROM forms"""
    assert server.text(query.format(features)) == server.text(query.format("x"))


def test_a_literal_is_a_row(server, model):
    assert server.value("SELECT corgipile.decision('form', '{3, 1}') = corgipile.decision('form', 3, 1)")


def test_predicting_refuses_what_is_no_row(server, model, fails):
    for features, said in (
        ("1", 'the row has 1 features; model "form" was trained with 2'),
        ("1, 2, 3", "the row has 3 features"),
        ("1, 'a'::text", "features must be numbers or one array of numbers, got text"),
        ("1, ARRAY[2]", "got an array and a number"),
        ("'{1, 2, 3}'", "the row has 3 features"),
        ("'[1, 2]'", "malformed array literal"),
        ("'{1, 2}'::text", "Write x::float8[] for x"),
        ("1, 'NaN'::float8", "NaN, infinite or too large"),
        ("ROW(1)", "the row has 1 features"),
        ("ROW(1, 'a'::text)", "got text"),
        ("ROW()", "the row has 0 features"),
        ("ROW(1, 'NaN'::float8)", "NaN, infinite or too large"),
        ("nameless", 'the row is nameless, which has no column "x"; model "form" was trained with it'),
    ):
        assert said in fails(f"SELECT corgipile.predict('form', {features}) FROM (VALUES (1)) v (i), nameless")
    assert "does not exist" in fails("SELECT corgipile.predict('form')")
    for nothing in ("1, NULL::int", "ROW(1, NULL::int)", "NULL::forms", "(SELECT f FROM forms f WHERE i = -1)"):
        assert server.value(f"SELECT corgipile.predict('form', {nothing})") is None


def test_rows_of_several_types_are_read_by_their_own(server, train, fails):
    """A column may hold records of any type; rows of a table are read by their names, whatever was dropped."""
    train("forms", name="named", features=["a", "b"], epochs=2)
    server.sql("""
        CREATE TABLE turned (b int, gone int, label int, a float8);
        ALTER TABLE turned DROP COLUMN gone;
        INSERT INTO turned SELECT b, label, a FROM forms;
    """)
    same = "(corgipile.decision('named', a, b))[1]"
    assert server.value(f"SELECT sum({same}) FROM forms") == server.value(
        "SELECT sum((corgipile.decision('named', t))[1]) FROM turned t"
    )
    mixed = "SELECT a, b, ROW(a, b) AS r FROM forms UNION ALL SELECT a, b, ROW(a::real, b::int8) FROM forms"
    assert server.value(f"SELECT bool_and((corgipile.decision('named', r))[1] = {same}) FROM ({mixed}) m")
    server.sql("UPDATE corgipile.models SET params = params - 'features' WHERE name = 'named'")
    assert "do not name its training columns" in fails("SELECT corgipile.decision('named', t) FROM turned t")
    assert server.value("SELECT corgipile.predict('named', ROW(1, 2))") in (0, 1)


def test_predictions_follow_the_model(server, model):
    """A prepared query and a function see each version: of their transaction, undone, and of another session."""
    (before,) = server.rows("SELECT coefficients, intercepts FROM corgipile.models WHERE name = 'form'")
    said = []
    ask = "EXECUTE ask; SELECT pg_temp.score();"
    with subprocess.Popen(
        server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", bufsize=1
    ) as psql:

        def tell(sql):
            psql.stdin.write(sql + "\n")
            psql.stdin.flush()
            found = {psql.stdout.readline().strip() for _ in range(2)}
            assert len(found) == 1
            said.append(*found)

        psql.stdin.write("""
            PREPARE ask AS SELECT (corgipile.decision('form', 3, 1))[1];
            CREATE FUNCTION pg_temp.score() RETURNS float8 LANGUAGE plpgsql AS
                'BEGIN RETURN (corgipile.decision(''form'', 3, 1))[1]; END';
        """)
        update = "UPDATE corgipile.models SET intercepts = ARRAY[{}.0] WHERE name = 'form'"
        tell(ask)
        tell("BEGIN; " + update.format(100) + "; " + ask)
        tell("SAVEPOINT s; " + update.format(200) + "; " + ask)
        tell("ROLLBACK TO s; " + ask)
        tell("ROLLBACK; " + ask)
        server.sql(update.format(300))
        tell(ask)
        tell("BEGIN ISOLATION LEVEL REPEATABLE READ; " + ask)
        server.sql(update.format(400))
        tell(ask)
        tell("COMMIT; " + ask)
        server.sql("DELETE FROM corgipile.models WHERE name = 'form'")
        psql.stdin.write("\\set ON_ERROR_STOP 0\n EXECUTE ask; SELECT 'gone';\n")
        psql.stdin.close()
        assert psql.stdout.read() == "gone\n"
    ((first, second),), (own,) = before["coefficients"], before["intercepts"]
    given = [own, 100, 200, 100, own, 300, 300, 300, 400]
    assert [float(value) for value in said] == pytest.approx([3 * first + second + b for b in given], abs=1e-4)


@pytest.fixture
def backend(server):
    """Run psql and return what it answers to statements, all in one backend; errors are answered too."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(server.command(), **pipes, text=True, cwd="/", bufsize=1) as psql:
        psql.stdin.write("\\set ON_ERROR_STOP 0\n")

        def tell(sql):
            psql.stdin.write(f"{sql};\n\\echo .\n")
            psql.stdin.flush()
            return "".join(iter(psql.stdout.readline, ".\n")).strip()

        yield tell
        psql.stdin.close()


DECIDE = "SELECT (corgipile.decision('form', 3, 1))[1]"
DAMAGES = [
    "coefficients = '{1, 2}'",
    "intercepts = '{NULL}'",
    "dims = 3",
    "classes = '{1, 0}'",
    """params = '{"numbers": "real"}', coefficients = '{{1}}'""",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_predicts_once_it_is_repaired(server, model, backend, damage):
    """In the backend that failed to load it: undone, repaired by another session, and in a later version."""
    before = backend(DECIDE)
    backend(f"BEGIN; UPDATE corgipile.models SET {damage} WHERE name = 'form'")
    assert "is damaged" in backend(DECIDE)
    assert "aborted" in backend(DECIDE)
    backend("ROLLBACK")
    assert backend(DECIDE) == before
    server.sql(
        f"CREATE TABLE undamaged AS TABLE corgipile.models; UPDATE corgipile.models SET {damage} WHERE name = 'form'"
    )
    assert "is damaged" in backend(DECIDE)
    assert "is damaged" in backend(DECIDE)
    server.sql("DELETE FROM corgipile.models WHERE name = 'form'")
    assert "there is no model" in backend(DECIDE)
    server.sql("INSERT INTO corgipile.models SELECT * FROM undamaged WHERE name = 'form'; DROP TABLE undamaged")
    assert backend(DECIDE) == before
    server.sql("UPDATE corgipile.models SET intercepts = '{100}' WHERE name = 'form'")
    assert float(backend(DECIDE)) > float(before) + 50


def test_a_model_half_loaded_is_none(server, model, backend):
    """The row is read, but memory is refused to the machine that scores; the version before is still what it was."""
    process, limit = Path("/proc") / backend("SELECT pg_backend_pid()"), shutil.which("prlimit")
    if not limit or not process.exists():
        pytest.skip("this system does not limit the memory of a running process")
    owner, width = server.data.stat(), 4_000_000
    other = {} if owner.st_uid == os.geteuid() else {"user": owner.st_uid, "group": owner.st_gid}

    def allow(size):
        subprocess.run([limit, "--pid", process.name, f"--as={size}:"], check=True, cwd="/", **other)

    before = backend(DECIDE)
    backend(f"""BEGIN; UPDATE corgipile.models SET dims = {width}, params = '{{}}', intercepts = '{{7}}',
        coefficients = array_fill(0::float8, ARRAY[1, {width}]) WHERE name = 'form'""")
    pages = int((process / "statm").read_text().split()[0])
    allow(pages * os.sysconf("SC_PAGESIZE") + 3 * 8 * width)  # for the row and a copy of it, and half a machine
    assert "out of memory" in backend(DECIDE)
    allow("unlimited")
    backend("ROLLBACK")
    assert backend(DECIDE) == before
    held = "SELECT sum(total_bytes) < 100000 FROM pg_backend_memory_contexts WHERE name = 'corgipile model'"
    assert backend(held) == "t"


def test_a_model_that_takes_the_place_of_another_predicts(server):
    """A transaction that empties the table and trains again writes the new row where the old one was."""
    said = server.text(
        "BEGIN; CREATE TABLE one AS SELECT ARRAY[1, 2]::real[] AS x, 1 AS label;"
        + """
        TRUNCATE corgipile.models CASCADE;
        SELECT count(*) FROM corgipile.train('one', 'linear', 'x', 'label', name => 'm', learning_rate => 0.01);
        SELECT corgipile.predict('m', ARRAY[1, 2]::real[]); UPDATE one SET label = -label;"""
        * 2
        + "ROLLBACK"
    )
    _, first, _, second = map(float, said.split())
    assert second == -first != 0


def test_more_models_than_a_backend_keeps(server, model):
    server.sql("""
        INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source)
            SELECT 'many ' || i, 'linear', 1, '{}', '{{1}}', ARRAY[i], '{}', 'nowhere'
            FROM generate_series(1, 150) i""")
    query = "SELECT sum(corgipile.predict('many ' || i, 0)) FROM generate_series(1, 150) i, generate_series(1, 3) r"
    assert server.value(query) == 3 * 150 * 151 / 2
    both = "SELECT sum(corgipile.predict('many ' || i, 0) - corgipile.predict('many ' || (151 - i), 0)) FROM {}"
    assert server.value(both.format("generate_series(1, 150) i")) == 0
    server.sql("DELETE FROM corgipile.models WHERE name LIKE 'many %'")


def test_deleting_is_undone_with_its_transaction(server, model):
    count = "SELECT count(*) FROM corgipile.models WHERE name = 'form'"
    said = server.text(f"BEGIN; DELETE FROM corgipile.models WHERE name = 'form'; {count}; ROLLBACK; {count}")
    assert said.split() == ["0", "1"]


def test_evaluating_refuses(server, model, fails):
    server.sql("""
        INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, source)
            VALUES ('nameless', 'linear', 2, '{}', '{{1, 2}}', '{0}', '{}', 'nowhere')""")
    call = "SELECT * FROM corgipile.evaluate({})"
    for arguments, said in (
        ("'absent', 'forms'", 'there is no model "absent"'),
        ("'form', 'forms', 'y'", 'has no column "y"'),
        ("'form', 'forms', ARRAY['a']", 'there are 1 feature columns; model "form" was trained with 2'),
        ("'form', 'forms', label => 'i'", "has label 2, which is none of the classes"),
        ("'nameless', 'forms'", "do not name its training columns"),
        ("'form', 'corgipile.progress'", "is a view"),
    ):
        assert said in fails(call.format(arguments))
    (row,) = server.rows(call.format("'nameless', 'forms', ARRAY['a', 'b'], 'label'"))
    assert (row["accuracy"], row["rows"]) == (None, 100)
    (unknown,) = server.rows(call.format("NULL, 'forms'"))
    assert set(unknown.values()) == {None}
    server.sql("CREATE TABLE vacant (x real[], label int)")
    (empty,) = server.rows(call.format("'form', 'vacant'"))
    assert {name for name, value in empty.items() if value is not None} == {"rows"}
    assert empty["rows"] == 0
    server.sql("DELETE FROM corgipile.models WHERE name = 'nameless'")


def test_a_dump_holds_the_models(server, model):
    script = server.dump()
    server.sql("CREATE DATABASE restored TEMPLATE template0")
    server.text(script, database="restored")
    query = "SELECT json_agg(m ORDER BY name) FROM corgipile.models m"
    assert server.text(query, database="restored") == server.text(query) != "\n"
    predict = "SELECT sum((corgipile.decision('form', x))[1]) FROM forms"
    assert server.text(predict, database="restored") == server.text(predict)
    assert server.text("SELECT extversion FROM pg_extension WHERE extname = 'corgipile'", database="restored").strip()
    server.sql("DROP DATABASE restored")


def test_a_later_version_is_an_upgrade_script(server, model):
    """A later version is a script that runs after the first, for an upgrade and for a new installation."""
    folder = server.scripts
    script = folder / "corgipile--0.3--0.3.test.sql"
    script.write_text("CREATE FUNCTION corgipile.later() RETURNS int LANGUAGE sql AS 'SELECT 2';")
    upgrade = "ALTER EXTENSION corgipile UPDATE TO '0.3.test'; SELECT corgipile.later(), count(*) FROM corgipile.models"
    server.sql("CREATE DATABASE anew TEMPLATE template0")
    try:
        kept = server.value("SELECT count(*) FROM corgipile.models")
        assert server.text(f"BEGIN; {upgrade}; ROLLBACK").strip() == f"2|{kept}"
        server.text("CREATE EXTENSION corgipile VERSION '0.3.test'", database="anew")
        assert server.text("SELECT corgipile.later(), count(*) FROM corgipile.models", database="anew").strip() == "2|0"
    finally:
        script.unlink()
        server.sql("DROP DATABASE anew")


def test_every_script_is_installed(server):
    folder = server.scripts
    for script in (Path(__file__).parents[2] / "postgres" / "sql").iterdir():
        assert (folder / script.name).read_text() == script.read_text()
