"""Every statement and Python read a file to the same rows, types and models."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt
import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import UnknownFormat
from corgipile.sql import connect


def text(header, line, rows=120):
    """Write a text file whose lines are a function of the row number."""
    return (header + "\n" + "".join(line(at) + "\n" for at in range(rows))).encode()


def label(at):
    return int(at * 7 % 5 > 2)


def of(values, sep=","):
    """Write a CSV file with one column, a number and a label."""
    return text(sep.join("axy"), lambda at: sep.join([str(values[at % len(values)]), str(at % 7), str(label(at))]))


DAYS = [dt.timedelta(days=at, seconds=at) for at in range(5)]
FILES = {
    "namibia.csv": of(["NA", "NO", "SE"]),
    "nulls.csv": of(["null", "NULL", "x"]),
    "nan.csv": of(["nan", "NaN", "x"]),
    "none.csv": of(["None", "N/A", "x"]),
    "missing.csv": of(["NA", 1, 2, 3]),
    "empty.csv": of(["", 1, 2, 3]),
    "zeros.csv": of(["01", "02", "10"]),
    "plus.csv": of(["+1.5", "-2", "3"]),
    "exponent.csv": of(["1e3", "2E-2", "3"]),
    "truths.csv": of(["t", "f"]),
    "yes.csv": of(["yes", "no"]),
    "boolean.csv": of(["true", "false"]),
    "upper.csv": of(["TRUE", "FALSE"]),
    "dates.csv": of(["2024-01-02", "2023-05-06"]),
    "german.csv": of(["02.01.2024", "06.05.2023"]),
    "slashes.csv": of(["01/02/2024", "05/06/2023"]),
    "times.csv": of(["2024-01-02 03:04:05", "2023-05-06 07:08:09"]),
    "zones.csv": of(["2024-01-02T03:04:05Z", "2023-05-06T07:08:09+02:00"]),
    "clock.csv": of(["12:30:00", "01:02:03"]),
    "spans.csv": of(["1 days 00:00:05", "0 days 12:00:00"]),
    "large.csv": of([2**53 + 1, 2**62, 5]),
    "money.csv": of(["1.10", "2.20"]),
    "hex.csv": of(["0x10", "0x20"]),
    "blanks.csv": of([" a", "b "]),
    "infinite.csv": of(["inf", "-inf", "1"]),
    "quoted.csv": of(['"a,b"', '"say ""x"""', '""']),
    "lines.csv": of(['"a\nb"', "c"]),
    "bom.csv": b"\xef\xbb\xbf" + of(["1", "2"]),
    "crlf.csv": of(["a", "b"]).replace(b"\n", b"\r\n"),
    "tabs.tsv": of(["NA", "b c"], "\t"),
    "semicolons.csv": of(["1,5", "2,5"], ";"),
    "pipes.csv": of(["a", "NA"], "|"),
    "numbers.csv": text("1,2,y", lambda at: f"{at},{at % 7},{label(at)}"),
    "words.csv": text("a,x,y", lambda at: f"{'word' if at > 60 else at},{at % 7},{label(at)}"),
    "packed.csv.gz": gzip.compress(of(["NA", "NO"])),
    "rows.jsonl": text("", lambda at: json.dumps({"a": ["NA", None][at % 2], "x": at % 7, "y": label(at)}))[1:],
    "dates.json": text("", lambda at: json.dumps({"a": f"2024-01-0{at % 3 + 1}", "x": at, "y": label(at)}))[1:],
    "hive/k=01/a.csv": of(["p", "q"]),
    "hive/k=02/a.csv": of(["p", "r"]),
    "spans.parquet": pa.array((DAYS * 24)[:120]),
    "categories.parquet": pa.array(["b", "a", None] * 40).dictionary_encode(),
    "halves.parquet": pa.array([0.5, 1.5] * 60, pa.float16()),
    "plain.parquet": pa.array([0.25, 1.5] * 60),
    "milli.parquet": pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.UTC)] * 120, pa.timestamp("ms", "Europe/Oslo")),
}
NAMED = [*(name for name in FILES if not name.startswith("hive")), "hive", "hive/*/a.csv"]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    made, here = tmp_path_factory.mktemp("files"), Path.cwd()
    for name, content in FILES.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            more = {"x": [at % 7 for at in range(120)], "y": [label(at) for at in range(120)]}
            pq.write_table(pa.table({"a": content, **more}), path)
    os.chdir(made)
    yield made
    os.chdir(here)


def rows_of(sql, script):
    return [tuple(map(str, row)) for row in sql.execute(script).fetchall()]


@pytest.mark.parametrize("name", NAMED)
def test_train_predict_and_evaluate_read_a_file_alike(name):
    try:
        table = cp.open(name)
    except UnknownFormat:  # a format that only DuckDB reads
        table = None
    kinds = [] if table is None else table.schema.types
    encode = (
        "onehot"
        if any(pa.types.is_string(kind) or pa.types.is_dictionary(kind) for kind in kinds) or table is None
        else None
    )
    how = {"epochs": 2, "missing": "mean", "encode": encode, "order": "no_shuffle"}
    with connect() as sql:
        given = "epochs = 2, missing = 'mean', order = 'no_shuffle'" + (f", encode = '{encode}'" if encode else "")
        ways = [f"FROM '{name}'", f"WITH c AS (SELECT * FROM (SELECT * FROM '{name}')) FROM c"]
        trained, failed = [], []
        for way in ways:
            try:
                found = sql.execute(f"{way} TRAIN BY logistic WITH label = y, {given} INTO m").arrow()
                trained.append(str(found.drop_columns(["seconds"]).to_pydict()))
                weights = sql.execute("SELECT weight FROM ML.WEIGHTS(MODEL m)").fetchall()
                evaluated = [
                    rows_of(sql, f"SELECT * FROM ML.EVALUATE(MODEL m, {one})")
                    for one in (f"TABLE '{name}'", f"(FROM '{name}')")
                ]
                predicted = [
                    [row[-1] for row in rows_of(sql, f"{one} PREDICT BY m AS p")]
                    for one in (f"SELECT * FROM '{name}'", f"SELECT * FROM (FROM '{name}' WHERE x > -1)")
                ]
                predicted.append([row[0] for row in rows_of(sql, f"FROM ML.PREDICT(MODEL m, TABLE '{name}')")])
                trained[-1] += f"{weights} {evaluated[0]} {predicted[0]}"
                assert evaluated[0] == evaluated[1]
                assert predicted[0] == predicted[1] == predicted[2]
            except cp.errors.CorgiPileError as error:
                failed.append(type(error))
        assert len(set(trained)) <= 1
        assert len(trained) == 2 or failed == failed[:1] * 2, (failed, trained)
        if trained and table is not None:
            features = [one for one in table.schema.names if one != "y"]
            model = cp.train(name, label="y", features=features, **how)
            assert [row[0] for row in weights] == [*model.coef[0].tolist(), *model.intercept.tolist()]
            assert [float(one) for one in predicted[0]] == model.predict(name).tolist()


def test_every_statement_that_names_a_file_reads_it_alike(tmp_path):
    wanted = cp.open("namibia.csv").read(0, 120).to_pydict()
    with connect(str(tmp_path / "d.duckdb")) as sql:
        ask = lambda script: sql.execute(script).arrow().to_pydict()  # noqa: E731
        for script in (
            "FROM 'namibia.csv'", 'SELECT * FROM "namibia.csv"', "SELECT * FROM namibia.csv", "TABLE 'namibia.csv'",
            "SELECT * FROM ((FROM 'namibia.csv')) AS s", "WITH c AS (FROM 'namibia.csv') FROM c",
            "SELECT n.* FROM 'tabs.tsv' t POSITIONAL JOIN 'namibia.csv' n",
        ):  # fmt: skip
            assert ask(script) == wanted, script
        assert ask("SELECT (SELECT count(*) FROM 'namibia.csv' WHERE a = 'NO') AS n FROM 'tabs.tsv' LIMIT 1") == {
            "n": [40]
        }
        sql.execute("CREATE TABLE t AS SELECT * FROM 'namibia.csv'")
        sql.execute("CREATE VIEW v AS SELECT * FROM 'namibia.csv'")
        sql.execute("CREATE VIEW w AS SELECT * FROM v; CREATE MACRO m() AS TABLE SELECT * FROM 'namibia.csv'")
        for name in ("t", "v", "main.w", "m()"):
            assert ask(f"FROM {name}") == wanted, name
        sql.execute("PREPARE p AS FROM 'namibia.csv' WHERE a = $1")
        assert len(ask("EXECUTE p('NO')")["a"]) == 40
        with pytest.raises(cp.errors.CorgiPileError, match="no_such"):
            ask("FROM 'no_such.csv'")
        sql.execute('CREATE TABLE "namibia.csv" AS SELECT 7 AS z')
        assert ask("FROM 'namibia.csv' WHERE z > 1") == {"z": [7]}
        sql.execute('DROP TABLE "namibia.csv"')
    with connect(str(tmp_path / "d.duckdb")) as sql:
        assert sql.execute("FROM w").arrow().to_pydict() == wanted


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "t.csv"
    with connect() as sql:
        for count in (3, 5):
            path.write_text("x\n" + "1\n" * count)
            assert sql.execute(f"SELECT count(*) FROM '{path}' WHERE x > 0").fetchone() == (count,)
