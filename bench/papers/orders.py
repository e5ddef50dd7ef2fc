"""CorgiPile (Fig. 2, 12, 15, 18, 19, Table 3): validation accuracy by epoch for each order, with SGD and Adam.

    python bench/papers/orders.py [--data DIR] [--scale 4] [--only TASK] [--save]

Tables are sorted by label (clustered), or by the most informative feature (feature-ordered). Each order has 2 % of the
rows in memory, CorgiPile half of that for the blocks it drains and half for those it reads. Shuffle Once reads a
shuffled copy in storage order; Epoch Shuffle visits all rows in a new random order in each epoch.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile.datasets import higgs_like
from corgipile.orders import BlockOnly, CorgiPile, FullShuffle, NoShuffle, Order, Reservoir, Riffle, SlidingWindow

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Skip
from real import READERS, Split, dense

EPOCHS, SHARE, BLOCKS, SEEDS = 10, 50, 24, 3
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "higgs-like, logistic": ("higgs", "logistic", {"learning_rate": 0.005}),
    "higgs-like, svm": ("higgs", "svm", {"learning_rate": 0.002}),
    "skin, logistic": ("skin", "logistic", {"learning_rate": 0.02, "batch_size": 16}),
    "fashion_mnist, softmax": ("fashion_mnist", "softmax", {"learning_rate": 0.05, "batch_size": 64}),
    "protein, linear": ("protein", "linear", {"learning_rate": 0.01, "batch_size": 64}),
}
STEPS = {"SGD": {"step": "decay"}, "Adam": {"step": "adam", "learning_rate": 0.001}}


def higgs(rows: int) -> Split:
    """Make rows like HIGGS: two classes that overlap."""
    with tempfile.TemporaryDirectory() as work:
        train, test = Path(work) / "train.arrow", Path(work) / "test.arrow"
        higgs_like(train, rows, seed=3, test=test, test_rows=50_000)
        return Split.of_tables(train, test)


def splits(data: Path | None, scale: int) -> Iterator[tuple[str, Split]]:
    """Yield the rows of each task."""
    known: dict[str, Split] = {"higgs": higgs(200_000 // scale)}
    for task, (name, _, _) in TASKS.items():
        try:
            known[name] = known[name] if name in known else READERS[name](data)
        except Skip as reason:
            print(f"skip {name}: {reason}")
            continue
        yield task, known[name]


def by_feature(rows: pa.Table) -> pa.Table:
    """Sort by the feature with the highest correlation with the label."""
    y = rows["label"].to_numpy().astype(np.float64)
    x = rows["features"].combine_chunks().flatten().to_numpy().reshape(len(y), -1)
    spread = x.std(axis=0, dtype=np.float64) * y.std()
    shared = np.abs(((x - x.mean(axis=0)) * (y - y.mean())[:, None]).mean(axis=0)) / np.where(
        spread > 0, spread, np.inf
    )
    return rows.take(pa.array(np.argsort(x[:, int(shared.argmax())], kind="stable")))


def orders(rows: int) -> dict[str, Order]:
    """Return the orders by the paper's names."""
    memory = rows // SHARE
    block = max(1, min(100, memory // BLOCKS))
    count = memory // block
    return {
        "Shuffle Once": NoShuffle(),
        "Epoch Shuffle": FullShuffle(),
        "No Shuffle": NoShuffle(),
        "Sliding-Window": SlidingWindow(buffer=memory),
        "MRS": Reservoir(buffer=memory),
        "Block-Only": BlockOnly(block=block),
        "CorgiPile": CorgiPile(block=block, buffer=max(1, count // 2) * block),
        "Riffle": Riffle(block=block, buffer=count * block),
        "Riffle, balanced": Riffle(block=block, buffer=count * block, balance="label"),
    }


def curve(rows: pa.Table, test: pa.Table, order: Order, given: dict[str, Any], seeds: int) -> list[float]:
    """Return validation accuracy (or R2) after each epoch, in percent, averaged over seeds."""
    found = []
    for seed in range(seeds):
        model = cp.train(rows, test=test, order=order, memory=None, seed=seed, standardize=False, **given)
        name = f"test_{model.loss.score}"
        found.append([100 * float(record[name]) for record in model.history])
    return np.mean(found, axis=0).round(3).tolist()


def held_out(split: Split) -> pa.Table:
    """Return the validation rows as a table."""
    return dense(np.asarray(split.x_test), np.asarray(split.y_test))


def measure(task: str, stored: str, step: str, split: Split, rows: pa.Table, seeds: int) -> dict[str, Any]:
    """Run each order over one table."""
    _, kind, settings = TASKS[task]
    test = held_out(split)
    given = {"model": kind, "epochs": EPOCHS, **settings, **STEPS[step]}
    mixed = rows.take(pa.array(np.random.default_rng(0).permutation(len(rows))))
    curves = {
        name: curve(mixed if name == "Shuffle Once" else rows, test, order, given, seeds)
        for name, order in orders(len(rows)).items()
    }
    return {"task": task, "stored": stored, "step": step, "rows": len(rows), "seeds": seeds, "curves": curves}


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: the final accuracy of Shuffle Once, and the others' distance below it."""
    curves = result["curves"]
    goal = curves["Shuffle Once"][-1]
    cells = [f"{goal:.2f}", *(f"{curves[name][-1] - goal:+.2f}" for name in list(curves)[1:])]
    return f"| {result['task']} | {result['stored']} | {result['step']} | {' | '.join(cells)} |"


def main() -> None:
    """Run all tasks; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="tasks whose names contain this")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["task", "stored by", "step", *orders(SHARE * BLOCKS)])
    print("\n".join(lines), flush=True)
    for task, split in splits(given.data, given.scale):
        if given.only not in task:
            continue
        for stored, rows in (("label", split.train), ("feature", by_feature(split.train))):
            for step in STEPS:
                results.append(measure(task, stored, step, split, rows, given.seeds))
                lines.append(told(results[-1]))
                print(lines[-1], flush=True)
    if given.save:
        lines, results = figures.joined(
            "orders", lines, results, lambda one: (one["task"], one["stored"], one["step"]), told
        )
        panels = {(one["task"], f"by {one['stored']}, {one['step']}"): one["curves"] for one in results}
        figures.draw(
            panels, figures.save("orders", results, lines), across="epoch", up="accuracy or R2 of held-out rows, %"
        )


if __name__ == "__main__":
    main()
