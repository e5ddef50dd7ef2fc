"""Which rows an order visits: an epoch, or stretches of it, followed over row numbers."""

from typing import NamedTuple

import numpy as np

from corgipile.orders import Blocks, Key, Order
from corgipile.orders.order import IntArray, follow

__all__ = ["MOST", "Visits", "followed", "worst"]

MOST, BATCHES, LARGEST = 1 << 19, 256, 1 << 21  # rows visited that are followed; more for that many batches
NARROW = np.iinfo(np.int32).max
STRETCHES, FEWEST = 64, 8  # of a longer epoch, alike far apart: what is in memory should be other rows in each
FEW = 64  # blocks, of which one may hold rows of every kind


class Visits(NamedTuple):
    """What an epoch does, or stretches of it.

    Attributes:
        rows: Numbers of the rows, int32 where that holds them, in the order of their visits; of each stretch
            whole batches.
        runs: Runs of rows that are read, of each row.
    """

    rows: IntArray
    runs: float


def followed(order: Order, blocks: Blocks, key: Key, batch: int, far: int | None = None) -> Visits:
    """Follow an epoch, or stretches of it; nothing of the table is read.

    Stretches are 64, or as many as turn the buffer over twice, 8 at least: each begins with a buffer that is full, and
    more of them would have the same rows there.

    Args:
        order: The order, fitted.
        blocks: The blocks it runs over, with their sketch if it balances them.
        key: Which pass, and of which rank.
        batch: Rows of a batch.
        far: Rows that are followed, more where batches are large; None: half a million.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=50).fit(100, 8, None)
        >>> rows, runs = followed(order, Blocks(100, even=50), Key(0), 10)
        >>> rows[:3].tolist(), len(rows), runs
        ([0, 1, 2], 100, 0.02)
    """
    most, visits = max(far or MOST, min(BATCHES * batch, LARGEST)), order.visits(blocks, key)
    if visits <= most:
        rows, runs = _stretch(order, blocks, key, 0, visits)
    else:
        steps, parts = _count(order, blocks, key), _parts(visits, order.slots(blocks))
        full = max(1, steps - 1)  # the last one may be of a few rows
        starts = [0, *(full * part // parts for part in range(1, parts))]
        found = [_stretch(order, blocks, key, start, most // parts // batch * batch or batch) for start in starts]
        rows, runs = np.concatenate([part for part, _ in found]), float(np.median([runs for _, runs in found]))
    if order.cuts_into == "block" and not order.sequential:
        runs = blocks.count / max(1, blocks.rows)
    return Visits(rows, runs)


def _parts(visits: int, slots: int) -> int:
    """Return how many stretches tell an epoch, a power of two.

    Example:
        >>> _parts(36_000_000, 700_000), _parts(50_000_000, 5_000_000), _parts(50_000_000, 40_000_000)
        (64, 16, 8)
    """
    turns = 2 * visits // max(1, slots)
    return max(FEWEST, min(STRETCHES, 1 << max(0, turns.bit_length() - 1)))


def _stretch(order: Order, blocks: Blocks, key: Key, start: int, most: int) -> tuple[IntArray, float]:
    """Follow some rows from a step on; return them, and runs read of each row read."""
    row_of = np.full(order.slots(blocks), -1, np.int64)
    kind = np.int32 if blocks.rows <= NARROW else np.int64
    parts, loads, count = [np.zeros(0, kind)], [], 0
    for step in order.steps(blocks, key, start):
        parts.append(follow(step, row_of)[: most - count].astype(kind))
        loads.append((len(step.extents), len(step.into)))
        count += len(step.visit)
        if count >= most:
            break
    if start and len(loads) > 1:
        del loads[0]  # what waits at that point, row by row
    runs, loaded = np.sum(loads, axis=0) if loads else (0, 0)
    return np.concatenate(parts), float(runs / max(1, loaded))


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


def worst(rows: IntArray, blocks: Blocks, batch: int) -> float:
    """Return deff of what is alike within every block, unlike between them, and unknown to any balance.

    Of N blocks in random order a batch of B rows, c of them from each block, has a mean whose variance is
    ``(sum c^2 / B^2 - 1/N) N/(N - 1)`` of a row's. Of a column of which blocks are alike but for a share of its
    variance, deff is as far above 1 as that share says. Of few blocks, each of which may hold rows of every kind, it is
    that of sixty-fourths of the table where these mix less.

    Args:
        rows: What is visited, see `followed`.
        blocks: The blocks.
        batch: Rows of a batch.

    Example:
        >>> round(worst(np.arange(100), Blocks(100, even=10), 10), 3)
        10.0
        >>> round(worst(np.arange(6400), Blocks(6400, even=6400), 100), 1)
        100.0
    """
    found = _worst(rows, blocks, batch)
    return (
        found
        if blocks.count >= FEW
        else max(found, _worst(rows, Blocks(blocks.rows, even=-(-blocks.rows // FEW)), batch))
    )


def _worst(rows: IntArray, blocks: Blocks, batch: int) -> float:
    """Return the same of these blocks."""
    batch = max(1, min(batch, len(rows)))
    whole = rows[: len(rows) // batch * batch]
    if not len(whole):
        return 1.0
    at = whole // blocks.even if blocks.cuts is None else np.searchsorted(blocks.cuts, whole, side="right")
    at = np.sort(at.reshape(-1, batch), axis=1)
    begins = np.ones(at.shape, bool)
    begins[:, 1:] = at[:, 1:] != at[:, :-1]
    counts = np.diff(np.append(np.flatnonzero(begins), at.size))
    off = float((counts.astype(np.float64) ** 2).sum() / at.size) - batch / blocks.count
    return off * blocks.count / max(1, blocks.count - 1)
