"""The laws of every order."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from corgipile.orders import Blocks, Key, Order, visited_rows
from corgipile.orders.order import IntArray
from corgipile.testing.laws import holds
from corgipile.testing.shuffles import Measured, laws

__all__ = [
    "check_order",
    "check_pass",
    "check_seeds",
    "check_slots",
    "check_start",
    "check_world",
    "measure_order",
]

ROW_BYTES = 4000.0


def visits(order: Order, blocks: Blocks, key: Key, start: int = 0) -> IntArray:
    """Return the row numbers that a pass visits, in order."""
    return np.concatenate([np.empty(0, np.int64), *visited_rows(order, blocks, key, start)])


def check_order(order: Order, rows: int = 600, *, block: int = 10, buffer: int = 60, random: bool = True) -> None:
    """Check every law of an order on a small table, with blocks of equal and of different lengths.

    Args:
        order: The order; its own sizes are replaced.
        rows: Rows of the table.
        block: Rows per block.
        buffer: Rows of the buffer.
        random: Whether passes differ by seed and epoch. They must then obey the statistical laws of `measure_order`.

    Raises:
        LawBroken: The order violates a law.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> check_order(NoShuffle(), rows=100, random=False)
    """
    fitted = _fitted(order, rows, block, buffer)
    widest = fitted.block_rows
    uneven = np.unique(np.minimum(np.cumsum(np.arange(rows + 1) % widest + 1) - 1, rows))
    for blocks in (Blocks(rows, even=widest), Blocks.of(uneven)):
        described = (
            replace(blocks, sketch=np.arange(blocks.count, dtype=np.float64) % 5) if fitted.sketch_column else blocks
        )
        key = Key(seed=7, epoch=1)
        check_pass(fitted, described, key)
        check_slots(fitted, described, key)
        for start in (0, 1, 3):
            check_start(fitted, described, key, start)
        for world in (2, 3):
            check_world(fitted, described, key, world)
        if random:
            check_seeds(fitted, described)
    if random:
        broken = [law for law in measure_order(order, rows, block=block, buffer=buffer) if not law.holds]
        more = f"; also broken: {', '.join(law.law for law in broken[1:])}" if broken[1:] else ""
        holds(not broken, otherwise=f"{order!r}: {broken[0] if broken else None}{more}")


def measure_order(
    order: Order, rows: int = 600, *, block: int = 10, buffer: int = 60, seed: int = 7
) -> Iterator[Measured]:
    """Measure the statistical laws of a random order in 256 passes over a small table.

    The laws follow from what the order declares: ``sequential`` (a window over the stored order), ``once``,
    ``sketch_column`` (blocks are balanced), and ``shuffles_rows`` (blocks do not keep their rows in storage order; true
    if missing). A correct order breaks one with a probability below 1e-8.

    Args:
        order: The order; its own sizes are replaced.
        rows: Rows of the table, without those of a last block that is shorter.
        block: Rows per block, and per batch.
        buffer: Rows of the buffer.
        seed: The first of 16 seeds; each has 16 epochs.

    Yields:
        The measurement of each law, and its limits.

    Example:
        >>> from corgipile.orders import CorgiPile
        >>> all(law.holds for law in measure_order(CorgiPile()))
        True
    """
    rows = rows // block * block
    fitted = _fitted(order, rows, block, buffer)
    yield from laws(fitted, Blocks(rows, even=fitted.block_rows), buffer, block, seed)


def _fitted(order: Any, rows: int, block: int, buffer: int) -> Order:
    sized: Order = replace(order, block=block, buffer=buffer)
    return sized.fit(rows, ROW_BYTES, None)


def check_pass(order: Order, blocks: Blocks, key: Key) -> None:
    """Check that a pass visits each row once (at least once if ``order.once`` is false), as often as it reports.

    Raises:
        LawBroken: It does not.
    """
    seen = visits(order, blocks, key)
    counts = np.bincount(seen, minlength=blocks.rows)
    wrong = np.flatnonzero((counts != 1) if order.once else (counts < 1))
    holds(
        not len(wrong) and len(counts) == blocks.rows,
        otherwise=f"{order!r} visits row {wrong[:1]} {counts[wrong[:1]]} times, {blocks!r}, {key}",
    )
    reported = order.visits(blocks, key)
    holds(reported == len(seen), otherwise=f"{order!r} must make {reported} visits, got {len(seen)}, {blocks!r}, {key}")


def check_start(order: Order, blocks: Blocks, key: Key, start: int) -> None:
    """Check that a pass started at a step continues like one from the beginning.

    Raises:
        LawBroken: It does not.
    """
    steps = list(visited_rows(order, blocks, key))
    rest = np.concatenate([np.empty(0, np.int64), *steps[start:]])
    same = np.array_equal(visits(order, blocks, key, start), rest) if start <= len(steps) else True
    holds(same, otherwise=f"{order!r} started at step {start} must be the tail of the pass, {blocks!r}, {key}")


def check_slots(order: Order, blocks: Blocks, key: Key) -> None:
    """Check that slots are within bounds, and reused only after their rows are visited.

    A slot that step i loads must not be visited by the ``ahead`` steps before it, which may still be running.

    Raises:
        LawBroken: They are not.
    """
    slots = order.slots(blocks)
    before: list[set[int]] = []
    for number, step in enumerate(order.steps(blocks, key)):
        into = step.into[step.into >= 0]
        where = f"{order!r}, step {number}, {blocks!r}, {key}"
        holds(step.into.max(initial=-1) < slots, otherwise=f"slots must be below {slots}: {where}")
        holds(len(np.unique(into)) == len(into), otherwise=f"two rows in one slot: {where}")
        loaded = set(into.tolist())
        for earlier in before[max(0, number - order.ahead) :]:
            holds(not loaded & earlier, otherwise=f"a slot is reused while its row may be visited: {where}")
        before.append(set(step.visit.tolist()))
    resident = order.resident(blocks)
    holds(resident <= slots, otherwise=f"{order!r} reports {resident} rows in memory, more than its {slots} slots")


def check_world(order: Order, blocks: Blocks, key: Key, world: int) -> None:
    """Check that ranks divide a pass: all rows in total, equally many per rank, fewer than ``world`` rows twice.

    Raises:
        LawBroken: They do not.
    """
    keys = [key._replace(rank=rank, world=world) for rank in range(world)]
    parts = [visits(order, blocks, one) for one in keys]
    where = f"{order!r}, {world} ranks, {blocks!r}, {key}"
    reported = [order.visits(blocks, one) for one in keys]
    holds(
        reported == [len(part) for part in parts], otherwise=f"ranks must make the reported numbers of visits: {where}"
    )
    holds(set(np.concatenate(parts).tolist()) == set(range(blocks.rows)), otherwise=f"rows are lost: {where}")
    if order.once:
        holds(len(set(reported)) == 1, otherwise=f"ranks must have equally many visits, got {reported}: {where}")
        holds(sum(reported) - blocks.rows < world, otherwise=f"{sum(reported)} visits of {blocks.rows} rows: {where}")


def check_seeds(order: Order, blocks: Blocks) -> None:
    """Check that a seed repeats, and that epochs and seeds differ; seed 7, epoch 1 is not seed 8, epoch 0 either.

    Raises:
        LawBroken: A law is violated.
    """
    one = visits(order, blocks, Key(7, 1))
    holds(
        np.array_equal(one, visits(order, blocks, Key(7, 1))), otherwise=f"{order!r}: equal keys must give equal passes"
    )
    for other in (Key(7, 0), Key(7, 2), Key(8, 0), Key(8, 1), Key(1, 7)):
        same = np.array_equal(one, visits(order, blocks, other))
        holds(not same, otherwise=f"{order!r}: seed 7, epoch 1 is seed {other.seed}, epoch {other.epoch}")
