"""Evaluates a model during training on held-out rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from corgipile.errors import BadArgument, BadValue
from corgipile.linear import passes
from corgipile.linear.classes import check_label, check_weight
from corgipile.linear.encoded import as_numbers, encode_table
from corgipile.linear.features import find_inputs, log_unknown
from corgipile.linear.model import Model
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.problem import Record, Task
from corgipile.linear.sgd import SGD
from corgipile.loader.materialize import bring
from corgipile.tables import open as open_table

__all__ = ["measuring"]


@contextmanager
def measuring(test: Any, task: Task) -> Iterator[Callable[[Model], Record] | None]:
    """Yield a function that evaluates a model on the test table; None without one."""
    if test is None:
        yield None
        return
    table = open_table(test)
    inputs, whose = task.inputs, f"the test table {table!r}"
    weights = [] if task.weight is None else [task.weight]
    bring(table, [*task.columns, task.label, *weights], None)  # the table is read after each epoch
    table = encode_table(as_numbers(table, task.label, task.weight, once=True), task.encoding, task.label, once=True)
    check_label(table, task.label, whose)
    log_unknown(table.schema, task.facts(), task.label)
    test_inputs = find_inputs(table, inputs.columns, task.label, inputs.width, whose=whose)
    if test_inputs.width != inputs.width:
        raise BadArgument(f"the test table must have {inputs.width} features, got {test_inputs.width}")
    if not len(table):
        raise BadValue(f"{whose} has no rows to evaluate the model on")
    if not test_inputs.sparse:
        test_inputs = replace(test_inputs, dtype=np.promote_types(test_inputs.dtype, inputs.dtype))
    if task.weight is not None:
        check_weight(table, task.weight, task.label, whose)
    read = NullsAsNaN(table, test_inputs, task.label, task.weight, skip=task.on_bad == "skip")

    def measure(model: Model) -> Record:
        sgd = SGD(task.kind, test_inputs, task.classes, on_bad=task.on_bad)
        sgd.assign(model.coef, model.intercept)
        record = passes.measure(sgd, feeder, task.label, task.weight).record(task.kind)
        skipped = {"skipped": sgd.skipped} if sgd.skipped else {}
        return {f"test_{name}": value for name, value in (record | skipped).items()}

    with passes.reader(test_inputs, read, task.label, task.weight) as feeder:
        yield measure
