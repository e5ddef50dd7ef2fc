"""Training inside a PostgreSQL server from PyPI: `make demo-postgres`.

Copies half a million rows, sorted by label, into the server. Shows the plan, and trains there by each order.
"""

import tempfile
import time
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

import corgipile as cp
from corgipile import postgres
from corgipile.datasets import higgs_like
from corgipile.errors import CorgiPileError

# The server runs on this machine only: compiled for its CPU alone, the extension is there in a third of the time.
FLAGS = "-march=native -DCP_NO_CLONES"
ROWS, EPOCHS = 500_000, 5
BUFFER, SHARED = "4MB", "16MB"  # of buffered rows, and of the server's pages: both far below the table
CALL = (
    "corgipile.train('higgs', 'logistic', 'features', 'label', epochs => {epochs}, "
    "name => 'm', buffer_size => '{buffer}', {order})"
)
ORDERS = ("\"order\" => 'no_shuffle'", "\"order\" => 'corgipile'", "\"order\" => 'riffle'", "\"order\" => 'balanced'")


def main() -> int:
    """Make a table and train on it in a server."""
    with tempfile.TemporaryDirectory(prefix="corgipile-demo-") as folder:
        table, test = Path(folder) / "train.arrow", Path(folder) / "test.arrow"
        higgs_like(table, ROWS, test=test)
        return train_inside(table, test, EPOCHS)


def train_inside(table: Path, test: Path, epochs: int) -> int:
    """Start a server, copy a table into it and train there; return 1 if no server can be started."""
    with tempfile.TemporaryDirectory(prefix="corgipile-demo-pg-") as folder:
        Path(folder).chmod(0o755)  # another user runs the server for root
        server = postgres.Server(Path(folder) / "server")
        try:
            import psycopg  # noqa: PLC0415 - an extra

            start = time.perf_counter()
            source = postgres.embedded()
            server.prepare(source, FLAGS)
            server.start(settings={"fsync": "off", "max_wal_size": "2GB", "shared_buffers": SHARED})
            print(f"{source.name} from PyPI, extension compiled and started: {time.perf_counter() - start:.1f} s")
            with psycopg.connect(server.url, autocommit=True) as connection:
                show(connection, table, test, epochs)
        except (CorgiPileError, ImportError) as reason:
            print(f"PostgreSQL cannot be started: {reason}")
            return 1
        finally:
            server.stop("immediate")
    return 0


def show(connection: Any, table: Path, test: Path, epochs: int) -> None:
    """Copy the table; print the plan, and the accuracy and speed of each order."""
    start = time.perf_counter()
    count = postgres.copy_table(connection, "higgs", cp.open(table))
    seconds = time.perf_counter() - start
    size = connection.execute("SELECT pg_size_pretty(pg_table_size('higgs'))").fetchone()[0]
    print(f"{count:,} rows, sorted by label, {size}, copied in {seconds:.1f} s;")
    print(f"the server holds {SHARED} of pages (shared_buffers), training {BUFFER} of rows (buffer_size)")
    postgres.copy_table(connection, "held_out", cp.open(test))
    call = CALL.format(epochs=epochs, buffer=BUFFER, order=ORDERS[2])
    print("\n" + fill(f"EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM {call};", width=80, subsequent_indent="    "))
    for (line,) in connection.execute(f"EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM {call}"):
        print(f"  {line}")
    print(f"\n{'':24}{'test accuracy':>14}{'s/epoch':>10}{'rows/s':>10}")
    scores = []
    for order in ORDERS:
        epoch = connection.execute(
            f"SELECT rows, seconds FROM {CALL.format(epochs=epochs, buffer=BUFFER, order=order)}"
        ).fetchall()
        right = "SELECT avg((corgipile.predict('m', features) = label)::int) FROM held_out"
        share, seconds = connection.execute(right).fetchone()[0], float(np.median([row[1] for row in epoch]))
        print(f"  {order:<22}{share:>14.2%}{seconds:>10.3f}{epoch[0][0] / seconds / 1e6:>8.1f} M")
        scores.append(float(share))
    print("test accuracy: of the model after the last epoch, on held-out rows; s/epoch: the median.")
    conclusion = (
        f"Conclusion: inside the server the stored order gives {scores[0]:.1%}, balanced Riffle {scores[-1]:.1%}, "
        f"from a table of {size}, with {BUFFER} of rows and {SHARED} of pages in memory."
    )
    print(fill(conclusion, width=80))


if __name__ == "__main__":
    raise SystemExit(main())
