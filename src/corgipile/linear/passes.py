"""One pass of a machine over a table, to learn, to measure or to score."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy.typing as npt

from corgipile.errors import BudgetTooSmall
from corgipile.linear.inputs import Inputs
from corgipile.linear.machine import Figures, Machine, rows_in
from corgipile.loader.feeder import Feeder
from corgipile.orders.base import visited_rows
from corgipile.sizes import Size
from corgipile.tables.base import Table

__all__ = ["learn", "measure", "reader", "scores"]

READ_MEMORY: Size = "4MB"


def row_at(feeder: Feeder, epoch: int, step: int) -> Callable[[int], str]:
    """Return what names a row by its place in the visits of a step; nothing is read to find out."""

    def name(place: int) -> str:
        rows = next(islice(visited_rows(feeder.order, feeder.blocks, feeder.key(epoch)), step, None))
        return f"row {rows[place]} of {feeder.table!r}"

    return name


def learn(
    machine: Machine,
    feeder: Feeder,
    label: str,
    rate: float,
    epoch: int,
    on_rows: Callable[[int], object] | None = None,
) -> Figures:
    """Run one epoch and return its figures."""
    machine.begin(rate)
    for step, visit in enumerate(feeder.epoch(epoch)):
        where = row_at(feeder, epoch, step)
        machine.learn(rows_in(feeder.store, machine.inputs, visit), feeder.store.dense(label), visit, where)
        if on_rows is not None:
            on_rows(len(visit))
    return machine.flush()


def measure(machine: Machine, feeder: Feeder, label: str) -> Figures:
    """Return the figures of a table without learning: a pass at learning rate 0."""
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
        yield machine.decide(rows_in(feeder.store, machine.inputs, visit), visit, row_at(feeder, 0, step))
