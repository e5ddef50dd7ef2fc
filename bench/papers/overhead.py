"""CorgiPile (Fig. 13): seconds per epoch with a single and a double buffer, against storage order.

    python bench/papers/overhead.py [--scale 4] [--save]

A linear model trains on a label-sorted table, warm and cold (dropped from the page cache before each epoch). The buffer
is a tenth of the table; a double buffer reads the next tenth concurrently, and so takes twice the memory.
"""

import logging
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures

import corgipile as cp
from corgipile.datasets import higgs_like
from corgipile.orders import CorgiPile, NoShuffle, Order, Riffle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import check
from pagecache import drop

ROWS, FEATURES, ROUNDS, BLOCK = 2_000_000, (28, 256), 5, 1 << 20
KINDS = ("logistic", "svm")
logging.getLogger("corgipile").setLevel(logging.ERROR)  # that a sorted table teaches nothing is known


def orders(rows: int, width: int) -> dict[str, Order]:
    """Return the orders by name."""
    block = max(1, BLOCK // width)
    buffer = max(1, rows // 10 // block) * block
    return {
        "No Shuffle": NoShuffle(),
        "CorgiPile, single buffer": CorgiPile(block=block, buffer=buffer, ahead=0),
        "CorgiPile, double buffer": CorgiPile(block=block, buffer=buffer),
        "Riffle": Riffle(block=block, buffer=buffer),
        "Riffle, balanced": Riffle(block=block, buffer=buffer, balance="label"),
    }


def seconds(path: Path, kind: str, order: Order, rows: int, *, cold: bool) -> float:
    """Return the seconds per epoch: the median of those after the first, or of the only one over a cold file."""
    if cold:
        drop(path)
    epochs = 1 if cold else 4
    model = cp.train(cp.open(path), model=kind, epochs=epochs, order=order, memory=None, step="decay", classes=[0, 1])
    check(all(record["rows"] == rows for record in model.history), "rows are missing")
    return statistics.median(float(record["seconds"]) for record in model.history[epochs > 1 :])


def measure(path: Path, kind: str, rows: int, features: int, *, cold: bool) -> dict[str, Any]:
    """Return the median seconds of each order; the orders alternate."""
    ways = orders(rows, 4 * features + 4)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            found[name].append(seconds(path, kind, ways[name], rows, cold=cold))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {"kind": kind, "features": features, "rows": rows, "cold": cold, "seconds": medians}


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: seconds of No Shuffle, and the others' extra time."""
    least = result["seconds"]["No Shuffle"]
    cells = [f"{value / least - 1:+.1%}" for value in list(result["seconds"].values())[1:]]
    which = f"{result['rows']:,} x {result['features']} | {result['kind']} | {'cold' if result['cold'] else 'warm'}"
    return f"| {which} | {least:.3f} s | {' | '.join(cells)} |"


def main() -> None:
    """Measure all tables; print the results, and save them if requested."""
    given = figures.arguments(__doc__ or "").parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["table", "model", "file", *orders(ROWS, 116)])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-overhead-") as work:
        for features in FEATURES:
            rows, path = ROWS * 28 // features // given.scale, Path(work) / f"{features}.arrow"
            higgs_like(path, rows, features=features, seed=1)
            for kind in KINDS:
                for cold in (False, True):
                    results.append(measure(path, kind, rows, features, cold=cold))
                    lines.append(told(results[-1]))
                    print(lines[-1], flush=True)
    if given.save:
        path = figures.save("overhead", results, lines)
        bars = {
            (f"{one['rows']:,} x {one['features']}, {'cold' if one['cold'] else 'warm'}", one["kind"]): one["seconds"]
            for one in results
        }
        figures.bars(bars, path, up="seconds of an epoch")


if __name__ == "__main__":
    main()
