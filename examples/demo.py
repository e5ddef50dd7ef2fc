"""Every order of the field on one label-sorted table larger than memory, and in PostgreSQL: what `make demo` shows.

Makes a seeded, higgs-like table of 2 million x 28 float32, sorted by label, and a held-out set in a temporary
folder, and trains logistic regression on it by each order: with 16 MB of memory, and with 1 MB. Every fourth row then
goes into a PostgreSQL server from PyPI, and the server trains.
"""

import argparse
import tempfile
import time
from pathlib import Path

from inside import train_inside

from corgipile.cli import main as corgipile
from corgipile.datasets import bayes_accuracy, higgs_like


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", nargs="+", default=["16MB", "1MB"])
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corgipile-demo-") as folder:
        table, test = Path(folder) / "train.arrow", Path(folder) / "test.arrow"
        start = time.perf_counter()
        higgs_like(table, settings.rows, test=test)
        size = table.stat().st_size / 2**20
        print(f"{settings.rows:,} rows x 28 float32, sorted by label: {size:.0f} MB", end=" ")
        print(f"({time.perf_counter() - start:.1f} s to make); the best model is right {bayes_accuracy():.1%}")
        for memory in settings.memory:
            words = ["compare", str(table), "--test", str(test), "--memory", memory, "--epochs", str(settings.epochs)]
            print()
            if code := corgipile(words):
                return code
        print()
        train_inside(table, test, settings.epochs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
