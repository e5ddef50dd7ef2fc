"""A temporary PostgreSQL server with the extension and the measured tables."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from common import HERE, Skip, check
from pagecache import drop

import corgipile as cp
from corgipile import postgres
from corgipile.datasets import higgs_like
from corgipile.errors import CorgiPileError
from corgipile.tables import MemoryTable

try:
    import psycopg
except ImportError:
    psycopg = None

SETTINGS = {
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "autovacuum": "off",
    "synchronize_seqscans": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": 0,
}
POOL = (128 << 20) // 8192  # pages


class Database:
    """One connection to a server in a temporary folder; tables are made when first needed."""

    def __init__(self, rows: int) -> None:
        if psycopg is None:
            raise Skip("no psycopg here: pip install 'corgipile[pg]'")
        try:
            config = os.environ.get("PG_CONFIG")
            self.source = postgres.installed(config) if config else postgres.embedded()
        except CorgiPileError as error:
            raise Skip(str(error)) from error
        self.rows = rows
        self._room = tempfile.TemporaryDirectory(prefix="corgipile-bench-pg-")
        self.folder = Path(self._room.name)
        self.folder.chmod(0o755)  # where root runs the benchmark, somebody else runs the server
        self.server = postgres.Server(self.folder / "server")
        self.server.prepare(self.source)
        self._made: set[str] = set()
        self._start()

    def _start(self) -> None:
        self.server.start(settings=SETTINGS)
        self.connection = psycopg.connect(self.server.url, autocommit=True)

    def restart(self) -> None:
        """Empty shared buffers."""
        self.connection.close()
        self.server.stop()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.server.stop("immediate")
        self._room.cleanup()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return self.connection.execute(sql).fetchall()

    def run(self, sql: str) -> None:
        """Run a statement."""
        self.connection.execute(sql)

    def seconds(self, sql: str) -> float:
        """Return the seconds until a query's rows have arrived."""
        start = time.perf_counter()
        self.ask(sql)
        return time.perf_counter() - start

    def train(self, table: str, rows: int, epochs: int = 3, **options: Any) -> list[float]:
        """Train, check that each epoch saw each row, and return the seconds of each epoch."""
        start = time.perf_counter()
        found = self.ask(f"SELECT rows, seconds FROM {self._call(table, epochs, options)}")
        wall = time.perf_counter() - start
        check([row[0] for row in found] == [rows] * epochs, f"an epoch did not visit {rows} rows: {found}")
        seconds = [row[1] for row in found]
        check(sum(seconds) <= wall, "the epochs' seconds do not add up")
        return seconds

    def _call(self, table: str, epochs: int, options: dict[str, Any]) -> str:
        given = {"model": "logistic", "features": "features", "label": "label", "learning_rate": 0.005, **options}
        words = ", ".join(f'"{name}" => {_literal(value)}' for name, value in given.items())
        return f"corgipile.train('{table}', epochs => {epochs}, {words})"

    def epoch(self, table: str, rows: int, **options: Any) -> float:
        """Return the seconds of an epoch after the first."""
        return float(np.median(self.train(table, rows, **options)[1:]))

    def evicted(self, table: str, rows: int, epochs: int = 3, **options: Any) -> float:
        """Return the median seconds of an epoch with an uncached table."""
        files = self._files(table)
        query = f"SELECT rows, seconds FROM {self._call(table, epochs, options)}"
        with self.connection.transaction(), self.connection.cursor("epochs") as cursor:
            cursor.itersize = 1
            cursor.execute(query)
            found = [drop(*files) or cursor.fetchone() for _ in range(epochs)]
        check([row[0] for row in found] == [rows] * epochs, f"an epoch did not visit {rows} rows: {found}")
        return float(np.median([row[1] for row in found[1:]]))

    def _files(self, table: str) -> list[Path]:
        """Return the files of a table that is too large for a scan to leave in shared buffers."""
        ((path, pages),) = self.ask(f"SELECT pg_relation_filepath('{table}'), pg_relation_size('{table}') / 8192")
        if pages < POOL // 4:
            raise Skip("servers keep tables of less than a quarter of the pool in shared buffers")
        first = self.server.data / path
        return [first, *first.parent.glob(f"{first.name}.*")]

    def higgs(self, kind: str) -> str:
        """Make a label-sorted table of 28 features, real or double precision, and a validation set."""
        name = f"higgs_{kind}"
        if name not in self._made:
            arrow, test = self.folder / "train.arrow", self.folder / "test.arrow"
            if not arrow.exists():
                higgs_like(arrow, self.rows, seed=1, test=test)
                self._fill("held_out", cp.open(test))
            self._fill(name, cp.open(arrow) if kind == "real" else _doubled(arrow))
        return name

    def arrow(self) -> Path:
        """Return the file of the same rows."""
        self.higgs("real")
        return self.folder / "train.arrow"

    def wide(self, kind: str = "real") -> tuple[str, int]:
        """Make a label-sorted table of 2,000 features, stored in its TOAST table."""
        rows, name = max(1000, self.rows // 50), f"wide_{kind}"
        if name not in self._made:
            arrow = self.folder / "wide.arrow"
            higgs_like(arrow, rows, features=2000, seed=2)
            self._fill(name, cp.open(arrow) if kind == "real" else _doubled(arrow, 2000))
            arrow.unlink()
        return name, rows

    def sparse(self) -> tuple[str, int]:
        """Make a label-sorted table of rows with 39 nonzero features of 41,270, like click logs."""
        rows, nnz, width = self.rows // 2, 39, 41_270
        if "sparse" not in self._made:
            rng = np.random.default_rng(3)
            field = width // nnz
            index = (rng.random((rows, nnz)) ** 3 * field).astype(np.int32) + np.arange(nnz, dtype=np.int32) * field
            score = rng.standard_normal(width).astype(np.float32)[index].sum(axis=1)
            index = index[np.argsort(score > 0, kind="stable")]
            columns = {
                "idx": pa.FixedSizeListArray.from_arrays(pa.array(index.ravel()), nnz),
                "val": pa.FixedSizeListArray.from_arrays(pa.array(np.ones(index.size, np.float32)), nnz),
                "label": pa.array(np.sort(score > 0).astype(np.int32)),
            }
            self._fill("sparse", MemoryTable(pa.table(columns)))
        return "sparse", rows

    def shuffled(self, table: str) -> str:
        """Make a copy in random order."""
        name = f"{table}_shuffled"
        if name not in self._made:
            self.run(f"SELECT setseed(0.5); CREATE TABLE {name} AS SELECT * FROM {table} ORDER BY random()")
            self._settle(name)
        return name

    def aggregate(self) -> None:
        """Build the aggregates igd(features, label, rate) and total(features)."""
        headers = subprocess.run(
            [self.source.config, "--includedir-server"], check=True, capture_output=True, text=True
        ).stdout.strip()
        library = self.folder / "igd.so"
        words = ["-O3", "-march=native", "-ffast-math", "-fPIC", "-shared", f"-I{headers}"]
        subprocess.run([shutil.which("cc") or "gcc", *words, str(HERE / "igd.c"), "-o", str(library)], check=True)
        for kind in ("real", "double precision"):
            step = f"igd_step(float8[], {kind}[], int, float8)"
            self.run(f"CREATE OR REPLACE FUNCTION {step} RETURNS float8[] AS '{library}', 'igd_step' LANGUAGE C")
            self.run(f"CREATE OR REPLACE AGGREGATE igd({kind}[], int, float8) (SFUNC = igd_step, STYPE = float8[])")
            step = f"total_step(float8, {kind}[])"
            self.run(f"CREATE OR REPLACE FUNCTION {step} RETURNS float8 AS '{library}', 'total_step' LANGUAGE C STRICT")
            total = "SFUNC = total_step, STYPE = float8, INITCOND = '0'"
            self.run(f"CREATE OR REPLACE AGGREGATE total({kind}[]) ({total})")

    def _fill(self, name: str, table: Any) -> None:
        postgres.copy_table(self.connection, name, table)
        self._settle(name)

    def _settle(self, name: str) -> None:
        """Set hint bits and write the pages, so that measured runs need not."""
        self._made.add(name)
        self.run(f"VACUUM (FREEZE, ANALYZE) {name}")
        self.run("CHECKPOINT")


def _doubled(arrow: Path, width: int = 28) -> MemoryTable:
    """Return a table as double precision with random low digits, which PostgreSQL cannot compress."""
    table = pa.ipc.open_file(arrow).read_all()
    x = table["features"].combine_chunks().flatten().to_numpy().astype("f8")
    if width > 28:
        x *= 1 + 1e-9 * np.random.default_rng(4).random(len(x))
    features = pa.FixedSizeListArray.from_arrays(pa.array(x), width)
    return MemoryTable(pa.table({"features": features, "label": table["label"].cast(pa.int32())}))


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]"
    return f"'{value}'" if isinstance(value, str) else str(value)
