"""Models by group in PostgreSQL: the bits of Python, one file, refusals."""

# ruff: noqa: S608  # tests write SQL

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pgservers import literal
from samebits import arrow, in_python, make_table

import corgipile as cp
from corgipile.linear.model import unpack

pytestmark = pytest.mark.filterwarnings("ignore::corgipile.errors.DivergenceWarning")
PARTS = "kind, dims, classes, coefficients, intercepts, params, learnt"
GROUPS = {
    "g": (
        "(ARRAY['north', 'süd', 'a\"b\\', NULL, '', '大阪'])[1 + i * 7 % 23 % 6]",
        ["", 'a"b\\', "north", "süd", "大阪", None],
    ),
    "big": ("9007199254740995 - (i % 3)::int8", [2**53 + 1, 2**53 + 2, 2**53 + 3]),
    "small": ("(i % 4 - 2)::smallint", [-2, -1, 0, 1]),
    "even": ("CASE WHEN i % 5 > 0 THEN i % 2 = 0 END", [False, True, None]),
    "many": ("i % 60", list(range(60))),
}


@pytest.fixture
def grouped(server):
    """Return what makes a table with columns of groups."""

    def make(kind="real", classes=2):
        make_table(server, kind, classes)
        columns = ", ".join(f"{text} AS {name}" for name, (text, _) in GROUPS.items())
        server.sql(f"DROP TABLE IF EXISTS grouped CASCADE; CREATE TABLE grouped AS SELECT *, {columns} FROM t")

    yield make
    server.sql(
        "DROP TABLE IF EXISTS grouped CASCADE; DELETE FROM corgipile.models WHERE name IN ('groups', 'copy', 'one')"
    )


def exported(server, name="groups"):
    """Return the file of stored models."""
    return bytes.fromhex(server.text(f"SELECT encode(corgipile.export('{name}'), 'hex')"))


def imported(server, content, name="copy"):
    """Import models; return their version."""
    return server.value(f"SELECT corgipile.import('{name}', '\\x{content.hex()}')")


CASES = [
    ("g", "real", "logistic", {}),
    ("big", "double precision", "softmax", {"batch_size": 8, "l2": 0.01}),
    ("small", "real", "svm", {"features": ["k", "v"]}),
    ("even", "real", "linear", {"average": True, "learning_rate": 0.001}),
    ("many", "real", "logistic", {"buffer_size": "900kB", "step": "adagrad"}),
    ("g", "integer", "svm", {"standardize": True, "step": "normalized", "threads": 1}),
    ("g", "double precision", "linear", {"standardize": True, "learning_rate": 0.001, "weight": "w"}),
    ("even", "real", "logistic", {"balance": "content", "class_weight": "balanced"}),
    ("small", "real", "quantile:0.9", {"order": "corgipile", "l1": 0.01, "learning_rate": 0.01}),
    ("g", "double precision", "squared_hinge", {"features": ["k", "v"], "step": "adam", "max_norm": 0.5}),
    ("big", "real", "logistic", {"epochs": 30, "tolerance": 0.05, "order": "no_shuffle"}),
]


@pytest.mark.every_server
@pytest.mark.parametrize(("by", "kind", "model", "options"), CASES)
def test_same_seed_same_models(server, train, grouped, by, kind, model, options):
    grouped(kind, classes=3 if model == "softmax" else 2)
    sizes = {"block_size": "8kB", "buffer_size": "200kB"}
    history = train("grouped", model=model, name="groups", by=by, **{"epochs": 3, **sizes, **options})
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'groups'")
    python = in_python(server, {**stored, "source": "grouped"}, kind)
    assert stored["params"]["groups"] == python.groups == GROUPS[by][1]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef.astype(np.float64))
    assert np.array_equal(np.array(stored["intercepts"]), python.intercept.astype(np.float64))
    assert stored["params"]["of_groups"] == python.params["of_groups"]
    score = python.loss.score
    assert [[here[name] for name in ("loss", score, "rows")] for here in history] == [
        [there[name] for name in ("loss", score, "rows")] for there in python.history
    ]
    there, here = unpack(python.pack()), unpack(exported(server))
    assert (here.by, here.groups, here.table()) == (there.by, there.groups, there.table())
    for name, part in there._content()[0].items():
        assert (name, here._content()[0][name].tobytes()) == (name, part.tobytes())
    assert imported(server, exported(server)) == 1
    assert exported(server, "copy") == exported(server)
    one = here.groups[-1]
    imported(server, here.of(one).pack(), "one")
    mine = python.of(one)
    assert np.array_equal(server.value("SELECT coefficients FROM corgipile.models WHERE name = 'one'"), mine.coef)


def test_rates_are_lowered_for_groups_that_diverge(server, grouped):
    grouped("double precision")
    server.sql("UPDATE grouped SET x = ARRAY(SELECT 30 * u FROM unnest(x) u), label = 10 * label WHERE small = 0")
    server.sql("UPDATE grouped SET x = ARRAY(SELECT 1e5 * u FROM unnest(x) u) WHERE small = -1; VACUUM FULL grouped")
    given = "'grouped', 'linear', 'x', 'label', name => 'groups', by => 'small', standardize => false, epochs => 3"
    _, said = server.said(f"SELECT * FROM corgipile.train({given}, block_size => '8kB', buffer_size => '200kB')")
    assert 'learning rate 0.01 diverges in 2 of 4 groups of "small", -1, 0; restarting at 0.002' in said
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'groups'")
    assert stored["params"]["learning_rate"] is None
    assert stored["params"]["learning_rates"][1] < stored["params"]["learning_rates"][2] < 0.01
    python = in_python(server, {**stored, "source": "grouped"}, "double precision", rated=False)
    assert stored["params"]["learning_rates"] == python.params["learning_rates"]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef)
    again = unpack(exported(server))
    assert again.of(0).params["learning_rate"] == python.of(0).params["learning_rate"]


@pytest.mark.every_server
def test_rates_are_lowered_in_later_epochs_too(server, grouped):
    """The last row of all is long: what it does to the weights of its group shows in the next epoch."""
    grouped("double precision")
    last = "SET x = ARRAY(SELECT 60 * u FROM unnest(x) u), label = 60 * label WHERE i = (SELECT max(i) FROM grouped)"
    server.sql(f"UPDATE grouped {last}; VACUUM FULL grouped")
    given = "'grouped', 'linear', 'x', 'label', name => 'groups', by => 'small', standardize => false"
    given += ", \"order\" => 'no_shuffle'"
    _, said = server.said(f"SELECT * FROM corgipile.train({given}, epochs => 1)")
    assert "diverges" not in said
    _, said = server.said(f"SELECT * FROM corgipile.train({given}, epochs => 4)")
    assert 'learning rate 0.01 diverges in 1 of 4 groups of "small"' in said
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'groups'")
    assert sum(rate < 0.01 for rate in stored["params"]["learning_rates"]) == 1
    python = in_python(server, {**stored, "source": "grouped"}, "double precision", rated=False)
    assert any("1 of 4 groups" in note for note in python.notes)
    assert stored["params"]["learning_rates"] == python.params["learning_rates"]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef)


def test_a_row_that_cannot_be_learnt_from_is_named_with_its_group(server, fails, grouped):
    grouped()
    given = "'grouped', 'linear', 'x', 'label', by => 'g', standardize => false"
    for threads in (1, 2):
        said = fails(f"SELECT * FROM corgipile.train({given}, learning_rate => 1e30, threads => {threads})")
        assert re.search(r'training diverged: row \(.*\) of group (".*"|null) brought the weights beyond', said)
    server.sql("UPDATE grouped SET x[1] = 'NaN' WHERE g = '大阪' AND i = (SELECT min(i) FROM grouped WHERE g = '大阪')")
    assert 'of group "大阪" has a feature that is NaN' in fails(f"SELECT * FROM corgipile.train({given})")


def test_models_of_python_come_and_go(server, grouped):
    draw = np.random.default_rng(0)
    rows = pa.table({
        "a": draw.normal(size=300), "city": [("Oslo", "大阪", None)[i] for i in draw.integers(0, 3, 300)],
        "word": [("é", "x", "z")[i] for i in draw.integers(0, 3, 300)], "n": draw.integers(-2, 3, 300),
    })  # fmt: skip
    how = {"label": "word", "model": "softmax", "encode": "onehot", "missing": "mean", "epochs": 2, "standardize": True}
    python = unpack(cp.train(rows, by="n", **how).pack())
    imported(server, python.pack(), "groups")
    content = exported(server)
    back = unpack(content)
    assert back.predict(rows).tolist() == python.predict(rows).tolist()
    assert (back._content()[1], back.table()) == (python._content()[1], python.table())
    imported(server, content)
    kept = [server.rows(f"SELECT {PARTS} FROM corgipile.models WHERE name = '{name}'") for name in ("groups", "copy")]
    assert kept[0] == kept[1]


def test_rows_left_out_and_groups_of_few_rows_are_told(server, grouped):
    grouped()
    server.sql("INSERT INTO grouped (i, x, label, w, g) SELECT 1, x, 1, 1, 'lone' FROM t WHERE i = 0;"
               "INSERT INTO grouped (i, x, label, w, g) SELECT 1, NULL, 1, 1, 'none' FROM t WHERE i = 0")  # fmt: skip
    call = "corgipile.train('grouped', 'logistic', 'x', 'label', name => 'groups', by => 'g', missing => 'skip')"
    _, said = server.said(f"SELECT * FROM {call}")
    assert '1 of 8 groups of "g" have no row to train on; their models are constant: "none"' in said
    assert '1 of 8 groups of "g" have one row: "lone"' in said
    assert "(1 skipped)" in said
    (stored,) = server.rows("SELECT params, coefficients FROM corgipile.models WHERE name = 'groups'")
    at = stored["params"]["groups"].index("none")
    assert not np.any(stored["coefficients"][at])
    assert stored["params"]["of_groups"]["rows"][at] == 0


def test_jobs_versions_and_plans(server, grouped):
    grouped()
    given = "'grouped', 'logistic', 'x', 'label', by => 'g', epochs => 2"
    server.sql(f"SELECT corgipile.train_async({given}, name => 'groups')")
    assert server.value("SELECT corgipile.wait(max(id)) FROM corgipile.jobs WHERE model = 'groups'") == "done"
    first = exported(server)
    server.sql(f"SELECT * FROM corgipile.train({given}, name => 'groups', seed => 1)")
    assert unpack(exported(server)).coef.tobytes() != unpack(first).coef.tobytes()
    server.sql("SELECT corgipile.rollback('groups')")
    assert exported(server) == first
    plan = server.text(f"EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM corgipile.train({given})")
    assert "By: g" in plan
    assert "Groups: 6" in plan


def test_a_partition_and_a_query_have_groups(server, train, grouped):
    grouped()
    server.sql("CREATE TABLE parted (i int, x real[], label int, g text) PARTITION BY LIST (label);"
               "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);"
               "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);"
               "INSERT INTO parted SELECT i, x, label, g FROM grouped")  # fmt: skip
    train("parted", name="groups", by="g", where="i % 3 > 0")
    wanted = server.rows("SELECT g, count(*) FROM parted WHERE i % 3 > 0 GROUP BY g")
    found = unpack(exported(server)).table().to_pylist()
    assert {row["g"]: row["rows"] for row in found} == {row["g"]: row["count"] for row in wanted}
    query = "query => 'SELECT x, label, g IS NULL AS gone FROM parted'"
    server.sql(
        f"SELECT * FROM corgipile.train({query}, model => 'svm', label => 'label', by => 'gone', name => 'groups')"
    )
    assert unpack(exported(server)).groups == [False, True]
    assert unpack(exported(server)).features == ("x",)
    server.sql("DROP TABLE parted")


REFUSED = {
    "a number": ({"by": "w"}, 'group column "w" is double precision; text, whole numbers or booleans are needed'),
    "lists": ({"by": "k"}, 'group column "k" is integer.*; text, whole numbers or booleans are needed'),
    "no column": ({"by": "nil"}, 'table "grouped" has no column "nil"'),
    "the label": ({"by": "label"}, "by => 'label' is the label column"),
    "the weight": ({"by": "small", "weight": "small"}, "by => 'small' is the weight column"),
    "a feature": ({"by": "small", "features": ["small", "w"]}, 'column "small" is the group; it cannot be'),
    "held out": ({"by": "g", "holdout": 0.1}, "holdout must be left out with by => 'g': each value has its own model"),
    "going on": ({"by": "g", "warm_start": "m"}, "warm_start must be left out with by"),
    "weights": ({"by": "g", "weights": True}, "weights must be left out with by"),
    "too many": (
        {"by": "i", "buffer_size": "200kB"},
        'half of buffer_size, 100 kB, must hold the models of about .* groups of "i", ',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(fails, grouped, name):
    grouped()
    given, why = REFUSED[name]
    given = {"model": "logistic", "features": "x", "label": "label", **given}
    arguments = ", ".join(f'"{name}" => {literal(value)}' for name, value in given.items())
    assert re.search(why, fails(f"SELECT * FROM corgipile.train('grouped', {arguments})"))


def test_the_size_that_is_named_is_enough(server, fails, train, grouped):
    grouped()
    given = {"by": "many", "model": "softmax", "features": ["k", "v"], "epochs": 1}
    of = "'grouped', 'softmax', ARRAY['k', 'v'], 'label', by => 'many'"
    call = f"SELECT * FROM corgipile.train({of}, buffer_size => '{{}}kB')"
    said = fails(call.format(338))  # how wide rows are is known once all are seen
    assert 'must hold the models of 60 groups of "many", ' in said
    size = re.search("buffer_size => '(.*?)kB'", said)[1]
    assert "must hold the models of 60 groups" in fails(call.format(int(size) - 5))
    assert len(train("grouped", **given, buffer_size=f"{size}kB")) == 1


def test_too_many_groups_are_counted_to_say_what_would_do(server, fails, train, grouped):
    grouped()
    call = "SELECT * FROM corgipile.train('grouped', 'logistic', 'x', 'label', by => 'i', buffer_size => '200kB')"
    said = fails(call)
    groups, size = (int(re.search(what, said)[1]) for what in ("of about (.*?) groups", "buffer_size => '(.*?)kB'"))
    wanted = server.value("SELECT count(*) FROM grouped")
    assert wanted < groups < 1.1 * wanted
    assert len(train("grouped", by="i", epochs=1, buffer_size=f"{size}kB")) == 1


ONE = {
    "summary": "SELECT corgipile.summary('groups', 'grouped')",
    "warm_start": "SELECT * FROM corgipile.train('grouped', 'logistic', 'x', 'label', warm_start => 'groups')",
}


def test_functions_of_one_model_name_the_way(train, fails, grouped):
    grouped()
    train("grouped", name="groups", by="g")
    for sql in ONE.values():
        said = fails(sql)
        assert '"groups" holds models of 6 groups; ' in said
        assert "corgipile.load(path).of(group).pack()" in said


def in_file(server, by, kind, features):
    """Return the stored models, and the table that they were trained on, as Python has them."""
    models = unpack(exported(server))
    rows = server.rows(f"SELECT {', '.join(features)}, label, w, {by} FROM grouped ORDER BY ctid")
    return models, arrow(rows, features, kind, by=by)


JUDGED = [
    ("g", "real", "logistic", ["x"]),
    ("big", "double precision", "softmax", ["x"]),
    ("even", "real", "linear", ["k", "v"]),
    ("many", "double precision", "svm", ["k", "v"]),
]


@pytest.mark.every_server
@pytest.mark.parametrize(("by", "kind", "model", "features"), JUDGED)
def test_rows_are_predicted_and_measured_by_the_model_of_their_group(server, train, grouped, by, kind, model, features):
    grouped(kind, classes=3 if model == "softmax" else 2)
    given = features[0] if features == ["x"] else features
    train("grouped", model=model, features=given, name="groups", by=by, standardize=True, epochs=1)
    models, rows = in_file(server, by, kind, features)
    named = ", ".join([*features, by])
    server.sql(f"CREATE OR REPLACE VIEW seen_rows AS SELECT {named}, ctid AS at FROM grouped")
    for arguments in (named, "ROW(" + named + ")", "s"):
        said = server.rows(f"SELECT corgipile.decision('groups', {arguments}) d FROM seen_rows s ORDER BY at")
        assert np.array_equal(np.squeeze([row["d"] for row in said]), models.decision(rows).astype(np.float64))
    said = server.rows(f"SELECT corgipile.predict('groups', {named}) p FROM grouped ORDER BY ctid")
    assert np.array_equal([row["p"] for row in said], models.predict(rows).astype(np.float64))
    (found,) = server.rows("SELECT (corgipile.evaluate('groups', 'grouped')).*")
    figures = models.judge(rows).figures
    assert found["rows"] == len(rows)
    assert found["loss"] == pytest.approx(figures["loss"], rel=1e-12)
    for name in ("accuracy", "auc", "rmse"):
        assert (found[name] is None) == (figures.get(name) is None)
        assert found[name] is None or found[name] == pytest.approx(figures[name], rel=1e-9)
    if model != "linear":
        cells = "SELECT sum(rows) FROM corgipile.confusion_matrix('groups', 'grouped') WHERE actual = predicted"
        assert server.value(cells) == round(figures["accuracy"] * len(rows))


@pytest.mark.every_server
def test_models_that_do_not_fit_work_mem_take_turns(server, train, grouped):
    """Where learners of all groups are more than that, some serve several, and predictions let go of what they made."""
    grouped("double precision")
    train("grouped", model="linear", name="groups", by="many", epochs=1)
    asked = [
        "SELECT (corgipile.evaluate('groups', 'grouped')).*",
        "SELECT sum(corgipile.predict('groups', x, many)) FROM grouped",
        "SELECT corgipile.predict('groups', x, many) FROM grouped ORDER BY i % 7, ctid",
    ]
    whole = [server.rows(one) for one in asked]
    server.sql("ALTER ROLE CURRENT_USER SET work_mem = '64kB'")
    try:
        assert server.text("SHOW work_mem").strip() == "64kB"
        assert [server.rows(one) for one in asked] == whole
    finally:
        server.sql("ALTER ROLE CURRENT_USER RESET work_mem")


def test_models_of_encoded_and_hashed_columns_predict(server, grouped):
    rows = pa.table({"a": [0.5, 1.5, -1.0, 2.0] * 25, "said": ["so so", "", "good", None] * 25,
                     "n": [1, 2, 3, None] * 25, "label": [0, 1, 1, 0] * 25})  # fmt: skip
    for how in ({"text": "said", "hash_bits": 6, "features": ["a"]}, {"encode": "onehot", "features": ["a", "said"]}):
        models = unpack(cp.train(rows, label="label", by="n", missing="mean", epochs=2, **how).pack())
        imported(server, models.pack(), "groups")
        columns = [*models.features, "n"]
        for row, score in zip(rows.slice(0, 4).to_pylist(), models.decision(rows.slice(0, 4)), strict=True):
            given = ", ".join("NULL" if row[name] is None else literal(row[name]) for name in columns)
            given = given.removesuffix("NULL") + "NULL::bigint" if row["n"] is None else given
            assert server.value(f"SELECT corgipile.decision('groups', {given})") == [score]


def test_groups_of_no_model_are_errors(server, train, fails, grouped):
    grouped()
    train("grouped", name="groups", by="small")
    x = "(SELECT x FROM grouped LIMIT 1)"
    why = 'is of group "5" of "small", which has no model in "groups"'
    for sql in (f"SELECT corgipile.predict('groups', {x}, 5)", f"SELECT corgipile.predict('groups', ROW({x}, 5))"):
        assert "the row to predict " + why in fails(sql)
    assert "is of group NULL of" in fails(f"SELECT corgipile.predict('groups', {x}, NULL::int)")
    assert 'the group is text; model "groups" takes a whole number for its column "small"' in fails(
        f"SELECT corgipile.predict('groups', {x}, '5')"
    )
    assert "needs the row's group after the features" in fails(f"SELECT corgipile.predict('groups', {x})")
    assert 'has no column "small"' in fails("SELECT corgipile.predict('groups', t) FROM t LIMIT 1")
    assert server.value("SELECT corgipile.predict('groups', NULL::real[], 1)") is None
    server.sql("UPDATE grouped SET small = 5 WHERE i = 12")
    said = fails("SELECT corgipile.evaluate('groups', 'grouped')")
    assert re.search(r"row \(.*\) " + re.escape(why), said)
    assert 'DETAIL:  There are models of "-2", "-1", "0", "1".' in said
    assert server.rows("SELECT (corgipile.evaluate('groups', 'grouped', \"where\" => 'small < 5')).rows")


DAMAGED = {
    "no values": {"groups": None},
    "too few": {"groups": ["a"]},
    "twice": {"groups": ["a"] * 6},
    "fractions": {"groups": [0.5, 1, 2, 3, 4, 5]},
    "lists of values": {"groups": [[1], 1, 2, 3, 4, 5]},
    "no name": {"by": 3},
    "no figures": {"of_groups": None},
    "figures of some": {"of_groups": {"rows": [1]}},
    "rates of some": {"learning_rates": [1.0]},
    "rates below 0": {"learning_rates": [1.0, 1, 1, 1, 1, -1]},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found(server, train, fails, grouped, name):
    grouped()
    train("grouped", name="groups", by="g")
    content, change = unpack(exported(server)), DAMAGED[name]
    content.params.update(change)
    assert "ERROR" in fails(f"SELECT corgipile.import('copy', '\\x{content.pack().hex()}')")
    server.sql(
        f"UPDATE corgipile.models SET params = params || {literal(json.dumps(change))}::jsonb WHERE name = 'groups'"
    )
    assert "is damaged" in fails("SELECT corgipile.export('groups')")
