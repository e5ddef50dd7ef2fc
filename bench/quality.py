"""How well orders mix: deff and prefix discrepancy, measured from row numbers alone."""

import numpy as np
from common import Bench, alone, check
from content import TABLES, accuracy_part, cost_part, spread_part

from corgipile.orders import Blocks, CorgiPile, FullShuffle, Key, Order, Riffle, visited_rows
from corgipile.quality import coverage, deff, expected_deff_corgipile, h_d, prefix_discrepancy

BATCH, CLASSES = 256, 10
GRID = [(64, 16), (64, 64), (64, 256), (128, 32), (128, 128), (512, 16), (512, 64), (1024, 16), (1024, 64)]


def measure(order: Order, blocks: Blocks, labels: np.ndarray, epochs: int) -> tuple[float, float]:
    """Return mean deff and prefix discrepancy of some epochs; every row must be visited once in each."""
    fitted = order.fit(blocks.rows, 1.0, None)
    found = []
    for epoch in range(epochs):
        rows = np.concatenate(list(visited_rows(fitted, blocks, Key(3, epoch))))
        check(coverage(rows, blocks.rows).exact, f"{fitted.name} did not visit every row once")
        found.append((deff(labels[rows], BATCH), prefix_discrepancy(labels[rows])))
    means = np.mean(found, axis=0)
    return float(means[0]), float(means[1])


def formula_part(bench: Bench) -> None:
    """CorgiPile's deff against the formula, over block and buffer sizes; label-sorted, sizes that divide."""
    rows, epochs = 1 << 19, bench.pick(24, 8)
    labels = np.arange(rows) * CLASSES // rows
    off = []
    for block, count in GRID:
        blocks = Blocks(rows, even=block)
        found, _ = measure(CorgiPile(block=block, buffer=count * block), blocks, labels, epochs)
        spread = h_d(labels, np.append(np.arange(0, rows, block), rows))
        expected = expected_deff_corgipile(BATCH, count, block, blocks.count, spread)
        off.append(100 * abs(found / expected - 1))
        note = f"measured {found:.2f}, formula {expected:.2f}, h_D {spread:.1f}"
        bench.report(f"CorgiPile deff off the formula, {count} blocks of {block}", off[-1], "%", "", note)
    note = f"B = {BATCH}, {CLASSES} classes sorted, {epochs} epochs each"
    bench.report(f"CorgiPile deff off the formula, worst of {len(GRID)}", max(off), "%", "<= 10", note)


def mixing_part(bench: Bench) -> None:
    """Riffle and its balanced form at the memory of 128 blocks of 100 rows."""
    rows, block, epochs = 400_000, 100, bench.pick(40, 10)
    labels = np.arange(rows) * CLASSES // rows
    sketch = labels.reshape(-1, block).mean(axis=1)
    plain, known = Blocks(rows, even=block), Blocks(rows, even=block, sketch=sketch)
    buffer = 128 * block
    cases = {
        "full shuffle": (FullShuffle(), plain, "", ""),
        "CorgiPile": (CorgiPile(block=block, buffer=buffer // 2), plain, "", ""),
        "Riffle": (Riffle(block=block, buffer=buffer, group=1), plain, "<= 1.5", "<= 12"),
        "balanced Riffle": (Riffle(block=block, buffer=buffer, group=1, balance="label"), known, "<= 0.5", "<= 1.5"),
    }
    for name, (order, blocks, most, drift) in cases.items():
        found, prefix = measure(order, blocks, labels, epochs)
        held = order.fit(rows, 1.0, None).resident(blocks) / block
        note = f"{held:.0f} blocks in memory" if name != "full shuffle" else ""
        bench.report(f"{name}: deff, 10 classes sorted, B = {BATCH}", found, "", most, note)
        bench.report(f"{name}: prefix discrepancy", prefix, "", drift, note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("formula", formula_part)
    bench.part("mixing", mixing_part)
    for name in TABLES:
        for block in (256, 1000):
            if block == 256 or name in ("skin", "mixture"):  # the others have too few such blocks
                bench.part(f"content-{name}", lambda b, name=name, block=block: spread_part(b, name, block))
    for name in TABLES:
        for batch in (64, 1):
            bench.part(f"content-accuracy-{name}", lambda b, name=name, batch=batch: accuracy_part(b, name, batch))
    bench.part("content-cost", cost_part)


if __name__ == "__main__":
    alone("quality", main)
