"""What is said before it is too late: sizes, scales, chance, types; defaults; weights without a stored model."""

# ruff: noqa: S608  # tests write SQL

import re
import subprocess

import pytest
from patience import wait_for

CALL = "SELECT * FROM corgipile.train({})"


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make tables of people, of noise, and of many blocks."""
    server.sql("""
        SELECT setseed(0.5);
        CREATE TABLE people AS SELECT 20 + 50 * random() AS age, 20000 + 70000 * random() AS income, 0 AS label,
            false AS yes FROM generate_series(1, 2000) i;
        UPDATE people SET label = (age > 45)::int, yes = age > 45;
        CREATE TABLE scaled AS
            SELECT (age - 45) / 15 AS age, (income - 55000) / 20000 AS income, label, yes FROM people;
        CREATE TABLE noise AS SELECT random() AS a, (random() > 0.5)::int AS label, random() AS y
            FROM generate_series(1, 2000);
        CREATE TABLE heavy AS SELECT array_fill((i % 2)::real, ARRAY[1000]) AS x, i % 2 AS label
            FROM generate_series(1, 3000) i;
        CREATE TABLE blocks (x real[], label int);
        ALTER TABLE blocks ALTER x SET STORAGE PLAIN;
        INSERT INTO blocks SELECT ARRAY(SELECT random()::real FROM generate_series(1, 1000) WHERE i > 0), i % 2
            FROM generate_series(1, 3000) i;
    """)


@pytest.mark.every_server
def test_the_papers_sizes_say_what_would_do(server, fails):
    """Blocks of 10 MB in a buffer of 24 MB, here a fifth of each: each of the three hints does."""
    call = CALL.format("'blocks', 'svm', 'x', 'label', \"order\" => '{}', epochs => 1{}")
    for order, why in (("corgipile", "one block of 256 pages at a time"), ("balanced", "needs at least 2048")):
        said = fails(call.format(order, ", block_size => '2MB', buffer_size => '5MB'"))
        assert why in said
        block, buffer = (said.split(f"{size} => '")[1].split("'")[0] for size in ("block_size", "buffer_size"))
        for sizes in ("buffer_size => '5MB'", f"block_size => '{block}', buffer_size => '5MB'",
                      f"block_size => '2MB', buffer_size => '{buffer}'"):  # fmt: skip
            assert "mixed poorly" not in server.said(call.format(order, f", {sizes}"))[1]


@pytest.mark.every_server
def test_scales_far_apart_are_told(server):
    features = "ARRAY['age', 'income'], 'label'"
    said = server.said(CALL.format(f"'people', 'logistic', {features}, holdout => 0.1"))[1]
    told = 'features differ in scale by [0-9.e+]+ times [(]"income" and "age"[)]: '
    assert re.search(f"{told}they are standardised; standardize => false learns from them as they are", said)
    assert "chance" not in said
    plain = f"'people', 'logistic', {features}, holdout => 0.1, standardize => false"
    said = server.said(CALL.format(plain))[1]
    assert re.search(f"{told}standardize => true would help", said)
    assert "chance" not in said  # a rate for each weight minds no scale
    said = server.said(CALL.format(f"{plain}, step => 'decay'"))[1]
    assert "the model is no better than chance" in said
    said = server.said(CALL.format(f"'scaled', 'logistic', {features}, holdout => 0.1"))[1]
    assert "scale" not in said
    assert "chance" not in said


@pytest.mark.parametrize(
    ("model", "label"), [("logistic", "label"), ("svm", "label"), ("softmax", "label"), ("linear", "y")]
)
def test_a_model_that_learnt_nothing_is_told(server, model, label):
    for holdout in ("NULL", "0.2"):
        call = f"'noise', '{model}', 'a', '{label}', holdout => {holdout}, learning_rate => {{}}"
        said = server.said(CALL.format(call.format(1e-9)))[1]
        assert "WARNING:  the model is no better than" in said
        assert ("on the validation rows" in said) == (holdout != "NULL")


@pytest.mark.parametrize(("kind", "chance"), [("logistic", "0.6931"), ("softmax", "0.6931"), ("svm", "1")])
def test_a_model_of_given_classes_or_gone_on_with_is_told_too(server, kind, chance):
    call = f"'noise', '{kind}', 'a', 'label', learning_rate => {{}}, name => 'chance', epochs => 1"
    untold = server.said(CALL.format(call.format(1e-9) + ", classes => '{0, 1}'"))[1]
    assert f"that of zero weights {chance}" in untold
    assert "that of zero weights" in server.said(CALL.format(call.format(1e-9) + ", warm_start => 'chance'"))[1]


@pytest.mark.every_server
def test_balanced_is_the_default(server, train):
    columns = "coefficients, params - 'order'"
    features = {"features": ["age", "income"], "label": "label"}
    for name, options in {"unsaid": {}, "said": {"order": "balanced"}, "flag": {"order": "riffle", "balance": True},
                          "plain": {"order": "riffle"}, "off": {"balance": False}, "word": {"balance": "off"},
                          "content": {"balance": "content"}}.items():  # fmt: skip
        train("scaled", name=name, **features, **options)
    query = f"SELECT name, {columns} AS params FROM corgipile.models"
    rows = {row["name"]: row for row in server.rows(query)}
    found = [rows[name]["params"]["balance"] for name in ("unsaid", "said", "flag", "plain", "off", "word", "content")]
    assert found == [True, True, True, False, False, False, "content"]
    assert rows["unsaid"]["coefficients"] == rows["said"]["coefficients"] == rows["flag"]["coefficients"]
    assert rows["plain"]["coefficients"] == rows["off"]["coefficients"] == rows["word"]["coefficients"]


def test_the_default_buffer_holds_what_mixes_well_and_no_more(server, train):
    def blocks(**options):
        train("blocks", name="sized", epochs=1, block_size="32kB", **options)
        return server.value("SELECT (params->>'buffer_blocks')::int FROM corgipile.models WHERE name = 'sized'")

    near = (4 << 20) // (1000 * 4 + 8 + 6) // 8  # rows with label and origin, 8 of them a block
    assert blocks() == blocks(buffer_size="64MB") == near
    assert blocks(buffer_size="1MB") < near
    assert blocks(order="riffle") == 192
    assert blocks(order="riffle", buffer_size="64MB") > 192


def test_predictions_of_a_boolean_label_are_boolean(server, train, fails):
    for model in ("logistic", "svm", "softmax"):
        train("scaled", model=model, features=["age", "income"], label="yes", name="yes")
        query = "SELECT avg((corgipile.predict_bool('yes', age, income) = yes)::int) FROM scaled"
        assert server.value(query) > 0.9
    train("scaled", model="linear", features=["age"], label="income", name="line", learning_rate=0.001)
    assert "must have the classes false and true" in fails("SELECT corgipile.predict_bool('line', 1)")


@pytest.mark.every_server
def test_weights_come_with_the_last_epoch(server, train):
    *first, last = train("scaled", features=["age", "income"], name="same", weights=True, epochs=3)
    assert all(row["coefficients"] is None for row in first)
    (stored,) = server.rows("SELECT classes, coefficients, intercepts FROM corgipile.models WHERE name = 'same'")
    assert {"classes": last["class_values"], **{name: last[name] for name in ("coefficients", "intercepts")}} == stored
    said = server.text("BEGIN READ ONLY; SELECT cardinality(coefficients) FROM corgipile.train('scaled', 'svm', "
                       "ARRAY['age', 'income'], 'label', weights => true, epochs => 1); COMMIT")  # fmt: skip
    assert said == "2\n"


def test_a_type_that_has_a_cast_to_numbers_is_told_it(server, train, fails):
    """As vector and halfvec of pgvector have."""
    server.sql("""
        CREATE TYPE vector AS (items real[]);
        CREATE FUNCTION vector_to_list(vector) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT $1.items';
        CREATE CAST (vector AS real[]) WITH FUNCTION vector_to_list(vector) AS ASSIGNMENT;
        CREATE TABLE vectors AS SELECT ROW(ARRAY[i, 1])::vector AS x, i % 2 AS label FROM generate_series(1, 50) i;
    """)
    said = fails(CALL.format("'vectors', 'svm', 'x', 'label'"))
    assert "Add a column of numbers: x_list real[] GENERATED ALWAYS AS (x::real[]) STORED" in said
    server.sql("ALTER TABLE vectors ADD x_list real[] GENERATED ALWAYS AS (x::real[]) STORED")
    train("vectors", features="x_list", name="vectors")
    assert "Write x::real[] for x" in fails("SELECT corgipile.predict('vectors', x) FROM vectors")
    assert server.value("SELECT count(corgipile.predict('vectors', x::real[])) FROM vectors") == 50


@pytest.mark.every_server
def test_names_that_others_may_use_too(server):
    """EXPLAIN shows the short names, in a plan that is used again as well."""
    said = server.text(f"""SET plan_cache_mode = force_generic_plan;
        PREPARE p AS {CALL.format("'scaled', 'svm', 'age', 'label'")}; EXPLAIN EXECUTE p; EXPLAIN EXECUTE p""")
    assert said.count("Custom Scan (SGD)") == said.count("Custom Scan (BlockShuffle)") == 2


def test_waiting_for_the_thread_shows(server):
    """A model of many outputs keeps the thread behind."""
    server.sql("CREATE TABLE slow AS SELECT x, (i % 50) AS label FROM (SELECT x, row_number() OVER () i FROM heavy) h")
    call = CALL.format("'slow', 'softmax', 'x', 'label', epochs => 1000000, threads => 2")
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          text=True, cwd="/") as psql:  # fmt: skip
        psql.stdin.write("SET application_name = 'slow'; " + call + ";")
        psql.stdin.close()
        query = "SELECT coalesce((SELECT wait_event FROM pg_stat_activity WHERE application_name = 'slow'), '')"
        waits = "CorgipileLearning" if server.version >= 17 else "Extension"
        wait_for(lambda: server.value(query) == waits, waits)
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slow'")
