"""Simulation of an order over row numbers: an epoch, or stretches of it."""

from typing import NamedTuple

import numpy as np

from corgipile.orders import Blocks, Key, Order
from corgipile.orders.order import IntArray, follow

__all__ = ["MAX_VISITS", "Visits", "simulate", "worst"]

MAX_VISITS, MIN_BATCHES, MAX_BATCH_VISITS = 1 << 19, 256, 1 << 21  # visits simulated at most
MAX_INT32 = np.iinfo(np.int32).max
MAX_STRETCHES, MIN_STRETCHES = 64, 8  # equidistant stretches of a longer epoch, with different buffers
MIN_BLOCKS = 64  # blocks below which a block may hold rows of each class


class Visits(NamedTuple):
    """Visits of a simulated epoch, or of stretches of it.

    Row numbers are in order, whole batches of each stretch, as int32 if that holds them; ``runs`` is the number of runs
    read, per row.
    """

    rows: IntArray
    runs: float


def simulate(order: Order, blocks: Blocks, key: Key, batch: int, far: int | None = None) -> Visits:
    """Simulate an epoch, or stretches of it, without reading the table.

    There are 64 stretches, or as many as turn the buffer over twice, but at least 8. Each begins with a full buffer;
    more stretches would share rows there. ``far`` visits are simulated, more for large batches, by default half a
    million.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=50).fit(100, 8, None)
        >>> rows, runs = simulate(order, Blocks(100, even=50), Key(0), 10)
        >>> rows[:3].tolist(), len(rows), runs
        ([0, 1, 2], 100, 0.02)
    """
    most, visits = max(far or MAX_VISITS, min(MIN_BATCHES * batch, MAX_BATCH_VISITS)), order.visits(blocks, key)
    if visits <= most:
        rows, runs = _stretch(order, blocks, key, 0, visits)
    else:
        steps, parts = _count(order, blocks, key), _parts(visits, order.slots(blocks))
        full = max(1, steps - 1)  # the last step may have few rows
        starts = [0, *(full * part // parts for part in range(1, parts))]
        stretches = [_stretch(order, blocks, key, start, most // parts // batch * batch or batch) for start in starts]
        rows, runs = np.concatenate([part for part, _ in stretches]), float(np.median([runs for _, runs in stretches]))
    if order.cuts_into == "block" and not order.sequential:
        runs = blocks.count / max(1, blocks.rows)
    return Visits(rows, runs)


def _parts(visits: int, slots: int) -> int:
    """Return the number of stretches that represent an epoch, a power of two.

    Example:
        >>> _parts(36_000_000, 700_000), _parts(50_000_000, 5_000_000), _parts(50_000_000, 40_000_000)
        (64, 16, 8)
    """
    turns = 2 * visits // max(1, slots)
    return max(MIN_STRETCHES, min(MAX_STRETCHES, 1 << max(0, turns.bit_length() - 1)))


def _stretch(order: Order, blocks: Blocks, key: Key, start: int, most: int) -> tuple[IntArray, float]:
    """Simulate rows from a step on; return them, and the runs per row read."""
    row_of = np.full(order.slots(blocks), -1, np.int64)
    kind = np.int32 if blocks.rows <= MAX_INT32 else np.int64
    parts, loads, count = [np.zeros(0, kind)], [], 0
    for step in order.steps(blocks, key, start):
        parts.append(follow(step, row_of)[: most - count].astype(kind))
        loads.append((len(step.extents), len(step.into)))
        count += len(step.visit)
        if count >= most:
            break
    if start and len(loads) > 1:
        del loads[0]  # refills the buffer row by row
    runs, loaded = np.sum(loads, axis=0) if loads else (0, 0)
    return np.concatenate(parts), float(runs / max(1, loaded))


def _count(order: Order, blocks: Blocks, key: Key) -> int:
    """Return the number of steps of a pass, by bisection, since any step can be requested."""
    low, high = 0, 1
    while next(iter(order.steps(blocks, key, high)), None) is not None:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        exists = next(iter(order.steps(blocks, key, middle)), None) is not None
        low, high = (middle, high) if exists else (low, middle)
    return high


def worst(rows: IntArray, blocks: Blocks, batch: int) -> float:
    """Return deff of a value that is constant in blocks, differs between them, and is unknown to any balance.

    For N blocks in random order, a batch of B rows, c of them from each block, has a mean whose variance is
    ``(sum c^2 / B^2 - 1/N) N/(N - 1)`` of a row's. A column whose blocks share only a fraction of the variance has that
    fraction of the excess of deff over 1. If there are few blocks, each may hold rows of every class: then
    sixty-fourths of the table count as blocks if they mix less.

    Example:
        >>> round(worst(np.arange(100), Blocks(100, even=10), 10), 3)
        10.0
        >>> round(worst(np.arange(6400), Blocks(6400, even=6400), 100), 1)
        100.0
    """
    value = _worst(rows, blocks, batch)
    if blocks.count >= MIN_BLOCKS:
        return value
    return max(value, _worst(rows, Blocks(blocks.rows, even=-(-blocks.rows // MIN_BLOCKS)), batch))


def _worst(rows: IntArray, blocks: Blocks, batch: int) -> float:
    """Return the worst-case deff of given blocks."""
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
