"""SQL: training and prediction on DuckDB against its own fetching and Python, and prediction on PostgreSQL."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Bench, alone, check, child, interleave, median, rate, ratio
from data import higgs
from database import Database

import corgipile as cp
from corgipile.losses import NAMES, loss_of
from corgipile.sql import connect

SETTINGS = "learning_rate = 0.01, standardize = false"
EPOCHS, BATCH = 5, 1 << 16
LIMIT, BUDGET = 200, 64  # MB


def timed(run: Any) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def database(bench: Bench, rows: int) -> tuple[Path, str]:
    """Make a DuckDB table from an Arrow file; return both."""
    arrow, path = higgs(bench.work, rows, 28), bench.work / f"higgs-{rows}x28.duckdb"
    if not path.exists():
        with duckdb.connect(str(path)) as made:
            table = cp.open(str(arrow))
            schema = table.read(0, 0).schema
            for start in range(0, rows, BATCH * 8):
                made.register("part", table.read(start, min(start + BATCH * 8, rows)))
                made.execute("CREATE TABLE IF NOT EXISTS t AS FROM part LIMIT 0; INSERT INTO t FROM part")
            check(made.sql("SELECT count(*) FROM t").fetchall() == [(rows,)], f"the table of {schema}")
    return path, str(arrow)


def training_part(bench: Bench) -> None:
    """Compare epochs on a DuckDB table with fetching it, and with each other."""
    rows = bench.table_rows(4_000_000, 200_000)
    path, arrow = database(bench, rows)
    with connect(path) as sql:
        raw = sql.engine.session.connection

        def fetch() -> float:
            return timed(
                lambda: check(sum(b.num_rows for b in raw.sql("FROM t").to_arrow_reader(BATCH)) == rows, "rows")
            )

        def train(order: str, epochs: int = EPOCHS) -> float:
            script = f'SELECT * FROM t TRAIN BY logistic WITH epochs = {epochs}, "order" = {order}, {SETTINGS} INTO m'
            return timed(lambda: sql.execute(script)) / epochs

        cases = {
            "fetch": fetch,
            "auto": lambda: train("auto"),
            "riffle": lambda: train("riffle"),
            "no_shuffle": lambda: train("no_shuffle"),
            "one epoch": lambda: train("auto", 1),
        }
        times = interleave(cases, bench.few)
        train("auto")
        model = sql.engine.models.find("m").model
        python = cp.train(arrow, epochs=EPOCHS, learning_rate=0.01, standardize=False)
        check(bool((model.coef == python.coef).all()), "the model of DuckDB is not that of Python")
    for name, label, target in (
        ("auto", f"an epoch of {EPOCHS}, the reading included, default order", "<= 1.5"),
        ("riffle", f"an epoch of {EPOCHS}, the reading included, riffle unbalanced", ""),
        ("one epoch", "a training of one epoch", ""),
    ):
        value, spread = ratio(times, name, "fetch")
        note = f"{rate(rows, median(times[name]))}, fetched {rate(rows, median(times['fetch']))} ({spread})"
        bench.report(f"DuckDB table, 28 x FLOAT[28], {label} / fetching it as Arrow", value, "x", target, note)
    for name, target in (("auto", "<= 1.25"), ("riffle", "")):
        value, spread = ratio(times, name, "no_shuffle")
        bench.report(f"DuckDB table, {name} / no_shuffle, {EPOCHS} epochs", value, "x", target, spread)


def file_part(bench: Bench) -> None:
    """Compare a Parquet file named by FROM with Python's train on it."""
    rows = bench.table_rows(4_000_000, 200_000)
    arrow, path = higgs(bench.work, rows, 28), bench.work / f"higgs-{rows}x28.parquet"
    if not path.exists():
        pq.write_table(_table(arrow, rows), path)
    with connect() as sql:
        script = f"SELECT * FROM '{path}' TRAIN BY logistic WITH epochs = 2, {SETTINGS} INTO m"
        given = {"epochs": 2, "learning_rate": 0.01, "standardize": False}
        cases = {
            "sql": lambda: timed(lambda: sql.execute(script)),
            "python": lambda: timed(lambda: cp.train(str(path), **given)),
        }
        times = interleave(cases, bench.few)
        same = sql.engine.models.find("m").model.coef == cp.train(str(path), **given).coef
        check(bool(same.all()), "the model of SQL is not that of Python")
    value, spread = ratio(times, "sql", "python")
    bench.report("Parquet file in FROM / Python's train on it, 2 epochs", value, "x", "<= 1.05", spread)


def _table(path: Path, rows: int) -> Any:
    return pa.Table.from_batches([cp.open(str(path)).read(0, rows)])


def prediction_part(bench: Bench) -> None:
    """Measure rows predicted per second: streamed to Python, and into a table."""
    rows = bench.table_rows(4_000_000, 200_000)
    path, arrow = database(bench, rows)
    with connect(path) as sql:
        sql.execute(f"SELECT * FROM t TRAIN BY logistic WITH epochs = 1, {SETTINGS} INTO m")
        expected = int(sql.engine.models.find("m").model.predict(arrow).sum())

        def streamed() -> float:
            start, found = time.perf_counter(), 0.0
            for batch in sql.execute("SELECT * FROM t PREDICT BY m").reader():
                found += np.asarray(batch["prediction"]).sum()
            check(int(found) == expected, "predictions")
            return time.perf_counter() - start

        cases = {
            "SELECT": streamed,
            "CREATE TABLE AS": lambda: timed(
                lambda: sql.execute("CREATE OR REPLACE TEMP TABLE p AS SELECT label FROM t PREDICT BY m")
            ),
        }
        times = interleave(cases, bench.few)
    for name, seconds in times.items():
        value = rows / median(seconds) / 1e6
        bench.report(f"DuckDB, {name} ... PREDICT BY, FLOAT[28]", value, "M/s", ">= 3", f"{rows} rows")


def postgres_part(bench: Bench) -> None:
    """Measure rows predicted per second by one backend of PostgreSQL."""
    rows = bench.table_rows(1_000_000, 100_000)
    with Database(rows) as data:
        table = data.higgs("real")
        with connect(data.server.url) as sql:
            sql.execute(f"SELECT features, label FROM {table} TRAIN BY logistic WITH epochs = 1 INTO m")
            script = f"CREATE TEMP TABLE p AS SELECT label FROM {table} PREDICT BY m; DROP TABLE p"
            times = interleave({"predict": lambda: timed(lambda: sql.execute(script))}, bench.few)
    value = rows / median(times["predict"]) / 1e6
    bench.report(
        "PostgreSQL, CREATE TABLE AS ... PREDICT BY, 28 x real[], one backend", value, "M/s", ">= 1", f"{rows} rows"
    )


def equal_part(bench: Bench) -> None:
    """Check that equal rows, order and seed give equal models, for each loss, in Python and in DuckDB."""
    rows, equal = bench.table_rows(100_000, 5_000), 0
    arrow = higgs(bench.work, rows, 28)
    with connect() as sql:
        sql.engine.session.connection.register("given", _table(arrow, rows))
        sql.execute("CREATE TABLE t AS FROM given")
        for name in NAMES:
            kind = {"quantile": "quantile:0.9", "huber": "huber:1.35"}.get(name, name)
            for order in ("auto", "riffle", "corgipile", "no_shuffle"):
                script = (
                    f'SELECT * FROM t TRAIN BY {kind} WITH epochs = 2, seed = 7, "order" = {order}, {SETTINGS} INTO m'
                )
                sql.execute(script)
                python = cp.train(
                    str(arrow), model=kind, epochs=2, seed=7, order=order, learning_rate=0.01, standardize=False
                )
                found = sql.engine.models.find("m").model
                equal += bool((found.coef == python.coef).all() and (found.intercept == python.intercept).all())
                check(loss_of(kind).name == loss_of(found.kind).name, "the loss")
    tried = 4 * len(NAMES)
    note = "all losses, four orders; those of PostgreSQL are compared by tests/sql/test_engines.py and tests/postgres"
    bench.report("models of DuckDB that are bit for bit those of Python", 100 * equal / tried, "%", ">= 100", note)


def memory_part(bench: Bench) -> None:
    """Measure the memory of a training process, beyond that of a tiny training."""
    rows = bench.table_rows(4_000_000, 200_000)
    path, _ = database(bench, rows)
    grown = child("sql.py", str(path))["grown"]
    note = f"{rows} rows, {LIMIT} MB given to DuckDB, {BUDGET} MB to the training"
    bench.report("memory of a training / what was given", grown / (LIMIT + BUDGET), "x", "<= 1", note)


def grow(path: str) -> None:
    """Print by how many MB a training has grown this process."""

    def peak() -> int:
        status = Path("/proc/self/status").read_text()  # what getrusage says may be that of the process that forked
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10

    with tempfile.TemporaryDirectory() as folder, connect(Path(folder) / "few.duckdb") as sql:
        sql.execute("CREATE TABLE t AS SELECT [i, 1]::FLOAT[2] AS features, i % 2 AS label FROM range(100) r (i)")
        sql.execute("SELECT * FROM t TRAIN BY logistic WITH epochs = 1")
    before = peak()
    with connect(path, memory_limit=f"{LIMIT}MB") as sql:
        sql.execute(f"SELECT * FROM t TRAIN BY logistic WITH epochs = 2, memory = {BUDGET}MB, {SETTINGS}")
    print(json.dumps({"grown": peak() - before}))


def main(bench: Bench) -> None:
    """Run all parts.

    Machine learning extensions of DuckDB are not compared, since they come from DuckDB's repository, not from a package
    index. An aggregate like MADlib's is compared in the theme ``postgres``.
    """
    for name, part in (
        ("training", training_part),
        ("file", file_part),
        ("prediction", prediction_part),
        ("equal", equal_part),
        ("memory", memory_part),
        ("postgres", postgres_part),
    ):
        bench.part(name, part)


if __name__ == "__main__":
    if "--child" in sys.argv:
        grow(sys.argv[-1])
    else:
        alone("sql", main)
