"""LIRS (Fig. 3): accuracy of a shuffle queue, as TensorFlow's input pipeline has, by its size.

    python bench/papers/lirs_queue.py [--data DIR] [--scale 4] [--save]

A queue holds a share of the rows, and each step visits a random one of them. Tables are sorted by label, or mixed. A
cell shows how far the final accuracy is below that of a full shuffle per epoch, and after how many epochs the full
shuffle was at least as good (1 of 5 is best for LIRS).
"""

from typing import Any

import figures
import numpy as np
from orders import EPOCHS, TASKS, curve, held_out, splits

from corgipile.orders import FullShuffle, SlidingWindow

SHARES, SEEDS = (0.01, 0.1, 0.33, 0.67, 1.0), 3


def main() -> None:
    """Run all sizes; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["task", "stored", "full shuffle", *(f"queue of {share:.0%}" for share in SHARES)])
    print("\n".join(lines), flush=True)
    for task, split in splits(given.data, given.scale):
        _, kind, settings = TASKS[task]
        test, how = held_out(split), {"model": kind, "epochs": EPOCHS // 2, **settings}
        mixed = split.train.take(np.random.default_rng(0).permutation(len(split.train)))
        for stored, rows in (("by label", split.train), ("mixed", mixed)):
            goal = curve(rows, test, FullShuffle(), how, given.seeds)
            sizes = {share: max(2, int(len(rows) * share)) for share in SHARES}
            curves = {
                f"{share:.0%}": curve(rows, test, SlidingWindow(buffer=size), how, given.seeds)
                for share, size in sizes.items()
            }
            results.append({"task": task, "stored": stored, "curves": {"full shuffle": goal, **curves}})
            cells = [f"{goal[-1] - found[-1]:.2f} ({first(goal, found[-1])})" for found in curves.values()]
            lines.append(f"| {task} | {stored} | {goal[-1]:.2f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if given.save:
        panels = {(one["task"], one["stored"]): one["curves"] for one in results}
        figures.draw(panels, figures.save("lirs_queue", results, lines), across="epoch", up="accuracy or R2, %")


def first(goal: list[float], found: float) -> str:
    """Return the first epoch after which a full shuffle is as good."""
    reached = [epoch for epoch, value in enumerate(goal, 1) if value >= found]
    return str(reached[0]) if reached else f"over {len(goal)}"


if __name__ == "__main__":
    main()
