"""CorgiPile (Fig. 14): validation accuracy by buffer size and block size, on label-sorted tables.

    python bench/papers/sizes.py [--data DIR] [--scale 4] [--save]

CorgiPile has half of the memory for the blocks it drains and half for those it reads, at least two blocks in all. A
cell shows how far the mean over seeds is below Shuffle Once after five epochs, and the largest distance after any of
them.
"""

from itertools import product
from typing import Any

import figures
import numpy as np
from orders import EPOCHS, TASKS, curve, held_out, splits

from corgipile.orders import CorgiPile, NoShuffle, Order, Riffle

SHARES, BLOCKS, SEEDS = (0.01, 0.02, 0.05, 0.1), (25, 100, 400), 3


def ways(rows: int, share: float, block: int) -> dict[str, Order]:
    """Return the orders with blocks of a given size, and a given share of all rows in memory."""
    count = max(2, int(rows * share) // block)
    return {
        "CorgiPile": CorgiPile(block=block, buffer=count // 2 * block),
        "Riffle": Riffle(block=block, buffer=count * block),
        "Riffle, balanced": Riffle(block=block, buffer=count * block, balance="label"),
    }


def main() -> None:
    """Run all sizes; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    names = list(ways(1000, 0.1, 10))
    lines = figures.head(["task", "block, rows", "memory", "blocks in it", "Shuffle Once", *names])
    print("\n".join(lines), flush=True)
    for task, split in splits(given.data, given.scale):
        _, kind, settings = TASKS[task]
        rows, test, how = split.train, held_out(split), {"model": kind, "epochs": EPOCHS // 2, **settings}
        mixed = rows.take(np.random.default_rng(0).permutation(len(rows)))
        goal = curve(mixed, test, NoShuffle(), how, given.seeds)
        for block, share in product(BLOCKS, SHARES):
            made = ways(len(rows), share, block)
            curves = {name: curve(rows, test, order, how, given.seeds) for name, order in made.items()}
            results.append({"task": task, "block": block, "share": share, "curves": {"Shuffle Once": goal, **curves}})
            below = [np.subtract(goal, found) for found in curves.values()]
            cells = [f"{one[-1]:.2f} ({np.abs(one).max():.2f})" for one in below]
            count = max(2, int(len(rows) * share) // block)
            lines.append(f"| {task} | {block} | {share:.0%} | {count} | {goal[-1]:.2f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if given.save:
        drawn = [one for one in results if one["block"] == BLOCKS[1]]
        panels = {(one["task"], f"{one['share']:.0%}, blocks of {one['block']}"): one["curves"] for one in drawn}
        figures.draw(panels, figures.save("sizes", results, lines), across="epoch", up="accuracy or R2, %")


if __name__ == "__main__":
    main()
