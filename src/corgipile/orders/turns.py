"""Visits of some rows in a pass, without following all others."""

from collections.abc import Iterator

import numpy as np

from corgipile.orders.order import Blocks, IntArray, Key, Order, rows_of

__all__ = ["turns_of"]


def turns_of(wanted: IntArray, order: Order, blocks: Blocks, key: Key) -> Iterator[tuple[IntArray, IntArray, int]]:
    """Follow an order without data, for the ``wanted`` rows only, which must be ascending and unique.

    Yields:
        For each step: its visits of these rows as places among all its visits, the rows, and its number of visits.

    Example:
        >>> from corgipile.orders import NoShuffle
        >>> order = NoShuffle(block=3).fit(7, 8, None)
        >>> found = turns_of(np.array([1, 5]), order, Blocks(7, even=3), Key(0))
        >>> [(at.tolist(), rows.tolist()) for at, rows, _ in found]
        [([1], [1]), ([2], [5]), ([], [])]
    """
    slots = order.slots(blocks)
    row_of, loaded_slots = np.zeros(slots, np.int64), np.zeros(slots, np.bool_)
    for step in order.steps(blocks, key):
        if loaded_slots.any():
            loaded_slots[step.into[step.into >= 0]] = False
        first, last = np.searchsorted(wanted, step.extents.T)
        if (last > first).any():
            loaded, ends = rows_of(np.column_stack([first, last])), np.cumsum(np.diff(step.extents)[:, 0])
            of = np.repeat(np.arange(len(first)), last - first)
            into = step.into[wanted[loaded] - step.extents[of, 1] + ends[of]]
            row_of[into[into >= 0]], loaded_slots[into[into >= 0]] = wanted[loaded][into >= 0], True
        at = np.flatnonzero(loaded_slots[step.visit]) if loaded_slots.any() else np.zeros(0, np.int64)
        yield at, row_of[step.visit[at]], len(step.visit)
