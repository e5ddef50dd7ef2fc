"""Parsed statements and syntax errors."""

# ruff: noqa: S608, E501  # tests write SQL

import pytest
from sqlparsing import one, sql

from corgipile.errors import BadArgument
from corgipile.losses import NAMES
from corgipile.settings import TrainArguments, declared
from corgipile.sql.grammar import parse
from corgipile.sql.options import ALIASES, REPLACED_BY, SETTINGS, bind_settings
from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Explain,
    Fragment,
    ModelCall,
    Parameter,
    Predict,
    Query,
    RenameModel,
    ShowModels,
    Train,
)


def test_the_sentence_of_the_paper():
    found = one(
        "SELECT * FROM 'higgs.parquet' TRAIN BY svm WITH learning_rate = 0.1, max_epoch_num = 20, block_size = 10MB, "
        "buffer_size = 10%"
    )

    assert isinstance(found, Train)
    assert (found.model, found.source.file, found.source.plain, found.name) == ("svm", "higgs.parquet", True, None)
    assert found.settings == {"learning_rate": 0.1, "epochs": 20, "block": "10MB", "buffer": "10%"}


def test_all_clauses_in_any_order():
    first = one("SELECT a, b FROM t TRAIN BY huber:1.5 WITH seed = -3 LABEL b USING old INTO new")
    second = one("select a, b from t train by HUBER:1.5 into new using old label b with SEED = -3")

    assert first.model == second.model == "huber:1.5"
    facts = [(x.label, x.warm_start, x.name, x.settings, x.source.columns, x.source.table) for x in (first, second)]
    assert facts == [("b", "old", "new", {"seed": -3}, ("a", "b"), ("t",))] * 2


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_is_a_model(name):
    assert one(f"SELECT * FROM t TRAIN BY {name.upper()}").model == name
    assert one(f"CREATE MODEL m OPTIONS (model_type = '{name}') AS SELECT * FROM t").model == name


WRITTEN = {
    "features": ("[a, 'b c']", None),
    "label": ("y", None),
    "labels": ("(a, 'b c')", ("a", "b c")),
    "weight": ("w", "w"),
    "by": ("g", "g"),
    "class_weight": ("{'no': 1, 'yes': 20}", {"no": 1.0, "yes": 20.0}),
    "encode": ("{city: onehot, 'zip': hash:64}", {"city": "onehot", "zip": "hash:64"}),
    "text": ("[Review, 'b c']", ("Review", "b c")),
    "interactions": ("((city, device), 'a:b', hour)", (("city", "device"), ("a", "b"), ("hour",))),
    "hash_bits": ("20", 20),
    "ngrams": ("3", 3),
    "missing": ("mean", "mean"),
    "epochs": ("7", 7),
    "learning_rate": ("1e-2", 0.01),
    "decay": (".5", 0.5),
    "l2": ("0", 0.0),
    "batch_size": ("1_000", 1000),
    "memory": ("64MB", "64MB"),
    "seed": ("0x10", 16),
    "intercept": ("FALSE", False),
    "step": ("adagrad", "adagrad"),
    "l1": ("1e-3", 0.001),
    "max_norm": ("2.5", 2.5),
    "average": ("true", True),
    "standardize": ("NULL", None),
    "order": ("no_shuffle", "no_shuffle"),
    "tolerance": ("0.001", 0.001),
    "on_bad": ("skip", "skip"),
    "validation": ("0.1", 0.1),
    "patience": ("3", 3),
    "solver": ("'dual'", "dual"),
    "inner": ("2", 2),
    "group": ("g", "g"),
    "classes": ("ARRAY['no', 'yes']", ["no", "yes"]),
    "warm_start": ("old", None),
}


@pytest.mark.parametrize("name", [*SETTINGS, "classes"])
def test_every_setting_has_its_name(name):
    text, value = WRITTEN[name]
    found = one(f"SELECT * FROM t TRAIN BY logistic WITH {name} = {text}")

    places = {"features": found.features, "label": found.label, "warm_start": found.warm_start}
    if name in places:
        assert places[name] == {"features": ("a", "b c"), "label": "y", "warm_start": "old"}[name]
        assert found.settings == {}
    else:
        assert found.settings == {name: value}


def test_settings_are_those_of_train():
    every = {name for name, found in declared(TrainArguments).items() if found.setting.about}
    assert set(SETTINGS) | set(REPLACED_BY) >= every
    assert set(ALIASES.values()) <= set(SETTINGS) | {"block", "buffer", "balance"}


@pytest.mark.parametrize("alias", ALIASES)
def test_other_names_of_settings(alias):
    assert one("SELECT * FROM t TRAIN BY svm WITH balance = label").settings == {"balance": "label"}
    text = {"fit_intercept": "true", "block_size": "8KB", "buffer_size": "5%"}.get(alias, "1")
    found = one(f"SELECT * FROM t TRAIN BY linear WITH {alias} = {text}")
    assert list(found.settings) == [ALIASES[alias]]


def test_columns_of_postgres_are_lower_case_unless_quoted():
    script = 'SELECT Aa, "Bb", ÄÖ FROM S."T" TRAIN BY svm WITH features = [Aa, "Bb"] LABEL ÄÖ INTO Model'
    found, other = one(script, "postgres"), one(script)

    assert (found.source.columns, found.source.table) == (("aa", "Bb", "ÄÖ"), ("s", "T"))
    assert (found.features, found.label, found.name) == (("aa", "Bb"), "ÄÖ", "Model")
    assert (other.source.columns, other.features) == (("Aa", "Bb", "ÄÖ"), ("Aa", "Bb"))


# Each SELECT with its columns, table or file, and whether it is plain and foldable.
SOURCES = {
    "SELECT * FROM t": (None, ("t",), None, True, True),
    "SELECT a, t.b FROM t": (("a", "b"), ("t",), None, True, True),
    "SELECT a, b FROM s.t AS x": (("a", "b"), ("s", "t"), None, True, True),
    "SELECT a FROM c.s.t x": (("a",), ("c", "s", "t"), None, True, True),
    "SELECT a FROM 's3://b/*.parquet'": (("a",), None, "s3://b/*.parquet", True, True),
    "FROM 'x.csv'": (None, None, "x.csv", True, True),
    "SELECT a + 1, b FROM t": (None, ("t",), None, False, True),
    "SELECT a AS b FROM t": (None, ("t",), None, False, True),
    "SELECT a, a FROM t": (None, ("t",), None, False, True),
    "SELECT a FROM t WHERE b > 1": (("a",), ("t",), None, False, True),
    "SELECT a FROM t ORDER BY a LIMIT 3": (("a",), ("t",), None, False, True),
    "SELECT a FROM t TABLESAMPLE bernoulli (10)": (("a",), ("t",), None, False, True),
    "SELECT a FROM t, u": (("a",), None, None, False, True),
    "SELECT a FROM t JOIN u USING (i)": (("a",), None, None, False, True),
    "SELECT a FROM (SELECT 1 AS a) q": (("a",), None, None, False, True),
    "SELECT a FROM f(1)": (("a",), None, None, False, True),
    "SELECT a FROM read_parquet('x')": (("a",), None, None, False, True),
    "SELECT a FROM ONLY t": (("a",), None, None, False, True),
    "SELECT DISTINCT a FROM t": (None, ("t",), None, False, False),
    "SELECT a, max(b) FROM t GROUP BY a": (None, ("t",), None, False, False),
    "SELECT sum(a) FROM t": (None, ("t",), None, False, False),
    "SELECT a FROM t UNION ALL SELECT a FROM u": (None, None, None, False, False),
    "WITH t AS (SELECT 1 AS a) SELECT a FROM t": (None, None, None, False, False),
    "(SELECT a FROM t)": (None, None, None, False, False),
    "VALUES (1, 2)": (None, None, None, False, False),
    "SELECT 1.5 AS a": (None, None, None, False, False),
    "FROM t SELECT a": (None, None, None, False, False),
}


@pytest.mark.parametrize("script", SOURCES)
def test_what_a_source_is(script):
    found = one(f"{script} TRAIN BY linear").source
    assert (found.columns, found.table, found.file, found.plain, found.foldable) == SOURCES[script]
    if not script.startswith("FROM '"):
        assert sql(found.sql) == script
    if found.foldable and script.startswith("SELECT"):
        assert f"SELECT {sql(found.items)} {sql(found.rest)}" == script


@pytest.mark.parametrize(
    ("script", "table", "file"), [("t", ("t",), None), ('s."T"', ("s", "T"), None), ("'x.csv'", None, "x.csv")]
)
def test_the_paper_predicts_a_table_by_its_name(script, table, file):
    found = one(f"SELECT {script} PREDICT BY m").source
    assert (found.table, found.file, found.plain, sql(found.sql)) == (table, file, True, f"SELECT * FROM {script}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("INSERT INTO r (a, b)\n  ", " ON CONFLICT DO NOTHING RETURNING *"),
        ("CREATE OR REPLACE TEMP TABLE r AS -- rows\n", ""),
        ("CREATE TABLE r WITH (fillfactor = 70) AS ", ""),
        ("COPY (", ") TO 'x.parquet' (FORMAT parquet)"),
        ("SELECT avg(prediction) FROM (", ") q WHERE a > 3"),
        ("WITH p AS (", ") SELECT * FROM p"),
        ("WITH c AS (SELECT 1) INSERT INTO r ", ""),
        ("EXPLAIN ", ""),
    ],
)
@pytest.mark.parametrize(
    "query", ["SELECT a FROM t WHERE b", "WITH c AS (SELECT 1 AS a) SELECT a FROM c", "SELECT a FROM t UNION SELECT 1"]
)
def test_predictions_stand_where_queries_do(before, query, after):
    found = one(f"{before}{query} PREDICT BY m AS p{after}")

    assert isinstance(found, Predict)
    assert (sql(found.before), sql(found.source.sql), sql(found.after)) == (before, query, after)
    assert (found.model, found.column) == ("m", "p")


@pytest.mark.parametrize(
    "script",
    [
        "SELECT train, predict, model, label, by FROM train",
        "SELECT train by FROM t",
        "SELECT a, train by, b FROM t",
        "SELECT train.by, predict.by FROM train, predict",
        "SELECT 'x TRAIN BY svm', \"y PREDICT BY m\" FROM t",
        "SELECT 1 -- TRAIN BY svm\n + 2",
        "SELECT 1 /* TRAIN /* nested */ BY svm */ + 1",
        "SELECT $$ TRAIN BY ; $$, $x$ PREDICT BY $$ $x$",
        "CREATE TABLE model (drop int, show text)",
        "DROP TABLE model",
        "SHOW models_of_mine",
        "DESCRIBE model",
        "SELECT ml.predict(1)",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
        "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
        "PREPARE p AS SELECT $1, $2",
        "CREATE OR REPLACE FUNCTION f(int) RETURNS int RETURN $1 + 1",
        "EXPLAIN SELECT 1",
        "BEGIN",
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_all_else_passes_as_it_is(script, dialect):
    assert one(script, dialect) == Query(sql=Fragment((script,)))


@pytest.mark.parametrize("word", ["train", "model", "label", "predict", "by", "using", "into", "with"])
def test_words_of_ours_are_names_in_quotes_and_most_without(word):
    quoted = one(f'SELECT "{word}", y FROM "{word}" TRAIN BY svm LABEL "{word}" INTO "{word}"')
    assert (quoted.source.columns, quoted.source.table, quoted.label, quoted.name) == ((word, "y"), (word,), word, word)
    if word not in ("by", "using", "into", "with"):
        bare = one(f"SELECT {word}, y FROM {word} ORDER BY {word} TRAIN BY svm LABEL {word} INTO {word}")
        assert (bare.source.table, bare.label, bare.name) == ((word,), word, word)


def test_statements_of_a_script_have_their_places():
    script = "SELECT ';' ; -- a ; b\n SELECT * FROM t TRAIN BY svm;; SELECT $$;$$;\n"
    found = parse(script)
    assert [type(statement) for statement in found] == [Query, Train, Query]
    assert [script[statement.offset :][:8] for statement in found] == ["SELECT '", "SELECT *", "SELECT $"]
    assert parse(" ; -- nothing\n ;") == []


PLACES = {
    "SELECT ?, ? WHERE a = ?": "SELECT <1>, <2> WHERE a = <3>",
    "SELECT $2 + $1, $name": "SELECT <2> + <1>, <name>",
    "SELECT $1,$2,$1+$2": "SELECT <1>,<2>,<1>+<2>",
    "SELECT :a, f(:b), x + :c": "SELECT <a>, f(<b>), x + <c>",
    "SELECT a::int, :a::int, '::b', ':c' FROM t": "SELECT a::int, <a>::int, '::b', ':c' FROM t",
    "SELECT '?', \"?\", $$?$$ /* ? */ -- ?": None,
    "SELECT a[1:2], a[x:y], a[:y], a[1 :y]": None,
    "SELECT ARRAY[:a, :b], [:a]": "SELECT ARRAY[<a>, <b>], [<a>]",
    "SELECT {'a':b, c:d}": None,
    "SELECT {'a': :b}": "SELECT {'a': <b>}",
    "SELECT * FROM t LIMIT ? OFFSET :o": "SELECT * FROM t LIMIT <1> OFFSET <o>",
    "SELECT a BETWEEN ? AND ?": "SELECT a BETWEEN <1> AND <2>",
    "SELECT x: 42": None,
    "SELECT a$1, b$c": None,
}


@pytest.mark.parametrize("script", PLACES)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_places_for_values(script, dialect):
    written = (PLACES[script] or script).removesuffix(" /* ? */ -- ?")
    assert sql(one(script, dialect).sql) == written


@pytest.mark.parametrize(
    ("script", "written"),
    [
        (
            "SELECT j ? 'a', j ?| ARRAY[?], j ?& x, j @? '$.a', j #>> ?",
            "SELECT j ? 'a', j ?| ARRAY[<1>], j ?& x, j @? '$.a', j #>> <2>",
        ),
        (
            "SELECT (j) ? 'a', x[1] ? ?, y::jsonb ? 'b', \"z\" ? $$c$$",
            "SELECT (j) ? 'a', x[1] ? <1>, y::jsonb ? 'b', \"z\" ? $$c$$",
        ),
        ("SELECT 1 WHERE a=? AND b<? OR c||? IN (?,?)", "SELECT 1 WHERE a=<1> AND b<<2> OR c||<3> IN (<4>,<5>)"),
    ],
)
def test_question_marks_that_are_operators_of_postgres(script, written):
    assert sql(one(script, "postgres").sql) == written


def test_places_are_counted_over_the_script_and_reach_settings():
    first, second = parse("SELECT a FROM t WHERE b = ? TRAIN BY svm WITH epochs = ?, features = ? LABEL ?; SELECT ?")

    assert sql(first.source.sql) == "SELECT a FROM t WHERE b = <1>"
    assert first.settings == {"epochs": Parameter(2), "features": Parameter(3), "label": Parameter(4)}
    assert sql(second.sql) == "SELECT <5>"
    ready = bind_settings(first, [0, 3, ["a"], "y", None])
    assert (ready.settings, ready.features, ready.label) == ({"epochs": 3}, ("a",), "y")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "parameter number 2 has no value"),
        ({"1": 1}, "parameter number 2 has no value; values are given for 1"),
        ([1, "x"], "epochs must be a whole number"),
    ],
)
def test_values_of_settings_are_checked_when_they_come(values, message):
    found = one("SELECT * FROM t WHERE a = ? TRAIN BY svm WITH epochs = ?")
    with pytest.raises(BadArgument, match=message):
        bind_settings(found, values)


def test_statements_about_models():
    assert one("DROP MODEL IF EXISTS a.b") == DropModel(name="a.b", if_exists=True)
    assert one('drop model "Ab"') == DropModel(name="Ab")
    assert one("ALTER MODEL IF EXISTS a RENAME TO 'b c'") == RenameModel(name="a", to="b c", if_exists=True)
    assert one("SHOW MODELS") == ShowModels()
    assert one("SHOW MODELS LIKE 'a%'") == ShowModels(like="a%")
    assert one("DESCRIBE MODEL m") == one("DESC MODEL m") == DescribeModel(name="m")


@pytest.mark.parametrize(
    ("script", "analyze"),
    [
        ("EXPLAIN", False), ("EXPLAIN ANALYZE", True), ("explain (analyze)", True), ("EXPLAIN (ANALYZE off)", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "rest", ["SELECT * FROM t TRAIN BY svm", "CREATE MODEL m OPTIONS (model_type = 'svm') AS SELECT * FROM t"]
)
def test_explain_of_a_training(script, analyze, rest):
    found = one(f"{script} {rest}")
    assert isinstance(found, Explain)
    assert (found.analyze, found.train.model) == (analyze, "svm")


def test_calls_of_models_in_any_query():
    found = one(
        "SELECT * FROM ML.PREDICT(MODEL `a b`, (SELECT x FROM ml.predict(model n, TABLE s.t) WHERE y = ?), STRUCT(0.5 AS threshold)) p "
        "JOIN ML.WEIGHTS(MODEL m) ON true, ML.TRAINING_INFO(MODEL m), ML.EVALUATE(MODEL m), ML.EVALUATE(MODEL m, TABLE t)"
    )
    calls = [piece for piece in found.sql.pieces if isinstance(piece, ModelCall)]

    assert [(call.function, call.model) for call in calls] == [
        ("predict", "a b"), ("weights", "m"), ("training_info", "m"), ("evaluate", "m"), ("evaluate", "m"),
    ]  # fmt: skip
    assert calls[0].options == {"threshold": 0.5}
    assert sql(calls[0].source.sql) == "SELECT x FROM <predict n> WHERE y = <1>"
    assert [call.source and call.source.table for call in calls[1:]] == [None, None, None, ("t",)]
    assert sql(found.sql).endswith("p JOIN <weights m> ON true, <training_info m>, <evaluate m>, <evaluate m>")
    assert [
        call.model
        for call in one("SELECT * FROM ML.WEIGHTS(MODEL m) TRAIN BY svm").source.sql.pieces
        if isinstance(call, ModelCall)
    ] == ["m"]
