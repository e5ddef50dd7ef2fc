"""Memory for the weights of hashed features, which depends on the number of places, not on rows."""

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
    from corgipile.linear.problem import Task

__all__ = ["memory_for_rows"]

MAX_SHARE = 3 / 4  # of the budget
WEIGHT_BYTES = 24  # per weight, during training
DEFAULT_STEP = step_of("auto")  # no step has a larger state per feature


def memory_for_rows(task: "Task", memory: Size | None, models: int = 1) -> Size | None:
    """Return the part of a budget for rows, without that for models of hashed features.

    Args:
        task: The task.
        memory: The budget.
        models: How many models train at once.

    Raises:
        BudgetTooSmall: The models take more than three quarters; the message names the memory that suffices.
    """
    _check_width(task.inputs.width)
    if memory is None or task.encoding is None or task.encoding.hashing is None:
        return memory
    limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes)
    taken = _bytes(task) * models
    if taken > limit * MAX_SHARE:
        usage = (
            f"the model takes {format_bytes(taken)}" if models == 1 else f"{models} models take {format_bytes(taken)}"
        )
        raise BudgetTooSmall(
            f"memory is {memory!r}: {usage} in training, with hash_bits={task.encoding.hashing.bits}; "
            f"give memory={int(taken / MAX_SHARE) + 1}, or fewer bits"
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
    """Return the bytes of a model in training and as saved; labels are read only if there is a score per class."""
    if 0 < most_classes(task.kind) <= 2:  # any two classes will do
        task = replace(task, labels=Labels(task.source, task.label, task.kind, classes=np.arange(2)))
    sgd = task.sgd(Schedule(DEFAULT_STEP.usual, 1.0, 0.0, None, DEFAULT_STEP.name))
    return (
        sgd.bytes
        + sgd.outputs * sgd.inputs.width * 2 * sgd.inputs.dtype.itemsize
        + sgd.state_rows * sgd.inputs.width * 8
    )
