"""CorgiPile (Fig. 7, 11, 16): validation accuracy by seconds from the clustered table on, including the shuffle.

    python bench/papers/end_to_end.py [--data DIR] [--scale 4] [--save]

Shuffle Once first writes a shuffled copy and then reads it in storage order. The copy takes two sequential passes
(`corgipile.reshuffle`), or, as in databases, a sort by a random key that reads rows one by one. The others train on the
table as stored: sorted by its label, or by its most informative feature. All have the same memory, a twentieth of the
table, and the same learning rate; files are dropped from the page cache before each run.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa
from orders import by_feature, held_out

import corgipile as cp
from corgipile.datasets import higgs_like
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Order, Riffle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Skip
from pagecache import drop
from real import READERS, Split

EPOCHS, SHARE, BLOCK, ROWS = 8, 20, 100, 1_000_000
GOAL = 0.3  # points below what the copy ends at: when are the others there?
RATES = {"logistic": {"learning_rate": 0.005}, "softmax": {"learning_rate": 0.05, "batch_size": 64}}


def tables(data: Path | None, scale: int) -> Iterator[tuple[str, str, pa.Table, pa.Table]]:
    """Yield name, model, training rows and validation rows."""
    with tempfile.TemporaryDirectory() as work:
        train, test = Path(work) / "train.arrow", Path(work) / "test.arrow"
        higgs_like(train, ROWS // scale, seed=3, test=test, test_rows=50_000)
        split = Split.of_tables(train, test)
    yield "higgs-like, by label", "logistic", split.train, held_out(split)
    yield "higgs-like, by feature", "logistic", by_feature(split.train), held_out(split)
    try:
        split = READERS["fashion_mnist"](data)
    except Skip as reason:
        print(f"skip fashion_mnist: {reason}")
        return
    yield "fashion_mnist, by label", "softmax", split.train, held_out(split)


def sorted_by_key(source: Path, target: Path) -> None:
    """Write a copy in the order of a random key, reading rows one by one."""
    table = cp.open(source)
    order = np.random.default_rng(0).permutation(len(table))
    batches = (table.take(order[at : at + 4096]) for at in range(0, len(order), 4096))
    cp.convert(pa.RecordBatchReader.from_batches(table.schema, batches), target)


def twice(source: Path, target: Path) -> None:
    """Write a copy shuffled in two passes."""
    cp.reshuffle(source, target, seed=0)


def ways(rows: int) -> dict[str, tuple[Callable[[Path, Path], None] | None, Order]]:
    """Return the ways to read rows by name: the copy that is written first, and the order of reading."""
    memory = rows // SHARE // BLOCK * BLOCK
    return {
        "Shuffle Once, two passes": (twice, NoShuffle()),
        "Shuffle Once, by random key": (sorted_by_key, NoShuffle()),
        "Epoch Shuffle": (None, FullShuffle(buffer=memory)),
        "No Shuffle": (None, NoShuffle()),
        "CorgiPile": (None, CorgiPile(block=BLOCK, buffer=memory // 2)),
        "Riffle": (None, Riffle(block=BLOCK, buffer=memory)),
        "Riffle, balanced": (None, Riffle(block=BLOCK, buffer=memory, balance="label")),
    }


def curve(path: Path, before: Any, order: Order, kind: str, test: pa.Table) -> dict[str, list[float]]:
    """Return seconds and accuracy after each epoch, without the time of measuring."""
    drop(path)
    start, copy = time.perf_counter(), path.with_name("copy.arrow")
    if before is not None:
        copy.unlink(missing_ok=True)
        before(path, copy)
    written = time.perf_counter() - start
    how = {"epochs": EPOCHS, "order": order, "memory": None, "standardize": False, "step": "decay", **RATES[kind]}
    model = cp.train(path if before is None else copy, model=kind, test=test, **how)
    spent = written + np.cumsum([record["seconds"] for record in model.history])
    scores = [100 * float(record["test_accuracy"]) for record in model.history]
    return {"seconds": spent.round(4).tolist(), "scores": scores, "written": [round(written, 4)]}


def measure(name: str, kind: str, rows: pa.Table, test: pa.Table, work: Path) -> dict[str, Any]:
    """Run each way over one table."""
    path = work / "rows.arrow"
    cp.convert(rows, path, overwrite=True)
    found = {way: curve(path, *how, kind, test) for way, how in ways(len(rows)).items()}
    goal = found["Shuffle Once, two passes"]["scores"][-1] - GOAL
    for one in found.values():
        pairs = zip(one["seconds"], one["scores"], strict=True)
        one["there"] = [next((seconds for seconds, score in pairs if score >= goal), float("inf"))]
    return {"table": name, "rows": len(rows), "goal": goal, "ways": found}


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: seconds to the goal, and the best accuracy."""
    cells = []
    for one in result["ways"].values():
        there = one["there"][0]
        cells.append(f"{'never' if there == float('inf') else f'{there:.2f} s'} ({max(one['scores']):.1f})")
    return f"| {result['table']} | {result['goal']:.1f} | {' | '.join(cells)} |"


def main() -> None:
    """Run all tables; print the results, and save them if requested."""
    given = figures.arguments(__doc__ or "").parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["table", "goal, %", *(f"{way}: seconds to it (best)" for way in ways(ROWS))])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-end-") as work:
        for name, kind, rows, test in tables(given.data, given.scale):
            results.append(measure(name, kind, rows, test, Path(work)))
            lines.append(told(results[-1]))
            print(lines[-1], flush=True)
    if given.save:
        path = figures.save("end_to_end", results, lines)
        figures.lines(
            {
                (one["table"], "the shuffle included"): {
                    way: (found["seconds"], found["scores"]) for way, found in one["ways"].items()
                }
                for one in results
            },
            path,
            across="seconds",
            up="accuracy of held-out rows, %",
        )


if __name__ == "__main__":
    main()
