"""One pass of a machine over a table, to learn, to measure or to score."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BudgetTooSmall
from corgipile.linear.inputs import Inputs
from corgipile.linear.machine import Machine, Totals, rows_in
from corgipile.loader.feeder import Feeder
from corgipile.orders.base import rows_of
from corgipile.sizes import Size
from corgipile.tables.base import Table

__all__ = ["learn", "measure", "reader", "scores"]

READ_MEMORY: Size = "4MB"


def row_in_slot(feeder: Feeder, epoch: int, step: int, slot: int) -> str:
    """Name the row that lay in a slot at a step, by running the order's steps again without reading anything."""
    rows = np.full(feeder.slots, -1, np.int64)
    for number, now in enumerate(feeder.order.steps(feeder.blocks, feeder.key(epoch))):
        kept = now.into >= 0
        rows[now.into[kept]] = rows_of(now.extents)[kept]
        if number == step:
            break
    return f"row {rows[slot]} of {feeder.table!r}"


def learn(
    machine: Machine, feeder: Feeder, label: str, rate: float, epoch: int, on_rows: Callable[[int], None] | None = None
) -> Totals:
    """Run one epoch and return its totals."""
    machine.begin(rate)
    for step, visit in enumerate(feeder.epoch(epoch)):
        rows = rows_in(feeder.store, machine.inputs)
        labels = feeder.store.dense(label)
        machine.learn(rows, labels, visit, lambda slot, at=step: row_in_slot(feeder, epoch, at, slot))  # type: ignore[misc]
        if on_rows is not None:
            on_rows(len(visit))
    return machine.flush()


def measure(machine: Machine, feeder: Feeder, label: str) -> Totals:
    """Return the totals of a table without learning: a pass at learning rate 0."""
    return learn(machine, feeder, label, 0.0, 0)


def reader(inputs: Inputs, table: Table, label: str | None = None) -> Feeder:
    """Open a feeder that reads a table once, as it lies, in little memory."""
    try:
        return inputs.feeder(table, label, "no_shuffle", READ_MEMORY, 0)
    except BudgetTooSmall:
        return inputs.feeder(table, label, "no_shuffle", max(2 * table.nbytes, 1 << 26), 0)


def scores(machine: Machine, feeder: Feeder) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores of a table's rows as they lie, [rows, outputs] a step."""
    for step, visit in enumerate(feeder.epoch(0)):
        rows = rows_in(feeder.store, machine.inputs)
        yield machine.decide(rows, visit, lambda slot, at=step: row_in_slot(feeder, 0, at, slot))  # type: ignore[misc]
