"""What the weights of hashed features take of the memory: there are as many as there are places, whatever the rows."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from corgipile.errors import BudgetTooSmall
from corgipile.linear.classes import Labels
from corgipile.linear.schedule import Schedule
from corgipile.losses import most_classes
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.steps import step_of

if TYPE_CHECKING:
    from corgipile.linear.training import Task

__all__ = ["left_for_rows"]

MOST = 3 / 4  # of the budget
WEIGHT_BYTES = 24  # per weight, during training
USUAL = step_of("auto")  # which keeps as much of each feature as any


def left_for_rows(task: "Task", memory: Size | None, models: int = 1) -> Size | None:
    """Return what of a budget is for rows, where models of hashed features learn; all of it of other features.

    Args:
        task: What is learnt.
        memory: The budget.
        models: How many models learn at once.

    Raises:
        BudgetTooSmall: The models take more than three quarters; says what would do.
    """
    _check_width(task.inputs.width)
    if memory is None or task.encoding is None or task.encoding.hashing is None:
        return memory
    limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes)
    taken = _bytes(task) * models
    if taken > limit * MOST:
        said = (
            f"the model takes {format_bytes(taken)}" if models == 1 else f"{models} models take {format_bytes(taken)}"
        )
        raise BudgetTooSmall(
            f"memory is {memory!r}, of which {said} while it learns, for hash_bits={task.encoding.hashing.bits}; "
            f"give memory={int(taken / MOST) + 1}, or fewer bits"
        )
    return limit - taken


def _check_width(width: int) -> None:
    """Raise BudgetTooSmall if the weights alone exceed the machine's memory, as one wrong index can cause."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if width * WEIGHT_BYTES > has:
        raise BudgetTooSmall(
            f"{width} features must fit in memory as weights, {format_bytes(width * WEIGHT_BYTES)}, got "
            f"{format_bytes(has)}: check the largest index, or hash features to fewer"
        )


def _bytes(task: "Task") -> int:
    """Return what a model takes while it learns, and as what is saved; labels are read if there is a score a class."""
    if 0 < most_classes(task.kind) <= 2:  # two classes, whichever
        task = replace(task, labels=Labels(task.source, task.label, task.kind, classes=np.arange(2)))
    sgd = task.sgd(Schedule(USUAL.usual, 1.0, 0.0, None, USUAL.name))
    return sgd.bytes + sgd.outputs * sgd.inputs.width * 2 * sgd.inputs.dtype.itemsize + sgd.lines * sgd.inputs.width * 8
