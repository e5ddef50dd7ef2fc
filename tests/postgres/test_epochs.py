"""What train says of its epochs, what it holds out, when it stops, what it goes on from, what others see of it."""

# ruff: noqa: S608  # tests write SQL

import subprocess

import pytest
from patience import wait_for


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a table of three classes that are not quite separable."""
    server.sql("""
        SELECT setseed(0.25);
        CREATE TABLE noisy AS SELECT ARRAY[i / 1000.0 + random(), random()]::real[] AS x, i / 1000 AS label,
            (i / 1500)::int AS two, i + random() AS y FROM generate_series(0, 2999) i;
        CREATE TABLE shifted AS SELECT label, ARRAY[x[1] + 10, x[2]] AS x, two FROM noisy;
        CREATE ROLE guest LOGIN;
    """)


def one(server, sql):
    """Return the only row of a query."""
    (row,) = server.rows(sql)
    return row


def test_rows_held_out_are_a_share_that_the_seed_draws(train):
    options = {"label": "two", "epochs": 1}
    assert train("noisy", **options)[0]["holdout_loss"] is None
    rows = [train("noisy", holdout=0.2, seed=seed, **options)[0]["rows"] for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    assert all(abs(count - 2400) < 100 for count in rows)
    last = train("noisy", holdout=0.2, epochs=5, learning_rate=0.1, label="two")[-1]
    assert abs(last["holdout_accuracy"] - last["accuracy"]) < 0.05
    assert (last["holdout_r2"], last["r2"]) == (None, None)
    linear = train("noisy", model="linear", holdout=0.2, label="two")[-1]
    assert (linear["holdout_accuracy"], linear["holdout_r2"] > 0) == (None, True)


def test_rows_held_out_are_never_learnt(server, train):
    """Rows with an outrageous label among those held out do not change the model."""
    server.sql("CREATE TABLE outrage AS SELECT x, y FROM noisy")
    options = {"model": "linear", "label": "y", "holdout": 0.1, "epochs": 1, "learning_rate": 0.0001}
    train("outrage", name="calm", **options)
    learnt = one(server, "SELECT params FROM corgipile.models WHERE name = 'calm'")["params"]["rows"]
    changed = 0
    for item in range(1, 11):
        row = f"ctid = '(0,{item})'"
        (before,) = server.rows(f"SELECT y FROM outrage WHERE {row}")
        server.sql(f"CREATE TABLE upset AS SELECT x, CASE WHEN {row} THEN 1e6 ELSE y END AS y FROM outrage")
        history = train("upset", name="upset", **options)
        assert before["y"] < 1e6
        assert history[0]["rows"] == learnt
        same = "SELECT count(DISTINCT coefficients) FROM corgipile.models WHERE name IN ('calm', 'upset')"
        changed += server.value(same) == 2
        server.sql("DROP TABLE upset")
    assert changed < 10, "none of the first ten rows is held out: take another seed"
    assert changed > 0


def test_too_few_rows_to_hold_out(server, train, fails):
    server.sql("CREATE TABLE lone AS SELECT ARRAY[1, 2] AS x, 1 AS label")
    call = "SELECT * FROM corgipile.train('lone', 'linear', 'x', 'label', holdout => {}, seed => {})"
    said = [fails(call.format(0.999999, seed)) for seed in range(2)]
    assert all("leaves no training rows out of 1 rows" in text for text in said)
    assert train("lone", model="linear", holdout=1e-9)[0]["holdout_loss"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("holdout => 1", "holdout must be a share of the rows, at least 0 and below 1, got 1"),
        ("holdout => 'NaN'", "holdout must be a share"),
        ("warm_start => 'absent'", 'there is no model "absent"'),
    ],
)
def test_refused_options(fails, options, said):
    assert said in fails(f"SELECT * FROM corgipile.train('noisy', 'logistic', 'x', 'two', {options})")


@pytest.mark.parametrize("model", ["logistic", "softmax", "linear"])
def test_three_epochs_and_two_more_are_five(server, train, model):
    options = {"model": model, "label": "label" if model == "softmax" else "two", "learning_rate": 0.05}
    five = train("noisy", epochs=5, name="five", **options)
    train("noisy", epochs=3, name="going on", **options)
    more = train("noisy", epochs=2, name="going on", warm_start="going on", **options)
    columns = ("epoch", "loss", "accuracy", "r2")
    assert [[row[c] for c in columns] for row in more] == [[row[c] for c in columns] for row in five[3:]]
    first, second = server.rows(
        "SELECT coefficients, intercepts, classes, "
        "(SELECT array_agg(loss ORDER BY epoch) FROM corgipile.history WHERE model = name) losses "
        "FROM corgipile.models WHERE name IN ('five', 'going on')"
    )
    assert first == second
    assert len(first["losses"]) == 5


@pytest.mark.parametrize(
    ("options", "averages"),
    [({}, True), ({"average": False}, False), ({"step": "decay"}, False), ({"learning_rate": 0.01}, False)],
)
def test_numbers_are_predicted_by_the_mean_unless_the_rate_is_named(server, train, options, averages):
    named = {name: one for name, one in options.items() if name != "average"}
    train("noisy", model="linear", label="two", epochs=4, name="four", **options)
    train("noisy", model="linear", label="two", epochs=2, name="halves", **options)
    train("noisy", model="linear", label="two", epochs=2, name="halves", warm_start="halves", **named)
    first, second = server.rows(
        "SELECT params->'average' AS average, coefficients FROM corgipile.models WHERE name IN ('four', 'halves')"
    )
    assert first == second
    assert first["average"] is averages


def test_going_on_needs_a_model_of_the_same_shape(server, train, fails):
    train("noisy", label="two", name="past")
    call = "SELECT * FROM corgipile.train('noisy', '{}', {}, '{}', warm_start => 'past'{})"
    for model, features, label, more, said in (
        ("svm", "'x'", "two", "", 'warm_start "past" is a logistic model; a svm model is needed'),
        ("logistic", "ARRAY['y']", "two", "", 'warm_start "past" has 2 features, the rows have 1'),
        ("logistic", "'x'", "label", "", "has label 2, which is none of the classes"),
        ("logistic", "'x'", "two", ", classes => '{0, 2}'", "has other classes than those given"),
    ):
        assert said in fails(call.format(model, features, label, more))
    assert 'warm_start "past" has an intercept' in fails(call.format("logistic", "'x'", "two", ", intercept => false"))
    train("noisy", label="two", name="without", intercept=False, epochs=1)
    train("noisy", label="two", name="without", intercept=False, epochs=1, warm_start="without")
    assert server.value("SELECT intercepts FROM corgipile.models WHERE name = 'without'") == [0]
    other = train("shifted", label="two", warm_start="past", name="future")
    assert [row["epoch"] for row in other] == [2, 3]
    assert server.value("SELECT params ->> 'warm_start' FROM corgipile.models WHERE name = 'future'") == "past"


def test_tolerance_stops_early_and_stores(server, train):
    history = train("noisy", label="two", epochs=500, tolerance=0.02, name="early")
    assert 3 <= len(history) < 100
    assert server.value("SELECT count(*) FROM corgipile.history WHERE model = 'early'") == len(history)


def test_a_notice_an_epoch(server):
    options = "epochs => 3, holdout => 0.1, standardize => true"
    call = f"SELECT * FROM corgipile.train('noisy', 'logistic', 'x', 'two', {options});"
    _, said = server.said(call)
    lines = [line for line in said.splitlines() if "NOTICE" in line]
    assert [line.split(":")[:2] for line in lines] == [["NOTICE", f"  epoch {i}"] for i in range(3)]
    assert all(word in lines[0] for word in (" loss ", " accuracy ", "held out: loss ", " rows in "))
    assert server.said("SET client_min_messages = warning; " + call)[1] == ""


def test_a_notice_where_the_order_cannot_mix(server):
    call = "SELECT * FROM corgipile.train('noisy', 'svm', 'x', 'two', epochs => 1, block_size => '8kB', {});"
    poor = "rows are mixed poorly"
    assert poor in server.said(call.format("buffer_size => '32kB'"))[1]
    assert poor not in server.said(call.format("buffer_size => '32MB'"))[1]
    assert poor not in server.said(call.format("buffer_size => '32kB', \"order\" => 'no_shuffle'"))[1]


def seen(server, user="postgres"):
    """Return what a session sees of trainings."""
    return server.rows("SELECT * FROM corgipile.progress", user)


def test_progress_is_seen_while_it_lasts(server):
    assert seen(server) == []
    call = "SELECT * FROM corgipile.train('noisy', 'logistic', 'x', 'two', name => 'Größe', epochs => 1000000);"
    psql = subprocess.Popen(
        server.command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
    )
    try:
        psql.stdin.write(call)
        psql.stdin.close()
        assert wait_for(lambda: [row for row in seen(server) if (row["epoch"] or 0) > 2])
        (row,) = seen(server)
        assert (row["source"], row["model"], row["name"], row["epochs"]) == ("noisy", "logistic", "Größe", 1_000_000)
        assert (row["rows"], 0 <= row["rows_done"] <= 3000, row["started"] is not None) == (3000, True, True)
        assert wait_for(lambda: [row for row in seen(server) if 0 < (row["loss"] or 0) < 1])
        (hidden,) = seen(server, "guest")
        assert hidden.pop("pid") == row["pid"]
        assert set(hidden.values()) == {None}
        views = server.rows("SELECT viewname FROM pg_views WHERE viewname LIKE 'pg_stat_progress%'")
        assert len(views) > 3
        for view in views:
            assert server.rows(f"SELECT * FROM {view['viewname']}") == []
        server.sql(f"SELECT pg_cancel_backend({row['pid']})")
    finally:
        psql.kill()
        psql.wait()
    assert wait_for(lambda: seen(server) == [])


def test_progress_shows_all_of_a_training_or_nothing(server):
    """Trainings begin and end all the time, and whoever looks meanwhile never sees half of one."""
    server.sql("CREATE TABLE tiny AS SELECT 1.0::real AS x, i AS y FROM generate_series(1, 5) i")
    call = "corgipile.train('tiny', 'linear', 'x', 'y', name => 'Größe und Gewicht der Tiere', epochs => 2) LIMIT 1"
    train = f"""SET client_min_messages = warning; SET statement_timeout = '250s';
        DO $$ BEGIN WHILE to_regclass('watched') IS NULL LOOP PERFORM epoch FROM {call}; END LOOP; END $$;"""
    watch = """
        DO $$ DECLARE p record; seen int := 0; whole int := 0; BEGIN
            FOR i IN 1..10000000 LOOP
                EXIT WHEN i > 100000 AND seen > 1000;
                PERFORM pg_stat_clear_snapshot();
                FOR p IN SELECT * FROM corgipile.progress LOOP
                    seen := seen + 1;
                    IF p.source = 'tiny'::regclass AND p.model = 'linear' AND p.name = 'Größe und Gewicht der Tiere'
                       AND p.epochs = 2 AND p.started > now() - interval '9 minutes' THEN
                        whole := whole + 1;
                    END IF;
                END LOOP;
            END LOOP;
            CREATE TABLE watched AS SELECT seen, whole;
        END $$;
        TABLE watched;"""
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, text=True, cwd="/") as psql:
        psql.stdin.write(train)
        psql.stdin.close()
        seen, whole = map(int, server.text(watch).split("|"))
    assert psql.returncode == 0
    assert seen > 1000
    assert whole == seen


def test_progress_leaves_the_command_of_others_alone(server):
    """COPY has the place already; a cursor gives it back when it is closed."""
    inside = "SELECT count(*) FROM corgipile.progress"
    call = "SELECT epoch FROM corgipile.train('noisy', 'svm', 'x', 'two', epochs => 9)"
    assert server.text(f"COPY ({call}) TO STDOUT").split() == [str(i) for i in range(9)]
    said = server.text(
        f"BEGIN; DECLARE c CURSOR FOR {call}; DECLARE d CURSOR FOR {call}; "
        f"FETCH c; {inside}; FETCH d; CLOSE d; FETCH c; "
        f"SELECT pg_stat_clear_snapshot(); {inside}; CLOSE c; SELECT pg_stat_clear_snapshot(); {inside}; COMMIT"
    )
    assert said.split() == ["0", "1", "0", "1", "1", "0"]
