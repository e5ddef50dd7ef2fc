"""Labels and features of text, dates, missing values: the models of PostgreSQL and of Python are the same."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest
from cut_table import CutTable

import corgipile as cp
from corgipile import random
from corgipile.features import Encoding

HOLDOUT = 7  # what the key is for
SIZES = {"block_size": "8kB", "buffer_size": "24kB", "epochs": 3, "learning_rate": 0.01}
KINDS = {
    "y": pa.string(),
    "three": pa.string(),
    "kind": pa.string(),
    "n": pa.int32(),
    "a": pa.int32(),
    "s": pa.int16(),
    "f": pa.float32(),
    "g": pa.float64(),
    "big": pa.int64(),
    "dec": pa.float64(),
    "flag": pa.bool_(),
    "city": pa.string(),
    "mood": pa.string(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "clock": pa.time64("us"),
    "x": pa.list_(pa.float32()),
}
MOODS = ["sad", "ok", "glad"]


@pytest.fixture(scope="module")
def people(server):
    """Make a table of all sorts of columns, clustered by label, with rows that are gone and things that are missing."""
    server.sql(f"""
        CREATE TYPE mood AS ENUM ({", ".join(f"'{one}'" for one in MOODS)});
        SELECT setseed(0.25);
        CREATE TABLE people AS SELECT i AS n, (ARRAY['ÿes', 'no'])[1 + i / 1500] AS y,
            (ARRAY['b', 'a', 'Z'])[1 + i / 1000]::varchar AS three, i / 1500 AS z,
            (ARRAY['in', 'out'])[1 + i % 2]::char(6) AS kind, CASE WHEN i % 11 <> 0 THEN (i % 9) END AS a,
            CASE WHEN i % 13 <> 0 THEN (i % 5)::smallint END AS s,
            CASE i % 17 WHEN 0 THEN 'NaN' WHEN 1 THEN NULL ELSE random() + i / 1500 END::real AS f,
            CASE WHEN i % 5 <> 0 THEN random() - 0.5 END AS g, i * 7 % 1001::bigint AS big,
            CASE WHEN i % 4 <> 0 THEN (i % 100) / 8.0 END AS dec, i % 7 < 3 AS flag,
            (ARRAY['Rome', 'Oslo', 'Łódź', 'a"b\\c', NULL])[1 + i * i % 5] AS city,
            (ARRAY['ok', 'glad', NULL])[1 + i % 3]::mood AS mood, date '1969-12-30' + i % 5 AS day,
            timestamp '1970-01-02 03:04:05.25' + i % 7 * interval '1 hour' AS at,
            time '00:00:01.5' + i % 3 * interval '1 s' AS clock,
            CASE WHEN i % 19 <> 5 THEN ARRAY[i % 3, CASE WHEN i % 23 <> 0 THEN random() END] END::real[] AS x
        FROM generate_series(0, 2999) i;
        DELETE FROM people WHERE n % 7 = 3 OR n BETWEEN 500 AND 700;
    """)  # fmt: skip
    yield "people"
    server.sql("DROP TABLE people; DROP TYPE mood")


def value(kind, one):
    if one is None or kind not in (pa.date32(), pa.timestamp("us"), pa.time64("us")):
        return one.rstrip() if isinstance(one, str) else one
    types = {pa.date32(): dt.date, pa.timestamp("us"): dt.datetime, pa.time64("us"): dt.time}
    return types[kind].fromisoformat(one)


def arrow(rows, names):
    """Make an Arrow table of rows."""
    columns = {}
    for name in names:
        kind = KINDS.get(name, pa.int32())
        values = [value(kind, row[name]) for row in rows]
        if name == "mood":
            codes = pa.array([None if one is None else MOODS.index(one) for one in values], pa.int8())
            columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(MOODS), ordered=True)
        else:
            if name in ("f", "x"):
                values = [float(one) if isinstance(one, str) else one for one in values]
            columns[name] = pa.array(values, kind)
    return pa.table(columns)


def in_python(server, model, **also):
    """Train in Python what the server trained."""
    params = model["params"]
    names = [*params["features"], params["label"]]
    rows = server.rows(
        f"SELECT {', '.join(names)}, (ctid::text::point)[0]::int / {params['block_pages']} AS block "
        f"FROM {model['source']} WHERE {params.get('where', 'true')} ORDER BY ctid"
    )
    chance = random.randoms(random.derive(params["seed"], 0, HOLDOUT), 0, len(rows))
    held = (chance < int(params.get("holdout", 0) * 2.0**64)).tolist()
    kept = [row for row, out in zip(rows, held, strict=True) if not out]
    blocks = np.array([row["block"] for row in kept])
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(kept)]
    widest = int(np.diff(cuts).max())
    order = cp.orders.Riffle(
        block=widest,
        buffer=params["buffer_blocks"] * widest,
        group=params["group"],
        whole=params["whole"],
        balance=params["label"] if params["balance"] else None,
    )
    settings = ("epochs", "batch_size", "learning_rate", "decay", "l2", "intercept", "seed")
    chosen = {name: params[name] for name in settings} | {"standardize": None} | also
    test = [row for row, out in zip(rows, held, strict=True) if out]
    return cp.train(
        CutTable(arrow(kept, names), cuts), model=model["kind"], features=params["features"], label=params["label"],
        order=order, memory=None, test=arrow(test, names) if test else None, **chosen,
    )  # fmt: skip


def stored(server, name):
    (row,) = server.rows(f"SELECT * FROM corgipile.models WHERE name = '{name}'")
    return row


def check_same(server, history, name, **also):
    """Check that a model is the one that Python trains; return both."""
    model = stored(server, name)
    python = in_python(server, model, **also)
    assert model["params"]["blocks"] > model["params"]["buffer_blocks"]
    assert np.array_equal(np.array(model["coefficients"]), python.coef.astype(np.float64))
    assert np.array_equal(np.array(model["intercepts"]), python.intercept.astype(np.float64))
    names = server.value(f"SELECT corgipile.class_names('{name}')")
    assert (names or model["classes"]) == python.classes.tolist()
    score = python.loss.score
    for here, there in zip(history, python.history, strict=True):
        assert (here["loss"], here[score], here["rows"]) == (there["loss"], there[score], there["rows"])
        held = ("test_loss", f"test_{score}")
        assert [here["holdout_loss"], here[f"holdout_{score}"]] == [there.get(one) for one in held]
    encoding = model["params"].get("encoding")
    if encoding is not None and python.encoding is not None:
        assert Encoding.of(encoding) == python.encoding
    return model, python


LABELS = [
    ("logistic", {"label": "y"}),
    ("svm", {"label": "three", "balance": False}),
    ("softmax", {"label": "three", "holdout": 0.3}),
    ("softmax", {"label": "city", "missing": "skip"}),
    ("logistic", {"label": "kind", "classes": ["out", "in"]}),
]


@pytest.mark.parametrize(("model", "options"), LABELS)
def test_labels_of_text(server, people, train, model, options):
    given = {**SIZES, "learning_rate": 1e-9, **options}
    history = train(people, model=model, features=["n", "big"], name="labels", **given)
    also = {"on_bad": "skip"} if "missing" in options else {}
    model, python = check_same(server, history, "labels", **also)
    rows = server.rows(f"SELECT *, corgipile.predict_text('labels', n, big) p FROM {people} ORDER BY ctid")
    assert [row["p"] for row in rows] == python.predict(arrow(rows, ["n", "big"])).tolist()
    if not also:
        judged = server.rows(f"SELECT (corgipile.evaluate('labels', '{people}')).*")[0]
        measured = python.measure(arrow(rows, ["n", "big", options["label"]]))
        assert (judged["rows"], judged["accuracy"]) == (len(rows), measured["accuracy"])


def test_going_on_knows_classes_by_name(server, people, train, fails):
    """Rows of one class alone have no classes of their own; names that are new are refused."""
    options = {"features": ["n", "big"], "learning_rate": 1e-9, "label": "three", "model": "softmax"}
    train(people, name="names", **options)
    server.sql(f"CREATE TABLE few AS SELECT n, big, three FROM {people} WHERE three = 'Z'")
    train("few", name="names", warm_start="names", **options)
    assert server.value("SELECT corgipile.class_names('names')") == ["Z", "a", "b"]
    again = train("few", warm_start="names", classes=["a", "Z", "b"], weights=True, **options)
    assert again[-1]["class_names"] == ["Z", "a", "b"]
    call = "SELECT * FROM corgipile.train('few', 'softmax', ARRAY['n', 'big'], '{}', warm_start => 'names'{})"
    server.sql("UPDATE few SET three = 'new'")
    assert 'has label "new", which is none of the classes "Z", "a", "b"' in fails(call.format("three", ""))
    assert "has other classes than those given" in fails(call.format("three", ", classes => ARRAY['a', 'b', 'c']"))
    assert "has other classes than those given" in fails(call.format("three", ", classes => ARRAY[0, 1, 2]"))
    server.sql("ALTER TABLE few ADD z int DEFAULT 1")
    assert 'label column "z" is integer; the model has classes of text' in fails(call.format("z", ""))
    server.sql("DROP TABLE few")


REFUSED = {
    "'logistic', 'n', 'three'": 'the labels have the values "Z", "a", "b"; a logistic model takes two',
    "'linear', 'n', 'y'": 'label column "y" is text; a linear model predicts numbers',
    "'logistic', 'n', 'day'": 'label column "day" is date; a number, boolean or text is needed',
    "'logistic', 'n', 'y', classes => ARRAY[0, 1]": 'classes must be text for label column "y", which is text',
    "'logistic', 'n', 'z', classes => ARRAY['a', 'b']": 'classes must be of the type of label column "z", integer',
    "'logistic', 'n', 'z', classes => ARRAY[date '2020-01-01']": "must be an array of numbers or text, got date[]",
    "'logistic', 'n', 'z', classes => 7": "classes must be an array of numbers or text, got integer",
    "'logistic', 'n', 'y', classes => '{no}'": "classes has 1 value; a logistic model needs at least two",
    "'logistic', 'n', 'y', classes => '{no, maybe}'": 'has label "ÿes", which is none of the classes "maybe", "no"',
    "'softmax', 'n', 'city'": 'has a NULL in label column "city"',
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_labels_refused(people, fails, arguments):
    assert REFUSED[arguments] in fails(f"SELECT * FROM corgipile.train('{people}', {arguments})")


def test_classes_are_named_by_their_function_alone(server, people, train, fails):
    train(people, features=["n", "big"], label="y", name="text", learning_rate=1e-9)
    train(people, features=["n", "big"], label="z", name="code", learning_rate=1e-9)
    for function, said in (("predict", "predict_text"), ("predict_bool", "predict_text")):
        assert f"use corgipile.{said}" in fails(f"SELECT corgipile.{function}('text', 1, 2)")
    assert "has no text classes; use corgipile.predict" in fails("SELECT corgipile.predict_text('code', 1, 2)")
    assert server.value("SELECT corgipile.predict_text('text', 1, NULL)") is None
    assert server.value("SELECT corgipile.predict_text(NULL, 1, 2)") is None
    names = "UPDATE corgipile.models SET params = jsonb_set(params, '{{encoding,label,values}}', '{}')"
    for damage in ('["a"]', '["a", "a"]', '["a", null]', "[]", '"a"', '["a", "b", "c"]'):
        said = fails(f"BEGIN; {names.format(damage)}; SELECT corgipile.predict_text('text', 1, 2)")
        assert "is damaged" in said, damage


FEATURES = [
    ("logistic", "y", ["a", "s", "f", "g"], {"missing": "mean"}),
    ("logistic", "z", ["a", "s", "f", "n"], {"missing": 0.3, "learning_rate": 1e-9}),
    ("softmax", "three", ["city", "a", "mood", "f"], {"encode": "onehot", "missing": "mean"}),
    ("svm", "three", ["city", "mood"], {"encode": {"city": "hash:16", "mood": "ordinal"}, "missing": "mean"}),
    ("logistic", "y", ["flag", "kind", "s"], {"encode": {"flag": "onehot", "kind": "ordinal"}, "missing": 2}),
    ("linear", "f", ["day", "at", "clock"], {"missing": "skip", "learning_rate": 1e-4}),
    ("softmax", "three", ["day", "at", "clock"], {"encode": {"day": "onehot", "at": "ordinal", "clock": "hash:3"}}),
    (
        "logistic",
        "y",
        ["dec", "a"],
        {"encode": {"dec": "onehot", "a": "hash:7"}, "missing": "mean", "holdout": 0.2, "buffer_size": "100kB"},
    ),
    ("logistic", "y", ["a", "f", "city"], {"encode": "onehot", "missing": "skip"}),
    ("svm", "z", ["a", "s"], {"missing": "skip", "batch_size": 7}),
    ("logistic", "z", ["x"], {"missing": "skip"}),
    (
        "logistic",
        "y",
        ["s", "a"],
        {"buffer_size": "9kB", "missing": "mean", "encode": "onehot", "where": "n % 3 <> 1 AND f > 0"},
    ),
]


@pytest.mark.parametrize(("model", "label", "features", "options"), FEATURES)
def test_features_of_all_sorts(server, people, train, model, label, features, options):
    check_features(server, people, train, model, label, features, options)


@pytest.mark.every_server
@pytest.mark.parametrize("case", [2, 4, 8])
def test_features_on_every_server(server, people, train, case):
    check_features(server, people, train, *FEATURES[case])


def check_features(server, people, train, model, label, features, options):
    """Check that the model is Python's, and what it predicts."""
    chosen = dict(options)
    asked = {name: chosen.pop(name) for name in ("encode", "missing") if name in chosen}
    given = {name: json.dumps(one) if isinstance(one, dict) else one for name, one in asked.items()}
    history = train(people, model=model, label=label, features=features, name="mixed", **{**SIZES, **chosen, **given})
    also = asked if asked.get("missing") != "skip" else {"on_bad": "skip"} | {"encode": asked.get("encode")}
    stored_model, python = check_same(server, history, "mixed", **also)
    assert stored_model["params"]["numbers"] == ("double precision" if python.coef.dtype == np.float64 else "real")
    whole = (
        " AND ".join(f"{name} IS NOT NULL" for name in features) if asked.get("missing", "skip") == "skip" else "true"
    )
    where = f"{whole} AND f <> 'NaN'" if "f" in features and whole != "true" else whole
    call = "predict_text" if label not in ("z", "f") else "predict"
    rows = server.rows(
        f"SELECT *, corgipile.{call}('mixed', {', '.join(features)}) p FROM {people} WHERE {where} "
        "AND x IS NOT NULL AND x[2] IS NOT NULL ORDER BY ctid"
    )
    assert [row["p"] for row in rows] == python.predict(arrow(rows, features)).tolist()


@pytest.mark.parametrize("missing", ["mean", "3"])
def test_what_is_missing_in_a_row_held_out_alone_is_filled(server, missing):
    for hole in range(8):  # some of these rows are held out, some not
        server.sql(f"""
            DROP TABLE IF EXISTS holes;
            CREATE TABLE holes AS SELECT CASE WHEN i <> {hole} THEN i % 9 END AS a, i % 2 AS y
                FROM generate_series(0, 99) i
        """)
        call = "corgipile.train('holes', 'logistic', ARRAY['a'], 'y', epochs => 1, holdout => 0.5"
        found = server.rows(f"SELECT rows, holdout_loss FROM {call}, missing => '{missing}')")
        assert 0 < found[0]["rows"] < 100
        assert found[0]["holdout_loss"] > 0
    server.sql("DROP TABLE holes")


def test_predictions_fill_what_is_missing(server, people, train, fails):
    mixed = {"features": ["a", "f", "city"], "label": "y", "encode": "onehot"}
    train(people, name="filled", missing=0.5, **mixed)
    call = "SELECT (corgipile.decision('filled', {}))[1]"
    same = ("NULL, 'NaN'::real, 'Oslo'", "0.5, NULL::float8, 'Oslo'::text", "0.5, 0.5, 'Oslo'::varchar")
    assert len({server.text(call.format(row)) for row in same}) == 1
    assert server.value(call.format("1, 1, NULL")) != server.value(call.format("1, 1, 'elsewhere'"))
    for row, said in (
        ("1, 2", 'the row has 2 features; model "filled" was trained with 3 columns'),
        ("1, 2, 3", 'feature 3 is integer; model "filled" takes text for its column "city"'),
        ("'1', 2, 'Oslo'", 'feature 1 is a literal without a type; model "filled" takes a number for its column "a"'),
        ("ARRAY[1, 2, 3]", "the row has 1 features"),
        ("ARRAY[1, 2], 'Oslo'", "the row has 2 features"),
    ):
        assert said in fails(call.format(row))
    train(people, name="whole", features=["n", "flag"], label="y", encode='{"flag": "ordinal"}', learning_rate=1e-9)
    assert server.value("SELECT corgipile.predict_text('whole', NULL, true)") is None
    assert server.value("SELECT corgipile.predict_text('whole', ROW(NULL::int, true))") is None
    for row in (
        "ROW(0.5, NULL::float8, 'Oslo')",
        "(SELECT r FROM (SELECT 0.5 AS f, NULL::int AS a, 'Oslo' AS city) r)",
    ):
        assert server.text(call.format(row)) == server.text(call.format("NULL, 0.5, 'Oslo'"))
    assert "city" in fails(call.format("ROW(1, 2, 3)"))
    assert server.value(
        f"SELECT bool_and((corgipile.decision('filled', t))[1] = (corgipile.decision('filled', a, f, city))[1]) "
        f"FROM {people} t WHERE t.a IS NOT NULL"
    )
    train(people, name="numbers", features=["a", "s"], label="y", missing="mean")
    both = "SELECT (corgipile.decision('numbers', {}))[1]"
    assert server.text(both.format("1, NULL::int")) == server.text(both.format("ARRAY[1, NULL]"))
    judged = server.rows(f"SELECT (corgipile.evaluate('filled', '{people}')).*")[0]
    shown = server.value(f"SELECT avg((corgipile.predict_text('filled', a, f, city) = y)::int) FROM {people}")
    assert judged["accuracy"] == pytest.approx(float(shown), rel=1e-12)
    server.sql(f"CREATE TABLE renamed AS SELECT a AS b, f AS g, city AS town, y AS c FROM {people}")
    other = "SELECT (corgipile.evaluate('filled', 'renamed', ARRAY['b', 'g', 'town'], 'c')).*"
    assert server.rows(other)[0]["loss"] == judged["loss"]
    assert 'feature column "town" is text; the model takes numbers there' in fails(
        other.replace("'b', 'g'", "'town', 'g'")
    )
    server.sql("DROP TABLE renamed")


def test_going_on_keeps_the_encoding(server, people, train, fails):
    mixed = {"features": ["a", "city"], "label": "three", "model": "softmax", **SIZES}
    train(people, name="five", encode="onehot", missing="mean", **{**mixed, "epochs": 5})
    train(people, name="on", encode="onehot", missing="mean", **mixed)
    train(people, name="on", warm_start="on", **{**mixed, "epochs": 2})
    five, on = stored(server, "five"), stored(server, "on")
    assert five["coefficients"] == on["coefficients"]
    assert five["params"]["encoding"] == on["params"]["encoding"]
    call = "SELECT * FROM corgipile.train('people', 'softmax', {}, 'three', warm_start => 'on'{})"
    assert "encode and missing must be left out" in fails(call.format("ARRAY['a', 'city']", ", missing => 0"))
    assert "was trained on other columns" in fails(call.format("ARRAY['city', 'a']", ""))
    train(people, name="plain", features=["n", "big"], label="z", learning_rate=1e-9)
    assert 'warm_start "plain" was trained on numbers only' in fails(
        "SELECT * FROM corgipile.train('people', 'logistic', ARRAY['n', 'day'], 'z', warm_start => 'plain')"
    )


ASKED = {
    "'city', 'y'": "encode => 'onehot', 'ordinal' or 'hash:256'",
    "'city', 'y', encode => 'binary'": "encode must be 'onehot', 'ordinal', 'hash'",
    "'city', 'y', encode => 'hash:0'": "buckets of encode must be a number from 1 to 1048576",
    "'city', 'y', encode => 'hash:x'": "buckets of encode must be",
    "'city', 'y', encode => '{\"town\": \"onehot\"}'": 'encode must name feature columns, got "town"',
    "'city', 'y', encode => '{\"city\": 7}'": 'encode of column "city" must be a text',
    "'city', 'y', encode => '{\"city\"'": "invalid input syntax for type json",
    "'city', 'y', encode => 'onehot'": 'has a NULL in feature column "city"',
    "'x', 'z', encode => '{\"x\": \"onehot\"}'": 'column "x" is an array; encode takes columns of single values',
    "'n', 'y', missing => 'median'": "missing must be 'error', 'mean', 'skip' or a finite number, got \"median\"",
    "'n', 'y', missing => 'inf'": "missing must be",
    "'n', 'y', missing => NULL": "missing must not be NULL",
    "'n', 'y', encode => '{\"n\": \"onehot\"}'": 'column "n" has more than 1000 different values, too many for onehot',
    "'nothing', 'y', missing => 'mean'": 'column "nothing" has no values, so its mean cannot replace',
    "'nothing', 'y', encode => 'onehot'": 'has a NULL in feature column "nothing"',
    "'void', 'y', encode => 'onehot'": 'column "void" has no values to use as categories',
    "'nothing', 'y', missing => 'skip'": "none of 2399 rows can be trained on",
    "'a', 'y'": 'has a NULL in feature column "a"',
    "'f', 'y'": 'has a NULL in feature column "f"',
    "'ever', 'y', learning_rate => 1e-9": "has a feature that is NaN or infinite",
    "'ever', 'y', encode => '{\"ever\": \"onehot\"}'": "a category must be a finite",
    "'wait', 'y'": 'feature column "wait" is interval',
    "'wait', 'y', encode => 'onehot'": 'feature column "wait" is interval',
    "ARRAY['ix', 'xs'], 'z', missing => 'skip'": "missing takes no sparse features",
}


@pytest.mark.parametrize("arguments", ASKED)
def test_columns_refused(server, people, fails, arguments):
    server.sql(f"""
        ALTER TABLE {people} ADD IF NOT EXISTS nothing float8, ADD IF NOT EXISTS ever date DEFAULT 'infinity',
            ADD IF NOT EXISTS wait interval DEFAULT '1 s', ADD IF NOT EXISTS ix int[] DEFAULT '{{0}}',
            ADD IF NOT EXISTS void text,
            ADD IF NOT EXISTS xs real[] DEFAULT '{{1}}'
    """)
    assert ASKED[arguments] in fails(f"SELECT * FROM corgipile.train('{people}', 'logistic', {arguments})")
