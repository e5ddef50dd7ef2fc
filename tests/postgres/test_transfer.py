"""Models cross between Python and PostgreSQL as the bytes of model files; bytes that are no model are refused."""

# ruff: noqa: S608  # tests write SQL

import json
import random
import re
import string

import numpy as np
import pyarrow as pa
import pytest
from pgservers import literal

import corgipile as cp
from corgipile.errors import BadModelFile
from corgipile.linear.model import unpack

pytestmark = pytest.mark.filterwarnings("ignore::corgipile.errors.DivergenceWarning")
ROWS = 200
CITIES = ("Rome", 'Zürich "\\"', "大阪", None)
PARTS = "kind, dims, classes, coefficients, intercepts, params, learnt"


@pytest.fixture(scope="module")
def rows():
    """Return a table of columns of all kinds."""
    draw = np.random.default_rng(0)
    return pa.table({
        "i": np.arange(ROWS, dtype=np.int32),
        "a": draw.normal(size=ROWS),
        "b": draw.integers(0, 9, ROWS).astype(np.int32),
        "city": [CITIES[i % 4] for i in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=3 * ROWS).astype(np.float32)), 3),
        "two": (draw.normal(size=ROWS) > 0).astype(np.int8),
        "yes": draw.normal(size=ROWS) > 0,
        "half": draw.integers(0, 3, ROWS) / 2,
        "word": [("é", "x", "日本")[i] for i in draw.integers(0, 3, ROWS)],
        "y": draw.normal(size=ROWS),
    })  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def table(server, rows):
    """Copy it into the server."""

    def written(value):
        if isinstance(value, list):
            return "{" + ",".join(map(repr, value)) + "}"
        return "\\N" if value is None else str(value).replace("\\", "\\\\")

    lines = ("\t".join(map(written, row.values())) + "\n" for row in rows.to_pylist())
    server.text("CREATE TABLE crossing (i int, a float8, b int, city text, v real[], two smallint, yes bool, "
                f"half float8, word text, y float8); COPY crossing FROM stdin;\n{''.join(lines)}\\.\n")  # fmt: skip
    yield
    server.sql("DROP TABLE crossing; DELETE FROM corgipile.models WHERE name IN ('here', 'there')")


def into(server, content, name="here", user="postgres"):
    """Import a model."""
    return server.value(f"SELECT corgipile.import('{name}', '\\x{content.hex()}')", user)


def out_of(server, name="here", user="postgres"):
    """Export a model."""
    return bytes.fromhex(server.text(f"SELECT encode(corgipile.export('{name}'), 'hex')", user))


def parts(model):
    """Return all that a model is, numbers as bytes."""
    tensors, meta = model._content()
    return {name: (part.dtype, part.shape, part.tobytes()) for name, part in tensors.items()}, meta


def decisions(server, columns, name="here"):
    """Return the scores of the rows."""
    said = server.rows(f"SELECT corgipile.decision('{name}', {columns}) d FROM crossing ORDER BY i")
    return np.squeeze([row["d"] for row in said])


MODELS = {
    "two columns": ("a, b", {"label": "two", "standardize": False}),
    "standardised": ("a, b", {"label": "yes", "standardize": True, "validation": 0.2}),
    "text": ("a, city", {"label": "word", "encode": "onehot", "missing": "mean", "model": "softmax"}),
    "hashed": ("a, city", {"label": "two", "encode": "hash:16", "missing": 0.25, "standardize": True}),
    "ordinals": ("city, b", {"label": "half", "encode": {"city": "ordinal", "b": "onehot"}, "missing": "mean",
                             "model": "softmax"}),
    "a list": ("v", {"label": "word", "model": "svm", "standardize": True}),
    "numbers": ("v", {"label": "y", "model": "quantile:0.9"}),
    "averaged": ("v", {"label": "word", "model": "svm", "average": True, "standardize": False}),
    "normalized": ("v", {"label": "word", "model": "svm", "step": "normalized", "l1": 0.001}),
    "averaged, standardised": ("a, b", {"label": "yes", "average": True, "standardize": True}),
    "rows left out": ("a, city", {"label": "two", "encode": "onehot", "on_bad": "skip"}),
}  # fmt: skip


@pytest.mark.every_server
@pytest.mark.parametrize("name", MODELS)
def test_models_of_python_come_and_go(server, rows, name):
    columns, options = MODELS[name]
    model = cp.train(rows, features=columns.split(", "), epochs=2, memory="1MB", learning_rate=0.01, **options)
    model = unpack(model.pack())
    version = into(server, model.pack())
    assert parts(unpack(out_of(server))) == parts(model)
    known = rows if name != "rows left out" else rows.filter(pa.compute.is_valid(rows["city"]))
    where = "" if name != "rows left out" else "city IS NOT NULL AND "
    said = server.rows(f"SELECT corgipile.decision('here', {columns}) d FROM crossing WHERE {where}true ORDER BY i")
    assert np.array_equal(np.squeeze([row["d"] for row in said]), model.decision(known).astype(np.float64))
    assert into(server, out_of(server)) == version + 1
    first, second = server.rows(f"SELECT {PARTS} FROM corgipile.past WHERE model = 'here' AND version = {version} "
                                f"UNION ALL SELECT {PARTS} FROM corgipile.models WHERE name = 'here'")  # fmt: skip
    assert first == second


TRAININGS = {
    "columns": ("a, b", {"model": "logistic", "label": "two", "holdout": 0.2}),
    "standardised": ("a, b", {"model": "logistic", "label": "yes", "standardize": True}),
    "text": ("a, city", {"model": "softmax", "label": "word", "encode": "onehot", "missing": "mean"}),
    "a list": ("v", {"model": "svm", "label": "two", "standardize": True}),
    "numbers": ("b", {"model": "poisson", "label": "b2", "learning_rate": 0.001}),
    "fractions": ("v", {"model": "softmax", "label": "half"}),
    "averaged": ("v", {"model": "softmax", "label": "half", "average": True}),
    "normalized": ("v", {"model": "softmax", "label": "half", "step": "normalized"}),
}


@pytest.mark.every_server
@pytest.mark.parametrize("name", TRAININGS)
def test_models_of_the_server_go_and_come(server, rows, name):
    columns, options = TRAININGS[name]
    rows = rows.append_column("b2", rows["b"])
    source = "SELECT *, b AS b2 FROM crossing ORDER BY i"
    given = options | {"query": source, "features": columns.split(", "), "name": "there", "epochs": 2}
    arguments = ", ".join(f"{name} => {literal(value)}" for name, value in given.items())
    server.text(f"SELECT count(*) FROM corgipile.train({arguments})")
    model = unpack(out_of(server, "there"))
    (row,) = server.rows(f"SELECT {PARTS} FROM corgipile.models WHERE name = 'there'")
    assert np.array_equal(model.coef, row["coefficients"])
    assert model.coef.dtype == (np.float32 if row["params"]["numbers"] == "real" else np.float64)
    assert model.classes.tolist() == (["x", "é", "日本"] if name == "text" else row["classes"])
    assert (model.classes.dtype == bool) == (name == "standardised")  # whose label is
    history = server.rows("SELECT * FROM corgipile.history WHERE model = 'there' ORDER BY epoch")
    for here, there in zip(history, model.history, strict=True):
        for said, found in (("loss", "loss"), (model.loss.score,) * 2, ("holdout_loss", "test_loss"), ("rows", "rows")):
            assert here[said] == there.get(found)
    scores = model.decision(rows)
    assert np.array_equal(decisions(server, columns, "there"), scores.astype(np.float64))
    (figures,) = server.rows(f"SELECT * FROM corgipile.evaluate('there', query => {literal(source)})")
    assert figures["loss"] == model.measure(rows)["loss"]
    into(server, unpack(model.pack()).pack())
    (again,) = server.rows(f"SELECT {PARTS} FROM corgipile.models WHERE name = 'here'")
    assert again == row


@pytest.mark.every_build
@pytest.mark.parametrize(
    "how",
    [
        {"standardize": True},
        {"average": True},
        {"average": True, "standardize": True},
        {"step": "normalized", "l1": 0.001},
        {"step": "adagrad", "average": True},
        {"step": "adam", "max_norm": 0.5},
    ],
)
@pytest.mark.parametrize("columns", ["v", "a, b"])
def test_both_go_on_from_a_model_to_the_same_bits(server, rows, columns, how):
    options = {"label": "two", "learning_rate": 0.01, "order": cp.orders.NoShuffle(), "memory": "1MB"}
    past = cp.train(rows, features=columns.split(", "), epochs=2, **how, **options)
    more = {name: value for name, value in how.items() if name != "standardize"}
    said = "".join(f", {name} => {literal(value)}" for name, value in more.items())
    into(server, past.pack())
    features = "ARRAY[" + ", ".join(f"'{name}'" for name in columns.split(", ")) + "]"
    server.text("SELECT count(*) FROM corgipile.train(query => 'TABLE crossing ORDER BY i', model => 'logistic', "
                f"features => {features}, label => 'two', name => 'here', warm_start => 'here', "
                f"epochs => 2, learning_rate => 0.01, \"order\" => 'no_shuffle'{said})")  # fmt: skip
    here = unpack(out_of(server))
    there = cp.train(rows, features=columns.split(", "), epochs=2, warm_start=past, **more, **options)
    assert parts(here)[0] == parts(there)[0]
    assert [epoch["loss"] for epoch in here.history] == [epoch["loss"] for epoch in there.history]


def changed(content, change):
    """Return the content of a model with other metadata."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    meta = json.loads(header["__metadata__"]["corgipile.model"])
    change(header, meta)
    if header.get("__metadata__"):
        header["__metadata__"]["corgipile.model"] = json.dumps(meta)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def with_encoder(**given):
    """Return what changes an encoder."""
    return lambda header, meta: meta["params"]["encoding"]["features"][1].update(given)


def with_meta(**given):
    """Return what changes the metadata."""
    return lambda header, meta: meta.update(given)


REFUSED = {
    "format": (with_meta(format=2), "format 2 is not known; this version reads format 1"),
    "kind": (with_meta(kind="forest"), "model must be logistic, svm,"),
    "classes": (with_meta(classes=["é", "x"]), "its classes are not those of its label"),
    "numbers": (with_meta(classes=[1, 2, 3], class_type="int64"), "its classes are not those of its label"),
    "dates": (with_meta(class_type="datetime64[ns]"), "cannot hold classes of type datetime64[ns]"),
    "history": (with_meta(history=[{"loss": None}]), "an epoch of its history has no loss"),
    "params": (with_meta(params=[]), "parameters or history are missing"),
    "groups": (lambda header, meta: meta["params"].update(by="g", groups=["a", "b"], of_groups={}),
               "a softmax model has 3 classes, 3 outputs of 2 groups"),
    "labels": (lambda header, meta: meta["params"].update(labels=["a", "b"]),
               "a softmax model has 3 classes, 3 outputs of 2 groups or labels"),
    "hashed text": (lambda header, meta: meta["params"]["encoding"].update(hashing={}, features=[]),
                    "its encoding is unknown"),
    "an encoder": (with_encoder(how="target"), 'cannot hold the encoder "target onehot text" of column "city"'),
    "a way": (with_encoder(way="binary"), 'cannot hold the encoder "categories binary text" of column "city"'),
    "what it has besides": (with_encoder(order=1), "its encoding is damaged"),
    "a label": (lambda header, meta: (meta["params"]["encoding"]["label"].update(values=[0, 0.5, 1]),
                meta.update(classes=[0, 0.5, 1], class_type="float64")), 'the encoder "classes" of label "word"'),
    "a list": (lambda header, meta: meta["params"]["encoding"]["features"].__setitem__(1, {"how": "vector",
               "column": "city", "fill": None}), 'cannot hold lists together with other columns: "a", "city"'),
    "width": (lambda header, meta: meta["params"]["encoding"]["features"][1]["values"].pop(),
              "its encoding does not match its arrays"),
    "no metadata": (lambda header, meta: header.pop("__metadata__"), "it says nothing of a model"),
    "a type": (lambda header, meta: header["coef"].update(dtype="I64"), 'tensor "coef" is of type "I64"'),
    "a shape": (lambda header, meta: header["coef"].update(shape=[1 << 62, 1 << 62]), "does not match its shape"),
    "a place": (lambda header, meta: header["coef"].update(data_offsets=[8, 9]), 'tensor "coef"'),
    "a tensor": (lambda header, meta: header.update(more=header.pop("intercept")), 'tensor "more" is none of a model'),
}  # fmt: skip


def test_what_is_no_model_or_cannot_be_held(server, rows, fails):
    options = {"features": ["a", "city"], "label": "word", "encode": "onehot", "missing": "mean", "model": "softmax"}
    content = cp.train(rows, epochs=1, memory="1MB", standardize=False, step="decay", **options).pack()
    into(server, content)
    for name, (change, said) in REFUSED.items():
        bad = changed(content, change)
        assert said in fails(f"SELECT corgipile.import('here', '\\x{bad.hex()}')"), name
    infinite = content[:-8] + np.array([np.inf]).tobytes()
    for bad, said in ((b"", "it has 0 bytes"), (b"PAR1" * 9, "its header has"), (content[:-1], "lies outside the 1"),
                      (content + b"0", "its tensors need"), (b"\xff" * 8 + content[8:], "its header has 184467"),
                      (infinite, 'a number of tensor "intercept" is NaN or infinite')):  # fmt: skip
        assert said in fails(f"SELECT corgipile.import('here', '\\x{bad.hex()}')")
    deep = b'{"a":' * 100_000
    deep = len(deep).to_bytes(8, "little") + deep
    assert "is not a model saved by corgipile: " in fails(f"SELECT corgipile.import('here', '\\x{deep.hex()}')")
    large = changed(cp.train(rows, features=["a"], label="two", epochs=1, memory="1MB", standardize=False).pack(),
                    with_meta(classes=[0, 2**53 + 1], class_type="int64"))  # fmt: skip
    assert "cannot hold the class 9007199254740993" in fails(f"SELECT corgipile.import('here', '\\x{large.hex()}')")
    mixed = cp.train(rows, features=["a", "v"], label="two", epochs=1, memory="1MB", standardize=False).pack()
    said = fails(f"SELECT corgipile.import('here', '\\x{mixed.hex()}')")
    assert "the extension cannot hold lists together with other columns: 2 columns have 4 features" in said
    assert parts(unpack(out_of(server))) == parts(unpack(content))
    assert "model must be a name of at least one character" in fails("SELECT corgipile.import('', '')")
    assert 'there is no model "absent"' in fails("SELECT corgipile.export('absent')")
    assert server.value("SELECT corgipile.import(NULL, '')") is None


OTHERS = [b"null", b"-1", b"1e999", b"[]", b"{}", b"true", b"0", b"", b"9" * 30, b"\\\\u0000", b"coef"]


def mutated(content, draw):
    """Change a few bytes, or a word of the metadata, or the length."""
    size, many = int.from_bytes(content[:8], "little"), bytearray(content)
    way = draw.randrange(5)
    if way == 0:
        words = list(re.finditer(rb"[-+.\w]+|[\[\]{}]", content[8 : 8 + size]))
        word = draw.choice(words)
        other = draw.choice(
            [b"null", b"-1", b"1e999", b"[]", b"{}", b"true", b"0", b"", b"9" * 30, b"\\\\u0000", b"coef"]
        )
        text = content[8 : 8 + word.start()] + other + content[8 + word.end() : 8 + size]
        return len(text).to_bytes(8, "little") + text + content[8 + size :]
    if way == 1:
        return content[: draw.randrange(len(content))]
    if way == 2:
        start = draw.randrange(8, len(content))
        return content[:start] + draw.randbytes(draw.randrange(9)) + content[start + draw.randrange(9) :]
    for _ in range(draw.randrange(1, 4)):
        many[draw.randrange(8 if way == 3 else len(many))] = draw.randrange(256)
    return bytes(many)


def test_bytes_at_random_are_a_model_or_an_error(server, rows):
    """A clear one, of which the server says nothing else; what is a model here is one in Python."""
    options = {"features": ["a", "city"], "label": "word", "encode": "onehot", "missing": "mean", "model": "softmax"}
    content, draw = cp.train(rows, epochs=1, memory="1MB", standardize=True, **options).pack(), random.Random(1)  # noqa: S311
    some = [mutated(content, draw) for _ in range(2000)]
    lines = "".join(f"{number}\t\\\\x{one.hex()}\n" for number, one in enumerate(some))
    server.text(f"""CREATE TABLE mutants (i int, content bytea, said text, found bytea);
        COPY mutants (i, content) FROM stdin;\n{lines}\\.\nSET corgipile.keep_versions = 1; DO $$
        DECLARE one record; why text; state text;
        BEGIN
            FOR one IN SELECT * FROM mutants ORDER BY i LOOP
                BEGIN
                    PERFORM corgipile.import('here', one.content);
                    UPDATE mutants SET found = corgipile.export('here') WHERE i = one.i;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, why = MESSAGE_TEXT;
                    UPDATE mutants SET said = state || ' ' || why WHERE i = one.i;
                END;
            END LOOP;
        END $$""")
    found = server.rows("SELECT i, said, encode(found, 'hex') AS found FROM mutants ORDER BY i")
    server.sql("DROP TABLE mutants")
    assert sum(row["said"] is None for row in found) > 20
    unread = []
    for row in found:
        if row["said"] is None:
            try:
                tensors, _ = parts(unpack(bytes.fromhex(row["found"])))
            except BadModelFile as error:  # Python also checks encoding and history, which the server hands on
                unread.append(str(error))
                continue
            assert tensors == parts(unpack(some[row["i"]]))[0]
        else:
            clear = re.match("22P03 the content is not a model saved by corgipile: .|0A000 the extension cannot hold ",
                             row["said"])  # fmt: skip
            assert clear, row["said"]
            assert set(row["said"]) <= set(string.printable) | set("é日本üZ大阪")
    assert len(unread) < 30, unread
    with pytest.raises(BadModelFile):
        unpack(some[next(row["i"] for row in found if row["said"] and "its header has" in row["said"])])


@pytest.mark.every_server
def test_rights_are_those_of_reading_and_of_storing(server, model, fails):
    export = "SELECT length(corgipile.export('m'))"
    for name in ("owner", "member", "reader"):
        assert server.value(export, f"m_{name}") > 100
    for name in ("user", "replacer", "stranger"):
        assert 'permission denied for model "m"' in fails(export, f"m_{name}")
    content = out_of(server, "m", "m_reader")
    for name in ("reader", "user", "stranger"):
        said = fails(f"SELECT corgipile.import('m', '\\x{content.hex()}')", f"m_{name}")
        assert 'model "m" belongs to m_owner; choose another name' in said
    assert into(server, content, "m", "m_replacer") == 2
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'm'") == "m_owner"
    into(server, content, "mine", "m_stranger")
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'mine'") == "m_stranger"
    assert "read-only transaction" in fails(f"BEGIN READ ONLY; SELECT corgipile.import('m', '\\x{content.hex()}')")
    server.sql("REVOKE INSERT ON corgipile.models FROM PUBLIC")
    try:
        said = fails(f"SELECT corgipile.import('mine', '\\x{content.hex()}')", "m_stranger")
        assert "permission denied for table models" in said
    finally:
        server.sql("GRANT INSERT ON corgipile.models TO PUBLIC")


def test_a_session_with_few_digits_exports_all_of_them(server, rows):
    model = cp.train(rows, features=["a"], label="half", model="linear", epochs=2, memory="1MB", standardize=True)
    into(server, model.pack())
    said = server.text("SET extra_float_digits = -10; SET search_path = pg_temp, public; "
                       "SELECT encode(corgipile.export('here'), 'hex')")  # fmt: skip
    assert parts(unpack(bytes.fromhex(said)))[0] == parts(model)[0]
    assert unpack(bytes.fromhex(said)).history == unpack(model.pack()).history
