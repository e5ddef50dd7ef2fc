"""Draw ``docs/orders.png``: what each batch of an epoch holds when a label-sorted table is read in different orders."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

from corgipile.orders import Blocks, CorgiPile, FullShuffle, Key, NoShuffle, Riffle, SlidingWindow, visited_rows

mpl.use("Agg")
import matplotlib.pyplot as plt

ROWS, BLOCK, MEMORY, BATCH, CLASSES = 200_000, 50, 4000, 256, 10
ORDERS = {
    "No Shuffle": NoShuffle(block=BLOCK),
    "Sliding Window": SlidingWindow(block=BLOCK),
    "CorgiPile": CorgiPile(block=BLOCK),
    "Riffle": Riffle(block=BLOCK),
    "Riffle, balanced": Riffle(block=BLOCK, balance="label"),
    "Full shuffle\n(whole table in memory)": FullShuffle(),
}


def shares(order: object, budget: int | None) -> np.ndarray:
    """Return the share of each class in each batch, [classes, batches]."""
    labels = np.arange(ROWS) * CLASSES // ROWS
    fitted = order.fit(ROWS, 116.0, budget)  # type: ignore[attr-defined]
    blocks = Blocks(ROWS, even=fitted.block_rows)
    if getattr(fitted, "balance", None):
        blocks = replace(blocks, sketch=labels[::BLOCK] + 0.5)
    visits = labels[np.concatenate(list(visited_rows(fitted, blocks, Key(0))))]
    batches = visits[: len(visits) // BATCH * BATCH].reshape(-1, BATCH)
    return np.stack([(batches == label).mean(axis=1) for label in range(CLASSES)])


def main() -> None:
    """Draw the picture."""
    figure, axes = plt.subplots(len(ORDERS), 1, figsize=(9, 7), sharex=True)
    for axis, (name, order) in zip(axes, ORDERS.items(), strict=True):
        share = shares(order, None if name.startswith("Full") else MEMORY)
        deff = BATCH * share.var(axis=1).sum() / (1 - 1 / CLASSES)
        axis.stackplot(range(share.shape[1]), share, colors=plt.get_cmap("tab10").colors)
        axis.set(xlim=(0, share.shape[1] - 1), ylim=(0, 1), yticks=[])
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        axis.text(1.01, 0.5, f"batch variance\n{deff:.3g} x full shuffle" if deff >= 0.1 else f"{deff:.2g}",
                  transform=axis.transAxes, va="center", fontsize=9)  # fmt: skip
    axes[-1].set_xlabel("batches of one epoch, 256 rows each; colours: the ten labels of a table sorted by label")
    figure.suptitle("Same table, same 2 % of it in memory", fontsize=12)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("orders.png"), dpi=90)


if __name__ == "__main__":
    main()
