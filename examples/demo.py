"""Every order of the field on one label-sorted table larger than memory, and in PostgreSQL: what `make demo` shows.

Makes a seeded, higgs-like table of 1 million x 28 float32, sorted by label, and a held-out set in a temporary
folder, and trains logistic regression on it by each order: with 16 MB of memory, and with 1 MB. Every second row then
goes into a PostgreSQL server from PyPI, and the server trains.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from inside import train_inside

from corgipile.cli.compare import show
from corgipile.comparison import Result, compare
from corgipile.datasets import bayes_accuracy, higgs_like
from corgipile.sizes import parse_bytes


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
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
            share = parse_bytes(memory, whole=table.stat().st_size) / table.stat().st_size
            print(f"\nEvery order with {memory} of memory, {share:.1%} of the table, on one line each:\n", flush=True)
            results = compare(table, test=test, memory=memory, epochs=settings.epochs, callback=news)
            if sys.stdout.isatty():
                print("\r" + " " * 40 + "\r", end="")
            show(results, f"logistic, {settings.rows:,} rows, {settings.epochs} epochs, memory {memory}", held_out=True)
            print(conclusion(results, memory))
        print()
        train_inside(table, test, settings.epochs)
    return 0


def news(result: Result) -> None:
    """Say what has been run, where somebody looks."""
    if sys.stdout.isatty():
        print(f"\r  {result.order:<20}done", end="", flush=True)


def conclusion(results: Sequence[Result], memory: str) -> str:
    """Say what the comparison shows: what each way of having rows in random order costs, and brings."""
    found = {result.order: result for result in results if not result.failure}
    stored, once, best = found.get("no_shuffle"), found.get("shuffle_once"), found.get("balanced")
    if not (stored and once and best):
        return f"Conclusion: {memory} is too little for one of the orders compared here; see above."
    points = 100 * (best.score - once.score)
    return fill(
        f"Conclusion: in stored order the model is right {stored.score:.1%} of the time. Written once in random order "
        f"({once.setup_seconds:.1f} s, and a second copy) the table gives {once.score:.1%}. Balanced Riffle gives "
        f"{best.score:.1%} ({points:+.2f} points) from the table as it is, with {memory} of it in memory, "
        f"at {best.seconds / stored.seconds:.1f} x the time of reading in stored order.",
        width=80,
    )


if __name__ == "__main__":
    raise SystemExit(main())
