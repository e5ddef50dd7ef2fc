"""Columns hashed in the server have the places and signs of Python, and train the same models."""

# ruff: noqa: S608  # tests write SQL

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from cut_table import CutTable
from pgservers import SqlError
from texts import arrow, asked, call, make_rows, store

import corgipile as cp
from corgipile.linear.model import unpack


def stored_model(server, name):
    """Return a stored model."""
    return server.rows(f"SELECT * FROM corgipile.models WHERE name = '{name}'")[0]


def in_python(server, model, table, rows, **how):
    """Train in Python what the server trained, from the same rows and blocks."""
    params = model["params"]
    pages = server.rows(
        f"SELECT (ctid::text::point)[0]::int / {params['block_pages']} AS block FROM {table} ORDER BY ctid"
    )
    blocks = np.array([page["block"] for page in pages])
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
    assert params["blocks"] == len(cuts) - 1
    widest = int(np.diff(cuts).max())
    balance = "content" if params["balance"] == "content" else "label" if params["balance"] else None
    order = cp.orders.Riffle(
        block=widest,
        buffer=params["buffer_blocks"] * widest,
        group=params["group"],
        whole=params["whole"],
        balance=balance,
    )
    names = ("epochs", "batch_size", "l2", "l1", "step", "intercept", "seed", "average", "standardize", "weight")
    chosen = {name: params[name] for name in names if name in params}
    rate = None if params["step"] == "auto" else params["learning_rate"]
    return cp.train(
        CutTable(arrow(rows), cuts), model=model["kind"], label="label", order=order, memory=None, learning_rate=rate,
        **chosen, **how,
    )  # fmt: skip


def same(model, python):
    """Say whether a stored model is, bit for bit, the one of Python."""
    return (
        np.array_equal(np.array(model["coefficients"]), python.coef.astype(np.float64))
        and np.array_equal(np.array(model["intercepts"]), python.intercept.astype(np.float64))
    )  # fmt: skip


def parts(model):
    """Return all that a model is, numbers as bytes."""
    tensors, meta = model._content()
    return {key: (part.dtype, part.shape, part.tobytes()) for key, part in tensors.items()}, meta


def said_of(python):
    """Return how a model of Python hashes, as JSON has it."""
    return json.loads(json.dumps(python.params["encoding"]["hashing"]))


HOW = {
    "words": ("logistic", {"text": "review"}, {"hash_bits": 10}, {}),
    "pairs of words": ("svm", {"text": ["review", "note"]}, {"hash_bits": 11, "ngrams": 3}, {"step": "decay"}),
    "crosses": (
        "logistic",
        {"interactions": [("city", "d"), "city", ("yes", "stars"), "n", ("n", "stars", "city")]},
        {"hash_bits": 8},
        {"l1": 0.0001},
    ),
    "words by city": (
        "softmax",
        {"text": "review", "interactions": [("note", "city", "yes")]},
        {"hash_bits": 9},
        {"batch_size": 8},
    ),
    "numbers beside": (
        "logistic",
        {"text": "review", "features": ["n", "stars", "yes"], "interactions": [("n", "city")]},
        {"hash_bits": 9, "ngrams": 1},
        {"average": True, "weight": "w"},
    ),
    "encoded beside": (
        "squared_hinge",
        {"text": "review", "features": ["city", "stars"], "encode": "onehot"},
        {"hash_bits": 9},
        {"step": "adagrad"},
    ),
    "numbers to predict": ("linear", {"text": "review", "features": ["stars"]}, {"hash_bits": 9}, {}),
    "scaled": ("logistic", {"text": "review", "features": ["stars"]}, {"hash_bits": 9}, {"standardize": True}),
    "balanced by content": ("logistic", {"text": "review"}, {"hash_bits": 9}, {"balance": "content"}),
}  # fmt: skip


@pytest.mark.every_server
@pytest.mark.parametrize("case", HOW)
def test_same_seed_same_model(server, train, case):
    kind, columns, places, options = HOW[case]
    rows = store(server, "hashed_bits", make_rows(classes=3 if kind == "softmax" else 2))
    size = (88 * (3 if kind == "softmax" else 1) << places["hash_bits"]) // 1024 + 50
    given = {**asked(columns), **places, **options, "buffer_size": f"{size}kB"}
    server.sql(f"SET client_min_messages = warning; {call('hashed_bits', kind, 'hashed_bits', given)}")
    model = stored_model(server, "hashed_bits")
    assert model["params"]["blocks"] > model["params"]["buffer_blocks"]
    python = in_python(server, model, "hashed_bits", rows, **columns, **places)
    assert model["params"]["encoding"]["hashing"] == said_of(python)
    assert model["params"]["features"] == python.params["features"]
    assert same(model, python)
    names = ", ".join(model["params"]["features"])
    scores = server.rows(f"SELECT corgipile.decision('hashed_bits', {names}) AS one, "
                         "corgipile.decision('hashed_bits', t) AS other FROM hashed_bits t ORDER BY ctid")  # fmt: skip
    wanted = python.decision(arrow(rows)).reshape(len(rows), -1).astype(np.float64)
    assert np.array_equal([row["one"] for row in scores], wanted)
    assert np.array_equal([row["other"] for row in scores], wanted)


@pytest.fixture(scope="module")
def table(server):
    """Make a table of rows, with a NULL and an empty text among them; return them."""
    rows = make_rows(300, seed=2)
    rows[7]["review"] = rows[9]["city"] = rows[11]["n"] = None
    rows[13]["review"] = " ,;- "
    yield store(server, "hashed_rows", rows)
    server.sql("DROP TABLE hashed_rows; DELETE FROM corgipile.models WHERE name ~ '^hashed_'")


def full(rows):
    """Return those of rows that miss nothing."""
    return [row for row in rows if None not in row.values()]


REFUSED = {
    "no such column": ({"text": "revue"}, 'has no column "revue"'),
    "no text": ({"text": "stars"}, 'text column "stars" is real; text is needed'),
    "no type that is hashed": ({"interactions": "raw"}, 'column "raw" of interactions must be text'),
    "too many places": ({"text": "review", "hash_bits": 31}, "hash_bits must be 1 to 30, got 31"),
    "no places": ({"text": "review", "hash_bits": 0}, "hash_bits must be 1 to 30, got 0"),
    "no words": ({"text": "review", "ngrams": 0}, "ngrams must be 1 to 8, got 0"),
    "long n-grams": ({"text": "review", "ngrams": 9}, "ngrams must be 1 to 8, got 9"),
    "nothing to hash": ({"features": "stars", "hash_bits": 8}, "hash_bits has no effect without text or interactions"),
    "no n-grams": ({"features": "stars", "ngrams": 3}, "ngrams has no effect without text or interactions"),
    "no name": ({"interactions": "city,,n"}, "must name columns, got an empty name"),
    "twice": ({"interactions": "city:n:city"}, 'must not repeat columns, got "city" twice'),
    "a product twice": ({"interactions": "city:n,city:n"}, 'got column "city" and its partners twice'),
    "text twice": ({"text": ["note", "note"]}, 'must not repeat terms, got column "note" twice'),
    "many at once": ({"interactions": "city:n:d:yes:note"}, "interactions must have 1 to 4 columns, got 5"),
    "an object": ({"interactions": '[{"a": 1}]'}, "interactions must be column names or lists of them"),
    "a number": ({"interactions": "[1]"}, "interactions must be column names or lists of them"),
    "the label": ({"text": "note", "interactions": "label"}, 'column "label" is the label'),
    "the weight": ({"text": "note", "interactions": "w", "weight": "w"}, 'column "w" is the weight'),
    "beside": ({"text": "note", "features": "note"}, '"note" is in text and in features'),
    "a list beside": ({"text": "note", "features": "list"}, '"list" is an array; with hashed columns'),
    "text beside": ({"text": "note", "features": "city"}, 'feature column "city" is text; numbers'),
    "encode of text": ({"text": "note", "encode": '{"note": "onehot"}'}, 'must name feature columns, got "note"'),
    "encoded and a factor": (
        {"interactions": "city:n", "features": "n", "encode": '{"n": "onehot"}'}, '"n" is a number in interactions'
    ),
    "a NULL": ({"text": "review"}, 'has a NULL in feature column "review"'),
    "a NULL category": ({"interactions": "city"}, 'has a NULL in feature column "city"'),
    "a NULL number": ({"interactions": "n"}, 'has a NULL in feature column "n"'),
    "little memory": (
        {"text": "note", "hash_bits": 18, "buffer_size": "16MB"},
        "in training the model takes .* with hash_bits 18",
    ),
    "a column cannot hold": ({"text": "note", "hash_bits": 28}, "a model of 268435456 features .* is too large"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(server, table, fails, case):
    given, message = REFUSED[case]
    server.sql("ALTER TABLE hashed_rows ADD IF NOT EXISTS raw bytea, ADD IF NOT EXISTS list real[] DEFAULT '{1}'")
    said = fails(call("hashed_rows", "logistic", "hashed_bad", given))
    assert re.search(message, said), said
    assert server.value("SELECT count(*) FROM corgipile.models WHERE name = 'hashed_bad'") == 0


def test_what_is_missing_is_left_out_or_stands_for_nothing(server, table):
    places = {"text": "review", "interactions": "city:n", "hash_bits": 8}
    names = "review, city, n"
    skip = call("hashed_rows", "logistic", "hashed_skip", places, missing="skip")
    said = server.said(f"SET client_min_messages = notice; {skip}")[1]
    assert stored_model(server, "hashed_skip")["params"]["on_bad"] == "skip"
    assert "columns that are not hashed are ignored" in said
    assert '"stars"' in said
    server.sql(call("hashed_rows", "logistic", "hashed_mean", places, missing="mean"))
    python = cp.train(
        arrow(table), label="label", text="review", interactions=[("city", "n")], hash_bits=8, missing="mean", epochs=1
    )
    model = stored_model(server, "hashed_mean")
    assert model["params"]["encoding"]["hashing"] == said_of(python)
    decisions = ", ".join(f"corgipile.decision('hashed_{how}', {names}) AS {how}" for how in ("skip", "mean"))
    scores = server.rows(f"SELECT {decisions} FROM hashed_rows ORDER BY ctid")
    assert sum(row["skip"] is None for row in scores) == len(table) - len(full(table)) == 3
    mine = loaded(server, "hashed_mean")
    assert np.array_equal([row["mean"][0] for row in scores], mine.decision(arrow(table)).ravel().astype(np.float64))


def loaded(server, name):
    """Return a stored model as Python loads it."""
    return unpack(bytes.fromhex(server.text(f"SELECT encode(corgipile.export('{name}'), 'hex')")))


@pytest.mark.parametrize("case", HOW)
def test_models_come_and_go(server, table, case):
    kind, columns, places, _ = HOW[case]
    known = arrow(full(table))
    model = cp.train(known, model=kind, label="label", epochs=1, **columns, **places)
    name = "hashed_there"
    server.sql(f"SELECT corgipile.import('{name}', '\\x{model.pack().hex()}')")
    assert parts(loaded(server, name)) == parts(unpack(model.pack()))
    names = ", ".join(model.params["features"])
    found = server.rows(f"SELECT corgipile.decision('{name}', {names}) AS d FROM hashed_rows "
                        "WHERE review || city || n IS NOT NULL ORDER BY ctid")  # fmt: skip
    assert np.array_equal(
        np.array([row["d"] for row in found]).ravel(), model.decision(known).astype(np.float64).ravel()
    )


DAMAGED = {
    "bits": (lambda how: how.update(bits=31), "its encoding is unknown"),
    "ngrams": (lambda how: how.update(ngrams=0), "its encoding is unknown"),
    "a term": (lambda how: how.update(terms=[["revue"]]), "its encoding is unknown"),
    "no term": (lambda how: how.update(terms=[]), "its encoding is unknown"),
    "a kind": (lambda how: how["sources"][0].update(kind="letters"), "its encoding is unknown"),
    "a family": (lambda how: how["sources"][0].update(kind="category", family=""), "its encoding is unknown"),
    "no source": (lambda how: how.update(sources=[]), "its encoding is unknown"),
    "more": (lambda how: how.update(more=1), "how columns are hashed is damaged"),
    "more of a source": (lambda how: how["sources"][0].update(more=1), "how columns are hashed is damaged"),
    "a source": (lambda how: how.update(sources=[3]), "how columns are hashed is damaged"),
    "width": (lambda how: how.update(bits=8), "its encoding does not match its arrays"),
    "columns": (lambda how: how["sources"][0].update(column="note") or how.update(terms=[["note"]]),
                "its features are not those that are hashed"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_models_are_refused(server, table, fails, case):
    damage, message = DAMAGED[case]
    content = cp.train(arrow(full(table)), label="label", text="review", hash_bits=9, epochs=1).pack()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    meta = json.loads(header["__metadata__"]["corgipile.model"])
    damage(meta["params"]["encoding"]["hashing"])
    header["__metadata__"]["corgipile.model"] = json.dumps(meta)
    said = json.dumps(header).encode()
    damaged = len(said).to_bytes(8, "little") + said + content[8 + size :]
    assert message in fails(f"SELECT corgipile.import('hashed_bad', '\\x{damaged.hex()}')")


def test_going_on_keeps_how_columns_are_hashed(server, table, fails):
    given = {
        "text": "note",
        "interactions": '[["city", "yes"]]',
        "features": "stars",
        "hash_bits": 7,
        "ngrams": 1,
        "missing": "mean",
    }
    server.sql(call("hashed_rows", "logistic", "hashed_first", given, epochs=1))
    more = {"warm_start": "hashed_first"}
    server.sql(call("hashed_rows", "logistic", "hashed_more", more, epochs=1))
    again = {name: value for name, value in given.items() if name != "missing"}
    server.sql(call("hashed_rows", "logistic", "hashed_again", {**again, **more}, epochs=1))
    server.sql(call("hashed_rows", "logistic", "hashed_both", given, epochs=2))
    first, *others = (stored_model(server, f"hashed_{name}") for name in ("more", "again", "both"))
    for other in others:
        assert other["coefficients"] == first["coefficients"]
        assert other["params"]["encoding"] == first["params"]["encoding"]
    for changed in ({"text": "review"}, {"hash_bits": 8}, {"ngrams": 2 + 1}, {"interactions": "city"}):
        assert "columns are hashed as by the model" in fails(call("hashed_rows", "logistic", None, {**more, **changed}))
    assert "with other plain columns" in fails(call("hashed_rows", "logistic", None, {**more, "features": "n"}))
    server.sql(call("hashed_rows", "logistic", "hashed_plain", {"features": "stars"}))
    assert "has no hashed columns" in fails(
        call("hashed_rows", "logistic", None, {"text": "note", "warm_start": "hashed_plain", "features": "stars"})
    )


def test_what_is_said_and_measured(server, table, fails):
    given = {
        "text": "note",
        "interactions": "city:yes",
        "features": ["stars", "yes"],
        "hash_bits": 8,
        "missing": "mean",
    }
    server.sql(call("hashed_rows", "logistic", "hashed_said", given, holdout=0.2))
    plan = server.text(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {call('hashed_rows', 'logistic', None, given)}")
    for line in ("Hashed: note, city:yes", "Hash Bits: 8", "N-grams: 2", "Features: 258", "Numbers: real"):
        assert line in plan
    measured = server.rows("SELECT loss, accuracy, rows FROM corgipile.evaluate('hashed_said', 'hashed_rows')")[0]
    python = loaded(server, "hashed_said").measure(arrow(table), label="label")
    assert (measured["loss"], measured["accuracy"]) == (python["loss"], python["accuracy"])
    folds = call("hashed_rows", "logistic", None, given).replace(".train(", ".cross_validate(")
    assert sum(row["rows"] for row in server.rows(folds.replace("SELECT *", "SELECT rows"))) == len(table)
    record = "ROW('good, GOOD'::text, 'Rome'::text, true, 4.5::real)"
    one = [
        server.value(f"SELECT corgipile.decision('hashed_said', {row})")
        for row in ("'good, GOOD', 'Rome', true, 4.5", record)
    ]
    assert one[0] == one[1]
    assert 'feature 2 is integer; model "hashed_said" takes text' in fails(
        "SELECT corgipile.predict('hashed_said', 'good', 3, true, 4.5)"
    )
    assert "trained with 4 columns" in fails("SELECT corgipile.predict('hashed_said', 'good')")


@pytest.mark.parametrize(("encoding", "known"), [("LATIN1", True), ("SQL_ASCII", False)])
def test_text_is_hashed_as_utf8(server, table, fails, encoding, known):
    name = f"hashed_{encoding.lower()}"
    server.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        text = "'café naïve'" if known else r"E'caf\xe9'"
        make = f"""
            CREATE EXTENSION corgipile; SET client_encoding = '{"UTF8" if known else "SQL_ASCII"}';
            CREATE TABLE t AS SELECT i, {text} || i % 2 AS review, i % 2 AS label FROM generate_series(0, 99) i;
        """
        training = call("t", "logistic", "m", {"text": "review", "hash_bits": 8, "ngrams": 1})
        if known:
            score = "SELECT corgipile.decision('m', review) FROM t WHERE i = 0"
            said = server.text(
                f"{make} {training}; {score}; SELECT encode(corgipile.export('m'), 'hex')", database=name
            )
            *_, found, content = said.split()
            model = unpack(bytes.fromhex(content))
            assert float(found.strip("{}")) == model.decision(pa.table({"review": ["café naïve0"]}))[0]
        else:
            with pytest.raises(SqlError, match='invalid byte sequence for encoding "UTF8"'):
                server.text(f"{make} {training}", database=name)
    finally:
        server.sql(f"DROP DATABASE {name}")


def test_a_row_of_many_products_can_be_stopped(server, table, fails):
    """A product of two long texts would take minutes."""
    words = "(SELECT string_agg('w' || i * 99 + j, ' ') FROM generate_series(1, 150000) j)"
    server.sql(f"CREATE TABLE hashed_long AS SELECT i % 2 AS label, {words} AS note, {words} AS review "
               "FROM generate_series(1, 2) i")  # fmt: skip
    given = {"text": ["note", "review"], "interactions": "note:review", "hash_bits": 8, "missing": "mean"}
    server.sql(call("hashed_rows", "logistic", "hashed_short", given))
    one, limit = "SELECT corgipile.decision('hashed_short', 'good', 'bad')", "SET statement_timeout = '500ms'"
    for long in (
        call("hashed_long", "logistic", None, given),
        "SELECT corgipile.decision('hashed_short', note, review) FROM hashed_long",
    ):
        assert "statement timeout" in fails(f"{limit}; {long}")
        stop = f"\\set ON_ERROR_STOP off\n{one}; {limit}; {long}; RESET statement_timeout; {one};"
        first, again = server.text(stop).split()
        assert first == again
    server.sql("DROP TABLE hashed_long")


def test_features_are_left_out_where_there_are_none_beside(server, table):
    def of(function, name=None):
        written = call("hashed_rows", "logistic", name, {"text": "note", "hash_bits": 8}, epochs=1)
        return written.replace('"features" => NULL, ', "").replace(".train(", f".{function}(")

    assert "features" not in of("train")
    assert len(server.rows(of("train"))) == 1
    assert len(server.rows(of("cross_validate"))) == 5
    job = server.text(of("train_async", "hashed_job"))
    assert server.text(f"SELECT corgipile.wait({job})") == "done\n"


FORMS = ["'stars'", "'stars'::varchar", "'stars'::name", "ARRAY['stars']", "'{stars}'::name[]", "$1", "'*'"]


@pytest.mark.parametrize("rows", ["'hashed_plain'", "query => 'SELECT stars, label FROM hashed_plain'"])
def test_features_have_any_form_of_names(server, table, rows):
    server.sql("CREATE TABLE IF NOT EXISTS hashed_plain AS SELECT stars, label FROM hashed_rows")
    for features in FORMS:
        form = "$1::text" if features == "$1" and "query" in rows else features
        training = f"corgipile.train({rows}, model => 'logistic', features => {form}, label => 'label', epochs => 1)"
        given = "('stars')" if "$" in form else ""
        assert server.text(f"PREPARE p AS SELECT count(*) FROM {training}; EXECUTE p{given}") == "1\n", form
