"""Models of several labels in PostgreSQL: the bits of Python, one file, predictions, figures, refusals."""

# ruff: noqa: S608  # tests write SQL

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pgservers import SqlError, literal
from samebits import arrow, columns_of_labels, in_python
from taggedrows import NAMES, exported, imported

import corgipile as cp
from corgipile.linear.model import unpack
from corgipile.tables import open as open_table

pytestmark = pytest.mark.filterwarnings("ignore::corgipile.errors.DivergenceWarning")
PARTS = "kind, dims, classes, coefficients, intercepts, params, learnt"


CASES = [
    ("tags", "real", "logistic", {}),
    ("codes", "double precision", "logistic", {"batch_size": 8, "l2": 0.01}),
    ("small", "real", "svm", {"features": ["k", "v"]}),
    ("small", "real", "svm", {"step": "constant", "l2": 0.001}),
    ("small", "double precision", "logistic", {"step": "adagrad", "buffer_size": "900kB"}),
    ("two one", "real", "logistic", {"average": True, "learning_rate": 0.05}),
    ("tags", "real", "logistic", {"weight": "w", "step": "inverse", "learning_rate": 0.1}),
    ("tags", "integer", "svm", {"standardize": True, "step": "normalized", "threads": 1}),
    ("codes", "double precision", "squared_hinge", {"standardize": True, "learning_rate": 0.001, "weight": "w"}),
    ("small", "real", "logistic", {"balance": "content", "standardize": True}),
    ("tags", "real", "squared_hinge", {"order": "corgipile", "l1": 0.01, "learning_rate": 0.01}),
    ("two one", "double precision", "squared_hinge", {"features": ["k", "v"], "step": "adam", "max_norm": 0.5}),
    ("tags", "double precision", "logistic", {"features": ["k", "v"], "step": "normalized", "l2": 0.01}),
    ("codes", "real", "logistic", {"epochs": 30, "tolerance": 0.05, "order": "no_shuffle"}),
]


@pytest.mark.every_server
@pytest.mark.parametrize(("labels", "kind", "model", "options"), CASES)
def test_same_seed_same_models(server, learn, tagged, labels, kind, model, options):
    tagged(kind)
    sizes = {"block_size": "8kB", "buffer_size": "250kB"}
    asked = labels.split() if " " in labels else labels
    history = learn(asked, model=model, **{"epochs": 3, **sizes, **options})
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'tags'")
    python = in_python(server, {**stored, "source": "tagged"}, kind)
    assert stored["params"]["labels"] == python.labels == NAMES[labels]
    assert stored["params"]["label"] == python.params["label"]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef.astype(np.float64))
    assert np.array_equal(np.array(stored["intercepts"]), python.intercept.astype(np.float64))
    assert [[here[name] for name in ("loss", "accuracy", "rows")] for here in history] == [
        [there[name] for name in ("loss", "accuracy", "rows")] for there in python.history
    ]
    there, here = unpack(python.pack()), unpack(exported(server))
    assert (type(here), here.labels) == (type(there), there.labels)
    for name, part in there._content()[0].items():
        assert (name, here._content()[0][name].tobytes()) == (name, part.tobytes())
    assert imported(server, exported(server)) == 1
    assert exported(server, "copy") == exported(server)
    imported(server, here.of(here.labels[-1]).pack(), "one")
    assert server.value("SELECT classes FROM corgipile.models WHERE name = 'one'") == [0, 1]


def in_file(server, kind, features):
    """Return the stored models, and the table that they were trained on, as Python has them."""
    models = unpack(exported(server))
    labels = columns_of_labels(models.params)
    rows = server.rows(f"SELECT {', '.join([*features, *labels])}, label, w FROM tagged ORDER BY ctid")
    return models, arrow(rows, features, kind, labels=labels)


JUDGED = [
    ("tags", "real", "logistic", ["x"]),
    ("codes", "double precision", "squared_hinge", ["x"]),
    ("small", "real", "logistic", ["k", "v"]),
    ("two one", "double precision", "svm", ["k", "v"]),
]
MEANS = [f"{name}_{mean}" for name in ("precision", "recall", "f1") for mean in ("micro", "macro")]


@pytest.mark.every_server
@pytest.mark.parametrize(("labels", "kind", "model", "features"), JUDGED)
def test_rows_are_predicted_and_measured_as_in_python(server, learn, tagged, labels, kind, model, features):
    tagged(kind)
    asked = labels.split() if " " in labels else labels
    learn(asked, model=model, features=features[0] if features == ["x"] else features, standardize=True, epochs=1)
    models, rows = in_file(server, kind, features)
    named = ", ".join(features)
    server.sql(f"CREATE OR REPLACE VIEW seen_rows AS SELECT {named}, ctid AS at FROM tagged")
    for arguments in (named, "ROW(" + named + ")", "s"):
        said = server.rows(f"SELECT corgipile.decision('tags', {arguments}) d FROM seen_rows s ORDER BY at")
        assert np.array_equal([row["d"] for row in said], models.decision(rows).astype(np.float64))
    said = server.rows(f"SELECT corgipile.predict_labels('tags', {named}) p FROM tagged ORDER BY ctid")
    assert [row["p"] for row in said] == [[str(one) for one in row] for row in models.sets(rows)]
    if model == "logistic":
        said = server.rows(f"SELECT corgipile.predict_proba('tags', {named}) p FROM tagged ORDER BY ctid")
        assert np.allclose([row["p"] for row in said], models.predict_proba(rows), rtol=1e-6)
    assert server.value("SELECT corgipile.class_names('tags')") == [str(one) for one in models.labels]
    for weight in (None, "w"):
        also = ", weight => 'w'" if weight else ""
        (found,) = server.rows(f"SELECT (corgipile.evaluate_labels('tags', 'tagged'{also})).*")
        figures = models.measure(rows, weight=weight)
        assert found["rows"] == len(rows)
        for name in ("loss", "accuracy", "subset_accuracy", *MEANS):
            assert (name, found[name]) == (name, pytest.approx(figures[name], rel=1e-12))
        table = models.label_metrics(rows, weight=weight).to_pylist()
        each = server.rows(f"SELECT * FROM corgipile.class_metrics('tags', 'tagged'{also})")
        assert [one["class"] for one in each] == [str(one["label"]) for one in table]
        for here, there in zip(each, table, strict=True):
            for name in ("precision", "recall", "f1"):
                wanted = None if np.isnan(there[name]) else pytest.approx(there[name], rel=1e-12)
                assert (name, here[name]) == (name, wanted)
            assert here["weight"] == there["rows"]
        (brief,) = server.rows(f"SELECT (corgipile.evaluate('tags', 'tagged'{also})).*")
        assert (brief["loss"], brief["accuracy"], brief["rows"]) == (found["loss"], found["accuracy"], found["rows"])
        assert (brief["log_loss"] is None) == (model != "logistic")
        assert brief["auc"] is None


def test_models_of_python_come_and_go(server, tagged):
    draw = np.random.default_rng(0)
    rows = pa.table({
        "a": draw.normal(size=300), "city": [("Oslo", "大阪", None)[i] for i in draw.integers(0, 3, 300)],
        "said": [("so so", "", "good")[i] for i in draw.integers(0, 3, 300)],
        "tags": [[("é", "x", "z")[k] for k in draw.integers(0, 3, n)] for n in draw.integers(0, 3, 300)],
        "ids": [draw.integers(-2, 3, n).tolist() for n in draw.integers(0, 3, 300)],
    })  # fmt: skip
    cases = [
        {"labels": "tags", "features": ["a", "city"], "encode": "onehot", "missing": "mean", "standardize": True},
        {"labels": "ids", "features": ["a"], "text": "said", "hash_bits": 5},
    ]
    for how in cases:
        python = unpack(cp.train(rows, epochs=2, **how).pack())
        imported(server, python.pack(), "tags")
        content = exported(server)
        back = unpack(content)
        assert back.predict(rows).tolist() == python.predict(rows).tolist()
        assert back._content()[1] == python._content()[1]
        imported(server, content)
        kept = [server.rows(f"SELECT {PARTS} FROM corgipile.models WHERE name = '{name}'") for name in ("tags", "copy")]
        assert kept[0] == kept[1]
        for row, score in zip(rows.slice(0, 9).to_pylist(), python.decision(rows.slice(0, 9)), strict=True):
            given = ", ".join("NULL" if row[name] is None else literal(row[name]) for name in python.features)
            assert server.value(f"SELECT corgipile.decision('tags', {given})") == score.tolist()


def test_the_rate_of_labels_that_diverge_is_lowered(server, learn, tagged):
    tagged("double precision")
    server.sql("UPDATE tagged SET x[1] = x[1] + CASE WHEN i % 23 = 1 THEN 3e5 ELSE 0 END; VACUUM FULL tagged")
    call = "SELECT * FROM corgipile.train('tagged', 'squared_hinge', 'x', labels => 'tags', name => 'tags', "
    call += "step => 'constant', standardize => false, \"order\" => 'no_shuffle')"
    _, said = server.said(call)
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'tags'")
    python = in_python(server, {**stored, "source": "tagged"}, "double precision", rated=False)
    told = re.findall("learning rate .* restarting at [^\n]*", said)
    assert told
    assert "labels" in told[0]
    assert stored["params"]["learning_rates"] == python.params["learning_rates"]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef)
    assert exported(server)
    server.sql("UPDATE corgipile.models SET params = params || '{\"learning_rates\": [1, 2]}' WHERE name = 'tags'")


def test_rows_left_out_are_those_of_python(server, learn, tagged):
    tagged("double precision")
    server.sql("UPDATE tagged SET x[3] = 'NaN' WHERE i % 50 = 1")
    history = learn("small", missing="skip", order="no_shuffle", standardize=False)
    models = unpack(exported(server))
    rows = server.rows("SELECT x::text[] AS x, small FROM tagged ORDER BY ctid")
    x = pa.array([[float(one) for one in row["x"]] for row in rows], pa.list_(pa.float64(), 9))
    table = pa.table({"x": x, "small": pa.array([row["small"] for row in rows], pa.list_(pa.int16()))})
    how = {"features": "x", "order": cp.orders.NoShuffle(), "standardize": False, "epochs": 2, "on_bad": "skip"}
    python = cp.train(table, labels="small", **how)
    assert history[-1]["rows"] == python.history[-1]["rows"] < len(rows)
    assert history[-1]["loss"] == python.history[-1]["loss"]
    assert models.coef.tobytes() == python.coef.tobytes()


def test_jobs_versions_and_plans(server, tagged):
    tagged()
    given = "'tagged', 'logistic', 'x', labels => 'tags', epochs => 2"
    server.sql(f"SELECT corgipile.train_async({given}, name => 'tags')")
    assert server.value("SELECT corgipile.wait(max(id)) FROM corgipile.jobs WHERE model = 'tags'") == "done"
    first = exported(server)
    server.sql(f"SELECT * FROM corgipile.train({given}, name => 'tags', seed => 1)")
    assert unpack(exported(server)).coef.tobytes() != unpack(first).coef.tobytes()
    server.sql("SELECT corgipile.rollback('tags')")
    assert exported(server) == first
    plan = server.text(f"EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM corgipile.train({given})")
    assert "Labels: 5" in plan


def test_a_partition_and_a_query_have_labels(server, learn, tagged):
    tagged()
    server.sql("CREATE TABLE parted (i int, x real[], label int, tags varchar[]) PARTITION BY LIST (label);"
               "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);"
               "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);"
               "INSERT INTO parted SELECT i, x, label, tags FROM tagged")  # fmt: skip
    learn("tags", "parted", where="i % 3 > 0")
    counted = server.rows("SELECT t, count(DISTINCT i) FROM parted, unnest(tags) t WHERE i % 3 > 0 GROUP BY t")
    judged = server.rows("SELECT class, rows FROM corgipile.class_metrics('tags', 'parted', \"where\" => 'i % 3 > 0')")
    assert {one["class"]: one["rows"] for one in judged} == {one["t"]: one["count"] for one in counted}
    query = "query => 'SELECT x, string_to_array(label::text, '','')::int[] AS tags FROM parted'"
    server.sql(f"SELECT * FROM corgipile.train({query}, model => 'svm', labels => 'tags', name => 'tags')")
    assert unpack(exported(server)).labels == [0, 1]
    server.sql("UPDATE parted SET tags[1] = NULL WHERE i = 1600")
    with pytest.raises(SqlError, match=r'of partition "parted_0" has a NULL in an array of label column "tags"'):
        learn("tags", "parted")
    server.sql("DROP TABLE parted")


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)


@given(st.lists(st.lists(TEXT, max_size=4), min_size=2, max_size=30))
@settings(max_examples=25, deadline=None)
@example([["b", "a", "b"], [], ["a"], ["\U0001f600"], ["\ue000"]])
def test_labels_and_blocks_are_those_of_python_whatever_lists_say(server, lists):
    """Rows in their order, one a block, balanced by their labels: sets have the numbers of Python."""
    texts = ", ".join(f"({at}, {literal(json.dumps(row, ensure_ascii=False))})" for at, row in enumerate(lists))
    server.sql(f"DROP TABLE IF EXISTS lists; CREATE TABLE lists AS SELECT ARRAY[i]::real[] AS x, ARRAY(SELECT "
               f"json_array_elements_text(t::json)) AS tags FROM (VALUES {texts}) v (i, t) ORDER BY i")  # fmt: skip
    call = "SELECT * FROM corgipile.train('lists', 'logistic', 'x', labels => 'tags', name => 'lists', epochs => 1)"
    table = pa.table({"x": pa.array([[float(at)] for at in range(len(lists))], pa.list_(pa.float32(), 1)),
                      "tags": pa.array(lists, pa.list_(pa.string()))})  # fmt: skip
    try:
        python = cp.train(open_table(table), features="x", labels="tags", epochs=1)
    except cp.errors.BadLabel as error:
        with pytest.raises(
            SqlError, match="are empty" if "empty" in str(error) else "must be in some rows, not in all"
        ):
            server.sql(call)
        return
    server.sql(call)
    assert unpack(exported(server, "lists")).labels == python.labels
    server.sql("DROP TABLE lists; DELETE FROM corgipile.models WHERE name = 'lists'")


@pytest.mark.parametrize("hashed", [True, False])
def test_columns_that_are_encoded_or_hashed_make_the_same_models(server, tagged, hashed):
    tagged()
    server.sql("ALTER TABLE tagged ADD word text, ADD city text;"
               "UPDATE tagged SET word = (ARRAY['so so', 'good film', 'bad', 'film'])[1 + i % 4],"
               "city = CASE WHEN i % 9 > 0 THEN (ARRAY['Oslo', '大阪'])[1 + i / 3 % 2] END")  # fmt: skip
    how = {"text": "word", "hash_bits": 7} if hashed else {"encode": "onehot", "missing": "mean"}
    features = ["w"] if hashed else ["city", "w"]
    arguments = ", ".join(f"{name} => {literal(value)}" for name, value in {**how, "features": features}.items())
    server.sql(f"SELECT * FROM corgipile.train('tagged', 'logistic', labels => 'tags', name => 'tags', {arguments}, "
               "epochs => 2, \"order\" => 'no_shuffle')")  # fmt: skip
    rows = server.rows("SELECT word, city, w, tags FROM tagged ORDER BY ctid")
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in ("word", "city", "w", "tags")})
    python = cp.train(table, labels="tags", features=features, order=cp.orders.NoShuffle(), epochs=2, **how)
    here, there = unpack(exported(server)), unpack(python.pack())
    assert here.coef.tobytes() == there.coef.tobytes()
    assert here.params["encoding"] == there.params["encoding"]
    assert here.decision(table).tobytes() == there.decision(table).tobytes()
    names = ", ".join(here.features)
    said = server.rows(f"SELECT corgipile.decision('tags', {names}) d FROM tagged ORDER BY ctid")
    assert np.array_equal([row["d"] for row in said], there.decision(table).astype(np.float64))
    (found,) = server.rows("SELECT (corgipile.evaluate_labels('tags', 'tagged')).*")
    figures = there.measure(table)
    assert [found["loss"], found["f1_micro"]] == pytest.approx([figures["loss"], figures["f1_micro"]], rel=1e-12)
