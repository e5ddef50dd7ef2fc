"""How an order would mix: followed over row numbers, with labels or at worst."""

from typing import NamedTuple

import numpy as np

from corgipile.orders import Blocks, Key, Order, Riffle
from corgipile.orders.order import rows_of
from corgipile.orders.planned import Planned
from corgipile.quality.keys import Keys
from corgipile.quality.spread import deff_of

__all__ = ["Mixing", "followed", "worst"]

MOST = 1 << 22  # rows visited that are followed


class Mixing(NamedTuple):
    """What an epoch, or its beginning, does.

    Attributes:
        deff: Of the labels of its batches.
        runs: Runs of rows that are read, of each row visited.
    """

    deff: float
    runs: float


def followed(order: Order, blocks: Blocks, key: Key, labels: Keys | None, batch: int) -> Mixing:
    """Follow an epoch, or its first four million rows; nothing of the table is read.

    Args:
        order: The order, fitted.
        blocks: The blocks it runs over, with their sketch if it balances them.
        key: Which pass, and of which rank.
        labels: A class or number a row; None: deff is the `worst` there is.
        batch: Rows of a batch.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=50).fit(100, 8, None)
        >>> followed(order, Blocks(100, even=50), Key(0), Keys([0] * 50 + [1] * 50), 10)
        Mixing(deff=10.0, runs=0.02)
    """
    row_of = np.full(order.slots(blocks), -1, np.int64)
    parts, count, runs = [np.zeros(0, np.int64)], 0, 0
    for step in order.steps(blocks, key):
        kept = step.into >= 0
        row_of[step.into[kept]] = rows_of(step.extents)[kept]
        parts.append(row_of[step.visit])
        count, runs = count + len(step.visit), runs + len(step.extents)
        if count >= MOST:
            break
    rows = np.concatenate(parts)
    found = worst(order, blocks, batch) if labels is None else deff_of(labels, rows, min(batch, len(rows)))
    return Mixing(found, runs / max(1, count))


def worst(order: Order, blocks: Blocks, batch: int) -> float:
    """Return deff if every block holds one kind of rows, and balance knows nothing of it.

    It is ``1 + (B - 1)(1 - a)/n`` with ``a = (n - 1)/(N - 1)``, for batches of B rows of n of N blocks. Riffle that
    does not keep blocks whole deals from twice as many as memory holds.

    Example:
        >>> from corgipile.orders import CorgiPile, FullShuffle, NoShuffle
        >>> blocks = Blocks(10_000, even=100)
        >>> round(worst(CorgiPile(block=100, buffer=5000).fit(10_000, 8, None), blocks, 64), 2)
        1.64
        >>> worst(FullShuffle().fit(10_000, 8, None), Blocks(10_000, even=1), 64), worst(NoShuffle(), blocks, 64)
        (1.0, 64.0)
    """
    if order.cuts_into == "row":
        return 1.0
    if order.sequential:
        return float(batch)
    inside = order.buffer_blocks() if isinstance(order, Planned) else order.slots(blocks) / max(1, blocks.widest)
    twice = isinstance(order, Riffle) and not order.whole
    piles = min(max(1.0, inside * (1 + twice)), blocks.count)
    alpha = (piles - 1) / (blocks.count - 1) if blocks.count > 1 else 1.0
    return 1 + (batch - 1) * (1 - alpha) / piles
