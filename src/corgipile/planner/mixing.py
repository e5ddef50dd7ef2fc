"""Which rows an order visits: an epoch, or stretches of it, followed over row numbers."""

from typing import NamedTuple

import numpy as np

from corgipile.orders import Blocks, Key, Order, Riffle
from corgipile.orders.order import IntArray, rows_of
from corgipile.orders.planned import Planned

__all__ = ["Visits", "followed", "worst"]

MOST, BATCHES, LARGEST = 1 << 19, 256, 1 << 21  # rows visited that are followed; more for that many batches
STRETCHES = 8  # of a longer epoch, alike far apart


class Visits(NamedTuple):
    """What an epoch does, or stretches of it.

    Attributes:
        rows: Numbers of the rows, int64, in the order of their visits; of each stretch whole batches.
        runs: Runs of rows that are read, of each row.
    """

    rows: IntArray
    runs: float


def followed(order: Order, blocks: Blocks, key: Key, batch: int) -> Visits:
    """Follow an epoch, or eight stretches of it, half a million rows in all; nothing of the table is read.

    Args:
        order: The order, fitted.
        blocks: The blocks it runs over, with their sketch if it balances them.
        key: Which pass, and of which rank.
        batch: Rows of a batch.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=50).fit(100, 8, None)
        >>> rows, runs = followed(order, Blocks(100, even=50), Key(0), 10)
        >>> rows[:3].tolist(), len(rows), runs
        ([0, 1, 2], 100, 0.02)
    """
    most, visits = max(MOST, min(BATCHES * batch, LARGEST)), order.visits(blocks, key)
    if visits <= most:
        rows, runs = _stretch(order, blocks, key, 0, visits)
    else:
        steps = _count(order, blocks, key)
        starts = [0, *(steps * part // STRETCHES for part in range(1, STRETCHES))]
        found = [_stretch(order, blocks, key, start, most // STRETCHES // batch * batch or batch) for start in starts]
        rows, runs = np.concatenate([part for part, _ in found]), float(np.median([runs for _, runs in found]))
    if order.cuts_into == "block" and not order.sequential:
        runs = blocks.count / max(1, blocks.rows)
    return Visits(rows, runs)


def _stretch(order: Order, blocks: Blocks, key: Key, start: int, most: int) -> tuple[IntArray, float]:
    """Follow some rows from a step on; return them, and runs read of each row read."""
    row_of = np.full(order.slots(blocks), -1, np.int64)
    parts, loads, count = [np.zeros(0, np.int64)], [], 0
    for step in order.steps(blocks, key, start):
        kept = step.into >= 0
        row_of[step.into[kept]] = rows_of(step.extents)[kept]
        parts.append(row_of[step.visit])
        loads.append((len(step.extents), len(step.into)))
        count += len(step.visit)
        if count >= most:
            break
    if start and len(loads) > 1:
        del loads[0]  # what waits at that point, row by row
    runs, loaded = np.sum(loads, axis=0) if loads else (0, 0)
    return np.concatenate(parts)[:most], float(runs / max(1, loaded))


def _count(order: Order, blocks: Blocks, key: Key) -> int:
    """Return the steps of a pass: found by asking which there are, for the first one may be anywhere."""
    low, high = 0, 1
    while next(iter(order.steps(blocks, key, high)), None) is not None:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        there = next(iter(order.steps(blocks, key, middle)), None) is not None
        low, high = (middle, high) if there else (low, middle)
    return high


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
