"""Fuzzer of the SQL parser: `python tests/support/sqlfuzz.py 100000` parses as many broken statements."""

# ruff: noqa: S311, S608, T201, E501, Q003, RUF001, PT017  # no secrets; a command; long statements

import random
import sys
import time

from corgipile.errors import BadStatement
from corgipile.sql.grammar import parse
from corgipile.sql.statements import Query

GOOD = [
    "SELECT * FROM 'higgs.parquet' TRAIN BY svm WITH learning_rate = 0.1, max_epoch_num = 20, block_size = 10MB",
    "SELECT a, \"b c\", y FROM s.t WHERE a > ? AND j ->> 'k' = $2 TRAIN BY quantile:0.9 WITH order = riffle, buffer_size = 10% LABEL y USING old INTO new",
    "SELECT f0 FROM t TRAIN BY softmax WITH features = [a, 'b'], encode = {city: onehot, zip: 'hash:16'}, classes = (0, 1, 2)",
    "WITH c AS (SELECT 1 AS a, 2 AS b) SELECT * FROM c TRAIN BY linear",
    "SELECT id FROM t ORDER BY id LIMIT 3 PREDICT BY m AS p",
    'INSERT INTO r (a, b) SELECT id, x::int FROM t PREDICT BY "m" ON CONFLICT DO NOTHING RETURNING *',
    "COPY (SELECT * FROM t PREDICT BY m) TO 'p.parquet'",
    "SELECT t PREDICT BY m; SELECT 'x.csv' PREDICT BY m",
    "CREATE OR REPLACE MODEL `p.d.m` OPTIONS (model_type = 'LOGISTIC_REG', input_label_cols = ['label'], learn_rate = 0.1, max_iterations = 5, l1_reg = 0, l2_reg = 1e-3, warm_start = true, data_split_method = 'RANDOM', early_stop = true, min_rel_progress = 0.01, friendly_name = 'm', category_encoding_method = 'ONE_HOT_ENCODING') AS SELECT * FROM t",
    "CREATE MODEL IF NOT EXISTS m OPTIONS (model_type = 'huber:1.5') AS (SELECT a, b FROM t)",
    "SELECT * FROM ML.PREDICT(MODEL m, (SELECT * FROM ML.PREDICT(MODEL n, TABLE t)), STRUCT(0.5 AS threshold)) AS x",
    "SELECT * FROM ML.EVALUATE(MODEL m), ML.WEIGHTS(MODEL m) w JOIN ML.TRAINING_INFO(MODEL m) i ON true",
    "CREATE MODEL m TRANSFORM (* EXCEPT (a), ML.BUCKETIZE(EXTRACT(DAYOFWEEK FROM b), [1, 2]) AS c, ML.STANDARD_SCALER(d) OVER() AS e) OPTIONS (model_type = 'linear_reg', num_trials = 2, l1_reg = HPARAM_RANGE(0, 1)) AS SELECT CAST(\"7\" AS INT64) FROM `p`.d.t_",
    "SELECT category FROM UNNEST((SELECT category_weights FROM ML.WEIGHTS(MODEL `d.m`, STRUCT(true AS standardize)))); EXPORT MODEL m OPTIONS (uri = 'x'); ALTER MODEL m SET OPTIONS (labels = [('a', 'b')])",
    "EXPLAIN (ANALYZE true) SELECT * FROM t TRAIN BY poisson; EXPLAIN ANALYZE SELECT 1",
    "DROP MODEL IF EXISTS m; ALTER MODEL a RENAME TO b; SHOW MODELS LIKE 'a%'; DESCRIBE MODEL m",
    "CREATE FUNCTION f(a int) RETURNS int BEGIN ATOMIC SELECT CASE WHEN a > 1 THEN 1 END; SELECT a; END; SELECT 2",
    "SELECT $$ TRAIN BY ; $$, $t$ x $t$, E'a\\'b', U&\"d\", 'it''s' /* a /* b */ ; */ -- c ;\nFROM t; SELECT {'a': 1}['a']",
    "SELECT train, model, label, predict, by FROM train WHERE predict = :name AND x[1:2] = ARRAY[:a, :b]",
]
PIECES = [
    *"()[]{},;:.?$'\"`-+*/%=<>|&@#~^!\\\n\t \0",
    "::", "$$", "$1", "$name", ":x", "--", "/*", "*/", "E'", "U&\"", "1e999", "0x", "1..2", "10MB", "10%", "-1", "NULL", "ARRAY[",
    "STRUCT(", "TRAIN BY", "PREDICT BY", "TRAIN", "BY", "WITH", "LABEL", "USING", "INTO", "SELECT", "FROM", "ML.", "ML.PREDICT(MODEL m, ",
    "MODEL", "OPTIONS (", "CREATE MODEL", "EXPLAIN", "svm", "epochs = ", "é", "\N{DOG}", "\N{ZERO WIDTH SPACE}", "\u3000", "\ud800", "\ufeff",
    "\N{RIGHT-TO-LEFT OVERRIDE}", "e\N{COMBINING ACUTE ACCENT}", "９", "٣", "ſ", "ı", "\x85",
]  # fmt: skip


def statement(chance):
    """Return valid statements with a few changes, or random pieces."""
    if chance.random() < 0.1:
        return "".join(chance.choice(PIECES) + " " * chance.randrange(2) for _ in range(chance.randrange(1, 60)))
    text = chance.choice(GOOD)
    if chance.random() < 0.2:
        other = chance.choice(GOOD)
        text = text[: chance.randrange(len(text))] + other[chance.randrange(len(other)) :]
    for _ in range(chance.randrange(6)):
        text = _changed(text, chance)
    return text


def _changed(text, chance):
    at, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
    end = min(end, at + chance.randrange(1, 12))
    change = chance.randrange(6)
    if change == 0:
        return text[:at] + text[end:]
    if change == 1:
        return text[:at] + text[at:end] * chance.randrange(2, 5) + text[end:]
    if change == 2:
        return text[:at] + text[at:end].swapcase() + text[end:]
    if change == 3:
        return text[:at] + chr(chance.choice((chance.randrange(128), chance.randrange(0x110000)))) + text[end:]
    if change == 4:
        words = text.split(" ")
        chance.shuffle(words)
        return " ".join(words)
    return text[:at] + chance.choice(PIECES) + text[at:]


def large():
    """Return statements that are large or deep."""
    many = 20_000
    return [
        "(" * many, ")" * many, "(" * many + ")" * many, "[" * 500 + "]" * 500, "SELECT " + "1," * many + "1 FROM t TRAIN BY svm",
        "SELECT * FROM " + "ML.PREDICT(MODEL m, (SELECT * FROM " * 500, "SELECT * FROM ML.PREDICT(MODEL m, TABLE t)" + ", ML.WEIGHTS(MODEL m)" * 3000,
        "SELECT * FROM " + "ML.PREDICT(MODEL m, (SELECT * FROM " * 500 + "t" + "))" * 500 + " TRAIN BY svm",
        "SELECT * FROM t TRAIN BY svm WITH " + "a = " * many, "SELECT * FROM t TRAIN BY svm WITH classes = " + "[" * 999 + "]" * 999,
        "SELECT * FROM t TRAIN BY svm WITH " + ", ".join(f"a{i} = 1" for i in range(many)), "TRAIN BY " * many, "SELECT 1 FROM " + "t PREDICT BY " * many,
        "WITH " * many + "PREDICT BY m", "'" * many, "''" * many, "E'" + "\\a" * many, "/*" * many, "/*" * many + "*/" * many, "$a" * many, "$" * many, "$a$" * many,
        "-- " * many, ";" * many, "SELECT 1;" * many, "\n" * many + "SELECT (", "x" * 1_000_000, "SELECT '" + "y" * 1_000_000 + "' TRAIN BY", "? " * many, "a ? b :c [:d] " * 4000,
        "CREATE FUNCTION f BEGIN " + "CASE " * many, "EXPLAIN " * many + "SELECT 1", "SELECT * FROM t TRAIN BY svm WITH epochs = " + "9" * 100_000, "." * many, "a." * many,
    ]  # fmt: skip


def check(text):
    """Parse a statement in both dialects; return how many accept it.

    Errors must be a BadStatement with a position; text for the engine must be unchanged.
    """
    taken = 0
    for dialect in ("duckdb", "postgres"):
        try:
            found = parse(text, dialect)
        except BadStatement as error:
            lines = text.split("\n")
            assert 1 <= error.line <= len(lines), text
            assert 1 <= error.column <= len(lines[error.line - 1]) + 1, text
            message = str(error).split("\n")
            assert message[0].startswith(f"line {error.line}, column {error.column}: "), text
            assert message[-1].strip() == "^", text
            assert len(message) == 3, text
            continue
        taken += 1
        for one in found:
            plain = isinstance(one, Query) and all(isinstance(piece, str) for piece in one.sql.pieces)
            if plain and "`" not in text:  # names in backticks are BigQuery's, which is translated
                (whole,) = one.sql.pieces
                assert text[one.offset : one.offset + len(whole)] == whole, text
    return taken


def main(count):
    """Parse this many statements and the large ones; print the time of the slowest."""
    chance, slowest, taken = random.Random(0), 0.0, 0
    begin = time.perf_counter()
    for _ in range(count):
        text, start = statement(chance), time.perf_counter()
        taken += check(text) > 0
        slowest = max(slowest, time.perf_counter() - start)
    seconds = time.perf_counter() - begin
    print(f"{count} statements in {seconds:.1f} s, {taken} of them taken; the slowest took {slowest * 1e3:.1f} ms")
    for text in large():
        start = time.perf_counter()
        check(text)
        print(f"{time.perf_counter() - start:6.2f} s for {len(text):8} characters: {text[:60]!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
