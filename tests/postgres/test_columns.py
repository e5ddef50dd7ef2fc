"""Labels and features of text, dates, missing values: the models of PostgreSQL and of Python are the same."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import random
from corgipile.features import Encoding
from corgipile.tables import MemoryTable

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


class CutTable(MemoryTable):
    """A table with the blocks that the server has."""

    def __init__(self, rows, cuts):
        super().__init__(rows)
        self._cuts = np.array(cuts, np.int64)

    def cuts(self, rows):
        return self._cuts

    def replaced(self, columns):
        return CutTable(pa.Table.from_batches([super().replaced(columns).read(0, len(self))]), self._cuts)


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
            CASE WHEN i % 19 <> 0 THEN ARRAY[i % 3, CASE WHEN i % 23 <> 0 THEN random() END] END::real[] AS x
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
        f"FROM {model['source']} ORDER BY ctid"
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
    chosen = {name: params[name] for name in settings} | {"standardize": False} | also
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


@pytest.mark.every_server
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
    "'logistic', 'n', 'y', classes => ARRAY[0, 1]": 'classes are numbers, but label column "y" is text',
    "'logistic', 'n', 'z', classes => ARRAY['a', 'b']": 'classes are text, but label column "z" is integer',
    "'logistic', 'n', 'z', classes => ARRAY[date '2020-01-01']": "classes are date[]; an array of numbers or of text",
    "'logistic', 'n', 'z', classes => 7": "classes are integer; an array",
    "'logistic', 'n', 'y', classes => '{no}'": "classes has 1 value; a logistic model needs two at least",
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
    assert "has no classes of text; use corgipile.predict" in fails("SELECT corgipile.predict_text('code', 1, 2)")
    assert server.value("SELECT corgipile.predict_text('text', 1, NULL)") is None
    assert server.value("SELECT corgipile.predict_text(NULL, 1, 2)") is None
    names = "UPDATE corgipile.models SET params = jsonb_set(params, '{{encoding,label,values}}', '{}')"
    for damage in ('["a"]', '["a", "a"]', '["a", null]', "[]", '"a"', '["a", "b", "c"]'):
        said = fails(f"BEGIN; {names.format(damage)}; SELECT corgipile.predict_text('text', 1, 2)")
        assert "is damaged" in said, damage
